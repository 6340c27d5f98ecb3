// What a store and its clients say to each other by a session's calls.
//   kv           StreamHeader, then bytes of RESP → what there is to hear by then
//   kv.receive   StreamHeader → what there is to hear, as soon as there is something
//   kv.close     StreamHeader → nothing
//   kv.layout    StreamHeader → LayoutHeader, a Location per database (its IndexRoot; 0: it is empty), and a
//                ChunkEntry per chunk of memory
// A stream is a connection as Redis knows it: database, user and transaction are the stream's.
#pragma once

#include <cstdint>

#include "kv/store/store_layout.h"
#include "util/siphash.h"

namespace verbena::kv {

struct StreamHeader {
  uint32_t stream;
};

struct LayoutHeader {
  uint32_t version;  // kLayoutVersion
  uint32_t databases, chunks;
  uint32_t unused;
  HashKey hash_key;
};
constexpr uint32_t kLayoutVersion = 1;

struct ChunkEntry {
  uint64_t region;  // the key by which a session reads it
  uint64_t length;
};
static_assert(sizeof(StreamHeader) == 4 && sizeof(LayoutHeader) == 32 && sizeof(ChunkEntry) == 16);

}  // namespace verbena::kv
