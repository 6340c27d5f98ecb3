// What two Verbena ends say to each other beyond the RFCs: a trailer behind the user's private data, and one
// message on an untagged queue of its own. A peer that did not send the trailer never sees the message.
#pragma once

#include <cstddef>

#include "util/big_endian.h"

namespace verbena::iwarp {

constexpr uint8_t kTrailerMagic[6] = {'v', 'e', 'r', 'b', 'n', 'a'};
constexpr uint8_t kTrailerVersion = 1;

namespace trailer_flag {
constexpr uint8_t by_endpoint = 1;  // the QPs know each other's numbers: no listener is asked
constexpr uint8_t plain = 2;        // the sender wants the RFCs' semantics and nothing beyond them
constexpr uint8_t needs_tls = 4;    // in a rejection: come again with TLS
constexpr uint8_t takes_runs = 8;   // the sender understands `coming`
}  // namespace trailer_flag

// At the end of the private data and not at its beginning: programs find theirs where they expect it, and
// those on verbs are used to bytes behind it.
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
  not_ready = 1,  // and the one after them found no receive: it and what is behind it was dropped
  ready = 2,      // there is a receive now: send again from there
  restart = 3,    // from here on the stream is the repetition
  failed = 4,     // request `failed` ended with `status`; nothing more is executed
  coming = 5,     // a run of so many bytes comes next: see Run in stream.h
};

struct AckBody {
  uint8_t kind;
  uint8_t status;     // `failed`: the verbs' number of it
  uint8_t rnr_timer;  // `not_ready`: the verbs' code of it
  uint8_t reserved;
  Be32 executed;  // requests, counted from 1 since the connection began, modulo 2^32
  Be32 failed;    // or, with kind `coming`, bytes
};
static_assert(sizeof(AckBody) == 12);

}  // namespace verbena::iwarp
