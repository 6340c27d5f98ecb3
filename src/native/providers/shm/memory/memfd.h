// Anonymous shared memory: sealed memfds and their mappings. The kernel frees it with its last user.
#pragma once

#include <cstddef>

#include "util/fd.h"

namespace verbena::shm {

class Mapping {
 public:
  Mapping() = default;
  // Maps all `size` bytes of `fd`; throws.
  Mapping(int fd, size_t size, bool writable);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A memfd of fixed size, sealed so that no process can shrink it under a mapping (which would cause SIGBUS).
UniqueFd make_memfd(const char* label, size_t size, bool huge_pages);

// Adds the last seal. Unless peers may write, no process can map the memory for writing from now on, whatever
// descriptor it has or opens: only mappings that exist already can be written. Throws if the kernel cannot do
// that.
void seal(int fd, bool peers_may_write);
bool is_sealed_for_writing(int fd);

// The size of a memfd from a peer, or 0 when it is not sealed against shrinking and growing.
size_t sealed_size(int fd);

}  // namespace verbena::shm
