#include "kv/journal/log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/error.h"
#include "util/fatal.h"
#include "util/processor/thread_name.h"

namespace verbena::kv {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kRetryNs = kSecondNs / 10;

std::string segment_name(uint64_t first_lsn) {
  char name[64];
  std::snprintf(name, sizeof name, "log-%020llu.vlog", static_cast<unsigned long long>(first_lsn));
  return name;
}

}  // namespace

Log::Log(LogOptions options)
    : options_(std::move(options)),
      directory_(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      lsn_(options_.next_lsn - 1),
      written_lsn_(lsn_),
      marked_lsn_(lsn_),
      durable_(lsn_) {
  if (!options_.sync) options_.sync = [](int fd) { return ::fdatasync(fd); };
  if (!directory_) throw Error("log_failed", "open the log", options_.directory, errno);
  segment_ = begin_segment();
  if (const int error = run_sync_round(make_sync_round())) {
    throw Error("log_failed", "begin a log segment", options_.directory, error);
  }
  new_file_ = false;
  thread_ = std::jthread(
      [this](const std::stop_token& stop) { or_end_process("syncing the log", [&] { run(stop); }); });
}

Log::~Log() { close(); }

Log::Segment Log::begin_segment() {
  Segment segment{.file = {}, .bytes = 0, .first_lsn = lsn_ + 1, .seed = 0};
  const std::string name = segment_name(segment.first_lsn);
  segment.file = UniqueFd(
      ::openat(directory_.get(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!segment.file) throw Error("log_failed", "begin a log segment", name, errno);
  const LogFileHeader header =
      make_header(kLogMagic, segment.first_lsn, durable_lsn(), options_.epoch, unix_ms());
  const ssize_t done = ::pwrite(segment.file.get(), &header, sizeof header, 0);
  if (done != sizeof header) {
    const int error = done < 0 ? errno : ENOSPC;
    ::unlinkat(directory_.get(), name.c_str(), 0);
    throw Error("log_failed", "begin a log segment", name, error);
  }
  ++segments_;
  segment.bytes = sizeof header;
  segment.seed = seed_of(header.id);
  return segment;
}

void Log::reserve(size_t bytes) {
  constexpr size_t kMarkBytes = sizeof(LogRecordHeader);
  bytes += pending_.size() + kMarkBytes;
  if (bytes > pending_.capacity()) pending_.reserve(std::max(bytes, 2 * pending_.capacity()));
}

void Log::append(uint32_t database, Arguments effect) {
  if (closed_ || effect.empty()) return;
  seal_last(!command_ended_);
  if (command_ended_ && pending_.empty() && durable_lsn() > marked_lsn_) put_mark();
  command_ended_ = false;
  if (arguments_bytes(effect) > kLongestRecord) {
    needs_snapshot_ = true;
    fail("an effect is longer than the longest record", EFBIG);
    return;
  }
  last_ = put_record(pending_, lsn_ + 1, options_.epoch, database, 0, effect);
  ++lsn_;
  if (on_effect) on_effect(lsn_, database, effect);
}

void Log::seal_last(bool more) {
  if (last_ == kNone) return;
  seal_record(pending_, last_, segment_.seed, more ? kMore : 0);
  last_ = kNone;
}

void Log::put_mark() {
  marked_lsn_ = durable_lsn();
  seal_record(pending_, put_record(pending_, marked_lsn_, options_.epoch, 0, kMark, {}), segment_.seed);
}

bool Log::fail(std::string what, int error) {
  if (!failing_) ++failures_;
  failing_ = true;
  write_error = "MISCONF Errors writing to the log: " + std::move(what) + ": " + std::strerror(error) +
                ". Write commands are refused until the log can be written; see INFO persistence.";
  return false;
}

bool Log::write_pending() {
  while (written_ < pending_.size()) {
    const ssize_t done = ::pwrite(segment_.file.get(), pending_.data() + written_, pending_.size() - written_,
                                  static_cast<off_t>(segment_.bytes));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fail("write", done < 0 ? errno : ENOSPC);
    written_ += static_cast<size_t>(done);
    segment_.bytes += static_cast<size_t>(done);
    written_bytes_ += static_cast<size_t>(done);
  }
  written_lsn_ = lsn_;
  written_ = 0;
  pending_.clear();
  if (pending_.capacity() > 1u << 20) pending_ = {};
  return true;
}

bool Log::commit() {
  if (last_ == kNone && written_ == pending_.size()) return true;
  seal_last(false);
  command_ended_ = true;
  // While writes are refused, only effects without a client command occur, such as expired keys: they wait
  // for tick().
  if (failing_) return true;
  if (options_.fsync == Fsync::always) return write_pending() && sync_now();
  const uint64_t now = now_ns();
  appended_ns_ = now;
  collect_sync(false);
  if (sync_requested_ && now - sync_requested_ns_ >= options_.slow_sync_ns) {
    ++delayed_;
    collect_sync(true);
  }
  if (failing_ || !write_pending()) return false;
  request_sync(now);
  return true;
}

void Log::request_sync(uint64_t now) {
  if (options_.fsync != Fsync::everysec || sync_requested_) return;
  if (written_lsn_ <= durable_lsn() || now - sync_requested_ns_ < options_.period_ns) return;
  SyncRound round = make_sync_round();
  sync_requested_ = true;
  sync_requested_ns_ = now;
  const std::lock_guard held(mutex_);
  stage_ = Stage::requested;
  round_ = std::move(round);
  changed_.notify_all();
}

// Takes the result of the background sync, if there is one; `wait`: waits for a running sync.
void Log::collect_sync(bool wait) {
  if (!sync_requested_) return;
  std::unique_lock held(mutex_);
  if (wait) changed_.wait(held, [this] { return stage_ != Stage::requested; });
  if (stage_ != Stage::done) return;
  stage_ = Stage::idle;
  sync_requested_ = false;
  const SyncRound round = std::move(round_);
  const int error = round_error_;
  held.unlock();
  finish_sync_round(round, error);
}

void Log::run(const std::stop_token& stop) {
  name_thread("verbena-log");
  std::unique_lock held(mutex_);
  while (changed_.wait(held, stop, [this] { return stage_ == Stage::requested; })) {
    held.unlock();
    const int error = run_sync_round(round_);  // nothing changes the round until its result is collected
    held.lock();
    round_error_ = error;
    stage_ = Stage::done;
    changed_.notify_all();
  }
}

Log::SyncRound Log::make_sync_round() const {
  SyncRound round{.files = {}, .directory = new_file_, .lsn = written_lsn_, .segments = segments_};
  for (const UniqueFd& file : unsynced_segments_) round.files.push_back(file.get());
  round.files.push_back(segment_.file.get());
  return round;
}

int Log::run_sync_round(const SyncRound& round) {
  const uint64_t began = now_ns();
  for (const int file : round.files) {
    if (options_.sync(file) != 0) return errno;
  }
  if (round.directory && ::fsync(directory_.get()) != 0) return errno;
  ++syncs_;
  const uint64_t took = now_ns() - began;
  if (took > longest_sync_ns_.load(std::memory_order_relaxed)) longest_sync_ns_.store(took);
  if (round.lsn > durable_lsn()) durable_.store(round.lsn, std::memory_order_release);
  return 0;
}

bool Log::finish_sync_round(const SyncRound& round, int error) {
  if (error) {
    // After a failed fsync the kernel may have dropped the dirty pages: only a new snapshot is certain to be
    // complete.
    needs_snapshot_ = true;
    return fail("fsync", error);
  }
  unsynced_segments_.erase(unsynced_segments_.begin(),
                           unsynced_segments_.begin() + static_cast<ptrdiff_t>(round.files.size() - 1));
  if (round.directory && round.segments == segments_) new_file_ = false;
  return true;
}

bool Log::sync_now() {
  collect_sync(true);
  const SyncRound round = make_sync_round();
  return finish_sync_round(round, run_sync_round(round));
}

void Log::tick(uint64_t now) {
  if (closed_) return;
  collect_sync(false);
  if (failing_) {
    if (now - retried_ns_ < kRetryNs) return;
    retried_ns_ = now;
    seal_last(false);
    if (needs_snapshot_ || !write_pending()) return;
    if (options_.fsync == Fsync::always && !sync_now()) return;
    failing_ = false;
    write_error.clear();
  }
  request_sync(now);
  if (pending_.empty() && durable_lsn() > marked_lsn_ && now - appended_ns_ > kSecondNs) {
    put_mark();
    write_pending();
  }
}

uint64_t Log::rotate() {
  seal_last(false);
  if (closed_ || !write_pending()) throw Error("log_failed", "begin a log segment", write_error);
  if (lsn_ + 1 == segment_.first_lsn && !needs_snapshot_) return segment_.first_lsn;
  // After a failed sync the old segments are not synced: a snapshot will replace them.
  if (needs_snapshot_) {
    collect_sync(true);
    unsynced_segments_.clear();
  }
  Segment fresh = begin_segment();
  if (!needs_snapshot_) unsynced_segments_.push_back(std::move(segment_.file));
  segment_ = std::move(fresh);
  new_file_ = true;
  if (options_.fsync == Fsync::always && !sync_now()) {
    throw Error("log_failed", "begin a log segment", write_error);
  }
  return segment_.first_lsn;
}

void Log::clear_sync_failure() {
  if (!needs_snapshot_) return;
  needs_snapshot_ = false;
  retried_ns_ = 0;  // the next tick() tries to write again
}

bool Log::flush() {
  if (closed_) return true;
  seal_last(false);
  return write_pending() && sync_now();
}

void Log::close() {
  if (closed_) return;
  if (flush() && durable_lsn() > marked_lsn_) {
    put_mark();
    write_pending();
  }
  closed_ = true;
  thread_ = {};
  segment_.file.reset();
}

void Log::set_fsync(Fsync policy) {
  options_.fsync = policy;
  if (policy == Fsync::always) flush();
}

LogCounters Log::counters() const {
  const std::lock_guard held(mutex_);
  return {.lsn = lsn_,
          .durable_lsn = durable_lsn(),
          .segment_bytes = segment_.bytes,
          .segment_first_lsn = segment_.first_lsn,
          .written_bytes = written_bytes_,
          .syncs = syncs_.load(),
          .delayed_syncs = delayed_,
          .failures = failures_,
          .longest_sync_ns = longest_sync_ns_.load(),
          .pending_bytes = pending_.size() - written_,
          .syncing = stage_ == Stage::requested,
          .needs_snapshot = needs_snapshot_};
}

}  // namespace verbena::kv
