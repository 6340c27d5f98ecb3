// Collections of verbena.kv.values, element by element: in pieces for copies, and as a sum for comparisons.
#include <charconv>

#include "bind/kv.h"
#include "bind/kv_list.h"
#include "kv/siphash.h"

namespace verbena::bind {
namespace {

std::string_view text_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

nb::object attribute(PyObject* object, const char* name) { return nb::handle(object).attr(name); }

// The dict that has the elements: of a sorted set its scores. Null: it is a list.
PyObject* elements_of(PyObject* value, nb::object& kept) {
  if (PyDict_Check(value)) return value;
  if (!PyObject_HasAttrString(value, "scores")) return nullptr;
  kept = attribute(value, "scores");
  return kept.ptr();
}

// Of a hash, a set or a sorted set. A dict keeps the order in which elements came, so that a place in it
// means the same until it moves to a larger table; then the walk begins anew.
class PythonWalk final : public kv::ValueWalk {
 public:
  PythonWalk(PythonProgram& program, std::shared_ptr<Graves> graves, PyObject* value)
      : program_(program),
        graves_(std::move(graves)),
        value_(nb::borrow(value)),
        elements_(elements_of(value, scores_)),
        kind_(nb::cast<std::string>(attribute(value, "TYPE"))),
        changes_(attribute(value, "begin_walk")()) {}
  ~PythonWalk() override {
    const nb::gil_scoped_acquire gil;
    try {
      attribute(value_.ptr(), "end_walk")(changes_);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(value_);
    }
    names_.clear();
    scores_.reset(), changes_.reset();
    graves_->take(value_.release().ptr(), 0);  // it may be deleted by now
    graves_.reset();
  }

  Step next(std::string_view key, std::vector<std::string_view>& words) override {
    Step step = Step::failed;
    program_.with_gil([&] { step = take(key, words); });
    return step;
  }

 private:
  static constexpr size_t kElements = 512, kBytes = 64u << 10;
  static constexpr int kMostBeginnings = 8;

  Step take(std::string_view key, std::vector<std::string_view>& words) {
    if (has_moved()) {
      if (++beginnings_ > kMostBeginnings) return Step::lost;
      place_ = 0;
    }
    names_.clear();
    used_ = 0;
    begin(words, kind_ == "hash" ? "HSET" : kind_ == "set" ? "SADD" : "ZADD", key);
    PyObject *name, *content;
    while (!is_full(words) && PyDict_Next(elements_, &place_, &name, &content)) put(words, name, content);
    if (words.size() > 2) return Step::more;
    return take_changed(key, words);
  }

  // What has changed since the walk began, as it is now: first what is there, then what is gone.
  Step take_changed(std::string_view key, std::vector<std::string_view>& words) {
    if (!gone_.empty()) {
      begin(words, kind_ == "hash" ? "HDEL" : kind_ == "set" ? "SREM" : "ZREM", key);
      names_ = std::exchange(gone_, {});
      for (const nb::object& each : names_) words.push_back(text_of(each.ptr()));
      return Step::more;
    }
    while (!is_full(words) && gone_.size() < kElements && PySet_GET_SIZE(changes_.ptr()) > 0) {
      nb::object name = nb::steal(PySet_Pop(changes_.ptr()));
      if (!name.is_valid()) nb::raise_python_error();
      if (PyObject* content = PyDict_GetItemWithError(elements_, name.ptr())) {
        put(words, name.ptr(), content);
        names_.push_back(std::move(name));
      } else if (PyErr_Occurred()) {
        nb::raise_python_error();
      } else {
        gone_.push_back(std::move(name));
      }
    }
    if (words.size() > 2) return Step::more;
    return gone_.empty() ? Step::whole : take_changed(key, words);
  }

  // A table has room for as many elements as were in it when it was made: until half as many have changed, it
  // cannot have been replaced twice, so the address tells.
  bool has_moved() {
    const auto* const dict = reinterpret_cast<const PyDictObject*>(elements_);
    const void* const table = dict->ma_keys;
    const auto count = nb::cast<int64_t>(changes_.attr("count"));
    const bool moved = table != table_ || count - count_ > dict->ma_used / 2;
    table_ = table, count_ = count;
    return moved;
  }

  void begin(std::vector<std::string_view>& words, std::string_view command, std::string_view key) {
    words.clear();
    words.push_back(command);
    words.push_back(key);
    bytes_ = 0;
  }
  bool is_full(const std::vector<std::string_view>& words) const {
    return words.size() >= 2 * kElements || bytes_ >= kBytes;
  }
  void put(std::vector<std::string_view>& words, PyObject* name, PyObject* content) {
    if (kind_ == "zset") words.push_back(shown(PyFloat_AS_DOUBLE(content)));
    words.push_back(text_of(name));
    bytes_ += words.back().size();
    if (kind_ != "hash") return;
    words.push_back(text_of(content));
    bytes_ += words.back().size();
  }
  std::string_view shown(double score) {
    auto& text = texts_[used_++];
    return {text.data(),
            static_cast<size_t>(std::to_chars(text.begin(), text.end(), score).ptr - text.data())};
  }

