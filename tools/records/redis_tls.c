/*
 * redis_tls.c - TLS on a connection of hiredis.
 *
 * hiredis formats requests and reads replies, OpenSSL carries the bytes: the hiredis of Debian 12 (0.14) has no TLS
 * part. Requests gather in a buffer until a reply is awaited, as those of a plain connection do in hiredis. The socket
 * blocks and has hiredis's time limits, so a server that is silent for too long ends the wait.
 *
 * TLS 1.2 and 1.3. The certificate must come from an authority that is trusted and name the host, or the address, of
 * the URL; there is no way around that, as data would go to whoever answers.
 */
#include "tools/records/redis_tls.h"
#include "io/array.h"
#include "io/error.h"
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

struct redis_tls {
    SSL_CTX *context;
    SSL *ssl;
    char *name, *out;
    size_t out_bytes, out_capacity;
};

/* Before a call of OpenSSL, and for what has failed in it: its own words, or the system's. */
static void forget_reasons(void)
{
    ERR_clear_error();
    errno = 0;
}
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : errno ? strerror(errno) : "the other side has closed it";
}

static int refuse_file(const char *what, const char *path, struct quire_error *err)
{
    return error_set(err, QUIRE_EINVALID, "%s %s: %s", what, path, reason());
}

static int use_files(SSL_CTX *context, const struct redis_tls_files *files, struct quire_error *err)
{
    const char *key = files->key ? files->key : files->certificate;
    if (files->authorities ? SSL_CTX_load_verify_file(context, files->authorities) != 1
                           : SSL_CTX_set_default_verify_paths(context) != 1)
        return refuse_file("authorities", files->authorities ? files->authorities : "of the system", err);
    if (files->certificate && SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
        return refuse_file("certificate", files->certificate, err);
    if (key && SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        return refuse_file("private key", key, err);
    return 0;
}

static bool is_address(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool expect_host(SSL *ssl, const char *host)
{
    if (is_address(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

static int shake_hands(struct redis_tls *t, int fd, struct quire_error *err)
{
    forget_reasons();
    if (SSL_set_fd(t->ssl, fd) != 1 || !expect_host(t->ssl, t->name))
        return error_set(err, QUIRE_ENOMEM, "no memory for TLS");
    if (SSL_connect(t->ssl) == 1)
        return 0;
    long verified = SSL_get_verify_result(t->ssl);
    if (verified != X509_V_OK)
        return error_set(err, QUIRE_EPERM,
                         "the certificate of %s is not trusted: %s: --tls-ca-cert-file names the file of its authority",
                         t->name, X509_verify_cert_error_string(verified));
    return error_set(err, QUIRE_EIO, "%s does not shake hands: %s: rediss:// needs a port that speaks TLS", t->name,
                     reason());
}

int redis_tls_start(const struct redis_tls_files *files, const char *host, int fd, struct redis_tls **out,
                    struct quire_error *err)
{
    struct redis_tls *t = calloc(1, sizeof *t);
    int rc = 0;
    if (t)
        t->context = SSL_CTX_new(TLS_client_method());
    if (!t || !t->context || SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION) != 1 ||
        !(t->name = strdup(host)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for TLS");
    if (rc == 0) {
        SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
        rc = use_files(t->context, files, err);
    }
    if (rc == 0 && !(t->ssl = SSL_new(t->context)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for TLS");
    if (rc == 0)
        rc = shake_hands(t, fd, err);
    if (rc < 0)
        redis_tls_close(t);
    else
        *out = t;
    return rc;
}

void redis_tls_close(struct redis_tls *t)
{
    if (!t)
        return;
    if (t->ssl && SSL_is_init_finished(t->ssl))
        SSL_shutdown(t->ssl);
    SSL_free(t->ssl);
    SSL_CTX_free(t->context);
    free(t->name);
    free(t->out);
    free(t);
}

int redis_tls_append(struct redis_tls *t, int n, const char **words, const size_t *bytes, struct quire_error *err)
{
    char *request;
    int length = redisFormatCommandArgv(&request, n, words, bytes);
    if (length < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a request to %s", t->name);
    bool fits = array_reserve(&t->out, &t->out_capacity, t->out_bytes + (size_t)length);
    if (fits) {
        memcpy(t->out + t->out_bytes, request, (size_t)length);
        t->out_bytes += (size_t)length;
    }
    redisFreeCommand(request);
    return fits ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for requests to %s", t->name);
}

static int lost(const struct redis_tls *t, const char *why, struct quire_error *err)
{
    return error_set(err, QUIRE_EIO, "the connection to %s ended: %s", t->name, why);
}

int redis_tls_next(struct redis_tls *t, redisReader *reader, redisReply **out, struct quire_error *err)
{
    char bytes[16384]; /* a record of TLS */
    void *reply = NULL;
    size_t done;
    forget_reasons();
    if (t->out_bytes && SSL_write_ex(t->ssl, t->out, t->out_bytes, &done) != 1)
        return lost(t, reason(), err);
    t->out_bytes = 0;
    for (;;) {
        if (redisReaderGetReply(reader, &reply) != REDIS_OK)
            return lost(t, reader->errstr, err);
        if (reply)
            break;
        if (SSL_read_ex(t->ssl, bytes, sizeof bytes, &done) != 1)
            return lost(t, reason(), err);
        if (redisReaderFeed(reader, bytes, done) != REDIS_OK)
            return lost(t, reader->errstr, err);
    }
    *out = reply;
    return 0;
}
