// A snapshot: a copy of all keys on disk, written in slices between commands. Each value is written as it is
// at some moment; the LSN of its record is that moment, so that recovery applies only later log records to
// it.
// Depends on the engine and the log.
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

  // Begins a snapshot and a new log segment. Throws if the file cannot be created. The caller holds the
  // engine's lock for all functions except state(), error() and the counters.
  Snapshot(Engine& engine, Log& log, const std::string& path, uint32_t epoch);
  ~Snapshot() override;

  bool work(uint64_t deadline_ns) override;
  // Completes the snapshot without pause. True: it is done.
  bool finish();

  State state() const { return state_.load(std::memory_order_acquire); }
  std::string error() const;
  uint64_t first_lsn() const { return first_lsn_; }  // of the log records to apply after loading
  uint64_t last_lsn() const { return last_lsn_.load(); }
  uint64_t records() const { return records_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t slices() const { return slices_.load(std::memory_order_relaxed); }
  uint64_t longest_slice_ns() const { return longest_slice_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kPieceBytes = 256u << 10;
  static constexpr size_t kQueuedBytes = 16u
                                         << 20;  // more than this is waiting for the disk: the scan pauses

  struct Progress {
    uint64_t cursor = 0;
    bool scanned = false;
    std::deque<ValueCopy> pending_values;  // Python values that were scanned and not written yet
    bool done() const { return scanned && pending_values.empty(); }
  };
  // Calls the function; an exception makes the snapshot fail, and nothing else.
  template <typename Function>
  void or_fail(Function function);
  void scan(uint64_t deadline_ns);
  void record_effect(uint64_t lsn, uint32_t database, Arguments effect);
  void scan_step(uint32_t number, Progress& progress);
  void put(uint64_t lsn, uint32_t database, uint8_t flags, Arguments arguments);
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
  // The number of each database when the snapshot began. Values are written under that number, because
  // recovery applies the log's SWAPDB to them.
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
