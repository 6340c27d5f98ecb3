#include "kv/journal/base_copy.h"

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c/crc32c.h"

namespace verbena::kv {

// The destination of records.
class BaseCopy::Sink {
 public:
  virtual ~Sink() = default;
  virtual char* claim(size_t bytes) = 0;
  // Puts a record whose long value stays in the store's memory; false: this sink cannot do that.
  virtual bool put_with_hole(uint64_t /*lsn*/, uint32_t /*epoch*/, uint32_t /*database*/, uint8_t /*flags*/,
                             Arguments /*arguments*/, size_t /*length*/) {
    return false;
  }
  virtual size_t size() const = 0;
  // False: a record with a value of `value_bytes` should begin the next piece.
  virtual bool accepts(size_t /*value_bytes*/) { return true; }
};

namespace {

constexpr size_t kValueArgument = 2;  // the position of the value in SET's arguments
constexpr size_t kLongValueBytes =
    8u << 10;  // strings from this length on are written one by one, so that a piece can end between them

template <typename Sink>
class StringSink final : public Sink {
 public:
  explicit StringSink(std::string& out) : out_(out) {}
  char* claim(size_t bytes) override {
    const size_t at = out_.size();
    out_.resize(at + bytes);
    return out_.data() + at;
  }
  size_t size() const override { return out_.size(); }

 private:
  std::string& out_;
};

}  // namespace

// Writes into the piece while there is room, then into `overflow`.
class BaseCopy::PieceSink final : public Sink {
 public:
  PieceSink(CopyPiece& piece, bool leave_holes, const Arena& arena, std::string& overflow,
            size_t& overflow_from)
      : piece_(piece),
        leave_holes_(leave_holes),
        arena_(arena),
        overflow_(overflow),
        overflow_from_(overflow_from) {}
  char* claim(size_t bytes) override {
    if (overflow_.empty() && bytes <= room()) {
      piece_.used += bytes;
      return piece_.to.data() + piece_.used - bytes;
    }
    const size_t at = overflow_.size();
    overflow_.resize(at + bytes);
    return overflow_.data() + at;
  }
  size_t size() const override { return piece_.used + overflow_.size(); }

  // A record that is cut costs several extra copies at both ends; leaving a little room unused costs less.
  bool accepts(size_t value_bytes) override {
    if (!overflow_.empty() || value_bytes + kRecordOverhead <= room() || room() > piece_.to.size() / 8)
      return true;
    piece_.to = piece_.to.first(piece_.used);
    return false;
  }

  bool put_with_hole(uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags, Arguments arguments,
                     size_t length) override {
    if (!leave_holes_ || !overflow_.empty()) return false;
    const char* const value = arguments[kValueArgument].data();
    const std::span<std::byte> chunk = arena_.chunk_around(value);
    const size_t bytes = sizeof(LogRecordHeader) + padded(length), start = piece_.used;
    if (bytes <= room()) {
      const RecordHole hole = write_record_with_hole(piece_.to.data() + start, lsn, epoch, database, flags,
                                                     arguments, length, kValueArgument);
      piece_.holes.push_back({start + hole.at, hole.bytes, value, chunk, start, bytes});
      piece_.used += bytes;
      return true;
    }
    // The record continues in the next piece, so it needs its checksum now.
    const size_t head =
        sizeof(LogRecordHeader) + arguments_bytes(arguments.first(kValueArgument)) + sizeof(uint32_t);
    if (room() <= head) return false;
    overflow_.resize(bytes);
    const RecordHole hole = write_record_with_hole(overflow_.data(), lsn, epoch, database, flags, arguments,
                                                   length, kValueArgument);
    seal_record_with_hole(overflow_.data(), bytes, hole, crc32c(0, value, hole.bytes), kStreamSeed);
    std::memcpy(piece_.to.data() + start, overflow_.data(), head);
    const size_t here = std::min(room() - head, hole.bytes);
    piece_.holes.push_back({start + head, here, value, chunk, 0, 0});
    piece_.used += head + here;
    std::memcpy(overflow_.data() + head + here, value + here, hole.bytes - here);
    overflow_from_ = head + here;
    return true;
  }

