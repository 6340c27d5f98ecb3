// The provider contract: the interfaces that each wire implements to provide verbs. Set-up functions throw
// Error; the data path returns values. All calls are thread-safe as in libibverbs, every close() is
// idempotent, and a child keeps its parent alive. May depend on util/ and types.h only.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "util/error_code.h"
#include "verbs/types.h"

namespace verbena {

// Memory from Context::allocate(), of the kind that the wire shares most cheaply (arena, huge pages). It is
// freed with the last reference.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
};

class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual uint32_t lkey() const = 0;
  virtual uint32_t rkey() const = 0;
  // After close() returns, no peer accesses the memory, and its keys are refused.
  virtual void close() = 0;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Makes progress, then fills `out` with completions, oldest first. Returns their number; 0: none yet.
  virtual size_t poll(std::span<Completion> out) = 0;
  // Requests one event on fileno() at the next completion, or at the next solicited or failed one. Poll once
  // more after arming: completions that arrived before it raise no event.
  virtual void arm(bool solicited_only) = 0;
  virtual int fileno() const = 0;
  virtual void acknowledge() = 0;  // consumes the event: fileno() is no longer readable
  virtual uint32_t capacity() const = 0;
  virtual bool overrun() const = 0;  // true: the queue was full and lost completions; its QPs are in ERR
  virtual void close() = 0;
};

class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  virtual PostResult post(std::span<const RecvRequest> batch) = 0;
  virtual void close() = 0;
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual PostResult post_send(std::span<const SendRequest> batch) = 0;
  virtual PostResult post_recv(std::span<const RecvRequest> batch) = 0;

  virtual uint32_t number() const = 0;
  virtual QpState state() const = 0;
  virtual QpLimits limits() const = 0;
  virtual QpAttributes attributes() const = 0;
  // Makes one transition of the state diagram. Throws bad_transition or missing_attribute; then nothing has
  // changed.
  virtual void modify(const QpAttributes& wanted) = 0;
  virtual Capabilities capabilities() const = 0;  // of this connection with its peer
  virtual void close() = 0;
};

struct QpOptions {
  std::shared_ptr<CompletionQueue> send_cq, recv_cq;
  std::shared_ptr<SharedReceiveQueue> srq;  // null: the QP has its own receive queue
  QpLimits limits;
  bool signal_all = false;
};

class ProtectionDomain {
 public:
  virtual ~ProtectionDomain() = default;
  // Registers [addr, addr+length). The caller must keep the memory valid until the region is closed.
  virtual std::shared_ptr<MemoryRegion> register_memory(std::byte* addr, size_t length, uint32_t access,
                                                        bool pin) = 0;
  virtual std::shared_ptr<QueuePair> create_qp(const QpOptions& options) = 0;
  virtual std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) = 0;
  virtual void close() = 0;
};

enum class ConnectionState : uint8_t { connecting, established, rejected, failed, disconnected };

// One end of a managed connection. fileno() becomes readable at each state change; acknowledge() clears it.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual ConnectionState state() const = 0;
  virtual ErrorCode error_code() const = 0;                // the reason of the failure, or no error
  virtual std::string error_detail() const { return {}; }  // details of the failure, or empty
  virtual std::string peer() const = 0;
  virtual std::vector<uint8_t> private_data() const = 0;  // sent by the peer with its accept or reject
  virtual int fileno() const = 0;
  virtual void acknowledge() = 0;
  virtual void disconnect() = 0;  // both QPs change to ERR, both ends to `disconnected`
};

// A peer's request for a connection. Answer it with accept() or reject(); its destruction rejects it.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;
  virtual std::string peer() const = 0;
  virtual std::vector<uint8_t> private_data() const = 0;
  // Moves a QP from RESET or INIT to RTS. The connection is usable once its state is `established`.
  virtual std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) = 0;
  virtual void reject(std::span<const uint8_t> private_data) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::string address() const = 0;             // as bound, with the chosen port or name
  virtual int fileno() const = 0;                      // readable while next() has a request
  virtual std::shared_ptr<ConnectRequest> next() = 0;  // null: no request is waiting
  virtual void close() = 0;
};

class Context {
 public:
  virtual ~Context() = default;
  virtual DeviceAttributes query() const = 0;
  virtual std::shared_ptr<ProtectionDomain> alloc_pd() = 0;
  virtual std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) = 0;
  virtual std::shared_ptr<Memory> allocate(size_t bytes, bool huge_pages) = 0;
  // Places future allocations on this NUMA node while it has free memory; -1: on any node.
  virtual void set_memory_node(int node) { memory_node_.store(node, std::memory_order_relaxed); }
  virtual std::shared_ptr<Listener> listen(const std::string& address, int backlog) = 0;
  // Returns at once: the caller watches the connection's state. Moves a QP from RESET or INIT to RTS.
  virtual std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                              const ConnectParams& params) = 0;
  // Event counters by name; empty if the provider counts nothing.
  virtual Counts counts() const { return {}; }
  virtual void close() = 0;

 protected:
  int memory_node() const { return memory_node_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> memory_node_{-1};
};

class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string_view name() const = 0;
  virtual std::string unavailable_reason() const = 0;  // empty: usable on this machine
  virtual ErrorCode unavailable_code() const { return "provider_missing"; }
  virtual std::vector<DeviceAttributes> devices() const = 0;
  virtual std::shared_ptr<Context> open(const std::string& device) = 0;  // empty name: the first device
};

}  // namespace verbena
