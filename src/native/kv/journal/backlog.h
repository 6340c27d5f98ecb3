// The backlog: the latest log records in memory, for replicas and slot moves. Records have the format and the
// LSNs of the log on disk; only the seed of their checksums differs. A thread that holds the engine's lock
// appends; BacklogReaders read without that lock.
// Depends on log records and on the Journal interface of the store; not on the engine, sessions or
// replication.
#pragma once

#include <atomic>
#include <bitset>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "kv/journal/log_record.h"
#include "kv/store/keyspace.h"

namespace verbena::kv {

using SlotSet = std::bitset<kSlotCount>;
class BacklogReader;

struct BacklogOptions {
  uint64_t lsn = 0;     // LSN of the last record: with a log on disk, the last LSN of that log
  uint64_t offset = 0;  // number of log bytes before the first record
  uint32_t epoch = 1;
  size_t keep_bytes = 16u << 20;  // always kept, for readers that reconnect (repl-backlog-size)
  size_t max_bytes = 256u << 20;  // kept at most, for slow readers; a reader further behind is lost
};

class Backlog final : public Journal {
 public:
  explicit Backlog(const BacklogOptions& options);

  // The caller holds the engine's lock for all of these.
  void reserve(size_t bytes) override {
    if (log_) log_->reserve(bytes);
  }
  // Without memory for the record, the backlog drops all records and every reader is lost: replicas then copy
  // everything again, and slot moves fail.
  void append(uint32_t database, Arguments effect) override;
  void end_command() override { last_ = nullptr; }
  uint64_t position() const override { return lsn_; }
  uint64_t written_offset() const { return offset_; }  // log bytes up to position(), published or not
  bool commit() override;
  void tick(uint64_t now) override;
  // Sets the log on disk, which assigns the LSNs from now on; null: none. If the position of the log differs
  // from that of the backlog, another history begins and all readers are lost.
  void set_log(Journal* log);
  // Makes all appended records visible to readers. Call it between commands only.
  void publish();
  // While true, the event loop sends new records to its readers before it releases the engine's lock, so
  // publish() does not wake threads that wait for records with `served_by_loop`.
  void set_served_by_loop(bool served_by_loop) { served_by_loop_ = served_by_loop; }
  void set_limits(size_t keep_bytes, size_t max_bytes);
  uint32_t epoch() const { return epoch_; }
  // Drops all records; every existing reader is lost.
  void discard_all();
  // Calls discard_all() and sets the offset of the next record.
  void restart_at(uint64_t offset);
  // Returns a reader of `slots` (null: of all slots) that begins at `from_lsn`, which may be the next LSN.
  // Null: that record is no longer kept, or lies further in the future.
  std::unique_ptr<BacklogReader> read_from(uint64_t from_lsn, std::unique_ptr<SlotSet> slots = nullptr);

  // From any thread:
  uint64_t visible_lsn() const { return visible_lsn_.load(std::memory_order_acquire); }
  // Number of log bytes up to the last visible record: the offset that INFO reports.
  uint64_t visible_offset() const { return visible_.load(std::memory_order_acquire); }
  struct Range {
    uint64_t first_lsn, first_offset, bytes;  // of all kept records
  };
  Range kept() const;
  // Returns when visible_offset() exceeds `offset`, at the deadline, or when wake_all() has run since wakes()
  // returned `wakes`. `served_by_loop`: a publish() that happens under set_served_by_loop(true) does not wake
  // this waiter.
  void wait_for_records(uint64_t offset, uint64_t deadline_ns, uint64_t wakes, bool served_by_loop = false);
  uint64_t wakes() const { return wakes_.load(std::memory_order_acquire); }
  void wake_all();

 private:
  friend class BacklogReader;
  struct Chunk {
    Chunk(uint64_t n, uint64_t lsn, uint64_t offset, size_t room)
        : number(n),
          first_lsn(lsn),
          first_offset(offset),
          capacity(room),
          bytes(std::make_unique_for_overwrite<char[]>(room)) {}
    const uint64_t number, first_lsn, first_offset;
    const size_t capacity;
    std::atomic<size_t> used{
        0};  // its final value is stored before any record of the next chunk becomes visible
    const std::unique_ptr<char[]> bytes;
  };
  static constexpr size_t kChunkBytes = 64u << 10;
  static constexpr size_t kPrefetchBytes = 256;

  void seal();                     // computes the checksums of the records appended since the last call
  Chunk* chunk_for(size_t bytes);  // null: there is no memory
  void trim();                     // with mutex_ held

  Journal* log_ = nullptr;
  uint64_t lsn_, offset_;
  uint32_t epoch_;
  size_t keep_bytes_, max_bytes_;
  bool served_by_loop_ = false;
  char* last_ = nullptr;  // the last record of the current command, if any
  uint64_t next_chunk_ = 0;
  std::shared_ptr<Chunk> filling_;
  size_t sealed_ = 0;  // bytes of filling_ whose records have checksums
  std::atomic<uint64_t> visible_lsn_, visible_;

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> chunks_;
  size_t kept_bytes_ = 0;
  std::vector<BacklogReader*> readers_;
  std::condition_variable changed_;
  std::atomic<uint32_t> waiters_{0}, loop_served_waiters_{0};
  std::atomic<uint64_t> wakes_{0};  // written with mutex_ held
};

// A read position in the backlog. One thread at a time; the backlog must outlive it.
class BacklogReader {
 public:
  ~BacklogReader();
  // Appends whole records to `out`, at most `max_bytes` unless the first one alone is longer. False: the
  // reader was too slow and its next records are gone.
  bool read(std::string& out, size_t max_bytes);
  // Copies as many whole records as fit into `to`; only for readers of all slots. 0: none fits, or there is
  // none.
  size_t read(std::span<char> to);
  uint64_t next_lsn() const { return next_lsn_; }
  uint64_t offset() const { return offset_; }  // of the next record
  uint64_t lag() const { return backlog_.visible_lsn() + 1 - next_lsn_; }
  uint64_t lag_bytes() const { return backlog_.visible_offset() - offset_; }
  bool is_lost() const { return lost_; }
  Backlog& backlog() const { return backlog_; }

 private:
  friend class Backlog;
  BacklogReader(Backlog& backlog, std::shared_ptr<Backlog::Chunk> chunk, size_t at, uint64_t next_lsn,
                std::unique_ptr<SlotSet> slots);
  bool next_chunk();

  Backlog& backlog_;
  std::shared_ptr<Backlog::Chunk> chunk_;  // empty: there was no chunk yet when the reader was made
  std::atomic<uint64_t> number_;           // of chunk_; without one, of the next chunk to be created
  size_t at_;
  uint64_t offset_, next_lsn_;
  const std::unique_ptr<SlotSet> slots_;  // empty: all slots
  std::atomic<bool> lost_{false};
};

}  // namespace verbena::kv
