// How the log and snapshots lie on disk: a header, then records, one after the other, all little-endian and
// aligned to 8 bytes. A snapshot has the log's records; each says at which LSN its image was taken. What goes
// to replicas and to the targets of migrations is the same records, without a header.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace verbena::kv {

static_assert(std::endian::native == std::endian::little, "the files are read and written as they lie");

constexpr char kLogMagic[8] = {'V', 'E', 'R', 'B', 'L', 'O', 'G', '\n'};
constexpr char kSnapshotMagic[8] = {'V', 'E', 'R', 'B', 'S', 'N', 'P', '\n'};
constexpr uint32_t kLogVersion = 1;

struct LogFileHeader {
  char magic[8];
  uint32_t version;
  uint32_t checksum;     // CRC32C of all that follows
  uint64_t first_lsn;    // log: of its first record; snapshot: the one behind the LSN at which it began
  uint64_t durable_lsn;  // records up to this one were on disk when the file was begun
  uint64_t id;           // random: records of another file, or inside of values, do not pass for this one's
  uint64_t created_ms;
  uint32_t epoch;
  uint32_t unused[3];
};
static_assert(sizeof(LogFileHeader) == 64 && offsetof(LogFileHeader, first_lsn) == 16);

struct LogRecordHeader {
  uint32_t checksum;  // CRC32C of all that follows, padding too, beginning from the file's id
  uint32_t length;    // of the words that follow; the padding to 8 bytes does not count
  uint64_t lsn;
  uint32_t epoch;
  uint16_t slot;  // of the key; kNoSlot: no key
  uint8_t database;
  uint8_t flags;
};
static_assert(sizeof(LogRecordHeader) == 24 && offsetof(LogRecordHeader, lsn) == 8);
// Arguments follow: each is its length in 4 bytes, and its bytes.

constexpr uint8_t kMore = 1;   // the next record belongs to the same command or transaction: both or none
constexpr uint8_t kMark = 2;   // no words: records up to `lsn` are on disk
constexpr uint8_t kEnd = 4;    // a snapshot's last: one word, how many records there are, in 8 bytes; a base
                               // copy's: how many images, and the offset in the log from which to go on
constexpr uint8_t kImage = 8;  // in streams only: a key's whole value as it was at `lsn`

constexpr uint32_t kStreamSeed = 0x76726273;  // what the checksums of records in streams begin from

constexpr uint32_t kSlotCount = 16384;
constexpr uint16_t kNoSlot = 0xffff;
constexpr size_t kAlignment = 8;
constexpr size_t kLongestRecord = 0xffff'ff00;

constexpr size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace verbena::kv
