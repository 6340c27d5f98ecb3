// The state diagram of a reliable-connected queue pair: which edges exist and what each one needs.
// Pure functions; the verbs' own rules (InfiniBand specification 10.3, table of modify attributes).
#pragma once

#include <cstdint>

#include "verbs/types.h"

namespace verbena::soft {

const char* name_of(QpState state);

// Throws bad_transition for an edge that does not exist, missing_attribute for one that lacks something.
void check_transition(QpState from, const QpAttributes& wanted);

// Copies the attributes that `wanted` carries, and its state, into `current`.
void merge_attributes(QpAttributes& current, const QpAttributes& wanted);

constexpr bool accepts_receives(QpState state) { return state != QpState::reset; }
constexpr bool accepts_sends(QpState state) {
  return state == QpState::rts || state == QpState::sqd || state == QpState::sqe || state == QpState::err;
}
constexpr bool can_respond(QpState state) {
  return state == QpState::rtr || state == QpState::rts || state == QpState::sqd || state == QpState::sqe;
}

// How long a requester waits for an acknowledgement in all, and a responder's RNR delay. 0: for ever.
uint64_t retry_limit_ns(uint8_t timeout, uint8_t retry_count);
uint64_t rnr_delay_ns(uint8_t min_rnr_timer);

}  // namespace verbena::soft
