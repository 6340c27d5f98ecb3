// The provider contract: the interfaces that each wire implements to provide verbs. Set-up functions throw
// Error; the data path returns values. All calls are thread-safe as in libibverbs, every close() is
// idempotent, and a child keeps its parent alive. May depend on util/ and types.h only.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "util/error_code.h"
#include "verbs/types.h"

namespace verbena {

// Names memory that is shared with the same peers. A wire that maps memory into peers never puts memory of
// two groups into one mapping.
class MemoryGroup {};

// What Context::allocate() must know besides the length.
struct MemoryOptions {
  bool huge_pages = false;
  uint32_t peer_access = 0;  // what peers will be allowed: memory without it is never mapped by one
  std::shared_ptr<const MemoryGroup> group = {};  // null: all memory of the context that has none
};

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

// Lends a region to the peer of one queue pair: a memory window of type 2. Through any other queue pair its
// key is refused. It ends at the latest when the region or the queue pair is closed, or the latter reset.
class MemoryWindow {
 public:
  virtual ~MemoryWindow() = default;  // invalidates it
  virtual uint32_t rkey() const = 0;
  // The key is refused from now on; accesses that began earlier end before Context::quiesce() returns.
  virtual void invalidate() = 0;
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
  // Binds a window of the whole region, which was registered with access::window, to a queue pair of this
  // domain that is in RTS; in ERR, no peer can use it. Returns before a device has bound it: later requests
  // of the queue pair follow the bind, so send the key to the peer by one of them. If the bind fails, a
  // completion with id 0 reports mw_bind_err and the queue pair is in ERR. A wire that maps memory does so
  // only with memory of `group`; null: of any group.
  virtual std::shared_ptr<MemoryWindow> bind_window(const std::shared_ptr<MemoryRegion>& region,
                                                    uint32_t access, const std::shared_ptr<QueuePair>& qp,
                                                    const MemoryGroup* group = nullptr) = 0;
  virtual std::shared_ptr<QueuePair> create_qp(const QpOptions& options) = 0;
  virtual std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) = 0;
  virtual void close() = 0;
};

// One end of a managed connection. At each change of state fileno() becomes readable, until acknowledge(),
// and the callbacks of on_change() run, in the thread that makes the change: they must not block.
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
  virtual bool on_change(std::function<void()>) { return false; }  // false: there is only the descriptor
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
  virtual std::shared_ptr<ConnectRequest> next() = 0;  // null: none is waiting; throws no_device
  virtual void close() = 0;
};

class Context {
 public:
  virtual ~Context() = default;
  virtual DeviceAttributes query() const = 0;
  virtual std::shared_ptr<ProtectionDomain> alloc_pd() = 0;
  virtual std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) = 0;
  virtual std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options) = 0;
  // Returns when no peer uses a key that was refused before the call.
  virtual void quiesce() = 0;
  // Places future allocations on this NUMA node while it has free memory; -1: on any node.
  virtual void set_memory_node(int node) { memory_node_.store(node, std::memory_order_relaxed); }
  virtual std::shared_ptr<Listener> listen(const std::string& address, int backlog) = 0;
  // Returns at once: the caller watches the connection's state. Moves a QP from RESET or INIT to RTS.
  virtual std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                              const ConnectParams& params) = 0;
  // Event counters by name; empty if the provider counts nothing.
  virtual Counts counts() const { return {}; }
  // The device is gone, and with it all that was made here: close this context, and open the device when it
  // has returned.
  virtual bool is_removed() const { return false; }
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
