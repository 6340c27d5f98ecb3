// PeerScript: the peer's side of an iWARP stream as a script. Segments by kind, numbered correctly unless the
// script decides otherwise, FPDUs of arbitrary content with a valid checksum, and arbitrary bytes.
#pragma once

#include <array>

#include "fuzz.h"
#include "providers/iwarp/protocol/segment.h"
#include "providers/iwarp/protocol/verbena_layout.h"
#include "util/crc32c/crc32c.h"

namespace fuzz {

// What the peer may know of our end.
struct Target {
  uint32_t stag = 0;
  uint64_t base = 0;
  uint32_t size = 0;
};

class PeerScript {
 public:
  enum Kind : uint8_t { raw, fpdu, tagged, untagged, kKinds };

  PeerScript(bool crc, const Target& target) : crc_(crc), target_(target) { numbers_.fill(1); }

  // The bytes of one step of the script.
  Bytes next(uint8_t kind, Input& input) {
    switch (kind % kKinds) {
      case raw:
        return input.take(input.byte());
      case fpdu:
        return framed(input.take(input.number<uint16_t>()));
      case tagged:
        return tagged_segment(input);
      default:
        return untagged_segment(input);
    }
  }

 private:
  Bytes framed(const Bytes& ulpdu) const {
    const size_t size = std::min(ulpdu.size(), verbena::iwarp::kMaxUlpdu);
    Bytes out{static_cast<std::byte>(size >> 8), static_cast<std::byte>(size)};
    out.insert(out.end(), ulpdu.begin(), ulpdu.begin() + static_cast<ptrdiff_t>(size));
    out.resize(out.size() + verbena::iwarp::pad_bytes(size));
    const uint32_t sum = crc_ ? verbena::crc32c(0, out.data(), out.size()) : 0;
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(sum >> (8 * i)));
    return out;
  }

  Bytes tagged_segment(Input& input) const {
    using namespace verbena::iwarp;
    const uint8_t opcode = input.byte(), flags = input.byte();
    TaggedHeader header{};
    header.ddp = static_cast<uint8_t>(ddp_control::tagged | ddp_control::version |
                                      (flags & 1 ? ddp_control::last : 0));
    header.rdmap = static_cast<uint8_t>(rdmap_control::version | (opcode & rdmap_control::opcode_mask));
    header.stag = flags & 2 ? input.number<uint32_t>() : target_.stag;
    header.offset = flags & 4 ? input.number<uint64_t>() : target_.base + input.number<uint16_t>();
    return framed(joined(&header, sizeof header, pattern(input.number<uint16_t>(), flags)));
  }

  Bytes untagged_segment(Input& input) {
    using namespace verbena::iwarp;
    const auto opcode = static_cast<RdmapOpcode>(input.byte() & rdmap_control::opcode_mask);
    const uint8_t flags = input.byte();
    const bool last = flags & 1;
    const uint32_t queue = flags & 2 ? input.byte() : static_cast<uint32_t>(queue_of(opcode));
    uint32_t& number = numbers_[queue % kQueueCount];
    UntaggedHeader header{};
    header.ddp = static_cast<uint8_t>(ddp_control::version | (last ? ddp_control::last : 0));
    header.rdmap = static_cast<uint8_t>(rdmap_control::version | static_cast<uint8_t>(opcode));
    header.queue = queue;
    header.message_number = flags & 4 ? input.number<uint32_t>() : number;
    header.message_offset = flags & 8 ? input.number<uint32_t>() : queue == 0 ? offset_ : 0;
    header.invalidate_stag = flags & 16 ? input.number<uint32_t>() : 0;
    const Bytes body = flags & 32 ? control_body(opcode, input) : pattern(input.number<uint16_t>(), flags);
    if (last) ++number;
    if (queue == 0) offset_ = last ? 0 : offset_ + static_cast<uint32_t>(body.size());
    return framed(joined(&header, sizeof header, body));
  }

