// ByteQueue: bytes between a stream and its connection, in blocks that do not move, because sent bytes must
// stay in place until the peer has confirmed them. Blocks come from a pool that the connections of a context
// share.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace verbena::quic {

class BlockPool {
 public:
  static constexpr size_t kBlockBytes = 64 * 1024;
  using Block = std::unique_ptr<std::byte[]>;

  Block take() {
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
    Block block = std::move(free_.back());
    free_.pop_back();
    return block;
  }
  void give(Block block) {
    if (free_.size() < kMaxFreeBlocks) free_.push_back(std::move(block));
  }

 private:
  static constexpr size_t kMaxFreeBlocks = 64;  // 4 MiB
  std::vector<Block> free_;
};

class ByteQueue {
 public:
  explicit ByteQueue(BlockPool& pool) : pool_(&pool) {}
  ~ByteQueue() { clear(); }
  ByteQueue(const ByteQueue&) = delete;
  ByteQueue& operator=(const ByteQueue&) = delete;

  size_t size() const { return size_; }
  void clear() {
    while (!blocks_.empty()) drop_first();
    size_ = begin_ = end_ = 0;
  }

  void append(const std::byte* from, size_t n) {
    size_ += n;
    while (n > 0) {
      if (blocks_.empty() || end_ == BlockPool::kBlockBytes) {
        blocks_.push_back(pool_->take());
        end_ = 0;
      }
      const size_t part = std::min(n, BlockPool::kBlockBytes - end_);
      std::memcpy(blocks_.back().get() + end_, from, part);
      end_ += part;
      from += part;
      n -= part;
    }
  }

  // The bytes behind the first `skip`, as at most out.size() pieces. Returns their number.
  size_t pieces(size_t skip, std::span<iovec> out) const {
    size_t count = 0;
    size_t at = begin_ + skip;
    for (size_t i = at / BlockPool::kBlockBytes; i < blocks_.size() && count < out.size(); ++i, at = 0) {
      const size_t from = count == 0 ? at % BlockPool::kBlockBytes : 0;
      const size_t to = i + 1 == blocks_.size() ? end_ : BlockPool::kBlockBytes;
      if (to <= from) break;
      out[count++] = {blocks_[i].get() + from, to - from};
    }
    return count;
  }

  void consume(size_t n) {
    size_ -= n;
    begin_ += n;
    while (begin_ >= BlockPool::kBlockBytes) {
      drop_first();
      begin_ -= BlockPool::kBlockBytes;
    }
    if (size_ == 0) clear();  // an idle stream holds no block
  }

  // Moves bytes out and returns their number.
  size_t take(std::span<const iovec> room) {
    size_t total = 0;
    for (const iovec& piece : room) {
      size_t done = 0;
      while (done < piece.iov_len && size_ > 0) {
        iovec next;
        pieces(0, {&next, 1});
        const size_t n = std::min(piece.iov_len - done, next.iov_len);
        std::memcpy(static_cast<std::byte*>(piece.iov_base) + done, next.iov_base, n);
        done += n;
        consume(n);
      }
      total += done;
      if (done < piece.iov_len) break;
    }
    return total;
  }

 private:
  void drop_first() {
    pool_->give(std::move(blocks_.front()));
    blocks_.pop_front();
  }

  BlockPool* const pool_;
  std::deque<BlockPool::Block> blocks_;
  size_t size_ = 0, begin_ = 0, end_ = 0;  // begin_: in the first block; end_: in the last
};

}  // namespace verbena::quic
