// The session calls between a store and its clients, request → reply:
//   kv           StreamHeader, then bytes of RESP → the output that is ready
//   kv.receive   StreamHeader → output, as soon as there is some
//   kv.close     StreamHeader → nothing
//   kv.layout    StreamHeader → LayoutHeader, a Location per database (its IndexRoot; 0: it is empty), and a
//                ChunkEntry per chunk of memory
// A stream corresponds to a Redis connection: database, user and transaction belong to the stream. If the
// store closes it, its later calls fail with the reason kStreamClosed.
#pragma once

#include <cstdint>
#include <string_view>

#include "kv/store/store_layout.h"
#include "util/siphash.h"

namespace verbena::kv {

namespace session_method {
constexpr const char* kRequest = "kv";
constexpr const char* kReceive = "kv.receive";
constexpr const char* kClose = "kv.close";
constexpr const char* kLayout = "kv.layout";
}  // namespace session_method

constexpr std::string_view kStreamClosed = "the store has closed the stream";

struct StreamHeader {
  uint32_t stream;
};

struct LayoutHeader {
  uint32_t version;  // kLayoutVersion
  uint32_t databases, chunks;
  uint32_t unused;
  HashKey hash_key;
};
constexpr uint32_t kLayoutVersion = 2;

struct ChunkEntry {
  uint64_t region;  // the region key under which a session reads it
  uint64_t length;
};
static_assert(sizeof(StreamHeader) == 4 && sizeof(LayoutHeader) == 32 && sizeof(ChunkEntry) == 16);

}  // namespace verbena::kv
