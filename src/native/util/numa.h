// Where memory lies on a machine with several NUMA nodes, by system calls alone.
#pragma once

#include <cstddef>
#include <string>

namespace verbena {

// Has the kernel take the pages of a mapping from this node while it has some, those that are there already
// too. Why it cannot, or nothing.
std::string prefer_node(void* memory, size_t bytes, int node);
// The same for a page of its own: whether it would work.
std::string can_prefer_node(int node);

}  // namespace verbena
