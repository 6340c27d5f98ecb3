// The store's memory for one-sided reads: lends it to sessions whose users may read every key, and describes
// it to them.
#include <algorithm>
#include <utility>

#include "kv/frontends/session_frontend.h"
#include "kv/protocol/session_layout.h"

namespace verbena::kv {

namespace {

template <typename T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void SessionFrontend::add_region(uint64_t key) {
  const auto held = engine_.lock();
  regions_.push_back(key);
}

void SessionClient::set_reads_all_keys(bool may) {
  Client::set_reads_all_keys(may);
  if (!may && has_memory_lease) frontend.end_memory_lease(*this);
}

void SessionFrontend::end_memory_lease(SessionClient& client) {
  memory_leases_ -= std::exchange(client.has_memory_lease, false);
  const auto first = clients_.lower_bound({client.session, 0});
  const auto last = clients_.lower_bound({client.session + 1, 0});
  if (std::any_of(first, last, [](const auto& entry) { return entry.second->has_memory_lease; })) return;
  const auto held = node_->lock();
  node_->revoke(*audience_, client.session);
}

// One-sided reads bypass the checks of commands, so only clients that may read every key get a memory lease.
std::string SessionFrontend::layout(SessionClient& client) {
  std::string out;
  if (!client.reads_all_keys || engine_.slots)
    return out;  // in a cluster, one-sided reads would return stale values after a slot move
  if (!std::exchange(client.has_memory_lease, true)) ++memory_leases_, ++memory_leases_granted_;
  {
    const auto held = lock_node();
    audience_->add(client.session);
  }
  engine_.keyspace.expose();
  engine_.keyspace.database(client.database);  // creates it if it does not exist yet
  append(out, LayoutHeader{kLayoutVersion, engine_.keyspace.databases(),
                           static_cast<uint32_t>(regions_.size()), 0, engine_.keyspace.hash_key()});
  for (uint32_t i = 0; i < engine_.keyspace.databases(); ++i) {
    append(out, engine_.keyspace.exists(i) ? engine_.keyspace.database(i).index().root() : Location{0});
  }
  for (size_t i = 0; i < regions_.size(); ++i) {
    append(out, ChunkEntry{regions_[i], engine_.keyspace.arena().chunk(i).length});
  }
  return out;
}

}  // namespace verbena::kv
