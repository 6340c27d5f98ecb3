// The protocol of Valkey over RDMA: a byte stream in each direction, through a window of memory that the
// receiver lends. The sender fills the window from start to end; then the receiver lends it again. All
// messages of the peer are checked here.
// No I/O; depends on the layout of the messages only.
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
  // `own`: the memory that the peer may write into.
  explicit ValkeyRdmaWindow(RemoteBuffer own) : own_(own) {}

  // Handles a SEND of the peer. False: it is invalid, and the connection must be closed.
  bool handle_control(std::span<const std::byte> message);
  // Handles a WRITE with immediate, whose value is the number of bytes that it added to our window. False:
  // the window has no room for them, and the connection must be closed.
  bool handle_immediate(uint32_t bytes);

  // The part of our window that has arrived and is not consumed yet.
  struct Range {
    uint32_t offset = 0, length = 0;
  };
  Range arrived() const { return {consumed_, received_ - consumed_}; }
  void consume(uint32_t bytes) { consumed_ += bytes; }

  // The next control message to send: the reply to a feature request, or the announcement of our window.
  // Empty: none.
  std::optional<ControlMessage> next_control();
  static ControlMessage keepalive();

  // The next WRITE for `waiting` bytes. Empty: the peer's window is full.
  struct Write {
    uint64_t address = 0;
    uint32_t length = 0, key = 0;
  };
  std::optional<Write> next_write(size_t waiting);

 private:
  const RemoteBuffer own_;
  bool advertised_ = false;  // our window has been sent to the peer
  uint32_t received_ = 0, consumed_ = 0;
  std::optional<uint16_t> requested_feature_;  // the reply is still to be sent
  RemoteBuffer peer_;
  uint32_t written_ = 0;
};

}  // namespace verbena::kv