 private:
  static constexpr size_t kRecordOverhead =
      512;  // header and arguments other than the value; more only for a very long key
  size_t room() const { return piece_.to.size() - piece_.used; }

  CopyPiece& piece_;
  const bool leave_holes_;
  const Arena& arena_;
  std::string& overflow_;
  size_t& overflow_from_;
};

BaseCopy::BaseCopy(Engine& engine, Backlog& backlog, std::unique_ptr<SlotSet> slots)
    : engine_(engine),
      backlog_(backlog),
      slots_(slots ? std::make_unique<SlotSet>(*slots) : nullptr),
      reader_(backlog.read_from(backlog.position() + 1, std::move(slots))),
      progress_(engine.keyspace.databases()) {
  for (uint32_t i = 0; i < progress_.size(); ++i) {
    if (engine.keyspace.exists(i)) keys_ += engine.keyspace.database(i).size();
  }
}

double BaseCopy::fraction() const {
  if (complete_ || keys_ == 0) return complete_ ? 1 : 0;
  return std::min(1.0, static_cast<double>(copied_) / static_cast<double>(keys_));
}

// True: the log is copied up to its end, so that values may follow.
bool BaseCopy::copy_log(Sink& out, size_t max_bytes) {
  backlog_.publish();
  log_.clear();
  if (!reader_->read(log_, max_bytes)) {
    error_ = "the log grew faster than the copy read it";
    return false;
  }
  forward_log(out, log_);
  return reader_->offset() == backlog_.visible_offset();
}

// A log record of a key whose value is being sent in parts is not for the receiver, which has only some of
// the parts: the remaining parts will contain the result. TOUCH takes its place, because other records of the
// same command may be chained to it (kMore).
void BaseCopy::forward_log(Sink& out, std::string_view records) {
  LogRecordHeader header;
  for (; !records.empty(); records.remove_prefix(sizeof header + padded(header.length))) {
    std::memcpy(&header, records.data(), sizeof header);
    const std::string_view record = records.substr(0, sizeof header + padded(header.length));
    if (is_being_copied(header, record)) {
      const std::string_view arguments[] = {"TOUCH", progress_[header.database].long_values.front().key()};
      const size_t length = arguments_bytes(arguments);
      char* const to = out.claim(sizeof header + padded(length));
      write_sealed_record(to, header.lsn, header.epoch, header.database, header.flags, arguments, length,
                          kStreamSeed);
      continue;
    }
    char* const to = out.claim(record.size());
    std::memcpy(to, record.data(), record.size());
    if (header.slot == kNoSlot) apply_swap(record);
  }
}

bool BaseCopy::is_being_copied(const LogRecordHeader& header, std::string_view record) const {
  if (header.slot == kNoSlot || header.database >= progress_.size()) return false;
  const auto& long_values = progress_[header.database].long_values;
  if (long_values.empty() || !long_values.front().has_begun()) return false;
  std::vector<std::string_view> arguments;
  return parse_arguments(record.substr(sizeof header, header.length), arguments) && arguments.size() > 1 &&
         arguments[1] == long_values.front().key();
}

// SWAPDB: the scan progress of a database moves to its new number.
void BaseCopy::apply_swap(std::string_view record) {
  LogRecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  std::vector<std::string_view> arguments;
  if (!parse_arguments(record.substr(sizeof header, header.length), arguments) || arguments.size() < 3)
    return;
  if (database_effect(arguments[0]) != DatabaseEffect::swap) return;
  const auto one = parse_integer(arguments[1]), other = parse_integer(arguments[2]);
  const auto count = static_cast<int64_t>(progress_.size());
  if (!one || !other || *one < 0 || *other < 0 || *one >= count || *other >= count) return;
  std::swap(progress_[static_cast<size_t>(*one)], progress_[static_cast<size_t>(*other)]);
}

bool BaseCopy::read(std::string& out, size_t max_bytes) {
  StringSink<Sink> sink(out);
  return read(sink, max_bytes);
}

void BaseCopy::fill(CopyPiece& piece, size_t enough, bool leave_holes) {
  const size_t before = piece.used, room = piece.to.size() - before;
  drain_overflow(piece);
  const size_t taken = piece.used - before;
  if (!overflow_.empty() || taken == room || taken >= enough || complete_) return;
  PieceSink sink(piece, leave_holes, engine_.keyspace.arena(), overflow_, overflow_from_);
  read(sink, std::min(enough, room) - taken);
  drain_overflow(piece);
}

void BaseCopy::drain_overflow(CopyPiece& piece) {
  if (overflow_.empty()) return;
  const size_t taken = std::min(piece.to.size() - piece.used, overflow_.size() - overflow_from_);
  std::memcpy(piece.to.data() + piece.used, overflow_.data() + overflow_from_, taken);
  piece.used += taken;
  overflow_from_ += taken;
  if (overflow_from_ < overflow_.size()) return;
  overflow_.clear();
  overflow_from_ = 0;
}

bool BaseCopy::read(Sink& out, size_t max_bytes) {
  if (complete_ || !error_.empty()) return false;
  const size_t enough = out.size() + max_bytes;
  if (!copy_log(out, max_bytes)) return error_.empty();
  constexpr uint64_t kBudgetNs = 1'000'000;
  const uint64_t deadline = now_ns() + kBudgetNs;
  uint32_t number = 0, scans = 0;
  while (number < progress_.size() && error_.empty()) {
    Progress& progress = progress_[number];
    if (progress.done()) {
      ++number;
    } else {
      const bool is_long = !progress.long_values.empty();
      if (out.size() >= enough || ((++scans % 16 == 0 || is_long) && now_ns() >= deadline)) return true;
      if (!scan_step(out, number, progress)) return true;
    }
  }
  if (!error_.empty()) return false;
  const uint64_t offset = reader_->offset();
  const std::string_view last[] = {{reinterpret_cast<const char*>(&values_), sizeof values_},
                                   {reinterpret_cast<const char*>(&offset), sizeof offset}};
  put(out, 0, kEnd, last);
  complete_ = true;
  return false;
}

// Writes the short strings of a bucket, one long string, or a part of a Python value. False: the record
// should begin the next piece.
bool BaseCopy::scan_step(Sink& out, uint32_t number, Progress& progress) {
  if (!progress.long_values.empty()) {
    ValueCopy& copy = progress.long_values.front();
    Database& database = engine_.keyspace.database(number);
    const Entry entry = database.peek(copy.key());
    if (entry.type() == Type::string && !out.accepts(entry.value().size())) return false;
    const auto write = [&](Arguments arguments) { put(out, number, kValueRecord, arguments); };
    if (copy.step(engine_, database, write)) return true;
    error_ = copy.error();
    ++copied_;
    progress.long_values.pop_front();
    return true;
  }
  if (!engine_.keyspace.exists(number)) return progress.scanned = true;
  progress.cursor = engine_.keyspace.database(number).scan(progress.cursor, 8, [&](Entry entry) {
    if (!is_selected(entry.key())) return;
    if (entry.type() != Type::string || entry.value().size() >= kLongValueBytes) {
      return (void)progress.long_values.emplace_back(std::string(entry.key()));
    }
    const std::string when = entry.expires_ms() ? std::to_string(entry.expires_ms()) : std::string();
    const std::string_view arguments[] = {"SET", entry.key(), entry.value(), "PXAT", when};
    put(out, number, kValueRecord, Arguments(arguments).first(entry.expires_ms() ? 5 : 3));
    ++copied_;
  });
  progress.scanned = progress.cursor == 0;
  return true;
}

void BaseCopy::put(Sink& out, uint32_t database, uint8_t flags, Arguments arguments) {
  const size_t length = arguments_bytes(arguments);
  values_ += (flags & kValueRecord) != 0;
  const uint64_t lsn = backlog_.position();
  // Only the values of strings lie in the store's memory.
  if (arguments.size() > kValueArgument && arguments[0] == "SET" &&
      arguments[kValueArgument].size() >= kLongValueBytes &&
      out.put_with_hole(lsn, backlog_.epoch(), database, flags, arguments, length)) {
    return;
  }
  write_sealed_record(out.claim(sizeof(LogRecordHeader) + padded(length)), lsn, backlog_.epoch(), database,
                      flags, arguments, length, kStreamSeed);
}

}  // namespace verbena::kv
