// Numbers of verbs/types.h equal libibverbs' own, so that the ibv provider casts instead of mapping. Checked
// at compile time, where libibverbs' headers are installed.
#include "check.h"
#include "verbs/types.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

using namespace verbena;

namespace {

template <typename Enum>
constexpr int number(Enum value) {
  return static_cast<int>(value);
}

static_assert(number(QpState::reset) == IBV_QPS_RESET && number(QpState::init) == IBV_QPS_INIT &&
              number(QpState::rtr) == IBV_QPS_RTR && number(QpState::rts) == IBV_QPS_RTS &&
              number(QpState::sqd) == IBV_QPS_SQD && number(QpState::sqe) == IBV_QPS_SQE &&
              number(QpState::err) == IBV_QPS_ERR);

static_assert(number(Opcode::write) == IBV_WR_RDMA_WRITE &&
              number(Opcode::write_with_imm) == IBV_WR_RDMA_WRITE_WITH_IMM &&
              number(Opcode::send) == IBV_WR_SEND && number(Opcode::send_with_imm) == IBV_WR_SEND_WITH_IMM &&
              number(Opcode::read) == IBV_WR_RDMA_READ &&
              number(Opcode::compare_swap) == IBV_WR_ATOMIC_CMP_AND_SWP &&
              number(Opcode::fetch_add) == IBV_WR_ATOMIC_FETCH_AND_ADD);

static_assert(number(WcOpcode::send) == IBV_WC_SEND && number(WcOpcode::write) == IBV_WC_RDMA_WRITE &&
              number(WcOpcode::read) == IBV_WC_RDMA_READ &&
              number(WcOpcode::compare_swap) == IBV_WC_COMP_SWAP &&
              number(WcOpcode::fetch_add) == IBV_WC_FETCH_ADD && number(WcOpcode::recv) == IBV_WC_RECV &&
              number(WcOpcode::recv_rdma_with_imm) == IBV_WC_RECV_RDMA_WITH_IMM);

static_assert(number(Status::success) == IBV_WC_SUCCESS &&
              number(Status::loc_len_err) == IBV_WC_LOC_LEN_ERR &&
              number(Status::loc_qp_op_err) == IBV_WC_LOC_QP_OP_ERR &&
              number(Status::loc_eec_op_err) == IBV_WC_LOC_EEC_OP_ERR &&
              number(Status::loc_prot_err) == IBV_WC_LOC_PROT_ERR &&
              number(Status::wr_flush_err) == IBV_WC_WR_FLUSH_ERR &&
              number(Status::mw_bind_err) == IBV_WC_MW_BIND_ERR &&
              number(Status::bad_resp_err) == IBV_WC_BAD_RESP_ERR &&
              number(Status::loc_access_err) == IBV_WC_LOC_ACCESS_ERR &&
              number(Status::rem_inv_req_err) == IBV_WC_REM_INV_REQ_ERR &&
              number(Status::rem_access_err) == IBV_WC_REM_ACCESS_ERR &&
              number(Status::rem_op_err) == IBV_WC_REM_OP_ERR &&
              number(Status::retry_exc_err) == IBV_WC_RETRY_EXC_ERR &&
              number(Status::rnr_retry_exc_err) == IBV_WC_RNR_RETRY_EXC_ERR &&
              number(Status::loc_rdd_viol_err) == IBV_WC_LOC_RDD_VIOL_ERR &&
              number(Status::rem_inv_rd_req_err) == IBV_WC_REM_INV_RD_REQ_ERR &&
              number(Status::rem_abort_err) == IBV_WC_REM_ABORT_ERR &&
              number(Status::inv_eecn_err) == IBV_WC_INV_EECN_ERR &&
              number(Status::inv_eec_state_err) == IBV_WC_INV_EEC_STATE_ERR &&
              number(Status::fatal_err) == IBV_WC_FATAL_ERR &&
              number(Status::resp_timeout_err) == IBV_WC_RESP_TIMEOUT_ERR &&
              number(Status::general_err) == IBV_WC_GENERAL_ERR && number(Status::tm_err) == IBV_WC_TM_ERR &&
              number(Status::tm_rndv_incomplete) == IBV_WC_TM_RNDV_INCOMPLETE);

static_assert(number(access::local_write) == IBV_ACCESS_LOCAL_WRITE &&
              number(access::remote_write) == IBV_ACCESS_REMOTE_WRITE &&
              number(access::remote_read) == IBV_ACCESS_REMOTE_READ &&
              number(access::remote_atomic) == IBV_ACCESS_REMOTE_ATOMIC);

static_assert(number(send_flag::fence) == IBV_SEND_FENCE &&
              number(send_flag::signaled) == IBV_SEND_SIGNALED &&
              number(send_flag::solicited) == IBV_SEND_SOLICITED &&
              number(send_flag::inline_data) == IBV_SEND_INLINE);

static_assert(number(PortState::nop) == IBV_PORT_NOP && number(PortState::down) == IBV_PORT_DOWN &&
              number(PortState::init) == IBV_PORT_INIT && number(PortState::armed) == IBV_PORT_ARMED &&
              number(PortState::active) == IBV_PORT_ACTIVE &&
              number(PortState::active_defer) == IBV_PORT_ACTIVE_DEFER);

}  // namespace
#endif

TEST("the last status is the one that types.h lists last") {
  CHECK(static_cast<int>(verbena::Status::tm_rndv_incomplete) == 23);
}

RUN_TESTS()
