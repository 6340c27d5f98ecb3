// A socket on its way to a queue pair: dialling, MPA request and reply. The bytes are negotiation.h's; here
// is the I/O, non-blocking, with a deadline for a peer that is slow or silent. Runs under the context's
// control mutex.
#pragma once

#include <cstdint>
#include <vector>

#include "providers/iwarp/address.h"
#include "providers/iwarp/negotiation.h"
#include "util/fd.h"

namespace verbena::iwarp {

class Handshake {
 public:
  enum class Progress : uint8_t { pending, done, refused, broken, malformed };

  // As initiator, towards the first of the addresses that answers; `from` is our own, or nullptr for any.
  Handshake(std::vector<SocketAddress> to, const SocketAddress* from, const SetUpFrame& request,
            uint64_t deadline_ns);
  // As responder, with a socket that was accepted.
  Handshake(UniqueFd socket, uint64_t deadline_ns);

  bool dial_next();  // begins with the next address; false when there is none
  // Goes on as far as the socket allows. `refused`: nobody listens there. `broken`: the peer left.
  Progress advance();

  bool is_initiator() const { return initiator_; }
  bool wants_to_write() const { return initiator_ && (connecting_ || sent_ < out_.size()); }
  int socket() const { return socket_.get(); }
  UniqueFd take_socket() { return std::move(socket_); }
  uint64_t deadline_ns() const { return deadline_ns_; }
  void set_deadline(uint64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  const SetUpFrame& request() const { return request_; }
  const SetUpFrame& reply() const { return reply_; }
  // For a request that waits for its queue pair: has the peer left meanwhile?
  bool is_abandoned() const;

  // Whose it is: set by the context.
  uint64_t connection = 0;  // a managed one that is dialled
  uint32_t qp = 0;          // a queue pair that seeks its peer,
  uint32_t generation = 0;  // for this time
  int listener = -1;        // the socket it was accepted on
  bool parked = false;      // waits until the queue pair it names is ready

 private:
  std::vector<SocketAddress> to_;
  const SocketAddress* const from_;
  UniqueFd socket_;
  const bool initiator_;
  bool connecting_;
  uint64_t deadline_ns_;
  SetUpFrame request_, reply_;
  std::vector<uint8_t> out_;
  size_t sent_ = 0;
  FrameReader reader_;
};

}  // namespace verbena::iwarp
