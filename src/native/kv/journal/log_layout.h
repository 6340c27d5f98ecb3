// The format of log segments and snapshots: a file header, then records, all little-endian and aligned to 8
// bytes. A snapshot consists of log records; the LSN of each is the one at which its value was read. Replicas
// and targets of slot moves receive the same records without a file header.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace verbena::kv {

static_assert(std::endian::native == std::endian::little, "files are read and written in native byte order");

constexpr char kLogMagic[8] = {'V', 'E', 'R', 'B', 'L', 'O', 'G', '\n'};
constexpr char kSnapshotMagic[8] = {'V', 'E', 'R', 'B', 'S', 'N', 'P', '\n'};
constexpr uint32_t kLogVersion = 1;

struct LogFileHeader {
  char magic[8];
  uint32_t version;
  uint32_t checksum;     // CRC32C of all fields below
  uint64_t first_lsn;    // log: of its first record; snapshot: the LSN after the one at which it began
  uint64_t durable_lsn;  // records up to this LSN were on disk when the file was begun
  uint64_t id;  // random seed of the checksums: records of other files, or inside values, do not match
  uint64_t created_ms;
  uint32_t epoch;
  uint32_t unused[3];
};
static_assert(sizeof(LogFileHeader) == 64 && offsetof(LogFileHeader, first_lsn) == 16);

struct LogRecordHeader {
  uint32_t checksum;  // CRC32C of all that follows, with padding, seeded with the file's id
  uint32_t length;    // of the arguments that follow, without the padding to 8 bytes
  uint64_t lsn;
  uint32_t epoch;
  uint16_t slot;  // of the key; kNoSlot: the record names no key
  uint8_t database;
  uint8_t flags;
};
static_assert(sizeof(LogRecordHeader) == 24 && offsetof(LogRecordHeader, lsn) == 8);
// The arguments follow: for each its length in 4 bytes, then its bytes.

constexpr uint8_t kMore =
    1;  // the next record belongs to the same command or transaction: both apply, or none
constexpr uint8_t kMark = 2;  // no arguments: records up to `lsn` are on disk
constexpr uint8_t kEnd = 4;   // last record. Snapshot: one argument, the number of records, in 8 bytes. Base
                              // copy: the number of values, and the log offset at which to continue
constexpr uint8_t kValueRecord = 8;  // in streams only: the whole value of a key at `lsn`

constexpr uint32_t kStreamSeed = 0x76726273;  // seed of the checksums in streams

constexpr uint32_t kSlotCount = 16384;
constexpr uint16_t kNoSlot = 0xffff;
constexpr size_t kAlignment = 8;
constexpr size_t kLongestRecord = 0xffff'ff00;

constexpr size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace verbena::kv
