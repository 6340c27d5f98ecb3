// Registrations of programs' own buffers, kept for the next transfer of the same memory. An entry holds the
// memory's owner, so that nothing else can come to lie there while the entry is kept. The node's lock covers
// it; owners are handed out to be dropped without the lock, by a thread that may.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "transport/memory/registration.h"

namespace verbena::transport {

// Keeps a program's memory in place.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual bool is_alone() const = 0;  // the program has dropped the memory: it will not be used again
};

struct KeptRegistration {
  std::unique_ptr<MemoryOwner> owner;
  std::unique_ptr<Registration> memory;  // after its owner: it goes first
};

class RegistrationCache {
 public:
  using Owners = std::vector<std::unique_ptr<MemoryOwner>>;

  explicit RegistrationCache(size_t most_bytes) : most_bytes_(most_bytes) {}

  size_t most_bytes() const { return most_bytes_; }
  // Takes the entry of exactly this memory out; empty if there is none, or another transfer has it.
  KeptRegistration take(const std::byte* data, size_t length, uint32_t access);
  // Keeps it, and closes those unused longest until all fit. Drop the owners it returns.
  [[nodiscard]] Owners keep(KeptRegistration entry);
  // Closes what the program has dropped.
  [[nodiscard]] Owners sweep();
  // Closes everything: the wire cannot register any more. False: there was nothing.
  bool make_room();
  [[nodiscard]] Owners clear();

  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }
  uint64_t evictions() const { return evictions_; }
  size_t bytes() const { return bytes_; }
  size_t entries() const { return kept_.size(); }

 private:
  using Position = std::list<KeptRegistration>::iterator;
  Position remove(Position at);
  Owners take_closed() { return std::exchange(closed_, {}); }

  const size_t most_bytes_;
  std::list<KeptRegistration> kept_;  // the last used first
  Owners closed_;                     // of entries that are no more
  uint64_t hits_ = 0, misses_ = 0, evictions_ = 0;
  size_t bytes_ = 0;
};

}  // namespace verbena::transport
