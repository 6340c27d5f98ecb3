// _native.kv.Stream: a client's stream to a store over a session, and the conversion of commands and replies
// between Python objects and RESP. Waits without the GIL.
// Depends on the transport and the protocol; not on the engine.
#include <nanobind/stl/string.h>

#include <charconv>

#include "bind/errors.h"
#include "bind/kv/store.h"
#include "bind/transport/transport.h"
#include "bind/verbs/waiting.h"
#include "kv/protocol/reply_reader.h"
#include "kv/protocol/session_layout.h"

namespace verbena::bind {
namespace {

using transport::Operation;
using transport::Outcome;

PyObject* command_error = nullptr;  // verbena.kv.commands.replies.CommandError, never freed

// Builds the Python object of a reply.
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
  void error(std::string_view text) override {
    add(nb::borrow(command_error)(
        nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"))));
  }
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

void put_count(std::string& out, char kind, size_t count) {
  char text[24] = {kind};
  char* const end = std::to_chars(text + 1, text + sizeof text - 2, count).ptr;
  end[0] = '\r', end[1] = '\n';
  out.append(text, end + 2);
}

void put_argument(std::string& out, std::string_view argument) {
  put_count(out, '$', argument.size());
  out.append(argument).append("\r\n");
}

void put_object(std::string& out, nb::handle argument) {
  PyObject* object = argument.ptr();
  if (PyBytes_Check(object)) {
    return put_argument(out, {PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object))});
  }
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) throw nb::python_error();
    return put_argument(out, {text, static_cast<size_t>(size)});
  }
  if ((PyLong_Check(object) && !PyBool_Check(object)) || PyFloat_Check(object)) {
    return put_argument(out, nb::cast<std::string>(nb::repr(argument)));
  }
  const BufferView view(argument, PyBUF_SIMPLE);
  put_argument(out, {reinterpret_cast<const char*>(view.data()), view.size()});
}

// Appends one command in RESP.
void put_command(std::string& out, nb::handle arguments) {
  const nb::object kept = nb::steal(PySequence_Fast(arguments.ptr(), "a command is a sequence of words"));
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(kept.ptr());
  if (count == 0) throw nb::value_error("a command has at least one word");
  put_count(out, '*', static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) put_object(out, PySequence_Fast_GET_ITEM(kept.ptr(), i));
}

// Passes the complete replies at the start of `bytes` to `take`, at most `most`. Returns their length.
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

struct StreamHandle {
  ~StreamHandle() { drop(); }
  // Cancels the kv.receive that is open, if any.
  void drop() {
    if (!receiving || node.is_inherited()) return;
    const auto held = lock_from_python(*node);
    if (receiving->finished.load()) {
      node->operations().end(*receiving);
    } else {
      session->cancel(*receiving);
    }
    receiving = nullptr;
  }

  Owned<transport::Node> node;
  Owned<transport::Session> session;
  uint32_t number;
  uint32_t talk, receive, close;
  // A kv.receive without a reply yet. It is kept after a time-out, because its reply would be lost otherwise.
  Operation* receiving = nullptr;
  std::string unread;
  bool is_cut = false;  // a command was sent in part: the server would take further bytes for the rest of it
  std::mutex mutex;
};

// Ends a finished call and appends its reply. Throws Error if the call failed.
void take_answer(StreamHandle& self, Operation& call, std::string& received) {
  const Outcome outcome = call.outcome;
  const auto answer = call.answer();
  std::string arguments(reinterpret_cast<const char*>(answer.data()), answer.size());
  {
    const auto held = lock_from_python(*self.node);
    self.node->operations().end(call);
  }
  if (outcome == Outcome::ok) return (void)received.append(arguments);
  if (outcome == Outcome::no_such_method) arguments = "the peer serves no store";
  const ErrorCode code = outcome == Outcome::session_failed ? ErrorCode("closed")
                         : outcome == Outcome::too_long     ? ErrorCode("message_too_long")
                                                            : "remote_failure";
  throw Error(code, "talk to the store", arguments);
}

// Starts a call. The caller holds the node's lock. Throws Error if the session cannot send.
Operation& start(StreamHandle& self, uint32_t method, std::string_view bytes) {
  Operation* call = self.session->call(method, std::as_bytes(std::span(bytes)));
  if (!call) throw Error("closed", "talk to the store", "the session has ended, or too many messages wait");
  return *call;
}

