// Sums up what some slots hold, while it changes: two nodes that hold the same have the same sum. Most of the
// work is done beforehand, between commands; when writes have stopped only the last changes are left. Large
// values are summed in pieces. One that was changed again before it was through is left out at the end, at
// both nodes: then its type, length and expiry count, and nobody waits for it.
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

// All of it is for whoever holds the engine's lock.
class SlotDigest {
 public:
  SlotDigest(Engine& engine, const std::bitset<kSlotCount>& slots);
  ~SlotDigest();
  SlotDigest(const SlotDigest&) = delete;
  SlotDigest& operator=(const SlotDigest&) = delete;

  // Some of the work, a piece at least; true: nothing is left for now. `still`: nothing changes any more, so
  // the values are summed as well that changed too often for it.
  bool work(uint64_t deadline_ns, bool still = false);
  struct Sum {
    uint64_t sum, keys;
    std::vector<uint64_t> left_out;  // names of large values whose contents are not in it, in order
  };
  // All but the large values that are not through. What has expired by then does not count, whether it is
  // still there or not. `left_out`: what the other node leaves out.
  Sum finish(uint64_t now_ms, std::span<const uint64_t> left_out = {});
  // What is left to sum, in keys, of which a large one counts many; the largest number before all were seen.
  size_t pending() const;
  uint64_t summed() const { return summed_; }  // bytes of strings, and elements, so far

 private:
  using Key = std::pair<uint32_t, std::string>;  // and its database
  struct Part {
    uint64_t sum, expires_ms;
  };
  // A large value that is being summed.
  struct Walk {
    uint64_t name;
    Key key;
    uint32_t checksum = 0;
    size_t place = 0;
    std::unique_ptr<ValueSum> elements;  // of what is not a string
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
  std::set<std::pair<uint64_t, uint64_t>> volatile_;  // when it expires, and the key's hash
  std::map<uint32_t, std::unordered_set<std::string>> changed_;
  std::unordered_map<uint64_t, Key> known_;        // names of large values that have been summed
  std::unordered_map<uint64_t, Key> large_, hot_;  // to be summed; and those that change too often for it
  std::unordered_map<uint64_t, int>
      interruptions_;  // of large values that were changed before they were through
  std::optional<Walk> walk_;
  uint64_t sum_ = 0, summed_ = 0;
};

// Takes keys of some slots out of the store, between commands: they belong to another node.
class SlotSweep {
 public:
  SlotSweep(Engine& engine, const std::bitset<kSlotCount>& slots) : engine_(engine), slots_(slots) {}
  // True: none is left.
  bool work(uint64_t deadline_ns);
  uint64_t removed() const { return removed_; }

 private:
  Engine& engine_;
  const std::bitset<kSlotCount> slots_;
  uint32_t database_ = 0;
  uint64_t cursor_ = 0, removed_ = 0;
};

}  // namespace verbena::kv
