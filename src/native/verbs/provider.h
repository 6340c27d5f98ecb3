// The provider contract: what a wire implements to carry verbs. Set-up throws Error; the data path returns
// values. Everything is thread-safe as in libibverbs, and every close() is idempotent; a child keeps its
// parent alive. May depend on util/ and types.h only.
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

// Memory from allocate(): what the wire can share best (arena, huge pages). Lives until the last holder drops
// it.
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
  // After close() returns no peer touches the memory any more, and its keys are refused.
  virtual void close() = 0;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Makes progress, then fills `out` with what has finished, oldest first. Zero: nothing yet.
  virtual size_t poll(std::span<Completion> out) = 0;
  // Asks for one event on fileno() at the next completion (or the next solicited or failed one).
  // Poll once more after arming: what came before it rings no bell.
  virtual void arm(bool solicited_only) = 0;
  virtual int fileno() const = 0;
  virtual void acknowledge() = 0;  // takes the event, so that fileno() is not readable any more
  virtual uint32_t capacity() const = 0;
  virtual bool overrun() const = 0;  // completions were lost: the queue was too small; its QPs are in ERR
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
  // Walks one edge of the state diagram; throws bad_transition or missing_attribute and changes nothing.
  virtual void modify(const QpAttributes& wanted) = 0;
  virtual Capabilities capabilities() const = 0;  // what this connection can do with this peer
  virtual void close() = 0;
};

struct QpOptions {
  std::shared_ptr<CompletionQueue> send_cq, recv_cq;
  std::shared_ptr<SharedReceiveQueue> srq;  // empty: the QP has a receive queue of its own
  QpLimits limits;
  bool signal_all = false;
};

class ProtectionDomain {
 public:
  virtual ~ProtectionDomain() = default;
  // Registers [addr, addr+length). The caller keeps the memory valid until the region is closed.
  virtual std::shared_ptr<MemoryRegion> register_memory(std::byte* addr, size_t length, uint32_t access,
                                                        bool pin) = 0;
  virtual std::shared_ptr<QueuePair> create_qp(const QpOptions& options) = 0;
  virtual std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) = 0;
  virtual void close() = 0;
};

enum class ConnectionState : uint8_t { connecting, established, rejected, failed, disconnected };

// One end of a managed connection. fileno() becomes readable at each change of state.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual ConnectionState state() const = 0;
  virtual ErrorCode error_code() const = 0;                // why it failed, or none
  virtual std::string error_detail() const { return {}; }  // the particulars, if there are any
  virtual std::string peer() const = 0;
  virtual std::vector<uint8_t> private_data() const = 0;  // the peer's, from its accept or reject
  virtual int fileno() const = 0;
  virtual void acknowledge() = 0;
  virtual void disconnect() = 0;  // both QPs go to ERR, both ends see `disconnected`
};

// A peer that wants a connection. Dropped unanswered it counts as rejected.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;
  virtual std::string peer() const = 0;
  virtual std::vector<uint8_t> private_data() const = 0;
  // Takes a QP in RESET or INIT to RTS. The connection is usable when it is `established`.
  virtual std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) = 0;
  virtual void reject(std::span<const uint8_t> private_data) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::string address() const = 0;             // as bound: with the port or name that was chosen
  virtual int fileno() const = 0;                      // readable while next() has something
  virtual std::shared_ptr<ConnectRequest> next() = 0;  // empty: nobody is waiting
  virtual void close() = 0;
};

class Context {
 public:
  virtual ~Context() = default;
  virtual DeviceAttributes query() const = 0;
  virtual std::shared_ptr<ProtectionDomain> alloc_pd() = 0;
  virtual std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) = 0;
  virtual std::shared_ptr<Memory> allocate(size_t bytes, bool huge_pages) = 0;
  // Memory allocated from now on comes from this NUMA node while it has some; -1: from anywhere.
  virtual void set_memory_node(int node) { memory_node_.store(node, std::memory_order_relaxed); }
  virtual std::shared_ptr<Listener> listen(const std::string& address, int backlog) = 0;
  // Returns at once; watch the connection. Takes a QP in RESET or INIT to RTS.
  virtual std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                              const ConnectParams& params) = 0;
  // What has happened to it so far, by name; empty where nothing is counted.
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
  virtual std::string unavailable_reason() const = 0;  // empty: it can be used here
  virtual ErrorCode unavailable_code() const { return "provider_missing"; }
  virtual std::vector<DeviceAttributes> devices() const = 0;
  virtual std::shared_ptr<Context> open(const std::string& device) = 0;  // empty name: the first
};

}  // namespace verbena
