#include "kv/slot_digest.h"

#include "kv/log_record.h"
#include "kv/siphash.h"
#include "util/clock.h"
#include "util/crc32c.h"

namespace verbena::kv {

namespace {

// The same on every node: sums are compared.
constexpr HashKey kKey = {0x7665'7262'656e'6121, 0x736c'6f74'2073'756d};
constexpr size_t kScan = 64;

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
  sum_ = cursor_ = database_ = 0;
  scanned_ = false;
}

size_t SlotDigest::pending() const {
  size_t count = 0;
  const Keyspace& keyspace = engine_.keyspace;
  for (uint32_t i = database_; !scanned_ && i < keyspace.databases(); ++i) {
    if (keyspace.exists(i)) count += engine_.keyspace.database(i).size();
  }
  for (const auto& [database, keys] : changed_) count += keys.size();
  return count;
}

void SlotDigest::drop(uint64_t name) {
  const auto found = parts_.find(name);
  if (found == parts_.end()) return;
  sum_ -= found->second.sum;
  if (found->second.expires_ms) volatile_.erase({found->second.expires_ms, name});
  parts_.erase(found);
}

void SlotDigest::put(uint32_t number, std::string_view key) {
  const uint64_t name = hash_of(number, key);
  drop(name);
  const Entry entry = engine_.keyspace.database(number).find(key, false);
  if (!entry) return;
  // Elements of a set may stand in another order here and there.
  uint64_t held = 0;
  std::string_view value;
  if (entry.type() == Type::string) {
    value = entry.value();
  } else if (engine_.program()) {
    held = engine_.program()->sum(entry.object());
  }
  const uint64_t facts[] = {name,         static_cast<uint64_t>(entry.type()),   entry.expires_ms(),
                            value.size(), crc32c(0, value.data(), value.size()), held};
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

bool SlotDigest::work(uint64_t deadline_ns) {
  while (!scanned_ && now_ns() < deadline_ns) scanned_ = !scan_some();
  if (!scanned_) return false;
  for (auto& [number, keys] : changed_) {
    while (!keys.empty()) {
      if (now_ns() >= deadline_ns) return false;
      const std::string key = std::move(keys.extract(keys.begin()).value());
      put(number, key);
    }
  }
  return true;
}

SlotDigest::Sum SlotDigest::finish(uint64_t now_ms) {
  while (!work(~uint64_t{0})) {
  }
  Sum sum{sum_, parts_.size()};
  for (auto at = volatile_.begin(); at != volatile_.end() && at->first <= now_ms; ++at) {
    sum.sum -= parts_.at(at->second).sum;
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
