// The digest of some slots: a sum over their keys, values and expiries, kept up to date while they change.
// Two nodes with the same contents have the same sum. Most of the work is done between commands; when writes
// have stopped, only the last changes remain. Large values are summed in pieces. If one changes before its
// sum is complete, both nodes leave out its contents at the end and sum its type, length and expiry instead,
// so that the cut-over does not wait for it.
// Depends on the engine; knows nothing of the phases of a slot move.
#pragma once

#include <bitset>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kv/engine/engine.h"
#include "kv/journal/log_layout.h"

namespace verbena::kv {

// All members need the engine's lock.
class SlotDigest {
 public:
  SlotDigest(Engine& engine, const std::bitset<kSlotCount>& slots);
  ~SlotDigest();
  SlotDigest(const SlotDigest&) = delete;
  SlotDigest& operator=(const SlotDigest&) = delete;

  // Works until the deadline, on one piece at least. True: nothing is left for now. `still`: writes have
  // stopped, so values that changed too often are summed as well.
  bool work(uint64_t deadline_ns, bool still = false);
  struct Sum {
    uint64_t sum, keys;
    std::vector<uint64_t> left_out;  // sorted names of large values whose contents are left out
  };
  // The sum at the end: completes everything except unfinished large values. Keys that have expired at now_ms
  // are not counted, whether they still exist or not. `left_out`: the names that the other node left out.
  Sum finish(uint64_t now_ms, std::span<const uint64_t> left_out = {});
  // The remaining work, in keys; a large value counts as many. 2^32 - 1 until the first scan is complete.
  size_t pending() const;
  uint64_t summed() const { return summed_; }  // bytes of strings plus elements so far

 private:
  using Key = std::pair<uint32_t, std::string>;  // database and key
  struct Part {
    uint64_t sum, expires_ms;
  };
  // A large value that is being summed.
  struct Walk {
    uint64_t name;
    Key key;
    uint32_t checksum = 0;
    size_t place = 0;
    std::unique_ptr<ValueSum> elements;  // null for strings
  };
  void note(uint32_t database, std::optional<std::string_view> key);
  void put(uint32_t database, std::string_view key);
  void take(uint64_t name, Entry entry, uint64_t length, uint32_t checksum, uint64_t elements);
  void drop(uint64_t name);
  bool scan_some();
  void put_changed(uint64_t deadline_ns);
  void walk_on();
  std::optional<uint64_t> facts_of(uint64_t name, const Key& key, uint64_t now_ms) const;

  Engine& engine_;
  const std::bitset<kSlotCount> slots_;
  const uint64_t id_;
  uint32_t database_ = 0;
  uint64_t cursor_ = 0;
  bool scanned_ = false;
  std::unordered_map<uint64_t, Part> parts_;          // by the key's hash
  std::set<std::pair<uint64_t, uint64_t>> volatile_;  // expiry and the key's hash
  std::map<uint32_t, std::unordered_set<std::string>> changed_;
  std::unordered_map<uint64_t, Key> known_;        // large values that have been summed, by name
  std::unordered_map<uint64_t, Key> large_, hot_;  // large values to be summed; those that change too often
  std::unordered_map<uint64_t, int>
      interruptions_;  // how often a large value changed before its sum was complete
  std::optional<Walk> walk_;
  uint64_t sum_ = 0, summed_ = 0;
};

// Deletes the keys of slots that belong to another node, in slices between commands. Needs the engine's lock.
class SlotSweep {
 public:
  SlotSweep(Engine& engine, const std::bitset<kSlotCount>& slots) : engine_(engine), slots_(slots) {}
  // Works until the deadline. True: no key is left.
  bool work(uint64_t deadline_ns);
  uint64_t removed() const { return removed_; }

 private:
  Engine& engine_;
  const std::bitset<kSlotCount> slots_;
  uint32_t database_ = 0;
  uint64_t cursor_ = 0, removed_ = 0;
};

}  // namespace verbena::kv
