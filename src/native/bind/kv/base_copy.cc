// Both ends of base copies, as Python opens, runs and closes them.
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
  std::shared_ptr<kv::CopyReceivers> landings;
};

struct CopyReceiverHandle {
  explicit CopyReceiverHandle(const CopyReceiversHandle& of) : node(of.node), landings(of.landings) {}
  CopyReceiverHandle(const CopyReceiverHandle&) = delete;
  CopyReceiverHandle& operator=(const CopyReceiverHandle&) = delete;
  ~CopyReceiverHandle() { close(); }
  void close() {
    if (!landing || node.is_inherited()) return;
    const Unlocked unlocked;
    {
      const auto held = node->lock();
      landings->remove(migration, *landing);
    }
    landing->close();
  }

  Owned<transport::Node> node;
  std::shared_ptr<kv::CopyReceivers> landings;
  kv::CopyReceiver::Migration migration{};
  std::vector<BufferView> windows;
  nb::object tap;
  std::shared_ptr<kv::CopyReceiver> landing;
};

void make_landings(CopyReceiversHandle* self, NodeHandle& node) {
  const auto& shared = node.node.share("take base copies");
  new (self) CopyReceiversHandle{Owned<transport::Node>(shared), nullptr};
  const Unlocked unlocked;
  self->landings = kv::CopyReceivers::make(*shared);
}

