// Places mappings on a NUMA node, and reports whether that works.
// Depends on system calls only.
#pragma once

#include <cstddef>
#include <string>

namespace verbena {

// Makes the kernel place the pages of a mapping on this node while it has free ones, and moves pages that
// exist already. Returns why it cannot; empty on success.
std::string prefer_node(void* memory, size_t bytes, int node);
// Tries the placement with a new page, to report whether it would work.
std::string can_prefer_node(int node);

}  // namespace verbena
