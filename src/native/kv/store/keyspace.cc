#include "kv/store/keyspace.h"

#include <algorithm>
#include <cstring>

#include "kv/journal/log_record.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"
#include "util/random.h"

namespace verbena::kv {

namespace {

size_t item_bytes(const ItemHeader& item) { return sizeof item + item.key_bytes + item.value_bytes; }

void put_checksum(ItemHeader& item) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&item);
  item.sealed = 1;
  item.checksum = crc32c(0, bytes + kChecked, item_bytes(item) - kChecked);
}

constexpr bool is_volatile(Eviction policy) {
  return policy == Eviction::volatile_lru || policy == Eviction::volatile_lfu ||
         policy == Eviction::volatile_random || policy == Eviction::volatile_ttl;
}
constexpr bool counts_frequency(Eviction policy) {
  return policy == Eviction::all_lfu || policy == Eviction::volatile_lfu;
}

}  // namespace

size_t Entry::memory_bytes() const {
  return Arena::block_bytes(item_bytes(*item_)) + sizeof(uint64_t) * 2 +
         (type() == Type::string ? 0 : object_bytes());
}

Database::Database(Keyspace& keyspace, uint32_t number)
    : keyspace_(keyspace),
      number_(number),
      root_(keyspace.arena_.allocate(sizeof(IndexRoot))),
      index_(new_index()),
      slot_sizes_(keyspace.counts_slots_ ? kSlotCount : 0) {}

Database::~Database() = default;

std::unique_ptr<Index> Database::new_index() {
  Keyspace& keyspace = keyspace_;
  return std::make_unique<Index>(
      keyspace.arena_, root_, static_cast<uint8_t>(number_),
      [&keyspace](Location location, size_t bytes) { keyspace.retire(location, bytes); });
}

uint64_t Database::hash(std::string_view key) const { return keyspace_.hash(key); }

Entry Database::at(uint64_t* slot) const {
  return {reinterpret_cast<ItemHeader*>(keyspace_.arena_.at(location_of(*slot))), slot};
}

Entry Database::find(std::string_view key, bool use) {
  // The hint may belong to another key: then it is only a wrong guess.
  uint64_t* slot = index_->find(hash(key), key, keyspace_.prefetched_place_);
  if (slot == nullptr) {
    keyspace_.counters.misses += use;
    return {};
  }
  Entry entry = at(slot);
  if (entry.item_->expires_ms != 0 && entry.item_->expires_ms <= keyspace_.now_ms_) [[unlikely]] {
    if (keyspace_.keeps_expired) {
      keyspace_.counters.misses += use;
      return {};
    }
    const std::string name(key);
    erase(entry);
    ++keyspace_.counters.expired;
    keyspace_.report_removal(*this, name, 'x', "expired");
    keyspace_.counters.misses += use;
    return {};
  }
  if (use) {
    ++keyspace_.counters.hits;
    if (keyspace_.updates_recency) entry.item_->recency = keyspace_.next_recency(entry.item_->recency);
  }
  return entry;
}

Entry Database::set(Entry existing, std::string_view key, std::string_view value, uint64_t expires_ms) {
  return store(existing, key, value, value.size(), Type::string, expires_ms);
}

Entry Database::adopt(Entry existing, std::string_view key, Location block, size_t value_bytes) {
  return store(existing, key, {}, value_bytes, Type::string, 0, block);
}

Entry Database::set_object(Entry existing, std::string_view key, Type type, ObjectRef object,
                           uint64_t expires_ms) {
  char bytes[sizeof object];
  std::memcpy(bytes, &object, sizeof object);
  const Entry stored = store(existing, key, {bytes, sizeof bytes}, sizeof bytes, type, expires_ms);
  keyspace_.object_bytes_ += object.bytes;
  return stored;
}

void Database::count_object(Entry& existing, uint64_t bytes) {
  ObjectRef held = existing.held();
  if (held.bytes == bytes) return;
  keyspace_.object_bytes_ += bytes - held.bytes;
  held.bytes = bytes;
  existing.item_->sealed = 0;  // remote readers send a command for objects anyway
  std::memcpy(existing.bytes() + existing.item_->key_bytes, &held, sizeof held);
}

Entry Database::resize(Entry existing, std::string_view key, size_t bytes) {
  const std::string_view old = existing ? existing.value() : std::string_view();
  return store(existing, key, old.substr(0, bytes), bytes, Type::string,
               existing ? existing.expires_ms() : 0);
}