// Python's word on what arrives; what it raises is shown, and changes nothing.
kv::CopyReceiver::Tap tap_of(const nb::object& function) {
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

CopyReceiverHandle* open_landing(CopyReceiversHandle& self, EngineHandle& engine, const nb::bytes& migration,
                                 const nb::iterable& windows, LogApplierHandle& applier, nb::object tap) {
  auto handle = std::make_unique<CopyReceiverHandle>(self);
  if (migration.size() != handle->migration.size()) throw nb::value_error("a migration has 16 bytes");
  std::memcpy(handle->migration.data(), migration.c_str(), migration.size());
  std::vector<kv::CopyReceiver::Window> memory;
  for (const nb::handle window : windows) {
    const BufferView& view = handle->windows.emplace_back(nb::borrow(window), PyBUF_WRITABLE);
    memory.emplace_back(view.data(), view.size());
  }
  handle->tap = std::move(tap);
  const auto& shared = self.node.share();
  handle->landing = std::make_shared<kv::CopyReceiver>(*engine.engine, shared, std::move(memory),
                                                       applier.get(), tap_of(handle->tap));
  const Unlocked unlocked;
  const auto held = shared->lock();
  self.landings->add(handle->migration, handle->landing);
  return handle.release();
}

struct CopySenderHandle {
  std::unique_ptr<kv::CopySender> carrier;
  std::atomic<bool> stopped{false};
};

kv::CopySender::Tap shown_to(const nb::object& function) {
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

void make_carrier(CopySenderHandle* self, BaseCopyHandle& copy, const nb::bytes& header,
                  const nb::iterable& regions, uint32_t piece_bytes, const nb::object& tap) {
  kv::EnvelopeHeader common;
  std::vector<uint64_t> keys;
  for (const nb::handle key : regions) keys.push_back(nb::cast<uint64_t>(key));
  if (header.size() != sizeof common) throw nb::value_error("an envelope's header has 112 bytes");
  if (keys.empty() || piece_bytes <= sizeof common) throw nb::value_error("there is no room for a piece");
  std::memcpy(&common, header.c_str(), sizeof common);
  new (self) CopySenderHandle;
  std::shared_ptr<kv::Keyspace::Hold> hold;
  {
    const auto held = copy.engine->lock();
    hold = copy.engine->engine->keyspace.hold();
  }
  const auto fill = [&copy, hold = hold.get()](kv::CopyPiece& piece) { return copy.fill(piece, hold); };
  self->carrier =
      std::make_unique<kv::CopySender>(common, std::move(keys), piece_bytes, fill, hold, shown_to(tap));
}

// True: all of it is there.
bool run_carrier(CopySenderHandle& self, SessionHandle& session, uint64_t link, double patience_s) {
  kv::CopySender& carrier = *self.carrier;
  transport::BulkResult result;
  {
    const Unlocked unlocked;
    uint64_t pieces = carrier.figures().pieces, moved_ns = now_ns();
    const auto keep_going = [&] {
      if (const uint64_t now = carrier.figures().pieces; now != pieces) {
        pieces = now;
        moved_ns = now_ns();
      }
      return !self.stopped.load(std::memory_order_relaxed) &&
             now_ns() - moved_ns < static_cast<uint64_t>(patience_s * 1e9);
    };
    result = carrier.run(*session.node, *session.session, link, keep_going);
  }
  if (result.interrupted && !self.stopped) {
    raise_setup(session, "call_timeout", "carry a base copy", "");
  }
  if (result.outcome != transport::Outcome::ok) {
    raise_outcome(session, "carry a base copy", result.outcome, result.status, result.detail);
  }
  return carrier.is_complete();
}

}  // namespace

void bind_kv_base_copy(nb::module_& m) {
  nb::class_<CopyReceiverHandle>(m, "CopyReceiver",
                                 "Takes the pieces of one base copy from windows of memory.")
      .def_prop_ro(
          "taken", [](CopyReceiverHandle& self) { return self.landing->taken(); },
          "Bytes that have been applied.")
      .def_prop_ro(
          "failure", [](CopyReceiverHandle& self) { return self.landing->failure(); },
          "Why nothing more is applied; empty: nothing is wrong.")
      .def("close", &CopyReceiverHandle::close,
           "Nothing is applied any more when this returns, and who waits is refused. Never from within a "
           "command: it waits for its thread.");
  nb::class_<CopySenderHandle>(m, "CopySender",
                               "Sends a base copy, piece by piece, into windows of a peer's memory.")
      .def("__init__", make_carrier, nb::arg("copy"), nb::arg("header"), nb::arg("regions"),
           nb::arg("piece_bytes"), nb::kw_only(), nb::arg("tap").none() = nb::none(), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 6>(),
           nb::sig("def __init__(self, copy: BaseCopy, header: bytes, regions: "
                   "collections.abc.Iterable[int], piece_bytes: int, *, tap: "
                   "collections.abc.Callable[[str, bytes], None] | None = None) -> None"),
           "`header`: an envelope's, with what all have in common, and the first one's sequence. `tap` is "
           "shown each envelope before it leaves, and by which wire.")
      .def("run", run_carrier, nb::arg("session"), nb::arg("link"), nb::kw_only(), nb::arg("patience_s"),
           "Until all of it is acknowledged (True) or stop() is called (False). Raises if it cannot go on by "
           "this session, or, with a `link` other than 0, by this link: then it may be run again. Blocks.")
      .def(
          "stop", [](CopySenderHandle& self) { self.stopped = true; }, "run() returns soon, from any thread.")
      .def_prop_ro(
          "acknowledged", [](CopySenderHandle& self) { return self.carrier->figures().acknowledged; },
          "Bytes that the target has applied.")
      .def_prop_ro("pieces", [](CopySenderHandle& self) { return self.carrier->figures().pieces; })
      .def_prop_ro(
          "refusal", [](CopySenderHandle& self) { return to_bytes(self.carrier->refusal()); },
          "The answer by which the target has refused a piece; empty: none. Not while it runs.");
  nb::class_<CopyReceiversHandle>(m, "CopyReceivers", "Notices that pieces of base copies have landed.")
      .def("__init__", make_landings, nb::arg("node"))
      .def("open", open_landing, nb::arg("engine"), nb::arg("migration"), nb::arg("windows"),
           nb::arg("applier"), nb::kw_only(), nb::arg("tap").none() = nb::none(), nb::keep_alive<0, 2>(),
           nb::keep_alive<0, 5>(),
           nb::sig("def open(self, engine: Engine, migration: bytes, windows: "
                   "collections.abc.Iterable[typing_extensions.Buffer], applier: LogApplier, *, tap: "
                   "collections.abc.Callable[[bytes, bytes], None] | None = None) -> CopyReceiver"),
           "For the pieces of this migration, instead of any landing before. `tap` is shown each notice and "
           "the piece that it is about, on another thread.");
}

}  // namespace verbena::bind
