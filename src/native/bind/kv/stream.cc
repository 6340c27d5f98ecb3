// _native.kv.Stream: a client's stream to a store over a session, with commands and replies as Python
// objects. Waits without the GIL. The protocol is in kv/client/session_stream.h. Depends on the transport and
// kv/client.
#include <nanobind/stl/string.h>

#include "bind/errors.h"
#include "bind/kv/resp_objects.h"
#include "bind/transport/transport.h"
#include "bind/verbs/waiting.h"
#include "kv/client/session_stream.h"

namespace verbena::bind {
namespace {

// Releases the GIL while it waits; signal handlers of Python run meanwhile.
struct PythonCaller {
  static std::unique_lock<YieldingMutex> lock(transport::Node& node) { return lock_from_python(node); }
  static bool wait(transport::Node& node, transport::Operation& call, double timeout_s) {
    return wait_with_signals(deadline_after(timeout_s),
                             [&](uint64_t until_ns) { return node.wait(call, until_ns); });
  }
};

class StreamHandle {
 public:
  using Stream = kv::SessionStream<PythonCaller>;

  StreamHandle(SessionHandle& session, uint32_t number)
      : node_(session.node), session_(session.session), stream_(*node_, *session_, number) {}
  ~StreamHandle() {
    if (!node_.is_inherited()) stream_.cancel_receive();
  }

  Stream& get() { return stream_; }
  // In a forked child nothing is sent: the session belongs to the parent.
  void close() {
    if (!node_.is_inherited()) stream_.close();
  }
  uint32_t number() const { return stream_.number(); }

  // Sends `count` commands and passes their replies to `take`, in order. Other threads that call this wait
  // meanwhile.
  template <typename Take>
  void execute(std::string_view commands, size_t count, double timeout_s, Take take) {
    std::unique_lock held(mutex_, std::try_to_lock);
    if (!held) {
      const Unlocked unlocked;
      held.lock();
    }
    size_t missing = count;
    const auto take_whole = [&] {
      const size_t used = decode_each(unread_, missing, [&](nb::object reply) {
        take(std::move(reply));
        --missing;
      });
      unread_.erase(0, used);
    };
    stream_.send(commands, timeout_s, unread_);
    take_whole();
    while (missing > 0) {  // a command blocks, or its reply is too long for one message
      if (!stream_.receive(timeout_s, unread_)) {
        throw Error("call_timeout", "talk to the store", "no answer in time");
      }
      take_whole();
    }
  }

 private:
  Owned<transport::Node> node_;
  Owned<transport::Session> session_;
  Stream stream_;
  std::string unread_;
  std::mutex mutex_;
};

nb::list run_commands(StreamHandle& self, nb::handle commands, double timeout_s) {
  const nb::object kept = nb::steal(PySequence_Fast(commands.ptr(), "commands must be a sequence"));
  std::string out = self.get().header();
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(kept.ptr()));
  for (size_t i = 0; i < count; ++i) {
    put_command(out, PySequence_Fast_GET_ITEM(kept.ptr(), static_cast<Py_ssize_t>(i)));
  }
  nb::list replies;
  if (count > 0) {
    self.execute(out, count, timeout_s, [&](nb::object reply) { replies.append(std::move(reply)); });
  }
  return replies;
}

nb::object reply_to(StreamHandle& self, std::string_view command) {
  nb::object reply;
  self.execute(command, 1, -1, [&](nb::object one) { reply = std::move(one); });
  raise_if_error(reply);
  return reply;
}

nb::object execute(StreamHandle& self, nb::args arguments) {
  std::string out = self.get().header();
  put_command(out, arguments);
  return reply_to(self, out);
}

// SET is the most common command: this form needs no tuple of arguments.
void set(StreamHandle& self, nb::handle key, nb::handle value) {
  std::string out = self.get().header();
  out.append("*3\r\n$3\r\nSET\r\n");
  put_object(out, key);
  put_object(out, value);
  reply_to(self, out);
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
  m.attr("REQUEST_METHOD") = kv::session_method::kRequest;
  m.attr("RECEIVE_METHOD") = kv::session_method::kReceive;
  m.attr("CLOSE_METHOD") = kv::session_method::kClose;
  m.attr("LAYOUT_METHOD") = kv::session_method::kLayout;
  nb::class_<StreamHandle>(m, "Stream",
                           "A stream to a store over a session. One thread at a time uses it; others wait.")
      .def(nb::init<SessionHandle&, uint32_t>(), nb::arg("session"), nb::arg("number"),
           nb::keep_alive<1, 2>())
      .def_prop_ro("number", &StreamHandle::number)
      .def("execute", execute, nb::arg("arguments"),
           nb::sig("def execute(self, *arguments: object) -> object"),
           "Runs one command and returns its reply; raises CommandError for an error reply.")
      .def("set", set, nb::arg("key"), nb::arg("value"),
           "Runs SET without options; raises CommandError for an error reply.")
      .def("run", run_commands, nb::arg("commands"), nb::arg("timeout_s") = -1.0,
           nb::sig("def run(self, commands: object, timeout_s: float = -1.0) -> list[object]"),
           "Runs several commands at once. Returns their replies in order; error replies are items of the "
           "list.")
      .def(
          "send",
          [](StreamHandle& self, const nb::handle& data, double timeout_s) {
            const BufferView view(data, PyBUF_SIMPLE);
            StreamHandle::Stream& stream = self.get();
            std::string out = stream.header(), received;
            out.append(reinterpret_cast<const char*>(view.data()), view.size());
            stream.send(out, timeout_s, received);
            return to_bytes(received);
          },
          nb::arg("data"), nb::arg("timeout_s") = -1.0,
          "Sends bytes of RESP. Returns the output that the store has for this stream by then.")
      .def(
          "receive",
          [](StreamHandle& self, double timeout_s) -> nb::object {
            std::string received;
            if (!self.get().receive(timeout_s, received)) return nb::none();
            return to_bytes(received);
          },
          nb::arg("timeout_s") = -1.0, nb::sig("def receive(self, timeout_s: float = -1.0) -> bytes | None"),
          "Waits until the store has output for this stream and returns it. None: there was none in time.")
      .def("close", &StreamHandle::close);
}

}  // namespace verbena::bind
