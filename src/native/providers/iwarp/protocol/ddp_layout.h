// DDP and RDMAP on the wire (RFC 5041, 5040, 7306): segment headers and the bodies of control messages.
#pragma once

#include <cstddef>

#include "util/big_endian.h"

namespace verbena::iwarp {

namespace ddp_control {
constexpr uint8_t tagged = 0x80, last = 0x40, version_mask = 0x03, version = 0x01;
}
namespace rdmap_control {
constexpr uint8_t version_mask = 0xc0, version = 0x40, opcode_mask = 0x0f;
}

enum class RdmapOpcode : uint8_t {
  write = 0x0,
  read_request = 0x1,
  read_response = 0x2,
  send = 0x3,
  send_invalidate = 0x4,
  send_solicited = 0x5,
  send_solicited_invalidate = 0x6,
  terminate = 0x7,
  immediate = 0x8,
  immediate_solicited = 0x9,
  atomic_request = 0xa,
  atomic_response = 0xb,
  acknowledgement = 0xf,  // Verbena's own, see verbena_layout.h
};

enum class Queue : uint32_t { send = 0, read_request = 1, terminate = 2, atomic_response = 3, verbena = 4 };
constexpr size_t kQueueCount = 5;

struct TaggedHeader {
  uint8_t ddp;
  uint8_t rdmap;
  Be32 stag;
  Be64 offset;
};
static_assert(sizeof(TaggedHeader) == 14 && offsetof(TaggedHeader, offset) == 6);

struct UntaggedHeader {
  uint8_t ddp;
  uint8_t rdmap;
  Be32 invalidate_stag;
  Be32 queue;
  Be32 message_number;
  Be32 message_offset;
};
static_assert(sizeof(UntaggedHeader) == 18 && offsetof(UntaggedHeader, message_offset) == 14);

struct ReadRequestBody {
  Be32 sink_stag;
  Be64 sink_offset;
  Be32 length;
  Be32 source_stag;
  Be64 source_offset;
};
static_assert(sizeof(ReadRequestBody) == 28 && offsetof(ReadRequestBody, source_offset) == 20);

enum class AtomicOperation : uint32_t { fetch_add = 0, compare_swap = 2 };

struct AtomicRequestBody {
  Be32 operation;  // the lowest four bits
  Be32 request_id;
  Be32 stag;
  Be64 offset;
  Be64 add_or_swap;
  Be64 add_or_swap_mask;  // add: a set bit stops the carry into the next bit; swap: the bits to store
  Be64 compare;
  Be64 compare_mask;
};
static_assert(sizeof(AtomicRequestBody) == 52 && offsetof(AtomicRequestBody, compare_mask) == 44);

struct AtomicResponseBody {
  Be32 request_id;
  Be64 original;
};
static_assert(sizeof(AtomicResponseBody) == 12);

struct ImmediateBody {
  Be64 value;
};
static_assert(sizeof(ImmediateBody) == 8);

struct TerminateBody {
  uint8_t layer_and_type;  // four bits each
  uint8_t code;
  uint8_t header_bits;
  uint8_t reserved;
};
static_assert(sizeof(TerminateBody) == 4);

namespace terminate_header {
constexpr uint8_t segment_length = 0x80;  // 16 bits of length follow
constexpr uint8_t ddp_header = 0x40;      // then the header of the segment at fault
constexpr uint8_t rdmap_header = 0x20;    // then the body of the READ request at fault
}  // namespace terminate_header

constexpr size_t kMaxTerminateBytes =
    sizeof(TerminateBody) + 2 + sizeof(UntaggedHeader) + sizeof(ReadRequestBody);
// The longest message body that is buffered completely before it is parsed.
constexpr size_t kMaxControlBytes = sizeof(AtomicRequestBody);
static_assert(kMaxControlBytes >= kMaxTerminateBytes);

}  // namespace verbena::iwarp
