#include "util/crc32c_fold.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace verbena::crc32c_fold {

#if defined(__x86_64__)

namespace {

#define VERBENA_FOLD_TARGET __attribute__((target("avx512f,avx512vl,avx512bw,vpclmulqdq,pclmul,sse4.2")))

// x^power modulo the polynomial, bit e for x^e.
constexpr uint32_t power_of_x(unsigned power) {
  constexpr uint32_t kPolynomial = 0x1edc6f41;
  uint32_t value = 1;
  for (; power > 0; --power) value = value << 1 ^ (value >> 31 ? kPolynomial : 0);
  return value;
}

// The same as a factor: CRC32C keeps its bits reflected, so x^e stands in bit 63 - e.
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
  uint64_t first, second;
};
constexpr Shift shift(unsigned distance) { return {factor(distance + 63), factor(distance - 1)}; }

VERBENA_FOLD_TARGET inline __m512i everywhere(const Shift& by) {
  const auto first = static_cast<int64_t>(by.first), second = static_cast<int64_t>(by.second);
  return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}

VERBENA_FOLD_TARGET inline __m512i fold(__m512i sum, __m512i by, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00),
                                   _mm512_clmulepi64_epi128(sum, by, 0x11), next, kXorOfThree);
}

// The one lane that is left of four.
VERBENA_FOLD_TARGET uint32_t reduce(__m512i sum) {
  constexpr Shift k384 = shift(384), k256 = shift(256), k128 = shift(128);
  const auto word = [](uint64_t value) { return static_cast<int64_t>(value); };
  const __m512i by = _mm512_set_epi64(0, 0, word(k128.second), word(k128.first), word(k256.second),
                                      word(k256.first), word(k384.second), word(k384.first));
  const __m512i last = _mm512_maskz_mov_epi64(0b11000000, sum);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, fold(sum, by, last));
  const uint64_t crc = _mm_crc32_u64(0, words[0] ^ words[2] ^ words[4] ^ words[6]);
  return static_cast<uint32_t>(_mm_crc32_u64(crc, words[1] ^ words[3] ^ words[5] ^ words[7]));
}

enum class Copy : uint8_t { none, plain, streamed };

template <Copy kCopy>
VERBENA_FOLD_TARGET inline __m512i take(std::byte* to, const std::byte* from, size_t at) {
  const __m512i bytes = _mm512_loadu_si512(from + at);
  if constexpr (kCopy == Copy::plain) _mm512_storeu_si512(to + at, bytes);
  if constexpr (kCopy == Copy::streamed) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), bytes);
  return bytes;
}

template <Copy kCopy>
VERBENA_FOLD_TARGET uint32_t run(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  constexpr Shift k2048 = shift(2048), k512 = shift(512);
  const __m512i far = everywhere(k2048), near = everywhere(k512);
  const __m512i before = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state)));
  __m512i a = _mm512_xor_si512(take<kCopy>(to, from, 0), before);
  __m512i b = take<kCopy>(to, from, 64);
  __m512i c = take<kCopy>(to, from, 128);
  __m512i d = take<kCopy>(to, from, 192);
  size_t at = 256;
  for (; size - at >= 256; at += 256) {
    a = fold(a, far, take<kCopy>(to, from, at));
    b = fold(b, far, take<kCopy>(to, from, at + 64));
    c = fold(c, far, take<kCopy>(to, from, at + 128));
    d = fold(d, far, take<kCopy>(to, from, at + 192));
  }
  d = fold(fold(fold(a, near, b), near, c), near, d);
  for (; at < size; at += 64) d = fold(d, near, take<kCopy>(to, from, at));
  if constexpr (kCopy == Copy::streamed) _mm_sfence();  // such stores keep no order by themselves
  return reduce(d);
}

}  // namespace

bool is_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

uint32_t sum(uint32_t state, void* to, const void* from, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  if (!to) return run<Copy::none>(state, nullptr, bytes, size);
  return run<Copy::plain>(state, static_cast<std::byte*>(to), bytes, size);
}

uint32_t stream(uint32_t state, void* to, const void* from, size_t size) {
  return run<Copy::streamed>(state, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size);
}

#else

bool is_here() { return false; }
// Never called: see is_here().
uint32_t sum(uint32_t state, void*, const void*, size_t) { return state; }
uint32_t stream(uint32_t state, void*, const void*, size_t) { return state; }

#endif

}  // namespace verbena::crc32c_fold
