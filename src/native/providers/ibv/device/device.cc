#include "providers/ibv/device/device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "providers/ibv/device/gids.h"
#include "util/error.h"
#include "util/fd.h"

namespace verbena::ibv {
namespace {

namespace fs = std::filesystem;

const fs::path kDevices = "/sys/class/infiniband";
const fs::path kVerbs = "/sys/class/infiniband_verbs";
constexpr const char* kMakeOne =
    "load the adapter's driver, or make a software device: modprobe rdma_rxe; "
    "rdma link add rxe0 type rxe netdev <interface>";

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_empty_folder(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  return error || entries == fs::directory_iterator();
}

bool is_software(const std::string& name) {
  std::error_code error;
  return fs::read_symlink(kDevices / name, error).string().find("/virtual/") != std::string::npos;
}

int numa_node(const std::string& name) {
  std::string text = first_line(kDevices / name / "device" / "numa_node");
  // A software device is on the NUMA node of its network interface.
  if (text.empty())
    text = first_line(fs::path("/sys/class/net") / first_line(kDevices / name / "parent") / "device" /
                      "numa_node");
  return text.empty() ? -1 : std::atoi(text.c_str());
}

Gid to_gid(const ibv_gid& raw) {
  Gid gid;
  std::memcpy(gid.data(), raw.raw, gid.size());
  return gid;
}

const char* type_name(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return kRoceV2;
    default:
      return "unknown";
  }
}

void set_gid(PortAttributes& port, size_t index, const Gid& gid, std::string type) {
  if (port.gids.size() <= index) {
    port.gids.resize(index + 1);
    port.gid_types.resize(index + 1);
  }
  port.gids[index] = gid;
  port.gid_types[index] = std::move(type);
}

// Positions in the lists are table indexes; unused entries are zero and have no type.
void query_gids(ibv_context* context, uint8_t number, const ibv_port_attr& attr, PortAttributes& out) {
  const Library& lib = library();
  const auto length = static_cast<size_t>(std::max(attr.gid_tbl_len, 0));
  if (lib.query_gid_table) {
    constexpr size_t kMaxPorts = 4;  // the table spans all ports
    std::vector<ibv_gid_entry> entries(length * kMaxPorts);
    const ssize_t count =
        lib.query_gid_table(context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
      if (entry.port_num == number)
        set_gid(out, entry.gid_index, to_gid(entry.gid), type_name(entry.gid_type));
    }
    if (count >= 0) return;
  }
  const fs::path types =
      kDevices / name_of(context) / "ports" / std::to_string(number) / "gid_attrs" / "types";
  for (size_t i = 0; i < length; ++i) {
    ibv_gid raw;
    if (lib.query_gid(context, number, static_cast<int>(i), &raw) != 0) continue;
    if (family_of(to_gid(raw)) == GidFamily::none) continue;
    const std::string type = first_line(types / std::to_string(i));
    const bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    set_gid(out, i, to_gid(raw), type == "IB/RoCE v1" ? (ethernet ? "RoCE v1" : "InfiniBand") : type);
  }
}

// Verbs has no attribute for it: a queue pair shows what it gets. Determined once for each device.
uint32_t probe_max_inline(ibv_context* context) {
  static std::mutex mutex;
  static std::map<std::string, uint32_t> known;
  const std::lock_guard lock(mutex);
  const std::string name = name_of(context);
  if (const auto found = known.find(name); found != known.end()) return found->second;

  const Library& lib = library();
  uint32_t granted = 0;
  ibv_pd* pd = lib.alloc_pd(context);
  ibv_cq* cq = lib.create_cq(context, 1, nullptr, nullptr, 0);
  for (uint32_t wanted : {1024u, 512u, 384u, 256u, 192u, 128u, 96u, 64u, 48u, 32u, 16u}) {
    if (!pd || !cq || granted > 0) break;
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = wanted};
    attr.qp_type = IBV_QPT_RC;
    if (ibv_qp* qp = lib.create_qp(pd, &attr)) {
      granted = std::max(wanted, attr.cap.max_inline_data);
      lib.destroy_qp(qp);
    }
  }
  if (cq) lib.destroy_cq(cq);
  if (pd) lib.dealloc_pd(pd);
  return known[name] = granted;
}

std::string transport_of(const ibv_context* context, const std::vector<PortAttributes>& ports) {
  if (is_iwarp(context)) return "iWARP";
  return !ports.empty() && ports.front().link_layer == "Ethernet" ? "RoCE" : "InfiniBand";
}

std::string hexadecimal(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%04x", value);
  return text;
}

std::string windows_of(const ibv_device_attr& attr) {
  if (attr.max_mw > 0 && (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B)) return "type 2B";
  if (attr.max_mw > 0 && (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A)) return "type 2A";
  return "none: a registration replaces each, so its key is valid on every queue pair of the domain";
}

uint32_t positive(int value) { return static_cast<uint32_t>(std::max(value, 0)); }

}  // namespace

std::vector<std::string> device_names() {
  const Library& lib = library();
  int count = 0;
  ibv_device** list = lib.get_device_list(&count);
  std::vector<std::string> names;
  for (int i = 0; list && i < count; ++i) names.emplace_back(lib.get_device_name(list[i]));
  if (list) lib.free_device_list(list);
  return names;
}

