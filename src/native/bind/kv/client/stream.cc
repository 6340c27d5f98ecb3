// _native.kv.Stream: a client's stream to a store over a session, with commands and replies as Python
// objects. Waits without the GIL. The protocol is in kv/client/session_stream.h. Depends on the transport and
// kv/client.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>

#include "bind/kv/client/resp_objects.h"
#include "bind/kv/client/stream_caller.h"

namespace verbena::bind {
namespace {

// What a stream's own commands have made of it. A new stream would not have this state.
struct StreamState {
  bool in_transaction = false;  // MULTI or WATCH
  bool is_changed = false;      // its database, user, protocol, subscriptions, name …

  bool is_fresh() const { return !in_transaction && !is_changed; }
  void note(std::string_view command) {
    constexpr std::string_view kBegin[] = {"MULTI", "WATCH"}, kEnd[] = {"EXEC", "DISCARD", "UNWATCH"};
    constexpr std::string_view kChange[] = {"SELECT",    "AUTH",       "HELLO",   "CLIENT",
                                            "SUBSCRIBE", "PSUBSCRIBE", "MONITOR", "SSUBSCRIBE",
                                            "READONLY",  "READWRITE",  "RESET"};
    const auto is = [&](std::string_view name) {
      return std::equal(name.begin(), name.end(), command.begin(), command.end(),
                        [](char a, char b) { return a == (b >= 'a' && b <= 'z' ? b - 'a' + 'A' : b); });
    };
    if (std::any_of(std::begin(kBegin), std::end(kBegin), is)) in_transaction = true;
    if (std::any_of(std::begin(kEnd), std::end(kEnd), is)) in_transaction = false;
    if (std::any_of(std::begin(kChange), std::end(kChange), is)) is_changed = true;
  }
};

class StreamHandle {
 public:
  // `greeting`: commands with which a stream begins, such as AUTH.
  StreamHandle(SessionHandle& session, nb::object map_error, std::string greeting, size_t greetings)
      : node_(session.node),
        session_(session.session),
        map_error_(std::move(map_error)),
        greeting_(std::move(greeting)),
        greetings_(greetings) {
    begin();
  }
  ~StreamHandle() {
    if (!node_.is_inherited()) stream_->cancel_receive();
  }

  // In a forked child nothing is sent: the session belongs to the parent. If a command runs in another
  // thread, the store removes the stream with the session.
  void close() {
    if (node_.is_inherited()) return;
    is_closed_ = true;
    const std::unique_lock held(mutex_, std::try_to_lock);
    if (held) stream_->close();
  }
  uint32_t number() const { return stream_->number(); }
  std::string header() const { return stream_->header(); }
  StreamState& state() { return state_; }

  // Sends a message that begins with header() and has `count` commands, and passes their replies to `take`,
  // in order. Other threads that call this wait meanwhile. After a failure the replies are lost: the next
  // call begins with a new stream.
  template <typename Take>
  void execute(std::string& message, size_t count, double timeout_s, Take take) {
    node_.share(kOperation);  // throws in a forked child, before any lock is taken
    std::unique_lock held(mutex_, std::try_to_lock);
    if (!held) {
      const Unlocked unlocked;
      held.lock();
    }
    mapping_errors(map_error_, [&] {
      if (is_closed_) throw Error("closed", kOperation, "the client was closed");
      const uint64_t deadline_ns = deadline_after(timeout_s);
      if (is_out_of_step_) renew(deadline_ns);
      const kv::StreamHeader header{number()};  // it may be another stream now
      std::memcpy(message.data(), &header, sizeof header);
      exchange(message, count, deadline_ns, take);
    });
  }

  // Runs the greeting. Raises its first error reply.
  void greet(double timeout_s) {
    std::string message = header() + greeting_;
    execute(message, greetings_, timeout_s, raise_if_error);
  }

 private:
  static constexpr const char* kOperation = "talk to the store";

