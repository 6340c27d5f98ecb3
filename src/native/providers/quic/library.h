// ngtcp2, its GnuTLS helper, and GnuTLS as a table of function pointers, loaded at run time: without them
// only this provider is unavailable.
#pragma once

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#include <string>

namespace verbena::quic {

#define VERBENA_QUIC_SYMBOLS(X)                                  \
  X(ngtcp2_accept)                                               \
  X(ngtcp2_conn_client_new_versioned)                            \
  X(ngtcp2_conn_del)                                             \
  X(ngtcp2_conn_extend_max_offset)                               \
  X(ngtcp2_conn_extend_max_stream_offset)                        \
  X(ngtcp2_conn_extend_max_streams_bidi)                         \
  X(ngtcp2_conn_get_conn_stat_versioned)                         \
  X(ngtcp2_conn_get_connection_close_error)                      \
  X(ngtcp2_conn_get_expiry)                                      \
  X(ngtcp2_conn_get_handshake_completed)                         \
  X(ngtcp2_conn_get_max_tx_udp_payload_size)                     \
  X(ngtcp2_conn_get_path)                                        \
  X(ngtcp2_conn_get_path_max_tx_udp_payload_size)                \
  X(ngtcp2_conn_get_pto)                                         \
  X(ngtcp2_conn_get_tls_alert)                                   \
  X(ngtcp2_conn_handle_expiry)                                   \
  X(ngtcp2_conn_open_bidi_stream)                                \
  X(ngtcp2_conn_read_pkt_versioned)                              \
  X(ngtcp2_conn_server_new_versioned)                            \
  X(ngtcp2_conn_set_keep_alive_timeout)                          \
  X(ngtcp2_conn_set_stream_user_data)                            \
  X(ngtcp2_conn_set_tls_native_handle)                           \
  X(ngtcp2_conn_shutdown_stream)                                 \
  X(ngtcp2_conn_shutdown_stream_read)                            \
  X(ngtcp2_conn_write_connection_close_versioned)                \
  X(ngtcp2_conn_writev_stream_versioned)                         \
  X(ngtcp2_connection_close_error_default)                       \
  X(ngtcp2_connection_close_error_set_application_error)         \
  X(ngtcp2_connection_close_error_set_transport_error)           \
  X(ngtcp2_connection_close_error_set_transport_error_liberr)    \
  X(ngtcp2_connection_close_error_set_transport_error_tls_alert) \
  X(ngtcp2_err_is_fatal)                                         \
  X(ngtcp2_path_storage_zero)                                    \
  X(ngtcp2_pkt_decode_version_cid)                               \
  X(ngtcp2_pkt_write_version_negotiation)                        \
  X(ngtcp2_settings_default_versioned)                           \
  X(ngtcp2_strerror)                                             \
  X(ngtcp2_transport_params_default_versioned)                   \
  X(ngtcp2_version)

#define VERBENA_QUIC_CRYPTO_SYMBOLS(X)             \
  X(ngtcp2_crypto_client_initial_cb)               \
  X(ngtcp2_crypto_decrypt_cb)                      \
  X(ngtcp2_crypto_delete_crypto_aead_ctx_cb)       \
  X(ngtcp2_crypto_delete_crypto_cipher_ctx_cb)     \
  X(ngtcp2_crypto_encrypt_cb)                      \
  X(ngtcp2_crypto_generate_retry_token)            \
  X(ngtcp2_crypto_get_path_challenge_data_cb)      \
  X(ngtcp2_crypto_gnutls_configure_client_session) \
  X(ngtcp2_crypto_gnutls_configure_server_session) \
  X(ngtcp2_crypto_hp_mask_cb)                      \
  X(ngtcp2_crypto_recv_client_initial_cb)          \
  X(ngtcp2_crypto_recv_crypto_data_cb)             \
  X(ngtcp2_crypto_recv_retry_cb)                   \
  X(ngtcp2_crypto_update_key_cb)                   \
  X(ngtcp2_crypto_verify_retry_token)              \
  X(ngtcp2_crypto_version_negotiation_cb)          \
  X(ngtcp2_crypto_write_retry)

#define VERBENA_GNUTLS_SYMBOLS(X)                 \
  X(gnutls_alert_get_name)                        \
  X(gnutls_alpn_get_selected_protocol)            \
  X(gnutls_alpn_set_protocols)                    \
  X(gnutls_certificate_allocate_credentials)      \
  X(gnutls_certificate_free_credentials)          \
  X(gnutls_certificate_server_set_request)        \
  X(gnutls_certificate_set_x509_crl_file)         \
  X(gnutls_certificate_set_x509_key_file)         \
  X(gnutls_certificate_set_x509_trust_file)       \
  X(gnutls_certificate_type_get)                  \
  X(gnutls_certificate_verification_status_print) \
  X(gnutls_certificate_get_peers)                 \
  X(gnutls_certificate_verify_peers3)             \
  X(gnutls_cipher_get)                            \
  X(gnutls_cipher_get_name)                       \
  X(gnutls_credentials_set)                       \
  X(gnutls_deinit)                                \
  X(gnutls_init)                                  \
  X(gnutls_priority_set_direct)                   \
  X(gnutls_rnd)                                   \
  X(gnutls_server_name_set)                       \
  X(gnutls_session_get_ptr)                       \
  X(gnutls_session_set_ptr)                       \
  X(gnutls_session_set_verify_function)           \
  X(gnutls_strerror)

#define VERBENA_POINTER(symbol) decltype(&::symbol) symbol = nullptr;
struct Library {
  VERBENA_QUIC_SYMBOLS(VERBENA_POINTER)
  VERBENA_QUIC_CRYPTO_SYMBOLS(VERBENA_POINTER)
  VERBENA_GNUTLS_SYMBOLS(VERBENA_POINTER)
};
#undef VERBENA_POINTER

const std::string& missing_library();  // empty: nothing is missing
// Throws provider_missing.
const Library& library();

}  // namespace verbena::quic
