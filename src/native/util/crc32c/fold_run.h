// The loop of fold.cc, included once per register width, hence without a guard. The including
// namespace defines Vector of kVector bytes, how to load, fold and reduce it, and VERBENA_FOLD_TARGET.

template <Copy kCopy>
VERBENA_FOLD_TARGET inline Vector take(std::byte* to, const std::byte* from, size_t at) {
  const Vector bytes = load(from + at);
  if constexpr (kCopy == Copy::plain) store(to + at, bytes);
  if constexpr (kCopy == Copy::streamed) store_past_cache(to + at, bytes);
  return bytes;
}

template <Copy kCopy>
VERBENA_FOLD_TARGET uint32_t run(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  constexpr size_t kStep = 4 * kVector;
  constexpr Shift kFar = shift(8 * kStep), kNear = shift(8 * kVector);
  const Vector far = everywhere(kFar), near = everywhere(kNear);
  Vector a = mix(take<kCopy>(to, from, 0), state);
  Vector b = take<kCopy>(to, from, kVector);
  Vector c = take<kCopy>(to, from, 2 * kVector);
  Vector d = take<kCopy>(to, from, 3 * kVector);
  size_t at = kStep;
  for (; size - at >= kStep; at += kStep) {
    a = fold(a, far, take<kCopy>(to, from, at));
    b = fold(b, far, take<kCopy>(to, from, at + kVector));
    c = fold(c, far, take<kCopy>(to, from, at + 2 * kVector));
    d = fold(d, far, take<kCopy>(to, from, at + 3 * kVector));
  }
  d = fold(fold(fold(a, near, b), near, c), near, d);
  for (; at < size; at += kVector) d = fold(d, near, take<kCopy>(to, from, at));
  if constexpr (kCopy == Copy::streamed) _mm_sfence();  // non-temporal stores are not ordered
  return reduce(d);
}

inline uint32_t sum(Copy copy, uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  switch (copy) {
    case Copy::none:
      return run<Copy::none>(state, to, from, size);
    case Copy::plain:
      return run<Copy::plain>(state, to, from, size);
    default:
      return run<Copy::streamed>(state, to, from, size);
  }
}
