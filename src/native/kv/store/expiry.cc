// The part of the keyspace that removes expired keys: hashes of keys by the second in which they expire.
#include <algorithm>

#include "kv/store/item.h"
#include "kv/store/keyspace.h"
#include "util/clock.h"

namespace verbena::kv {

// A key that already has an earlier entry keeps it: expire_due() finds it there and moves it to its new time.
uint16_t Database::schedule_expiry(uint64_t expires_ms, uint64_t hashed, uint64_t before_ms,
                                   uint16_t before_due) {
  if (expires_ms == 0 || (before_ms != 0 && expires_ms >= before_ms)) return before_due;
  const uint64_t second = expires_ms / 1000;
  due_[second].push_back(hashed);
  ++due_entries_;
  return static_cast<uint16_t>(second);
}

// Removes obsolete entries: those of keys that no longer exist or have another expiry. Works in slices, and
// only while more than half of all entries may be obsolete.
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
          if (item.sealed) put_checksum(item, index_->id());
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

}  // namespace verbena::kv
