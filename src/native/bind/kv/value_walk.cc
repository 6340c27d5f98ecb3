// Walks and sums of the values of verbena.kv.values.collections: in pieces for copies, as a sum for slot
// digests.
// Implements kv::ValueWalk and kv::ValueSum; takes the GIL itself.
#include <charconv>

#include "bind/kv/list.h"
#include "bind/kv/store.h"
#include "util/siphash.h"

namespace verbena::bind {
namespace {

std::string_view text_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

nb::object attribute(PyObject* object, const char* name) { return nb::handle(object).attr(name); }

// The dict of the elements; for a sorted set, the dict of its scores. Null: the value is a list.
PyObject* elements_of(PyObject* value, nb::object& kept) {
  if (PyDict_Check(value)) return value;
  if (!PyObject_HasAttrString(value, "scores")) return nullptr;
  kept = attribute(value, "scores");
  return kept.ptr();
}

constexpr size_t kElements = 512, kBytes = 64u << 10;  // the limits of a piece

// Keeps the value alive until the walk ends, and takes the GIL for each step.
class PythonValueWalk : public kv::ValueWalk {
 public:
  PythonValueWalk(PythonCallbacks& handler, std::shared_ptr<LazyFree> lazy_free, PyObject* value)
      : handler_(handler), lazy_free_(std::move(lazy_free)), value_(nb::borrow(value)) {}
  ~PythonValueWalk() override {
    const nb::gil_scoped_acquire gil;
    lazy_free_->take(value_.release().ptr(), 0);  // this may be the last reference to a large value
    lazy_free_.reset();
  }

  Step next(std::string_view key, std::vector<std::string_view>& arguments) final {
    Step step = Step::failed;
    handler_.with_gil([&] { step = take(key, arguments); });
    return step;
  }

 protected:
  virtual Step take(std::string_view key, std::vector<std::string_view>& arguments) = 0;
  nb::handle value() const { return value_; }

 private:
  PythonCallbacks& handler_;
  std::shared_ptr<LazyFree> lazy_free_;
  nb::object value_;
};

// The walk of a hash, a set or a sorted set. A dict keeps the order of insertion, so new elements are at its
// end.
class DictWalk final : public PythonValueWalk {
 public:
  DictWalk(PythonCallbacks& handler, std::shared_ptr<LazyFree> lazy_free, PyObject* value)
      : PythonValueWalk(handler, std::move(lazy_free), value),
        elements_(elements_of(value, scores_)),
        kind_(nb::cast<std::string>(attribute(value, "TYPE"))),
        changes_(attribute(value, "begin_walk")()) {}
  ~DictWalk() override {
    const nb::gil_scoped_acquire gil;
    try {
      value().attr("end_walk")(changes_);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(value());
    }
    names_.clear(), gone_.clear();
    scores_.reset(), changes_.reset(), changed_.reset();
  }

 private:
  static constexpr int kMostBeginnings = 8;

  Step take(std::string_view key, std::vector<std::string_view>& arguments) override {
    if (!find_place()) return Step::lost;
    names_.clear();
    used_ = 0;
    if (!gone_.empty()) return take_gone(key, arguments);  // first: one may have been added again at the end
    begin(arguments, kind_ == "hash" ? "HSET" : kind_ == "set" ? "SADD" : "ZADD", key);
    PyObject *name, *content;
    for (; !is_full(arguments) && PyDict_Next(elements_, &place_, &name, &content); ++passed_) {
      put(arguments, name, content);
    }
    if (arguments.size() == 2) take_changed(arguments);
    if (arguments.size() > 2) return Step::more;
    return gone_.empty() ? Step::whole : take_gone(key, arguments);
  }

  // Adds the elements that have changed since the walk began, in their present state.
  void take_changed(std::vector<std::string_view>& arguments) {
    while (!is_full(arguments) && gone_.size() < kElements) {
      if (!changed_.is_valid() || PySet_GET_SIZE(changed_.ptr()) == 0) changed_ = changes_.attr("take")();
      if (PySet_GET_SIZE(changed_.ptr()) == 0) return;
      nb::object name = nb::steal(PySet_Pop(changed_.ptr()));
      if (!name.is_valid()) nb::raise_python_error();
      if (PyObject* content = PyDict_GetItemWithError(elements_, name.ptr())) {
        put(arguments, name.ptr(), content);
        names_.push_back(std::move(name));
      } else if (PyErr_Occurred()) {
        nb::raise_python_error();
      } else {
        gone_.push_back(std::move(name));
      }
    }
  }

