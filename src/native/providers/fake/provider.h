// A deterministic wire inside one process, for tests. It has no threads: all progress happens inside post,
// poll and arm. Gives make_provider() and the controls of a test: the packets in flight and the virtual
// clock. Depends on soft/, verbs/ and util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "verbs/provider.h"

namespace verbena::fake {

std::shared_ptr<Provider> make_provider();

// Receives every packet (header and payload) before it is delivered and may change it; empty: none. The
// receiver drops a changed packet, and the requester sends it again when its timer expires. Must not call
// verbs.
using PacketTap = std::function<void(std::span<std::byte>)>;
void set_packet_tap(PacketTap tap);

// Retry and RNR timers run on this clock. Each poll of a completion queue advances it by kPollTime. Arming a
// queue while a timer runs advances it by kSleepTime and wakes the caller, because no other thread would.
uint64_t virtual_now_ns();
constexpr uint64_t kPollTime = 1'000;
constexpr uint64_t kSleepTime = 100'000;

}  // namespace verbena::fake
