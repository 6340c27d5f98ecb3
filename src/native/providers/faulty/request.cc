#include "providers/faulty/request.h"

#include <cstring>

namespace verbena::faulty {
namespace {

bool carries_payload(Opcode opcode) {
  return opcode == Opcode::send || opcode == Opcode::send_with_imm || opcode == Opcode::write ||
         opcode == Opcode::write_with_imm;
}

// Flips the lowest bit of the middle byte: headers are unlikely there, and payload is certain.
void flip_bit(std::span<const Sge> local) {
  uint64_t total = 0;
  for (const Sge& sge : local) total += sge.length;
  uint64_t offset = total / 2;
  for (const Sge& sge : local) {
    if (offset < sge.length) {
      *reinterpret_cast<std::byte*>(sge.addr + offset) ^= std::byte{1};
      return;
    }
    offset -= sge.length;
  }
}

}  // namespace

PostedRequest::PostedRequest(const SendRequest& request, bool is_signaled, uint64_t sequence)
    : original(request), signaled(is_signaled), local(request.local.begin(), request.local.end()) {
  if (original.flags & send_flag::inline_data) copy_inline();
  original.local = {};
  original.crc32c = nullptr;  // the request is posted later and may be changed
  result = {.id = sequence, .opcode = completion_opcode(request.opcode)};
}

void PostedRequest::copy_inline() {
  for (const Sge& sge : local) {
    const auto* bytes = reinterpret_cast<const std::byte*>(sge.addr);
    inline_bytes.insert(inline_bytes.end(), bytes, bytes + sge.length);
  }
  local = {{.addr = reinterpret_cast<uint64_t>(inline_bytes.data()),
            .length = static_cast<uint32_t>(inline_bytes.size())}};
}

void PostedRequest::apply(const FaultRule& fault, FaultyProtectionDomain& pd, uint64_t now) {
  switch (fault.kind) {
    case FaultKind::drop:
      injected = Status::retry_exc_err;
      break;
    case FaultKind::fail:
      injected = fault.status;
      break;
    case FaultKind::delay:
      not_before_ns = now + fault.delay_ns;
      break;
    case FaultKind::duplicate:
      copies = 2;
      break;
    case FaultKind::corrupt:
      if (!carries_payload(original.opcode)) {
        corrupt_landing = true;
      } else if (original.flags & send_flag::inline_data) {
        flip_bit(local);
      } else if ((staged = pd.stage(local))) {
        uint32_t total = 0;
        for (const Sge& sge : local) total += sge.length;
        local = {staged->sge(total)};
        flip_bit(local);
      }
      break;
    case FaultKind::break_link:
      injected = Status::wr_flush_err;
      breaks_link = true;
      break;
  }
}

SendRequest PostedRequest::for_wire() const {
  SendRequest request = original;
  request.id = result.id;
  request.flags |= send_flag::signaled;
  request.local = local;
  return request;
}

void PostedRequest::flip_landed_bit() const { flip_bit(local); }

WcOpcode completion_opcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::write:
    case Opcode::write_with_imm:
      return WcOpcode::write;
    case Opcode::read:
      return WcOpcode::read;
    case Opcode::compare_swap:
      return WcOpcode::compare_swap;
    case Opcode::fetch_add:
      return WcOpcode::fetch_add;
    case Opcode::send:
    case Opcode::send_with_imm:
      break;
  }
  return WcOpcode::send;
}

}  // namespace verbena::faulty