  static verbena::iwarp::Queue queue_of(verbena::iwarp::RdmapOpcode opcode) {
    using verbena::iwarp::Queue;
    using verbena::iwarp::RdmapOpcode;
    switch (opcode) {
      case RdmapOpcode::read_request:
      case RdmapOpcode::atomic_request:
        return Queue::read_request;
      case RdmapOpcode::terminate:
        return Queue::terminate;
      case RdmapOpcode::atomic_response:
        return Queue::atomic_response;
      case RdmapOpcode::acknowledgement:
        return Queue::verbena;
      default:
        return Queue::send;
    }
  }

  // A body of the right size with the script's fields, our key and our addresses.
  Bytes control_body(verbena::iwarp::RdmapOpcode opcode, Input& input) const {
    using namespace verbena::iwarp;
    switch (opcode) {
      case RdmapOpcode::read_request: {
        const ReadRequestBody body{input.byte(), input.byte(), input.number<uint32_t>(), target_.stag,
                                   target_.base + input.number<uint16_t>()};
        return joined(&body, sizeof body, {});
      }
      case RdmapOpcode::atomic_request: {
        AtomicRequestBody body{};
        body.operation = input.byte();
        body.stag = target_.stag;
        body.offset = target_.base + input.number<uint16_t>();
        body.add_or_swap = input.number<uint64_t>();
        body.add_or_swap_mask = input.number<uint64_t>();
        return joined(&body, sizeof body, {});
      }
      case RdmapOpcode::acknowledgement: {
        AckBody body{};
        body.kind = input.byte();
        body.status = input.byte();
        body.executed = input.byte();
        body.failed = input.byte();
        return joined(&body, sizeof body, {});
      }
      case RdmapOpcode::atomic_response: {
        const AtomicResponseBody body{input.number<uint32_t>(), input.number<uint64_t>()};
        return joined(&body, sizeof body, {});
      }
      default:
        return input.take(input.byte());
    }
  }

  static Bytes joined(const void* header, size_t size, const Bytes& body) {
    const auto* from = static_cast<const std::byte*>(header);
    Bytes out(from, from + size);
    out.insert(out.end(), body.begin(), body.end());
    return out;
  }

  const bool crc_;
  const Target target_;
  std::array<uint32_t, verbena::iwarp::kQueueCount> numbers_;
  uint32_t offset_ = 0;  // in the message on the send queue
};

// Steps of such a script, for seeds.
inline Script& tagged(Script& script, verbena::iwarp::RdmapOpcode opcode, bool last, uint16_t offset,
                      uint16_t length) {
  return script.byte(PeerScript::tagged)
      .byte(static_cast<unsigned>(opcode))
      .byte(last)
      .number(offset)
      .number(length);
}
inline Script& message(Script& script, verbena::iwarp::RdmapOpcode opcode, bool last, uint16_t length) {
  return script.byte(PeerScript::untagged).byte(static_cast<unsigned>(opcode)).byte(last).number(length);
}
// The body's fields follow.
inline Script& control(Script& script, verbena::iwarp::RdmapOpcode opcode) {
  return script.byte(PeerScript::untagged).byte(static_cast<unsigned>(opcode)).byte(1 | 32);
}
inline Script& acknowledge(Script& script, verbena::iwarp::AckKind kind, unsigned status, unsigned executed,
                           unsigned failed) {
  return control(script, verbena::iwarp::RdmapOpcode::acknowledgement)
      .byte(static_cast<unsigned>(kind))
      .byte(status)
      .byte(executed)
      .byte(failed);
}

// A WRITE, an immediate, a READ and an atomic, all within the region.
inline Script& one_of_each(Script& script, uint16_t atomic_offset) {
  using verbena::iwarp::RdmapOpcode;
  tagged(script, RdmapOpcode::write, true, 64, 5000);
  control(script, RdmapOpcode::immediate).byte(8).number(uint64_t{7});
  control(script, RdmapOpcode::read_request).byte(1).byte(0).number(uint32_t{15000}).number(uint16_t{8});
  control(script, RdmapOpcode::atomic_request).byte(2).number(atomic_offset);
  return script.number(uint64_t{1}).number(UINT64_MAX);
}

}  // namespace fuzz
