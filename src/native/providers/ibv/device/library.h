// libibverbs and librdmacm as tables of function pointers, loaded at run time. The inline functions of
// verbs.h (ibv_post_send, ibv_poll_cq, ibv_alloc_mw …) use the context's own table and need no symbol;
// everything else is called through here. librdmacm opens each device that its ids use once more and keeps it
// open until the process ends: one descriptor per device, not per connection.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <string>

namespace verbena::ibv {

// X(member, symbol). Members of libibverbs have no prefix, because some prefixed names are macros.
#define VERBENA_IBVERBS_SYMBOLS(X)                  \
  X(get_device_list, ibv_get_device_list)           \
  X(free_device_list, ibv_free_device_list)         \
  X(get_device_name, ibv_get_device_name)           \
  X(open_device, ibv_open_device)                   \
  X(close_device, ibv_close_device)                 \
  X(query_device, ibv_query_device)                 \
  X(query_port_compatible, ibv_query_port)          \
  X(query_gid, ibv_query_gid)                       \
  X(get_async_event, ibv_get_async_event)           \
  X(ack_async_event, ibv_ack_async_event)           \
  X(alloc_pd, ibv_alloc_pd)                         \
  X(dealloc_pd, ibv_dealloc_pd)                     \
  X(reg_mr, ibv_reg_mr)                             \
  X(dereg_mr, ibv_dereg_mr)                         \
  X(create_comp_channel, ibv_create_comp_channel)   \
  X(destroy_comp_channel, ibv_destroy_comp_channel) \
  X(create_cq, ibv_create_cq)                       \
  X(resize_cq, ibv_resize_cq)                       \
  X(destroy_cq, ibv_destroy_cq)                     \
  X(get_cq_event, ibv_get_cq_event)                 \
  X(ack_cq_events, ibv_ack_cq_events)               \
  X(create_srq, ibv_create_srq)                     \
  X(destroy_srq, ibv_destroy_srq)                   \
  X(create_qp, ibv_create_qp)                       \
  X(modify_qp, ibv_modify_qp)                       \
  X(query_qp, ibv_query_qp)                         \
  X(destroy_qp, ibv_destroy_qp)

#define VERBENA_RDMACM_SYMBOLS(X)                           \
  X(rdma_create_event_channel, rdma_create_event_channel)   \
  X(rdma_destroy_event_channel, rdma_destroy_event_channel) \
  X(rdma_create_id, rdma_create_id)                         \
  X(rdma_destroy_id, rdma_destroy_id)                       \
  X(rdma_bind_addr, rdma_bind_addr)                         \
  X(rdma_resolve_addr, rdma_resolve_addr)                   \
  X(rdma_resolve_route, rdma_resolve_route)                 \
  X(rdma_listen, rdma_listen)                               \
  X(rdma_connect, rdma_connect)                             \
  X(rdma_accept, rdma_accept)                               \
  X(rdma_reject, rdma_reject)                               \
  X(rdma_establish, rdma_establish)                         \
  X(rdma_notify, rdma_notify)                               \
  X(rdma_disconnect, rdma_disconnect)                       \
  X(rdma_get_cm_event, rdma_get_cm_event)                   \
  X(rdma_ack_cm_event, rdma_ack_cm_event)                   \
  X(rdma_init_qp_attr, rdma_init_qp_attr)

#define VERBENA_POINTER(member, symbol) decltype(&::symbol) member = nullptr;
struct Library {
  VERBENA_IBVERBS_SYMBOLS(VERBENA_POINTER)
  VERBENA_RDMACM_SYMBOLS(VERBENA_POINTER)
  decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;  // since rdma-core 32; may be missing
  decltype(&::ibv_fork_init) fork_init = nullptr;               // may be missing

  // With the fields that the old ibv_query_port() lacks, where the library supports them.
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr& out) const;
};
#undef VERBENA_POINTER

// The missing library or symbol and what to install, or empty.
const std::string& missing_library();

// Throws provider_missing with that reason.
const Library& library();

}  // namespace verbena::ibv
