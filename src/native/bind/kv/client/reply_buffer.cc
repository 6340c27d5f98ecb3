// _native.kv.ReplyBuffer: a stream to a store for the connections of redis-py and valkey-py: sends packed
// commands, and has the members of their SocketBuffer, from which their parsers read replies.
// Depends on the transport and kv/client.
#include "bind/buffer.h"
#include "bind/kv/client/stream_caller.h"
#include "bind/kv/store.h"
#include "kv/client/received_bytes.h"

namespace verbena::bind {

namespace {

// None: without a limit. Other objects than numbers stand for the default.
double seconds_of(nb::handle timeout, double unset) {
  if (timeout.is_none()) return -1;
  if (!PyFloat_Check(timeout.ptr()) && !PyLong_Check(timeout.ptr())) return unset;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (seconds == -1 && PyErr_Occurred()) throw nb::python_error();
  return std::max(seconds, 0.0);
}

class ReplyBuffer {
 public:
  ReplyBuffer(SessionHandle& session, nb::object map_error)
      : node_(session.node),
        session_(session.session),
        map_error_(std::move(map_error)),
        stream_(*node_, *session_, next_stream()) {}
  ~ReplyBuffer() {
    if (!node_.is_inherited()) stream_.cancel_receive();
  }

  uint32_t number() const { return stream_.number(); }
  void set_timeout(nb::handle timeout) { timeout_s_ = seconds_of(timeout, -1); }
  nb::object timeout() const { return timeout_s_ < 0 ? nb::none() : nb::object(nb::float_(timeout_s_)); }

  // Sends one message, so that the parts of a long command cost one round trip.
  void send(nb::handle data) {
    std::string message = message_of(data);
    mapping_errors(map_error_, [&] {
      require_open();
      // A socket with a timeout of zero sends what fits; here a command is sent whole or not at all.
      stream_.send(message, timeout_s_ == 0 ? -1 : timeout_s_, received_);
    });
    keep(std::move(message));
  }
  // For event loops: the reply arrives at the queue. Returns the number of the call, to cancel it; 0: the
  // reply has been received already.
  uint64_t start_send(nb::handle data, bool spins, const QueueHandle& queue, uint64_t token) {
    std::string message = message_of(data);
    return mapping_errors(map_error_, [&]() -> uint64_t {
      require_open();
      const auto& events = queue.queue.share(kOperation);
      transport::Operation* const call = stream_.start_send(message, spins, received_);
      keep(std::move(message));
      if (!call) return 0;
      const auto held = lock_from_python(*node_);
      return session_->report(*call, events, token);
    });
  }
  void feed(const nb::bytes& bytes) { received_.append(view_of(bytes)); }
  // What has been received; None: it is incomplete.
  nb::object try_read(size_t bytes) {
    if (bytes > kMostBytes) throw nb::value_error("no reply is so long");
    if (received_.unread() < bytes + kLineEnd) return nb::none();
    nb::bytes found = take(bytes);
    received_.skip(kLineEnd);
    return found;
  }
  nb::object try_read_line() {
    std::string_view line;
    if (!received_.read_line(line)) return nb::none();
    return nb::bytes(line.data(), line.size());
  }

  // Waits for bytes if there are none. False: there were none in time.
  bool can_read(nb::handle timeout) {
    return received_.unread() > 0 || receive(seconds_of(timeout, timeout_s_));
  }
  nb::bytes read(size_t bytes, nb::handle timeout) {
    const double timeout_s = seconds_of(timeout, timeout_s_);
    if (bytes > kMostBytes) throw nb::value_error("no reply is so long");
    while (received_.unread() < bytes + kLineEnd) wait(timeout_s);
    nb::bytes found = take(bytes);
    received_.skip(kLineEnd);
    return found;
  }
  nb::bytes read_line(nb::handle timeout) {
    const double timeout_s = seconds_of(timeout, timeout_s_);
    std::string_view line;
    while (!received_.read_line(line)) wait(timeout_s);
    return nb::bytes(line.data(), line.size());
  }
  // As recv() of a socket. None: there was nothing in time.
  nb::object receive_some(size_t most, bool peeks) {
    if (received_.unread() == 0 && !receive(timeout_s_)) return nb::none();
    const size_t position = received_.position();
    nb::bytes found = take(std::min(most, received_.unread()));
    if (peeks) {
      received_.rewind(position);
    } else {
      received_.drop_read();
    }
    return found;
  }

  size_t unread() const { return received_.unread(); }
  size_t position() const { return received_.position(); }
  void rewind(size_t position) { received_.rewind(position); }
  void purge() { received_.drop_read(); }

  // In a forked child nothing is sent: the session belongs to the parent.
  void close() {
    if (!std::exchange(is_closed_, true) && !node_.is_inherited()) stream_.close();
  }

 private:
  static constexpr const char* kOperation = "talk to the store";
  static constexpr size_t kMostKept = 8u << 20;
  static constexpr size_t kLineEnd = 2, kMostBytes = size_t{1} << 40;

