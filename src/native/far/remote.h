// The remote bytes of an array: reads and writes pieces of them by batches of READs and WRITEs. Thread-safe.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "transport/session/batch.h"

namespace verbena::far {

// `length` bytes between local memory and this offset of the array.
struct Piece {
  uint64_t offset;
  std::byte* data;
  uint64_t length;
};

// The limits of one access: its deadline, and a function that is called from time to time; false ends it.
struct Limits {
  uint64_t deadline_ns = kNever;
  const std::function<bool()>& keep_going;
};

using Result = transport::BulkResult;
inline bool is_whole(const Result& result) {
  return result.outcome == transport::Outcome::ok && !result.timed_out && !result.interrupted;
}

class Remote {
 public:
  Remote(std::shared_ptr<transport::Node> node, std::shared_ptr<transport::Session> session, uint64_t region,
         uint64_t offset)
      : node_(std::move(node)), session_(std::move(session)), region_(region), offset_(offset) {}

  // The pieces' local memory is in `memory`. Later pieces win where WRITEs overlap.
  Result read(std::span<const Piece> pieces, transport::Registration& memory, const Limits& limits) {
    return run(Opcode::read, pieces, memory, limits);
  }
  Result write(std::span<const Piece> pieces, transport::Registration& memory, const Limits& limits) {
    return run(Opcode::write, pieces, memory, limits);
  }

  transport::Node& node() const { return *node_; }
  // Whether a READ is a copy by this thread, so that fetching in advance gains nothing.
  bool is_local() const;

  std::atomic<uint64_t> reads{0}, read_bytes{0}, writes{0}, write_bytes{0};

 private:
  Result run(Opcode opcode, std::span<const Piece> pieces, transport::Registration& memory,
             const Limits& limits);

  const std::shared_ptr<transport::Node> node_;
  const std::shared_ptr<transport::Session> session_;
  const uint64_t region_, offset_;
};

}  // namespace verbena::far
