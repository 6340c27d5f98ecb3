#include "providers/ibv/qp_attributes.h"

#include <algorithm>
#include <cstring>

#include "providers/ibv/cm/address.h"
#include "providers/ibv/device/device.h"
#include "providers/ibv/device/gids.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

constexpr uint8_t kHopLimit = 64;

struct Bit {
  uint32_t ours;
  int theirs;
};

constexpr Bit kBits[] = {
    {qp_attr::access_flags, IBV_QP_ACCESS_FLAGS},
    {qp_attr::pkey_index, IBV_QP_PKEY_INDEX},
    {qp_attr::port, IBV_QP_PORT},
    {qp_attr::address, IBV_QP_AV},
    {qp_attr::path_mtu, IBV_QP_PATH_MTU},
    {qp_attr::dest_qp_num, IBV_QP_DEST_QPN},
    {qp_attr::rq_psn, IBV_QP_RQ_PSN},
    {qp_attr::max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC},
    {qp_attr::min_rnr_timer, IBV_QP_MIN_RNR_TIMER},
    {qp_attr::sq_psn, IBV_QP_SQ_PSN},
    {qp_attr::timeout, IBV_QP_TIMEOUT},
    {qp_attr::retry_count, IBV_QP_RETRY_CNT},
    {qp_attr::rnr_retry, IBV_QP_RNR_RETRY},
    {qp_attr::max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC},
};

uint8_t gid_index_towards(const PortAttributes& port, const QpAttributes& wanted) {
  const auto has = [&](size_t index) {
    return index < port.gids.size() && family_of(port.gids[index]) != GidFamily::none;
  };
  if (wanted.present & qp_attr::gid_index) {
    if (has(wanted.gid_index)) return wanted.gid_index;
    throw Error("no_gid", "modify queue pair", "GID index " + std::to_string(wanted.gid_index) + " is empty");
  }
  const bool routable = family_of(wanted.dest_gid) != GidFamily::link_local;
  const auto best =
      choose_gid(port, wanted.dest_gid, routable ? source_towards(wanted.dest_gid) : std::nullopt);
  if (best) return *best;
  if (has(0)) return 0;
  throw Error("no_gid", "modify queue pair", "the port has no GID that could reach the peer's");
}

}  // namespace

ibv_qp_attr to_device(const QpAttributes& wanted, int& mask) {
  ibv_qp_attr attr{};
  mask = IBV_QP_STATE;
  for (const Bit& bit : kBits)
    if (wanted.present & bit.ours) mask |= bit.theirs;
  attr.qp_state = static_cast<ibv_qp_state>(wanted.state);
  attr.qp_access_flags = wanted.access_flags;
  attr.pkey_index = wanted.pkey_index;
  attr.port_num = wanted.port;
  attr.path_mtu = mtu_for(wanted.path_mtu);
  attr.dest_qp_num = wanted.dest_qp_num;
  attr.rq_psn = wanted.rq_psn & 0xffffff;
  attr.sq_psn = wanted.sq_psn & 0xffffff;
  attr.max_rd_atomic = wanted.max_rd_atomic;
  attr.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
  attr.min_rnr_timer = wanted.min_rnr_timer;
  attr.timeout = wanted.timeout;
  attr.retry_cnt = wanted.retry_count;
  attr.rnr_retry = wanted.rnr_retry;
  return attr;
}

void set_path(ibv_context* context, QpAttributes& wanted, ibv_qp_attr& attr) {
  const PortAttributes port = query_port(context, wanted.port);
  if (port.state != PortState::active && port.state != PortState::active_defer)
    throw Error("port_down", "modify queue pair", "port " + std::to_string(wanted.port) + " is not active");
  wanted.path_mtu = std::min(wanted.path_mtu, port.active_mtu);
  attr.path_mtu = mtu_for(wanted.path_mtu);

  ibv_ah_attr& path = attr.ah_attr;
  path.port_num = wanted.port;
  path.dlid = wanted.dest_lid;
  // Ethernet needs global addresses; an InfiniBand subnet needs none within itself.
  const bool same_subnet =
      !port.gids.empty() &&
      std::equal(wanted.dest_gid.begin(), wanted.dest_gid.begin() + 8, port.gids[0].begin());
  if (port.link_layer == "InfiniBand" && wanted.dest_lid != 0 &&
      (same_subnet || family_of(wanted.dest_gid) == GidFamily::none))
    return;
  wanted.gid_index = gid_index_towards(port, wanted);
  path.is_global = 1;
  path.grh.sgid_index = wanted.gid_index;
  path.grh.hop_limit = kHopLimit;
  std::memcpy(path.grh.dgid.raw, wanted.dest_gid.data(), wanted.dest_gid.size());
}

QpAttributes from_device(const ibv_qp_attr& attr, int mask) {
  QpAttributes out;
  for (const Bit& bit : kBits)
    if (mask & bit.theirs) out.present |= bit.ours;
  out.state = static_cast<QpState>(attr.qp_state);
  out.access_flags = attr.qp_access_flags & access::all;
  out.pkey_index = attr.pkey_index;
  out.port = attr.port_num;
  std::memcpy(out.dest_gid.data(), attr.ah_attr.grh.dgid.raw, out.dest_gid.size());
  out.gid_index = attr.ah_attr.grh.sgid_index;
  out.dest_lid = attr.ah_attr.dlid;
  out.path_mtu = mtu_bytes(attr.path_mtu);
  out.dest_qp_num = attr.dest_qp_num;
  out.rq_psn = attr.rq_psn;
  out.sq_psn = attr.sq_psn;
  out.max_rd_atomic = attr.max_rd_atomic;
  out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  out.min_rnr_timer = attr.min_rnr_timer;
  out.timeout = attr.timeout;
  out.retry_count = attr.retry_cnt;
  out.rnr_retry = attr.rnr_retry;
  return out;
}

}  // namespace verbena::ibv
