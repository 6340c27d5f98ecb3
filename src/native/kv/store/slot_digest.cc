#include "kv/store/slot_digest.h"

#include <algorithm>

#include "kv/journal/log_record.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/siphash.h"

namespace verbena::kv {

namespace {

// Must be equal on all nodes, because their sums are compared.
constexpr HashKey kKey = {0x7665'7262'656e'6121, 0x736c'6f74'2073'756d};
constexpr size_t kScan = 64;
constexpr size_t kLarge = 256u << 10, kPieceBytes = 256u << 10, kPieceElements = 4096;
constexpr size_t kBytesOfKey = 100;  // an ordinary key, when pending() converts large values to keys
constexpr int kMostInterruptions = 3;

uint64_t hash_of(uint32_t database, std::string_view key) {
  return siphash(kKey, key) ^ database * 0x9e37'79b9'7f4a'7c15;
}

}  // namespace

SlotDigest::SlotDigest(Engine& engine, const std::bitset<kSlotCount>& slots)
    : engine_(engine),
      slots_(slots),
      id_(engine.keyspace.observe(
          [this](uint32_t database, std::optional<std::string_view> key) { note(database, key); })) {}

SlotDigest::~SlotDigest() { engine_.keyspace.unobserve(id_); }

void SlotDigest::note(uint32_t database, std::optional<std::string_view> key) {
  if (key) {
    if (slots_.test(key_slot(*key))) changed_[database].emplace(*key);
    return;
  }
  parts_.clear();
  volatile_.clear();
  changed_.clear();
  known_.clear();
  large_.clear();
  hot_.clear();
  sum_ = cursor_ = database_ = 0;
  scanned_ = false;
}

size_t SlotDigest::pending() const {
  if (!scanned_) return ~uint32_t{0};
  size_t count = (large_.size() + walk_.has_value()) * (kLarge / kBytesOfKey);
  for (const auto& [database, keys] : changed_) count += keys.size();
  return count;
}

void SlotDigest::drop(uint64_t name) {
  known_.erase(name);
  large_.erase(name);
  hot_.erase(name);
  const auto found = parts_.find(name);
  if (found == parts_.end()) return;
  sum_ -= found->second.sum;
  if (found->second.expires_ms) volatile_.erase({found->second.expires_ms, name});
  parts_.erase(found);
}

void SlotDigest::put(uint32_t number, std::string_view key) {
  const uint64_t name = hash_of(number, key);
  drop(name);
  if (walk_ && walk_->name == name) {
    walk_.reset();
    ++interruptions_[name];
  }
  const Entry entry = engine_.keyspace.database(number).find(key, false);
  if (!entry) return;
  const bool is_string = entry.type() == Type::string;
  const size_t bytes = is_string ? entry.value().size() : entry.object_bytes();
  if (bytes > kLarge) {
    const auto found = interruptions_.find(name);
    const bool hot = found != interruptions_.end() && found->second >= kMostInterruptions;
    (hot ? hot_ : large_).emplace(name, Key(number, key));
    return;
  }
  // The length in memory may differ a little on the other node, which may treat the value as a large one.
  if (bytes > kLarge / 4) known_.emplace(name, Key(number, key));
  if (is_string) {
    const std::string_view value = entry.value();
    summed_ += value.size();
    take(name, entry, value.size(), crc32c(0, value.data(), value.size()), 0);
    return;
  }
  uint64_t elements = 0;
  if (const auto sum = engine_.handler() ? engine_.handler()->sum(entry.object()) : nullptr) {
    sum->add(~size_t{0});
    elements = sum->sum();
    summed_ += sum->count();
  }
  take(name, entry, 0, 0, elements);
}

// The elements of a set may be in another order on the other node; `elements` does not depend on it.
void SlotDigest::take(uint64_t name, Entry entry, uint64_t length, uint32_t checksum, uint64_t elements) {
  const uint64_t facts[] = {
      name, static_cast<uint64_t>(entry.type()), entry.expires_ms(), length, checksum, elements};
  const uint64_t sum = siphash(kKey, {reinterpret_cast<const char*>(facts), sizeof facts});
  parts_[name] = {sum, entry.expires_ms()};
  if (entry.expires_ms()) volatile_.emplace(entry.expires_ms(), name);
  sum_ += sum;
}

bool SlotDigest::scan_some() {
  Keyspace& keyspace = engine_.keyspace;
  if (database_ >= keyspace.databases()) return false;
  if (!keyspace.exists(database_)) return ++database_, true;
  std::vector<std::string> keys;
  cursor_ = keyspace.database(database_).scan(cursor_, kScan, [&](Entry entry) {
    if (slots_.test(key_slot(entry.key()))) keys.emplace_back(entry.key());
  });
  for (const std::string& key : keys) put(database_, key);
  if (cursor_ == 0) ++database_;
  return true;
}

void SlotDigest::put_changed(uint64_t deadline_ns) {
  for (auto& [number, keys] : changed_) {
    while (!keys.empty()) {
      const std::string key = std::move(keys.extract(keys.begin()).value());
      put(number, key);
      if (now_ns() >= deadline_ns) return;
    }
  }
}

// Sums a piece of a large value. The value has not changed since the walk began: put() ends the walk of a
// value that changes.
void SlotDigest::walk_on() {
  if (!walk_) {
    const auto first = large_.extract(large_.begin());
    walk_.emplace(Walk{.name = first.key(), .key = std::move(first.mapped())});
  }
  const auto& [number, key] = walk_->key;
  const Entry entry = engine_.keyspace.database(number).find(key, false);
  if (!entry) return walk_.reset();
  bool whole = false;
  uint64_t length = 0, elements = 0;
  if (entry.type() == Type::string) {
    const std::string_view value = entry.value(), piece = value.substr(walk_->place, kPieceBytes);
    walk_->checksum = crc32c(walk_->checksum, piece.data(), piece.size());
    walk_->place += piece.size();
    length = value.size();
    whole = walk_->place == length;
    summed_ += piece.size();
  } else if (PythonHandler* const handler = engine_.handler()) {
    if (!walk_->elements) walk_->elements = handler->sum(entry.object());
    const uint64_t before = walk_->elements->count();
    whole = walk_->elements->add(kPieceElements);
    elements = walk_->elements->sum();
    summed_ += walk_->elements->count() - before;
  } else {
    whole = true;
  }
  if (!whole) return;
  interruptions_.erase(walk_->name);
  known_.emplace(walk_->name, walk_->key);
  take(walk_->name, entry, length, walk_->checksum, elements);
  walk_.reset();
}

bool SlotDigest::work(uint64_t deadline_ns, bool still) {
  while (!scanned_) {
    scanned_ = !scan_some();
    if (now_ns() >= deadline_ns) return false;
  }
  put_changed(deadline_ns);
  if (std::ranges::any_of(changed_, [](const auto& one) { return !one.second.empty(); })) return false;
  if (still) large_.merge(hot_);
  while (walk_ || !large_.empty()) {
    walk_on();
    if (now_ns() >= deadline_ns) break;
  }
  return !walk_ && large_.empty();
}

// The sum of type, length and expiry of a value whose contents are left out. Empty: it no longer exists.
std::optional<uint64_t> SlotDigest::facts_of(uint64_t name, const Key& key, uint64_t now_ms) const {
  const Entry entry = engine_.keyspace.database(key.first).find(key.second, false);
  if (!entry || (entry.expires_ms() && entry.expires_ms() <= now_ms)) return std::nullopt;
  uint64_t length = 0;
  if (entry.type() == Type::string) {
    length = entry.value().size();
  } else if (engine_.handler()) {
    length = engine_.handler()->count(entry.object());
  }
  const uint64_t facts[] = {name, static_cast<uint64_t>(entry.type()), entry.expires_ms(), length};
  return siphash(kKey, {reinterpret_cast<const char*>(facts), sizeof facts});
}

SlotDigest::Sum SlotDigest::finish(uint64_t now_ms, std::span<const uint64_t> left_out) {
  while (!scanned_) scanned_ = !scan_some();
  put_changed(~uint64_t{0});
  Sum sum{sum_, parts_.size(), {}};
  for (auto at = volatile_.begin(); at != volatile_.end() && at->first <= now_ms; ++at) {
    sum.sum -= parts_.at(at->second).sum;
    --sum.keys;
  }
  const auto leave_out = [&](uint64_t name, const Key& key) {
    const std::optional<uint64_t> facts = facts_of(name, key, now_ms);
    sum.sum += facts.value_or(0);
    sum.keys += facts.has_value();
    return facts.has_value();
  };
  std::map<uint64_t, Key> mine(hot_.begin(), hot_.end());
  mine.insert(large_.begin(), large_.end());
  if (walk_) mine.emplace(walk_->name, walk_->key);
  for (const auto& [name, key] : mine) {
    if (leave_out(name, key)) sum.left_out.push_back(name);
  }
  for (const uint64_t name : std::set(left_out.begin(), left_out.end())) {
    const auto found = known_.find(name);
    if (found == known_.end() || !leave_out(name, found->second)) continue;
    sum.sum -= parts_.at(name).sum;  // sum_ includes its contents
    --sum.keys;
  }
  return sum;
}

bool SlotSweep::work(uint64_t deadline_ns) {
  Keyspace& keyspace = engine_.keyspace;
  while (database_ < keyspace.databases()) {
    if (now_ns() >= deadline_ns) return false;
    if (!keyspace.exists(database_)) {
      ++database_;
      continue;
    }
    Database& database = keyspace.database(database_);
    std::vector<std::string> keys;
    cursor_ = database.scan(cursor_, kScan, [&](Entry entry) {
      if (slots_.test(key_slot(entry.key()))) keys.emplace_back(entry.key());
    });
    for (const std::string& key : keys) {
      const Entry entry = database.find(key, false);
      if (!entry) continue;
      database.erase(entry);
      const std::string_view effect[] = {"DEL", key};
      keyspace.log(database_, effect);
      keyspace.changed(database, key);
      ++removed_;
    }
    if (cursor_ == 0) ++database_;
  }
  return true;
}

}  // namespace verbena::kv