  void begin() { stream_.emplace(*node_, *session_, next_stream()); }

  void renew(uint64_t deadline_ns) {
    if (!state_.is_fresh()) {
      throw Error("closed", kOperation, "a command failed after others had changed the connection's state");
    }
    begin();
    unread_ = {};
    is_out_of_step_ = false;
    if (greetings_ > 0) exchange(header() + greeting_, greetings_, deadline_ns, raise_if_error);
  }

  template <typename Take>
  void exchange(const std::string& message, size_t missing, uint64_t deadline_ns, Take take) {
    const auto take_whole = [&] {
      const size_t used = decode_each(unread_.contiguous(), missing, [&](nb::object reply) {
        --missing;
        take(std::move(reply));
      });
      unread_.skip(used);
      unread_.drop_read();
    };
    is_out_of_step_ = true;
    try {
      stream_->send(message, seconds_until(deadline_ns), unread_);
      take_whole();
      while (missing > 0) {  // a command blocks, or its reply is too long for one message
        if (!stream_->receive(seconds_until(deadline_ns), unread_)) {
          throw Error("call_timeout", kOperation, "no answer in time");
        }
        take_whole();
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode("closed")) {
        is_out_of_step_ = false;  // what the store has closed stays closed: the next call fails too
      } else {
        stream_->close();  // at once: a command that blocks there takes nothing any longer
      }
      throw;
    } catch (...) {
      stream_->close();
      throw;
    }
    is_out_of_step_ = false;
  }

  Owned<transport::Node> node_;
  Owned<transport::Session> session_;
  const nb::object map_error_;
  const std::string greeting_;
  const size_t greetings_;
  std::optional<SessionStream> stream_;
  kv::ReceivedBytes unread_;
  std::mutex mutex_;
  bool is_out_of_step_ = false;  // what the stream returns next are not the replies to the next command
  bool is_closed_ = false;
  StreamState state_;
};

void note(StreamState& state, nb::handle words) {
  const nb::object name = nb::steal(PySequence_GetItem(words.ptr(), 0));
  if (!name.is_valid()) return PyErr_Clear();  // put_command() reports it
  Py_ssize_t size = 0;
  const char* text = PyBytes_Check(name.ptr())     ? PyBytes_AS_STRING(name.ptr())
                     : PyUnicode_Check(name.ptr()) ? PyUnicode_AsUTF8AndSize(name.ptr(), &size)
                                                   : nullptr;
  if (!text) return PyErr_Clear();
  state.note({text, static_cast<size_t>(PyBytes_Check(name.ptr()) ? PyBytes_GET_SIZE(name.ptr()) : size)});
}

size_t put_commands(std::string& out, nb::handle commands, StreamState& state) {
  const nb::object kept = nb::steal(PySequence_Fast(commands.ptr(), "commands must be a sequence"));
  if (!kept.is_valid()) throw nb::python_error();
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(kept.ptr()));
  for (size_t i = 0; i < count; ++i) {
    const nb::handle command = PySequence_Fast_GET_ITEM(kept.ptr(), static_cast<Py_ssize_t>(i));
    put_command(out, command);
    note(state, command);
  }
  return count;
}

void make_stream(StreamHandle* self, SessionHandle& session, nb::object map_error, nb::handle greeting) {
  std::string commands;
  StreamState state;  // of every stream, so it counts as fresh
  const size_t count = put_commands(commands, greeting, state);
  new (self) StreamHandle(session, std::move(map_error), std::move(commands), count);
}

nb::list run_commands(StreamHandle& self, nb::handle commands, double timeout_s) {
  std::string out = self.header();
  const size_t count = put_commands(out, commands, self.state());
  nb::list replies;
  if (count > 0) {
    self.execute(out, count, timeout_s, [&](nb::object reply) { replies.append(std::move(reply)); });
  }
  return replies;
}

nb::object reply_to(StreamHandle& self, std::string& command, double timeout_s) {
  nb::object reply;
  self.execute(command, 1, timeout_s, [&](nb::object one) { reply = std::move(one); });
  raise_if_error(reply);
  return reply;
}

nb::object execute(StreamHandle& self, nb::handle words, double timeout_s) {
  std::string out = self.header();
  put_command(out, words);
  note(self.state(), words);
  return reply_to(self, out, timeout_s);
}

// SET is the most common command: this form needs no tuple of arguments.
void set(StreamHandle& self, nb::handle key, nb::handle value, double timeout_s) {
  std::string out = self.header();
  out.append("*3\r\n$3\r\nSET\r\n");
  put_object(out, key);
  put_object(out, value);
  reply_to(self, out, timeout_s);
}

}  // namespace

