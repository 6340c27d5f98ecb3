#include "kv/journal/base_copy.h"

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c.h"

namespace verbena::kv {

// Where records go.
class BaseCopy::Sink {
 public:
  virtual ~Sink() = default;
  virtual char* claim(size_t bytes) = 0;
  // A record with a long value that stays where it is, if the sink can do with that.
  virtual bool put_around(uint64_t /*lsn*/, uint32_t /*epoch*/, uint32_t /*database*/, uint8_t /*flags*/,
                          Arguments /*words*/, size_t /*length*/) {
    return false;
  }
  virtual size_t size() const = 0;
  // False: a record with a long value of so many bytes had better be the next piece's first.
  virtual bool takes(size_t /*value_bytes*/) { return true; }
};

namespace {

constexpr size_t kValue = 2;  // the word of SET's that is the value
constexpr size_t kLongValue =
    8u << 10;  // so long strings are written one by one: a piece may end between them

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

// Into memory while there is room, then into `rest`.
class BaseCopy::PieceSink final : public Sink {
 public:
  PieceSink(CopyPiece& piece, bool around, const Arena& arena, std::string& rest, size_t& rest_from)
      : piece_(piece), around_(around), arena_(arena), rest_(rest), rest_from_(rest_from) {}
  char* claim(size_t bytes) override {
    if (rest_.empty() && bytes <= room()) {
      piece_.used += bytes;
      return piece_.to.data() + piece_.used - bytes;
    }
    const size_t at = rest_.size();
    rest_.resize(at + bytes);
    return rest_.data() + at;
  }
  size_t size() const override { return piece_.used + rest_.size(); }

  // One that is cut takes several copies more at both ends; a little room that is left costs less.
  bool takes(size_t value_bytes) override {
    if (!rest_.empty() || value_bytes + kAround <= room() || room() > piece_.to.size() / 8) return true;
    piece_.to = piece_.to.first(piece_.used);
    return false;
  }

  bool put_around(uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags, Arguments words,
                  size_t length) override {
    if (!around_ || !rest_.empty()) return false;
    const char* const value = words[kValue].data();
    const std::span<std::byte> chunk = arena_.chunk_around(value);
    const size_t bytes = sizeof(LogRecordHeader) + padded(length), start = piece_.used;
    if (bytes <= room()) {
      const RecordHole hole =
          write_around(piece_.to.data() + start, lsn, epoch, database, flags, words, length, kValue);
      piece_.holes.push_back({start + hole.at, hole.bytes, value, chunk, start, bytes});
      piece_.used += bytes;
      return true;
    }
    // It goes on in the next piece, so this one must have its checksum.
    const size_t head = sizeof(LogRecordHeader) + arguments_bytes(words.first(kValue)) + sizeof(uint32_t);
    if (room() <= head) return false;
    rest_.resize(bytes);
    const RecordHole hole = write_around(rest_.data(), lsn, epoch, database, flags, words, length, kValue);
    seal_around(rest_.data(), bytes, hole, crc32c(0, value, hole.bytes), kStreamSeed);
    std::memcpy(piece_.to.data() + start, rest_.data(), head);
    const size_t here = std::min(room() - head, hole.bytes);
    piece_.holes.push_back({start + head, here, value, chunk, 0, 0});
    piece_.used += head + here;
    std::memcpy(rest_.data() + head + here, value + here, hole.bytes - here);
    rest_from_ = head + here;
    return true;
  }

 private:
  static constexpr size_t kAround = 512;  // what is around a value: more only if its key is very long
  size_t room() const { return piece_.to.size() - piece_.used; }

