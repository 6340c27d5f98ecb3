// Binds a session's batches: many short READs or WRITEs between one buffer and regions of the peer, without a
// Python object per piece.
#include <nanobind/stl/string.h>

#include "bind/errors.h"
#include "bind/transport/session.h"
#include "bind/verbs/waiting.h"
#include "transport/session/batch.h"

namespace verbena::bind {
namespace {

using transport::GatherPiece;
using transport::Outcome;

constexpr uint64_t kMaxPieceBytes = 256u << 10;  // longer pieces are several requests

const char* name_of(bool is_write) { return is_write ? "write_many" : "read_many"; }

bool is_int64(const Py_buffer& view) {
  std::string_view format = view.format ? view.format : "B";
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) format.remove_prefix(1);
  return view.itemsize == 8 && (format == "l" || format == "q" || format == "L" || format == "Q");
}

// The offsets of the pieces: those of a contiguous int64 array as they are, others converted.
class Offsets {
 public:
  Offsets(const nb::handle& offsets, const char* operation) {
    if (PyObject_GetBuffer(offsets.ptr(), &view_, PyBUF_CONTIG_RO | PyBUF_FORMAT) == 0) {
      if (is_int64(view_)) {
        values_ = {static_cast<const int64_t*>(view_.buf), static_cast<size_t>(view_.len) / sizeof(int64_t)};
        return;
      }
      PyBuffer_Release(&view_);
    } else {
      PyErr_Clear();
    }
    convert(offsets, operation);
  }
  ~Offsets() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  Offsets(const Offsets&) = delete;
  Offsets& operator=(const Offsets&) = delete;

  std::span<const int64_t> values() const { return values_; }

 private:
  void convert(const nb::handle& offsets, const char* operation) {
    if (PyBytes_Check(offsets.ptr()) || PyUnicode_Check(offsets.ptr()) || !PySequence_Check(offsets.ptr())) {
      throw nb::type_error((std::string(operation) + ": offsets is " + Py_TYPE(offsets.ptr())->tp_name +
                            ", not a sequence of integers or an int64 array")
                               .c_str());
    }
    for (const nb::handle one : nb::iter(offsets)) {
      const Py_ssize_t value = PyNumber_AsSsize_t(one.ptr(), PyExc_OverflowError);
      if (value == -1 && PyErr_Occurred()) throw nb::python_error();
      converted_.push_back(value);
    }
    values_ = converted_;
  }

  Py_buffer view_{};
  std::vector<int64_t> converted_;
  std::span<const int64_t> values_;
};

struct BatchArguments {
  bool is_write;
  LocalMemory local;
  double timeout_s;
  const nb::object& progress;
  const nb::handle& owner;
};

// Runs a batch of requests whose pieces `fill` sets.
void run(SessionHandle& self, const BatchArguments& arguments, uint64_t pieces, transport::FillPieces fill) {
  transport::CachedRegistration entry = take_registration(*self.node, arguments.local, arguments.owner);
  const transport::BatchRequest request{.opcode = arguments.is_write ? Opcode::write : Opcode::read,
                                        .pieces = pieces,
                                        .fill = std::move(fill),
                                        .deadline_ns = deadline_after(arguments.timeout_s)};
  transport::BulkResult result;
  uint64_t done = 0;
  bool raised = false;
  {
    Unlocked unlocked;
    const auto keep_going = [&] {
      raised = unlocked.with_gil([&] {
        if (PyErr_CheckSignals() != 0) return true;
        if (arguments.progress.is_none()) return false;
        PyObject* reported = PyObject_CallFunction(arguments.progress.ptr(), "K", done);
        Py_XDECREF(reported);
        return reported == nullptr;
      });
      return !raised;
    };
    result = transport::run_batch(*self.node, *self.session, request, *entry.memory, done, keep_going);
  }
  return_registration(*self.node, std::move(entry), done == pieces);
  const char* name = name_of(arguments.is_write);
  if (raised) throw nb::python_error();
  if (result.outcome != Outcome::ok) raise_outcome(self, name, result.outcome, result.status, result.detail);
  if (result.timed_out) {
    raise_setup(self, "call_timeout", name,
                std::to_string(done) + " of " + std::to_string(pieces) + " requests were complete in time");
  }
}

[[noreturn]] void raise_length(const char* name, const char* argument, size_t bytes, const std::string& why) {
  throw nb::value_error(
      (std::string(name) + ": " + argument + " has " + std::to_string(bytes) + " bytes, " + why).c_str());
}

// Pieces of one length, at these offsets of one region.
void run_at_offsets(SessionHandle& self, const BatchArguments& arguments, const RemoteRegion& remote,
                    const Offsets& offsets, const char* argument) {
  const char* name = name_of(arguments.is_write);
  const std::span<const int64_t> at = offsets.values();
  check_remote(self, remote, name, 0);
  if (at.empty() ? arguments.local.size > 0 : arguments.local.size % at.size() != 0) {
    raise_length(name, argument, arguments.local.size,
                 "which is no multiple of " + std::to_string(at.size()) + ", the number of offsets");
  }
  const uint64_t length = at.empty() ? 0 : arguments.local.size / at.size();
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i] < 0 || length > remote.length || static_cast<uint64_t>(at[i]) > remote.length - length) {
      raise_setup(self, "out_of_range", name,
                  std::to_string(length) + " bytes at offset " + std::to_string(at[i]) + ", number " +
                      std::to_string(i) + ", of a region of " + std::to_string(remote.length));
    }
  }
  if (length == 0) return;
  const uint64_t parts = (length + kMaxPieceBytes - 1) / kMaxPieceBytes;
  run(self, arguments, at.size() * parts, [=, local = arguments.local.data](uint64_t first, auto pieces) {
    uint64_t number = first / parts, part = first % parts;
    for (GatherPiece& piece : pieces) {
      const uint64_t begin = part * kMaxPieceBytes;
      piece.region = remote.key;
      piece.offset = remote.offset + static_cast<uint64_t>(at[number]) + begin;
      piece.local = local + number * length + begin;
      piece.length = static_cast<uint32_t>(std::min(kMaxPieceBytes, length - begin));
      if (++part == parts) part = 0, ++number;
    }
  });
}

