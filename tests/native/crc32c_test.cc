// CRC32C against published check values, and the hardware form against the portable one.
#include "util/crc32c.h"

#include <random>
#include <vector>

#include "check.h"

using verbena::crc32c;
using verbena::crc32c_portable;

TEST("the check values of the standard come out") {
  CHECK(crc32c(0, "123456789", 9) == 0xe3069283);
  const std::vector<uint8_t> zeros(32, 0), ones(32, 0xff);
  CHECK(crc32c(0, zeros.data(), zeros.size()) == 0x8a9136aa);  // RFC 3720 B.4
  CHECK(crc32c(0, ones.data(), ones.size()) == 0x62a8ab43);
  CHECK(crc32c(0, nullptr, 0) == 0);
}

TEST("every length and alignment agrees with the portable form") {
  std::mt19937 random(7);
  std::vector<uint8_t> data(9000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t size = 0; size < data.size() - 8; size += size < 64 ? 1 : 61) {
    for (size_t start = 0; start < 8; ++start) {
      CHECK(crc32c(static_cast<uint32_t>(size), data.data() + start, size) ==
            crc32c_portable(static_cast<uint32_t>(size), data.data() + start, size));
    }
  }
}

TEST("a checksum can be taken in pieces") {
  std::mt19937 random(11);
  std::vector<uint8_t> data(5000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  const uint32_t whole = crc32c(0, data.data(), data.size());
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{3072}, size_t{4999}, size_t{5000}}) {
    CHECK(crc32c(crc32c(0, data.data(), cut), data.data() + cut, data.size() - cut) == whole);
  }
}

RUN_TESTS()
