// OpenSSL 3 as a table of function pointers, loaded at run time: everything but TLS works without it.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

namespace verbena::net {

#define VERBENA_OPENSSL_SYMBOLS(X)      \
  X(BIO_clear_flags)                    \
  X(BIO_get_data)                       \
  X(BIO_meth_new)                       \
  X(BIO_meth_set_ctrl)                  \
  X(BIO_meth_set_read)                  \
  X(BIO_meth_set_write)                 \
  X(BIO_new)                            \
  X(BIO_set_data)                       \
  X(BIO_set_flags)                      \
  X(BIO_set_init)                       \
  X(ERR_clear_error)                    \
  X(ERR_peek_error)                     \
  X(ERR_reason_error_string)            \
  X(SSL_CIPHER_get_name)                \
  X(SSL_CTX_ctrl)                       \
  X(SSL_CTX_free)                       \
  X(SSL_CTX_load_verify_locations)      \
  X(SSL_CTX_new)                        \
  X(SSL_CTX_set_alpn_protos)            \
  X(SSL_CTX_set_alpn_select_cb)         \
  X(SSL_CTX_set_ciphersuites)           \
  X(SSL_CTX_set_num_tickets)            \
  X(SSL_CTX_set_verify)                 \
  X(SSL_CTX_use_PrivateKey_file)        \
  X(SSL_CTX_use_certificate_chain_file) \
  X(SSL_ctrl)                           \
  X(SSL_do_handshake)                   \
  X(SSL_free)                           \
  X(SSL_get0_alpn_selected)             \
  X(SSL_get0_param)                     \
  X(SSL_get_current_cipher)             \
  X(SSL_get_error)                      \
  X(SSL_get_verify_result)              \
  X(SSL_key_update)                     \
  X(SSL_new)                            \
  X(SSL_pending)                        \
  X(SSL_read)                           \
  X(SSL_set_accept_state)               \
  X(SSL_set_bio)                        \
  X(SSL_set_connect_state)              \
  X(SSL_shutdown)                       \
  X(SSL_write)                          \
  X(TLS_method)                         \
  X(X509_VERIFY_PARAM_set1_host)        \
  X(X509_VERIFY_PARAM_set1_ip_asc)      \
  X(X509_verify_cert_error_string)

#define VERBENA_POINTER(symbol) decltype(&::symbol) symbol = nullptr;
struct OpenSsl {
  VERBENA_OPENSSL_SYMBOLS(VERBENA_POINTER)
};
#undef VERBENA_POINTER

// Throws tls_missing with the name of the missing library or symbol.
const OpenSsl& openssl();

}  // namespace verbena::net
