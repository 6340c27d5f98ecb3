// A client of the engine: its unparsed input, its unsent replies, its state and its flags. The frontend that
// creates it moves the bytes. The engine's lock covers every member except unsent_bytes.
// Depends on the protocol only; not on sockets, sessions or Python.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "kv/protocol/resp.h"

namespace verbena::kv {

class Client {
 public:
  explicit Client(uint64_t number) : id(number) {}
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Makes the frontend send `out`, or close the client. Engine::schedule_write() calls it, and does not call
  // it again before the frontend has reset write_scheduled. If it throws, nothing has happened.
  virtual void queue_write() = 0;
  virtual int fileno() const { return -1; }
  // The session and the number of a stream; {0, 0}: this client is no stream.
  virtual std::pair<uint64_t, uint32_t> session_stream() const { return {0, 0}; }
  // Whether its user may read every key, so that the frontend may lend it the store's memory. On `false` a
  // memory lease ends before this returns; called without the GIL.
  virtual void set_reads_all_keys(bool may) { reads_all_keys = may; }

  const uint64_t id;
  std::string address, local_address;
  std::string name;
  uint64_t created_ms = 0, last_ms = 0;
  uint32_t database = 0;
  int version = 2;  // of RESP

  bool python_dispatch = false;    // Python runs every command: transactions, subscribers, restricted users
  bool unauthenticated = false;    // kUnauthenticatedLimits apply to its requests
  bool reads_all_keys = false;     // see set_reads_all_keys()
  bool blocked = false;            // its command waits; input that arrives meanwhile is kept in `in`
  bool stalled = false;            // enough replies wait to be sent: its requests wait in `in`
  bool close_after_reply = false;  // close when `out` has been sent
  bool close_now = false;          // close without sending `out`
  bool write_scheduled = false;    // queue_write() was called, or the frontend will take `out` itself
  bool is_uncommitted = false;     // replies depend on the next Engine::commit()
  bool next_needs_python = false;  // `reader` holds its next request, which is not native
  bool no_touch = false;           // its reads do not update the recency of keys
  bool asking = false;             // ASKING: its next command may use a slot that is being imported
  bool reads_replica = false;      // READONLY: a replica may serve its reads

  RequestReader reader;
  std::string in;  // an incomplete request, or requests that wait while the client is blocked or stalled
  std::string out;
  std::atomic<size_t> unsent_bytes{0};  // bytes that the frontend took from `out` and has not sent yet
  size_t out_limit = 0;                 // 0: no limit
  uint64_t commands = 0, bytes_in = 0, bytes_out = 0;
  const char* last_command = "NULL";

  size_t pending_out() const { return out.size() + unsent_bytes.load(std::memory_order_relaxed); }
};

}  // namespace verbena::kv