// One piece per region, of the region's length.
void run_on_regions(SessionHandle& self, const BatchArguments& arguments, const nb::handle& remotes,
                    const char* argument) {
  const char* name = name_of(arguments.is_write);
  std::vector<GatherPiece> all;
  uint64_t total = 0;
  for (const nb::handle one : nb::iter(remotes)) {
    const RemoteRegion& remote = remote_of(one, name);
    check_remote(self, remote, name, 0);
    const uint64_t room = arguments.local.size - std::min<uint64_t>(total, arguments.local.size);
    for (uint64_t done = 0; done < remote.length && remote.length <= room; done += kMaxPieceBytes) {
      all.push_back({remote.key, remote.offset + done, arguments.local.data + total + done,
                     static_cast<uint32_t>(std::min(kMaxPieceBytes, remote.length - done))});
    }
    total += remote.length;
  }
  if (total != arguments.local.size) {
    raise_length(name, argument, arguments.local.size, "and the regions have " + std::to_string(total));
  }
  if (all.empty()) return;
  run(self, arguments, all.size(), [&all](uint64_t first, auto pieces) {
    std::copy_n(all.begin() + static_cast<ptrdiff_t>(first), pieces.size(), pieces.begin());
  });
}

void many(SessionHandle& self, bool is_write, const nb::handle& remote, const nb::handle& offsets,
          const nb::handle& buffer, double timeout_s, const nb::object& progress, const nb::handle& owner) {
  const char* name = name_of(is_write);
  const char* argument = is_write ? "buffer" : "into";
  const BufferView view = view_of(buffer, name, !is_write, argument);
  const BatchArguments arguments{
      is_write, {view.data(), view.size(), view.readonly()}, timeout_s, progress, owner};
  RemoteRegion* one = nullptr;
  if (nb::try_cast<RemoteRegion*>(remote, one) && one) {
    const nb::object start = nb::make_tuple(0);
    return run_at_offsets(self, arguments, *one, Offsets(offsets.is_none() ? start : offsets, name),
                          argument);
  }
  if (!offsets.is_none() || !PySequence_Check(remote.ptr())) remote_of(remote, name);  // which raises
  run_on_regions(self, arguments, remote, argument);
}

}  // namespace

void bind_session_batch(nb::class_<SessionHandle>& session) {
  session.def("many", many, nb::arg("is_write"), nb::arg("remote"), nb::arg("offsets").none(),
              nb::arg("buffer"), nb::kw_only(), nb::arg("timeout_s"), nb::arg("progress").none(),
              nb::arg("owner").none(),
              nb::sig("def many(self, is_write: bool, remote: object, offsets: object, buffer: object, *, "
                      "timeout_s: float, progress: object | None, owner: object | None) -> None"),
              "Without offsets, `remote` is a sequence of regions.");
}

}  // namespace verbena::bind
