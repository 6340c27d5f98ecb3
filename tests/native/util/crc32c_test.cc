// CRC32C against published check values, and the hardware form against the portable one.
#include "util/crc32c/crc32c.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

using verbena::copy_crc32c;
using verbena::crc32c;
using verbena::crc32c_portable;

TEST("crc32c() returns the check values of the standard") {
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

TEST("a copy is summed as it is made, and nothing beyond it is touched") {
  std::mt19937 random(13);
  std::vector<uint8_t> data(70000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t size = 0; size < data.size() - 8; size += size < 600 ? 7 : 4999) {
    for (size_t start = 0; start < 8; ++start) {
      std::vector<uint8_t> copy(size + 1, 0xee);
      const uint32_t seed = static_cast<uint32_t>(size * 77);
      CHECK(copy_crc32c(seed, copy.data(), data.data() + start, size) ==
            crc32c_portable(seed, data.data() + start, size));
      CHECK(std::equal(copy.begin(), copy.end() - 1, data.begin() + static_cast<ptrdiff_t>(start)));
      CHECK(copy.back() == 0xee);
    }
  }
}

TEST("a copy past the cache has the same bytes and checksum") {
  std::mt19937 random(17);
  std::vector<uint8_t> data(70000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t size = 0; size < data.size() - 8; size += size < 600 ? 7 : 4999) {
    for (size_t shift = 0; shift < 130; shift += 13) {
      std::vector<uint8_t> copy(size + shift + 1, 0xee);
      CHECK(verbena::stream_crc32c(5, copy.data() + shift, data.data() + 3, size) ==
            crc32c_portable(5, data.data() + 3, size));
      CHECK(std::equal(copy.begin() + static_cast<ptrdiff_t>(shift), copy.end() - 1, data.begin() + 3));
      CHECK(copy.back() == 0xee && (shift == 0 || copy[shift - 1] == 0xee));
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
    const uint32_t first = crc32c(0, data.data(), cut);
    const uint32_t second = crc32c(0, data.data() + cut, data.size() - cut);
    CHECK(verbena::combine_crc32c(first, second, data.size() - cut) == whole);
  }
}

RUN_TESTS()
