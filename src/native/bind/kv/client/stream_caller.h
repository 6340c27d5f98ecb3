// How Python threads use kv::SessionStream: they wait without the GIL, and an error of the session is raised
// as what Python knows about it. Depends on the bindings of sessions and on kv/client.
#pragma once

#include <atomic>
#include <utility>

#include "bind/errors.h"
#include "bind/transport/transport.h"
#include "bind/verbs/waiting.h"
#include "kv/client/session_stream.h"
#include "util/error.h"

namespace verbena::bind {

// Releases the GIL while it waits; signal handlers of Python run meanwhile.
struct StreamCaller {
  static std::unique_lock<YieldingMutex> lock(transport::Node& node) { return lock_from_python(node); }
  static bool wait(transport::Node& node, transport::Operation& call, double timeout_s) {
    return wait_with_signals(deadline_after(timeout_s),
                             [&](uint64_t until_ns) { return node.wait(call, until_ns); });
  }
  static void pause() {
    const Unlocked unlocked;
    std::this_thread::yield();
  }
};

// Negative: there is no deadline.
inline double seconds_until(uint64_t deadline_ns) {
  if (deadline_ns == kNever) return -1;
  const uint64_t now = now_ns();
  return deadline_ns <= now ? 0 : static_cast<double>(deadline_ns - now) * 1e-9;
}

// The number of a new stream. Streams of one session have different numbers.
inline uint32_t next_stream() {
  static std::atomic<uint32_t> numbers{0};
  return ++numbers;
}

using SessionStream = kv::SessionStream<StreamCaller>;

// Calls `work`; an Error that it throws becomes the exception that the Python function `map_error` returns
// for it.
template <typename Work>
auto mapping_errors(const nb::object& map_error, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    raise(map_error(setup_error(error.code(), error.operation(), error.detail(), {}, error.error_number())));
  }
}

}  // namespace verbena::bind
