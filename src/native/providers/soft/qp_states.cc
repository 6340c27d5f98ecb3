#include "providers/soft/qp_states.h"

#include <array>
#include <string>

#include "util/error.h"

namespace verbena::soft {
namespace {

struct Edge {
  QpState from, to;
  uint32_t required;
};

// RESET and ERR can be reached from every state and are not listed.
constexpr Edge kEdges[] = {
    {QpState::reset, QpState::init, kInitAttributes},
    {QpState::init, QpState::init, 0},
    {QpState::init, QpState::rtr, kRtrAttributes},
    {QpState::rtr, QpState::rts, kRtsAttributes},
    {QpState::rts, QpState::rts, 0},
    {QpState::rts, QpState::sqd, 0},
    {QpState::sqd, QpState::sqd, 0},
    {QpState::sqd, QpState::rts, 0},
    {QpState::sqe, QpState::rts, 0},
};

struct AttributeName {
  uint32_t bit;
  const char* name;
};

constexpr AttributeName kAttributeNames[] = {
    {qp_attr::access_flags, "access_flags"},
    {qp_attr::pkey_index, "pkey_index"},
    {qp_attr::port, "port"},
    {qp_attr::address, "dest_gid"},
    {qp_attr::path_mtu, "path_mtu"},
    {qp_attr::dest_qp_num, "dest_qp_num"},
    {qp_attr::rq_psn, "rq_psn"},
    {qp_attr::max_dest_rd_atomic, "max_dest_rd_atomic"},
    {qp_attr::min_rnr_timer, "min_rnr_timer"},
    {qp_attr::sq_psn, "sq_psn"},
    {qp_attr::timeout, "timeout"},
    {qp_attr::retry_count, "retry_count"},
    {qp_attr::rnr_retry, "rnr_retry"},
    {qp_attr::max_rd_atomic, "max_rd_atomic"},
};

std::string missing_names(uint32_t missing) {
  std::string names;
  for (const auto& attribute : kAttributeNames) {
    if (missing & attribute.bit) names += (names.empty() ? "" : ", ") + std::string(attribute.name);
  }
  return names;
}

void check_ranges(const QpAttributes& wanted) {
  const auto refuse = [](const std::string& what) {
    throw Error("invalid_argument", "modify queue pair", what);
  };
  if ((wanted.present & qp_attr::port) && wanted.port != 1) refuse("port is 1 on a software device");
  if ((wanted.present & qp_attr::min_rnr_timer) && wanted.min_rnr_timer > 31)
    refuse("min_rnr_timer is 0 to 31");
  if ((wanted.present & qp_attr::timeout) && wanted.timeout > 31) refuse("timeout is 0 to 31");
  if ((wanted.present & qp_attr::retry_count) && wanted.retry_count > 7) refuse("retry_count is 0 to 7");
  if ((wanted.present & qp_attr::rnr_retry) && wanted.rnr_retry > 7) refuse("rnr_retry is 0 to 7");
}

// The verbs' RNR timer codes, in units of 10 us.
constexpr std::array<uint32_t, 32> kRnrTimers = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace

const char* name_of(QpState state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames[static_cast<size_t>(state)];
}

void check_transition(QpState from, const QpAttributes& wanted) {
  if (wanted.state == QpState::reset || wanted.state == QpState::err) return;
  const std::string edge = std::string(name_of(from)) + " to " + name_of(wanted.state);
  for (const auto& candidate : kEdges) {
    if (candidate.from != from || candidate.to != wanted.state) continue;
    if (const uint32_t missing = candidate.required & ~wanted.present) {
      throw Error("missing_attribute", "modify queue pair", edge + " needs " + missing_names(missing));
    }
    check_ranges(wanted);
    return;
  }
  throw Error("bad_transition", "modify queue pair", "no transition from " + edge);
}

void merge_attributes(QpAttributes& current, const QpAttributes& wanted) {
  const uint32_t present = wanted.present;
  current.state = wanted.state;
  current.present |= present;
  if (present & qp_attr::access_flags) current.access_flags = wanted.access_flags;
  if (present & qp_attr::pkey_index) current.pkey_index = wanted.pkey_index;
  if (present & qp_attr::port) current.port = wanted.port;
  if (present & qp_attr::address) {
    current.dest_gid = wanted.dest_gid;
    current.gid_index = wanted.gid_index;
    current.dest_lid = wanted.dest_lid;
  }
  if (present & qp_attr::path_mtu) current.path_mtu = wanted.path_mtu;
  if (present & qp_attr::dest_qp_num) current.dest_qp_num = wanted.dest_qp_num;
  if (present & qp_attr::rq_psn) current.rq_psn = wanted.rq_psn;
  if (present & qp_attr::sq_psn) current.sq_psn = wanted.sq_psn;
  if (present & qp_attr::max_rd_atomic) current.max_rd_atomic = wanted.max_rd_atomic;
  if (present & qp_attr::max_dest_rd_atomic) current.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
  if (present & qp_attr::min_rnr_timer) current.min_rnr_timer = wanted.min_rnr_timer;
  if (present & qp_attr::timeout) current.timeout = wanted.timeout;
  if (present & qp_attr::retry_count) current.retry_count = wanted.retry_count;
  if (present & qp_attr::rnr_retry) current.rnr_retry = wanted.rnr_retry;
}

void move_to_init(QueuePair& qp, uint32_t access_flags) {
  qp.modify({.state = QpState::init, .present = kInitAttributes, .access_flags = access_flags});
}

void move_to_rts(QueuePair& qp, QpAttributes wanted) {
  wanted.state = QpState::rtr;
  wanted.present = kRtrAttributes;
  qp.modify(wanted);
  wanted.state = QpState::rts;
  wanted.present = kRtsAttributes;
  qp.modify(wanted);
}

uint64_t retry_limit_ns(uint8_t timeout, uint8_t retry_count) {
  return timeout == 0 ? 0 : (uint64_t{4096} << timeout) * (retry_count + 1u);
}

uint64_t rnr_delay_ns(uint8_t min_rnr_timer) { return uint64_t{kRnrTimers[min_rnr_timer & 31]} * 10'000; }

}  // namespace verbena::soft
