// Binds enumerations, attributes and completions: plain values without behaviour.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>

#include "bind/bind.h"
#include "bind/errors.h"
#include "verbs/provider.h"

namespace verbena::bind {
namespace {

nb::bytes to_bytes(std::span<const uint8_t> data) { return nb::bytes(data.data(), data.size()); }

Gid to_gid(const nb::bytes& data) {
  Gid gid;
  if (data.size() != gid.size()) throw nb::value_error("a GID is 16 bytes");
  std::copy_n(reinterpret_cast<const uint8_t*>(data.c_str()), gid.size(), gid.begin());
  return gid;
}

void bind_enums(nb::module_& m) {
  nb::enum_<QpState>(m, "QpState", nb::is_arithmetic(), "Where a queue pair stands.")
      .value("RESET", QpState::reset)
      .value("INIT", QpState::init, "Receives may be posted.")
      .value("RTR", QpState::rtr, "Ready to receive.")
      .value("RTS", QpState::rts, "Ready to send.")
      .value("SQD", QpState::sqd, "The send queue drains.")
      .value("SQE", QpState::sqe, "The send queue failed.")
      .value("ERR", QpState::err, "Everything is flushed; only RESET leads out.");
  nb::enum_<Opcode>(m, "Opcode", nb::is_arithmetic(), "What a send request does.")
      .value("WRITE", Opcode::write)
      .value("WRITE_WITH_IMM", Opcode::write_with_imm)
      .value("SEND", Opcode::send)
      .value("SEND_WITH_IMM", Opcode::send_with_imm)
      .value("READ", Opcode::read)
      .value("COMPARE_SWAP", Opcode::compare_swap)
      .value("FETCH_ADD", Opcode::fetch_add);
  nb::enum_<WcOpcode>(m, "WcOpcode", nb::is_arithmetic(), "What a completion says was done.")
      .value("SEND", WcOpcode::send)
      .value("WRITE", WcOpcode::write)
      .value("READ", WcOpcode::read)
      .value("COMPARE_SWAP", WcOpcode::compare_swap)
      .value("FETCH_ADD", WcOpcode::fetch_add)
      .value("BIND_MW", WcOpcode::bind_mw)
      .value("RECV", WcOpcode::recv)
      .value("RECV_RDMA_WITH_IMM", WcOpcode::recv_rdma_with_imm);
  nb::enum_<Status>(m, "WcStatus", nb::is_arithmetic(),
                    "The status of a completion: names and numbers of libibverbs' ibv_wc_status.")
      .value("SUCCESS", Status::success)
      .value("LOC_LEN_ERR", Status::loc_len_err)
      .value("LOC_QP_OP_ERR", Status::loc_qp_op_err)
      .value("LOC_EEC_OP_ERR", Status::loc_eec_op_err)
      .value("LOC_PROT_ERR", Status::loc_prot_err)
      .value("WR_FLUSH_ERR", Status::wr_flush_err)
      .value("MW_BIND_ERR", Status::mw_bind_err)
      .value("BAD_RESP_ERR", Status::bad_resp_err)
      .value("LOC_ACCESS_ERR", Status::loc_access_err)
      .value("REM_INV_REQ_ERR", Status::rem_inv_req_err)
      .value("REM_ACCESS_ERR", Status::rem_access_err)
      .value("REM_OP_ERR", Status::rem_op_err)
      .value("RETRY_EXC_ERR", Status::retry_exc_err)
      .value("RNR_RETRY_EXC_ERR", Status::rnr_retry_exc_err)
      .value("LOC_RDD_VIOL_ERR", Status::loc_rdd_viol_err)
      .value("REM_INV_RD_REQ_ERR", Status::rem_inv_rd_req_err)
      .value("REM_ABORT_ERR", Status::rem_abort_err)
      .value("INV_EECN_ERR", Status::inv_eecn_err)
      .value("INV_EEC_STATE_ERR", Status::inv_eec_state_err)
      .value("FATAL_ERR", Status::fatal_err)
      .value("RESP_TIMEOUT_ERR", Status::resp_timeout_err)
      .value("GENERAL_ERR", Status::general_err)
      .value("TM_ERR", Status::tm_err)
      .value("TM_RNDV_INCOMPLETE", Status::tm_rndv_incomplete);
  // The values of verbs.Access, which is a Python enum: an nb::enum_ with is_flag prints as a plain number.
  m.attr("ACCESS_LOCAL_WRITE") = access::local_write;
  m.attr("ACCESS_REMOTE_WRITE") = access::remote_write;
  m.attr("ACCESS_REMOTE_READ") = access::remote_read;
  m.attr("ACCESS_REMOTE_ATOMIC") = access::remote_atomic;
  m.attr("ACCESS_WINDOW") = access::window;
  nb::enum_<PortState>(m, "PortState", nb::is_arithmetic(), "Where a port stands; ACTIVE can be used.")
      .value("NOP", PortState::nop)
      .value("DOWN", PortState::down)
      .value("INIT", PortState::init)
      .value("ARMED", PortState::armed)
      .value("ACTIVE", PortState::active)
      .value("ACTIVE_DEFER", PortState::active_defer);
  nb::enum_<ConnectionState>(m, "ConnectionState", nb::is_arithmetic(), "Where a managed connection stands.")
      .value("CONNECTING", ConnectionState::connecting)
      .value("ESTABLISHED", ConnectionState::established)
      .value("REJECTED", ConnectionState::rejected)
      .value("FAILED", ConnectionState::failed)
      .value("DISCONNECTED", ConnectionState::disconnected);
}

void bind_device_attributes(nb::module_& m) {
  nb::class_<PortAttributes>(m, "PortAttributes")
      .def_ro("state", &PortAttributes::state)
      .def_ro("active_mtu", &PortAttributes::active_mtu)
      .def_ro("lid", &PortAttributes::lid)
      .def_ro("link_layer", &PortAttributes::link_layer)
      .def_prop_ro("gids",
                   [](const PortAttributes& self) {
                     nb::typed<nb::list, nb::bytes> gids;
                     for (const Gid& gid : self.gids) gids.append(to_bytes(gid));
                     return gids;
                   })
      .def_ro("gid_types", &PortAttributes::gid_types);
  nb::class_<DeviceAttributes>(m, "DeviceAttributes")
      .def_ro("name", &DeviceAttributes::name)
      .def_ro("provider", &DeviceAttributes::provider)
      .def_ro("transport", &DeviceAttributes::transport)
      .def_ro("vendor", &DeviceAttributes::vendor)
      .def_ro("firmware", &DeviceAttributes::firmware)
      .def_ro("reason", &DeviceAttributes::reason)
      .def_ro("max_mr_bytes", &DeviceAttributes::max_mr_bytes)
      .def_ro("max_qp", &DeviceAttributes::max_qp)
      .def_ro("max_qp_wr", &DeviceAttributes::max_qp_wr)
      .def_ro("max_sge", &DeviceAttributes::max_sge)
      .def_ro("max_cq", &DeviceAttributes::max_cq)
      .def_ro("max_cqe", &DeviceAttributes::max_cqe)
      .def_ro("max_mr", &DeviceAttributes::max_mr)
      .def_ro("max_pd", &DeviceAttributes::max_pd)
      .def_ro("max_srq", &DeviceAttributes::max_srq)
      .def_ro("max_srq_wr", &DeviceAttributes::max_srq_wr)
      .def_ro("max_inline", &DeviceAttributes::max_inline)
      .def_ro("max_rd_atomic", &DeviceAttributes::max_rd_atomic)
      .def_ro("max_message_bytes", &DeviceAttributes::max_message_bytes)
      .def_ro("numa_node", &DeviceAttributes::numa_node)
      .def_ro("software", &DeviceAttributes::software)
      .def_ro("ports", &DeviceAttributes::ports)
      .def_ro("capabilities", &DeviceAttributes::capabilities);
}

void bind_qp_attributes(nb::module_& m) {
  nb::class_<QpLimits>(m, "QpLimits")
      .def_ro("max_send", &QpLimits::max_send)
      .def_ro("max_recv", &QpLimits::max_recv)
      .def_ro("max_send_sge", &QpLimits::max_send_sge)
      .def_ro("max_recv_sge", &QpLimits::max_recv_sge)
      .def_ro("max_inline", &QpLimits::max_inline);
  // Setting an attribute sets its bit in `present`: modify() changes only attributes that were set.
  nb::class_<QpAttributes> attributes(m, "QpAttributes");
  const auto field = [&attributes]<typename T>(const char* name, T QpAttributes::* member, uint32_t bit) {
    attributes.def_prop_rw(
        name, [member](const QpAttributes& self) { return self.*member; },
        [member, bit](QpAttributes& self, T value) {
          self.*member = value;
          self.present |= bit;
        });
  };
  attributes.def(nb::init<>())
      .def_rw("state", &QpAttributes::state)
      .def_ro("present", &QpAttributes::present);
  field("access_flags", &QpAttributes::access_flags, qp_attr::access_flags);
  field("pkey_index", &QpAttributes::pkey_index, qp_attr::pkey_index);
  field("port", &QpAttributes::port, qp_attr::port);
  field("gid_index", &QpAttributes::gid_index, qp_attr::gid_index);
  field("dest_lid", &QpAttributes::dest_lid, qp_attr::address);
  field("path_mtu", &QpAttributes::path_mtu, qp_attr::path_mtu);
  field("dest_qp_num", &QpAttributes::dest_qp_num, qp_attr::dest_qp_num);
  field("rq_psn", &QpAttributes::rq_psn, qp_attr::rq_psn);
  field("sq_psn", &QpAttributes::sq_psn, qp_attr::sq_psn);
  field("max_rd_atomic", &QpAttributes::max_rd_atomic, qp_attr::max_rd_atomic);
  field("max_dest_rd_atomic", &QpAttributes::max_dest_rd_atomic, qp_attr::max_dest_rd_atomic);
  field("min_rnr_timer", &QpAttributes::min_rnr_timer, qp_attr::min_rnr_timer);
  field("timeout", &QpAttributes::timeout, qp_attr::timeout);
  field("retry_count", &QpAttributes::retry_count, qp_attr::retry_count);
  field("rnr_retry", &QpAttributes::rnr_retry, qp_attr::rnr_retry);
  attributes.def_prop_rw(
      "dest_gid", [](const QpAttributes& self) { return to_bytes(self.dest_gid); },
      [](QpAttributes& self, const nb::bytes& value) {
        self.dest_gid = to_gid(value);
        self.present |= qp_attr::address;
      });
}

void bind_completion(nb::module_& m) {
  nb::class_<Completion>(m, "WorkCompletion", nb::is_final(), "How one work request ended.")
      .def_ro("wr_id", &Completion::id, "The request's own number.")
      .def_ro("status", &Completion::status)
      .def_ro("opcode", &Completion::opcode)
      .def_ro("byte_count", &Completion::byte_count, "Bytes received, for a receive.")
      .def_prop_ro(
          "immediate",
          [](const Completion& self) -> nb::object {
            return self.has_immediate ? nb::object(nb::int_(self.immediate)) : nb::none();
          },
          nb::sig("def immediate(self) -> int | None"))
      .def_ro("qp_num", &Completion::qp_num)
      .def_ro("vendor_error", &Completion::vendor_error)
      .def_prop_ro("ok", [](const Completion& self) { return self.status == Status::success; })
      .def(
          "raise_for_status",
          [](const Completion& self, const std::string& operation, const std::string& peer) {
            if (self.status != Status::success) raise_completion(self.status, operation, peer);
          },
          nb::arg("operation") = "work request", nb::arg("peer") = "",
          "Raises the error that the status stands for; does nothing on success.")
      .def("__repr__", [](const Completion& self) {
        const std::string status = nb::cast<std::string>(nb::cast(self.status).attr("name"));
        return "WorkCompletion(wr_id=" + std::to_string(self.id) + ", status=" + status +
               ", byte_count=" + std::to_string(self.byte_count) + ", qp_num=" + std::to_string(self.qp_num) +
               ")";
      });
}

}  // namespace

void bind_values(nb::module_& m) {
  bind_enums(m);
  bind_device_attributes(m);
  bind_qp_attributes(m);
  bind_completion(m);
}

}  // namespace verbena::bind
