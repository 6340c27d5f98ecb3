#include "util/crc32c/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "util/crc32c/fold.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace verbena {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, reflected

constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i)
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
  }
  return tables;
}

constexpr auto kTables = make_tables();

#if defined(__x86_64__) || defined(__aarch64__)

// The instruction has a latency of three cycles and a throughput of one: three streams fill it. A stream's
// checksum is moved past the following ones by multiplying with x^(8*kStream), here as one table look-up per
// byte.
constexpr size_t kStream = 1024;

constexpr std::array<std::array<uint32_t, 256>, 4> make_shift_tables() {
  std::array<uint32_t, 32> columns{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = 1u << bit;
    for (size_t i = 0; i < kStream; ++i) crc = (crc >> 8) ^ kTables[0][crc & 0xff];
    columns[bit] = crc;
  }
  std::array<std::array<uint32_t, 256>, 4> tables{};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (size_t value = 0; value < 256; ++value) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if (value >> bit & 1) tables[byte][value] ^= columns[byte * 8 + bit];
      }
    }
  }
  return tables;
}

uint32_t shift_stream(uint32_t crc) {
  static const auto tables = make_shift_tables();
  return tables[0][crc & 0xff] ^ tables[1][crc >> 8 & 0xff] ^ tables[2][crc >> 16 & 0xff] ^
         tables[3][crc >> 24];
}

#if defined(__x86_64__)
#define VERBENA_CRC_TARGET __attribute__((target("sse4.2")))
VERBENA_CRC_TARGET inline uint32_t step8(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
VERBENA_CRC_TARGET inline uint32_t step4(uint32_t crc, uint32_t word) { return _mm_crc32_u32(crc, word); }
VERBENA_CRC_TARGET inline uint32_t step1(uint32_t crc, uint8_t byte) { return _mm_crc32_u8(crc, byte); }
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
#else
#define VERBENA_CRC_TARGET __attribute__((target("+crc")))
VERBENA_CRC_TARGET inline uint32_t step8(uint32_t crc, uint64_t word) { return __crc32cd(crc, word); }
VERBENA_CRC_TARGET inline uint32_t step4(uint32_t crc, uint32_t word) { return __crc32cw(crc, word); }
VERBENA_CRC_TARGET inline uint32_t step1(uint32_t crc, uint8_t byte) { return __crc32cb(crc, byte); }
bool has_instruction() { return getauxval(AT_HWCAP) & HWCAP_CRC32; }
#endif

VERBENA_CRC_TARGET uint64_t load8(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

VERBENA_CRC_TARGET uint32_t load4(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

VERBENA_CRC_TARGET uint32_t crc32c_instruction(uint32_t seed, const void* data, size_t size) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t crc = ~seed;
  for (; size >= 3 * kStream; size -= 3 * kStream, p += 3 * kStream) {
    uint32_t b = 0, c = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      crc = step8(crc, load8(p + i));
      b = step8(b, load8(p + kStream + i));
      c = step8(c, load8(p + 2 * kStream + i));
    }
    crc = shift_stream(shift_stream(crc) ^ b) ^ c;
  }
  for (; size >= 8; size -= 8, p += 8) crc = step8(crc, load8(p));
  if (size >= 4) {  // every record of the log ends with 4 such bytes
    crc = step4(crc, load4(p));
    size -= 4;
    p += 4;
  }
  for (; size > 0; --size, ++p) crc = step1(crc, *p);
  return ~crc;
}

#endif

}  // namespace

uint32_t crc32c_portable(uint32_t seed, const void* data, size_t size) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t crc = ~seed;
  for (; size >= 8; size -= 8, p += 8) {
    crc ^= static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
           static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][crc >> 8 & 0xff] ^ kTables[5][crc >> 16 & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^ kTables[0][p[7]];
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

namespace {

// Polynomials modulo the CRC's, bit 31 being x^0.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

// [n]: x^(8 * 2^n).
constexpr std::array<uint32_t, 64> make_powers() {
  std::array<uint32_t, 64> powers{};
  powers[0] = 1u << 23;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = multiply(powers[i - 1], powers[i - 1]);
  return powers;
}

constexpr auto kPowers = make_powers();

}  // namespace

uint32_t combine_crc32c(uint32_t a, uint32_t b, uint64_t b_bytes) {
  for (size_t i = 0; b_bytes != 0; ++i, b_bytes >>= 1) {
    if (b_bytes & 1) a = multiply(kPowers[i], a);
  }
  return a ^ b;
}

namespace {

using Sum = uint32_t (*)(uint32_t, const void*, size_t);

Sum choose() {
#if defined(__x86_64__) || defined(__aarch64__)
  if (has_instruction()) return crc32c_instruction;
#endif
  return crc32c_portable;
}

uint32_t by_words(uint32_t seed, const void* data, size_t size) {
  static const Sum sum = choose();
  return sum(seed, data, size);
}

// The part of `size` that is folded; the rest is summed word by word.
size_t folded_bytes(size_t size) {
  if (size < crc32c_fold::kLeast) return 0;
  static const bool folds = crc32c_fold::is_supported();
  return folds ? size / 64 * 64 : 0;
}

}  // namespace

uint32_t crc32c(uint32_t seed, const void* data, size_t size) {
  const size_t folded = folded_bytes(size);
  if (folded > 0) seed = ~crc32c_fold::sum(~seed, nullptr, data, folded);
  return by_words(seed, static_cast<const uint8_t*>(data) + folded, size - folded);
}

uint32_t copy_crc32c(uint32_t seed, void* to, const void* from, size_t size) {
  const size_t folded = folded_bytes(size);
  if (folded > 0) seed = ~crc32c_fold::sum(~seed, to, from, folded);
  auto* target = static_cast<uint8_t*>(to) + folded;
  const auto* source = static_cast<const uint8_t*>(from) + folded;
  // The copy is what is summed: the source may change meanwhile.
  constexpr size_t kInCache = 16 * 1024;
  for (size_t left = size - folded; left > 0;) {
    const size_t n = std::min(left, kInCache);
    std::memcpy(target, source, n);
    seed = by_words(seed, target, n);
    target += n;
    source += n;
    left -= n;
  }
  return seed;
}

uint32_t stream_crc32c(uint32_t seed, void* to, const void* from, size_t size) {
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  const size_t head = std::min(size, -reinterpret_cast<uintptr_t>(to) % 64);
  const size_t folded = folded_bytes(size - head);
  if (folded == 0) return copy_crc32c(seed, to, from, size);
  seed = copy_crc32c(seed, target, source, head);
  seed = ~crc32c_fold::stream(~seed, target + head, source + head, folded);
  return copy_crc32c(seed, target + head + folded, source + head + folded, size - head - folded);
}

}  // namespace verbena
