// ngtcp2's callbacks during its processing of packets. They run inside ngtcp2, so they call only the ngtcp2
// functions that are allowed there.
#include <cstring>

#include "providers/quic/connection.h"
#include "providers/quic/engine.h"
#include "util/clock.h"

namespace verbena::quic {

struct Callbacks {
  static Connection& of(void* user_data) { return *static_cast<Connection*>(user_data); }
  static StreamState* stream(void* data) { return static_cast<StreamState*>(data); }

  static int handshake_completed(ngtcp2_conn*, void* user_data) {
    Connection& connection = of(user_data);
    connection.is_established_ = true;
    connection.engine_.established(connection);
    return 0;
  }

  static int stream_opened(ngtcp2_conn* conn, int64_t id, void* user_data) {
    Connection& connection = of(user_data);
    auto stream = std::make_shared<StreamState>(connection.engine_.pool());
    stream->id = id;
    stream->connection = connection.shared_from_this();
    library().ngtcp2_conn_set_stream_user_data(conn, id, stream.get());
    connection.streams_[id] = stream;
    connection.engine_.add_incoming(std::move(stream));
    return 0;
  }

  static int data_arrived(ngtcp2_conn* conn, uint32_t flags, int64_t id, uint64_t, const uint8_t* bytes,
                          size_t size, void* user_data, void* stream_data) {
    Connection& connection = of(user_data);
    StreamState* to = stream(stream_data);
    if (!to || !to->is_held) {
      // The stream has no reader: extend both windows, so that it does not block the other streams.
      library().ngtcp2_conn_extend_max_stream_offset(conn, id, size);
      library().ngtcp2_conn_extend_max_offset(conn, size);
      return 0;
    }
    to->in.append(reinterpret_cast<const std::byte*>(bytes), size);
    if (flags & NGTCP2_STREAM_DATA_FLAG_FIN) to->is_ended = true;
    connection.engine_.notify(*to);
    return 0;
  }

  static int data_confirmed(ngtcp2_conn*, int64_t, uint64_t, uint64_t size, void* user_data,
                            void* stream_data) {
    if (StreamState* from = stream(stream_data)) {
      from->sent -= static_cast<size_t>(size);
      from->out.consume(static_cast<size_t>(size));
      of(user_data).engine_.notify(*from);
    }
    return 0;
  }

  static int stream_closed(ngtcp2_conn* conn, uint32_t, int64_t id, uint64_t, void* user_data,
                           void* stream_data) {
    Connection& connection = of(user_data);
    if (StreamState* closed = stream(stream_data)) {
      closed->is_open = false;
      // Both directions were ended and confirmed; otherwise the stream was reset.
      if (!closed->is_ended || !closed->end_was_sent) closed->is_broken = true;
      closed->is_ended = true;
      connection.engine_.notify(*closed);
    }
    connection.streams_.erase(id);
    if (connection.role_ == Connection::Role::server) library().ngtcp2_conn_extend_max_streams_bidi(conn, 1);
    return 0;
  }

  // A reset of either direction breaks the stream: half a queue pair is useless.
  static int stream_reset(ngtcp2_conn*, int64_t, uint64_t, uint64_t, void* user_data, void* stream_data) {
    return broken(user_data, stream_data);
  }
  static int sending_stopped(ngtcp2_conn*, int64_t, uint64_t, void* user_data, void* stream_data) {
    // After our own end was sent and received, it does not matter.
    StreamState* to = stream(stream_data);
    return to && to->wants_end ? 0 : broken(user_data, stream_data);
  }
  static int broken(void* user_data, void* stream_data) {
    if (StreamState* to = stream(stream_data)) {
      to->is_broken = true;
      of(user_data).engine_.notify(*to);
    }
    return 0;
  }

  static int more_streams(ngtcp2_conn*, uint64_t, void*) { return 0; }  // checked after each packet

  static int new_id(ngtcp2_conn*, ngtcp2_cid* id, uint8_t* token, size_t size, void* user_data) {
    Connection& connection = of(user_data);
    const Library& lib = library();
    id->datalen = size;
    if (lib.gnutls_rnd(GNUTLS_RND_NONCE, id->data, size) != 0 ||
        lib.gnutls_rnd(GNUTLS_RND_RANDOM, token, NGTCP2_STATELESS_RESET_TOKENLEN) != 0) {
      return NGTCP2_ERR_CALLBACK_FAILURE;
    }
    connection.engine_.add_id(connection, *id);
    return 0;
  }
  static int id_retired(ngtcp2_conn*, const ngtcp2_cid* id, void* user_data) {
    of(user_data).engine_.remove_id(*id);
    return 0;
  }

  static int path_validated(ngtcp2_conn*, uint32_t, const ngtcp2_path* path,
                            ngtcp2_path_validation_result result, void* user_data) {
    Connection& connection = of(user_data);
    if (result != NGTCP2_PATH_VALIDATION_RESULT_SUCCESS) return 0;
    SocketAddress now;
    std::memcpy(&now.storage, path->remote.addr, path->remote.addrlen);
    now.length = path->remote.addrlen;
    if (same_address(now, connection.route_.remote)) return 0;
    connection.route_.remote = now;
    ++connection.engine_.counters().migrations;
    return 0;
  }

  static void random(uint8_t* out, size_t size, const ngtcp2_rand_ctx*) {
    library().gnutls_rnd(GNUTLS_RND_NONCE, out, size);
  }
};

ngtcp2_callbacks Connection::callbacks(Role role) {
  const Library& lib = library();
  ngtcp2_callbacks all{};
  if (role == Role::client) {
    all.client_initial = lib.ngtcp2_crypto_client_initial_cb;
    all.recv_retry = lib.ngtcp2_crypto_recv_retry_cb;
  } else {
    all.recv_client_initial = lib.ngtcp2_crypto_recv_client_initial_cb;
    all.stream_open = Callbacks::stream_opened;
  }
  all.recv_crypto_data = lib.ngtcp2_crypto_recv_crypto_data_cb;
  all.encrypt = lib.ngtcp2_crypto_encrypt_cb;
  all.decrypt = lib.ngtcp2_crypto_decrypt_cb;
  all.hp_mask = lib.ngtcp2_crypto_hp_mask_cb;
  all.update_key = lib.ngtcp2_crypto_update_key_cb;
  all.delete_crypto_aead_ctx = lib.ngtcp2_crypto_delete_crypto_aead_ctx_cb;
  all.delete_crypto_cipher_ctx = lib.ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
  all.get_path_challenge_data = lib.ngtcp2_crypto_get_path_challenge_data_cb;
  all.version_negotiation = lib.ngtcp2_crypto_version_negotiation_cb;
  all.handshake_completed = Callbacks::handshake_completed;
  all.recv_stream_data = Callbacks::data_arrived;
  all.acked_stream_data_offset = Callbacks::data_confirmed;
  all.stream_close = Callbacks::stream_closed;
  all.stream_reset = Callbacks::stream_reset;
  all.stream_stop_sending = Callbacks::sending_stopped;
  all.extend_max_local_streams_bidi = Callbacks::more_streams;
  all.get_new_connection_id = Callbacks::new_id;
  all.remove_connection_id = Callbacks::id_retired;
  all.path_validation = Callbacks::path_validated;
  all.rand = Callbacks::random;
  return all;
}

}  // namespace verbena::quic