// Sends a message. Null: the reply came immediately and has been appended.
Operation* say(StreamHandle& self, std::string_view bytes, std::string& received) {
  const auto held = lock_from_python(*self.node);
  Operation& call = start(self, self.talk, bytes);
  if (self.receiving || !self.node->spin_for_reply(call)) return &call;
  const auto answer = call.answer();
  received.append(reinterpret_cast<const char*>(answer.data()), answer.size());
  self.node->operations().end(call);
  return nullptr;
}

// Sends a message, waits and appends the reply, after the reply of an earlier kv.receive that has finished.
void exchange_message(StreamHandle& self, std::string_view bytes, double timeout_s, std::string& received) {
  Operation* const started = say(self, bytes, received);
  if (!started) return;
  Operation& call = *started;
  bool done = false;
  const auto cancel = [&] {
    const auto held = lock_from_python(*self.node);
    if (call.finished.load()) {
      self.node->operations().end(call);
    } else {
      self.session->cancel(call);
    }
  };
  try {
    done = wait_with_signals(deadline_after(timeout_s),
                             [&](uint64_t until_ns) { return self.node->wait(call, until_ns); });
  } catch (...) {
    cancel();
    throw;
  }
  if (!done) {
    cancel();
    throw Error("call_timeout", "talk to the store", "no answer in time");
  }
  if (self.receiving && self.receiving->finished.load()) {
    take_answer(self, *std::exchange(self.receiving, nullptr), received);
  }
  take_answer(self, call, received);
}

// The same for a stream header and any number of bytes: if they are too long for one message, sends several.
void exchange(StreamHandle& self, std::string_view bytes, double timeout_s, std::string& received) {
  if (self.is_cut) throw Error("closed", "talk to the store", "a long command was interrupted half-way");
  const size_t most = self.session->max_message_bytes();
  if (bytes.size() <= most || most <= sizeof(kv::StreamHeader))
    return exchange_message(self, bytes, timeout_s, received);
  const std::string_view header = bytes.substr(0, sizeof(kv::StreamHeader));
  self.is_cut = true;
  for (size_t at = header.size(); at < bytes.size();) {
    const std::string_view some = bytes.substr(at, most - header.size());
    exchange_message(self, std::string(header).append(some), timeout_s, received);
    at += some.size();
  }
  self.is_cut = false;
}

// Reserves room for a short command, which usually follows: one allocation instead of four.
std::string header_of(const StreamHandle& self) {
  constexpr size_t kShort = 128;
  const kv::StreamHeader header{self.number};
  std::string out;
  out.reserve(kShort);
  return out.append(reinterpret_cast<const char*>(&header), sizeof header);
}

// Waits for output of the stream and appends it. False: there was none in time.
bool receive(StreamHandle& self, double timeout_s, std::string& received) {
  if (!self.receiving) {
    const auto held = lock_from_python(*self.node);
    self.receiving = &start(self, self.receive, header_of(self));
  }
  if (!wait_with_signals(deadline_after(timeout_s),
                         [&](uint64_t until_ns) { return self.node->wait(*self.receiving, until_ns); })) {
    return false;
  }
  take_answer(self, *std::exchange(self.receiving, nullptr), received);
  return true;
}

// Sends `count` commands and passes their replies to `take`, in order.
template <typename Take>
void converse(StreamHandle& self, std::string_view commands, size_t count, double timeout_s, Take take) {
  std::unique_lock held(self.mutex, std::try_to_lock);
  if (!held) {
    const Unlocked unlocked;
    held.lock();
  }
  size_t missing = count;
  const auto take_whole = [&] {
    const size_t used = decode_each(self.unread, missing, [&](nb::object reply) {
      take(std::move(reply));
      --missing;
    });
    self.unread.erase(0, used);
  };
  exchange(self, commands, timeout_s, self.unread);
  take_whole();
  while (missing > 0) {  // the command blocks, or its reply is too long for one message
    if (!receive(self, timeout_s, self.unread)) {
      throw Error("call_timeout", "talk to the store", "no answer in time");
    }
    take_whole();
  }
}

nb::list run_commands(StreamHandle& self, nb::handle commands, double timeout_s) {
  const nb::object kept = nb::steal(PySequence_Fast(commands.ptr(), "commands must be a sequence"));
  std::string out = header_of(self);
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(kept.ptr()));
  for (size_t i = 0; i < count; ++i) {
    put_command(out, PySequence_Fast_GET_ITEM(kept.ptr(), static_cast<Py_ssize_t>(i)));
  }
  nb::list replies;
  if (count > 0) {
    converse(self, out, count, timeout_s, [&](nb::object reply) { replies.append(std::move(reply)); });
  }
  return replies;
}

