#include "providers/quic/options.h"

namespace verbena::quic {

Options options_from_environment() {
  const Environment environment("VERBENA_QUIC_");
  Options options;
  options.stream = iwarp::options_from_environment(environment);
  environment.read("TLS_REVOKED", options.revoked);
  environment.read_count("DATAGRAM_BYTES", options.datagram_bytes);
  environment.read_count("MAX_STREAMS", options.max_streams);
  environment.read_count("WINDOW_BYTES", options.window_bytes);
  return options;
}

}  // namespace verbena::quic
