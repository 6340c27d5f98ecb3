// The log on disk: effect records in the order of execution, each with an LSN. When commit() returns true,
// records are written to the kernel, or synced, as the fsync policy requires. A failing disk stops writes,
// never the server.
// Depends on log records and on the Journal interface of the store; not on the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kv/journal/log_record.h"
#include "kv/store/keyspace.h"
#include "util/fd.h"

namespace verbena::kv {

enum class Fsync : uint8_t { always, everysec, no };

struct LogOptions {
  std::string directory;
  Fsync fsync = Fsync::everysec;
  uint64_t next_lsn = 1;
  uint32_t epoch = 1;
  uint64_t period_ns = 1'000'000'000;     // everysec: interval between syncs
  uint64_t slow_sync_ns = 2'000'000'000;  // commit() waits for a background sync that takes longer than this
  std::function<int(int)> sync = {};      // replaces fdatasync() in tests
};

struct LogCounters {
  uint64_t lsn = 0, durable_lsn = 0;
  uint64_t segment_bytes = 0, segment_first_lsn = 0;
  uint64_t written_bytes = 0, syncs = 0, delayed_syncs = 0, failures = 0;
  uint64_t longest_sync_ns = 0, pending_bytes = 0;
  bool syncing = false, needs_snapshot = false;
};

// All functions but durable_lsn(): with the engine's lock.
class Log final : public Journal {
 public:
  // Begins a segment, which is synced before this returns. Throws if that fails.
  explicit Log(LogOptions options);
  ~Log() override;

  void reserve(size_t bytes) override;
  void append(uint32_t database, Arguments effect) override;
  void end_command() override { command_ended_ = true; }
  uint64_t position() const override { return lsn_; }
  bool commit() override;
  void tick(uint64_t now_ns) override;
  uint64_t durable() const override { return durable_lsn(); }

  // Begins a new segment and returns its first LSN. Throws if that fails; then nothing has changed.
  uint64_t rotate();
  // Call when a snapshot of everything up to now is on disk: failed syncs of earlier records no longer
  // matter.
  void clear_sync_failure();
  // Writes and syncs all records. False: that failed (see write_error). close() does the same.
  bool flush();
  void close();
  void set_fsync(Fsync policy);
  Fsync fsync() const { return options_.fsync; }
  // Called for every effect (LSN, database, arguments), for a snapshot in progress.
  std::function<void(uint64_t, uint32_t, Arguments)> on_effect;

  LogCounters counters() const;
  uint64_t durable_lsn() const { return durable_.load(std::memory_order_acquire); }

 private:
  struct Segment {
    UniqueFd file;
    uint64_t bytes = 0, first_lsn = 0;
    uint32_t seed = 0;
  };
  // What one sync covers.
  struct SyncRound {
    std::vector<int> files;
    bool directory = false;
    uint64_t lsn = 0, segments = 0;  // number of segments begun so far
  };
  Segment begin_segment();
  void seal_last(bool more);
  bool write_pending();  // to the kernel; false: it failed, and fail() has been called
  SyncRound make_sync_round() const;
  int run_sync_round(const SyncRound& round);  // 0, or errno
  bool finish_sync_round(const SyncRound& round, int error);
  bool sync_now();
  void request_sync(uint64_t now);
  void collect_sync(bool wait);
  void put_mark();
  bool fail(std::string what, int error);
  void run(const std::stop_token& stop);

  LogOptions options_;
  UniqueFd directory_;
  Segment segment_;
  std::vector<UniqueFd> unsynced_segments_;  // closed segments that may not be on disk yet
  bool new_file_ = true;                     // the segment's directory entry may not be on disk yet
  std::string pending_;                      // records not yet written; the last one may have no checksum yet
  size_t written_ = 0;                       // bytes of pending_ that the kernel has
  size_t last_ = kNone;                      // position in pending_ of the record without a checksum
  bool command_ended_ = true;                // the next effect belongs to another command
  uint64_t lsn_, written_lsn_, marked_lsn_, written_bytes_ = 0, failures_ = 0, delayed_ = 0;
  uint64_t segments_ = 0, retried_ns_ = 0, appended_ns_ = 0, sync_requested_ns_ = 0;
  bool sync_requested_ = false;  // and its result has not been collected
  bool failing_ = false, needs_snapshot_ = false, closed_ = false;
  static constexpr size_t kNone = ~size_t{0};

  std::atomic<uint64_t> durable_;
  std::atomic<uint64_t> syncs_{0}, longest_sync_ns_{0};

  // Shared with the background thread, which runs a sync round on request.
  enum class Stage : uint8_t { idle, requested, done };
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Stage stage_ = Stage::idle;
  SyncRound round_;
  int round_error_ = 0;
  std::jthread thread_;
};

}  // namespace verbena::kv
