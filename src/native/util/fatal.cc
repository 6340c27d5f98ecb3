#include "util/fatal.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <initializer_list>

#include "util/clock.h"

namespace verbena {

namespace {

// One writev(), so that lines of several threads do not mix.
void write_line(std::initializer_list<const char*> texts) noexcept {
  std::array<iovec, 8> pieces{};
  size_t count = 0;
  for (const char* text : texts) {
    if (count < pieces.size()) pieces[count++] = {const_cast<char*>(text), std::strlen(text)};
  }
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, pieces.data(), static_cast<int>(count));
}

// True once a minute for each operation. More operations than places share the last one.
bool is_due(const char* operation) noexcept {
  constexpr uint64_t kMinuteNs = 60'000'000'000;
  struct Place {
    std::atomic<const char*> operation{nullptr};
    std::atomic<uint64_t> reported_ns{0};
  };
  static std::array<Place, 32> places;
  for (Place& place : places) {
    const char* found = nullptr;
    const bool is_its = place.operation.compare_exchange_strong(found, operation) || found == operation;
    if (!is_its && &place != &places.back()) continue;
    const uint64_t now = now_ns();
    uint64_t before = place.reported_ns.load();
    return (before == 0 || now - before >= kMinuteNs) &&
           place.reported_ns.compare_exchange_strong(before, now);
  }
  return false;
}

}  // namespace

const char* current_reason() noexcept {
  if (!std::current_exception()) return "unknown reason";
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

void end_process(const char* operation, const char* reason) noexcept {
  write_line(
      {"verbena: ", operation, " failed: ", reason ? reason : current_reason(), "; the process ends\n"});
  ::_exit(kFailureStatus);
}

void report(const char* operation, const char* consequence, const char* reason) noexcept {
  if (!is_due(operation)) return;
  write_line(
      {"verbena: ", operation, " failed: ", reason ? reason : current_reason(), "; ", consequence, "\n"});
}

}  // namespace verbena
