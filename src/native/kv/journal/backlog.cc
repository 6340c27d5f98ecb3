#include "kv/journal/backlog.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "util/clock.h"
#include "util/fatal.h"
#include "util/prefetch.h"

namespace verbena::kv {

Backlog::Backlog(const BacklogOptions& options)
    : lsn_(options.lsn),
      offset_(options.offset),
      epoch_(options.epoch),
      keep_bytes_(options.keep_bytes),
      max_bytes_(options.max_bytes),
      visible_lsn_(options.lsn),
      visible_(options.offset) {}

void Backlog::append(uint32_t database, Arguments effect) {
  if (effect.empty()) return;
  if (log_) {
    const uint64_t before = log_->position();
    log_->append(database, effect);
    // The log on disk did not take the record: readers would miss it without noticing.
    if (log_->position() == before) return discard_all();
    lsn_ = log_->position();
  } else {
    ++lsn_;
  }
  if (last_) last_[offsetof(LogRecordHeader, flags)] |= static_cast<char>(kMore);
  const size_t length = arguments_bytes(effect);
  if (length > kLongestRecord) return discard_all();
  const size_t bytes = sizeof(LogRecordHeader) + padded(length);
  Chunk* const chunk = chunk_for(bytes);
  if (!chunk) {
    offset_ += bytes;  // a replica that has everything before this record must not continue after it
    report("keeping a record for replicas", "replicas copy everything again", "not enough memory");
    return discard_all();
  }
  const size_t used = chunk->used.load(std::memory_order_relaxed);
  last_ = chunk->bytes.get() + used;
  write_record(last_, lsn_, epoch_, database, 0, effect, length);
  // Prefetches the memory for the next records, which is new or was last used long ago, and so is not in the
  // cache.
  for (size_t at = 0; at < std::min(bytes, kPrefetchBytes); at += 64)
    prefetch_for_write(last_ + kPrefetchBytes + at);
  chunk->used.store(used + bytes, std::memory_order_relaxed);
  offset_ += bytes;
}

// append() computes no checksums: reading bytes that are still in the CPU's store buffer would stall until
// the stores before them are done.
void Backlog::seal() {
  if (!filling_) return;
  const size_t used = filling_->used.load(std::memory_order_relaxed);
  while (sealed_ < used) sealed_ += seal_record(filling_->bytes.get() + sealed_, kStreamSeed);
}

Backlog::Chunk* Backlog::chunk_for(size_t bytes) {
  if (filling_ && filling_->capacity - filling_->used.load(std::memory_order_relaxed) >= bytes) {
    return filling_.get();
  }
  seal();
  const std::lock_guard held(mutex_);
  try {
    auto fresh = std::make_shared<Chunk>(next_chunk_, lsn_, offset_, std::max(bytes, kChunkBytes));
    chunks_.push_back(fresh);
    filling_ = std::move(fresh);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  ++next_chunk_;
  sealed_ = 0;
  kept_bytes_ += filling_->capacity;
  trim();
  return filling_.get();
}

// Keeps the newest chunk, and up to max_bytes_ the chunks that a reader has not read yet.
void Backlog::trim() {
  while (chunks_.size() > 1 && kept_bytes_ - chunks_.front()->capacity >= keep_bytes_) {
    const uint64_t oldest = chunks_.front()->number;
    const bool needed = std::any_of(readers_.begin(), readers_.end(), [&](const BacklogReader* reader) {
      return !reader->is_lost() && reader->number_.load(std::memory_order_relaxed) <= oldest;
    });
    if (needed && kept_bytes_ <= max_bytes_) return;
    kept_bytes_ -= chunks_.front()->capacity;
    chunks_.pop_front();
  }
}

void Backlog::publish() {
  last_ = nullptr;
  seal();
  if (visible_.load(std::memory_order_relaxed) == offset_) return;
  visible_lsn_.store(lsn_, std::memory_order_release);
  // seq_cst, as in wait_for_records(): either the waiter sees this offset, or this thread sees the waiter.
  visible_.store(offset_, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) != 0 ||
      (!served_by_loop_ && loop_served_waiters_.load(std::memory_order_seq_cst) != 0)) {
    wake_all();
  }
}

bool Backlog::commit() {
  const bool kept = !log_ || log_->commit();
  publish();
  return kept;
}

void Backlog::tick(uint64_t now) {
  if (log_) log_->tick(now);
}

void Backlog::set_log(Journal* log) {
  publish();
  log_ = log;
  if (!log || log->position() == lsn_) return;
  lsn_ = log->position();
  visible_lsn_.store(lsn_, std::memory_order_release);
  discard_all();
}

void Backlog::set_limits(size_t keep_bytes, size_t max_bytes) {
  const std::lock_guard held(mutex_);
  keep_bytes_ = keep_bytes;
  max_bytes_ = std::max(max_bytes, keep_bytes);
  trim();
}

void Backlog::discard_all() {
  last_ = nullptr;
  filling_ = nullptr;
  sealed_ = 0;
  {
    const std::lock_guard held(mutex_);
    for (BacklogReader* reader : readers_) reader->lost_.store(true, std::memory_order_release);
    chunks_.clear();
    kept_bytes_ = 0;
  }
  visible_lsn_.store(lsn_, std::memory_order_release);
  visible_.store(offset_, std::memory_order_release);
  wake_all();
}

void Backlog::restart_at(uint64_t offset) {
  offset_ = offset;
  discard_all();
}

std::unique_ptr<BacklogReader> Backlog::read_from(uint64_t from_lsn, std::unique_ptr<SlotSet> slots) {
  publish();
  std::shared_ptr<Chunk> chunk;
  size_t at = 0;
  const std::lock_guard held(mutex_);
  if (from_lsn == lsn_ + 1) {
    if (!chunks_.empty()) {
      chunk = chunks_.back();
      at = chunk->used.load(std::memory_order_relaxed);
    }
  } else {
    if (from_lsn > lsn_ || chunks_.empty() || from_lsn < chunks_.front()->first_lsn) return nullptr;
    chunk = *std::prev(
        std::upper_bound(chunks_.begin(), chunks_.end(), from_lsn,
                         [](uint64_t lsn, const auto& candidate) { return lsn < candidate->first_lsn; }));
    for (LogRecordHeader header;; at += sizeof header + padded(header.length)) {
      std::memcpy(&header, chunk->bytes.get() + at, sizeof header);
      if (header.lsn >= from_lsn) break;
    }
  }
  std::unique_ptr<BacklogReader> reader(
      new BacklogReader(*this, std::move(chunk), at, from_lsn, std::move(slots)));
  readers_.push_back(reader.get());
  return reader;
}

Backlog::Range Backlog::kept() const {
  const std::lock_guard held(mutex_);
  const uint64_t end = visible_offset();
  if (chunks_.empty()) return {visible_lsn() + 1, end, 0};
  const Chunk& first = *chunks_.front();
  return {first.first_lsn, first.first_offset, end - first.first_offset};
}

void Backlog::wait_for_records(uint64_t offset, uint64_t deadline_ns, uint64_t wakes, bool served_by_loop) {
  std::atomic<uint32_t>& waiters = served_by_loop ? loop_served_waiters_ : waiters_;
  waiters.fetch_add(1, std::memory_order_seq_cst);
  std::unique_lock held(mutex_);
  while (visible_.load(std::memory_order_seq_cst) <= offset && wakes_ == wakes) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) break;
    changed_.wait_for(held, std::chrono::nanoseconds(deadline_ns - now));
  }
  waiters.fetch_sub(1, std::memory_order_relaxed);
}