nb::object reply_to(StreamHandle& self, std::string_view command) {
  nb::object reply;
  converse(self, command, 1, -1, [&](nb::object one) { reply = std::move(one); });
  if (PyObject_IsInstance(reply.ptr(), command_error) == 1) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(reply.ptr())), reply.ptr());
    throw nb::python_error();
  }
  return reply;
}

nb::object execute(StreamHandle& self, nb::args arguments) {
  std::string out = header_of(self);
  put_command(out, arguments);
  return reply_to(self, out);
}

// SET is the most common command: this form needs no tuple of arguments.
void set(StreamHandle& self, nb::handle key, nb::handle value) {
  std::string out = header_of(self);
  out.append("*3\r\n$3\r\nSET\r\n");
  put_object(out, key);
  put_object(out, value);
  reply_to(self, out);
}

}  // namespace

void bind_kv_stream(nb::module_& m) {
  m.def("use_command_error", [](nb::handle type) { command_error = type.inc_ref().ptr(); }, nb::arg("type"));
  m.def(
      "encode_command",
      [](nb::handle arguments) {
        std::string out;
        put_command(out, arguments);
        return to_bytes(out);
      },
      nb::arg("words"), "A command in RESP. Arguments are bytes, str, int, float or buffers.");
  m.def(
      "decode",
      [](const nb::bytes& data, size_t most) {
        nb::list list;
        const size_t used =
            decode_each(view_of(data), most, [&](nb::object reply) { list.append(std::move(reply)); });
        return nb::make_tuple(list, used);
      },
      nb::arg("data"), nb::arg("most") = SIZE_MAX,
      nb::sig("def decode(data: bytes, most: int = ...) -> tuple[list[object], int]"),
      "The whole replies at the start of the data, and how many bytes they took.");
  m.attr("REQUEST_METHOD") = kv::session_method::kRequest;
  m.attr("RECEIVE_METHOD") = kv::session_method::kReceive;
  m.attr("CLOSE_METHOD") = kv::session_method::kClose;
  m.attr("LAYOUT_METHOD") = kv::session_method::kLayout;
  nb::class_<StreamHandle>(m, "Stream",
                           "A connection to a store by a session. One thread at a time gets through.")
      .def(
          "__init__",
          [](StreamHandle* self, SessionHandle& session, uint32_t number) {
            new (self) StreamHandle{session.node,
                                    session.session,
                                    number,
                                    transport::method::of_name(kv::session_method::kRequest),
                                    transport::method::of_name(kv::session_method::kReceive),
                                    transport::method::of_name(kv::session_method::kClose),
                                    nullptr,
                                    {},
                                    false,
                                    {}};
          },
          nb::arg("session"), nb::arg("number"), nb::keep_alive<1, 2>())
      .def_ro("number", &StreamHandle::number)
      .def("execute", execute, nb::arg("words"), nb::sig("def execute(self, *words: object) -> object"),
           "One command, its reply; CommandError is raised.")
      .def("set", set, nb::arg("key"), nb::arg("value"), "SET without options; CommandError is raised.")
      .def("run", run_commands, nb::arg("commands"), nb::arg("timeout_s") = -1.0,
           nb::sig("def run(self, commands: object, timeout_s: float = -1.0) -> list[object]"),
           "Several commands at once, their replies in order; errors stand among them.")
      .def(
          "send",
          [](StreamHandle& self, const nb::handle& data, double timeout_s) {
            const BufferView view(data, PyBUF_SIMPLE);
            std::string out = header_of(self), received;
            out.append(reinterpret_cast<const char*>(view.data()), view.size());
            exchange(self, out, timeout_s, received);
            return to_bytes(received);
          },
          nb::arg("data"), nb::arg("timeout_s") = -1.0, "Bytes of RESP; what there is to hear by then.")
      .def(
          "receive",
          [](StreamHandle& self, double timeout_s) -> nb::object {
            std::string received;
            if (!receive(self, timeout_s, received)) return nb::none();
            return to_bytes(received);
          },
          nb::arg("timeout_s") = -1.0, nb::sig("def receive(self, timeout_s: float = -1.0) -> bytes | None"),
          "What there is to hear, once there is something; None: nothing in time.")
      .def("close", [](StreamHandle& self) {
        self.drop();
        const auto held = lock_from_python(*self.node);
        if (self.session->is_over()) return;
        const std::string header = header_of(self);
        if (Operation* call = self.session->call(self.close, std::as_bytes(std::span(header)))) {
          self.session->cancel(*call);  // the reply is not needed
        }
      });
}

}  // namespace verbena::bind