std::string no_device_reason() {
  const std::string found = "No RDMA devices found: ";
  if (is_empty_folder(kDevices)) return found + "the kernel has none; " + kMakeOne;
  if (is_empty_folder(kVerbs))
    return found + "the kernel has one, but the module ib_uverbs is not loaded; modprobe ib_uverbs";
  for (const auto& entry : fs::directory_iterator(kVerbs)) {
    const std::string node = entry.path().filename().string();
    if (!node.starts_with("uverbs")) continue;
    const fs::path path = fs::path("/dev/infiniband") / node;
    if (const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)); !fd) {
      return found + path.string() + ": " + std::strerror(errno) +
             "; give this user access to it, or the container --device /dev/infiniband";
    }
  }
  return found + "libibverbs has no driver library for it; install rdma-core's (Debian: ibverbs-providers)";
}

DeviceHandle open_device(const std::string& name) {
  const Library& lib = library();
  int count = 0;
  ibv_device** list = lib.get_device_list(&count);
  ibv_context* context = nullptr;
  bool found = false;
  int failure = 0;
  std::string others;
  for (int i = 0; list && i < count && !found; ++i) {
    if (!name.empty() && name != lib.get_device_name(list[i])) {
      others += (others.empty() ? "" : ", ") + std::string(lib.get_device_name(list[i]));
      continue;
    }
    found = true;
    context = lib.open_device(list[i]);
    if (!context) failure = errno;
  }
  if (list) lib.free_device_list(list);
  if (!found) {
    throw Error("no_device", "open device",
                count > 0 ? "there is no RDMA device '" + name + "', but " + others : no_device_reason());
  }
  if (!context) {
    throw Error("no_device", "open device",
                "'" + name + "' does not open (" + std::strerror(failure) +
                    "): give this user access to /dev/infiniband/uverbs*, or the container --device "
                    "/dev/infiniband",
                failure);
  }
  return DeviceHandle(context);
}

std::string name_of(const ibv_context* context) { return library().get_device_name(context->device); }

bool is_iwarp(const ibv_context* context) { return context->device->transport_type == IBV_TRANSPORT_IWARP; }

PortAttributes query_port(ibv_context* context, uint8_t port) {
  ibv_port_attr attr;
  if (const int failure = library().query_port(context, port, attr); failure != 0) {
    throw Error("port_down", "query port", "port " + std::to_string(port) + " cannot be queried", failure);
  }
  PortAttributes out;
  out.state = static_cast<PortState>(attr.state);
  out.active_mtu = mtu_bytes(attr.active_mtu);
  out.lid = attr.lid;
  out.link_layer = first_line(kDevices / name_of(context) / "ports" / std::to_string(port) / "link_layer");
  query_gids(context, port, attr, out);
  return out;
}

DeviceAttributes describe(ibv_context* context) {
  ibv_device_attr attr;
  if (const int failure = library().query_device(context, &attr); failure != 0)
    throw Error("no_device", "query device", name_of(context) + " does not answer", failure);
  DeviceAttributes out;
  out.name = name_of(context);
  out.provider = "ibv";
  out.vendor = "vendor " + hexadecimal(attr.vendor_id) + ", part " + std::to_string(attr.vendor_part_id);
  out.firmware = attr.fw_ver;
  out.max_mr_bytes = attr.max_mr_size;
  out.max_qp = positive(attr.max_qp);
  out.max_qp_wr = positive(attr.max_qp_wr);
  out.max_sge = positive(attr.max_sge);
  out.max_cq = positive(attr.max_cq);
  out.max_cqe = positive(attr.max_cqe);
  out.max_mr = positive(attr.max_mr);
  out.max_pd = positive(attr.max_pd);
  out.max_srq = positive(attr.max_srq);
  out.max_srq_wr = positive(attr.max_srq_wr);
  out.max_inline = probe_max_inline(context);
  out.max_rd_atomic = positive(std::min(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom));
  out.numa_node = numa_node(out.name);
  out.software = is_software(out.name);
  for (uint32_t port = 1; port <= attr.phys_port_cnt; ++port)
    out.ports.push_back(query_port(context, static_cast<uint8_t>(port)));
  ibv_port_attr first;
  if (library().query_port(context, 1, first) == 0) out.max_message_bytes = first.max_msg_sz;
  out.transport = transport_of(context, out.ports);
  out.capabilities = {{"atomics", attr.atomic_cap == IBV_ATOMIC_NONE  ? "no"
                                  : attr.atomic_cap == IBV_ATOMIC_HCA ? "yes, among users of this device"
                                                                      : "yes, also with the processor's own"},
                      {"acknowledged", "yes"},
                      {"memory_windows", windows_of(attr)},
                      {"plain_memory", "direct"},
                      {"registration", "locks memory"},
                      {"keys", "chosen by the device"},
                      {"managed_connections", "by host:port"}};
  if (!is_iwarp(context)) out.capabilities.emplace_back("private_data", "without its trailing zeros");
  return out;
}

DeviceAttributes describe_unusable(const std::string& name, const std::string& reason) {
  DeviceAttributes out;
  out.name = name;
  out.provider = "ibv";
  out.reason = reason;
  out.software = is_software(name);
  out.numa_node = numa_node(name);
  return out;
}

ibv_mtu mtu_for(uint32_t bytes) {
  ibv_mtu best = IBV_MTU_256;
  for (const ibv_mtu mtu : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
    if (mtu_bytes(mtu) <= bytes) best = mtu;
  return best;
}

}  // namespace verbena::ibv