void Backlog::wake_all() {
  const std::lock_guard held(mutex_);
  ++wakes_;
  changed_.notify_all();
}

BacklogReader::BacklogReader(Backlog& backlog, std::shared_ptr<Backlog::Chunk> chunk, size_t at,
                             uint64_t next_lsn, std::unique_ptr<SlotSet> slots)
    : backlog_(backlog),
      chunk_(std::move(chunk)),
      number_(chunk_ ? chunk_->number : backlog.next_chunk_),
      at_(at),
      offset_(chunk_ ? chunk_->first_offset + at : backlog.offset_),
      next_lsn_(next_lsn),
      slots_(std::move(slots)) {}

BacklogReader::~BacklogReader() {
  const std::lock_guard held(backlog_.mutex_);
  std::erase(backlog_.readers_, this);
  backlog_.trim();
}

bool BacklogReader::next_chunk() {
  const std::lock_guard held(backlog_.mutex_);
  const uint64_t wanted = chunk_ ? chunk_->number + 1 : number_.load(std::memory_order_relaxed);
  if (backlog_.chunks_.empty() || wanted < backlog_.chunks_.front()->number) {
    lost_ = true;
    return false;
  }
  chunk_ = backlog_.chunks_[wanted - backlog_.chunks_.front()->number];
  number_ = wanted;
  at_ = 0;
  return true;
}

bool BacklogReader::read(std::string& out, size_t max_bytes) {
  const uint64_t visible = backlog_.visible_offset();
  const size_t before = out.size();
  while (!lost_.load(std::memory_order_acquire) && offset_ < visible) {
    if (!chunk_ || at_ == chunk_->used.load(std::memory_order_relaxed)) {
      if (!next_chunk()) break;
      continue;
    }
    const char* record = chunk_->bytes.get() + at_;
    LogRecordHeader header;
    std::memcpy(&header, record, sizeof header);
    const size_t bytes = sizeof header + padded(header.length);
    const bool wanted = !slots_ || header.slot == kNoSlot || slots_->test(header.slot);
    if (wanted) {
      if (out.size() > before && out.size() - before + bytes > max_bytes) break;
      out.append(record, bytes);
      // This reader gets only some records of a command on several slots, so the receiver must not wait for
      // the rest.
      if (slots_ && header.flags & kMore) {
        header.flags &= static_cast<uint8_t>(~kMore);
        char* copy = out.data() + out.size() - bytes;
        std::memcpy(copy, &header, sizeof header);
        seal_record(copy, kStreamSeed, 0);
      }
    }
    at_ += bytes;
    offset_ += bytes;
    next_lsn_ = header.lsn + 1;
  }
  return !lost_.load(std::memory_order_acquire);
}

size_t BacklogReader::read(std::span<char> to) {
  const uint64_t visible = backlog_.visible_offset();
  size_t read = 0;
  while (!lost_.load(std::memory_order_acquire) && offset_ < visible) {
    if (!chunk_ || at_ == chunk_->used.load(std::memory_order_relaxed)) {
      if (!next_chunk()) break;
      continue;
    }
    const char* const from = chunk_->bytes.get() + at_;
    const size_t there = chunk_->used.load(std::memory_order_relaxed) - at_;
    const size_t most = std::min({static_cast<size_t>(visible - offset_), there, to.size() - read});
    size_t run = 0;
    for (LogRecordHeader header; run + sizeof header <= most;) {
      std::memcpy(&header, from + run, sizeof header);
      const size_t bytes = sizeof header + padded(header.length);
      if (bytes > most - run) break;
      run += bytes;
      next_lsn_ = header.lsn + 1;
    }
    if (run == 0) break;
    std::memcpy(to.data() + read, from, run);
    read += run;
    at_ += run;
    offset_ += run;
  }
  return read;
}

}  // namespace verbena::kv