  Step take_gone(std::string_view key, std::vector<std::string_view>& arguments) {
    begin(arguments, kind_ == "hash" ? "HDEL" : kind_ == "set" ? "SREM" : "ZREM", key);
    names_ = std::exchange(gone_, {});
    for (const nb::object& each : names_) arguments.push_back(text_of(each.ptr()));
    return Step::more;
  }

  // Finds the walk's position again after the dict has replaced its table. The new table does not have the
  // gaps of the old one, so the position in it is smaller, but still behind all passed elements that were not
  // removed (passed_). A table has room for as many elements as were in it when it was made: until half as
  // many have changed, it cannot have been replaced twice, so a changed address proves one replacement. After
  // more changes the walk begins again. False: that has happened too often.
  bool find_place() {
    const auto* const dict = reinterpret_cast<const PyDictObject*>(elements_);
    const void* const table = dict->ma_keys;
    const auto count = nb::cast<int64_t>(changes_.attr("count"));
    const Py_ssize_t changed = count - std::exchange(count_, count);
    const auto forget = [&] { passed_ = std::max<Py_ssize_t>(0, passed_ - changed); };
    forget();
    if (changed > dict->ma_used / 2) {
      place_ = passed_ = 0;
      ++beginnings_;
    } else if (table != table_) {
      place_ = passed_;
      forget();  // elements removed since the replacement may be gaps in the new table
    }
    table_ = table;
    return beginnings_ < kMostBeginnings;
  }

  void begin(std::vector<std::string_view>& arguments, std::string_view command, std::string_view key) {
    arguments.clear();
    arguments.push_back(command);
    arguments.push_back(key);
    bytes_ = 0;
  }
  bool is_full(const std::vector<std::string_view>& arguments) const {
    return arguments.size() >= 2 * kElements || bytes_ >= kBytes;
  }
  void put(std::vector<std::string_view>& arguments, PyObject* name, PyObject* content) {
    if (kind_ == "zset") arguments.push_back(shown(PyFloat_AS_DOUBLE(content)));
    arguments.push_back(text_of(name));
    bytes_ += arguments.back().size();
    if (kind_ != "hash") return;
    arguments.push_back(text_of(content));
    bytes_ += arguments.back().size();
  }
  std::string_view shown(double score) {
    auto& text = texts_[used_++];
    return {text.data(),
            static_cast<size_t>(std::to_chars(text.begin(), text.end(), score).ptr - text.data())};
  }

  nb::object scores_;
  PyObject* const elements_;
  const std::string kind_;
  nb::object changes_;
  nb::object changed_;  // names that were taken from changes_
  Py_ssize_t place_ = 0;
  Py_ssize_t passed_ = 0;  // at least this many elements before place_ still exist
  const void* table_ = nullptr;
  int64_t count_ = 0;
  int beginnings_ = 0;
  std::vector<nb::object> names_, gone_;  // keep the names alive to which the arguments refer
  std::array<std::array<char, 32>, 2 * kElements> texts_;
  size_t used_ = 0, bytes_ = 0;
};

class ListCopyCursor final : public PythonValueWalk {
 public:
  ListCopyCursor(PythonCallbacks& handler, std::shared_ptr<LazyFree> lazy_free, PyObject* value)
      : PythonValueWalk(handler, std::move(lazy_free), value),
        list_(nb::cast<ElementList&>(nb::handle(value))) {
    list_.begin_walk(walk_);
  }
  ~ListCopyCursor() override {
    const nb::gil_scoped_acquire gil;
    list_.end_walk(walk_);
  }

 private:
  using What = kv::ListCopyCursor::Step::What;

