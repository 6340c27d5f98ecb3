// Valkey over RDMA: the control messages. Each is one SEND of 32 bytes, with integers in network order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::kv {

constexpr size_t kControlBytes = 32;

enum class ControlCode : uint16_t {
  get_server_feature = 0,
  set_client_feature = 1,
  keepalive = 2,
  register_memory = 3
};

// The offsets of the fields.
namespace control_at {
constexpr size_t code = 0, select = 2, features = 24;  // u16, u16, u64
constexpr size_t address = 16, length = 24, key = 28;  // of register_memory: u64, u32, u32
static_assert(features + 8 == kControlBytes && key + 4 == kControlBytes);
}  // namespace control_at

}  // namespace verbena::kv
