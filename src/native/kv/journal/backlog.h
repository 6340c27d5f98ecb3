// The log's latest records in memory, for those who follow it: replicas, and shards on the move. They are the
// records of the disk, in the same format, with the same LSNs; only what their checksum begins from differs.
// Whoever holds the engine's lock appends; readers read without it.
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
  uint64_t lsn = 0;     // the last one so far; the log's, if there is one
  uint64_t offset = 0;  // how many bytes came before
  uint32_t epoch = 1;
  size_t keep_bytes = 16u << 20;   // for those who come back after a while
  size_t hold_bytes = 256u << 20;  // for those who are here and behind; then they are left behind
};

class Backlog final : public Journal {
 public:
  explicit Backlog(const BacklogOptions& options);

  // With the engine's lock.
  void append(uint32_t database, Arguments effect) override;
  void boundary() override { last_ = nullptr; }
  uint64_t position() const override { return lsn_; }
  uint64_t written_offset() const { return offset_; }  // that of position(), visible or not yet
  bool commit() override;
  void tick(uint64_t now) override;
  // The log on disk, which gives the LSNs while it is there. One that is not where we are begins another
  // history: all readers are lost.
  void set_log(Journal* log);
  // What has happened can be read by readers. Between commands only.
  void publish();
  // Whoever has the engine looks after some readers before it gives it back: they need not be woken.
  void set_served_by_loop(bool attended) { attended_ = attended; }
  void set_limits(size_t keep_bytes, size_t hold_bytes);
  void set_epoch(uint32_t epoch) { epoch_ = epoch; }
  uint32_t epoch() const { return epoch_; }
  // Nobody who followed can go on from where he was.
  void forget();
  // The same, and bytes are counted from here on.
  void count_from(uint64_t offset);
  // From this LSN on; empty: it is not there any more, or not yet.
  std::unique_ptr<BacklogReader> read_from(uint64_t from_lsn, std::unique_ptr<SlotSet> slots = nullptr);

  // From any thread.
  uint64_t visible_lsn() const { return visible_lsn_.load(std::memory_order_acquire); }
  // Bytes of all records up to there: the position that INFO tells.
  uint64_t visible_offset() const { return visible_.load(std::memory_order_acquire); }
  struct Range {
    uint64_t first_lsn, first_offset, bytes;  // what is kept
  };
  Range kept() const;
  // Returns when there is more than this, or at the deadline, or when all were woken since wakes() was this.
  // `attended`: or when somebody publishes who does not look after readers himself.
  void wait_beyond(uint64_t offset, uint64_t deadline_ns, uint64_t wakes, bool attended = false);
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
    std::atomic<size_t> used{0};  // final before anything behind it is visible
    const std::unique_ptr<char[]> bytes;
  };
  static constexpr size_t kChunkBytes = 64u << 10;
  static constexpr size_t kFetchBytes = 256;

  void seal();  // gives the records that have no checksum yet theirs
  Chunk& chunk_for(size_t bytes);
  void trim();  // with the mutex

  Journal* log_ = nullptr;
  uint64_t lsn_, offset_;
  uint32_t epoch_;
  size_t keep_bytes_, hold_bytes_;
  bool attended_ = false;
  char* last_ = nullptr;  // the record that the next one may belong to
  uint64_t next_chunk_ = 0;
  std::shared_ptr<Chunk> filling_;
  size_t sealed_ = 0;  // of its bytes
  std::atomic<uint64_t> visible_lsn_, visible_;

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> chunks_;
  size_t kept_bytes_ = 0;
  std::vector<BacklogReader*> readers_;
  std::condition_variable changed_;
  std::atomic<uint32_t> sleepers_{0}, attended_sleepers_{0};
  std::atomic<uint64_t> wakes_{0};  // written with the mutex
};

// Somebody's place in the backlog. One thread at a time; the backlog must outlive it.
class BacklogReader {
 public:
  ~BacklogReader();
  // Appends whole records to `out`, up to `max_bytes` unless the first alone is longer; false: they are gone,
  // as this reader was too slow.
  bool read(std::string& out, size_t max_bytes);
  // The same to memory, for readers of all slots: as many whole records as fit. 0: none does, or there are
  // none.
  size_t read(std::span<char> to);
  uint64_t next_lsn() const { return next_lsn_; }
  uint64_t offset() const { return offset_; }  // of what comes next
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
  std::shared_ptr<Backlog::Chunk> chunk_;  // empty: nothing had been written when it began
  std::atomic<uint64_t> number_;           // of the chunk, or of the first one
  size_t at_;
  uint64_t offset_, next_lsn_;
  const std::unique_ptr<SlotSet> slots_;  // empty: all
  std::atomic<bool> lost_{false};
};

}  // namespace verbena::kv