  static void append(std::string& out, const BufferView& part) {
    out.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  std::string message_of(nb::handle data) {
    const kv::StreamHeader header{number()};
    std::string message = std::exchange(kept_, {});
    message.assign(reinterpret_cast<const char*>(&header), sizeof header);
    if (PyList_Check(data.ptr()) || PyTuple_Check(data.ptr())) {
      std::vector<BufferView> parts;
      size_t bytes = message.size();
      for (const nb::handle part : data) bytes += parts.emplace_back(part, PyBUF_SIMPLE).size();
      message.reserve(bytes);
      for (const BufferView& part : parts) append(message, part);
    } else {
      const BufferView whole(data, PyBUF_SIMPLE);
      message.reserve(message.size() + whole.size());
      append(message, whole);
    }
    return message;
  }
  // Keeps the memory for the next message: the kernel would clear the pages of a long one each time.
  void keep(std::string message) {
    if (message.capacity() <= kMostKept) kept_ = std::move(message);
  }
  // Throws in a forked child, before any lock is taken.
  void require_open() const {
    node_.share(kOperation);
    if (is_closed_) throw Error("closed", kOperation, "the connection was closed");
  }
  bool receive(double timeout_s) {
    return mapping_errors(map_error_, [&] {
      const size_t before = received_.unread();
      const uint64_t deadline_ns = deadline_after(timeout_s);
      // In slices: bytes may also arrive as the reply to a command that another thread sends.
      constexpr double kSliceS = 0.05;
      do {
        require_open();  // another thread may have closed it
        stream_.receive(timeout_s < 0 ? kSliceS : std::min(seconds_until(deadline_ns), kSliceS), received_);
      } while (received_.unread() == before && now_ns() < deadline_ns);
      return received_.unread() > before;
    });
  }
  void wait(double timeout_s) {
    if (receive(timeout_s)) return;
    PyErr_SetString(PyExc_TimeoutError, "timed out");
    throw nb::python_error();
  }
  nb::bytes take(size_t bytes) {
    PyObject* const found = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes));
    if (!found) throw nb::python_error();
    received_.read(PyBytes_AS_STRING(found), bytes);
    return nb::steal<nb::bytes>(found);
  }

  Owned<transport::Node> node_;
  Owned<transport::Session> session_;
  const nb::object map_error_;
  SessionStream stream_;
  kv::ReceivedBytes received_;
  std::string kept_;
  double timeout_s_ = -1;  // negative: no limit
  bool is_closed_ = false;
};

}  // namespace

void bind_kv_reply_buffer(nb::module_& m) {
  nb::class_<ReplyBuffer>(m, "ReplyBuffer",
                          "A stream to a store over a session, with the members of redis-py's SocketBuffer. "
                          "`timeout`: None for no limit; an object that is no number stands for the timeout "
                          "of the connection. `map_error` gets each error and returns the one to raise.")
      .def(nb::init<SessionHandle&, nb::object>(), nb::arg("session"), nb::arg("map_error"),
           nb::keep_alive<1, 2>())
      .def_prop_ro("number", &ReplyBuffer::number)
      .def_prop_rw(
          "socket_timeout", &ReplyBuffer::timeout,
          [](ReplyBuffer& self, nb::handle timeout) { self.set_timeout(timeout); }, nb::arg("timeout").none(),
          nb::for_getter(nb::sig("def socket_timeout(self) -> float | None")),
          nb::for_setter(nb::sig("def socket_timeout(self, timeout: float | None) -> None")))
      .def("send", &ReplyBuffer::send, nb::arg("data"),
           "Sends packed commands: bytes, or a list of pieces. TimeoutError if it takes too long.")
      .def("recv", &ReplyBuffer::receive_some, nb::arg("size"), nb::arg("peeks"),
           nb::sig("def recv(self, size: int, peeks: bool) -> bytes | None"),
           "Returns up to `size` bytes; waits if there are none. None: there were none in time.")
      .def("start_send", &ReplyBuffer::start_send, nb::arg("data"), nb::arg("spins"), nb::arg("queue"),
           nb::arg("token"),
           "Sends packed commands for an event loop, at most a message. Returns the number of the call, "
           "whose end "
           "the queue reports; 0: the reply has been received already. `spins` must be False while a "
           "kv.receive is open.")
      .def("feed", &ReplyBuffer::feed, nb::arg("received"), "Adds bytes that were received otherwise.")
      .def("try_read", &ReplyBuffer::try_read, nb::arg("length"),
           nb::sig("def try_read(self, length: int) -> bytes | None"),
           "As read() of what has been received. None: it is incomplete.")
      .def("try_readline", &ReplyBuffer::try_read_line, nb::sig("def try_readline(self) -> bytes | None"),
           "As readline() of what has been received. None: it is incomplete.")
      .def("unread_bytes", &ReplyBuffer::unread)
      .def("can_read", &ReplyBuffer::can_read, nb::arg("timeout").none() = 0,
           nb::sig("def can_read(self, timeout: object = 0) -> bool"))
      .def("read", &ReplyBuffer::read, nb::arg("length"), nb::arg("timeout").none() = nb::str(""),
           nb::sig("def read(self, length: int, timeout: object = '') -> bytes"))
      .def("readline", &ReplyBuffer::read_line, nb::arg("timeout").none() = nb::str(""),
           nb::sig("def readline(self, timeout: object = '') -> bytes"))
      .def("get_pos", &ReplyBuffer::position)
      .def("rewind", &ReplyBuffer::rewind, nb::arg("pos"))
      .def("purge", &ReplyBuffer::purge)
      .def("close", &ReplyBuffer::close);
}

}  // namespace verbena::bind
