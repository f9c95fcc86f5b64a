/*
 * http_tls.c - the listener's certificate.
 *
 * A context belongs to the connections that began with it (OpenSSL counts its references), so a reload exchanges the
 * server's and disturbs nobody. Buffers are given back while a connection is idle: a waiting stream would otherwise
 * hold 34 KiB for TLS alone.
 */
#include "gateway/http/http_priv.h"
#include "io/error.h"
#include <openssl/err.h>
#include <string.h>

static int failed(struct quire_error *err, const char *setting, const char *file)
{
    char reason[256];
    unsigned long code = ERR_get_error();
    ERR_error_string_n(code, reason, sizeof reason);
    ERR_clear_error();
    return error_set(err, QUIRE_EINVALID, "%s %s: %s", setting, file, code ? reason : "cannot be used");
}

/* ALPN: the one protocol that is spoken. A client that offers others only goes on without ALPN. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_bytes, const unsigned char *in,
                           unsigned in_bytes, void *unused)
{
    static const unsigned char http11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
    (void)ssl;
    (void)unused;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_bytes, http11, sizeof http11, in, in_bytes) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

int http_tls_create(const struct http_options *options, SSL_CTX **out, struct quire_error *err)
{
    if (!options->tls_cert) {
        *out = NULL;
        return 0;
    }
    if (!options->tls_key)
        return error_set(err, QUIRE_EINVALID, "tls-cert-file %s has no tls-key-file", options->tls_cert);
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (!tls)
        return error_set(err, QUIRE_ENOMEM, "no memory for TLS");
    int rc = 0;
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(tls, options->tls_cert) != 1)
        rc = failed(err, "tls-cert-file", options->tls_cert);
    else if (SSL_CTX_use_PrivateKey_file(tls, options->tls_key, SSL_FILETYPE_PEM) != 1 ||
             SSL_CTX_check_private_key(tls) != 1)
        rc = failed(err, "tls-key-file", options->tls_key);
    if (rc < 0)
        SSL_CTX_free(tls);
    else
        *out = tls;
    return rc;
}
