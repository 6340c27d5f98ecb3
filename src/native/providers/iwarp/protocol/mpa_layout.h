// MPA on the wire (RFC 5044, enhanced connection set-up of RFC 6581): set-up frames, markers, FPDU sizes.
#pragma once

#include <cstddef>

#include "util/big_endian.h"

namespace verbena::iwarp {

constexpr char kMpaRequestKey[] = "MPA ID Req Frame";
constexpr char kMpaReplyKey[] = "MPA ID Rep Frame";
constexpr size_t kMpaKeyBytes = 16;
static_assert(sizeof kMpaRequestKey == kMpaKeyBytes + 1 && sizeof kMpaReplyKey == kMpaKeyBytes + 1);

namespace mpa_flag {
constexpr uint8_t markers = 0x80;   // the sender wants to receive markers
constexpr uint8_t crc = 0x40;       // CRC is used if either side requests it
constexpr uint8_t reject = 0x20;    // replies only
constexpr uint8_t enhanced = 0x10;  // the private data begins with an MpaEnhanced
}  // namespace mpa_flag

struct MpaFrame {
  uint8_t key[kMpaKeyBytes];
  uint8_t flags;
  uint8_t revision;
  Be16 private_length;
};
static_assert(sizeof(MpaFrame) == 20 && offsetof(MpaFrame, flags) == 16 &&
              offsetof(MpaFrame, private_length) == 18);

constexpr size_t kMpaMaxPrivate = 512;

struct MpaEnhanced {
  Be16 ird;  // with mpa_ird bits
  Be16 ord;  // with mpa_ord bits
};
static_assert(sizeof(MpaEnhanced) == 4);

constexpr uint16_t kMpaDepthMask = 0x3fff;
namespace mpa_ird {
constexpr uint16_t peer_to_peer = 0x8000, zero_length_rtr = 0x4000;
}
namespace mpa_ord {
constexpr uint16_t write_rtr = 0x8000, read_rtr = 0x4000;
}

// An FPDU is a 16-bit ULPDU length, the ULPDU, 0 to 3 bytes of pad, and the CRC (present even when unused).
constexpr size_t kMpaLengthBytes = 2, kMpaCrcBytes = 4, kMpaAlignment = 4;
constexpr size_t kMaxUlpdu = 0xffff;

constexpr size_t pad_bytes(size_t ulpdu_length) {
  return (kMpaAlignment - (ulpdu_length + kMpaLengthBytes) % kMpaAlignment) % kMpaAlignment;
}

// One at the first byte of the stream, then one every 512 bytes, markers included.
struct MpaMarker {
  Be16 reserved;
  Be16 fpdu_pointer;  // distance to the start of the current FPDU; 0: it begins behind the marker
};
static_assert(sizeof(MpaMarker) == 4);
constexpr size_t kMarkerInterval = 512;

}  // namespace verbena::iwarp
