// Session messages and one-sided operations as pcapng blocks, for a file that Wireshark opens: link type
// USER0, one packet each, with a CaptureHeader in front. Protected by the node's lock; the file's writer
// calls take().
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "verbs/types.h"

namespace verbena::transport {

enum class Direction : uint8_t { sent = 0, received = 1 };
enum class Captured : uint8_t { message = 0, write = 1, read = 2 };

// In front of each packet. Little-endian, like what follows.
struct CaptureHeader {
  uint8_t version = 1;
  Direction direction = Direction::sent;
  Captured kind = Captured::message;
  uint8_t unused = 0;
  uint32_t length = 0;  // of the whole message or transfer, of which less may be kept
  uint64_t session = 0;
  char wire[8] = {};  // its name, padded with zeros
};
static_assert(sizeof(CaptureHeader) == 24);

// Follows for a WRITE or READ of this side; then the beginning of the data.
struct CapturedOperation {
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  Status status = Status::success;
  uint8_t unused[3] = {};
};
static_assert(sizeof(CapturedOperation) == 16);

class Capture {
 public:
  // Bytes kept of a transfer's data, which may be gigabytes.
  static constexpr size_t kMaxData = 256;

  // Keeps `snap_bytes` of each message, and at most `room_bytes` between two calls of take().
  Capture(size_t snap_bytes, size_t room_bytes) : snap_bytes_(snap_bytes), room_bytes_(room_bytes) {}

  void record(Direction direction, uint64_t session, std::string_view wire,
              std::span<const std::byte> message);
  // Records a one-sided operation: when it completes, or when it is posted if it is unsignalled.
  void record(Captured kind, uint64_t session, std::string_view wire, const CapturedOperation& operation,
              std::span<const std::byte> data);
  // Whole blocks, in order.
  std::vector<std::byte> take() { return std::exchange(blocks_, {}); }
  uint64_t packets() const { return packets_; }
  uint64_t dropped() const { return dropped_; }  // because `room_bytes` was full

 private:
  void append(CaptureHeader header, std::string_view wire, std::span<const std::byte> front,
              std::span<const std::byte> kept, size_t whole);

  const size_t snap_bytes_, room_bytes_;
  std::vector<std::byte> blocks_;
  uint64_t packets_ = 0, dropped_ = 0;
};

}  // namespace verbena::transport
