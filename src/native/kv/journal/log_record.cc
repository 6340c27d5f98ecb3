#include "kv/journal/log_record.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kv/protocol/keyword.h"
#include "util/crc32c.h"
#include "util/random.h"

namespace verbena::kv {

namespace {

// CRC-16/XMODEM, as Redis Cluster has it. Table n is of a byte with n zeros behind it: so eight bytes are
// looked up at once, and not each after the other.
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

// What of a key decides on its slot.
std::string_view key_tag(std::string_view key) {
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
  // Eight bytes at a time: most keys have no tag, and are short.
  for (; at + 8 <= key.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, key.data() + at, sizeof word);
    word ^= kOnes * '{';
    found |= (word - kOnes) & ~word & kTops;
  }
  for (; at < key.size(); ++at) found |= key[at] == '{';
  return crc16(found == 0 ? key : key_tag(key)) % kSlotCount;
}

Sweep sweep_of(std::string_view word) {
  if (word.size() == 7 && is_keyword(word, "FLUSHDB")) return Sweep::flush;
  if (word.size() == 8 && is_keyword(word, "FLUSHALL")) return Sweep::flush_all;
  if (word.size() == 6 && is_keyword(word, "SWAPDB")) return Sweep::swap;
  return Sweep::none;
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
    return "it begins with other bytes than \"" + std::string(magic, sizeof magic - 1) + "\"";
  }
  if (header.version != kLogVersion) {
    return "it is of version " + std::to_string(header.version) + ", and only version " +
           std::to_string(kLogVersion) + " is known here";
  }
  if (header.checksum != header_checksum(header)) return "the header's checksum is wrong";
  if (header.first_lsn == 0) return "the header's first LSN is 0";
  return {};
}

size_t arguments_bytes(Arguments words) {
  size_t bytes = 0;
  for (const std::string_view word : words) bytes += sizeof(uint32_t) + word.size();
  return bytes;
}

namespace {

LogRecordHeader header_of(uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags, Arguments words,
                          size_t length) {
  const bool keyless = words.size() < 2 || sweep_of(words[0]) != Sweep::none;
  return {.checksum = 0,
          .length = static_cast<uint32_t>(length),
          .lsn = lsn,
          .epoch = epoch,
          .slot = keyless ? kNoSlot : key_slot(words[1]),
          .database = static_cast<uint8_t>(database),
          .flags = flags};
}

// Field by field: one that is made elsewhere and copied is read while its parts are still being stored, and
// that waits for all stores before them.
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
                         Arguments words, size_t length, uint32_t seed) {
  constexpr size_t kLong = 1024;
  LogRecordHeader header = header_of(lsn, epoch, database, flags, words, length);
  char* const begin = to;
  std::memcpy(to, &header, sizeof header);
  const char* summed = to + sizeof header.checksum;
  to += sizeof header;
  uint32_t sum = seed;
  for (const std::string_view word : words) {
    const auto bytes = static_cast<uint32_t>(word.size());
    std::memcpy(to, &bytes, sizeof bytes);
    to += sizeof bytes;
    if (bytes >= kLong) {
      sum = crc32c(sum, summed, static_cast<size_t>(to - summed));
      sum = copy_crc32c(sum, to, word.data(), bytes);
      summed = to + bytes;
    } else if (bytes != 0) {
      std::memcpy(to, word.data(), bytes);
    }
    to += bytes;
  }
  std::memset(to, 0, padded(length) - length);
  to += padded(length) - length;
  header.checksum = crc32c(sum, summed, static_cast<size_t>(to - summed));
  std::memcpy(begin, &header.checksum, sizeof header.checksum);
}

void write_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags, Arguments words,
                  size_t length) {
  put_header(to, header_of(lsn, epoch, database, flags, words, length));
  to += sizeof(LogRecordHeader);
  for (const std::string_view word : words) {
    const auto bytes = static_cast<uint32_t>(word.size());
    std::memcpy(to, &bytes, sizeof bytes);
    if (bytes != 0) std::memcpy(to + sizeof bytes, word.data(), bytes);
    to += sizeof bytes + bytes;
  }
  std::memset(to, 0, padded(length) - length);
}

RecordHole write_around(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                        Arguments words, size_t length, size_t missing) {
  put_header(to, header_of(lsn, epoch, database, flags, words, length));
  RecordHole hole{};
  size_t at = sizeof(LogRecordHeader);
  for (size_t i = 0; i < words.size(); ++i) {
    const auto bytes = static_cast<uint32_t>(words[i].size());
    std::memcpy(to + at, &bytes, sizeof bytes);
    at += sizeof bytes;
    if (i == missing) {
      hole = {at, bytes};
    } else if (bytes != 0) {
      std::memcpy(to + at, words[i].data(), bytes);
    }
    at += bytes;
  }
  std::memset(to + at, 0, padded(length) - length);
  return hole;
}

