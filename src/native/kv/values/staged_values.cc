#include "kv/values/staged_values.h"

#include "util/crc32c/crc32c.h"
#include "util/error.h"

namespace verbena::kv {

bool StagedValues::expect(size_t key_bytes, std::string_view value) {
  Arena& arena = engine_.keyspace.arena();
  Value staged{key_bytes, value, 0, nullptr};
  try {
    staged.location = arena.allocate(item_bytes(staged));
  } catch (const Error&) {
    return false;  // applying the record will report the error
  }
  staged.to = reinterpret_cast<char*>(arena.at(staged.location)) + sizeof(ItemHeader) + key_bytes;
  values_.push_back(staged);
  return true;
}

uint32_t StagedValues::fill(uint32_t sum, std::string_view piece) {
  const char* at = piece.data();
  for (const Value& value : values_) {
    sum = crc32c(sum, at, static_cast<size_t>(value.from.data() - at));
    sum = copy_crc32c(sum, value.to, value.from.data(), value.from.size());
    at = value.from.data() + value.from.size();
  }
  return crc32c(sum, at, static_cast<size_t>(piece.data() + piece.size() - at));
}

// The sender can still write into the piece, so its records may differ from those that expect() saw: address,
// length and key length are compared.
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
