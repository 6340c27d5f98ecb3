// The set-up of one connection: TCP connect or accept, TLS if it is configured, MPA request and reply. This
// file does the I/O, non-blocking and with a deadline; negotiation.h encodes and decodes the frames. Runs
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

// The addresses to connect to, and how.
struct DialTarget {
  std::vector<net::SocketAddress> to;        // tried in this order until one accepts
  const net::SocketAddress* from = nullptr;  // our own address; nullptr: any
  int from_endpoint_id = -1;                 // the local endpoint of a StreamTransport; -1: any
  std::string host;                          // the name that the peer's certificate must have
  uint32_t dead_peer_timeout_ms = 0;
};

class Handshake {
 public:
  enum class Progress : uint8_t {
    pending,
    done,
    refused,      // no listener at that address
    broken,       // the peer closed the connection, or TLS failed: see tls_error()
    malformed,    // not an MPA frame
    unencrypted,  // the peer does not use TLS, which is required
    encrypted,    // the peer uses TLS, which is not configured here
  };

  // As initiator. `tls` may be nullptr: no TLS. `transport` may be nullptr: kernel TCP.
  Handshake(DialTarget target, const SetUpFrame& request, net::TlsContext* tls, StreamTransport* transport,
            uint64_t deadline_ns);
  // As responder, with an accepted socket or stream.
  Handshake(net::StreamSocket socket, net::TlsContext* tls, uint64_t deadline_ns);

  bool dial_next();    // begins to connect to the next address; false when there is none
  Progress advance();  // continues as far as the socket allows

  bool is_initiator() const { return initiator_; }
  bool wants_to_write() const;
  const net::StreamSocket& stream_socket() const { return stream_socket_; }
  net::StreamSocket take_socket() { return std::move(stream_socket_); }
  // Why TLS failed: an error code and the text of the library; empty when it did not fail.
  std::pair<ErrorCode, std::string> tls_error() const;
  uint64_t deadline_ns() const { return deadline_ns_; }
  void set_deadline(uint64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  const SetUpFrame& request() const { return request_; }
  const SetUpFrame& reply() const { return reply_; }
  // For a request that waits for its queue pair: true when the peer has closed the connection.
  bool is_abandoned() const { return stream_socket_.is_abandoned(); }

  // What the handshake is for; set by the context.
  uint64_t connection = 0;  // id of the managed connection that dials
  uint32_t qp = 0;          // number of the queue pair that searches its peer,
  uint32_t generation = 0;  // and the generation for which it does so
  int listener = -1;        // the socket or endpoint id that accepted it
  bool parked = false;      // waits until the queue pair in its request is ready

 private:
  Progress detect_tls();
  Progress advance_tls();

  DialTarget target_;
  net::TlsContext* const tls_;
  StreamTransport* const transport_;
  net::StreamSocket stream_socket_;
  const bool initiator_;
  bool connecting_;
  bool is_tls_detected_ = false;
  bool is_secure_, tls_wants_to_write_ = false;
  uint64_t deadline_ns_;
  SetUpFrame request_, reply_;
  std::vector<uint8_t> out_;
  size_t sent_ = 0;
  FrameReader reader_;
};

}  // namespace verbena::iwarp
