#include "kv/journal/log_record.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kv/protocol/keyword.h"
#include "util/crc32c/crc32c.h"
#include "util/random.h"

namespace verbena::kv {

namespace {

// CRC-16/XMODEM, as in Redis Cluster. Table n is for a byte followed by n zero bytes, so that eight bytes are
// looked up independently of each other.
constexpr std::array<std::array<uint16_t, 256>, 8> make_crc16() {
  std::array<std::array<uint16_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    tables[0][i] = static_cast<uint16_t>(crc);
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i) {
      const uint16_t before = tables[t - 1][i];
      tables[t][i] = static_cast<uint16_t>(before << 8 ^ tables[0][before >> 8]);
    }
  }
  return tables;
}
constexpr auto kCrc16 = make_crc16();

uint16_t crc16(std::string_view bytes) {
  uint16_t crc = 0;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    crc = kCrc16[7][p[0] ^ crc >> 8] ^ kCrc16[6][p[1] ^ (crc & 0xff)] ^ kCrc16[5][p[2]] ^ kCrc16[4][p[3]] ^
          kCrc16[3][p[4]] ^ kCrc16[2][p[5]] ^ kCrc16[1][p[6]] ^ kCrc16[0][p[7]];
  }
  for (; left > 0; --left, ++p) crc = static_cast<uint16_t>(crc << 8 ^ kCrc16[0][crc >> 8 ^ *p]);
  return crc;
}

// The part of a key that its slot is computed from.
std::string_view hashed_part(std::string_view key) {
  if (const size_t open = key.find('{'); open != key.npos) {
    const size_t close = key.find('}', open + 1);
    if (close != key.npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return key;
}

uint32_t header_checksum(const LogFileHeader& header) {
  constexpr size_t kFrom = offsetof(LogFileHeader, first_lsn);
  return crc32c(kLogVersion, reinterpret_cast<const char*>(&header) + kFrom, sizeof header - kFrom);
}

}  // namespace

uint32_t record_checksum(uint32_t seed, const char* record, size_t bytes) {
  return crc32c(seed, record + sizeof(uint32_t), bytes - sizeof(uint32_t));
}

uint16_t key_slot(std::string_view key) {
  constexpr uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
  uint64_t found = 0;
  size_t at = 0;
  // Eight bytes at a time: most keys are short and have no hash tag.
  for (; at + 8 <= key.size(); at += 8) {
    uint64_t argument;
    std::memcpy(&argument, key.data() + at, sizeof argument);
    argument ^= kOnes * '{';
    found |= (argument - kOnes) & ~argument & kTops;
  }
  for (; at < key.size(); ++at) found |= key[at] == '{';
  return crc16(found == 0 ? key : hashed_part(key)) % kSlotCount;
}

DatabaseEffect database_effect(std::string_view argument) {
  if (argument.size() == 7 && is_keyword(argument, "FLUSHDB")) return DatabaseEffect::flush;
  if (argument.size() == 8 && is_keyword(argument, "FLUSHALL")) return DatabaseEffect::flush_all;
  if (argument.size() == 6 && is_keyword(argument, "SWAPDB")) return DatabaseEffect::swap;
  return DatabaseEffect::none;
}

LogFileHeader make_header(const char (&magic)[8], uint64_t first_lsn, uint64_t durable_lsn, uint32_t epoch,
                          uint64_t created_ms) {
  LogFileHeader header{.magic = {},
                       .version = kLogVersion,
                       .checksum = 0,
                       .first_lsn = first_lsn,
                       .durable_lsn = durable_lsn,
                       .id = random_value<uint64_t>(),
                       .created_ms = created_ms,
                       .epoch = epoch,
                       .unused = {}};
  std::memcpy(header.magic, magic, sizeof magic);
  header.checksum = header_checksum(header);
  return header;
}

std::string header_fault(std::string_view file, const char (&magic)[8]) {
  LogFileHeader header;
  if (file.size() < sizeof header) {
    return "the header has " + std::to_string(file.size()) + " bytes instead of " +
           std::to_string(sizeof header);
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0) {
    return "the file does not begin with \"" + std::string(magic, sizeof magic - 1) + "\"";
  }
  if (header.version != kLogVersion) {
    return "the file has format version " + std::to_string(header.version) + ", but only version " +
           std::to_string(kLogVersion) + " is known here";
  }
  if (header.checksum != header_checksum(header)) return "header checksum mismatch";
  if (header.first_lsn == 0) return "the first LSN in the header is 0";
  return {};
}

size_t arguments_bytes(Arguments arguments) {
  size_t bytes = 0;
  for (const std::string_view argument : arguments) bytes += sizeof(uint32_t) + argument.size();
  return bytes;
}

size_t record_bytes(Arguments arguments) {
  return sizeof(LogRecordHeader) + padded(arguments_bytes(arguments));
}

namespace {

LogRecordHeader make_record_header(uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                                   Arguments arguments, size_t length) {
  const bool keyless = arguments.size() < 2 || database_effect(arguments[0]) != DatabaseEffect::none;
  return {.checksum = 0,
          .length = static_cast<uint32_t>(length),
          .lsn = lsn,
          .epoch = epoch,
          .slot = keyless ? kNoSlot : key_slot(arguments[1]),
          .database = static_cast<uint8_t>(database),
          .flags = flags};
}

// Field by field: copying a header that was just built elsewhere would read it while its parts are still in
// the store buffer, and wait for all earlier stores.
inline void put_header(char* to, const LogRecordHeader& header) {
  const auto put = [to](size_t at, const auto& field) { std::memcpy(to + at, &field, sizeof field); };
  put(offsetof(LogRecordHeader, checksum), header.checksum);
  put(offsetof(LogRecordHeader, length), header.length);
  put(offsetof(LogRecordHeader, lsn), header.lsn);
  put(offsetof(LogRecordHeader, epoch), header.epoch);
  put(offsetof(LogRecordHeader, slot), header.slot);
  put(offsetof(LogRecordHeader, database), header.database);
  put(offsetof(LogRecordHeader, flags), header.flags);
}

}  // namespace

void write_sealed_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                         Arguments arguments, size_t length, uint32_t seed) {
  constexpr size_t kLong = 1024;
  LogRecordHeader header = make_record_header(lsn, epoch, database, flags, arguments, length);
  char* const begin = to;
  std::memcpy(to, &header, sizeof header);
  const char* summed = to + sizeof header.checksum;
  to += sizeof header;
  uint32_t sum = seed;
  for (const std::string_view argument : arguments) {
    const auto bytes = static_cast<uint32_t>(argument.size());
    std::memcpy(to, &bytes, sizeof bytes);
    to += sizeof bytes;
    if (bytes >= kLong) {
      sum = crc32c(sum, summed, static_cast<size_t>(to - summed));
      sum = copy_crc32c(sum, to, argument.data(), bytes);
      summed = to + bytes;
    } else if (bytes != 0) {
      std::memcpy(to, argument.data(), bytes);
    }
    to += bytes;
  }
  std::memset(to, 0, padded(length) - length);
  to += padded(length) - length;
  header.checksum = crc32c(sum, summed, static_cast<size_t>(to - summed));
  std::memcpy(begin, &header.checksum, sizeof header.checksum);
}

