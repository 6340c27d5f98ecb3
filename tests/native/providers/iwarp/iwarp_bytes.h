// Bytes for tests of the iwarp wire: a recognisable pattern, and a segment as it is sent.
#pragma once

#include <vector>

#include "check.h"
#include "iwarp_host.h"

namespace iwarp_bytes {

using Bytes = std::vector<std::byte>;

inline Bytes pattern(size_t size, unsigned seed = 1) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

inline Bytes flat(const verbena::iwarp::OutSegment& segment) {
  Bytes bytes = iwarp_host::flat(segment);
  CHECK(bytes.size() == segment.total_bytes());
  return bytes;
}

}  // namespace iwarp_bytes