  PythonProgram& program_;
  std::shared_ptr<Graves> graves_;
  nb::object value_, scores_;
  PyObject* const elements_;
  const std::string kind_;
  nb::object changes_;
  Py_ssize_t place_ = 0;
  const void* table_ = nullptr;
  int64_t count_ = 0;
  int beginnings_ = 0;
  std::vector<nb::object> names_, gone_;  // held while words are of them
  std::array<std::array<char, 32>, 2 * kElements> texts_;
  size_t used_ = 0, bytes_ = 0;
};

// Of a list.
class PythonListWalk final : public kv::ValueWalk {
 public:
  PythonListWalk(PythonProgram& program, std::shared_ptr<Graves> graves, PyObject* value)
      : program_(program),
        graves_(std::move(graves)),
        value_(nb::borrow(value)),
        list_(nb::cast<ElementList&>(nb::handle(value))) {
    list_.begin_walk(walk_);
  }
  ~PythonListWalk() override {
    const nb::gil_scoped_acquire gil;
    list_.end_walk(walk_);
    graves_->take(value_.release().ptr(), 0);  // it may be deleted by now
    graves_.reset();
  }

  Step next(std::string_view key, std::vector<std::string_view>& words) override {
    Step step = Step::failed;
    program_.with_gil([&] { step = take(key, words); });
    return step;
  }

 private:
  static constexpr size_t kElements = 512, kBytes = 64u << 10;
  using What = kv::ListWalk::Step::What;

  Step take(std::string_view key, std::vector<std::string_view>& words) {
    const kv::ListWalk::Step step = walk_.next(list_.size(), kElements);
    size_t used = 0;
    switch (step.what) {
      case What::trim:
        first_ = std::to_string(step.first), last_ = "-" + std::to_string(step.count + 1);
        words.assign({"LTRIM", key, first_, last_});
        break;
      case What::set:
        first_ = std::to_string(step.count);
        words.assign({"LSET", key, first_, text_of(list_.at(step.first))});
        break;
      case What::push_right:
        words.assign({"RPUSH", key});
        for (size_t bytes = 0; used < step.count && bytes < kBytes; bytes += words.back().size()) {
          words.push_back(text_of(list_.at(step.first + used++)));
        }
        break;
      case What::push_left:
        words.assign({"LPUSH", key});
        for (size_t bytes = 0; used < step.count && bytes < kBytes; bytes += words.back().size()) {
          words.push_back(text_of(list_.at(step.first - ++used)));
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

  PythonProgram& program_;
  std::shared_ptr<Graves> graves_;
  nb::object value_;
  ElementList& list_;
  kv::ListWalk walk_;
  std::string first_, last_;
};

class PythonSum final : public kv::ValueSum {
 public:
  PythonSum(PythonProgram& program, PyObject* value)
      : program_(program), value_(nb::borrow(value)), elements_(elements_of(value, scores_)) {
    if (!elements_) each_ = nb::iter(value_);
  }
  ~PythonSum() override {
    const nb::gil_scoped_acquire gil;
    each_.reset(), value_.reset(), scores_.reset();
  }

  bool add(size_t most) override {
    bool whole = true;  // what cannot be read is not read again
    program_.with_gil([&] { whole = elements_ ? add_pairs(most) : add_list(most); });
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
      const std::string_view words = text_of(name);
      if (PyBytes_Check(content)) {
        take(words.size(), words, text_of(content));
      } else if (PyFloat_Check(content)) {
        const double score = PyFloat_AS_DOUBLE(content);
        take(words.size(), words, {reinterpret_cast<const char*>(&score), sizeof score});
      } else {
        take(words.size(), words, {});
      }
    }
    return false;
  }

  void take(uint64_t number, std::string_view name, std::string_view content) {
    text_.assign(reinterpret_cast<const char*>(&number), sizeof number).append(name).append(content);
    sum_ += kv::siphash(kKey, text_);
    ++count_;
  }

  PythonProgram& program_;
  nb::object value_, scores_, each_;
  PyObject* const elements_;
  Py_ssize_t place_ = 0;
  std::string text_;
};

}  // namespace

std::unique_ptr<kv::ValueWalk> PythonProgram::walk(uint64_t object) {
  constexpr Py_ssize_t kElements = 4096;
  constexpr uint64_t kBytes = 1u << 20;
  auto* const value = reinterpret_cast<PyObject*>(object);
  std::unique_ptr<kv::ValueWalk> made;
  with_gil([&] {
    const bool large =
        PyObject_Size(value) > kElements || nb::cast<uint64_t>(attribute(value, "held")) > kBytes;
    if (!large) return;
    if (nb::isinstance<ElementList>(nb::handle(value))) {
      made = std::make_unique<PythonListWalk>(*this, graves_, value);
    } else {
      made = std::make_unique<PythonWalk>(*this, graves_, value);
    }
  });
  return made;
}

std::unique_ptr<kv::ValueSum> PythonProgram::sum(uint64_t object) {
  std::unique_ptr<kv::ValueSum> made;
  with_gil([&] { made = std::make_unique<PythonSum>(*this, reinterpret_cast<PyObject*>(object)); });
  return made;
}

uint64_t PythonProgram::count(uint64_t object) {
  Py_ssize_t count = 0;
  with_gil([&] { count = PyObject_Size(reinterpret_cast<PyObject*>(object)); });
  return static_cast<uint64_t>(count);
}

}  // namespace verbena::bind