  Step take(std::string_view key, std::vector<std::string_view>& arguments) override {
    const kv::ListCopyCursor::Step step = walk_.next(list_.size(), kElements);
    size_t used = 0;
    switch (step.what) {
      case What::trim:
        first_ = std::to_string(step.first), last_ = "-" + std::to_string(step.count + 1);
        arguments.assign({"LTRIM", key, first_, last_});
        break;
      case What::set:
        first_ = std::to_string(step.count);
        arguments.assign({"LSET", key, first_, text_of(list_.at(step.first))});
        break;
      case What::push_right:
        arguments.assign({"RPUSH", key});
        for (size_t bytes = 0; used < step.count && bytes < kBytes; bytes += arguments.back().size()) {
          arguments.push_back(text_of(list_.at(step.first + used++)));
        }
        break;
      case What::push_left:
        arguments.assign({"LPUSH", key});
        for (size_t bytes = 0; used < step.count && bytes < kBytes; bytes += arguments.back().size()) {
          arguments.push_back(text_of(list_.at(step.first - ++used)));
        }
        break;
      case What::done:
        return Step::whole;
      case What::lost:
        return Step::lost;
    }
    walk_.taken(step, used);
    return Step::more;
  }

  ElementList& list_;
  kv::ListCopyCursor walk_;
  std::string first_, last_;
};

class PythonSum final : public kv::ValueSum {
 public:
  PythonSum(PythonCallbacks& handler, PyObject* value)
      : handler_(handler), value_(nb::borrow(value)), elements_(elements_of(value, scores_)) {
    if (!elements_) each_ = nb::iter(value_);
  }
  ~PythonSum() override {
    const nb::gil_scoped_acquire gil;
    each_.reset(), value_.reset(), scores_.reset();
  }

  bool add(size_t most) override {
    bool whole = true;  // stays true if reading fails, so that the caller does not retry
    handler_.with_gil([&] { whole = elements_ ? add_pairs(most) : add_list(most); });
    return whole;
  }

 private:
  static constexpr kv::HashKey kKey{.low = 1, .high = 2};

  bool add_list(size_t most) {
    for (; most > 0; --most) {
      const nb::object one = nb::steal(PyIter_Next(each_.ptr()));
      if (!one.is_valid()) {
        if (PyErr_Occurred()) nb::raise_python_error();
        return true;
      }
      take(count_, text_of(one.ptr()), {});
    }
    return false;
  }

  bool add_pairs(size_t most) {
    PyObject *name, *content;
    for (; most > 0; --most) {
      if (!PyDict_Next(elements_, &place_, &name, &content)) return true;
      const std::string_view arguments = text_of(name);
      if (PyBytes_Check(content)) {
        take(arguments.size(), arguments, text_of(content));
      } else if (PyFloat_Check(content)) {
        const double score = PyFloat_AS_DOUBLE(content);
        take(arguments.size(), arguments, {reinterpret_cast<const char*>(&score), sizeof score});
      } else {
        take(arguments.size(), arguments, {});
      }
    }
    return false;
  }

  void take(uint64_t number, std::string_view name, std::string_view content) {
    text_.assign(reinterpret_cast<const char*>(&number), sizeof number).append(name).append(content);
    sum_ += kv::siphash(kKey, text_);
    ++count_;
  }

  PythonCallbacks& handler_;
  nb::object value_, scores_, each_;
  PyObject* const elements_;
  Py_ssize_t place_ = 0;
  std::string text_;
};

}  // namespace

std::unique_ptr<kv::ValueWalk> PythonCallbacks::walk(uint64_t object) {
  constexpr Py_ssize_t kManyElements = 4096;
  constexpr uint64_t kManyBytes = 1u << 20;
  auto* const value = reinterpret_cast<PyObject*>(object);
  std::unique_ptr<kv::ValueWalk> made;
  with_gil([&] {
    const bool large = PyObject_Size(value) > kManyElements ||
                       nb::cast<uint64_t>(attribute(value, "memory_bytes")) > kManyBytes;
    if (!large) return;
    if (nb::isinstance<ElementList>(nb::handle(value))) {
      made = std::make_unique<ListCopyCursor>(*this, lazy_free_, value);
    } else {
      made = std::make_unique<DictWalk>(*this, lazy_free_, value);
    }
  });
  return made;
}

std::unique_ptr<kv::ValueSum> PythonCallbacks::sum(uint64_t object) {
  std::unique_ptr<kv::ValueSum> made;
  with_gil([&] { made = std::make_unique<PythonSum>(*this, reinterpret_cast<PyObject*>(object)); });
  return made;
}

uint64_t PythonCallbacks::count(uint64_t object) {
  Py_ssize_t count = 0;
  with_gil([&] { count = PyObject_Size(reinterpret_cast<PyObject*>(object)); });
  return static_cast<uint64_t>(count);
}

}  // namespace verbena::bind
