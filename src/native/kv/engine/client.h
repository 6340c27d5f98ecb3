// Who talks to the engine: what it said so far, what it has yet to hear, and how it is to be treated. How the
// bytes travel is the business of whoever made it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "kv/protocol/resp.h"

namespace verbena::kv {

class Client {
 public:
  explicit Client(uint64_t number) : id(number) {}
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // There is something in `out`, or the client is to be closed: called once until it has been looked after.
  virtual void queue_write() = 0;
  virtual int fileno() const { return -1; }

  const uint64_t id;
  std::string address, local_address;
  std::string name;
  uint64_t created_ms = 0, last_ms = 0;
  uint32_t database = 0;
  int version = 2;  // of RESP

  bool python_dispatch =
      false;  // every command goes by the program: transactions, subscribers, restricted users
  bool unauthenticated = false;    // it has not said who it is: small requests only
  bool blocked = false;            // waits for something; what it says meanwhile waits, too
  bool close_after_reply = false;  // once it has heard what is in `out`
  bool close_now = false;          // at once
  bool write_scheduled = false;    // wake() was called
  bool no_touch = false;           // what it reads does not get younger by it
  bool asking = false;             // its next command may be about a slot that is on its way here
  bool reads_replica = false;      // it may be served by a replica

  RequestReader reader;
  std::string in;  // a request that is not whole yet
  std::string out;
  std::atomic<size_t> unsent_bytes{0};  // bytes that were in `out`, and have not gone yet
  size_t out_limit = 0;                 // 0: no bound
  uint64_t commands = 0, bytes_in = 0, bytes_out = 0;
  const char* last_command = "NULL";

  size_t pending_out() const { return out.size() + unsent_bytes.load(std::memory_order_relaxed); }
};

}  // namespace verbena::kv
