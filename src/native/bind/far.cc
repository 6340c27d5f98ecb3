// Binds _native.far: the memory of a far.Array. Rows move between a buffer and the peer without a Python
// object per row, and without the GIL.
#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "bind/transport/session.h"
#include "bind/verbs/waiting.h"
#include "far/array_memory.h"

namespace verbena::bind {
namespace {

using transport::Operation;
using transport::Outcome;
using ::verbena::far::ArrayMemory;
using ::verbena::far::BlockCache;
using ::verbena::far::is_whole;
using ::verbena::far::Limits;
using ::verbena::far::Piece;

constexpr size_t kPiecesAtOnce = 16384;
constexpr size_t kQuickBytes = 64u << 10;  // copied without releasing the GIL

struct ArrayMemoryHandle {
  SessionHandle session;
  RemoteRegion remote;
  Owned<ArrayMemory> memory;
};

// Converts the arguments of an access, runs it without the GIL, and raises its failure.
class FarAccess {
 public:
  FarAccess(ArrayMemoryHandle& self, const char* operation, double timeout_s, const nb::object& progress)
      : self_(self), operation_(operation), deadline_ns_(deadline_after(timeout_s)), progress_(progress) {
    check_remote(self.session, self.remote, operation, 0);
  }

  // Calls run(limits), which returns a Result.
  template <typename Run>
  void run(Run run) {
    ::verbena::far::Result result;
    bool raised = false;
    {
      Unlocked unlocked;
      const std::function<bool()> keep_going = [&] {
        raised = unlocked.with_gil([&] {
          if (PyErr_CheckSignals() != 0) return true;
          if (progress_.is_none()) return false;
          PyObject* reported = PyObject_CallFunction(progress_.ptr(), "i", 0);
          Py_XDECREF(reported);
          return reported == nullptr;
        });
        return !raised;
      };
      result = run(Limits{deadline_ns_, keep_going});
    }
    raised_ = raised, result_ = std::move(result);
  }

  // As run(), with a registration of the buffer for the length of the access.
  template <typename Run>
  void run_with(const BufferView& view, const nb::handle& owner, Run access) {
    transport::Node& node = *self_.session.node;
    transport::CachedRegistration entry =
        take_registration(node, {view.data(), view.size(), view.readonly()}, owner);
    run([&](const Limits& limits) { return access(*entry.memory, limits); });
    return_registration(node, std::move(entry), !raised_ && is_whole(result_));
  }

  void raise_failure() {
    if (raised_) throw nb::python_error();
    if (result_.outcome != Outcome::ok) {
      raise_outcome(self_.session, operation_, result_.outcome, result_.status, result_.detail);
    }
    if (result_.timed_out) raise_setup(self_.session, "call_timeout", operation_, "");
    if (result_.interrupted) raise_setup(self_.session, "closed", operation_, "the array was closed");
  }

