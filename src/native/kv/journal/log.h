// The log on disk: effects in the order in which they happened, each with its LSN. What commit() has let go
// is in the kernel's hands, or on disk, as the policy says; a disk that fails stops writes, never the server.
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
  uint64_t period_ns = 1'000'000'000;    // everysec: how often
  uint64_t patience_ns = 2'000'000'000;  // a sync that takes longer makes writers wait
  std::function<int(int)> sync = {};     // instead of fdatasync(), for tests
};

struct LogCounters {
  uint64_t lsn = 0, durable_lsn = 0;
  uint64_t segment_bytes = 0, segment_first_lsn = 0;
  uint64_t written_bytes = 0, syncs = 0, delayed_syncs = 0, failures = 0;
  uint64_t longest_sync_ns = 0, pending_bytes = 0;
  bool syncing = false, needs_snapshot = false;
};

// append(), commit() and the rest are for whoever holds the engine's lock.
class Log final : public Journal {
 public:
  // Begins a segment. Throws if it cannot.
  explicit Log(LogOptions options);
  ~Log() override;

  void append(uint32_t database, Arguments effect) override;
  void boundary() override { whole_ = true; }
  uint64_t position() const override { return lsn_; }
  bool commit() override;
  void tick(uint64_t now_ns) override;
  uint64_t durable() const override { return durable_lsn(); }

  // Further effects go to a new file; returns its first LSN. Throws if there can be none: then nothing
  // changed.
  uint64_t rotate();
  // A snapshot that holds everything up to now is safe: what failed before does not matter any more.
  void forgive();
  // All that there is goes to the disk; false: it does not (see complaint). Also from close().
  bool flush();
  void close();
  void set_fsync(Fsync policy);
  Fsync fsync() const { return options_.fsync; }
  // A snapshot that is being made hears of every effect: (LSN, database, words).
  std::function<void(uint64_t, uint32_t, Arguments)> on_effect;

  LogCounters counters() const;
  uint64_t durable_lsn() const { return durable_.load(std::memory_order_acquire); }

 private:
  struct Segment {
    UniqueFd file;
    uint64_t bytes = 0, first_lsn = 0;
    uint32_t seed = 0;
  };
  // What one round of making things durable is about.
  struct Round {
    std::vector<int> files;
    bool directory = false;
    uint64_t lsn = 0, segments = 0;  // how many had been begun
  };
  Segment begin_segment();
  void seal_last(bool more);
  bool write_pending();  // to the kernel; false: it failed, and has been said
  Round make_round() const;
  int run_round(const Round& round);  // 0, or errno
  bool finish_round(const Round& round, int error);
  bool sync_now();
  void ask_round(uint64_t now);
  void collect_round(bool wait);
  void put_mark();
  bool fail(std::string what, int error);
  void run(const std::stop_token& stop);

  LogOptions options_;
  UniqueFd directory_;
  Segment segment_;
  std::vector<UniqueFd> retiring_;  // former segments that may not be on disk yet
  bool new_file_ = true;            // the directory does not know on disk yet
  std::string pending_;             // sealed records, and perhaps one that is not
  size_t written_ = 0;              // of `pending_`
  size_t last_ = kNone;             // where the record is that has no checksum yet
  bool whole_ = true;               // what comes next is of another command
  uint64_t lsn_, kernel_lsn_, marked_lsn_, written_bytes_ = 0, failures_ = 0, delayed_ = 0;
  uint64_t segments_ = 0, retried_ns_ = 0, appended_ns_ = 0, asked_ns_ = 0;
  bool asking_ = false;  // a round has been asked for, and not been collected
  bool failing_ = false, needs_snapshot_ = false, closed_ = false;
  static constexpr size_t kNone = ~size_t{0};

  std::atomic<uint64_t> durable_;
  std::atomic<uint64_t> syncs_{0}, longest_sync_ns_{0};

  // With the background thread, which runs a round when it is asked to.
  enum class Stage : uint8_t { idle, asked, done };
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Stage stage_ = Stage::idle;
  Round round_;
  int round_error_ = 0;
  std::jthread thread_;
};

}  // namespace verbena::kv
