// What two Verbena ends exchange beyond the RFCs: a trailer behind the user's private data, and one message
// on an untagged queue of its own. A peer that did not send the trailer never receives the message.
#pragma once

#include <cstddef>

#include "util/big_endian.h"

namespace verbena::iwarp {

constexpr uint8_t kTrailerMagic[6] = {'v', 'e', 'r', 'b', 'n', 'a'};
constexpr uint8_t kTrailerVersion = 1;

namespace trailer_flag {
constexpr uint8_t by_endpoint = 1;  // the QPs know each other's numbers; no listener is involved
constexpr uint8_t plain = 2;        // the sender wants only what the RFCs define
constexpr uint8_t needs_tls = 4;    // in a rejection: TLS is required
constexpr uint8_t takes_runs = 8;   // the sender understands AckKind::run
}  // namespace trailer_flag

// At the end of the private data, not at its beginning: programs find their data where they expect it, and
// verbs programs tolerate bytes behind it.
struct PrivateTrailer {
  uint8_t gid[16];  // of the sender's context
  Be32 from_qp;
  Be32 to_qp;
  Be16 port;  // of the sender's context-wide listener
  uint8_t magic[6];
  uint8_t version;
  uint8_t flags;
};
static_assert(sizeof(PrivateTrailer) == 34 && offsetof(PrivateTrailer, magic) == 26);

enum class AckKind : uint8_t {
  executed = 0,   // requests up to `executed` are done
  not_ready = 1,  // the next one found no receive: it and everything behind it was dropped
  ready = 2,      // a receive is posted now: send again from there
  restart = 3,    // the repetition begins here
  failed = 4,     // request `failed` ended with `status`; nothing more is executed
  run = 5,        // a run of `failed` bytes follows: see Run in stream.h
};

struct AckBody {
  uint8_t kind;
  uint8_t status;     // `failed`: the number of the verbs status
  uint8_t rnr_timer;  // `not_ready`: the RNR timer code of the verbs
  uint8_t reserved;
  Be32 executed;  // number of executed requests since the connection began, modulo 2^32
  Be32 failed;    // a request number; for `run`, bytes
};
static_assert(sizeof(AckBody) == 12);

}  // namespace verbena::iwarp
