// Valkey over RDMA without I/O: a byte stream each way, through a window of memory that the receiver lends.
// The sender fills it from its start to its very end; then the receiver lends it again. What a peer says is
// checked here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kv/protocol/valkey_rdma_layout.h"

namespace verbena::kv {

using ControlMessage = std::array<std::byte, kControlBytes>;

class ValkeyRdmaWindow {
 public:
  struct RemoteBuffer {
    uint64_t address = 0;
    uint32_t length = 0, key = 0;
  };
  // `own`: the memory that the peer may write to.
  explicit ValkeyRdmaWindow(RemoteBuffer own) : own_(own) {}

  // A SEND of the peer's. False: it makes no sense, and the connection must be closed.
  bool handle_control(std::span<const std::byte> message);
  // A WRITE with an immediate value: so many bytes more are in our window. False: there cannot be.
  bool handle_immediate(uint32_t bytes);

  // What has arrived and was not consumed yet: offset and length.
  struct Range {
    uint32_t offset = 0, length = 0;
  };
  Range arrived() const { return {consumed_, received_ - consumed_}; }
  void consume(uint32_t bytes) { consumed_ += bytes; }

  // What is to be sent, if anything: our window again, or an answer about features.
  std::optional<ControlMessage> next_control();
  static ControlMessage keepalive();

  // The next WRITE for so many bytes that wait: none when the peer's window is full.
  struct Write {
    uint64_t address = 0;
    uint32_t length = 0, key = 0;
  };
  std::optional<Write> next_write(size_t waiting);

 private:
  const RemoteBuffer own_;
  bool advertised_ = false;  // the peer knows our window
  uint32_t received_ = 0, consumed_ = 0;
  std::optional<uint16_t> requested_feature_;  // about features
  RemoteBuffer peer_;
  uint32_t written_ = 0;
};

}  // namespace verbena::kv
