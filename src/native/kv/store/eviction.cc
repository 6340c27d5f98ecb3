// The part of the keyspace that keeps its memory below a limit: recency, frequency and the choice of victims.
#include <algorithm>

#include "kv/store/keyspace.h"
#include "util/clock.h"

namespace verbena::kv {

namespace {

constexpr bool is_volatile(Eviction policy) {
  return policy == Eviction::volatile_lru || policy == Eviction::volatile_lfu ||
         policy == Eviction::volatile_random || policy == Eviction::volatile_ttl;
}
constexpr bool counts_frequency(Eviction policy) {
  return policy == Eviction::all_lfu || policy == Eviction::volatile_lfu;
}

}  // namespace

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
      if (const Entry entry = database->find(*victim, false)) remove(*database, entry, 'e', "evicted");
      found = true;
    }
    if (!found) return has_retired();
  }
  return true;
}

}  // namespace verbena::kv
