#include "kv/store/keyspace.h"

#include <algorithm>

#include "kv/journal/log_record.h"
#include "kv/store/item.h"
#include "util/clock.h"
#include "util/random.h"

namespace verbena::kv {

Keyspace::Keyspace(uint32_t databases, Arena::ChunkAllocator allocate_chunk)
    : arena_(std::move(allocate_chunk)),
      hash_key_(random_value<HashKey>()),
      random_state_(random_value<uint64_t>() | 1),
      databases_(databases) {}

Database& Keyspace::open(uint32_t number) {
  databases_[number] = std::make_unique<Database>(*this, number);
  return *databases_[number];
}

void Keyspace::swap(uint32_t one, uint32_t other) {
  if (one == other) return;
  database(one), database(other);
  for (const uint32_t number : {one, other}) mark_all_watchers_dirty(number);
  std::swap(databases_[one], databases_[other]);
  std::swap(databases_[one]->root_, databases_[other]->root_);
  for (const uint32_t number : {one, other}) {
    Database& database = *databases_[number];
    database.number_ = number;
    database.index_->set_owner(static_cast<uint8_t>(number));
    database.index_->set_root(database.root_);
  }
}

void Keyspace::count_slots() {
  if (std::exchange(counts_slots_, true)) return;
  for (const auto& database : databases_) {
    if (!database) continue;
    database->slot_sizes_.assign(kSlotCount, 0);
    uint64_t cursor = 0;
    do {
      cursor =
          database->scan(cursor, 1024, [&](Entry entry) { ++database->slot_sizes_[key_slot(entry.key())]; });
    } while (cursor != 0);
  }
}

void Keyspace::watch(uint32_t database, std::string_view key, uint64_t client) {
  auto& clients = watched_[std::to_string(database).append(" ").append(key)];
  if (std::find(clients.begin(), clients.end(), client) == clients.end()) clients.push_back(client);
}

void Keyspace::unwatch(uint64_t client) {
  for (auto at = watched_.begin(); at != watched_.end();) {
    std::erase(at->second, client);
    at = at->second.empty() ? watched_.erase(at) : std::next(at);
  }
}

void Keyspace::mark_watchers_dirty(uint32_t database, std::string_view key) {
  const auto found = watched_.find(std::to_string(database).append(" ").append(key));
  if (found == watched_.end()) return;
  dirty_watchers_.insert(dirty_watchers_.end(), found->second.begin(), found->second.end());
  watched_.erase(found);
}

void Keyspace::report_removal(Database& database, std::string_view key, char kind, const char* event) {
  const std::string_view effect[] = {"DEL", key};
  log(database.number(), effect);
  const uint64_t running = std::exchange(current_client, 0);
  changed(database, key);
  current_client = running;
  if (on_removed) on_removed(database.number(), kind, event, key);
}

uint64_t Keyspace::observe(Observer observer) {
  observers_.emplace_back(++last_observer_, std::move(observer));
  return last_observer_;
}

void Keyspace::mark_all_watchers_dirty(uint32_t database) {
  notify_observers(database, std::nullopt);
  const std::string prefix = std::to_string(database) + " ";
  for (auto at = watched_.begin(); at != watched_.end();) {
    if (!at->first.starts_with(prefix)) {
      ++at;
      continue;
    }
    dirty_watchers_.insert(dirty_watchers_.end(), at->second.begin(), at->second.end());
    at = watched_.erase(at);
  }
}

void Keyspace::retire(Location location, size_t bytes) {
  if (!is_copy_on_write()) return arena_.free(location, bytes);
  retired_.push_back({location, bytes, verbena::now_ns()});
  ++retired_blocks_;
  retired_bytes_ += Arena::block_bytes(bytes);
}

std::shared_ptr<Keyspace::Hold> Keyspace::hold() { return holds_.emplace_back(std::make_shared<Hold>()); }

void Keyspace::release(ItemHeader* item, Location location) {
  if (item->type != Type::string) {
    const ObjectRef held = Entry(item, nullptr).held();
    object_bytes_ -= held.bytes;
    released_.push_back(held.object);
  }
  const size_t bytes = item_bytes(*item);
  if (exposed_) {
    // A remote reader that still follows the old slot finds a wrong checksum, and reads again.
    std::atomic_ref(item->checksum).store(~item->checksum, std::memory_order_release);
  }
  retire(location, bytes);
}

void Keyspace::reclaim(uint64_t now, uint64_t deadline_ns) {
  std::erase_if(holds_, [](const auto& hold) { return hold.use_count() == 1; });
  const uint64_t kept = held_from();
  for (size_t done = 0; !retired_.empty() && retired_.front().at_ns + kGraceNs <= now; ++done) {
    if (retired_blocks_ - retired_.size() >= kept) break;
    if (done % 64 == 63 && verbena::now_ns() > deadline_ns) return;
    arena_.free(retired_.front().location, retired_.front().bytes);
    retired_bytes_ -= Arena::block_bytes(retired_.front().bytes);
    retired_.pop_front();
  }
  while (!lazy_free_.empty() && verbena::now_ns() < deadline_ns) {
    LazyFreeIndex& pending = lazy_free_.front();
    Index& index = *pending.index;
    pending.cursor = index.scan(pending.cursor, 64, [&](uint64_t* slot) {
      const Location location = location_of(*slot);
      index.erase(slot);
      release(reinterpret_cast<ItemHeader*>(arena_.at(location)), location);
    });
    if (pending.cursor == 0) lazy_free_.pop_front();
  }
}

uint64_t Keyspace::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

}  // namespace verbena::kv
