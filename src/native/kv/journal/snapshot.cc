#include "kv/journal/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/error.h"
#include "util/processor/thread_name.h"

namespace verbena::kv {

Snapshot::Snapshot(Engine& engine, Log& log, const std::string& path, uint32_t epoch)
    : engine_(engine),
      log_(log),
      epoch_(epoch),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR)),
      progress_(engine.keyspace.databases()) {
  if (!file_) throw Error("log_failed", "begin a snapshot", path, errno);
  first_lsn_ = log_.rotate();
  const LogFileHeader header =
      make_header(kSnapshotMagic, first_lsn_, log_.durable_lsn(), epoch, engine.keyspace.now_ms());
  seed_ = seed_of(header.id);
  filling_.assign(reinterpret_cast<const char*>(&header), sizeof header);
  for (uint32_t i = 0; i < engine.keyspace.databases(); ++i) origin_.push_back(i);
  log_.on_effect = [this](uint64_t lsn, uint32_t database, Arguments effect) {
    or_fail([&] { record_effect(lsn, database, effect); });
  };
  thread_ = std::jthread([this](const std::stop_token& stop) { or_fail([&] { run(stop); }); });
}

Snapshot::~Snapshot() {
  fail("the snapshot was cancelled");
  log_.on_effect = nullptr;
  if (engine_.background == this) engine_.background = nullptr;
}

// Observes effects while the snapshot is made. Deleted keys and flushed databases are recorded among the
// values, so that recovery does not replay earlier log records on keys that no longer exist.
void Snapshot::record_effect(uint64_t lsn, uint32_t database, Arguments effect) {
  if (state() != State::scanning) return;
  const DatabaseEffect apply_database_effect = database_effect(effect[0]);
  if (apply_database_effect == DatabaseEffect::none) {
    if (effect.size() < 2 || effect[0] == "SET" || engine_.keyspace.database(database).contains(effect[1]))
      return;
    const std::string_view gone[] = {"DEL", effect[1]};
    return put(lsn, origin_[database], 0, gone);
  }
  if (apply_database_effect == DatabaseEffect::swap) {
    const auto one = effect.size() == 3 ? parse_integer(effect[1]) : std::nullopt;
    const auto other = effect.size() == 3 ? parse_integer(effect[2]) : std::nullopt;
    const auto count = static_cast<int64_t>(origin_.size());
    if (!one || !other || *one < 0 || *other < 0 || *one >= count || *other >= count) {
      return fail("SWAPDB with invalid database numbers");
    }
    std::swap(progress_[static_cast<size_t>(*one)], progress_[static_cast<size_t>(*other)]);
    std::swap(origin_[static_cast<size_t>(*one)], origin_[static_cast<size_t>(*other)]);
    return;
  }
  const std::string_view flush[] = {apply_database_effect == DatabaseEffect::flush ? "FLUSHDB" : "FLUSHALL"};
  put(lsn, origin_[database], 0, flush);
}

bool Snapshot::work(uint64_t deadline_ns) {
  or_fail([&] { scan(deadline_ns); });
  return state() == State::scanning;
}

void Snapshot::scan(uint64_t deadline_ns) {
  if (state() != State::scanning) return;
  const uint64_t began = now_ns();
  uint32_t number = 0;
  while (number < progress_.size() && state() == State::scanning) {
    Progress& progress = progress_[number];
    if (progress.done()) {
      ++number;
      continue;
    }
    scan_step(number, progress);
    if (now_ns() >= deadline_ns || is_full()) break;
  }
  if (number == progress_.size() && state() == State::scanning) {
    const uint64_t count = records();
    const std::string_view last[] = {{reinterpret_cast<const char*>(&count), sizeof count}};
    last_lsn_ = log_.position();
    put(last_lsn_, 0, kEnd, last);
    state_ = State::writing;
    push(true);
  } else if (filling_.size() >= kPieceBytes) {
    push(false);
  }
  slices_.fetch_add(1, std::memory_order_relaxed);
  longest_slice_ns_ = std::max(longest_slice_ns_.load(), now_ns() - began);
}