Entry Database::store(Entry existing, std::string_view key, std::string_view value, size_t value_bytes,
                      Type type, uint64_t expires_ms, Location filled) {
  const uint64_t hashed =
      existing ? uint64_t{tag_of(*existing.slot_)} << 48 | existing.item_->hash : hash(key);
  const size_t total = sizeof(ItemHeader) + key.size() + value_bytes;
  const uint64_t before_ms = existing ? existing.expires_ms() : 0;
  const uint16_t before_due = existing ? existing.item_->due : uint16_t{0};
  ItemHeader* item = existing.item_;
  const bool in_place =
      item != nullptr && filled == 0 && !keyspace_.is_copy_on_write() && item->type == Type::string &&
      type == Type::string &&
      (item_bytes(*item) == total || Arena::block_bytes(item_bytes(*item)) == Arena::block_bytes(total));
  if (in_place) {
    item->value_bytes = static_cast<uint32_t>(value_bytes);
    item->sealed = 0;
    char* to = existing.bytes() + key.size();
    if (value.data() != to && !value.empty()) std::memmove(to, value.data(), value.size());
    if (value_bytes > value.size()) std::memset(to + value.size(), 0, value_bytes - value.size());
  } else {
    const Location location = filled != 0 ? filled : keyspace_.arena_.allocate(total);
    item = reinterpret_cast<ItemHeader*>(keyspace_.arena_.at(location));
    *item = {.checksum = 0,
             .recency = keyspace_.next_recency(existing ? existing.recency() : 0),
             .key_bytes = static_cast<uint32_t>(key.size()),
             .value_bytes = static_cast<uint32_t>(value_bytes),
             .expires_ms = expires_ms,
             .hash = static_cast<uint32_t>(hashed),
             .type = type,
             .sealed = 0,
             .due = 0};
    schedule_expiry(*item, hashed, before_ms, before_due);
    char* to = reinterpret_cast<char*>(item + 1);
    std::memcpy(to, key.data(), key.size());
    if (filled == 0) {
      if (!value.empty()) std::memcpy(to + key.size(), value.data(), value.size());
      std::memset(to + key.size() + value.size(), 0, value_bytes - value.size());
    }
    if (keyspace_.exposed_ && total <= Keyspace::kAlwaysSealed) put_checksum(*item);
    if (existing) {
      const Location old = location_of(*existing.slot_);
      Index::replace(existing.slot_, hashed, location);
      keyspace_.release(existing.item_, old);
    } else {
      existing.slot_ = index_->insert(hashed, location);
      if (!slot_sizes_.empty()) ++slot_sizes_[key_slot(key)];
    }
  }
  if (in_place) {
    item->expires_ms = expires_ms;
    schedule_expiry(*item, hashed, before_ms, before_due);
  }
  volatile_ += (expires_ms != 0) - (before_ms != 0);
  return {item, existing.slot_};
}

char* Database::writable(Entry& existing) {
  if (keyspace_.is_copy_on_write()) {
    const std::string key(existing.key());
    existing = resize(existing, key, existing.value().size());
  }
  existing.item_->sealed = 0;
  return existing.bytes() + existing.item_->key_bytes;
}

void Database::seal(Entry& existing) {
  if (keyspace_.exposed_) put_checksum(*existing.item_);
}

void Database::set_expires(Entry& existing, uint64_t expires_ms) {
  const uint64_t before = existing.expires_ms();
  if (keyspace_.exposed_) {
    const std::string key(existing.key());
    if (existing.type() == Type::string) {
      existing = store(existing, key, existing.value(), existing.value().size(), Type::string, expires_ms);
      return;
    }
    existing.item_->sealed = 0;  // remote readers send a command for objects anyway
  }
  existing.item_->expires_ms = expires_ms;
  existing.item_->sealed = 0;
  volatile_ += (expires_ms != 0) - (before != 0);
  const uint64_t hashed = uint64_t{tag_of(*existing.slot_)} << 48 | existing.item_->hash;
  schedule_expiry(*existing.item_, hashed, before, existing.item_->due);
}

void Database::erase(Entry existing) {
  const Location location = location_of(*existing.slot_);
  volatile_ -= existing.expires_ms() != 0;
  if (!slot_sizes_.empty()) --slot_sizes_[key_slot(existing.key())];
  index_->erase(existing.slot_);
  keyspace_.release(existing.item_, location);
}

