/* sc_tls.c - the context of TLS connections to a server. */
#include "gateway/store/sc_tls.h"
#include "io/error.h"
#include <openssl/err.h>
#include <openssl/ssl.h>

int sc_tls_create(const char *ca_file, struct ssl_ctx_st **out, struct quire_error *err)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    if (!tls)
        return error_set(err, QUIRE_ENOMEM, "no memory for TLS with the server");
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    if (*ca_file ? SSL_CTX_load_verify_locations(tls, ca_file, NULL) : SSL_CTX_set_default_verify_paths(tls)) {
        *out = tls;
        return 0;
    }
    SSL_CTX_free(tls);
    return error_set(err, QUIRE_EINVALID, "server-ca-file %s: %s", ca_file, ERR_reason_error_string(ERR_get_error()));
}