void write_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                  Arguments arguments, size_t length) {
  put_header(to, make_record_header(lsn, epoch, database, flags, arguments, length));
  to += sizeof(LogRecordHeader);
  for (const std::string_view argument : arguments) {
    const auto bytes = static_cast<uint32_t>(argument.size());
    std::memcpy(to, &bytes, sizeof bytes);
    if (bytes != 0) std::memcpy(to + sizeof bytes, argument.data(), bytes);
    to += sizeof bytes + bytes;
  }
  std::memset(to, 0, padded(length) - length);
}

RecordHole write_record_with_hole(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                                  Arguments arguments, size_t length, size_t missing) {
  put_header(to, make_record_header(lsn, epoch, database, flags, arguments, length));
  RecordHole hole{};
  size_t at = sizeof(LogRecordHeader);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto bytes = static_cast<uint32_t>(arguments[i].size());
    std::memcpy(to + at, &bytes, sizeof bytes);
    at += sizeof bytes;
    if (i == missing) {
      hole = {at, bytes};
    } else if (bytes != 0) {
      std::memcpy(to + at, arguments[i].data(), bytes);
    }
    at += bytes;
  }
  std::memset(to + at, 0, padded(length) - length);
  return hole;
}

void seal_record_with_hole(char* record, size_t bytes, RecordHole hole, uint32_t hole_sum, uint32_t seed) {
  const size_t behind = hole.at + hole.bytes;
  uint32_t sum = record_checksum(seed, record, hole.at);
  sum = combine_crc32c(sum, hole_sum, hole.bytes);
  sum = crc32c(sum, record + behind, bytes - behind);
  std::memcpy(record, &sum, sizeof sum);
}

size_t put_record(std::string& out, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                  Arguments arguments) {
  const size_t at = out.size(), length = arguments_bytes(arguments);
  out.resize(at + sizeof(LogRecordHeader) + padded(length));
  write_record(out.data() + at, lsn, epoch, database, flags, arguments, length);
  return at;
}

void seal_record(std::string& out, size_t at, uint32_t seed, uint8_t more_flags) {
  seal_record(out.data() + at, seed, more_flags);
}