void Database::clear() {
  if (keyspace_.exposed_) index_->set_owner(kNoOwner);
  keyspace_.lazy_free(std::exchange(index_, new_index()));
  volatile_ = 0;
  std::fill(slot_sizes_.begin(), slot_sizes_.end(), 0);
  due_.clear();
  due_entries_ = 0;
}

// A key that already has an earlier entry keeps it: expire_due() finds it there and moves it to its new time.
void Database::schedule_expiry(ItemHeader& item, uint64_t hashed, uint64_t before_ms, uint16_t before_due) {
  item.due = before_due;
  if (item.expires_ms == 0 || (before_ms != 0 && item.expires_ms >= before_ms)) return;
  const uint64_t second = item.expires_ms / 1000;
  item.due = static_cast<uint16_t>(second);
  due_[second].push_back(hashed);
  ++due_entries_;
}

// Removes entries of keys that no longer exist or have another expiry, in slices, when most entries may be
// such.
void Database::compact_due(uint64_t deadline_ns) {
  constexpr size_t kFrom = 4096, kSlice = 1024;
  while (due_entries_ > 2 * volatile_ + kFrom && verbena::now_ns() < deadline_ns) {
    const auto at = due_.lower_bound(compact_second_);
    if (at == due_.end()) {
      compact_second_ = compact_done_ = 0;
      return;
    }
    if (at->first != compact_second_) compact_done_ = 0;
    compact_second_ = at->first;
    std::vector<uint64_t>& hashes = at->second;
    const size_t start = std::min(compact_done_, hashes.size()),
                 stop = std::min(start + kSlice, hashes.size());
    const auto first = hashes.begin() + static_cast<std::ptrdiff_t>(start);
    const auto last = hashes.begin() + static_cast<std::ptrdiff_t>(stop);
    std::sort(first, last);
    auto kept = std::unique(first, last);
    kept = std::remove_if(first, kept, [&](uint64_t hashed) {
      bool is_its = false;
      index_->each_like(hashed, [&](uint64_t* slot) {
        const ItemHeader& item = *this->at(slot).item_;
        is_its |= item.hash == static_cast<uint32_t>(hashed) && item.expires_ms != 0 &&
                  item.due == static_cast<uint16_t>(compact_second_);
      });
      return !is_its;
    });
    // Entries from the end fill the gap.
    const auto hole = static_cast<size_t>(last - kept);
    const size_t behind = hashes.size() - stop, moved = std::min(hole, behind);
    std::copy(hashes.end() - static_cast<std::ptrdiff_t>(moved), hashes.end(), kept);
    compact_done_ = static_cast<size_t>(kept - hashes.begin());
    hashes.resize(hashes.size() - hole);
    due_entries_ -= hole;
    if (compact_done_ < hashes.size()) continue;
    if (hashes.capacity() > 4 * hashes.size()) hashes.shrink_to_fit();
    if (hashes.empty()) due_.erase(at);
    ++compact_second_;
    compact_done_ = 0;
  }
}

size_t Database::expire_due(uint64_t now_ms, uint64_t deadline_ns) {
  compact_due(deadline_ns);
  size_t expired = 0, looked = 0;
  while (!due_.empty() && due_.begin()->first * 1000 <= now_ms) {
    const uint64_t second = due_.begin()->first;
    std::vector<uint64_t>& hashes = due_.begin()->second;
    std::vector<uint64_t> later;  // keys that expire later in this second: for the next call
    while (!hashes.empty()) {
      const uint64_t hashed = hashes.back();
      hashes.pop_back();
      --due_entries_;
      std::optional<std::string> gone;
      index_->each_like(hashed, [&](uint64_t* slot) {
        const Entry entry = at(slot);
        ItemHeader& item = *entry.item_;
        if (item.hash != static_cast<uint32_t>(hashed) || item.expires_ms == 0 ||
            item.due != static_cast<uint16_t>(second)) {
          return;
        }
        if (item.expires_ms <= now_ms) {
          gone = entry.key();
        } else if (const uint64_t when = item.expires_ms / 1000; when > second) {
          due_[when].push_back(hashed);
          ++due_entries_;
          // A remote reader that reads the item at this moment finds a wrong checksum, and reads again.
          item.due = static_cast<uint16_t>(when);
          if (item.sealed) put_checksum(item);
        } else {
          later.push_back(hashed);
        }
      });
      if (gone) expired += !find(*gone, false);
      if (++looked % 16 == 0 && verbena::now_ns() > deadline_ns) break;
    }
    const bool done = hashes.empty();
    hashes.insert(hashes.end(), later.begin(), later.end());
    due_entries_ += later.size();
    if (!done || !later.empty()) return expired;
    due_.erase(due_.begin());
  }
  return expired;
}

