// Session messages as pcapng blocks, for a file that Wireshark opens: link type USER0, one packet per
// message, each behind a small header of ours. The node's lock covers it; whoever writes the file takes what
// there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::transport {

enum class Direction : uint8_t { sent = 0, received = 1 };

// In front of each message. Little-endian, like the message.
struct CaptureHeader {
  uint8_t version = 1;
  Direction direction = Direction::sent;
  uint16_t unused = 0;
  uint32_t length = 0;  // of the whole message, whatever was kept of it
  uint64_t session = 0;
  char wire[8] = {};  // its name, filled up with zeros
};
static_assert(sizeof(CaptureHeader) == 24);

class Capture {
 public:
  // Keeps `snap_bytes` of each message, and `room_bytes` until they are taken.
  Capture(size_t snap_bytes, size_t room_bytes) : snap_bytes_(snap_bytes), room_bytes_(room_bytes) {}

  void record(Direction direction, uint64_t session, std::string_view wire,
              std::span<const std::byte> message);
  // Whole blocks, in order.
  std::vector<std::byte> take() { return std::exchange(blocks_, {}); }
  uint64_t packets() const { return packets_; }
  uint64_t dropped() const { return dropped_; }  // for want of room

 private:
  const size_t snap_bytes_, room_bytes_;
  std::vector<std::byte> blocks_;
  uint64_t packets_ = 0, dropped_ = 0;
};

}  // namespace verbena::transport