void bind_kv_stream(nb::module_& m) {
  m.def("use_command_error", use_command_error, nb::arg("type"));
  m.def(
      "encode_command",
      [](nb::handle arguments) {
        std::string out;
        put_command(out, arguments);
        return to_bytes(out);
      },
      nb::arg("arguments"), "Encodes a command in RESP. Arguments are bytes, str, int, float or buffers.");
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
      "Decodes the complete replies at the start of the data. Returns them and their length in bytes.");
  m.attr("STREAM_CLOSED") = nb::str(kv::kStreamClosed.data(), kv::kStreamClosed.size());
  m.attr("REQUEST_METHOD") = kv::session_method::kRequest;
  m.attr("RECEIVE_METHOD") = kv::session_method::kReceive;
  m.attr("CLOSE_METHOD") = kv::session_method::kClose;
  m.attr("LAYOUT_METHOD") = kv::session_method::kLayout;
  m.def("next_stream", next_stream, "Returns the number of a new stream.");
  nb::class_<StreamState>(m, "StreamState", "What a stream's own commands have made of it.")
      .def(nb::init<>())
      .def(
          "note", [](StreamState& self, nb::handle words) { note(self, words); }, nb::arg("words"),
          nb::sig("def note(self, words: collections.abc.Sequence[object]) -> None"))
      .def_prop_ro("is_fresh", &StreamState::is_fresh, "Whether a new stream would be the same.");
  nb::class_<StreamHandle>(
      m, "Stream",
      "A stream to a store over a session. One thread at a time uses it; others wait. `map_error` gets each "
      "error and returns the one to raise. After a command that failed or timed out, the next one begins a "
      "new "
      "stream with the commands of `greeting`.")
      .def("__init__", make_stream, nb::arg("session"), nb::arg("map_error"), nb::arg("greeting"),
           nb::keep_alive<1, 2>(),
           nb::sig("def __init__(self, session: verbena._native.transport.Session, map_error: "
                   "collections.abc.Callable[..., Exception], greeting: "
                   "collections.abc.Sequence[collections.abc.Sequence[object]]) -> None"))
      .def_prop_ro("number", &StreamHandle::number)
      .def("greet", &StreamHandle::greet, nb::arg("timeout_s"),
           "Runs the commands of the greeting; raises CommandError for an error reply.")
      .def("execute", execute, nb::arg("words"), nb::arg("timeout_s"),
           nb::sig("def execute(self, words: collections.abc.Sequence[object], timeout_s: float) -> object"),
           "Runs one command and returns its reply; raises CommandError for an error reply.")
      .def("set", set, nb::arg("key"), nb::arg("value"), nb::arg("timeout_s"),
           "Runs SET without options; raises CommandError for an error reply.")
      .def("run", run_commands, nb::arg("commands"), nb::arg("timeout_s"),
           nb::sig("def run(self, commands: collections.abc.Sequence[collections.abc.Sequence[object]], "
                   "timeout_s: float) -> list[object]"),
           "Runs several commands at once. Returns their replies in order; error replies are items of the "
           "list.")
      .def("close", &StreamHandle::close);
}

}  // namespace verbena::bind