void seal_around(char* record, size_t bytes, RecordHole hole, uint32_t hole_sum, uint32_t seed) {
  const size_t behind = hole.at + hole.bytes;
  uint32_t sum = record_checksum(seed, record, hole.at);
  sum = combine_crc32c(sum, hole_sum, hole.bytes);
  sum = crc32c(sum, record + behind, bytes - behind);
  std::memcpy(record, &sum, sizeof sum);
}

size_t put_record(std::string& out, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                  Arguments words) {
  const size_t at = out.size(), length = arguments_bytes(words);
  out.resize(at + sizeof(LogRecordHeader) + padded(length));
  write_record(out.data() + at, lsn, epoch, database, flags, words, length);
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

bool parse_arguments(std::string_view bytes, std::vector<std::string_view>& words) {
  words.clear();
  return append_arguments(bytes, words);
}

bool append_arguments(std::string_view bytes, std::vector<std::string_view>& words) {
  const char* at = bytes.data();
  for (size_t left = bytes.size(); left > 0;) {
    uint32_t length;
    if (left < sizeof length) return false;
    std::memcpy(&length, at, sizeof length);
    left -= sizeof length;
    at += sizeof length;
    if (left < length) return false;
    words.emplace_back(at, length);
    left -= length;
    at += length;
  }
  return true;
}

std::string LogReader::examine(size_t at) {
  const size_t left = file_.size() - at;
  LogRecordHeader header;
  if (left < sizeof header) return "the file ends within a record's header";
  std::memcpy(&header, file_.data() + at, sizeof header);
  const size_t bytes = sizeof header + padded(header.length);
  if (header.flags & ~(kMore | kMark | kEnd)) return "the record's flags are unknown";
  // Looking for a record in bytes of any kind: most are none at the first glance, which saves the checksum.
  if (loose_ && (header.lsn + 1 < header_.first_lsn || header.lsn - header_.first_lsn + 1 > file_.size() ||
                 (header.slot >= kSlotCount && header.slot != kNoSlot))) {
    return "not a record";
  }
  if (bytes > left) {
    return "the record is " + std::to_string(bytes) + " bytes long, and the file has " +
           std::to_string(left) + " left";
  }
  const uint32_t checksum = record_checksum(seed_, file_.data() + at, bytes);
  if (checksum != header.checksum) {
    char text[64];
    std::snprintf(text, sizeof text, "the checksum is %08x instead of %08x", checksum, header.checksum);
    return text;
  }
  if (!parse_arguments(file_.substr(at + sizeof header, header.length), words_))
    return "the words do not fit the record";
  record_ = {at, bytes, header.lsn, header.epoch, header.database, header.slot, header.flags};
  if (header.flags & kMark) {
    const bool right = kind_ == Kind::log && words_.empty() && (loose_ || header.lsn < expected_);
    return right ? "" : "a mark stands where none may";
  }
  if (header.flags & kEnd) {
    return kind_ == Kind::snapshot && words_.size() == 1 && words_[0].size() == sizeof(uint64_t)
               ? ""
               : "a snapshot's end stands where none may";
  }
  if (words_.empty()) return "the record has no words";
  if (loose_) return header.lsn >= expected_ ? "" : "the record's LSN has been there";
  if (kind_ == Kind::log ? header.lsn != expected_ : header.lsn < expected_) {
    return "the LSN is " + std::to_string(header.lsn) + " instead of " + std::to_string(expected_);
  }
  return {};
}

bool LogReader::next() {
  if (!fault_.empty() || position_ == file_.size()) {
    if (fault_.empty() && kind_ == Kind::snapshot && !ended_)
      fault_ = "the snapshot's last record is missing";
    return false;
  }
  if (ended_) {
    fault_ = "there is something behind the snapshot's last record";
    return false;
  }
  fault_ = examine(position_);
  if (!fault_.empty()) return false;
  loose_ = false;
  position_ += record_.bytes;
  if (record_.is_mark()) return true;
  if (record_.is_end()) {
    uint64_t count;
    std::memcpy(&count, words_[0].data(), sizeof count);
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
  loose_ = true;
  for (size_t at = padded(from); at + sizeof(LogRecordHeader) <= file_.size(); at += kAlignment) {
    if (!examine(at).empty()) continue;
    position_ = at;
    fault_.clear();
    return true;
  }
  loose_ = false;
  return false;
}

}  // namespace verbena::kv
