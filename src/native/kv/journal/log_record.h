// Encoding, decoding and checking of log records, without I/O.
// Depends on log_layout.h and util only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/journal/log_layout.h"
#include "kv/protocol/arguments.h"

namespace verbena::kv {

// The slot of a key: CRC16 of its hash tag, or of the whole key if it has none.
uint16_t key_slot(std::string_view key);

// Effects that change whole databases and name no key.
enum class DatabaseEffect : uint8_t { none, flush, flush_all, swap };
DatabaseEffect database_effect(std::string_view argument);

LogFileHeader make_header(const char (&magic)[8], uint64_t first_lsn, uint64_t durable_lsn, uint32_t epoch,
                          uint64_t created_ms);
// Describes what is wrong with a file's header; empty: nothing.
std::string header_fault(std::string_view file, const char (&magic)[8]);

// The seed of the record checksums of a file.
constexpr uint32_t seed_of(uint64_t file_id) { return static_cast<uint32_t>(file_id ^ file_id >> 32); }

// The encoded length of the arguments. A record longer than kLongestRecord cannot be written.
size_t arguments_bytes(Arguments arguments);
size_t record_bytes(Arguments arguments);  // the length of a record of these arguments
// Writes a record without its checksum, which seal_record() adds. `to` must have room for it.
void write_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                  Arguments arguments, size_t length);
size_t seal_record(char* record, uint32_t seed, uint8_t more_flags = 0);  // returns the record's length
// write_record() and seal_record() in one pass: computes the CRC32C of long arguments while it copies them.
void write_sealed_record(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                         Arguments arguments, size_t length, uint32_t seed);
// Writes a record without its checksum and without the bytes of one argument, whose index is `missing`.
// Returns the hole that it leaves for them.
struct RecordHole {
  size_t at, bytes;
};
RecordHole write_record_with_hole(char* to, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                                  Arguments arguments, size_t length, size_t missing);
// Sets the checksum of a record with a hole; `hole_sum` is the CRC32C of the missing bytes.
void seal_record_with_hole(char* record, size_t bytes, RecordHole hole, uint32_t hole_sum, uint32_t seed);
// write_record() at the end of `out`; returns the position of the record.
size_t put_record(std::string& out, uint64_t lsn, uint32_t epoch, uint32_t database, uint8_t flags,
                  Arguments arguments);
void seal_record(std::string& out, size_t at, uint32_t seed, uint8_t more_flags = 0);
uint32_t record_checksum(uint32_t seed, const char* record, size_t bytes);
// Decodes the arguments behind a record's header; false: their lengths do not fit.
bool parse_arguments(std::string_view bytes, std::vector<std::string_view>& arguments);
bool append_arguments(std::string_view bytes, std::vector<std::string_view>& arguments);

struct LogRecord {
  size_t offset = 0, bytes = 0;  // position and length in the file
  uint64_t lsn = 0;
  uint32_t epoch = 0;
  uint32_t database = 0;
  uint16_t slot = kNoSlot;
  uint8_t flags = 0;
  bool more() const { return flags & kMore; }
  bool is_mark() const { return flags & kMark; }
  bool is_end() const { return flags & kEnd; }
  bool is_value() const { return flags & kValueRecord; }
};

// Reads the records of a file in order.
class LogReader {
 public:
  enum class Kind : uint8_t { log, snapshot };
  // header_fault() must have accepted the file. The bytes must outlive the reader.
  LogReader(std::string_view file, Kind kind);

  const LogFileHeader& header() const { return header_; }
  // Moves to the next record. False: end of file, or damage (see fault()).
  bool next();
  const LogRecord& record() const { return record_; }
  Arguments arguments() const { return arguments_; }  // views into the file
  size_t position() const { return position_; }
  // The LSN that the next record must have; in a snapshot, the lowest that it may have.
  uint64_t expected_lsn() const { return expected_; }
  // Describes the damage at position(); empty: none.
  const std::string& fault() const { return fault_; }
  // After a fault: continues at the next intact record of this file at or after `from`. False: there is none.
  bool resync(size_t from);
  uint64_t records() const { return records_; }  // without marks
  bool ended() const { return ended_; }          // the snapshot's end record has been read

 private:
  // Parses the record at `at` into record_ and arguments_; returns what is wrong with it, or nothing.
  std::string check_record(size_t at);

  std::string_view file_;
  Kind kind_;
  LogFileHeader header_;
  uint32_t seed_;
  size_t position_ = sizeof(LogFileHeader);
  uint64_t expected_, records_ = 0;
  bool ended_ = false, resyncing_ = false;
  LogRecord record_;
  std::vector<std::string_view> arguments_;
  std::string fault_;
};

}  // namespace verbena::kv
