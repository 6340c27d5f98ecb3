#include "util/forks.h"

#include <pthread.h>
#include <unistd.h>

#include <bit>
#include <mutex>
#include <vector>

namespace verbena {

std::atomic<uint32_t> fork_count{0};

namespace {

constexpr size_t kBits = 64;

// One bit for each descriptor. Never destroyed: objects of the program may outlive static objects.
struct Unshared {
  std::mutex mutex;
  std::vector<uint64_t> words;
};

Unshared& unshared() {
  static auto* const instance = new Unshared;
  return *instance;
}

// Needs the mutex.
void forget(int fd) {
  const auto number = static_cast<size_t>(fd);
  if (number / kBits < unshared().words.size())
    unshared().words[number / kBits] &= ~(uint64_t{1} << number % kBits);
}

// Only calls that are safe in a child of a process with threads.
void begin_child() {
  fork_count.fetch_add(1, std::memory_order_relaxed);
  std::vector<uint64_t>& words = unshared().words;
  for (size_t i = 0; i < words.size(); ++i) {
    for (; words[i] != 0; words[i] &= words[i] - 1)
      ::close(static_cast<int>(i * kBits) + std::countr_zero(words[i]));
  }
  unshared().mutex.unlock();
}

// Registered before any object is made, since every such object refers to fork_count.
[[maybe_unused]] const int registered =
    ::pthread_atfork([] { unshared().mutex.lock(); }, [] { unshared().mutex.unlock(); }, begin_child);

}  // namespace

void close_in_child(int fd) {
  const auto number = static_cast<size_t>(fd);
  const std::lock_guard lock(unshared().mutex);
  if (unshared().words.size() <= number / kBits) unshared().words.resize(number / kBits + 1);
  unshared().words[number / kBits] |= uint64_t{1} << number % kBits;
}

void keep_in_child(int fd) {
  const std::lock_guard lock(unshared().mutex);
  forget(fd);
}

void close_unshared(int fd) {
  const std::lock_guard lock(unshared().mutex);
  forget(fd);
  ::close(fd);
}

}  // namespace verbena
