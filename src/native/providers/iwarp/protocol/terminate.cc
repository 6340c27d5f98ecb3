#include "providers/iwarp/protocol/terminate.h"

#include <cstring>

namespace verbena::iwarp {
namespace {

constexpr uint8_t swap_nibbles(uint8_t byte) { return static_cast<uint8_t>(byte << 4 | byte >> 4); }

// siw lays out the bit fields of a little-endian C struct, lowest bit first.
bool is_in_siw_order(const TerminateBody& body) {
  if (body.header_bits & 0x07) return true;
  if (body.header_bits != 0) return false;
  // Without header bits to decide by: 0x02 would be a remote operation error, whose codes begin at 5.
  return body.layer_and_type == 0x02 && body.code < 0x05;
}

uint8_t reversed_header_bits(uint8_t bits) {
  return static_cast<uint8_t>((bits & 1 ? terminate_header::segment_length : 0) |
                              (bits & 2 ? terminate_header::ddp_header : 0) |
                              (bits & 4 ? terminate_header::rdmap_header : 0));
}

}  // namespace

void compose_terminate(OutSegment& out, uint32_t message, TerminateCode code,
                       std::span<const std::byte> segment_header, size_t segment_bytes) {
  out.begin_untagged(RdmapOpcode::terminate, true, Queue::terminate, message, 0);
  const auto value = static_cast<uint16_t>(code);
  TerminateBody body{static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value), 0, 0};
  if (!segment_header.empty())
    body.header_bits = terminate_header::segment_length | terminate_header::ddp_header;
  out.append(&body, sizeof body);
  if (segment_header.empty()) return;
  const Be16 length = static_cast<uint16_t>(segment_bytes);
  out.append(&length, sizeof length);
  out.append(segment_header.data(), segment_header.size());
}

std::optional<Termination> parse_terminate(std::span<const std::byte> bytes) {
  TerminateBody body;
  if (bytes.size() < sizeof body) return std::nullopt;
  std::memcpy(&body, bytes.data(), sizeof body);
  bytes = bytes.subspan(sizeof body);
  if (is_in_siw_order(body)) {
    body.layer_and_type = swap_nibbles(body.layer_and_type);
    body.header_bits = reversed_header_bits(body.header_bits);
  }
  Termination result;
  result.code = static_cast<uint16_t>(body.layer_and_type << 8 | body.code);
  if (body.header_bits & terminate_header::segment_length) {
    if (bytes.size() < sizeof(Be16)) return result;
    bytes = bytes.subspan(sizeof(Be16));
  }
  if ((body.header_bits & terminate_header::ddp_header) && !bytes.empty()) {
    const bool tagged = std::to_integer<uint8_t>(bytes[0]) & ddp_control::tagged;
    const size_t size = tagged ? sizeof(TaggedHeader) : sizeof(UntaggedHeader);
    if (bytes.size() >= size) result.segment = decode_header(bytes.first(size), 0);
  }
  return result;
}

Status status_of(uint16_t code) {
  switch (code >> 8) {
    case 0x01:  // RDMAP remote protection
    case 0x11:  // DDP tagged buffer
      return Status::rem_access_err;
    case 0x02:  // RDMAP remote operation
      return (code & 0xff) == 0x07 || (code & 0xff) == 0x08 ? Status::rem_op_err : Status::rem_inv_req_err;
    case 0x12:  // DDP untagged buffer
      return code == static_cast<uint16_t>(TerminateCode::ddp_no_buffer) ? Status::rnr_retry_exc_err
                                                                         : Status::rem_inv_req_err;
    case 0x20:  // MPA
      return Status::retry_exc_err;
    default:
      return Status::rem_op_err;
  }
}

ErrorCode error_code_of(Status status) {
  switch (status) {
    case Status::rem_access_err:
      return "REM_ACCESS_ERR";
    case Status::rem_inv_req_err:
      return "REM_INV_REQ_ERR";
    case Status::rnr_retry_exc_err:
      return "RNR_RETRY_EXC_ERR";
    case Status::retry_exc_err:
      return "RETRY_EXC_ERR";
    default:
      return "REM_OP_ERR";
  }
}

}  // namespace verbena::iwarp
