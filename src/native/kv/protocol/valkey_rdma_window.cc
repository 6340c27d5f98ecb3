#include "kv/protocol/valkey_rdma_window.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace verbena::kv {

namespace {

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<T>(value << 8 | static_cast<T>(std::to_integer<uint8_t>(bytes[at + i])));
  }
  return value;
}

template <typename T>
void store(ControlMessage& bytes, size_t at, T value) {
  for (size_t i = sizeof value; i-- > 0; value = static_cast<T>(value >> 8)) {
    bytes[at + i] = static_cast<std::byte>(value & 0xff);
  }
}

ControlMessage make(ControlCode code) {
  ControlMessage message{};
  store(message, control_at::code, static_cast<uint16_t>(code));
  return message;
}

}  // namespace

bool ValkeyRdmaWindow::handle_control(std::span<const std::byte> message) {
  if (message.size() != kControlBytes) return false;
  switch (static_cast<ControlCode>(load<uint16_t>(message, control_at::code))) {
    case ControlCode::get_server_feature:
      requested_feature_ = load<uint16_t>(message, control_at::select);
      return true;
    case ControlCode::set_client_feature:
    case ControlCode::keepalive:
      return true;
    case ControlCode::register_memory:
      // The peer may replace its window only when we have filled it: otherwise WRITEs in flight would go to
      // the old window, and the order of bytes would be lost.
      if (written_ != peer_.length) return false;
      peer_ = {load<uint64_t>(message, control_at::address), load<uint32_t>(message, control_at::length),
               load<uint32_t>(message, control_at::key)};
      written_ = 0;
      return peer_.length > 0;
  }
  return false;
}

bool ValkeyRdmaWindow::handle_immediate(uint32_t bytes) {
  if (!advertised_ || bytes > own_.length - received_) return false;
  received_ += bytes;
  return true;
}

std::optional<ControlMessage> ValkeyRdmaWindow::next_control() {
  if (requested_feature_) {
    ControlMessage message = make(ControlCode::get_server_feature);
    store(message, control_at::select, *requested_feature_);
    requested_feature_.reset();
    return message;
  }
  if (advertised_ && consumed_ < own_.length) return std::nullopt;
  advertised_ = true;
  received_ = consumed_ = 0;
  ControlMessage message = make(ControlCode::register_memory);
  store(message, control_at::address, own_.address);
  store(message, control_at::length, own_.length);
  store(message, control_at::key, own_.key);
  return message;
}

ControlMessage ValkeyRdmaWindow::keepalive() { return make(ControlCode::keepalive); }

std::optional<ValkeyRdmaWindow::Write> ValkeyRdmaWindow::next_write(size_t waiting) {
  const auto length = static_cast<uint32_t>(std::min<size_t>(waiting, peer_.length - written_));
  if (length == 0) return std::nullopt;
  const Write write{peer_.address + written_, length, peer_.key};
  written_ += length;
  return write;
}

}  // namespace verbena::kv
