// A copy of everything on disk, made a little at a time while commands go on. Each value is written as it is
// at some moment; its record says by its LSN at which, so that the log's later records, and only those, are
// applied to it when it is read back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kv/engine/engine.h"
#include "kv/journal/log.h"
#include "kv/values/value_copy.h"

namespace verbena::kv {

class Snapshot final : public Background {
 public:
  enum class State : uint8_t { scanning, writing, done, failed };

  // Begins: the log goes on in a new segment. Throws if there can be no file. For whoever holds the engine's
  // lock, like all of it but state(), counters and wait().
  Snapshot(Engine& engine, Log& log, const std::string& path, uint32_t epoch);
  ~Snapshot() override;

  bool work(uint64_t deadline_ns) override;
  // All the rest at once; true: it is done.
  bool finish();

  State state() const { return state_.load(std::memory_order_acquire); }
  std::string error() const;
  uint64_t first_lsn() const { return first_lsn_; }  // of the log's records that come on top
  uint64_t last_lsn() const { return last_lsn_.load(); }
  uint64_t records() const { return records_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t slices() const { return slices_.load(std::memory_order_relaxed); }
  uint64_t longest_slice_ns() const { return longest_slice_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kPieceBytes = 256u << 10;
  static constexpr size_t kQueuedBytes = 16u << 20;  // the disk is behind: the scan waits

  struct Progress {
    uint64_t cursor = 0;
    bool scanned = false;
    std::deque<ValueCopy> objects;  // the program's values that were seen, and not written yet
    bool done() const { return scanned && objects.empty(); }
  };
  void note(uint64_t lsn, uint32_t database, Arguments effect);
  void scan_some(uint32_t number, Progress& progress);
  void put(uint64_t lsn, uint32_t database, uint8_t flags, Arguments words);
  void push(bool last);
  void fail(std::string why);
  bool is_full();
  void run(const std::stop_token& stop);

  Engine& engine_;
  Log& log_;
  const uint32_t epoch_;
  UniqueFd file_;
  uint32_t seed_ = 0;
  uint64_t first_lsn_ = 0;
  std::vector<Progress> progress_;
  // What each database was called when the snapshot began: its images go by that name, since the log's SWAPDB
  // will be applied to them.
  std::vector<uint32_t> origin_;
  std::string filling_;

  std::atomic<State> state_{State::scanning};
  std::atomic<uint64_t> last_lsn_{0}, records_{0}, bytes_{0}, slices_{0}, longest_slice_ns_{0};
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  bool last_queued_ = false;
  std::string error_;
  std::jthread thread_;
};

}  // namespace verbena::kv
