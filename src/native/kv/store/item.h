// The length and the checksum of an item.
// Depends on the layout and CRC32C.
#pragma once

#include <cstddef>

#include "kv/store/store_layout.h"
#include "util/crc32c/crc32c.h"

namespace verbena::kv {

inline size_t item_bytes(const ItemHeader& item) { return sizeof item + item.key_bytes + item.value_bytes; }

// Marks the item as sealed: remote readers that find it by the index with this id accept it from now on.
inline void put_checksum(ItemHeader& item, uint16_t index_id) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&item);
  item.sealed = 1;
  item.checksum = crc32c(index_id, bytes + kChecked, item_bytes(item) - kChecked);
}

}  // namespace verbena::kv
