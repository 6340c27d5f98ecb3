#include "kv/values/staged_values.h"

#include <algorithm>
#include <cstring>

#include "util/crc32c/crc32c.h"
#include "util/error.h"

namespace verbena::kv {

bool StagedValues::expect(size_t key_bytes, std::string_view value) {
  Arena& arena = engine_.keyspace.arena();
  Value staged{key_bytes, value, 0, nullptr};
  try {
    values_.reserve(values_.size() + 1);
    staged.location = arena.allocate(item_bytes(staged));
  } catch (const std::exception&) {
    return false;  // applying the record will report the error
  }
  staged.to = reinterpret_cast<char*>(arena.at(staged.location)) + sizeof(ItemHeader) + key_bytes;
  values_.push_back(staged);
  return true;
}

uint32_t StagedValues::fill(uint32_t sum, std::string_view piece, char* copy) {
  constexpr size_t kCached = 16u << 10;  // copied at a time, so that the second copy reads from the cache
  size_t done = 0;
  const auto copy_until = [&](size_t end) {
    sum = copy_crc32c(sum, copy + done, piece.data() + done, end - done);
    done = end;
  };
  for (Value& value : values_) {
    const auto start = static_cast<size_t>(value.from.data() - piece.data());
    const size_t end = start + value.from.size();
    value.from = {copy + start, value.from.size()};
    copy_until(start);
    while (done < end) {
      const size_t from = done;
      copy_until(std::min(end, done + kCached));
      std::memcpy(value.to + (from - start), copy + from, done - from);
    }
  }
  copy_until(piece.size());
  return sum;
}

// The sender may have changed the piece before it was copied, so that the copy's records differ from those
// that expect() saw: address, length and key length are compared.
Location StagedValues::find(size_t key_bytes, std::string_view value) {
  for (size_t i = next_; i < values_.size(); ++i) {
    const Value& staged = values_[i];
    if (staged.from.data() != value.data() || staged.from.size() != value.size() ||
        staged.key_bytes != key_bytes) {
      continue;
    }
    next_ = i;
    return staged.location;
  }
  return 0;
}

void StagedValues::give_back() {
  std::erase_if(values_, [](const Value& value) { return value.location == 0; });
  if (values_.empty()) return;
  const auto held = engine_.lock();
  for (const Value& value : values_) engine_.keyspace.arena().free(value.location, item_bytes(value));
}

}  // namespace verbena::kv
