// Long values of a received piece, which its sender can change at any time. While the piece is copied to
// private memory and its checksum computed, they are also copied to their final place in the store, from
// bytes that are still in the cache. Nothing refers to them before the checksum has been verified and the
// piece's records are applied. Blocks that no record takes are freed. Depends on the engine; not on records
// or sessions.
#pragma once

#include <string_view>
#include <vector>

#include "kv/engine/engine.h"

namespace verbena::kv {

class StagedValues {
 public:
  explicit StagedValues(Engine& engine) : engine_(engine) {}
  ~StagedValues() { give_back(); }
  StagedValues(const StagedValues&) = delete;
  StagedValues& operator=(const StagedValues&) = delete;

  // Allocates an item for a value of the piece. Call it in the order of the values, with the engine's lock.
  // False: there is no memory, and the value is not staged.
  bool expect(size_t key_bytes, std::string_view value);
  // Copies the piece to `copy`, which has its length, and the values to their place. Returns the CRC32C
  // `sum`, continued over the piece: it covers exactly the bytes that were copied. Needs no lock.
  uint32_t fill(uint32_t sum, std::string_view piece, char* copy);
  // After fill(), with the engine's lock: the item for a key of this length with this value of the copy; 0:
  // it is not staged. A caller that takes over the item must call taken() next.
  Location find(size_t key_bytes, std::string_view value);
  void taken() { values_[next_++].location = 0; }

 private:
  struct Value {
    size_t key_bytes;
    std::string_view from;  // in the piece; after fill(), in the copy
    Location location;
    char* to;
  };
  static size_t item_bytes(const Value& value) {
    return sizeof(ItemHeader) + value.key_bytes + value.from.size();
  }
  void give_back();

  Engine& engine_;
  std::vector<Value> values_;  // in the order of the piece
  size_t next_ = 0;
};

}  // namespace verbena::kv
