// Options of a QUIC context: those of the iWARP wire, whose certificates are required, and a few more. The
// default of each option is an environment variable.
#pragma once

#include <string>

#include "providers/iwarp/options.h"

namespace verbena::quic {

struct Options {
  iwarp::Options stream;        // `tls` is required; `crc` is off unless it is set
  std::string revoked;          // file of revoked certificates (PEM), or empty
  uint32_t datagram_bytes = 0;  // payload of a datagram; 0: what the path allows, more on the loopback
  uint32_t max_streams = 256;   // that a peer may open on one connection
  uint32_t window_bytes = 0;    // limit of unread bytes on a stream; 0: from the socket's buffer
};

// Throws invalid_argument for an invalid variable.
Options options_from_environment();

// Opens the device on this interface; empty: the first one. Throws invalid_argument, no_device, tls_file and
// other TLS errors.
std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::quic
