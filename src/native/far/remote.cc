#include "far/remote.h"

#include <algorithm>
#include <vector>

namespace verbena::far {
namespace {

constexpr uint64_t kMaxRequestBytes = 256u << 10;

}  // namespace

bool Remote::is_local() const {
  const auto held = node_->lock();
  const transport::Link* link = session_->link();
  return link && link->port().name() == "shm";
}

Result Remote::run(Opcode opcode, std::span<const Piece> pieces, transport::Registration& memory,
                   const Limits& limits) {
  std::vector<transport::GatherPiece> requests;
  requests.reserve(pieces.size());
  uint64_t bytes = 0, count = 0, end = 0;
  const std::byte* local_end = nullptr;
  for (const Piece& piece : pieces) {
    // Adjacent on both sides: one request.
    const bool continues = count > 0 && piece.offset == end && piece.data == local_end;
    if (!continues && piece.length > 0) ++count;
    for (uint64_t done = 0; done < piece.length;) {
      transport::GatherPiece* last = requests.empty() ? nullptr : &requests.back();
      const bool joins = (continues || done > 0) && last && last->length < kMaxRequestBytes;
      const uint64_t room = kMaxRequestBytes - (joins ? last->length : 0);
      const auto some = static_cast<uint32_t>(std::min(room, piece.length - done));
      if (joins) {
        last->length += some;
      } else {
        requests.push_back({region_, offset_ + piece.offset + done, piece.data + done, some});
      }
      done += some;
    }
    bytes += piece.length;
    end = piece.offset + piece.length;
    local_end = piece.data + piece.length;
  }
  if (requests.empty()) return {};
  (opcode == Opcode::read ? reads : writes).fetch_add(count, std::memory_order_relaxed);
  (opcode == Opcode::read ? read_bytes : write_bytes).fetch_add(bytes, std::memory_order_relaxed);
  const transport::BatchRequest request{
      .opcode = opcode,
      .pieces = requests.size(),
      .fill =
          [&requests](uint64_t first, std::span<transport::GatherPiece> out) {
            std::copy_n(requests.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
          },
      .deadline_ns = limits.deadline_ns};
  uint64_t done = 0;
  return transport::run_batch(*node_, *session_, request, memory, done, limits.keep_going);
}

}  // namespace verbena::far
