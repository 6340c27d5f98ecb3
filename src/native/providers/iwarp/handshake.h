// A wire on its way to a queue pair: dialling, TLS if asked for, MPA request and reply. The bytes are
// negotiation.h's; here is the I/O, non-blocking, with a deadline for a peer that is slow or silent. Runs
// under the context's control mutex.
#pragma once

#include <cstdint>
#include <vector>

#include "net/address.h"
#include "net/stream_socket.h"
#include "net/tls.h"
#include "providers/iwarp/protocol/negotiation.h"
#include "providers/iwarp/stream_transport.h"

namespace verbena::iwarp {

// Whom to call, and how.
struct Call {
  std::vector<net::SocketAddress> to;        // the first of them that answers
  const net::SocketAddress* from = nullptr;  // our own address, or any
  int from_place = -1;                       // likewise, with a carrier
  std::string host;                          // whose certificate is wanted
  uint32_t dead_peer_timeout_ms = 0;
};

class Handshake {
 public:
  enum class Progress : uint8_t {
    pending,
    done,
    refused,      // nobody listens there
    broken,       // the peer left, or TLS failed: see tls_error()
    malformed,    // it speaks another protocol
    unencrypted,  // it does not speak TLS, and must
    encrypted,    // it speaks TLS, and we do not
  };

  // As initiator. `tls` may be nullptr, here and below, and `carrier`: then it is TCP.
  Handshake(Call call, const SetUpFrame& request, net::TlsContext* tls, StreamTransport* carrier,
            uint64_t deadline_ns);
  // As responder, with a socket or stream that was accepted.
  Handshake(net::StreamSocket wire, net::TlsContext* tls, uint64_t deadline_ns);

  bool dial_next();    // begins with the next address; false when there is none
  Progress advance();  // as far as the socket allows

  bool is_initiator() const { return initiator_; }
  bool wants_to_write() const;
  const net::StreamSocket& wire() const { return wire_; }
  net::StreamSocket take_wire() { return std::move(wire_); }
  // Why TLS failed, or empty: a code and the library's words.
  std::pair<std::string, std::string> tls_error() const;
  uint64_t deadline_ns() const { return deadline_ns_; }
  void set_deadline(uint64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  const SetUpFrame& request() const { return request_; }
  const SetUpFrame& reply() const { return reply_; }
  // For a request that waits for its queue pair: has the peer left meanwhile?
  bool is_abandoned() const { return wire_.is_abandoned(); }

  // Whose it is: set by the context.
  uint64_t connection = 0;  // a managed one that is dialled
  uint32_t qp = 0;          // a queue pair that seeks its peer,
  uint32_t generation = 0;  // for this time
  int listener = -1;        // the socket or place it was accepted on
  bool parked = false;      // waits until the queue pair it names is ready

 private:
  Progress meet_caller();
  Progress secure();

  Call call_;
  net::TlsContext* const tls_;
  StreamTransport* const carrier_;
  net::StreamSocket wire_;
  const bool initiator_;
  bool connecting_;
  bool is_met_ = false;
  bool is_secure_, tls_wants_to_write_ = false;
  uint64_t deadline_ns_;
  SetUpFrame request_, reply_;
  std::vector<uint8_t> out_;
  size_t sent_ = 0;
  FrameReader reader_;
};

}  // namespace verbena::iwarp
