// What a session's bindings share: how its work is waited for, and how it fails.
#pragma once

#include <string>
#include <string_view>

#include "bind/bind.h"
#include "bind/transport/transport.h"

namespace verbena::bind {

inline std::span<const std::byte> bytes_of(const BufferView& view) { return {view.data(), view.size()}; }

[[noreturn]] void raise_setup(const SessionHandle& self, ErrorCode code, const char* operation,
                              const std::string& detail);
[[noreturn]] void raise_outcome(const SessionHandle& self, const char* operation, transport::Outcome outcome,
                                Status status, std::string_view detail);
[[noreturn]] void raise_refused(const SessionHandle& self, const char* operation);

// Waits for a call of ours and takes its answer; a signal or the deadline cancels it.
nb::bytes finish_call(SessionHandle& self, transport::Operation& call, const char* operation,
                      double timeout_s);

// Hands a call that was begun to a queue; 0: it could not begin.
uint64_t hand_over(SessionHandle& self, transport::Operation* call, QueueHandle& queue, uint64_t token);

void bind_session_memory(nb::class_<SessionHandle>& session);

}  // namespace verbena::bind
