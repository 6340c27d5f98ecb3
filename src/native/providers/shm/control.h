// Sends and receives control messages over Unix sockets, and names the abstract socket addresses of
// processes.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "providers/shm/control_layout.h"
#include "util/fd.h"
#include "verbs/types.h"

namespace verbena::shm {

struct ControlMessage {
  ControlHeader header{};
  std::vector<uint8_t> payload;
  std::array<UniqueFd, 2> fds;

  std::string_view service() const;
  std::span<const uint8_t> private_data() const;
};

struct OutgoingMessage {
  MessageKind kind;
  uint32_t from_qp = 0;
  uint32_t to_qp = 0;
  uint64_t connection_id = 0;
  uint64_t argument = 0;
  std::string_view service = {};
  std::span<const uint8_t> private_data = {};
  std::array<int, 2> fds = {-1, -1};
};

enum class Sent { done, busy, gone };

// Sends one message without waiting; `busy` when the peer's queue is full.
Sent send_message(int socket, const OutgoingMessage& message);

// Sends `wake`. A peer whose queue is full is awake.
void send_wake(int socket);

// A message that waits to be sent: owns what an OutgoingMessage only points to.
class UnsentMessage {
 public:
  explicit UnsentMessage(const OutgoingMessage& message);
  OutgoingMessage view() const;

 private:
  OutgoingMessage message_;
  std::string service_;
  std::vector<uint8_t> private_data_;
  std::array<UniqueFd, 2> fds_;
};

enum class Received { message, nothing, closed, malformed };

// Receives one message without waiting. The descriptors of a malformed message are closed.
Received receive_message(int socket, ControlMessage& out);

// Abstract addresses: they vanish with their socket, so a killed process leaves no file behind.
std::string node_address(const Gid& gid);
std::string service_address(std::string_view service);

UniqueFd listen_at(const std::string& address, int backlog);  // throws address_in_use
UniqueFd dial(const std::string& address);                    // empty: no process listens there

// The pid of the peer if it runs as the same user; empty otherwise.
std::optional<int> trusted_peer(int socket);

}  // namespace verbena::shm
