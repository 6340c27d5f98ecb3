// The state diagram of a reliable-connected queue pair: which edges exist and what each one needs, as the
// InfiniBand specification defines them (10.3, table of modify attributes), and helpers that follow the
// edges.
#pragma once

#include <cstdint>

#include "verbs/provider.h"

namespace verbena::soft {

const char* name_of(QpState state);

// Throws bad_transition for an edge that does not exist, missing_attribute when one is not given.
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

// The attributes that the edges to INIT, RTR and RTS need.
constexpr uint32_t kInitAttributes = qp_attr::pkey_index | qp_attr::port | qp_attr::access_flags;
constexpr uint32_t kRtrAttributes = qp_attr::address | qp_attr::path_mtu | qp_attr::dest_qp_num |
                                    qp_attr::rq_psn | qp_attr::max_dest_rd_atomic | qp_attr::min_rnr_timer;
constexpr uint32_t kRtsAttributes =
    qp_attr::sq_psn | qp_attr::timeout | qp_attr::retry_count | qp_attr::rnr_retry | qp_attr::max_rd_atomic;

// Moves a queue pair from RESET to INIT, and from INIT through RTR to RTS; the latter takes every attribute
// of `wanted` that those edges need. Both throw what modify() throws.
void move_to_init(QueuePair& qp, uint32_t access_flags = access::all);
void move_to_rts(QueuePair& qp, QpAttributes wanted);

// How long a requester waits for an acknowledgement, including retries, and a responder's RNR delay. 0:
// without limit.
uint64_t retry_limit_ns(uint8_t timeout, uint8_t retry_count);
uint64_t rnr_delay_ns(uint8_t min_rnr_timer);

}  // namespace verbena::soft
