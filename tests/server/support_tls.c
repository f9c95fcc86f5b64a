/*
 * support_tls.c - what tests of TLS share: certificates, a server that uses them, a blocking client.
 *
 * Keys are P-256, because they are made in a millisecond. Everything is made anew for each test, so that no file in the
 * tree grows too old.
 */
#include "tests/server/support_tls.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- certificates ------------------------------------------------------------------------------------------------ */

static FILE *open_file(const char *folder, const char *name, const char *ending, const char *mode)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, ending);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

static void save(const char *folder, const char *name, X509 *certificate, EVP_PKEY *key, const char *password)
{
    FILE *file = open_file(folder, name, "crt", "w");
    assert_int_equal(PEM_write_X509(file, certificate), 1);
    assert_int_equal(fclose(file), 0);
    file = open_file(folder, name, "key", "w");
    const EVP_CIPHER *cipher = password ? EVP_aes_256_cbc() : NULL;
    assert_int_equal(PEM_write_PKCS8PrivateKey(file, key, cipher, NULL, 0, NULL, (void *)(uintptr_t)password), 1);
    assert_int_equal(fclose(file), 0);
}

static void add_extension(X509 *certificate, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static X509 *new_certificate(const char *name, EVP_PKEY *key)
{
    static long serial = 1000;
    X509 *certificate = X509_new();
    assert_non_null(certificate);
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                               -1, 0);
    return certificate;
}

void support_authority(const char *folder, const char *name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = new_certificate(name, key);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    save(folder, name, certificate, key, NULL);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

void support_certificate(const char *folder, const char *name, const char *by, const char *password)
{
    FILE *file = open_file(folder, by, "crt", "r");
    X509 *issuer = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    file = open_file(folder, by, "key", "r");
    EVP_PKEY *issuer_key = PEM_read_PrivateKey(file, NULL, NULL, NULL), *key = EVP_EC_gen("P-256");
    fclose(file);
    assert_true(issuer && issuer_key && key);
    X509 *certificate = new_certificate(name, key);
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    add_extension(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    assert_true(X509_sign(certificate, issuer_key, EVP_sha256()) > 0);
    save(folder, name, certificate, key, password);
    X509_free(certificate);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(issuer_key);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

/* A port that nobody listens on just now. */
static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* The settings of a server, and where those lie that are made here. */
struct tls_settings {
    char port[16], plain[16], certificate[512], key[512];
    const char *all[64];
};

static void fill(struct tls_settings *t, const char *folder, const char *const *settings)
{
    const char *const usual[] = {"port",         t->plain,       "tls-port", t->port, "tls-cert-file",
                                 t->certificate, "tls-key-file", t->key,     "dir",   ""};
    size_t n = sizeof usual / sizeof *usual;
    memset(t, 0, sizeof *t);
    memcpy(t->all, usual, sizeof usual);
    while (*settings && n < 62)
        t->all[n++] = *settings++;
    snprintf(t->certificate, sizeof t->certificate, "%s/server.crt", folder);
    snprintf(t->key, sizeof t->key, "%s/server.key", folder);
    snprintf(t->port, sizeof t->port, "%u", free_port());
    snprintf(t->plain, sizeof t->plain, "%u", free_port());
}

struct test_server *support_tls_server(const char *folder, const char *const *settings)
{
    for (int tries = 0; tries < 20; tries++) {
        struct test_server *s = NULL;
        struct quire_error err = {0};
        struct tls_settings t;
        fill(&t, folder, settings);
        int rc = support_try_server(&s, &err, t.all);
        if (rc == 0)
            return s;
        support_server_end(s);
        if (rc != QUIRE_EADDRINUSE)
            fail_msg("no server: %s", err.message);
    }
    fail_msg("no free port");
    return NULL;
}

struct test_server *support_tls_server_logging(const char *folder, const char *log, const char *const *settings)
{
    struct tls_settings t;
    fill(&t, folder, settings);
    return support_server_logging(log, t.all);
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

void tls_client_init(struct tls_client *c, const char *folder, const char *trusted, const char *own)
{
    char path[512];
    memset(c, 0, sizeof *c);
    c->plain.fd = -1;
    c->context = SSL_CTX_new(TLS_client_method());
    assert_non_null(c->context);
    snprintf(path, sizeof path, "%s/%s.crt", folder, trusted);
    assert_int_equal(SSL_CTX_load_verify_file(c->context, path), 1);
    SSL_CTX_set_verify(c->context, SSL_VERIFY_PEER, NULL);
    if (!own)
        return;
    snprintf(path, sizeof path, "%s/%s.crt", folder, own);
    assert_int_equal(SSL_CTX_use_certificate_chain_file(c->context, path), 1);
    snprintf(path, sizeof path, "%s/%s.key", folder, own);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(c->context, path, SSL_FILETYPE_PEM), 1);
}

static bool note(struct tls_client *c, bool right)
{
    if (!right)
        c->error = ERR_peek_last_error();
    ERR_clear_error();
    return right;
}

bool tls_client_connect(struct tls_client *c, unsigned port)
{
    connect_to(&c->plain, port);
    ERR_clear_error();
    c->ssl = SSL_new(c->context);
    assert_non_null(c->ssl);
    SSL_set_fd(c->ssl, c->plain.fd);
    SSL_set1_host(c->ssl, "localhost");
    return note(c, SSL_connect(c->ssl) == 1);
}

void tls_client_end(struct tls_client *c, bool orderly)
{
    if (c->ssl && orderly)
        SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    if (c->plain.fd >= 0)
        disconnect(&c->plain);
    memset(c, 0, sizeof *c);
}

bool tls_client_send(struct tls_client *c, const void *bytes, size_t n)
{
    size_t sent;
    ERR_clear_error();
    return note(c, SSL_write_ex(c->ssl, bytes, n, &sent) == 1);
}

static bool receive(struct tls_client *c)
{
    struct connection *p = &c->plain;
    size_t got;
    if (p->room - p->have < 16384) {
        p->room = p->room ? 2 * p->room : 32768;
        p->in = realloc(p->in, p->room);
        assert_non_null(p->in);
    }
    ERR_clear_error();
    if (!note(c, SSL_read_ex(c->ssl, p->in + p->have, p->room - p->have, &got) == 1))
        return false;
    p->have += got;
    return true;
}

bool tls_client_reply(struct tls_client *c, struct reply *reply)
{
    struct connection *p = &c->plain;
    size_t used;
    int rc;
    while ((rc = p->have ? reply_read(p->in, p->have, reply, &used) : 0) == 0)
        if (!receive(c))
            return false;
    assert_int_equal(rc, 1);
    memmove(p->in, p->in + used, p->have - used);
    p->have -= used;
    return true;
}

bool tls_client_ask(struct tls_client *c, const char *words, struct reply *reply)
{
    struct resp_buffer request = {.protocol = 2};
    put_request(&request, words);
    bool sent = tls_client_send(c, request.data, request.bytes);
    resp_buffer_fini(&request);
    return sent && tls_client_reply(c, reply);
}

void tls_client_expect(struct tls_client *c, const char *words, const char *text)
{
    struct reply reply;
    if (!tls_client_ask(c, words, &reply))
        fail_msg("%s: no reply: %s", words, c->error ? ERR_reason_error_string(c->error) : "the connection ended");
    check_text(reply, text);
}
