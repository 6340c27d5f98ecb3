// Converts queue pair attributes between the contract and libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include "verbs/types.h"

namespace verbena::ibv {

// The attributes that `wanted` carries and their mask, without the peer's address.
ibv_qp_attr to_device(const QpAttributes& wanted, int& mask);

// Sets the address of the peer: chooses the GID index when index 0 cannot reach it, and limits the path MTU
// to the port's. Throws no_gid, port_down.
void set_path(ibv_context* context, QpAttributes& wanted, ibv_qp_attr& attr);

// The contract's attributes for a mask of libibverbs.
QpAttributes from_device(const ibv_qp_attr& attr, int mask);

}  // namespace verbena::ibv
