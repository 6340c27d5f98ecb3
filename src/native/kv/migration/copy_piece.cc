#include "kv/migration/copy_piece.h"

#include "kv/journal/log_record.h"
#include "util/crc32c/crc32c.h"

namespace verbena::kv {

void CopyPiece::fill_holes() {
  for (Hole& hole : holes) hole.sum = copy_crc32c(0, to.data() + hole.at, hole.value, hole.bytes);
}

uint32_t CopyPiece::seal() {
  uint32_t sum = 0;
  size_t at = 0;
  for (const Hole& hole : holes) {
    if (hole.record_bytes != 0) {
      seal_record_with_hole(to.data() + hole.record_at, hole.record_bytes,
                            {hole.at - hole.record_at, hole.bytes}, hole.sum, kStreamSeed);
    }
    sum = crc32c(sum, to.data() + at, hole.at - at);
    sum = combine_crc32c(sum, hole.sum, hole.bytes);
    at = hole.at + hole.bytes;
  }
  return crc32c(sum, to.data() + at, used - at);
}

}  // namespace verbena::kv
