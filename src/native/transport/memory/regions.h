// The memory that a node exposes: regions that peers name by an unguessable key, and the sessions to which
// each is lent. A name alone gives nothing: resolving it binds a memory window to the link of the session
// that asks. Protected by the node's lock. May depend on transport/, verbs/ and util/ only.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/memory/registration.h"

namespace verbena::transport {

class Link;
class Session;

// The sessions that may use a region. Regions with one purpose share an audience.
class Audience {
 public:
  explicit Audience(bool of_everybody) : everybody_(of_everybody) {}

  bool admits(uint64_t session) const { return everybody_ || sessions_.contains(session); }
  void add(uint64_t session) { sessions_.insert(session); }
  void remove(uint64_t session) { sessions_.erase(session); }
  // Memory allocated for this audience is mapped by its members only.
  const std::shared_ptr<const MemoryGroup>& group() const { return group_; }

 private:
  const bool everybody_;
  std::unordered_set<uint64_t> sessions_;
  const std::shared_ptr<const MemoryGroup> group_ = std::make_shared<const MemoryGroup>();
};

class ExposedRegion {
 public:
  ExposedRegion(uint64_t unguessable, std::byte* data, size_t length, uint32_t peer_access,
                std::shared_ptr<const Audience> lent_to);

  const uint64_t key;
  const uint32_t access;  // of peers
  const std::shared_ptr<const Audience> audience;
  bool was_lent = false;  // a peer may still access it, even if no memory lease is left
  Registration memory;
};

// A region that a link may use: it ends with the link, or earlier.
struct MemoryLease {
  std::shared_ptr<MemoryWindow> window;
  const Audience* audience;
};

// What must end before the memory of a revoked region is reused.
struct RevokedRegion {
  // Waits until no peer accesses the memory. Without the node's lock: a peer that was stopped delays it.
  void finish();

  std::shared_ptr<ExposedRegion> region;
  std::vector<std::shared_ptr<Context>> contexts;
};

class RegionTable {
 public:
  std::shared_ptr<ExposedRegion> expose(std::byte* data, size_t length, uint32_t access,
                                        std::shared_ptr<const Audience> audience);
  // Its key is refused afterwards. The memory leases are ended by Node::revoke().
  std::shared_ptr<ExposedRegion> remove(uint64_t key);
  // Null: no region has this key, or it is not lent to this session.
  ExposedRegion* find(uint64_t key, const Session& session) const;
  size_t size() const { return regions_.size(); }

 private:
  std::unordered_map<uint64_t, std::shared_ptr<ExposedRegion>> regions_;
};

}  // namespace verbena::transport
