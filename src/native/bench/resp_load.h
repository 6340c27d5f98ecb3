// The load of `verbena kv bench`: one kind of RESP request with changing keys, on several connections, each
// with one batch in flight.
// Depends on util/ only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::bench {

struct RespRequest {
  std::string bytes;              // the encoded request
  std::vector<uint32_t> keys_at;  // positions of the kKeyDigits digits of each key
  uint64_t keys = 1;              // keys are numbers from 0 to keys - 1
  bool in_order = false;          // ascending instead of random
  static constexpr size_t kKeyDigits = 12;
};

class RespLoad {
 public:
  // The caller owns the sockets and must not use them meanwhile. Each batch is `depth` requests in one write;
  // the next batch follows when all replies have come.
  RespLoad(std::vector<int> sockets, RespRequest request, uint32_t depth, uint64_t seed);

  struct Result {
    uint64_t done = 0;    // requests with a reply
    uint64_t errors = 0;  // error replies among them
    uint64_t reply_bytes = 0;
    uint64_t elapsed_ns = 0;
    bool finished = false;  // false: the server closed a connection, or did not reply within the timeout
  };
  // Runs one batch per sample; a sample is the time from the write to the last reply.
  Result run(std::span<double> samples_ns, uint64_t timeout_ns);

 private:
  // Counts replies in a byte stream, without reading the content of long ones.
  struct Counter {
    size_t wanted = 0;  // replies to come
    size_t skip = 0;    // remaining bytes of a bulk string
    std::string line;   // the beginning of an incomplete line
    uint64_t errors = 0;
    bool bad = false;
    void take(std::string_view bytes);
    void take_line();
  };
  struct Connection {
    int socket;
    uint64_t begun_ns = 0;
    Counter replies;
    std::string unsent;
  };

  void fill(Connection& connection);
  bool send(Connection& connection, bool wait);
  Result run_one(std::span<double> samples_ns, uint64_t timeout_ns);
  Result run_many(std::span<double> samples_ns, uint64_t timeout_ns);

  const RespRequest request_;
  const uint32_t depth_;
  std::string batch_;
  std::vector<Connection> connections_;
  std::vector<char> buffer_;
  uint64_t random_, next_ = 0;
};

}  // namespace verbena::bench
