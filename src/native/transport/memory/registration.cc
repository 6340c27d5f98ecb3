#include "transport/memory/registration.h"

#include "transport/memory/regions.h"
#include "transport/node/port.h"

namespace verbena::transport {

const std::shared_ptr<MemoryRegion>& Registration::piece(const Port& port, size_t number) {
  for (const Known& known : known_) {
    if (known.port == &port && known.number == number) return known.region;
  }
  const size_t offset = piece_bytes_ == SIZE_MAX ? 0 : number * piece_bytes_;
  known_.push_back(
      {&port, number, port.pd().register_memory(data_ + offset, in_piece(offset), access_, false)});
  return known_.back().region;
}

std::shared_ptr<MemoryWindow> Registration::lend(const Port& port, const std::shared_ptr<QueuePair>& qp,
                                                 uint32_t access, const Audience& audience) {
  return port.pd().bind_window(piece(port, 0), access, qp, audience.group().get());
}

void Registration::close() {
  for (const Known& known : known_) known.region->close();
  known_.clear();
}

}  // namespace verbena::transport
