/*
 * tls.c - TLS by OpenSSL over bytes in memory.
 *
 * OpenSSL reads and writes through a BIO of our own: its read side is the buffer that the engine has just received
 * into, its write side a growing buffer that becomes the client's next send. So there is one copy in each direction,
 * the one of the cipher, and an idle connection holds none of our memory (OpenSSL's own buffers are released as well,
 * SSL_MODE_RELEASE_BUFFERS). An incomplete record stays in OpenSSL until the rest comes.
 *
 * Only TLS 1.2 and 1.3; no renegotiation, whose one use for clients today is to make servers compute; no compression.
 * Sessions are resumed by tickets (tls-session-caching), bound to this server by a session id context, without which
 * OpenSSL refuses to resume where client certificates are asked for.
 *
 * The context is built whole before it replaces the one in force: a reload with a wrong file changes nothing, and
 * connections under way keep theirs. The private key's password is never asked for on a terminal.
 *
 * After a failure OpenSSL has an alert to send, which tells the other side why; then the connection ends.
 */
#include "server/net/tls.h"
#include "io/error.h"
#include "server/net/loop.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SESSIONS_MAX = 20480, SESSION_SECONDS = 300, AUTH_NO = 0, AUTH_YES = 1, AUTH_OPTIONAL = 2 };

struct tls {
    pthread_mutex_t lock;
    SSL_CTX *context; /* replaced by tls_reload */
    BIO_METHOD *method;
};

struct tls_connection {
    SSL *ssl;
    const uint8_t *in; /* the engine's, during one receive */
    size_t in_bytes;
    struct resp_buffer out;
    char reason[256];
    bool failed, ended;
};

/* ---- the BIO ----------------------------------------------------------------------------------------------------- */

static int bio_read(BIO *bio, char *to, size_t capacity, size_t *n)
{
    struct tls_connection *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *n = 0;
    if (t->in_bytes == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    *n = capacity < t->in_bytes ? capacity : t->in_bytes;
    memcpy(to, t->in, *n);
    t->in += *n;
    t->in_bytes -= *n;
    return 1;
}

static int bio_write(BIO *bio, const char *from, size_t bytes, size_t *n)
{
    struct tls_connection *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    resp_raw(&t->out, from, bytes);
    *n = bytes;
    return !t->out.failed;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_PUSH || command == BIO_CTRL_POP;
}

/* ---- the context ------------------------------------------------------------------------------------------------- */

/* OpenSSL's word for what went wrong first; what follows it in the queue says where. */
static const char *first_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    return reason ? reason : "OpenSSL gives no reason";
}

static int refuse(struct quire_error *err, const char *setting, const char *value)
{
    int rc = error_set(err, QUIRE_EINVALID, "%s %.200s: %s", setting, value, first_reason());
    ERR_clear_error();
    return rc;
}

/* A setting that must name something that can be read. */
static int check_path(const char *setting, const char *path, bool folder, struct quire_error *err)
{
    struct stat info;
    int rc = stat(path, &info) < 0 || access(path, R_OK) < 0 ? errno : 0;
    if (rc != 0)
        return error_set(err, error_from_errno(rc), "%s %.200s: %s", setting, path, strerror(rc));
    if (S_ISDIR(info.st_mode) != folder)
        return error_set(err, QUIRE_EINVALID, "%s %.200s: is %sa folder", setting, path, folder ? "not " : "");
    return 0;
}

static int give_password(char *to, int capacity, int writing, void *context)
{
    const char *password = context;
    size_t bytes = strlen(password);
    (void)writing;
    if (bytes > (size_t)capacity)
        return 0;
    memcpy(to, password, bytes);
    return (int)bytes;
}

static int use_certificate(SSL_CTX *context, const struct config *config, struct quire_error *err)
{
    if (config->tls_cert_file[0] == 0 || config->tls_key_file[0] == 0)
        return error_set(err, QUIRE_EINVALID,
                         "tls-port %llu: TLS needs a certificate and its key: set tls-cert-file and tls-key-file",
                         (unsigned long long)config->tls_port);
    int rc = check_path("tls-cert-file", config->tls_cert_file, false, err);
    if (rc == 0)
        rc = check_path("tls-key-file", config->tls_key_file, false, err);
    if (rc < 0)
        return rc;
    SSL_CTX_set_default_passwd_cb(context, give_password);
    SSL_CTX_set_default_passwd_cb_userdata(context, config->tls_key_file_pass);
    if (SSL_CTX_use_certificate_chain_file(context, config->tls_cert_file) != 1)
        return refuse(err, "tls-cert-file", config->tls_cert_file);
    if (SSL_CTX_use_PrivateKey_file(context, config->tls_key_file, SSL_FILETYPE_PEM) != 1)
        return refuse(err, "tls-key-file", config->tls_key_file);
    return SSL_CTX_check_private_key(context) == 1 ? 0 : refuse(err, "tls-key-file", config->tls_key_file);
}

