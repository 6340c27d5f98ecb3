// The bytes of a far.Array: the remote ones, through a cache if there is one. Thread-safe.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <memory>

#include "far/block_cache.h"

namespace verbena::far {

class ArrayMemory {
 public:
  ArrayMemory(std::shared_ptr<transport::Node> node, std::shared_ptr<transport::Session> session,
              uint64_t region, uint64_t offset, const CacheOptions& cache)
      : remote_(std::move(node), std::move(session), region, offset) {
    if (cache.cache_bytes > 0) cache_ = std::make_unique<BlockCache>(remote_, cache);
  }

  Result read(std::span<const Piece> pieces, transport::Registration& memory, const Limits& limits) {
    return cache_ ? cache_->read(pieces, memory, limits) : remote_.read(pieces, memory, limits);
  }
  Result write(std::span<const Piece> pieces, transport::Registration& memory, const Limits& limits) {
    return cache_ ? cache_->write(pieces, memory, limits) : remote_.write(pieces, memory, limits);
  }

  Remote& remote() { return remote_; }
  BlockCache* cache() const { return cache_.get(); }  // null: there is none

 private:
  Remote remote_;
  std::unique_ptr<BlockCache> cache_;
};

}  // namespace verbena::far
