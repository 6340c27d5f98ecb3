// What every test of an engine needs: memory for its items, and a client that nobody has to wake.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "kv/engine/client.h"
#include "kv/store/arena.h"

namespace engines {

inline verbena::kv::ChunkMemory heap(size_t bytes) {
  const auto memory = std::shared_ptr<std::byte>(
      static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), std::free);
  std::memset(memory.get(), 0, bytes);
  return {memory.get(), bytes, memory};
}

class QuietClient : public verbena::kv::Client {
 public:
  using Client::Client;
  void queue_write() override {}
};

}  // namespace engines