/* Whose certificates clients may show. */
static int use_authorities(SSL_CTX *context, const struct config *config, struct quire_error *err)
{
    const char *file = config->tls_ca_cert_file, *folder = config->tls_ca_cert_dir;
    int rc = 0;
    if (config->tls_auth_clients != AUTH_NO && file[0] == 0 && folder[0] == 0)
        return error_set(err, QUIRE_EINVALID,
                         "tls-auth-clients: to check clients' certificates set tls-ca-cert-file or tls-ca-cert-dir; "
                         "tls-auth-clients no: clients need none");
    if (file[0])
        rc = check_path("tls-ca-cert-file", file, false, err);
    if (rc == 0 && folder[0])
        rc = check_path("tls-ca-cert-dir", folder, true, err);
    if (rc < 0)
        return rc;
    if (file[0] && SSL_CTX_load_verify_file(context, file) != 1)
        return refuse(err, "tls-ca-cert-file", file);
    if (folder[0] && SSL_CTX_load_verify_dir(context, folder) != 1)
        return refuse(err, "tls-ca-cert-dir", folder);
    if (file[0] && config->tls_auth_clients != AUTH_NO)
        SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(file));
    int mode = config->tls_auth_clients == AUTH_NO         ? SSL_VERIFY_NONE
               : config->tls_auth_clients == AUTH_OPTIONAL ? SSL_VERIFY_PEER
                                                           : SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(context, mode, NULL);
    return 0;
}

static int use_protocols(SSL_CTX *context, const struct config *config, struct quire_error *err)
{
    static const char wanted[] = "TLSv1.2 and TLSv1.3 are the choices, separated by blanks";
    bool v12 = false, v13 = false;
    for (const char *at = config->tls_protocols; *at;) {
        size_t bytes = strcspn(at, " ");
        if (bytes == 7 && strncasecmp(at, "TLSv1.2", 7) == 0)
            v12 = true;
        else if (bytes == 7 && strncasecmp(at, "TLSv1.3", 7) == 0)
            v13 = true;
        else if (bytes > 0)
            return error_set(err, QUIRE_EINVALID, "tls-protocols: '%.*s': %s", bytes < 64 ? (int)bytes : 64, at,
                             wanted);
        at += bytes + strspn(at + bytes, " ");
    }
    if (!v12 && !v13)
        return error_set(err, QUIRE_EINVALID, "tls-protocols: none is left: %s", wanted);
    if (SSL_CTX_set_min_proto_version(context, v12 ? TLS1_2_VERSION : TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, v13 ? TLS1_3_VERSION : TLS1_2_VERSION) != 1)
        return refuse(err, "tls-protocols", config->tls_protocols);
    if (config->tls_ciphers[0] && SSL_CTX_set_cipher_list(context, config->tls_ciphers) != 1)
        return refuse(err, "tls-ciphers", config->tls_ciphers);
    if (config->tls_ciphersuites[0] && SSL_CTX_set_ciphersuites(context, config->tls_ciphersuites) != 1)
        return refuse(err, "tls-ciphersuites", config->tls_ciphersuites);
    return 0;
}

static int make_context(const struct config *config, SSL_CTX **out, struct quire_error *err)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context)
        return error_set(err, QUIRE_ENOMEM, "no TLS context: %s", first_reason());
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_dh_auto(context, 1);
    static const unsigned char name[] = "quire";
    SSL_CTX_set_session_id_context(context, name, sizeof name - 1);
    if (config->tls_session_caching) {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_SERVER);
        SSL_CTX_sess_set_cache_size(context, SESSIONS_MAX);
        SSL_CTX_set_timeout(context, SESSION_SECONDS);
    } else {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
        SSL_CTX_set_num_tickets(context, 0);
    }
    int rc = use_protocols(context, config, err);
    if (rc == 0)
        rc = use_certificate(context, config, err);
    if (rc == 0)
        rc = use_authorities(context, config, err);
    if (rc < 0) {
        SSL_CTX_free(context);
        return rc;
    }
    /* the password lives in the settings, which may change */
    SSL_CTX_set_default_passwd_cb_userdata(context, (void *)(uintptr_t) "");
    *out = context;
    return 0;
}

