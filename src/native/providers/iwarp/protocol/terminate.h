// TERMINATE messages: the codes of the RFCs, and the verbs status that each means for a requester.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "providers/iwarp/protocol/segment.h"
#include "util/error_code.h"
#include "verbs/types.h"

namespace verbena::iwarp {

// Layer, error type and code, as RFC 5040 section 4.8 numbers them.
enum class TerminateCode : uint16_t {
  rdmap_local = 0x0000,
  rdmap_invalid_stag = 0x0100,
  rdmap_bounds = 0x0101,
  rdmap_access = 0x0102,
  rdmap_version = 0x0205,
  rdmap_opcode = 0x0206,
  rdmap_stream = 0x0207,
  ddp_invalid_stag = 0x1100,
  ddp_bounds = 0x1101,
  ddp_stag_not_associated = 0x1102,
  ddp_wrap = 0x1103,
  ddp_tagged_version = 0x1104,
  ddp_invalid_queue = 0x1201,
  ddp_no_buffer = 0x1202,
  ddp_message_number = 0x1203,
  ddp_message_offset = 0x1204,
  ddp_too_long = 0x1205,
  ddp_untagged_version = 0x1206,
  mpa_crc = 0x2002,
  mpa_framing = 0x2003,
};

// Composes a TERMINATE. If a segment caused it, it contains that segment's header and length.
void compose_terminate(OutSegment& out, uint32_t message, TerminateCode code,
                       std::span<const std::byte> segment_header, size_t segment_bytes);

struct Termination {
  uint16_t code = 0;                     // as in TerminateCode
  std::optional<SegmentHeader> segment;  // the segment that the peer refused
};

// Accepts the RFC's bit order and that of Linux siw. Empty: the body is too short.
std::optional<Termination> parse_terminate(std::span<const std::byte> body);

// The status of a request that was answered with this code.
Status status_of(uint16_t code);
ErrorCode error_code_of(Status status);  // for a connection that ended with this status

}  // namespace verbena::iwarp
