// _native.kv: CopySender, CopyReceiver and CopyReceivers, the two ends of a base copy for Python.
// Only converts arguments, releases the GIL and keeps memory alive; the work is done in kv/migration.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bind/buffer.h"
#include "bind/kv/backlog.h"
#include "bind/transport/session.h"
#include "kv/migration/copy_receiver.h"
#include "util/clock.h"

namespace verbena::bind {
namespace {

struct CopyReceiversHandle {
  Owned<transport::Node> node;
  Owned<kv::CopyReceivers> receivers;
};

struct CopyReceiverHandle {
  explicit CopyReceiverHandle(const CopyReceiversHandle& of) : node(of.node), receivers(of.receivers) {}
  CopyReceiverHandle(const CopyReceiverHandle&) = delete;
  CopyReceiverHandle& operator=(const CopyReceiverHandle&) = delete;
  ~CopyReceiverHandle() { close(); }
  void close() {
    if (!receiver || node.is_inherited()) return;
    const Unlocked unlocked;
    {
      const auto held = node->lock();
      receivers->remove(migration, *receiver);
    }
    receiver->close();
  }

  Owned<transport::Node> node;
  Owned<kv::CopyReceivers> receivers;
  kv::CopyReceiver::Migration migration{};
  std::vector<BufferView> windows;  // also those that are no longer lent: announced pieces may lie in them
  nb::object observer;
  Owned<kv::CopyReceiver> receiver;
};

void make_receivers(CopyReceiversHandle* self, NodeHandle& node) {
  const auto& shared = node.node.share("take base copies");
  new (self) CopyReceiversHandle{Owned<transport::Node>(shared), {}};
  const Unlocked unlocked;
  self->receivers = Owned(kv::CopyReceivers::make(*shared));
}

// Calls a Python function with each notice and its piece. An exception is reported as unraisable and has no
// other effect.
kv::CopyReceiver::Observer received_observer(const nb::object& function) {
  if (function.is_none()) return {};
  return [function = function.ptr()](std::string_view notice, kv::CopyReceiver::Window piece) {
    const nb::gil_scoped_acquire gil;
    try {
      nb::borrow(function)(to_bytes(notice),
                           to_bytes({reinterpret_cast<const char*>(piece.data()), piece.size()}));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(nb::borrow(function));
    }
  };
}

CopyReceiverHandle* open_receiver(CopyReceiversHandle& self, EngineHandle& engine, const nb::bytes& migration,
                                  const nb::bytes& source, LogApplierHandle& applier, nb::object observer) {
  auto handle = std::make_unique<CopyReceiverHandle>(self);
  kv::CopyReceiver::MemberId member;
  if (migration.size() != handle->migration.size()) throw nb::value_error("a migration has 16 bytes");
  if (source.size() != member.size()) throw nb::value_error("a member's id has 20 bytes");
  std::memcpy(handle->migration.data(), migration.c_str(), migration.size());
  std::memcpy(member.data(), source.c_str(), source.size());
  handle->observer = std::move(observer);
  const auto& shared = self.node.share();
  handle->receiver = Owned(std::make_shared<kv::CopyReceiver>(*engine.engine, shared, member, applier.get(),
                                                              received_observer(handle->observer)));
  const Unlocked unlocked;
  const auto held = shared->lock();
  self.receivers->add(handle->migration, handle->receiver.share());
  return handle.release();
}

void lend_windows(CopyReceiverHandle& self, uint64_t session, const nb::iterable& windows) {
  std::vector<kv::CopyReceiver::Window> memory;
  for (const nb::handle window : windows) {
    const BufferView& view = self.windows.emplace_back(nb::borrow(window), PyBUF_WRITABLE);
    memory.emplace_back(view.data(), view.size());
  }
  const Unlocked unlocked;
  self.receiver->lend(session, std::move(memory));
}

struct CopySenderHandle {
  Owned<kv::CopySender> sender;
  std::atomic<bool> stopped{false};
};

kv::CopySender::Observer sent_observer(const nb::object& function) {
  if (function.is_none()) return {};
  return [function = function.ptr()](std::string_view wire, std::string_view data) {
    const nb::gil_scoped_acquire gil;
    try {
      nb::borrow(function)(nb::str(wire.data(), wire.size()), to_bytes(data));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(nb::borrow(function));
    }
  };
}

void make_copy_sender(CopySenderHandle* self, BaseCopyHandle& copy, const nb::bytes& header, size_t windows,
                      uint32_t piece_bytes, const nb::object& observer) {
  kv::EnvelopeHeader common;
  if (header.size() != sizeof common) throw nb::value_error("an envelope's header has 112 bytes");
  if (windows == 0 || piece_bytes <= sizeof common) throw nb::value_error("there is no room for a piece");
  std::memcpy(&common, header.c_str(), sizeof common);
  new (self) CopySenderHandle;
  std::shared_ptr<kv::Keyspace::Hold> hold;
  {
    const auto held = copy.engine->lock();
    hold = copy.engine->engine->keyspace.hold();
  }
  const auto fill = [&copy, hold = hold.get()](kv::CopyPiece& piece) { return copy.fill(piece, hold); };
  self->sender = Owned(
      std::make_shared<kv::CopySender>(common, windows, piece_bytes, fill, hold, sent_observer(observer)));
}

// True: the target has acknowledged the whole copy. False: stop() was called.
bool run_sender(CopySenderHandle& self, SessionHandle& session, uint64_t link, const nb::iterable& regions,
                double answer_timeout_s) {
  kv::CopySender& sender = *self.sender;
  std::vector<uint64_t> keys;
  for (const nb::handle key : regions) keys.push_back(nb::cast<uint64_t>(key));
  if (keys.size() != sender.windows()) throw nb::value_error("the number of windows has changed");
  transport::BulkResult result;
  {
    const Unlocked unlocked;
    uint64_t pieces = sender.counters().pieces, moved_ns = now_ns();
    const auto keep_going = [&] {
      if (const uint64_t now = sender.counters().pieces; now != pieces) {
        pieces = now;
        moved_ns = now_ns();
      }
      return !self.stopped.load(std::memory_order_relaxed) &&
             now_ns() - moved_ns < static_cast<uint64_t>(answer_timeout_s * 1e9);
    };
    result = sender.run(*session.node, *session.session, link, std::move(keys), keep_going);
  }
  if (result.interrupted && !self.stopped) {
    raise_setup(session, "call_timeout", "carry a base copy", "");
  }
  if (result.outcome != transport::Outcome::ok) {
    raise_outcome(session, "carry a base copy", result.outcome, result.status, result.detail);
  }
  return sender.is_complete();
}

}  // namespace

void bind_kv_base_copy(nb::module_& m) {
  nb::class_<CopyReceiverHandle>(
      m, "CopyReceiver", "Applies the pieces of one base copy that a peer writes into windows of memory.")
      .def_prop_ro(
          "taken", [](CopyReceiverHandle& self) { return self.receiver->taken(); },
          "The number of bytes that have been applied.")
      .def_prop_ro(
          "failure", [](CopyReceiverHandle& self) { return self.receiver->failure(); },
          "The reason why no further piece is applied; empty: there is none.")
      .def("lend", lend_windows, nb::arg("session"), nb::arg("windows"),
           nb::sig("def lend(self, session: int, windows: "
                   "collections.abc.Iterable[typing_extensions.Buffer]) -> None"),
           "Lends windows to the session with this id, which must be the source's, in place of those lent "
           "before. They must be as many and as long as the first ones.")
      .def(
          "withdraw", [](CopyReceiverHandle& self) { self.receiver->withdraw(); },
          "Refuses further pieces until lend().")
      .def("close", &CopyReceiverHandle::close,
           "Stops applying pieces and refuses those that wait. Must not be called from within a command, "
           "because it waits for the receiver's thread.");
  nb::class_<CopySenderHandle>(m, "CopySender",
                               "Sends a base copy, piece by piece, into windows of a peer's memory.")
      .def("__init__", make_copy_sender, nb::arg("copy"), nb::arg("header"), nb::arg("windows"),
           nb::arg("piece_bytes"), nb::kw_only(), nb::arg("observer").none() = nb::none(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>(),
           nb::sig("def __init__(self, copy: BaseCopy, header: bytes, windows: int, piece_bytes: int, *, "
                   "observer: collections.abc.Callable[[str, bytes], None] | None = None) -> None"),
           "`header`: the fields that all envelopes share, with the sequence number of the first. `windows`: "
           "their number. `observer` is called with the wire and each envelope before it is sent.")
      .def(
          "run", run_sender, nb::arg("session"), nb::arg("link"), nb::arg("regions"), nb::kw_only(),
          nb::arg("answer_timeout_s"),
          nb::sig("def run(self, session: verbena._native.transport.Session, link: int, regions: "
                  "collections.abc.Iterable[int], *, answer_timeout_s: float) -> bool"),
          "Sends until everything is acknowledged (True) or stop() is called (False). `regions`: the keys of "
          "the windows that the target has lent to this session. Raises if the session, "
          "or the given `link` if it is not 0, cannot be used; run() may then be called again. Blocks.")
      .def(
          "stop", [](CopySenderHandle& self) { self.stopped = true; },
          "Makes run() return soon. Any thread may call it.")
      .def_prop_ro(
          "acknowledged", [](CopySenderHandle& self) { return self.sender->counters().acknowledged; },
          "The number of bytes that the target has applied.")
      .def_prop_ro("pieces", [](CopySenderHandle& self) { return self.sender->counters().pieces; })
      .def_prop_ro(
          "refusal", [](CopySenderHandle& self) { return to_bytes(self.sender->refusal()); },
          "The answer by which the target refused a piece; empty: none. Must not be read while run() runs.");
  nb::class_<CopyReceiversHandle>(m, "CopyReceivers",
                                  "Handles notices that pieces of base copies have been written.")
      .def("__init__", make_receivers, nb::arg("node"))
      .def("open", open_receiver, nb::arg("engine"), nb::arg("migration"), nb::arg("source"),
           nb::arg("applier"), nb::kw_only(), nb::arg("observer").none() = nb::none(), nb::keep_alive<0, 2>(),
           nb::keep_alive<0, 5>(),
           nb::sig("def open(self, engine: Engine, migration: bytes, source: bytes, applier: LogApplier, *, "
                   "observer: collections.abc.Callable[[bytes, bytes], None] | None = None) -> CopyReceiver"),
           "Returns the receiver of this migration's pieces from the member `source`; it replaces an earlier "
           "one and has no windows yet. `observer` is called with each notice and its piece, on another "
           "thread.")
      .def_prop_ro(
          "refused", [](CopyReceiversHandle& self) { return self.receivers->refused(); },
          "The number of notices that were refused because of the session that sent them.");
}

}  // namespace verbena::bind
