// The memory that a node exposes: regions that peers address by an unguessable key. Protected by the node's
// lock.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/memory/registration.h"

namespace verbena::transport {

class Session;

class ExposedRegion {
 public:
  ExposedRegion(uint64_t unguessable, std::byte* data, size_t length, uint32_t access, uint64_t session)
      : key(unguessable), only_session(session), memory(data, length, access) {}

  const uint64_t key;
  const uint64_t only_session;  // 0: any
  Registration memory;
};

class RegionTable {
 public:
  std::shared_ptr<ExposedRegion> expose(std::byte* data, size_t length, uint32_t access,
                                        uint64_t only_session);
  // Afterwards its keys are refused, and no peer accesses the memory.
  void revoke(ExposedRegion& region);
  // Null: no region has this key, or it is not for this session.
  ExposedRegion* find(uint64_t key, const Session& session) const;
  size_t size() const { return regions_.size(); }

 private:
  std::unordered_map<uint64_t, std::shared_ptr<ExposedRegion>> regions_;
};

}  // namespace verbena::transport
