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
#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;
#endif

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
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail("limit_exceeded", "cannot seal a memfd");
  return fd;
}

void seal(int fd, bool peers_may_write) {
  constexpr const char* kCannot = "the kernel cannot share memory for reading only (Linux 5.1 can)";
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | (peers_may_write ? 0 : F_SEAL_FUTURE_WRITE)) != 0)
    fail("provider_missing", kCannot);
  if (peers_may_write) return;
  // Older kernels accept the seal for huge pages and do not enforce it.
  void* writable = mmap(nullptr, sealed_size(fd), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (writable == MAP_FAILED) return;
  munmap(writable, sealed_size(fd));
  errno = 0;
  fail("provider_missing", kCannot);
}

bool is_sealed_for_writing(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
}

size_t sealed_size(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info;
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &info) != 0 || info.st_size <= 0) return 0;
  return static_cast<size_t>(info.st_size);
}

}  // namespace verbena::shm