int tls_create(const struct config *config, struct tls **out, struct quire_error *err)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return error_set(err, QUIRE_ENOMEM, "no memory for TLS");
    pthread_mutex_init(&tls->lock, NULL);
    /* A type of our own; numbers that OpenSSL would give out end after some servers in one process. */
    BIO_METHOD *method = tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | 120, "lane");
    int rc = method && BIO_meth_set_read_ex(method, bio_read) && BIO_meth_set_write_ex(method, bio_write) &&
                     BIO_meth_set_ctrl(method, bio_ctrl)
                 ? make_context(config, &tls->context, err)
                 : error_set(err, QUIRE_ENOMEM, "no memory for TLS: %s", first_reason());
    if (rc < 0) {
        tls_destroy(tls);
        return rc;
    }
    *out = tls;
    return 0;
}

void tls_destroy(struct tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

int tls_reload(struct server *server, struct quire_error *err)
{
    struct tls *tls = server->tls;
    SSL_CTX *context = NULL;
    if (!tls)
        return error_set(err, QUIRE_EINVALID, "there is no TLS: start the server with tls-port");
    int rc = make_context(server->service.config, &context, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&tls->lock);
    SSL_CTX *old = tls->context;
    tls->context = context;
    pthread_mutex_unlock(&tls->lock);
    SSL_CTX_free(old);
    return 0;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

struct tls_connection *tls_accept(struct tls *tls, struct resp_account *account)
{
    struct tls_connection *t = calloc(1, sizeof *t);
    BIO *bio = BIO_new(tls->method);
    pthread_mutex_lock(&tls->lock);
    SSL *ssl = SSL_new(tls->context);
    pthread_mutex_unlock(&tls->lock);
    if (!t || !bio || !ssl) {
        free(t);
        BIO_free(bio);
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    t->ssl = ssl;
    t->out.protocol = 2;
    t->out.account = account;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    return t;
}

void tls_free(struct tls_connection *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    resp_buffer_fini(&t->out);
    free(t);
}

static long fail(struct tls_connection *t)
{
    if (!t->failed) {
        long verified = SSL_get_verify_result(t->ssl);
        snprintf(t->reason, sizeof t->reason, "%s%s%s", first_reason(), verified == X509_V_OK ? "" : ": ",
                 verified == X509_V_OK ? "" : X509_verify_cert_error_string(verified));
    }
    ERR_clear_error();
    t->failed = true;
    return TLS_FAILED;
}

void tls_feed(struct tls_connection *t, const void *bytes, size_t n)
{
    t->in = bytes;
    t->in_bytes = n;
}

long tls_read(struct tls_connection *t, void *plain, size_t capacity)
{
    size_t n;
    if (t->failed || t->ended)
        return t->failed ? TLS_FAILED : TLS_ENDED;
    ERR_clear_error();
    if (SSL_read_ex(t->ssl, plain, capacity, &n) == 1)
        return (long)n;
    int why = SSL_get_error(t->ssl, 0);
    if (why == SSL_ERROR_WANT_READ && !t->out.failed)
        return TLS_MORE;
    if (why != SSL_ERROR_ZERO_RETURN)
        return fail(t);
    t->ended = true;
    return TLS_ENDED;
}

bool tls_write(struct tls_connection *t, const void *plain, size_t n)
{
    size_t written;
    if (t->failed)
        return false;
    ERR_clear_error();
    if (SSL_write_ex(t->ssl, plain, n, &written) == 1 && written == n && !t->out.failed)
        return true;
    fail(t);
    return false;
}

bool tls_is_ready(const struct tls_connection *t)
{
    return SSL_is_init_finished(t->ssl);
}

void tls_end(struct tls_connection *t)
{
    if (t->failed || !tls_is_ready(t))
        return;
    ERR_clear_error();
    SSL_shutdown(t->ssl);
    ERR_clear_error();
}

size_t tls_output_room(const struct tls_connection *t)
{
    return t->out.capacity;
}

bool tls_has_output(const struct tls_connection *t)
{
    return t->out.bytes > 0;
}

void tls_take_output(struct tls_connection *t, struct resp_buffer *out)
{
    struct resp_buffer full = t->out;
    t->out = *out;
    t->out.bytes = 0;
    *out = full;
}

const char *tls_reason(const struct tls_connection *t)
{
    return t->reason;
}
