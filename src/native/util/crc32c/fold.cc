#include "util/crc32c/fold.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace verbena::crc32c_fold {

#if defined(__x86_64__)

namespace {

// x^power modulo the polynomial, bit e for x^e.
constexpr uint32_t power_of_x(unsigned power) {
  constexpr uint32_t kPolynomial = 0x1edc6f41;
  uint32_t value = 1;
  for (; power > 0; --power) value = value << 1 ^ (value >> 31 ? kPolynomial : 0);
  return value;
}

// As a factor: CRC32C keeps its bits reflected, so x^e is bit 63 - e.
constexpr uint64_t factor(unsigned power) {
  uint64_t reflected = 0;
  for (unsigned e = 0; e < 32; ++e) {
    if (power_of_x(power) >> e & 1) reflected |= uint64_t{1} << (63 - e);
  }
  return reflected;
}

// Moves 16 bytes `distance` bits ahead in the message: the first eight stand 64 bits higher, and a product of
// reflected factors comes out one bit too high.
struct Shift {
  int64_t first, second;
};
constexpr Shift shift(unsigned distance) {
  return {static_cast<int64_t>(factor(distance + 63)), static_cast<int64_t>(factor(distance - 1))};
}

enum class Copy : uint8_t { none, plain, streamed };

namespace wide {

#define VERBENA_FOLD_TARGET __attribute__((target("avx512f,avx512vl,avx512bw,vpclmulqdq,pclmul,sse4.2")))

using Vector = __m512i;
constexpr size_t kVector = sizeof(Vector);

VERBENA_FOLD_TARGET inline Vector load(const std::byte* from) { return _mm512_loadu_si512(from); }
VERBENA_FOLD_TARGET inline void store(std::byte* to, Vector bytes) { _mm512_storeu_si512(to, bytes); }
VERBENA_FOLD_TARGET inline void store_past_cache(std::byte* to, Vector bytes) {
  _mm512_stream_si512(reinterpret_cast<Vector*>(to), bytes);
}
VERBENA_FOLD_TARGET inline Vector mix(Vector bytes, uint32_t state) {
  return _mm512_xor_si512(bytes, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
}
VERBENA_FOLD_TARGET inline Vector everywhere(const Shift& by) {
  return _mm512_set_epi64(by.second, by.first, by.second, by.first, by.second, by.first, by.second, by.first);
}

VERBENA_FOLD_TARGET inline Vector fold(Vector sum, Vector by, Vector next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00),
                                   _mm512_clmulepi64_epi128(sum, by, 0x11), next, kXorOfThree);
}

// Reduces four lanes to one.
VERBENA_FOLD_TARGET inline uint32_t reduce(Vector sum) {
  constexpr Shift k384 = shift(384), k256 = shift(256), k128 = shift(128);
  const Vector by =
      _mm512_set_epi64(0, 0, k128.second, k128.first, k256.second, k256.first, k384.second, k384.first);
  const Vector last = _mm512_maskz_mov_epi64(0b11000000, sum);
  alignas(kVector) uint64_t words[8];
  _mm512_store_si512(words, fold(sum, by, last));
  const uint64_t crc = _mm_crc32_u64(0, words[0] ^ words[2] ^ words[4] ^ words[6]);
  return static_cast<uint32_t>(_mm_crc32_u64(crc, words[1] ^ words[3] ^ words[5] ^ words[7]));
}

#include "util/crc32c/fold_run.h"
#undef VERBENA_FOLD_TARGET

}  // namespace wide

// For processors with VPCLMULQDQ but without 512-bit registers.
namespace narrow {

#define VERBENA_FOLD_TARGET __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))

using Vector = __m256i;
constexpr size_t kVector = sizeof(Vector);

VERBENA_FOLD_TARGET inline Vector load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const Vector*>(from));
}
VERBENA_FOLD_TARGET inline void store(std::byte* to, Vector bytes) {
  _mm256_storeu_si256(reinterpret_cast<Vector*>(to), bytes);
}
VERBENA_FOLD_TARGET inline void store_past_cache(std::byte* to, Vector bytes) {
  _mm256_stream_si256(reinterpret_cast<Vector*>(to), bytes);
}
VERBENA_FOLD_TARGET inline Vector mix(Vector bytes, uint32_t state) {
  return _mm256_xor_si256(bytes, _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
}
VERBENA_FOLD_TARGET inline Vector everywhere(const Shift& by) {
  return _mm256_set_epi64x(by.second, by.first, by.second, by.first);
}
VERBENA_FOLD_TARGET inline Vector fold(Vector sum, Vector by, Vector next) {
  return _mm256_xor_si256(
      _mm256_xor_si256(_mm256_clmulepi64_epi128(sum, by, 0x00), _mm256_clmulepi64_epi128(sum, by, 0x11)),
      next);
}

// Reduces two lanes to one.
VERBENA_FOLD_TARGET inline uint32_t reduce(Vector sum) {
  constexpr Shift k128 = shift(128);
  const Vector by = _mm256_set_epi64x(0, 0, k128.second, k128.first);
  const Vector last = _mm256_blend_epi32(_mm256_setzero_si256(), sum, 0b11110000);
  alignas(kVector) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<Vector*>(words), fold(sum, by, last));
  const uint64_t crc = _mm_crc32_u64(0, words[0] ^ words[2]);
  return static_cast<uint32_t>(_mm_crc32_u64(crc, words[1] ^ words[3]));
}

#include "util/crc32c/fold_run.h"
#undef VERBENA_FOLD_TARGET

}  // namespace narrow

bool is_wide() {
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512bw");
  return wide;
}

uint32_t sum(Copy copy, uint32_t state, void* to, const void* from, size_t size) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  return is_wide() ? wide::sum(copy, state, target, source, size)
                   : narrow::sum(copy, state, target, source, size);
}

}  // namespace

bool is_supported() {
  return (is_wide() || __builtin_cpu_supports("avx2")) && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

uint32_t sum(uint32_t state, void* to, const void* from, size_t size) {
  return sum(to ? Copy::plain : Copy::none, state, to, from, size);
}

uint32_t stream(uint32_t state, void* to, const void* from, size_t size) {
  return sum(Copy::streamed, state, to, from, size);
}

#else

bool is_supported() { return false; }
// Never called: see is_supported().
uint32_t sum(uint32_t state, void*, const void*, size_t) { return state; }
uint32_t stream(uint32_t state, void*, const void*, size_t) { return state; }

#endif

}  // namespace verbena::crc32c_fold
