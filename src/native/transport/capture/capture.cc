#include "transport/capture/capture.h"

#include <algorithm>
#include <cstring>

#include "transport/session/message_layout.h"
#include "util/clock.h"

namespace verbena::transport {
namespace {

// An Enhanced Packet Block of pcapng, up to the packet; its options and its length follow.
struct PacketBlock {
  uint32_t type = 6;
  uint32_t total_length = 0;
  uint32_t interface = 0;
  uint32_t time_high = 0, time_low = 0;  // since 1970, in the unit that the interface's block gives
  uint32_t captured_length = 0, original_length = 0;
};
static_assert(sizeof(PacketBlock) == 28);

struct PacketEnd {
  uint16_t flags_option = 2, flags_length = 4;
  uint32_t flags = 0;
  uint32_t end_of_options = 0;
  uint32_t total_length = 0;
};
static_assert(sizeof(PacketEnd) == 16);

}  // namespace

void Capture::record(Direction direction, uint64_t session, std::string_view wire,
                     std::span<const std::byte> message) {
  const CaptureHeader header{
      .direction = direction, .length = static_cast<uint32_t>(message.size()), .session = session};
  append(header, wire, {}, message.first(std::min(message.size(), snap_bytes_)), message.size());
}

void Capture::record(Captured kind, uint64_t session, std::string_view wire,
                     const CapturedOperation& operation, std::span<const std::byte> data) {
  // The bytes of a READ arrive at this side.
  const CaptureHeader header{.direction = kind == Captured::read ? Direction::received : Direction::sent,
                             .kind = kind,
                             .length = static_cast<uint32_t>(data.size()),
                             .session = session};
  // With snap_bytes for headers only, no data is kept.
  const size_t most = snap_bytes_ > sizeof(MessageHeader) ? kMaxData : 0;
  append(header, wire, std::as_bytes(std::span(&operation, 1)), data.first(std::min(data.size(), most)),
         data.size());
}

void Capture::append(CaptureHeader header, std::string_view wire, std::span<const std::byte> front,
                     std::span<const std::byte> kept, size_t whole) {
  ++packets_;
  const size_t captured = sizeof(CaptureHeader) + front.size() + kept.size();
  const size_t padding = -captured % 4;
  const size_t total = sizeof(PacketBlock) + captured + padding + sizeof(PacketEnd);
  if (blocks_.size() + total > room_bytes_) {
    ++dropped_;
    return;
  }
  wire.copy(header.wire, sizeof header.wire);
  const uint64_t now = unix_ns();
  const PacketBlock block{.total_length = static_cast<uint32_t>(total),
                          .time_high = static_cast<uint32_t>(now >> 32),
                          .time_low = static_cast<uint32_t>(now),
                          .captured_length = static_cast<uint32_t>(captured),
                          .original_length = static_cast<uint32_t>(sizeof header + front.size() + whole)};
  const PacketEnd end{.flags = header.direction == Direction::sent ? 2u : 1u,
                      .total_length = static_cast<uint32_t>(total)};

  const size_t at = blocks_.size();
  blocks_.resize(at + total);  // the padding is zero
  std::byte* to = blocks_.data() + at;
  const auto put = [&to](const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  put(&block, sizeof block);
  put(&header, sizeof header);
  if (!front.empty()) put(front.data(), front.size());
  if (!kept.empty()) put(kept.data(), kept.size());
  to += padding;
  put(&end, sizeof end);
}

}  // namespace verbena::transport