size_t seal_record(char* record, uint32_t seed, uint8_t more_flags) {
  uint32_t length;
  std::memcpy(&length, record + offsetof(LogRecordHeader, length), sizeof length);
  if (more_flags) record[offsetof(LogRecordHeader, flags)] |= static_cast<char>(more_flags);
  const size_t bytes = sizeof(LogRecordHeader) + padded(length);
  const uint32_t checksum = record_checksum(seed, record, bytes);
  std::memcpy(record + offsetof(LogRecordHeader, checksum), &checksum, sizeof checksum);
  return bytes;
}

LogReader::LogReader(std::string_view file, Kind kind) : file_(file), kind_(kind) {
  std::memcpy(&header_, file_.data(), sizeof header_);
  seed_ = seed_of(header_.id);
  expected_ = kind == Kind::log ? header_.first_lsn : header_.first_lsn - 1;
}

bool parse_arguments(std::string_view bytes, std::vector<std::string_view>& arguments) {
  arguments.clear();
  return append_arguments(bytes, arguments);
}

bool append_arguments(std::string_view bytes, std::vector<std::string_view>& arguments) {
  const char* at = bytes.data();
  for (size_t left = bytes.size(); left > 0;) {
    uint32_t length;
    if (left < sizeof length) return false;
    std::memcpy(&length, at, sizeof length);
    left -= sizeof length;
    at += sizeof length;
    if (left < length) return false;
    arguments.emplace_back(at, length);
    left -= length;
    at += length;
  }
  return true;
}

std::string LogReader::check_record(size_t at) {
  const size_t left = file_.size() - at;
  LogRecordHeader header;
  if (left < sizeof header) return "the file ends within a record's header";
  std::memcpy(&header, file_.data() + at, sizeof header);
  const size_t bytes = sizeof header + padded(header.length);
  if (header.flags & ~(kMore | kMark | kEnd)) return "unknown record flags";
  // While resyncing, most positions are ruled out by these fields, which saves the checksum.
  if (resyncing_ &&
      (header.lsn + 1 < header_.first_lsn || header.lsn - header_.first_lsn + 1 > file_.size() ||
       (header.slot >= kSlotCount && header.slot != kNoSlot))) {
    return "not a record";
  }
  if (bytes > left) {
    return "the record is " + std::to_string(bytes) + " bytes long, but the file has only " +
           std::to_string(left) + " left";
  }
  const uint32_t checksum = record_checksum(seed_, file_.data() + at, bytes);
  if (checksum != header.checksum) {
    char text[64];
    std::snprintf(text, sizeof text, "the checksum is %08x instead of %08x", checksum, header.checksum);
    return text;
  }
  if (!parse_arguments(file_.substr(at + sizeof header, header.length), arguments_))
    return "argument lengths do not match the record";
  record_ = {at, bytes, header.lsn, header.epoch, header.database, header.slot, header.flags};
  if (header.flags & kMark) {
    const bool right = kind_ == Kind::log && arguments_.empty() && (resyncing_ || header.lsn < expected_);
    return right ? "" : "unexpected mark";
  }
  if (header.flags & kEnd) {
    return kind_ == Kind::snapshot && arguments_.size() == 1 && arguments_[0].size() == sizeof(uint64_t)
               ? ""
               : "unexpected end record of a snapshot";
  }
  if (arguments_.empty()) return "the record has no arguments";
  if (resyncing_) return header.lsn >= expected_ ? "" : "the LSN was used before";
  if (kind_ == Kind::log ? header.lsn != expected_ : header.lsn < expected_) {
    return "the LSN is " + std::to_string(header.lsn) + " instead of " + std::to_string(expected_);
  }
  return {};
}

bool LogReader::next() {
  if (!fault_.empty() || position_ == file_.size()) {
    if (fault_.empty() && kind_ == Kind::snapshot && !ended_)
      fault_ = "the end record of the snapshot is missing";
    return false;
  }
  if (ended_) {
    fault_ = "data after the end record of the snapshot";
    return false;
  }
  fault_ = check_record(position_);
  if (!fault_.empty()) return false;
  resyncing_ = false;
  position_ += record_.bytes;
  if (record_.is_mark()) return true;
  if (record_.is_end()) {
    uint64_t count;
    std::memcpy(&count, arguments_[0].data(), sizeof count);
    if (count != records_) {
      fault_ = "there are " + std::to_string(records_) + " records instead of " + std::to_string(count);
      position_ -= record_.bytes;
      return false;
    }
    ended_ = true;
    return true;
  }
  ++records_;
  expected_ = kind_ == Kind::log ? record_.lsn + 1 : record_.lsn;
  return true;
}

bool LogReader::resync(size_t from) {
  resyncing_ = true;
  for (size_t at = padded(from); at + sizeof(LogRecordHeader) <= file_.size(); at += kAlignment) {
    if (!check_record(at).empty()) continue;
    position_ = at;
    fault_.clear();
    return true;
  }
  resyncing_ = false;
  return false;
}

}  // namespace verbena::kv
