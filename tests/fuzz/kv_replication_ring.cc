// A replica's ring that a hostile primary writes, and the messages about it: a piece is read only as a whole,
// with its checksum and in its place; the position only rises and stays in the ring. A valid stream is
// read as it was written, once and in order.
#include <deque>

#include "fuzz.h"
#include "kv/replication/replication_layout.h"

using namespace verbena::kv;

namespace {

std::string_view view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Ring {
 public:
  Ring(size_t size, uint64_t ring_tag) : bytes_(size), ring_tag_(ring_tag) {}

  // Writes a piece as the primary does. `lies`: with a wrong length.
  void write(uint64_t position, const fuzz::Bytes& content, uint32_t lies) {
    const size_t at = position % bytes_.size();
    LogPiece piece{ring_tag_ + position, 0, static_cast<uint32_t>(content.size()), 0};
    piece.crc = piece_crc(piece, content.data());
    piece.length += lies;
    std::memcpy(bytes_.data() + at, &piece, sizeof piece);
    if (!content.empty()) std::memcpy(bytes_.data() + at + sizeof piece, content.data(), content.size());
  }
  void damage(size_t at, uint8_t value) { bytes_[at % bytes_.size()] = static_cast<std::byte>(value); }

  // Reads the next piece, as the replica does. False: there is none.
  bool read(std::string& content) {
    const uint64_t position = next_piece(expected_, bytes_.size());
    REQUIRE(position >= expected_ && bytes_.size() - position % bytes_.size() >= piece_bytes(1));
    const auto piece =
        read_piece(view(std::span(bytes_).subspan(position % bytes_.size())), ring_tag_, position, copy_);
    REQUIRE(copy_.size() <= bytes_.size());
    if (!piece) return false;
    REQUIRE(piece->ring_tag == ring_tag_ + position && piece->length > 0);
    REQUIRE(position % bytes_.size() + piece_bytes(piece->length) <= bytes_.size());
    REQUIRE(piece_crc(*piece, copy_.data()) == piece->crc);
    expected_ = position + piece_bytes(piece->length);
    content.assign(copy_, 0, piece->length);
    return true;
  }
  uint64_t expected() const { return expected_; }
  size_t size() const { return bytes_.size(); }

 private:
  fuzz::Bytes bytes_;  // of this size: sanitizers detect reads beyond it
  const uint64_t ring_tag_;
  uint64_t expected_ = 0;
  std::string copy_;
};

void read_message(const fuzz::Bytes& payload) {
  LogMessage header{};
  if (read_log_message(payload, header)) return;
  REQUIRE(header.flags <= (kPieceFollows | kWantsReceipt));
  const auto rest = std::span(payload).subspan(sizeof header);
  REQUIRE(rest.empty() == !(header.flags & kPieceFollows));
  if (rest.empty()) return;
  LogPiece piece;
  std::memcpy(&piece, rest.data(), sizeof piece);
  std::string copy;
  const auto found = read_piece(view(rest), piece.ring_tag, 0, copy);
  if (found) REQUIRE(piece_bytes(found->length) == rest.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const bool is_valid = (input.byte() & 1) == 0;
  Ring ring(usable_ring(64 + input.byte() * 4), input.number<uint64_t>());
  uint64_t written = 0;
  std::deque<std::string> sent;
  std::string content;
  while (!input.empty()) {
    const uint8_t action = input.byte();
    if (action < 0x60) {
      const uint64_t position = next_piece(written, ring.size());
      const size_t room = ring.size() - position % ring.size() - sizeof(LogPiece);
      fuzz::Bytes piece = input.take(std::min<size_t>(1 + action % 48, room));
      if (piece.empty()) break;
      const uint64_t end = position + piece_bytes(piece.size());
      if (end - ring.expected() > ring.size()) continue;  // the primary waits for a receipt
      ring.write(position, piece, is_valid ? 0 : input.number<uint32_t>());
      sent.emplace_back(view(piece));
      written = end;
    } else if (action < 0xa0) {
      if (!ring.read(content)) continue;
      if (!is_valid) continue;
      REQUIRE(!sent.empty() && sent.front() == content);
      sent.pop_front();
    } else if (action < 0xd0) {
      const uint16_t at = input.number<uint16_t>();
      if (!is_valid) ring.damage(at, input.byte());
    } else {
      read_message(input.take(action % 64));
    }
  }
  if (!is_valid) return 0;
  while (ring.read(content)) {
    REQUIRE(!sent.empty() && sent.front() == content);
    sent.pop_front();
  }
  REQUIRE(sent.empty());
  return 0;
}

SEED("a-valid-stream-wraps") {
  script.byte(0).byte(10).number(uint64_t{1} << 40);
  for (int i = 0; i < 12; ++i) script.byte(20).add("abcdefghijklmnopqrstu", 21).byte(0x60);
}

SEED("a-length-beyond-the-ring") {
  script.byte(1).byte(0).number(uint64_t{7}).byte(3).add("abcd", 4).number(uint32_t{60}).byte(0x60);
}

SEED("a-length-of-zero") {
  script.byte(1).byte(0).number(uint64_t{7}).byte(3).add("abcd", 4).number(uint32_t{0} - 4).byte(0x60);
}

SEED("damage-behind-the-header") {
  script.byte(1).byte(40).number(uint64_t{7}).byte(8).add("abcdefghi", 9).number(uint32_t{0});
  script.byte(0xa0).number(uint16_t{26}).byte('x').byte(0x60);
}

SEED("messages") {
  script.byte(1).byte(0).number(uint64_t{7});
  script.byte(0xd0 + 0).number(uint64_t{100}).number(kWantsReceipt).number(uint32_t{0});
  script.byte(0xd0 + 32).number(uint64_t{100}).number(kPieceFollows).number(uint32_t{0});
  script.number(uint64_t{7}).number(uint64_t{0}).number(uint32_t{8}).number(uint32_t{0}).add("abcdefgh", 8);
}
