// The values of the verbs: states, opcodes, statuses, work requests, completions, attributes.
// Enumerators have the same numbers as in libibverbs, so the ibv provider casts instead of mapping.
// Depends on the standard library only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbena {

enum class QpState : uint8_t { reset, init, rtr, rts, sqd, sqe, err };
enum class ConnectionState : uint8_t { connecting, established, rejected, failed, disconnected };

enum class Opcode : uint8_t {
  write,
  write_with_imm,
  send,
  send_with_imm,
  read,
  compare_swap,
  fetch_add,
};

constexpr bool is_atomic(Opcode opcode) {
  return opcode == Opcode::compare_swap || opcode == Opcode::fetch_add;
}

// The operation that a completion reports; the receive side has its own opcodes.
enum class WcOpcode : uint8_t {
  send = 0,
  write = 1,
  read = 2,
  compare_swap = 3,
  fetch_add = 4,
  bind_mw = 5,  // only in a completion of a bind that failed, with id 0
  recv = 128,
  recv_rdma_with_imm =
      129,  // from a WRITE with immediate; a SEND with immediate is `recv` with has_immediate
};

enum class Status : uint8_t {
  success,
  loc_len_err,
  loc_qp_op_err,
  loc_eec_op_err,
  loc_prot_err,
  wr_flush_err,
  mw_bind_err,
  bad_resp_err,
  loc_access_err,
  rem_inv_req_err,
  rem_access_err,
  rem_op_err,
  retry_exc_err,
  rnr_retry_exc_err,
  loc_rdd_viol_err,
  rem_inv_rd_req_err,
  rem_abort_err,
  inv_eecn_err,
  inv_eec_state_err,
  fatal_err,
  resp_timeout_err,
  general_err,
  tm_err,
  tm_rndv_incomplete,
};

// Bit sets are plain integers, because Python combines them and wire layouts contain them.
namespace access {
constexpr uint32_t local_write = 1, remote_write = 2, remote_read = 4, remote_atomic = 8;
constexpr uint32_t window = 16;  // windows of the region may be bound
constexpr uint32_t remote = remote_write | remote_read | remote_atomic;
constexpr uint32_t all = local_write | remote | window;
}  // namespace access

namespace send_flag {
constexpr uint32_t fence = 1, signaled = 2, solicited = 4, inline_data = 8;
}  // namespace send_flag

using Gid = std::array<uint8_t, 16>;

struct Sge {
  uint64_t addr = 0;
  uint32_t length = 0;
  uint32_t lkey = 0;
};

struct SendRequest {
  uint64_t id = 0;
  Opcode opcode = Opcode::send;
  uint32_t flags = send_flag::signaled;
  uint32_t immediate = 0;
  uint32_t rkey = 0;
  uint64_t remote_addr = 0;
  uint64_t compare_add = 0;  // compare_swap: expected value; fetch_add: addend
  uint64_t swap = 0;
  std::span<const Sge> local;  // must stay valid only until post() returns
  // For WRITE and READ: a wire that copies or checksums the bytes before post() returns may store their
  // CRC32C here.
  std::optional<uint32_t>* crc32c = nullptr;
};

struct RecvRequest {
  uint64_t id = 0;
  std::span<const Sge> local;
};

struct Completion {
  uint64_t id = 0;
  Status status = Status::success;
  WcOpcode opcode = WcOpcode::send;
  bool has_immediate = false;
  uint32_t immediate = 0;
  uint32_t byte_count = 0;
  uint32_t qp_num = 0;
  uint32_t vendor_error = 0;
};

// Why a post stopped before the end of its batch. `full` is back-pressure: drain completions and retry.
enum class PostError : uint8_t {
  none,
  full,
  bad_state,
  too_many_sges,
  inline_too_long,
  unsupported_opcode,
  message_too_long,
  invalid,  // refused by the device, which gives no reason
};

struct PostResult {
  size_t accepted = 0;
  PostError error = PostError::none;
};

// One bit per optional attribute of QpAttributes: the attributes that a modify() call sets.
namespace qp_attr {
constexpr uint32_t access_flags = 1 << 0, pkey_index = 1 << 1, port = 1 << 2, address = 1 << 3,
                   path_mtu = 1 << 4, dest_qp_num = 1 << 5, rq_psn = 1 << 6, max_dest_rd_atomic = 1 << 7,
                   min_rnr_timer = 1 << 8, sq_psn = 1 << 9, timeout = 1 << 10, retry_count = 1 << 11,
                   rnr_retry = 1 << 12, max_rd_atomic = 1 << 13, gid_index = 1 << 14;
}  // namespace qp_attr

struct QpAttributes {
  QpState state = QpState::reset;
  uint32_t present = 0;  // bits of qp_attr
  uint32_t access_flags = 0;
  uint16_t pkey_index = 0;
  uint8_t port = 1;
  Gid dest_gid{};
  uint8_t gid_index = 0;
  uint16_t dest_lid = 0;
  uint32_t path_mtu = 1024;
  uint32_t dest_qp_num = 0;
  uint32_t rq_psn = 0;
  uint32_t sq_psn = 0;
  uint8_t max_rd_atomic = 1;
  uint8_t max_dest_rd_atomic = 1;
  uint8_t min_rnr_timer = 12;  // index into the RNR timer table of the verbs; 12: 640 us
  uint8_t timeout = 14;        // 4.096 us << timeout; 0: no timeout
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;  // 7: retry without limit
};

struct QpLimits {
  uint32_t max_send = 128;
  uint32_t max_recv = 128;
  uint32_t max_send_sge = 4;
  uint32_t max_recv_sge = 4;
  uint32_t max_inline = 64;
};

struct ConnectParams {
  std::vector<uint8_t> private_data;
  uint8_t responder_resources = 1;
  uint8_t initiator_depth = 1;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint32_t timeout_ms = 5000;
};

// Properties of a provider, as names and values: ("atomics", "yes"), ("plain_memory", "process_vm") ...
using Capabilities = std::vector<std::pair<std::string, std::string>>;

// Counters by name.
using Counts = std::vector<std::pair<std::string, uint64_t>>;

enum class PortState : uint8_t { nop, down, init, armed, active, active_defer };

struct PortAttributes {
  PortState state = PortState::down;
  uint32_t active_mtu = 0;
  uint16_t lid = 0;
  std::string link_layer;
  std::vector<Gid> gids;
  std::vector<std::string> gid_types;
};

struct DeviceAttributes {
  std::string name, provider, transport, vendor, firmware,
      reason;  // reason: why the device is unusable, or empty
  uint64_t max_mr_bytes = 0;
  uint32_t max_qp = 0, max_qp_wr = 0, max_sge = 0, max_cq = 0, max_cqe = 0, max_mr = 0, max_pd = 0,
           max_srq = 0, max_srq_wr = 0, max_inline = 0, max_rd_atomic = 0;
  uint64_t max_message_bytes = 0;
  int numa_node = -1;
  bool software = true;
  std::vector<PortAttributes> ports;
  Capabilities capabilities;
};

}  // namespace verbena
