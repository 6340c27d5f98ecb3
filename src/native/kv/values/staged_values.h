// Long values of a piece that lands: while the piece is summed they are copied to where the store will have
// them, so that its bytes are read once. Nothing refers to them before the sum has proved right and the
// piece's records are applied; what no record takes is given back.
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

  // With the engine's lock: room for a value of the piece's, behind those before it. False: there is none.
  bool expect(size_t key_bytes, std::string_view value);
  // Without it: copies them, and continues `sum` over the piece, exactly what was copied included.
  uint32_t fill(uint32_t sum, std::string_view piece);
  // With it, filled: where an item for a key of this length lies that has this value; 0: nowhere. It is
  // whoever's who says taken() then.
  Location find(size_t key_bytes, std::string_view value);
  void taken() { values_[next_++].location = 0; }

 private:
  struct Value {
    size_t key_bytes;
    std::string_view from;
    Location location;
    char* to;
  };
  static size_t item_bytes(const Value& value) {
    return sizeof(ItemHeader) + value.key_bytes + value.from.size();
  }
  void give_back();

  Engine& engine_;
  std::vector<Value> values_;  // as they lie in the piece
  size_t next_ = 0;
};

}  // namespace verbena::kv