 private:
  ArrayMemoryHandle& self_;
  const char* const operation_;
  const uint64_t deadline_ns_;
  const nb::object& progress_;
  bool raised_ = false;
  ::verbena::far::Result result_;
};

void make_memory(ArrayMemoryHandle* self, SessionHandle& session, const RemoteRegion& remote, uint64_t length,
                 uint64_t cache_bytes, uint64_t block_bytes) {
  auto memory = std::make_shared<ArrayMemory>(
      session.node.share(), session.session.share(), remote.key, remote.offset,
      ::verbena::far::CacheOptions{.length = length, .cache_bytes = cache_bytes, .block_bytes = block_bytes});
  new (self) ArrayMemoryHandle{session, remote, Owned(std::move(memory))};
}

// A short READ without a cache: through a message buffer, which costs less than a registration. False: it is
// too long.
bool read_short(ArrayMemoryHandle& self, const Piece& piece, double timeout_s) {
  transport::Node& node = *self.session.node;
  transport::Session& session = *self.session.session;
  Operation* begun;
  {
    const auto held = lock_from_python(node);
    if (piece.length > session.buffer_bytes()) return false;
    begun = session.operate(Opcode::read, self.remote.key, self.remote.offset + piece.offset, piece.data,
                            static_cast<uint32_t>(piece.length), nullptr);
    self.memory->remote().reads.fetch_add(1, std::memory_order_relaxed);
    self.memory->remote().read_bytes.fetch_add(piece.length, std::memory_order_relaxed);
    if (begun && node.spin_for_reply(*begun)) {
      node.operations().end(*begun);
      return true;
    }
  }
  if (!begun) raise_refused(self.session, "read");
  finish_call(self.session, *begun, "read", timeout_s);
  return true;
}

void read(ArrayMemoryHandle& self, uint64_t offset, const nb::handle& buffer, double timeout_s,
          const nb::object& progress, const nb::handle& owner) {
  const BufferView view(buffer, PyBUF_WRITABLE);
  if (view.size() == 0) return;
  const Piece piece{offset, view.data(), view.size()};
  FarAccess access(self, "read", timeout_s, progress);
  const BlockCache* cache = self.memory->cache();
  if (cache ? piece.length <= kQuickBytes && self.memory->cache()->read_hit(piece)
            : read_short(self, piece, timeout_s)) {
    return;
  }
  access.run_with(view, owner, [&](transport::Registration& memory, const Limits& limits) {
    return self.memory->read({&piece, 1}, memory, limits);
  });
  access.raise_failure();
}

void write(ArrayMemoryHandle& self, uint64_t offset, const nb::handle& buffer, double timeout_s,
           const nb::object& progress, const nb::handle& owner) {
  const BufferView view(buffer, PyBUF_SIMPLE);
  if (view.size() == 0) return;
  const Piece piece{offset, view.data(), view.size()};
  FarAccess access(self, "write", timeout_s, progress);
  access.run_with(view, owner, [&](transport::Registration& memory, const Limits& limits) {
    return self.memory->write({&piece, 1}, memory, limits);
  });
  access.raise_failure();
}

// Raises IndexError unless all rows exist. Negative ones count from the end.
std::span<const int64_t> checked_rows(const BufferView& view, int64_t length) {
  const std::span rows(reinterpret_cast<const int64_t*>(view.data()), view.size() / sizeof(int64_t));
  for (const int64_t row : rows) {
    if (row < -length || row >= length) {
      throw nb::index_error(("index " + std::to_string(row) + " is out of bounds for axis 0 with size " +
                             std::to_string(length))
                                .c_str());
    }
  }
  return rows;
}

// Reads or writes rows of an array of `length` rows; row i of the buffer is row rows[i] of the array.
void move_rows(ArrayMemoryHandle& self, bool is_write, const nb::handle& row_numbers, int64_t length,
               const nb::handle& buffer, double timeout_s, const nb::object& progress,
               const nb::handle& owner) {
  const BufferView numbers(row_numbers, PyBUF_SIMPLE);
  const std::span<const int64_t> rows = checked_rows(numbers, length);
  const BufferView view(buffer, is_write ? PyBUF_SIMPLE : PyBUF_WRITABLE);
  if (view.size() == 0 || rows.empty()) return;
  const uint64_t row_bytes = view.size() / rows.size();
  FarAccess access(self, is_write ? "put" : "take", timeout_s, progress);
  access.run_with(view, owner, [&](transport::Registration& memory, const Limits& limits) {
    std::vector<Piece> pieces(std::min(rows.size(), kPiecesAtOnce));
    ::verbena::far::Result result;
    for (size_t done = 0; done < rows.size() && is_whole(result);) {
      const size_t count = std::min(rows.size() - done, kPiecesAtOnce);
      for (size_t i = 0; i < count; ++i) {
        // Another thread may change the numbers meanwhile: they are taken modulo the length.
        const int64_t row = rows[done + i] < 0 ? rows[done + i] + length : rows[done + i];
        pieces[i] = {static_cast<uint64_t>(row) % static_cast<uint64_t>(length) * row_bytes,
                     view.data() + (done + i) * row_bytes, row_bytes};
      }
      const std::span some(pieces.data(), count);
      result = is_write ? self.memory->write(some, memory, limits) : self.memory->read(some, memory, limits);
      done += count;
    }
    return result;
  });
  access.raise_failure();
}

void flush(ArrayMemoryHandle& self, double timeout_s, const nb::object& progress) {
  BlockCache* cache = self.memory->cache();
  if (!cache) return;
  FarAccess access(self, "flush", timeout_s, progress);
  access.run([&](const Limits& limits) { return cache->flush(limits); });
  access.raise_failure();
}

void invalidate(ArrayMemoryHandle& self, bool discard, double timeout_s, const nb::object& progress) {
  BlockCache* cache = self.memory->cache();
  if (!cache) return;
  FarAccess access(self, "invalidate", timeout_s, progress);
  access.run([&](const Limits& limits) { return cache->invalidate(discard, limits); });
  access.raise_failure();
}

nb::dict counters(ArrayMemoryHandle& self) {
  auto& remote = self.memory->remote();
  nb::dict all;
  all["wire_reads"] = remote.reads.load();
  all["wire_read_bytes"] = remote.read_bytes.load();
  all["wire_writes"] = remote.writes.load();
  all["wire_write_bytes"] = remote.write_bytes.load();
  if (const BlockCache* cache = self.memory->cache()) {
    const auto counted = cache->counters();
    all["hits"] = counted.hits;
    all["misses"] = counted.misses;
    all["evictions"] = counted.evictions;
    all["cached_bytes"] = counted.cached_bytes;
    all["dirty_bytes"] = counted.dirty_bytes;
  }
  return all;
}

}  // namespace

void bind_far(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("far", "Far memory: the native data path.");
  nb::class_<ArrayMemoryHandle>(m, "ArrayMemory", "The bytes of a far.Array, through a cache.")
      .def("__init__", make_memory, nb::arg("session"), nb::arg("remote"), nb::kw_only(), nb::arg("length"),
           nb::arg("cache_bytes"), nb::arg("block_bytes"))
      .def("read", read, nb::arg("offset"), nb::arg("buffer"), nb::kw_only(), nb::arg("timeout_s"),
           nb::arg("progress").none(), nb::arg("owner").none(),
           nb::sig("def read(self, offset: int, buffer: object, *, timeout_s: float, "
                   "progress: object | None, owner: object | None) -> None"))
      .def("write", write, nb::arg("offset"), nb::arg("buffer"), nb::kw_only(), nb::arg("timeout_s"),
           nb::arg("progress").none(), nb::arg("owner").none(),
           nb::sig("def write(self, offset: int, buffer: object, *, timeout_s: float, "
                   "progress: object | None, owner: object | None) -> None"))
      .def("move_rows", move_rows, nb::arg("is_write"), nb::arg("rows"), nb::arg("length"), nb::arg("buffer"),
           nb::kw_only(), nb::arg("timeout_s"), nb::arg("progress").none(), nb::arg("owner").none(),
           nb::sig("def move_rows(self, is_write: bool, rows: object, length: int, buffer: object, *, "
                   "timeout_s: float, progress: object | None, owner: object | None) -> None"),
           "Row i of the buffer is row rows[i], an int64, of an array with `length` rows.")
      .def(
          "prefetch",
          [](ArrayMemoryHandle& self, uint64_t offset, uint64_t length) {
            if (BlockCache* cache = self.memory->cache()) {
              const Unlocked unlocked;
              cache->prefetch({offset, offset + length});
            }
          },
          nb::arg("offset"), nb::arg("length"))
      .def_prop_ro("prefetch_bytes",
                   [](const ArrayMemoryHandle& self) {
                     const BlockCache* cache = self.memory->cache();
                     return cache ? cache->prefetch_bytes() : 0;
                   })
      .def("flush", flush, nb::kw_only(), nb::arg("timeout_s"), nb::arg("progress").none(),
           nb::sig("def flush(self, *, timeout_s: float, progress: object | None) -> None"))
      .def("invalidate", invalidate, nb::kw_only(), nb::arg("discard"), nb::arg("timeout_s"),
           nb::arg("progress").none(),
           nb::sig(
               "def invalidate(self, *, discard: bool, timeout_s: float, progress: object | None) -> None"))
      .def("counters", counters, nb::sig("def counters(self) -> dict[str, int]"))
      .def(
          "close",
          [](ArrayMemoryHandle& self) {
            if (self.memory.is_inherited()) return;
            const Unlocked unlocked;
            if (BlockCache* cache = self.memory->cache()) cache->close();
          },
          "Ends prefetching. Flush first.");
}

}  // namespace verbena::bind
