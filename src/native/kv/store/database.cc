// The part of the keyspace that stores items: one database and its index.
#include <algorithm>
#include <cstring>

#include "kv/journal/log_record.h"
#include "kv/store/item.h"
#include "kv/store/keyspace.h"
#include "util/error.h"
#include "util/fatal.h"

namespace verbena::kv {

size_t Entry::memory_bytes() const {
  return Arena::block_bytes(item_bytes(*item_)) + sizeof(uint64_t) * 2 +
         (type() == Type::string ? 0 : object_bytes());
}

Database::Database(Keyspace& keyspace, uint32_t number)
    : keyspace_(keyspace),
      number_(number),
      root_(keyspace.arena_.allocate(sizeof(IndexRoot))),
      slot_sizes_(keyspace.counts_slots_ ? kSlotCount : 0) {
  try {
    index_ = new_index();
  } catch (...) {
    keyspace.arena_.free(root_, sizeof(IndexRoot));
    throw;
  }
}

Database::~Database() = default;

std::unique_ptr<Index> Database::new_index() {
  Keyspace& keyspace = keyspace_;
  return std::make_unique<Index>(
      keyspace.arena_, root_, static_cast<uint8_t>(number_), keyspace.next_index_id(),
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
    keyspace_.remove(*this, entry, 'x', "expired");
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

Entry Database::write(Entry existing, std::string_view key, size_t offset, std::string_view bytes) {
  const std::string_view old = existing ? existing.value() : std::string_view();
  return store(existing, key, old, std::max(old.size(), offset + bytes.size()), Type::string,
               existing ? existing.expires_ms() : 0, 0, {offset, bytes});
}

Entry Database::resize(Entry existing, std::string_view key, size_t bytes) {
  const std::string_view old = existing ? existing.value() : std::string_view();
  return store(existing, key, old.substr(0, bytes), bytes, Type::string,
               existing ? existing.expires_ms() : 0);
}

bool Database::fits_in_place(Entry existing, size_t total) const {
  const ItemHeader* const item = existing.item_;
  return item != nullptr && !keyspace_.is_copy_on_write() && item->type == Type::string &&
         (item_bytes(*item) == total || Arena::block_bytes(item_bytes(*item)) == Arena::block_bytes(total));
}

// All that can throw comes before the first change of an item or of the index.
Entry Database::store(Entry existing, std::string_view key, std::string_view value, size_t value_bytes,
                      Type type, uint64_t expires_ms, Location filled, Patch patch) {
  const uint64_t hashed =
      existing ? uint64_t{tag_of(*existing.slot_)} << 48 | existing.item_->hash : hash(key);
  const size_t total = sizeof(ItemHeader) + key.size() + value_bytes;
  const uint64_t before_ms = existing ? existing.expires_ms() : 0;
  const uint16_t before_due = existing ? existing.item_->due : uint16_t{0};
  ItemHeader* item = existing.item_;
  const auto fill = [&](char* to) {
    if (value.data() != to && !value.empty()) std::memmove(to, value.data(), value.size());
    if (value_bytes > value.size()) std::memset(to + value.size(), 0, value_bytes - value.size());
    if (!patch.bytes.empty()) std::memcpy(to + patch.offset, patch.bytes.data(), patch.bytes.size());
  };
  if (filled == 0 && type == Type::string && fits_in_place(existing, total)) {
    item->due = schedule_expiry(expires_ms, hashed, before_ms, before_due);
    item->value_bytes = static_cast<uint32_t>(value_bytes);
    item->sealed = 0;
    item->expires_ms = expires_ms;
    fill(existing.bytes() + key.size());
  } else {
    const uint16_t due = schedule_expiry(expires_ms, hashed, before_ms, before_due);
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
             .due = due};
    char* to = reinterpret_cast<char*>(item + 1);
    std::memcpy(to, key.data(), key.size());
    if (filled == 0) fill(to + key.size());
    if (keyspace_.exposed_ && total <= Keyspace::kAlwaysSealed) put_checksum(*item, index_->id());
    try {
      if (existing) {
        keyspace_.release(existing.item_, location_of(*existing.slot_));
        Index::replace(existing.slot_, hashed, location);
      } else {
        existing.slot_ = index_->insert(hashed, location);
        if (!slot_sizes_.empty()) ++slot_sizes_[key_slot(key)];
      }
    } catch (...) {
      if (filled == 0) keyspace_.arena_.free(location, total);
      throw;
    }
  }
  volatile_ += (expires_ms != 0) - (before_ms != 0);
  return {item, existing.slot_};
}

Location Database::new_string(Entry existing, std::string_view key, std::string_view value, uint64_t hashed) {
  const Location location = keyspace_.arena_.allocate(sizeof(ItemHeader) + key.size() + value.size());
  auto* const item = reinterpret_cast<ItemHeader*>(keyspace_.arena_.at(location));
  *item = {.checksum = 0,
           .recency = keyspace_.next_recency(existing ? existing.recency() : 0),
           .key_bytes = static_cast<uint32_t>(key.size()),
           .value_bytes = static_cast<uint32_t>(value.size()),
           .expires_ms = 0,
           .hash = static_cast<uint32_t>(hashed),
           .type = Type::string,
           .sealed = 0,
           .due = existing ? existing.item_->due : uint16_t{0}};
  char* const to = reinterpret_cast<char*>(item + 1);
  std::memcpy(to, key.data(), key.size());
  if (!value.empty()) std::memcpy(to + key.size(), value.data(), value.size());
  if (keyspace_.exposed_ && item_bytes(*item) <= Keyspace::kAlwaysSealed) put_checksum(*item, index_->id());
  return location;
}

// First, new keys are inserted: only that can still fail when the blocks are allocated, and can be undone.
// Then the existing keys get their values.
void Database::set_all(Arguments pairs) {
  struct Block {
    Location location = 0;  // 0: the value is written in place
    bool is_inserted = false;
  };
  std::vector<Block> blocks(pairs.size() / 2);
  const auto total = [&](size_t i) {
    return sizeof(ItemHeader) + pairs[2 * i].size() + pairs[2 * i + 1].size();
  };
  try {
    keyspace_.reserve_releases(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string_view key = pairs[2 * i];
      const Entry existing = peek(key);
      if (fits_in_place(existing, total(i))) continue;
      blocks[i].location = new_string(existing, key, pairs[2 * i + 1], hash(key));
      if (existing) continue;
      index_->insert(hash(key), blocks[i].location);
      blocks[i].is_inserted = true;
    }
  } catch (...) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].is_inserted) index_->erase(index_->find(hash(pairs[2 * i]), pairs[2 * i]));
      if (blocks[i].location != 0) keyspace_.arena_.free(blocks[i].location, total(i));
    }
    throw;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string_view key = pairs[2 * i], value = pairs[2 * i + 1];
    if (blocks[i].is_inserted) {
      if (!slot_sizes_.empty()) ++slot_sizes_[key_slot(key)];
      continue;
    }
    const Entry existing = peek(key);
    if (blocks[i].location != 0) {
      volatile_ -= existing.expires_ms() != 0;
      keyspace_.release(existing.item_, location_of(*existing.slot_));
      Index::replace(existing.slot_, hash(key), blocks[i].location);
    } else {  // allocates memory only if an earlier pair has set this key
      or_end_process("setting a key twice", [&] { set(existing, key, value, 0); });
    }
  }
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
  if (keyspace_.exposed_) put_checksum(*existing.item_, index_->id());
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
  const uint64_t hashed = uint64_t{tag_of(*existing.slot_)} << 48 | existing.item_->hash;
  existing.item_->due = schedule_expiry(expires_ms, hashed, before, existing.item_->due);
  existing.item_->expires_ms = expires_ms;
  existing.item_->sealed = 0;
  volatile_ += (expires_ms != 0) - (before != 0);
}

void Database::erase(Entry existing) {
  keyspace_.reserve_releases(1);
  volatile_ -= existing.expires_ms() != 0;
  if (!slot_sizes_.empty()) --slot_sizes_[key_slot(existing.key())];
  keyspace_.release(existing.item_, location_of(*existing.slot_));
  index_->erase(existing.slot_);
}

void Database::clear() {
  auto fresh = new_index();  // the root refers to it now
  try {
    keyspace_.lazy_free_.emplace_back();
  } catch (...) {
    index_->set_root(root_);
    throw;
  }
  if (keyspace_.exposed_) index_->set_owner(kNoOwner);
  keyspace_.lazy_free_.back().index = std::exchange(index_, std::move(fresh));
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
