// Converts Python objects to requests in RESP, and replies in RESP to Python objects, for clients.
// Depends on kv/protocol and the conversions of bind/kv/store.h.
#pragma once

#include "bind/kv/store.h"
#include "kv/protocol/reply_reader.h"
#include "util/error.h"

namespace verbena::bind {

// Builds the Python object of a reply. An error reply becomes a CommandError, which is not raised.
class ObjectBuilder : public kv::ReplyVisitor {
 public:
  void null() override { add(nb::none()); }
  void boolean(bool yes) override { add(nb::bool_(yes)); }
  void integer(int64_t number) override { add(nb::int_(number)); }
  void number(double value) override { add(nb::float_(value)); }
  void big_number(std::string_view digits) override {
    add(nb::module_::import_("builtins").attr("int")(std::string(digits)));
  }
  void simple(std::string_view text) override { add(nb::str(text.data(), text.size())); }
  void bulk(std::string_view bytes) override { add(to_bytes(bytes)); }
  void error(std::string_view text) override;
  void begin(Kind kind, size_t) override { open_.push_back({kind, nb::list()}); }
  void end() override {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.kind == Kind::map) return add(to_dict(done.items));
    if (done.kind == Kind::set) return add(to_set(done.items));
    add(std::move(done.items));
  }
  nb::object take() { return std::move(result_); }

 private:
  struct Open {
    Kind kind;
    nb::list items;
  };
  void add(nb::object value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else {
      open_.back().items.append(value);
    }
  }
  // If Python cannot hash a key (a list, a map), returns the flat list of keys and values instead.
  static nb::object to_dict(const nb::list& items) {
    nb::dict dict;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (PyDict_SetItem(dict.ptr(), nb::object(items[i]).ptr(), nb::object(items[i + 1]).ptr()) != 0) {
        PyErr_Clear();
        return items;
      }
    }
    return dict;
  }
  static nb::object to_set(const nb::list& items) {
    PyObject* set = PyFrozenSet_New(items.ptr());
    if (set) return nb::steal(set);
    PyErr_Clear();
    return items;
  }

  std::vector<Open> open_;
  nb::object result_;
};

// Sets the class of error replies, verbena.kv.commands.replies.CommandError, which is never freed.
void use_command_error(nb::handle type);
// Raises `reply` if it is an error reply.
void raise_if_error(const nb::object& reply);

// Appends one argument: bytes, str, int, float or a buffer.
void put_object(std::string& out, nb::handle argument);
// Appends a command: a sequence of at least one argument.
void put_command(std::string& out, nb::handle arguments);

// Passes the complete replies at the start of `bytes` to `take`, at most `most`. Returns their length. Throws
// Error if the bytes are not RESP.
template <typename Take>
size_t decode_each(std::string_view bytes, size_t most, Take take) {
  size_t used = 0;
  for (size_t i = 0; i < most && used < bytes.size(); ++i) {
    size_t length = 0;
    const kv::ReplyResult result = kv::measure_reply(bytes.substr(used), length);
    if (result == kv::ReplyResult::more) break;
    if (result == kv::ReplyResult::bad) throw Error("protocol_error", "read a reply", "this is not RESP");
    ObjectBuilder builder;
    kv::visit_reply(bytes.substr(used), builder);
    take(builder.take());
    used += length;
  }
  return used;
}

}  // namespace verbena::bind
