// A queue pair's attributes between the contract's words and libibverbs'.
#pragma once

#include <infiniband/verbs.h>

#include "verbs/types.h"

namespace verbena::ibv {

// The attributes that `wanted` carries and the mask that names them, without the peer's address.
ibv_qp_attr to_device(const QpAttributes& wanted, int& mask);

// Fills the address towards the peer: the GID index is chosen when index 0 cannot reach it, and the path MTU
// is not over what the port can do. Throws no_gid, port_down.
void set_path(ibv_context* context, QpAttributes& wanted, ibv_qp_attr& attr);

// What a mask of libibverbs names, as the contract's attributes.
QpAttributes from_device(const ibv_qp_attr& attr, int mask);

}  // namespace verbena::ibv
