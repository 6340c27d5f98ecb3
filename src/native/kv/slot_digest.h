// Sums up what some slots hold, while it changes: two nodes that hold the same have the same sum. Most of the
// work is done beforehand, between commands; when writes have stopped only the last changes are left.
#pragma once

#include <bitset>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kv/engine.h"
#include "kv/log_layout.h"

namespace verbena::kv {

// All of it is for whoever holds the engine's lock.
class SlotDigest {
 public:
  SlotDigest(Engine& engine, const std::bitset<kSlotCount>& slots);
  ~SlotDigest();
  SlotDigest(const SlotDigest&) = delete;
  SlotDigest& operator=(const SlotDigest&) = delete;

  // Some of the work; true: nothing is left for now.
  bool work(uint64_t deadline_ns);
  struct Sum {
    uint64_t sum, keys;
  };
  // All of it. What has expired by then does not count, whether it is still there or not.
  Sum finish(uint64_t now_ms);
  size_t pending() const;  // keys that are left to sum, at most

 private:
  struct Part {
    uint64_t sum, expires_ms;
  };
  void note(uint32_t database, std::optional<std::string_view> key);
  void put(uint32_t database, std::string_view key);
  void drop(uint64_t name);
  bool scan_some();

  Engine& engine_;
  const std::bitset<kSlotCount> slots_;
  const uint64_t id_;
  uint32_t database_ = 0;
  uint64_t cursor_ = 0;
  bool scanned_ = false;
  std::unordered_map<uint64_t, Part> parts_;          // by the key's hash
  std::set<std::pair<uint64_t, uint64_t>> volatile_;  // when it expires, and the key's hash
  std::map<uint32_t, std::unordered_set<std::string>> changed_;
  uint64_t sum_ = 0;
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
