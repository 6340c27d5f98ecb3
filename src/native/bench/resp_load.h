// What a client in C asks of a server that speaks RESP: one kind of request, with keys that change, on some
// connections, each with a batch under way. The client that stores are compared by.
// May depend on util/ only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::bench {

struct RespRequest {
  std::string bytes;              // as it travels
  std::vector<uint32_t> keys_at;  // where in it the kKeyDigits digits of each key stand
  uint64_t keys = 1;              // numbers from 0 to keys - 1
  bool in_order = false;          // one after the other instead of at random
  static constexpr size_t kKeyDigits = 12;
};

class RespLoad {
 public:
  // The sockets stay the caller's, who uses them for nothing else. Each batch is `depth` requests in one
  // write; the next follows when all have been answered.
  RespLoad(std::vector<int> sockets, RespRequest request, uint32_t depth, uint64_t seed);

  struct Result {
    uint64_t done = 0;    // requests that were answered
    uint64_t errors = 0;  // of them, by an error
    uint64_t reply_bytes = 0;
    uint64_t elapsed_ns = 0;
    bool finished = false;  // false: the server closed a connection, or was silent for too long
  };
  // As many batches as there are samples; each is the time from the write to the last answer.
  Result run(std::span<double> samples_ns, uint64_t patience_ns);

 private:
  // Counts replies in a stream of them, without looking into long ones.
  struct Counter {
    size_t wanted = 0;  // values to come
    size_t skip = 0;    // bytes of a bulk string to come
    std::string line;   // the start of one that is not whole
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
  Result run_one(std::span<double> samples_ns, uint64_t patience_ns);
  Result run_many(std::span<double> samples_ns, uint64_t patience_ns);

  const RespRequest request_;
  const uint32_t depth_;
  std::string batch_;
  std::vector<Connection> connections_;
  std::vector<char> buffer_;
  uint64_t random_, next_ = 0;
};

}  // namespace verbena::bench
