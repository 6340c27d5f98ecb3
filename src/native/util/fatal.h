// What happens to an exception that no caller can handle: end_process() ends the process with one line on
// standard error, and report() writes such a line and lets the process continue. Neither allocates memory.
// Depends on the C library only.
#pragma once

#include <cxxabi.h>

#include <cstdint>
#include <exception>
#include <utility>

namespace verbena {

// The exit status of a process that an internal failure has ended (EX_SOFTWARE).
constexpr int kFailureStatus = 70;

// Writes "verbena: OPERATION failed: REASON; …" to standard error and ends the process with kFailureStatus.
// Runs no destructors and flushes no buffers: the memory may be inconsistent, and a store recovers from its
// log. `reason` null: the exception that is being handled, or none.
[[noreturn]] void end_process(const char* operation, const char* reason = nullptr) noexcept;

// Writes "verbena: OPERATION failed: REASON; CONSEQUENCE" to standard error, at most once a minute for each
// operation. `operation` must be a string literal. `reason` null: the exception that is being handled.
void report(const char* operation, const char* consequence, const char* reason = nullptr) noexcept;

// Describes the exception that is being handled, valid as long as it is handled.
const char* current_reason() noexcept;

// Calls `function`. An exception ends the process: for the main functions of threads, and for steps after
// which the state would be inconsistent.
template <typename Function>
decltype(auto) or_end_process(const char* operation, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const abi::__forced_unwind&) {  // the thread is being cancelled, which is no failure
    throw;
  } catch (...) {
    end_process(operation);
  }
}

}  // namespace verbena
