// Functions that the bindings of a session share: waiting for an operation, and raising its failure.
// May depend on bind/, transport/, verbs/ and util/ only.
#pragma once

#include <string>
#include <string_view>

#include "bind/bind.h"
#include "bind/transport/transport.h"
#include "bind/verbs/remote_layout.h"

namespace verbena::bind {

inline std::span<const std::byte> bytes_of(const BufferView& view) { return {view.data(), view.size()}; }

[[noreturn]] void raise_setup(const SessionHandle& self, ErrorCode code, const char* operation,
                              const std::string& detail);
[[noreturn]] void raise_outcome(const SessionHandle& self, const char* operation, transport::Outcome outcome,
                                Status status, std::string_view detail);
[[noreturn]] void raise_refused(const SessionHandle& self, const char* operation);

// Waits for an operation and returns its answer. Raises its failure, and cancels it if the deadline passes or
// a signal handler raises.
nb::bytes finish_call(SessionHandle& self, transport::Operation& call, const char* operation,
                      double timeout_s);

// Makes the operation report to the queue with `token`. Returns its id, for cancel(); 0 if `call` is null.
uint64_t hand_over(SessionHandle& self, transport::Operation* call, QueueHandle& queue, uint64_t token);

const RemoteRegion& remote_of(const nb::handle& remote, const char* operation);
// Raises for requests that the peer would refuse: a region of another run, or more bytes than it has.
void check_remote(const SessionHandle& self, const RemoteRegion& remote, const char* operation,
                  uint64_t length);

struct LocalMemory {
  std::byte* data;
  size_t size;
  bool readonly;
};

// Takes the memory's registration from the cache, or creates one. With an owner, return_registration() may
// put it into the cache afterwards.
transport::CachedRegistration take_registration(transport::Node& node, const LocalMemory& local,
                                                const nb::handle& owner);
void return_registration(transport::Node& node, transport::CachedRegistration entry, bool is_whole);

void bind_session_memory(nb::class_<SessionHandle>& session);
void bind_session_batch(nb::class_<SessionHandle>& session);

}  // namespace verbena::bind
