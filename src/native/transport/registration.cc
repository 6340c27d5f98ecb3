#include "transport/registration.h"

#include "transport/port.h"

namespace verbena::transport {

MemoryRegion& Registration::on(const Port& port) {
  for (const auto& [known, region] : regions_) {
    if (known == &port) return *region;
  }
  regions_.emplace_back(&port, port.pd().register_memory(data_, length_, access_, pin_));
  return *regions_.back().second;
}

void Registration::close() {
  for (const auto& [port, region] : regions_) region->close();
  regions_.clear();
}

}  // namespace verbena::transport
