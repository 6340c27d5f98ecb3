// The part of the keyspace that stores items: one database and its index.
#include <algorithm>
#include <cstring>

#include "kv/journal/log_record.h"
#include "kv/store/item.h"
#include "kv/store/keyspace.h"
#include "util/error.h"

namespace verbena::kv {

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
  // The prefetched place is only a hint: it may belong to another key.
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

}  // namespace verbena::kv