std::optional<std::string> Database::choose_victim(Eviction policy) {
  if (is_volatile(policy) ? volatile_ == 0 : size() == 0) return std::nullopt;
  std::optional<std::string> best;
  uint64_t best_score = 0;
  size_t seen = 0;
  // Keys with an expiry may be rare: try many buckets before giving up.
  for (size_t probe = 0; probe < 4096 && seen < keyspace_.samples; ++probe) {
    index_->each_in_bucket(keyspace_.random(), [&](uint64_t* slot) {
      const Entry entry = at(slot);
      if (is_volatile(policy) && entry.expires_ms() == 0) return;
      ++seen;
      uint64_t score = keyspace_.random() | 1;
      if (policy == Eviction::all_lru || policy == Eviction::volatile_lru) {
        score = 1 + keyspace_.idle_seconds(entry.recency());
      } else if (counts_frequency(policy)) {
        score = 256 - keyspace_.frequency(entry.recency());
      } else if (policy == Eviction::volatile_ttl) {
        score = ~entry.expires_ms();
      }
      if (score > best_score) {
        best_score = score;
        best = std::string(entry.key());
      }
    });
  }
  return best;
}

std::optional<std::string> Database::random_key() {
  constexpr uint32_t kMostTries = 100;
  for (uint32_t tries = 1; size() > 0; ++tries) {
    std::vector<std::string> keys;
    for (size_t probe = 0; probe < 1024 && keys.empty(); ++probe) {
      index_->each_in_bucket(keyspace_.random(), [&](uint64_t* slot) { keys.emplace_back(at(slot).key()); });
    }
    if (keys.empty()) scan(0, size_t{1} << 40, [&](Entry entry) { keys.emplace_back(entry.key()); });
    std::string& key = keys[keyspace_.random() % keys.size()];
    if (find(key, false)) return std::move(key);  // else it had expired, and find() removed it
    if (keyspace_.keeps_expired && tries >= kMostTries) return std::nullopt;
  }
  return std::nullopt;
}

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

bool Keyspace::make_room() {
  if (max_bytes == 0 || keeps_expired) return true;
  const uint64_t now = verbena::now_ns();
  while (used_bytes() > max_bytes) {
    if (has_retired()) reclaim(now + 2 * kGraceNs, now + 1'000'000);
    // Retired memory is freed soon: no key is evicted because of it.
    if (used_bytes() - retired_bytes_ <= max_bytes) return true;
    if (eviction == Eviction::none) return false;
    bool found = false;
    for (const auto& database : databases_) {
      if (!database) continue;
      const auto victim = database->choose_victim(eviction);
      if (!victim) continue;
      if (const Entry entry = database->find(*victim, false)) {
        database->erase(entry);
        ++counters.evicted;
        report_removal(*database, *victim, 'e', "evicted");
      }
      found = true;
    }
    if (!found) return has_retired();
  }
  return true;
}

uint64_t Keyspace::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

// For LFU policies: minutes in the upper 16 bits, a logarithmic count in the lower. Otherwise: seconds.
uint32_t Keyspace::next_recency(uint32_t before) {
  if (!counts_frequency(eviction)) return static_cast<uint32_t>(now_ms_ / 1000);
  const auto minutes = static_cast<uint32_t>(now_ms_ / 60'000) & 0xffff;
  if (before == 0) return minutes << 16 | 5;
  uint32_t count = frequency(before);
  // The higher the count, the less likely an increment: about a million uses saturate it.
  const uint64_t dice = random() >> 11;
  const double odds = 1.0 / ((count > 5 ? count - 5 : 0) * 10 + 1);
  if (count < 255 && static_cast<double>(dice) * 0x1.0p-53 < odds) ++count;
  return minutes << 16 | count;
}

uint64_t Keyspace::idle_seconds(uint32_t recency) const {
  const auto now = static_cast<uint32_t>(now_ms_ / 1000);
  return now > recency ? now - recency : 0;
}

uint32_t Keyspace::frequency(uint32_t recency) const {
  const auto minutes = static_cast<uint32_t>(now_ms_ / 60'000) & 0xffff;
  const uint32_t idle = (minutes - (recency >> 16)) & 0xffff, count = std::min(recency & 0xffff, 255u);
  return count > idle ? count - idle : 0;
}

}  // namespace verbena::kv
