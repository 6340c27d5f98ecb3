// ByteQueue: order across block borders, and bytes that stay in place until they are consumed.
#include <algorithm>
#include <random>
#include <vector>

#include "check.h"
#include "providers/quic/byte_queue.h"

using namespace verbena::quic;

namespace {

constexpr size_t kBlock = BlockPool::kBlockBytes;

std::vector<std::byte> numbered(size_t first, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((first + i) * 31 % 251);
  return bytes;
}

std::vector<std::byte> gathered(const ByteQueue& queue, size_t skip, size_t most) {
  std::vector<iovec> pieces(most);
  pieces.resize(queue.pieces(skip, pieces));
  std::vector<std::byte> bytes;
  for (const iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  return bytes;
}

}  // namespace

TEST("bytes come out in order for every size of append and consume") {
  BlockPool pool;
  ByteQueue queue(pool);
  std::mt19937 chance(5);
  size_t in = 0, out = 0;
  for (int step = 0; step < 3000; ++step) {
    const size_t n = chance() % (chance() % 8 == 0 ? 3 * kBlock : 2000);
    queue.append(numbered(in, n).data(), n);
    in += n;
    CHECK(queue.size() == in - out);
    std::vector<std::byte> room(chance() % (chance() % 8 == 0 ? 4 * kBlock : 2000));
    const size_t half = room.size() / 2;
    const iovec pieces[] = {{room.data(), half}, {room.data() + half, room.size() - half}};
    const size_t expected = std::min(room.size(), queue.size());
    CHECK(queue.take(pieces) == expected);
    room.resize(expected);
    CHECK(room == numbered(out, expected));
    out += expected;
  }
}

TEST("sent bytes stay in place until they are consumed") {
  BlockPool pool;
  ByteQueue queue(pool);
  queue.append(numbered(0, 3 * kBlock + 10).data(), 3 * kBlock + 10);
  iovec first;
  CHECK(queue.pieces(100, {&first, 1}) == 1);
  queue.append(numbered(3 * kBlock + 10, 500).data(), 500);
  iovec again;
  CHECK(queue.pieces(100, {&again, 1}) == 1);
  CHECK(first.iov_base == again.iov_base);
  for (const size_t skip :
       {size_t{0}, size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 3 * kBlock + 509}) {
    CHECK(gathered(queue, skip, 8) == numbered(skip, 3 * kBlock + 510 - skip));
  }
  CHECK(gathered(queue, 3 * kBlock + 510, 8).empty());
  queue.consume(kBlock + 7);
  CHECK(gathered(queue, 5, 8) == numbered(kBlock + 12, 2 * kBlock + 510 - 12));
  queue.consume(queue.size());
  CHECK(queue.size() == 0 && gathered(queue, 0, 8).empty());
  queue.append(numbered(9, 9).data(), 9);
  CHECK(gathered(queue, 0, 8) == numbered(9, 9));
}

TEST("blocks are consumed and filled to the byte") {
  BlockPool pool;
  ByteQueue queue(pool);
  queue.append(numbered(0, 2 * kBlock).data(), 2 * kBlock);
  queue.consume(kBlock);
  CHECK(gathered(queue, 0, 8) == numbered(kBlock, kBlock));
  queue.append(numbered(2 * kBlock, 1).data(), 1);
  CHECK(gathered(queue, kBlock, 8) == numbered(2 * kBlock, 1));
  queue.clear();
  CHECK(queue.size() == 0);
}

RUN_TESTS()
