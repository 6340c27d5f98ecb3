// What a forked child does with the objects of its parent: it counts the fork, by which objects find out that
// they were inherited, and closes the descriptors that must not outlive the parent. Peers detect the death of
// a process by its sockets, and its ports must be free for its successor.
// Depends on nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

// Forks of this process and its ancestors since this code was loaded.
extern std::atomic<uint32_t> fork_count;

inline uint32_t forks() { return fork_count.load(std::memory_order_relaxed); }

// fork() closes the descriptor in the child, until it is removed from the list. UnsharedFd in fd.h calls
// these; call them for descriptors that belong to a library.
void close_in_child(int fd);
void keep_in_child(int fd);
void close_unshared(int fd);  // removes it and closes it, without a fork in between

}  // namespace verbena
