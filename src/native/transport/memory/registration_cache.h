// Registrations of user buffers, kept for the next transfer of the same memory. An entry holds the memory's
// owner, so that the addresses cannot be reused while the entry exists. Protected by the node's lock. Removed
// owners are returned, to be dropped without the lock by a thread that holds the GIL.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "transport/memory/registration.h"

namespace verbena::transport {

// Keeps user memory alive and in place.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual bool is_last_reference() const = 0;  // no other reference exists: the memory will not be used again
};

struct CachedRegistration {
  std::unique_ptr<MemoryOwner> owner;
  std::unique_ptr<Registration> memory;  // declared after its owner: destroyed first
};

class RegistrationCache {
 public:
  using Owners = std::vector<std::unique_ptr<MemoryOwner>>;

  explicit RegistrationCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  size_t max_bytes() const { return max_bytes_; }
  // Removes and returns the entry of exactly this memory. Empty: there is none, or another transfer has it.
  CachedRegistration take(const std::byte* data, size_t length, uint32_t access);
  // Adds an entry and closes the least recently used ones until all fit. The caller drops the returned
  // owners.
  [[nodiscard]] Owners keep(CachedRegistration entry);
  // Closes entries whose memory has no other owner.
  [[nodiscard]] Owners sweep();
  // Closes all entries, because the wire cannot register more. False: there were none.
  bool make_room();
  [[nodiscard]] Owners clear();

  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }
  uint64_t evictions() const { return evictions_; }
  size_t bytes() const { return bytes_; }
  size_t entries() const { return kept_.size(); }

 private:
  using Position = std::list<CachedRegistration>::iterator;
  Position remove(Position at);
  Owners take_closed() { return std::exchange(closed_, {}); }

  const size_t max_bytes_;
  std::list<CachedRegistration> kept_;  // most recently used first
  Owners closed_;                       // of removed entries
  uint64_t hits_ = 0, misses_ = 0, evictions_ = 0;
  size_t bytes_ = 0;
};

}  // namespace verbena::transport