  CopyPiece& piece_;
  const bool around_;
  const Arena& arena_;
  std::string& rest_;
  size_t& rest_from_;
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

// True: all of it, so that images may follow.
bool BaseCopy::copy_log(Sink& out, size_t max_bytes) {
  backlog_.publish();
  log_.clear();
  if (!reader_->read(log_, max_bytes)) {
    error_ = "the log grew faster than it was read";
    return false;
  }
  relay(out, log_);
  return reader_->offset() == backlog_.visible_offset();
}

// What the log has of a key whose pieces are on their way is not for the receiver, which has only some of
// them: the rest of the pieces will say what has become of it. Its place is kept, as others may be chained to
// it.
void BaseCopy::relay(Sink& out, std::string_view records) {
  LogRecordHeader header;
  for (; !records.empty(); records.remove_prefix(sizeof header + padded(header.length))) {
    std::memcpy(&header, records.data(), sizeof header);
    const std::string_view record = records.substr(0, sizeof header + padded(header.length));
    if (is_under_way(header, record)) {
      const std::string_view words[] = {"TOUCH", progress_[header.database].objects.front().key()};
      const size_t length = arguments_bytes(words);
      char* const to = out.claim(sizeof header + padded(length));
      write_sealed_record(to, header.lsn, header.epoch, header.database, header.flags, words, length,
                          kStreamSeed);
      continue;
    }
    char* const to = out.claim(record.size());
    std::memcpy(to, record.data(), record.size());
    if (header.slot == kNoSlot) follow_swap(record);
  }
}

bool BaseCopy::is_under_way(const LogRecordHeader& header, std::string_view record) const {
  if (header.slot == kNoSlot || header.database >= progress_.size()) return false;
  const auto& objects = progress_[header.database].objects;
  if (objects.empty() || !objects.front().has_begun()) return false;
  std::vector<std::string_view> words;
  return parse_arguments(record.substr(sizeof header, header.length), words) && words.size() > 1 &&
         words[1] == objects.front().key();
}

// SWAPDB: what has been walked of a database goes by its other name now.
void BaseCopy::follow_swap(std::string_view record) {
  LogRecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  std::vector<std::string_view> words;
  if (!parse_arguments(record.substr(sizeof header, header.length), words) || words.size() < 3) return;
  if (sweep_of(words[0]) != Sweep::swap) return;
  const auto one = parse_integer(words[1]), other = parse_integer(words[2]);
  const auto count = static_cast<int64_t>(progress_.size());
  if (!one || !other || *one < 0 || *other < 0 || *one >= count || *other >= count) return;
  std::swap(progress_[static_cast<size_t>(*one)], progress_[static_cast<size_t>(*other)]);
}

bool BaseCopy::read(std::string& out, size_t max_bytes) {
  StringSink<Sink> sink(out);
  return read(sink, max_bytes);
}

void BaseCopy::fill(CopyPiece& piece, size_t enough, bool around) {
  const size_t before = piece.used, room = piece.to.size() - before;
  take_rest(piece);
  const size_t taken = piece.used - before;
  if (!rest_.empty() || taken == room || taken >= enough || complete_) return;
  PieceSink sink(piece, around, engine_.keyspace.arena(), rest_, rest_from_);
  read(sink, std::min(enough, room) - taken);
  take_rest(piece);
}

void BaseCopy::take_rest(CopyPiece& piece) {
  if (rest_.empty()) return;
  const size_t taken = std::min(piece.to.size() - piece.used, rest_.size() - rest_from_);
  std::memcpy(piece.to.data() + piece.used, rest_.data() + rest_from_, taken);
  piece.used += taken;
  rest_from_ += taken;
  if (rest_from_ < rest_.size()) return;
  rest_.clear();
  rest_from_ = 0;
}

bool BaseCopy::read(Sink& out, size_t max_bytes) {
  if (complete_ || !error_.empty()) return false;
  const size_t enough = out.size() + max_bytes;
  if (!copy_log(out, max_bytes)) return error_.empty();
  constexpr uint64_t kBudgetNs = 1'000'000;
  const uint64_t deadline = now_ns() + kBudgetNs;
  uint32_t number = 0, looks = 0;
  while (number < progress_.size() && error_.empty()) {
    Progress& progress = progress_[number];
    if (progress.done()) {
      ++number;
    } else {
      const bool is_long = !progress.objects.empty();
      if (out.size() >= enough || ((++looks % 16 == 0 || is_long) && now_ns() >= deadline)) return true;
      if (!scan_some(out, number, progress)) return true;
    }
  }
  if (!error_.empty()) return false;
  const uint64_t offset = reader_->offset();
  const std::string_view last[] = {{reinterpret_cast<const char*>(&images_), sizeof images_},
                                   {reinterpret_cast<const char*>(&offset), sizeof offset}};
  put(out, 0, kEnd, last);
  complete_ = true;
  return false;
}

// A bucket's short strings, or a long one, or a piece of a value of the program's; false: there is no room
// for it here.
bool BaseCopy::scan_some(Sink& out, uint32_t number, Progress& progress) {
  if (!progress.objects.empty()) {
    ValueCopy& copy = progress.objects.front();
    Database& database = engine_.keyspace.database(number);
    const Entry entry = database.peek(copy.key());
    if (entry.type() == Type::string && !out.takes(entry.value().size())) return false;
    const auto write = [&](Arguments words) { put(out, number, kImage, words); };
    if (copy.step(engine_, database, write)) return true;
    error_ = copy.error();
    ++copied_;
    progress.objects.pop_front();
    return true;
  }
  if (!engine_.keyspace.exists(number)) return progress.scanned = true;
  progress.cursor = engine_.keyspace.database(number).scan(progress.cursor, 8, [&](Entry entry) {
    if (!wants(entry.key())) return;
    if (entry.type() != Type::string || entry.value().size() >= kLongValue) {
      return (void)progress.objects.emplace_back(std::string(entry.key()));
    }
    const std::string when = entry.expires_ms() ? std::to_string(entry.expires_ms()) : std::string();
    const std::string_view words[] = {"SET", entry.key(), entry.value(), "PXAT", when};
    put(out, number, kImage, Arguments(words).first(entry.expires_ms() ? 5 : 3));
    ++copied_;
  });
  progress.scanned = progress.cursor == 0;
  return true;
}

void BaseCopy::put(Sink& out, uint32_t database, uint8_t flags, Arguments words) {
  const size_t length = arguments_bytes(words);
  images_ += (flags & kImage) != 0;
  const uint64_t lsn = backlog_.position();
  // Only a string's value is in the store's memory.
  if (words.size() > kValue && words[0] == "SET" && words[kValue].size() >= kLongValue &&
      out.put_around(lsn, backlog_.epoch(), database, flags, words, length)) {
    return;
  }
  write_sealed_record(out.claim(sizeof(LogRecordHeader) + padded(length)), lsn, backlog_.epoch(), database,
                      flags, words, length, kStreamSeed);
}

}  // namespace verbena::kv
