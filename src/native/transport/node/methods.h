// Methods that native code answers without Python. A handler runs under the node's lock on the thread that
// drives the node, so it must be short and never block.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "transport/node/methods_layout.h"

namespace verbena::transport {

class Node;
class Session;

struct Request {
  Session& session;
  uint64_t call;
  uint32_t method;
  std::span<const std::byte> payload;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Answers with session.reply() or session.fail(), before or after it returns.
  virtual void handle(const Request& request) = 0;
};

// Numbers below 256 are Verbena's own methods; of_name() never returns one of them.
namespace method {
constexpr uint32_t echo = 1, resolve = 2, verify = 3, checksum = 4, atomic = 5;
uint32_t of_name(std::string_view name);
}  // namespace method

void add_own_methods(Node& node);

}  // namespace verbena::transport
