// What a QUIC context can be told when it is opened: the iWARP wire's options, whose certificates it needs,
// and a few of its own. Every option has an environment variable, which is its default.
#pragma once

#include <string>

#include "providers/iwarp/options.h"

namespace verbena::quic {

struct Options {
  iwarp::Options stream;        // `tls` is needed; `crc` stays off unless asked for
  std::string revoked;          // a list of revoked certificates in PEM, or none
  uint32_t datagram_bytes = 0;  // payload of a datagram; 0: what the path takes, and more on the loopback
  uint32_t max_streams = 256;   // that a peer may have open on one connection
  uint32_t window_bytes = 0;    // of unread bytes on a stream; 0: by the socket's buffer and the round trip
};

// Throws invalid_argument for a variable that makes no sense.
Options options_from_environment();

// The device on this interface; empty: the first. Throws invalid_argument, no_device, tls_file and the like.
std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::quic
