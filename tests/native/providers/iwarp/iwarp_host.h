// What the hosts of an iWARP stream share in unit tests and fuzz targets: a region under one key, posted
// receives, and the delivery of bytes in steps as a socket would.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "providers/iwarp/protocol/stream.h"

namespace iwarp_host {

using Bytes = std::vector<std::byte>;

constexpr uint32_t kKey = 0xabcd;  // the STag of the one region, which begins at offset 0

struct Region {
  Bytes bytes;
  bool is_gone = false;

  verbena::iwarp::Refusal check(uint32_t stag, uint64_t offset, uint64_t length) const {
    using verbena::iwarp::TerminateCode;
    if (stag != kKey || is_gone) return {verbena::Status::rem_access_err, TerminateCode::ddp_invalid_stag};
    if (offset > bytes.size() || length > bytes.size() - offset) {
      return {verbena::Status::rem_access_err, TerminateCode::ddp_bounds};
    }
    return {};
  }
  verbena::iwarp::Refusal land(uint32_t stag, uint64_t offset, uint32_t length,
                               verbena::iwarp::Placement& out) {
    const verbena::iwarp::Refusal refusal = check(stag, offset, length);
    if (!refusal) out.add(bytes.data() + offset, length);
    return refusal;
  }
};

// Posted receives that share one buffer. One is held from a message's first segment to its last.
struct Receives {
  Bytes buffer;
  int posted = 0;
  bool is_held = false;

  verbena::iwarp::Refusal land(uint64_t offset, uint32_t length, verbena::iwarp::Placement& out) {
    if (!is_held) {
      if (posted == 0) return {.not_ready = true};
      --posted;
      is_held = true;
    }
    if (offset + length > buffer.size()) {
      return {verbena::Status::rem_inv_req_err, verbena::iwarp::TerminateCode::ddp_too_long};
    }
    out.add(buffer.data() + offset, length);
    return {};
  }
  // For an immediate that comes behind a WRITE.
  verbena::iwarp::Refusal take() {
    if (posted == 0 && !is_held) return {.not_ready = true};
    if (!is_held) --posted;
    is_held = false;
    return {};
  }
};

// Copies at most `step` bytes from the front of `bytes` to where the stream's reader wants them, and reports
// them as arrived. Returns their number. The caller calls work() next.
inline size_t deliver(verbena::iwarp::Stream& stream, std::span<const std::byte> bytes, size_t step) {
  iovec room[verbena::iwarp::kMaxRoom];
  const size_t count = stream.reader().room(room);
  size_t taken = 0;
  for (size_t i = 0; i < count && taken < step && taken < bytes.size(); ++i) {
    const size_t n = std::min({room[i].iov_len, step - taken, bytes.size() - taken});
    std::memcpy(room[i].iov_base, bytes.data() + taken, n);
    taken += n;
  }
  stream.reader().arrived(taken);
  return taken;
}

inline Bytes flat(const verbena::iwarp::OutSegment& segment) {
  Bytes bytes;
  iovec pieces[verbena::iwarp::kMaxPieces + 2];
  const size_t count = segment.gather(0, pieces);
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
    bytes.insert(bytes.end(), from, from + pieces[i].iov_len);
  }
  return bytes;
}

}  // namespace iwarp_host
