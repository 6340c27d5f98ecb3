// QuicStream: a stream of a QUIC connection as the byte stream that the iWARP protocol uses.
#pragma once

#include <memory>

#include "providers/quic/engine.h"

namespace verbena::quic {

class QuicStream final : public net::ByteStream {
 public:
  QuicStream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state)
      : engine_(std::move(engine)), state_(std::move(state)) {}
  ~QuicStream() override;

  Step handshake() override;
  ssize_t read(std::span<const iovec> room) override;
  ssize_t write(std::span<const iovec> pieces) override;
  void shutdown_write() override;
  bool flush() override;
  bool has_unsent() const override { return false; }  // the engine sends it
  bool has_unread() const override { return false; }  // the engine reports it
  bool is_empty_after_short_read() const override { return true; }
  size_t unconfirmed() const override;
  std::string cipher() const override;
  void watch(uint64_t key, uint32_t events) override;
  bool has_room() const override;
  bool is_abandoned() const override;
  SocketAddress peer() const override;

 private:
  bool is_gone() const { return state_->is_broken || !state_->connection->is_alive(); }
  void set_error();

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<StreamState> state_;
};

}  // namespace verbena::quic
