// A wire inside one process, for tests: no threads, no surprises. All progress happens inside post, poll and
// arm. Gives make_provider() and what a test may turn: the packets in flight and the virtual clock. May
// depend on soft/, verbs/ and util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "verbs/provider.h"

namespace verbena::fake {

std::shared_ptr<Provider> make_provider();

// Shown every packet (header and payload) before it is delivered, and may change it; empty for none. A packet
// that was changed is dropped by its receiver and sent again when the requester's timer expires. It must not
// call verbs.
using PacketTap = std::function<void(std::span<std::byte>)>;
void set_packet_tap(PacketTap tap);

// Retry and RNR timers run on this clock. Each poll of a completion queue moves it by kPollTime; arming one
// moves it by kSleepTime if a timer runs, and wakes the sleeper, since nobody else would.
uint64_t virtual_now_ns();
constexpr uint64_t kPollTime = 1'000;
constexpr uint64_t kSleepTime = 100'000;

}  // namespace verbena::fake
