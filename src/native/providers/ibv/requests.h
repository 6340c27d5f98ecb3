// Converts work requests of the contract to those of libibverbs. Nothing is allocated and no list is copied:
// both have the same layout of scatter/gather elements.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>

#include "verbs/types.h"

namespace verbena::ibv {

static_assert(sizeof(Sge) == sizeof(ibv_sge) && offsetof(Sge, addr) == offsetof(ibv_sge, addr) &&
              offsetof(Sge, length) == offsetof(ibv_sge, length) &&
              offsetof(Sge, lkey) == offsetof(ibv_sge, lkey));
static_assert(static_cast<int>(Opcode::write_with_imm) == IBV_WR_RDMA_WRITE_WITH_IMM &&
              static_cast<int>(Opcode::send_with_imm) == IBV_WR_SEND_WITH_IMM &&
              static_cast<int>(Opcode::read) == IBV_WR_RDMA_READ &&
              static_cast<int>(Opcode::fetch_add) == IBV_WR_ATOMIC_FETCH_AND_ADD);
static_assert(send_flag::fence == IBV_SEND_FENCE && send_flag::signaled == IBV_SEND_SIGNALED &&
              send_flag::solicited == IBV_SEND_SOLICITED && send_flag::inline_data == IBV_SEND_INLINE);

// The libraries only read the list, although their types are not const.
inline ibv_sge* pieces_of(std::span<const Sge> local) {
  return const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(local.data()));
}

inline ibv_send_wr send_of(const SendRequest& request, uint64_t wr_id, ibv_send_wr* next) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.next = next;
  wr.sg_list = pieces_of(request.local);
  wr.num_sge = static_cast<int>(request.local.size());
  wr.opcode = static_cast<ibv_wr_opcode>(request.opcode);
  wr.send_flags = request.flags;
  if (request.opcode == Opcode::write_with_imm || request.opcode == Opcode::send_with_imm)
    wr.imm_data = htonl(request.immediate);
  if (request.opcode == Opcode::compare_swap || request.opcode == Opcode::fetch_add) {
    wr.wr.atomic.remote_addr = request.remote_addr;
    wr.wr.atomic.compare_add = request.compare_add;
    wr.wr.atomic.swap = request.swap;
    wr.wr.atomic.rkey = request.rkey;
  } else {
    wr.wr.rdma.remote_addr = request.remote_addr;
    wr.wr.rdma.rkey = request.rkey;
  }
  return wr;
}

inline ibv_recv_wr receive_of(const RecvRequest& request, uint64_t wr_id, ibv_recv_wr* next) {
  return {.wr_id = wr_id,
          .next = next,
          .sg_list = pieces_of(request.local),
          .num_sge = static_cast<int>(request.local.size())};
}

// Why a device refused a request. Most report EINVAL for every error.
inline PostError post_error(int failure) {
  return failure == ENOMEM || failure == EAGAIN || failure == ENOSPC ? PostError::full : PostError::invalid;
}

constexpr WcOpcode completed_opcode(Opcode opcode) {
  constexpr WcOpcode kOpcodes[] = {WcOpcode::write,    WcOpcode::write, WcOpcode::send,
                                   WcOpcode::send,     WcOpcode::read,  WcOpcode::compare_swap,
                                   WcOpcode::fetch_add};
  return kOpcodes[static_cast<size_t>(opcode)];
}

}  // namespace verbena::ibv
