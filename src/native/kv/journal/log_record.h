// Records of the log, without I/O: words into bytes, bytes into words, and what is wrong with bytes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/journal/log_layout.h"

namespace verbena::kv {

using Arguments = std::span<const std::string_view>;

// Where a key belongs: CRC16 of its hash tag, or of the whole key without one.
uint16_t key_slot(std::string_view key);

// What changes whole databases, and names no key.
enum class Sweep : uint8_t { none, flush, flush_all, swap };
Sweep sweep_of(std::string_view word);

LogFileHeader make_header(const char (&magic)[8], uint64_t first_lsn, uint64_t durable_lsn, uint32_t epoch,
                          uint64_t created_ms);
// What is wrong with a file's beginning, in words; empty: nothing.
std::string header_fault(std::string_view file, const char (&magic)[8]);

// What a record's checksum begins from.
constexpr uint32_t seed_of(uint64_t file_id) { return static_cast<uint32_t>(file_id ^ file_id >> 32); }

// How many bytes these words take; more than kLongestRecord: they cannot be written.
size_t arguments_bytes(Arguments words);
// Writes a record without its checksum to where there is room for it; seal_record() makes it whole.
void write_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags, Arguments words,
                  size_t length);
size_t seal_record(char* record, uint32_t seed, uint8_t more_flags = 0);  // returns its length
// Both at once; long words are summed while they are copied.
void write_sealed_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                         Arguments words, size_t length, uint32_t seed);
// A record without the bytes of word `missing`, for which it leaves room, and without a checksum.
struct RecordHole {
  size_t at, bytes;
};
RecordHole write_around(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                        Arguments words, size_t length, size_t missing);
// Its checksum, from that of the bytes that are not there.
void seal_around(char* record, size_t bytes, RecordHole hole, uint32_t hole_sum, uint32_t seed);
// The same as the first at the end of `out`; returns where it begins.
size_t put_record(std::string& out, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                  Arguments words);
void seal_record(std::string& out, size_t at, uint32_t seed, uint8_t more_flags = 0);
uint32_t record_checksum(uint32_t seed, const char* record, size_t bytes);
// Arguments from what follows a record's header; false: they do not fit.
bool parse_arguments(std::string_view bytes, std::vector<std::string_view>& words);
bool append_arguments(std::string_view bytes, std::vector<std::string_view>& words);

struct LogRecord {
  size_t offset = 0, bytes = 0;  // in the file
  uint64_t lsn = 0;
  uint32_t epoch = 0;
  uint32_t database = 0;
  uint16_t slot = kNoSlot;
  uint8_t flags = 0;
  bool more() const { return flags & kMore; }
  bool is_mark() const { return flags & kMark; }
  bool is_end() const { return flags & kEnd; }
  bool is_image() const { return flags & kImage; }
};

// Reads a file's records in order.
class LogReader {
 public:
  enum class Kind : uint8_t { log, snapshot };
  // The header has been looked at, and found right. The bytes must stay.
  LogReader(std::string_view file, Kind kind);

  const LogFileHeader& header() const { return header_; }
  // The next record; false: the file is at its end, or damaged (fault() says how).
  bool next();
  const LogRecord& record() const { return record_; }
  Arguments words() const { return words_; }  // within the file
  size_t position() const { return position_; }
  // The LSN that the next record must have (a snapshot: at least).
  uint64_t expected_lsn() const { return expected_; }
  // What is wrong at position(); empty: nothing.
  const std::string& fault() const { return fault_; }
  // After a fault: the next place from `from` on at which a whole record of this file stands, and goes on
  // from there. False: there is none.
  bool resync(size_t from);
  uint64_t records() const { return records_; }  // marks not counted
  bool ended() const { return ended_; }          // a snapshot's last record was seen

 private:
  // Reads what stands there; empty: it is whole.
  std::string examine(size_t at);

  std::string_view file_;
  Kind kind_;
  LogFileHeader header_;
  uint32_t seed_;
  size_t position_ = sizeof(LogFileHeader);
  uint64_t expected_, records_ = 0;
  bool ended_ = false, loose_ = false;
  LogRecord record_;
  std::vector<std::string_view> words_;
  std::string fault_;
};

}  // namespace verbena::kv