// Writes the strings of one bucket, or a part of one Python value. Recovery skips the log records of that key
// up to the LSN of the last part, because the parts already contain their changes.
void Snapshot::scan_step(uint32_t number, Progress& progress) {
  if (!progress.pending_values.empty()) {
    ValueCopy& copy = progress.pending_values.front();
    const auto write = [&](Arguments arguments) { put(log_.position(), origin_[number], 0, arguments); };
    if (copy.step(engine_, engine_.keyspace.database(number), write)) return;
    if (!copy.error().empty()) fail(copy.error());
    return progress.pending_values.pop_front();
  }
  if (!engine_.keyspace.exists(number)) return (void)(progress.scanned = true);
  const uint64_t lsn = log_.position();
  progress.cursor = engine_.keyspace.database(number).scan(progress.cursor, 8, [&](Entry entry) {
    if (entry.type() != Type::string)
      return (void)progress.pending_values.emplace_back(std::string(entry.key()));
    if (entry.expires_ms() == 0) {
      const std::string_view arguments[] = {"SET", entry.key(), entry.value()};
      return put(lsn, origin_[number], 0, arguments);
    }
    const std::string when = std::to_string(entry.expires_ms());
    const std::string_view arguments[] = {"SET", entry.key(), entry.value(), "PXAT", when};
    put(lsn, origin_[number], 0, arguments);
  });
  progress.scanned = progress.cursor == 0;
}

void Snapshot::put(uint64_t lsn, uint32_t database, uint8_t flags, Arguments arguments) {
  seal_record(filling_, put_record(filling_, lsn, epoch_, database, flags, arguments), seed_);
  if (!(flags & kEnd)) records_.fetch_add(1, std::memory_order_relaxed);
  if (filling_.size() >= kPieceBytes) push(false);
}

void Snapshot::push(bool last) {
  const std::lock_guard held(mutex_);
  queued_bytes_ += filling_.size();
  queue_.push_back(std::exchange(filling_, {}));
  if (!last) filling_.reserve(kPieceBytes + (kPieceBytes >> 2));
  last_queued_ = last;
  changed_.notify_all();
}

bool Snapshot::is_full() {
  const std::lock_guard held(mutex_);
  return queued_bytes_ > kQueuedBytes;
}

template <typename Function>
void Snapshot::or_fail(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    std::string why;
    try {
      why = std::string("not completed: ") + error.what();
    } catch (const std::bad_alloc&) {
      why = "no memory";  // short enough to need none
    }
    fail(std::move(why));
  }
}

void Snapshot::fail(std::string why) {
  const std::lock_guard held(mutex_);
  if (state_ == State::failed || state_ == State::done) return;
  error_ = std::move(why);
  state_ = State::failed;
  changed_.notify_all();
}

std::string Snapshot::error() const {
  const std::lock_guard held(mutex_);
  return error_;
}

bool Snapshot::finish() {
  while (state() == State::scanning) {
    if (!work(now_ns() + 50'000'000)) break;
    std::unique_lock held(mutex_);
    changed_.wait(held, [this] { return queued_bytes_ <= kQueuedBytes || state_ == State::failed; });
  }
  std::unique_lock held(mutex_);
  changed_.wait(held, [this] { return state_ == State::done || state_ == State::failed; });
  return state_ == State::done;
}

// Writes on its own thread, so that a slow disk does not delay commands.
void Snapshot::run(const std::stop_token& stop) {
  name_thread("verbena-snap");
  std::unique_lock held(mutex_);
  while (changed_.wait(held, stop, [this] { return !queue_.empty() || state_ == State::failed; })) {
    if (state_ == State::failed) return;
    const std::string piece = std::move(queue_.front());
    queue_.pop_front();
    const bool last = last_queued_ && queue_.empty();
    held.unlock();
    std::string why;
    for (size_t done = 0; done < piece.size() && why.empty();) {
      const ssize_t wrote = ::write(file_.get(), piece.data() + done, piece.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) why = std::string("write: ") + std::strerror(wrote < 0 ? errno : ENOSPC);
      done += static_cast<size_t>(std::max<ssize_t>(wrote, 0));
    }
    if (last && why.empty() && ::fdatasync(file_.get()) != 0)
      why = std::string("fsync: ") + std::strerror(errno);
    bytes_.fetch_add(piece.size(), std::memory_order_relaxed);
    if (!why.empty()) return fail(why);
    held.lock();
    queued_bytes_ -= piece.size();
    if (last) state_ = State::done;
    changed_.notify_all();
    if (last) return;
  }
}

}  // namespace verbena::kv
