#include "providers/shm/memory/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "util/error.h"

namespace verbena::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void fail(ErrorCode code, const std::string& what) {
  throw Error(code, "share memory", what, errno);
}

}  // namespace

Mapping::Mapping(int fd, size_t size, bool writable) : size_(size) {
  void* memory = mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("limit_exceeded", "cannot map " + std::to_string(size) + " bytes");
  data_ = static_cast<std::byte*>(memory);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, size_);
}

UniqueFd make_memfd(const char* label, size_t size, bool huge_pages) {
  UniqueFd fd(memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0u)));
  if (!fd)
    fail(errno == EMFILE || errno == ENFILE ? ErrorCode("fd_limit") : "huge_pages", "memfd_create() failed");
  // posix_fallocate would touch every page; only huge pages must be available before they are promised.
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) fail("limit_exceeded", "cannot size a memfd");
  if (huge_pages && fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0) {
    fail("huge_pages", "no " + std::to_string(size) + " bytes of free huge pages");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) fail("limit_exceeded", "cannot seal a memfd");
  return fd;
}

UniqueFd reopen_read_only(int fd) {
  UniqueFd again(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!again) fail("fd_limit", "cannot reopen a memfd");
  return again;
}

size_t sealed_size(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info;
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &info) != 0 || info.st_size <= 0) return 0;
  return static_cast<size_t>(info.st_size);
}

}  // namespace verbena::shm
