#include "transport/memory/registration_cache.h"

#include <algorithm>
#include <utility>

namespace verbena::transport {
namespace {

auto same_memory(const std::byte* data, size_t length, uint32_t access) {
  return [=](const CachedRegistration& entry) {
    const Registration& memory = *entry.memory;
    return memory.data() == data && memory.length() == length && memory.access() == access;
  };
}

}  // namespace

CachedRegistration RegistrationCache::take(const std::byte* data, size_t length, uint32_t access) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), same_memory(data, length, access));
  if (found == kept_.end()) {
    ++misses_;
    return {};
  }
  ++hits_;
  bytes_ -= length;
  CachedRegistration entry = std::move(*found);
  kept_.erase(found);
  return entry;
}

RegistrationCache::Owners RegistrationCache::keep(CachedRegistration entry) {
  const Registration& memory = *entry.memory;
  const size_t length = memory.length();
  const auto twin =
      std::find_if(kept_.begin(), kept_.end(), same_memory(memory.data(), length, memory.access()));
  if (length > max_bytes_ || twin != kept_.end()) {
    entry.memory->close();
    closed_.push_back(std::move(entry.owner));
    return take_closed();
  }
  while (!kept_.empty() && bytes_ + length > max_bytes_) {
    remove(std::prev(kept_.end()));
    ++evictions_;
  }
  bytes_ += length;
  kept_.push_front(std::move(entry));
  return take_closed();
}

RegistrationCache::Owners RegistrationCache::sweep() {
  for (auto at = kept_.begin(); at != kept_.end();)
    at = at->owner->is_last_reference() ? remove(at) : std::next(at);
  return take_closed();
}

bool RegistrationCache::make_room() {
  if (kept_.empty()) return false;
  evictions_ += kept_.size();
  while (!kept_.empty()) remove(kept_.begin());
  return true;
}

RegistrationCache::Owners RegistrationCache::clear() {
  while (!kept_.empty()) remove(kept_.begin());
  return take_closed();
}

RegistrationCache::Position RegistrationCache::remove(Position at) {
  bytes_ -= at->memory->length();
  at->memory->close();
  closed_.push_back(std::move(at->owner));
  return kept_.erase(at);
}

}  // namespace verbena::transport
