#include "bind/verbs/requests.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bind/verbs/remote.h"

namespace verbena::bind {
namespace {

// The top bit of an id marks tracked operations, so a wr_id must not have it.
uint64_t checked_id(const nb::int_& wr_id) {
  int64_t id = -1;
  if (!nb::try_cast<int64_t>(wr_id, id) || id < 0) {
    throw nb::value_error(
        "wr_id must lie between 0 and 2**63 - 1: higher numbers are for tracked operations");
  }
  return static_cast<uint64_t>(id);
}

bool carries_immediate(Opcode opcode) {
  return opcode == Opcode::send_with_imm || opcode == Opcode::write_with_imm;
}

bool needs_remote(Opcode opcode) { return opcode != Opcode::send && opcode != Opcode::send_with_imm; }

void make_send(SendWorkRequest* self, Opcode opcode, const nb::object& local, const nb::object& remote,
               const nb::int_& wr_id, bool signaled, bool solicited, bool fence, bool inline_data,
               std::optional<uint32_t> immediate, uint64_t compare, uint64_t swap, uint64_t add) {
  SendRequest request{
      .id = checked_id(wr_id), .opcode = opcode, .immediate = immediate.value_or(0), .swap = swap};
  request.flags = (signaled ? send_flag::signaled : 0) | (solicited ? send_flag::solicited : 0) |
                  (fence ? send_flag::fence : 0) | (inline_data ? send_flag::inline_data : 0);
  request.compare_add = opcode == Opcode::fetch_add ? add : compare;
  if (immediate.has_value() != carries_immediate(opcode)) {
    throw nb::value_error("an immediate goes with SEND_WITH_IMM and WRITE_WITH_IMM, and they need one");
  }
  if (needs_remote(opcode) == remote.is_none()) {
    throw nb::value_error(remote.is_none() ? "this opcode needs remote memory"
                                           : "a SEND has no remote memory");
  }
  if (!remote.is_none()) {
    const auto& memory = nb::cast<const RemoteMemory&>(remote);
    request.remote_addr = memory.addr;
    request.rkey = memory.rkey;
  }
  new (self) SendWorkRequest{LocalPieces(local, inline_data), request, local, remote};
}

bool has_flag(const SendWorkRequest& self, uint32_t flag) { return (self.request.flags & flag) != 0; }

template <uint32_t Flag>
bool flag_of(const SendWorkRequest& self) {
  return has_flag(self, Flag);
}

}  // namespace

void bind_requests(nb::module_& m) {
  nb::class_<SendWorkRequest>(m, "SendWorkRequest", nb::is_final(),
                              "A request for the send queue: a value, to be posted as often as wanted.")
      .def("__init__", make_send, nb::arg("opcode") = Opcode::send, nb::arg("local") = nb::make_tuple(),
           nb::arg("remote") = nb::none(), nb::arg("wr_id") = 0, nb::kw_only(), nb::arg("signaled") = true,
           nb::arg("solicited") = false, nb::arg("fence") = false, nb::arg("inline") = false,
           nb::arg("immediate") = nb::none(), nb::arg("compare") = 0, nb::arg("swap") = 0, nb::arg("add") = 0)
      .def_prop_ro("opcode", [](const SendWorkRequest& self) { return self.request.opcode; })
      .def_ro("local", &SendWorkRequest::local)
      .def_ro("remote", &SendWorkRequest::remote)
      .def_prop_ro("wr_id", [](const SendWorkRequest& self) { return self.request.id; })
      .def_prop_ro("signaled", flag_of<send_flag::signaled>)
      .def_prop_ro("solicited", flag_of<send_flag::solicited>)
      .def_prop_ro("fence", flag_of<send_flag::fence>)
      .def_prop_ro("inline", flag_of<send_flag::inline_data>)
      .def_prop_ro("immediate",
                   [](const SendWorkRequest& self) {
                     return carries_immediate(self.request.opcode) ? std::optional(self.request.immediate)
                                                                   : std::nullopt;
                   })
      .def_prop_ro("compare", [](const SendWorkRequest& self) { return self.request.compare_add; })
      .def_prop_ro("swap", [](const SendWorkRequest& self) { return self.request.swap; })
      .def_prop_ro("add", [](const SendWorkRequest& self) { return self.request.compare_add; })
      .def_prop_ro("length", [](const SendWorkRequest& self) { return self.pieces.total_bytes(); })
      .def("__repr__", [](const SendWorkRequest& self) {
        return "SendWorkRequest(" + nb::cast<std::string>(nb::cast(self.request.opcode).attr("name")) +
               ", wr_id=" + std::to_string(self.request.id) +
               ", length=" + std::to_string(self.pieces.total_bytes()) + ")";
      });
  nb::class_<RecvWorkRequest>(m, "RecvWorkRequest", nb::is_final(),
                              "A request for a receive queue: where the next message goes.")
      .def(
          "__init__",
          [](RecvWorkRequest* self, const nb::object& local, const nb::int_& wr_id) {
            const uint64_t id = checked_id(wr_id);
            new (self) RecvWorkRequest{LocalPieces(local, false), id, local};
          },
          nb::arg("local") = nb::make_tuple(), nb::arg("wr_id") = 0)
      .def_ro("local", &RecvWorkRequest::local)
      .def_ro("wr_id", &RecvWorkRequest::id)
      .def_prop_ro("length", [](const RecvWorkRequest& self) { return self.pieces.total_bytes(); })
      .def("__repr__", [](const RecvWorkRequest& self) {
        return "RecvWorkRequest(wr_id=" + std::to_string(self.id) +
               ", length=" + std::to_string(self.pieces.total_bytes()) + ")";
      });
}

}  // namespace verbena::bind
