#include "kv/store/keyspace.h"

#include <algorithm>

#include "kv/journal/log_record.h"
#include "kv/store/item.h"
#include "util/clock.h"
#include "util/fatal.h"
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

uint16_t Keyspace::next_index_id() {
  const auto is_used = [&](uint16_t id) {
    const auto is_of = [&](const auto& database) { return database && database->index_->id() == id; };
    const auto is_freed = [&](const LazyFreeIndex& pending) { return pending.index->id() == id; };
    return std::any_of(databases_.begin(), databases_.end(), is_of) ||
           std::any_of(lazy_free_.begin(), lazy_free_.end(), is_freed);
  };
  do ++last_index_id_;
  while (last_index_id_ == 0 || is_used(last_index_id_));
  return last_index_id_;
}

void Keyspace::swap(uint32_t one, uint32_t other) {
  if (one == other) return;
  mark_all_watchers_dirty(one, &database(other));
  mark_all_watchers_dirty(other, &database(one));
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

void Keyspace::log(uint32_t database, Arguments effect) noexcept {
  if (!journal_) return;
  or_end_process("logging a change", [&] { journal_->append(database, effect); });
}

void Keyspace::report_change(Database& database, std::string_view key) noexcept {
  or_end_process("reporting a change", [&] { announce(database, key); });
}

void Keyspace::announce(Database& database, std::string_view key) {
  if (!watched_.empty()) mark_watchers_dirty(database.number(), key);
  if (!observers_.empty()) notify_observers(database.number(), key);
}

void Keyspace::reserve_log(Arguments effect) { journal_->reserve(record_bytes(effect)); }

void Keyspace::reserve_releases(size_t count) {
  const auto reserve = [count](auto& list) {
    if (list.capacity() - list.size() < count)
      list.reserve(std::max(list.size() + count, 2 * list.capacity()));
  };
  reserve(released_);
  if (is_copy_on_write()) reserve(retired_);
}

void Keyspace::mark_watchers_dirty(uint32_t database, std::string_view key) {
  const auto found = watched_.find(std::to_string(database).append(" ").append(key));
  if (found == watched_.end()) return;
  dirty_watchers_.insert(dirty_watchers_.end(), found->second.begin(), found->second.end());
  watched_.erase(found);
}

void Keyspace::remove(Database& database, Entry entry, char kind, const char* event) {
  const std::string key(entry.key());
  const std::string_view effect[] = {"DEL", key};
  const uint64_t running = std::exchange(current_client, 0);
  try {
    prepare(database, key, effect);
  } catch (...) {
    current_client = running;
    throw;
  }
  current_client = running;
  database.erase(entry);
  ++(kind == 'x' ? counters.expired : counters.evicted);
  record(database.number(), effect);
  if (on_removed) on_removed(database.number(), kind, event, key);
}

uint64_t Keyspace::observe(Observer observer) {
  observers_.emplace_back(++last_observer_, std::move(observer));
  return last_observer_;
}

void Keyspace::mark_all_watchers_dirty(uint32_t number, const Database* replacement) {
  notify_observers(number, std::nullopt);
  const std::string prefix = std::to_string(number) + " ";
  const Database& database = this->database(number);
  const auto changes = [&](std::string_view watched) {
    if (!watched.starts_with(prefix)) return false;
    const std::string_view key = watched.substr(prefix.size());
    return database.contains(key) || (replacement && replacement->contains(key));
  };
  for (auto at = watched_.begin(); at != watched_.end();) {
    if (!changes(at->first)) {
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
  reserve_releases(1);
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

// Removes the records of freed blocks when they are at least half of all.
void Keyspace::drop_freed() noexcept {
  if (freed_blocks_ < 64 || 2 * freed_blocks_ < retired_.size()) return;
  retired_.erase(retired_.begin(), retired_.begin() + static_cast<std::ptrdiff_t>(freed_blocks_));
  freed_blocks_ = 0;
}

void Keyspace::reclaim(uint64_t now, uint64_t deadline_ns) {
  std::erase_if(holds_, [](const auto& hold) { return hold.use_count() == 1; });
  const uint64_t kept = held_from();
  for (size_t done = 0; waiting_blocks() > 0; ++done) {
    const Retired& next = retired_[freed_blocks_];
    if (next.at_ns + kGraceNs > now || retired_blocks_ - waiting_blocks() >= kept) break;
    if (done % 64 == 63 && verbena::now_ns() > deadline_ns) return drop_freed();
    arena_.free(next.location, next.bytes);
    retired_bytes_ -= Arena::block_bytes(next.bytes);
    ++freed_blocks_;
  }
  drop_freed();
  while (!lazy_free_.empty() && verbena::now_ns() < deadline_ns) {
    LazyFreeIndex& pending = lazy_free_.front();
    Index& index = *pending.index;
    pending.cursor = index.scan(pending.cursor, 64, [&](uint64_t* slot) {
      const Location location = location_of(*slot);
      release(reinterpret_cast<ItemHeader*>(arena_.at(location)), location);
      index.erase(slot);
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
