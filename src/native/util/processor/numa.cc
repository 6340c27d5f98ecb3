#include "util/processor/numa.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace verbena {
namespace {

constexpr size_t kPage = 4096;
constexpr int kMaxNodes = 1024;
constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

}  // namespace

std::string prefer_node(void* memory, size_t bytes, int node) {
  if (node < 0 || node >= kMaxNodes) return "there is no NUMA node " + std::to_string(node);
  std::array<unsigned long, kMaxNodes / kWordBits> nodes{};
  const auto bit = static_cast<size_t>(node);
  nodes[bit / kWordBits] = 1ul << bit % kWordBits;
  // The kernel uses one bit less than the length passed in.
  if (syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes.data(), kMaxNodes + 1, MPOL_MF_MOVE) == 0)
    return {};
  switch (errno) {
    case EINVAL:
      return "there is no NUMA node " + std::to_string(node) + " with memory";
    case ENOSYS:
      return "this kernel knows nothing of NUMA";
    case EPERM:
      return "this process may not choose where its memory lies; in a container: --cap-add SYS_NICE";
    default:
      return std::string("mbind() failed: ") + std::strerror(errno);
  }
}

std::string can_prefer_node(int node) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return std::string("mmap() failed: ") + std::strerror(errno);
  const std::string reason = prefer_node(page, kPage, node);
  munmap(page, kPage);
  return reason;
}

}  // namespace verbena
