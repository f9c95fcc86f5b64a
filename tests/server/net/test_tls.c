/*
 * test_tls.c - TLS as clients meet it: handshakes good and bad, large and many requests, and every way to end.
 *
 * Certificates are made by the library when the test begins. What the server says of a failure is read in its log and
 * its figures, and after each failure another client must find the server as it was.
 */
#include "server/net/tls.h"
#include "tests/server/support_tls.h"
#include <netinet/in.h>
#include <openssl/err.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static char *folder;

static int make_certificates(void **state)
{
    (void)state;
    folder = support_folder_make();
    support_authority(folder, "ca");
    support_authority(folder, "stranger");
    support_certificate(folder, "server", "ca", NULL);
    support_certificate(folder, "other", "ca", NULL);
    support_certificate(folder, "client", "ca", NULL);
    support_certificate(folder, "forged", "stranger", NULL);
    support_certificate(folder, "locked", "ca", "open sesame");
    return 0;
}

static int remove_certificates(void **state)
{
    (void)state;
    support_folder_remove(folder);
    return 0;
}

static unsigned tls_port(const struct test_server *s)
{
    return (unsigned)s->config.tls_port;
}

static struct test_server *server_without_client_certificates(void)
{
    return support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", NULL});
}

static void connect_client(struct tls_client *c, const struct test_server *s)
{
    tls_client_init(c, folder, "ca", NULL);
    if (!tls_client_connect(c, tls_port(s)))
        fail_msg("no handshake: %s", ERR_reason_error_string(c->error));
}

/* A new client is served. */
static void expect_alive(const struct test_server *s)
{
    struct tls_client c;
    connect_client(&c, s);
    tls_client_expect(&c, "PING", "PONG");
    tls_client_end(&c, true);
}

/* A figure that other threads are about to change: waits until it is `value`. */
static void wait_for_figure(const struct test_server *s, const char *field, long long value)
{
    struct connection c;
    long long seen = -1;
    connect_to(&c, s->port);
    for (int i = 0; i < 500 && (seen = info_number(&c, field)) != value; i++)
        usleep(10000);
    if (seen != value)
        fail_msg("%s is %lld, not %lld", field, seen, value);
    disconnect(&c);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void pipeline(int version)
{
    enum { REQUESTS = 5000 };
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    struct resp_buffer request = {.protocol = 2};
    tls_client_init(&c, folder, "ca", NULL);
    SSL_CTX_set_min_proto_version(c.context, version);
    SSL_CTX_set_max_proto_version(c.context, version);
    assert_true(tls_client_connect(&c, tls_port(s)));
    assert_int_equal(SSL_version(c.ssl), version);
    for (int i = 0; i < REQUESTS; i++) {
        char words[32];
        snprintf(words, sizeof words, "ECHO value-%d", i);
        put_request(&request, words);
        /* records of all sizes, whose ends fall anywhere in the requests */
        if (i % 7 == 0) {
            size_t part = request.bytes > 11 ? request.bytes - 11 : request.bytes;
            assert_true(tls_client_send(&c, request.data, part));
            memmove(request.data, request.data + part, request.bytes - part);
            request.bytes -= part;
        }
    }
    assert_true(tls_client_send(&c, request.data, request.bytes));
    for (int i = 0; i < REQUESTS; i++) {
        struct reply reply;
        char text[32];
        snprintf(text, sizeof text, "value-%d", i);
        assert_true(tls_client_reply(&c, &reply));
        check_text(reply, text);
    }
    resp_buffer_fini(&request);
    wait_for_figure(s, "connected_clients_tls", 1);
    tls_client_end(&c, true);
    wait_for_figure(s, "connected_clients_tls", 0);
    wait_for_figure(s, "total_connections_tls", 1);
    wait_for_figure(s, "tls_failures", 0);
    support_server_end(s);
}

static void test_pipelines_in_tls_1_2(void **state)
{
    (void)state;
    pipeline(TLS1_2_VERSION);
}

static void test_pipelines_in_tls_1_3(void **state)
{
    (void)state;
    pipeline(TLS1_3_VERSION);
}

static void test_large_values(void **state)
{
    (void)state;
    enum { BYTES = 5 * 1024 * 1024 + 17, TIMES = 4 };
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    uint8_t *value = malloc(BYTES);
    struct resp_buffer request = {.protocol = 2};
    assert_non_null(value);
    for (size_t i = 0; i < BYTES; i++)
        value[i] = (uint8_t)(i * 2654435761u >> 13);
    resp_array(&request, 2);
    resp_bulk(&request, "ECHO", 4);
    resp_bulk(&request, value, BYTES);
    connect_client(&c, s);
    for (int i = 0; i < TIMES; i++)
        assert_true(tls_client_send(&c, request.data, request.bytes));
    for (int i = 0; i < TIMES; i++) {
        struct reply reply;
        assert_true(tls_client_reply(&c, &reply));
        assert_int_equal(reply.bytes, BYTES);
        assert_memory_equal(reply.text, value, BYTES);
        reply_free(&reply);
    }
    tls_client_expect(&c, "PING", "PONG");
    tls_client_end(&c, true);
    resp_buffer_fini(&request);
    free(value);
    support_server_end(s);
}

/* Handshake and request arrive byte by byte. */
static void test_one_byte_at_a_time(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    tls_client_init(&c, folder, "ca", NULL);
    connect_to(&c.plain, tls_port(s));
    c.ssl = SSL_new(c.context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(c.ssl, in, out);
    SSL_set_connect_state(c.ssl);
    size_t done = 0;
    bool asked = false;
    char plain[64], byte, bytes[4096];
    while (done < strlen("+PONG\r\n")) {
        size_t got;
        ERR_clear_error();
        if (!asked && SSL_do_handshake(c.ssl) == 1)
            asked = SSL_write(c.ssl, "PING\r\n", 6) == 6;
        if (asked && SSL_read_ex(c.ssl, plain + done, sizeof plain - done, &got) == 1)
            done += got;
        bool sent = false;
        while (BIO_read(out, &byte, 1) == 1) {
            send_bytes(&c.plain, &byte, 1);
            sent = true;
        }
        if (sent || done >= strlen("+PONG\r\n"))
            continue;
        ssize_t n = recv(c.plain.fd, bytes, sizeof bytes, 0);
        assert_true(n > 0);
        assert_int_equal(BIO_write(in, bytes, (int)n), (int)n);
    }
    assert_memory_equal(plain, "+PONG\r\n", 7);
    tls_client_end(&c, false);
    support_server_end(s);
}

static void test_users_over_tls(void **state)
{
    (void)state;
    struct test_server *s = support_tls_server(
        folder, (const char *const[]){"tls-auth-clients", "no", "requirepass", "secret", "user",
                                      "default on >secret ~* +@all", "user", "alice on >pw +ping", NULL});
    struct tls_client c, admin;
    struct reply reply;
    connect_client(&c, s);
    assert_true(tls_client_ask(&c, "PING", &reply));
    check_error(reply, "NOAUTH");
    tls_client_expect(&c, "AUTH alice pw", "OK");
    tls_client_expect(&c, "PING", "PONG");
    assert_true(tls_client_ask(&c, "DBSIZE", &reply));
    check_error(reply, "NOPERM");
    connect_client(&admin, s);
    tls_client_expect(&admin, "AUTH secret", "OK");
    assert_true(tls_client_ask(&admin, "ACL DELUSER alice", &reply));
    reply_free(&reply);
    assert_false(tls_client_reply(&c, &reply));
    tls_client_end(&c, false);
    tls_client_end(&admin, true);
    support_server_end(s);
}

/* Replies to writes wait for the journal; encrypted ones do, too, and in order. */
static void test_writes_over_tls(void **state)
{
    (void)state;
    enum { WRITES = 500 };
    char *data = support_path(folder, "data");
    struct test_server *s =
        support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "dir", data, NULL});
    struct tls_client c;
    struct resp_buffer request = {.protocol = 2};
    connect_client(&c, s);
    for (int i = 0; i < WRITES; i++) {
        char words[64];
        snprintf(words, sizeof words, "SET key-%d %d", i, i);
        put_request(&request, words);
        snprintf(words, sizeof words, "GET key-%d", i);
        put_request(&request, words);
    }
    assert_true(tls_client_send(&c, request.data, request.bytes));
    for (int i = 0; i < WRITES; i++) {
        struct reply reply;
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        assert_true(tls_client_reply(&c, &reply));
        check_text(reply, "OK");
        assert_true(tls_client_reply(&c, &reply));
        check_text(reply, number);
    }
    tls_client_end(&c, true);
    resp_buffer_fini(&request);
    support_server_end(s);
    free(data);
}

/* ---- certificates ------------------------------------------------------------------------------------------------ */

/* Whether a client that shows `own` (or nothing) is served. */
static bool is_served(const struct test_server *s, const char *own)
{
    struct tls_client c;
    struct reply reply;
    tls_client_init(&c, folder, "ca", own);
    bool served = tls_client_connect(&c, tls_port(s)) && tls_client_ask(&c, "PING", &reply);
    if (served)
        check_text(reply, "PONG");
    tls_client_end(&c, served);
    return served;
}

static void test_certificates_of_clients(void **state)
{
    (void)state;
    char authority[512];
    snprintf(authority, sizeof authority, "%s/ca.crt", folder);
    static const struct {
        const char *setting;
        bool right, none, forged;
    } cases[] = {{"yes", true, false, false}, {"optional", true, true, false}, {"no", true, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_server *s = support_tls_server(
            folder, (const char *const[]){"tls-ca-cert-file", authority, "tls-auth-clients", cases[i].setting, NULL});
        assert_int_equal(is_served(s, "client"), cases[i].right);
        assert_int_equal(is_served(s, NULL), cases[i].none);
        assert_int_equal(is_served(s, "forged"), cases[i].forged);
        assert_int_equal(is_served(s, "client"), cases[i].right);
        wait_for_figure(s, "tls_failures", 2 - cases[i].none - cases[i].forged);
        support_server_end(s);
    }
}

static void test_the_servers_certificate_is_checked(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    tls_client_init(&c, folder, "stranger", NULL);
    assert_false(tls_client_connect(&c, tls_port(s)));
    assert_int_equal(ERR_GET_REASON(c.error), SSL_R_CERTIFICATE_VERIFY_FAILED);
    tls_client_end(&c, false);
    expect_alive(s);
    support_server_end(s);
}

/* The name in the certificate that a new connection sees. */
static void expect_name(const struct test_server *s, const char *expected)
{
    struct tls_client c;
    char name[64];
    connect_client(&c, s);
    X509 *certificate = SSL_get1_peer_certificate(c.ssl);
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
    assert_string_equal(name, expected);
    X509_free(certificate);
    tls_client_expect(&c, "PING", "PONG");
    tls_client_end(&c, true);
}

static void test_reload(void **state)
{
    (void)state;
    char path[512];
    struct quire_error err = {0};
    struct test_server *s = server_without_client_certificates();
    struct tls_client before;
    connect_client(&before, s);
    expect_name(s, "server");
    snprintf(path, sizeof path, "%s/other.crt", folder);
    assert_int_equal(config_set(&s->config, "tls-cert-file", path, &err), 0);
    /* the key of another certificate: nothing changes */
    assert_int_equal(tls_reload(s->server, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "key values mismatch"));
    expect_name(s, "server");
    snprintf(path, sizeof path, "%s/other.key", folder);
    assert_int_equal(config_set(&s->config, "tls-key-file", path, &err), 0);
    assert_int_equal(tls_reload(s->server, &err), 0);
    expect_name(s, "other");
    tls_client_expect(&before, "PING", "PONG");
    tls_client_end(&before, true);
    support_server_end(s);
}

/* The same by CONFIG SET: files are read when it is asked for, and those that do not fit change nothing. */
static void test_config_set(void **state)
{
    (void)state;
    char words[1200];
    struct test_server *s = server_without_client_certificates();
    struct connection c;
    connect_to(&c, s->port);
    expect_name(s, "server");
    snprintf(words, sizeof words, "CONFIG SET timeout 77 tls-cert-file %s/other.crt", folder);
    expect_error(&c, words, "ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - tls-key-file ");
    expect_name(s, "server");
    struct reply r = ask(&c, "CONFIG GET timeout");
    assert_true(reply_is(&r.items[1], "0"));
    reply_free(&r);
    snprintf(words, sizeof words, "CONFIG SET tls-cert-file %s/other.crt tls-key-file %s/other.key", folder, folder);
    expect_text(&c, words, "OK");
    expect_name(s, "other");
    disconnect(&c);
    support_server_end(s);
}

static bool resumes(const struct test_server *s)
{
    struct tls_client c;
    connect_client(&c, s);
    tls_client_expect(&c, "PING", "PONG"); /* tickets come behind the handshake */
    SSL_SESSION *session = SSL_get1_session(c.ssl);
    tls_client_end(&c, true);
    tls_client_init(&c, folder, "ca", NULL);
    connect_to(&c.plain, tls_port(s));
    c.ssl = SSL_new(c.context);
    SSL_set_fd(c.ssl, c.plain.fd);
    SSL_set_session(c.ssl, session);
    assert_int_equal(SSL_connect(c.ssl), 1);
    bool reused = SSL_session_reused(c.ssl);
    tls_client_expect(&c, "PING", "PONG");
    tls_client_end(&c, true);
    SSL_SESSION_free(session);
    return reused;
}

static void test_sessions(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    assert_true(resumes(s));
    support_server_end(s);
    s = support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "tls-session-caching", "no", NULL});
    assert_false(resumes(s));
    support_server_end(s);
}

static void test_versions_and_ciphers(void **state)
{
    (void)state;
    struct tls_client c;
    struct test_server *s =
        support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "tls-protocols", "TLSv1.3",
                                                         "tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256", NULL});
    tls_client_init(&c, folder, "ca", NULL);
    SSL_CTX_set_max_proto_version(c.context, TLS1_2_VERSION);
    assert_false(tls_client_connect(&c, tls_port(s)));
    tls_client_end(&c, false);
    connect_client(&c, s);
    assert_string_equal(SSL_get_cipher_name(c.ssl), "TLS_CHACHA20_POLY1305_SHA256");
    tls_client_end(&c, true);
    support_server_end(s);
    s = support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "tls-protocols", "TLSv1.2",
                                                         "tls-ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384", NULL});
    connect_client(&c, s);
    assert_string_equal(SSL_get_cipher_name(c.ssl), "ECDHE-ECDSA-AES256-GCM-SHA384");
    /* a second handshake on the same connection is refused */
    struct reply reply;
    assert_int_equal(SSL_renegotiate(c.ssl), 1);
    bool went_on = SSL_do_handshake(c.ssl) == 1 && tls_client_ask(&c, "PING", &reply);
    assert_false(went_on);
    tls_client_end(&c, false);
    expect_alive(s);
    support_server_end(s);
}

static void expect_no_start(const char *const *settings, const char *part)
{
    struct test_server *s = NULL;
    struct quire_error err = {0};
    assert_true(support_try_server(&s, &err, settings) < 0);
    if (!strstr(err.message, part))
        fail_msg("'%s' does not hold '%s'", err.message, part);
    support_server_end(s);
}

static void test_wrong_settings_end_the_start(void **state)
{
    (void)state;
    char certificate[512], key[512], locked[512], locked_key[512], wrong_key[512];
    snprintf(certificate, sizeof certificate, "%s/server.crt", folder);
    snprintf(key, sizeof key, "%s/server.key", folder);
    snprintf(locked, sizeof locked, "%s/locked.crt", folder);
    snprintf(locked_key, sizeof locked_key, "%s/locked.key", folder);
    snprintf(wrong_key, sizeof wrong_key, "%s/other.key", folder);
#define TLS(...) (const char *const[]){"dir", "", "tls-port", "1", "tls-auth-clients", "no", __VA_ARGS__, NULL}
    expect_no_start(TLS("port", "0"), "set tls-cert-file and tls-key-file");
    expect_no_start(TLS("tls-cert-file", "/nonexistent/x", "tls-key-file", key),
                    "tls-cert-file /nonexistent/x: No such file or directory");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", "/nonexistent/y"),
                    "tls-key-file /nonexistent/y: No such file or directory");
    expect_no_start(TLS("tls-cert-file", folder, "tls-key-file", key), ": is a folder");
    expect_no_start(TLS("tls-cert-file", key, "tls-key-file", key), ": no start line");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", wrong_key), ": key values mismatch");
    expect_no_start(TLS("tls-cert-file", locked, "tls-key-file", locked_key), "tls-key-file ");
    expect_no_start(TLS("tls-cert-file", locked, "tls-key-file", locked_key, "tls-key-file-pass", "wrong"),
                    "tls-key-file ");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", key, "tls-protocols", "TLSv1"),
                    "'TLSv1': TLSv1.2 and TLSv1.3 are the choices");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", key, "tls-protocols", ""), "none is left");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", key, "tls-ciphers", "nope"), "tls-ciphers nope:");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", key, "tls-ciphersuites", "nope"),
                    "tls-ciphersuites nope:");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", key, "tls-ca-cert-dir", key),
                    ": is not a folder");
    expect_no_start(TLS("tls-cert-file", certificate, "tls-key-file", key, "tls-auth-clients", "yes"),
                    "set tls-ca-cert-file or tls-ca-cert-dir");
#undef TLS
    struct test_server *s = support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "tls-cert-file",
                                                                             locked, "tls-key-file", locked_key,
                                                                             "tls-key-file-pass", "open sesame", NULL});
    expect_alive(s);
    support_server_end(s);
}

static void test_tls_only(void **state)
{
    (void)state;
    struct test_server *s =
        support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "port", "0", NULL});
    assert_int_equal(s->port, tls_port(s));
    assert_int_equal(s->config.port, 0);
    expect_alive(s);
    support_server_end(s);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void test_quit_says_goodbye(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    char byte;
    connect_client(&c, s);
    tls_client_expect(&c, "QUIT", "OK");
    int rc = SSL_read(c.ssl, &byte, 1);
    assert_int_equal(SSL_get_error(c.ssl, rc), SSL_ERROR_ZERO_RETURN);
    tls_client_end(&c, true);
    support_server_end(s);
}

/* The client says that it has no more to send, and still gets every reply, and a goodbye. */
static void test_replies_behind_the_clients_end(void **state)
{
    (void)state;
    enum { REQUESTS = 300 };
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    struct reply reply;
    char byte;
    connect_client(&c, s);
    for (int i = 0; i < REQUESTS; i++)
        assert_true(tls_client_send(&c, "PING\r\n", 6));
    assert_true(SSL_shutdown(c.ssl) >= 0);
    assert_int_equal(shutdown(c.plain.fd, SHUT_WR), 0);
    for (int i = 0; i < REQUESTS; i++) {
        assert_true(tls_client_reply(&c, &reply));
        check_text(reply, "PONG");
    }
    int rc = SSL_read(c.ssl, &byte, 1);
    assert_int_equal(SSL_get_error(c.ssl, rc), SSL_ERROR_ZERO_RETURN);
    tls_client_end(&c, false);
    support_server_end(s);
}

static void test_a_stop_says_goodbye(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    char byte;
    connect_client(&c, s);
    tls_client_expect(&c, "PING", "PONG");
    /* the server waits for those who do not answer its end, at most a second */
    support_server_end(s);
    int rc = SSL_read(c.ssl, &byte, 1);
    assert_int_equal(SSL_get_error(c.ssl, rc), SSL_ERROR_ZERO_RETURN);
    tls_client_end(&c, false);
}

/* Ends that nobody announces: in the handshake, in a record, with replies under way. */
static void test_abrupt_ends(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    static const uint8_t hello_begins[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00};
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (int with_reset = 0; with_reset < 2; with_reset++) {
        struct connection raw;
        struct tls_client c;
        connect_to(&raw, tls_port(s));
        send_bytes(&raw, hello_begins, sizeof hello_begins);
        if (with_reset)
            setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        disconnect(&raw);
        connect_client(&c, s);
        /* half a record */
        send_bytes(&c.plain, "\x17\x03\x03\x40\x00half", 9);
        if (with_reset)
            setsockopt(c.plain.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        tls_client_end(&c, false);
        connect_client(&c, s);
        for (int i = 0; i < 200; i++)
            assert_true(tls_client_send(&c, "COMMAND\r\n", 9));
        if (with_reset)
            setsockopt(c.plain.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        tls_client_end(&c, false);
        expect_alive(s);
    }
    wait_for_figure(s, "connected_clients_tls", 0);
    support_server_end(s);
}

/* ---- what is not TLS --------------------------------------------------------------------------------------------- */

static void test_other_things_on_the_tls_port(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } things[] = {{"PING\r\n", 6},
                  {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
                  {"*1\r\n$4\r\nPING\r\n", 14},
                  {"\x16\x03\x01\xff\xff", 5},
                  {"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", 10},
                  {"\0\0\0\0\0\0\0\0\0\0\0\0", 12},
                  {"\x15\x03\x01\x00\x02\x02\x28", 7},
                  {"\x17\x03\x03\x00\x01x", 6}};
    enum { N = sizeof things / sizeof *things };
    struct test_server *s = server_without_client_certificates();
    for (size_t i = 0; i < N; i++) {
        struct connection raw;
        uint8_t byte[512];
        connect_to(&raw, tls_port(s));
        send_bytes(&raw, things[i].bytes, things[i].n);
        shutdown(raw.fd, SHUT_WR);
        /* an alert at most, then the end */
        ssize_t n, all = 0;
        while ((n = recv(raw.fd, byte, sizeof byte, 0)) > 0)
            all += n;
        assert_true(all <= 7);
        disconnect(&raw);
    }
    expect_alive(s);
    wait_for_figure(s, "tls_failures", N);
    /* and TLS on the plain port is a protocol error there */
    struct tls_client c;
    tls_client_init(&c, folder, "ca", NULL);
    assert_false(tls_client_connect(&c, s->port));
    tls_client_end(&c, false);
    support_server_end(s);
}

static void test_a_forged_record_ends_the_connection(void **state)
{
    (void)state;
    struct test_server *s = server_without_client_certificates();
    struct tls_client c;
    struct reply reply;
    uint8_t record[5 + 64] = {0x17, 0x03, 0x03, 0, 64};
    connect_client(&c, s);
    tls_client_expect(&c, "PING", "PONG");
    send_bytes(&c.plain, record, sizeof record);
    assert_false(tls_client_reply(&c, &reply));
    /* the alert says why */
    assert_int_equal(ERR_GET_REASON(c.error), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
    tls_client_end(&c, false);
    wait_for_figure(s, "tls_failures", 1);
    expect_alive(s);
    support_server_end(s);
}

static void test_failures_are_logged_with_the_address(void **state)
{
    (void)state;
    enum { FAILURES = 40 };
    char *log = support_path(folder, "server.log"), text[65536];
    struct test_server *s =
        support_tls_server_logging(folder, log, (const char *const[]){"tls-auth-clients", "no", NULL});
    for (int i = 0; i < FAILURES; i++) {
        struct connection raw;
        char byte;
        connect_to(&raw, tls_port(s));
        send_literal(&raw, "hello, I am no TLS\r\n");
        while (recv(raw.fd, &byte, 1, 0) > 0)
            continue;
        disconnect(&raw);
    }
    wait_for_figure(s, "tls_failures", FAILURES);
    support_server_end(s);
    FILE *in = fopen(log, "r");
    assert_non_null(in);
    size_t n = fread(text, 1, sizeof text - 1, in);
    text[n] = 0;
    fclose(in);
    assert_non_null(strstr(text, "TLS connection from 127.0.0.1:"));
    assert_non_null(strstr(text, "failed: wrong version number"));
    unsigned lines = 0;
    for (const char *at = text; (at = strstr(at, "TLS connection")); at++)
        lines++;
    assert_in_range(lines, 1, 8); /* one a second and lane, not one a failure */
    free(log);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void test_replies_that_nobody_reads(void **state)
{
    (void)state;
    struct test_server *s = support_tls_server(
        folder, (const char *const[]){"tls-auth-clients", "no", "client-output-buffer-limit", "4mb", NULL});
    struct tls_client c;
    struct reply reply;
    struct resp_buffer request = {.protocol = 2};
    char *value = calloc(1, 6 * 1024 * 1024);
    resp_array(&request, 2);
    resp_bulk(&request, "ECHO", 4);
    resp_bulk(&request, value, 3 * 1024 * 1024);
    connect_client(&c, s);
    assert_true(tls_client_send(&c, request.data, request.bytes));
    assert_true(tls_client_reply(&c, &reply));
    assert_int_equal(reply.bytes, 3 * 1024 * 1024);
    reply_free(&reply);
    request.bytes = 0;
    resp_array(&request, 2);
    resp_bulk(&request, "ECHO", 4);
    resp_bulk(&request, value, 6 * 1024 * 1024);
    tls_client_send(&c, request.data, request.bytes);
    assert_false(tls_client_reply(&c, &reply));
    tls_client_end(&c, false);
    wait_for_figure(s, "client_output_buffer_limit_disconnections", 1);
    expect_alive(s);
    resp_buffer_fini(&request);
    free(value);
    support_server_end(s);
}

static void test_requests_sent_too_far_ahead(void **state)
{
    (void)state;
    struct test_server *s = support_tls_server(
        folder, (const char *const[]){"tls-auth-clients", "no", "client-query-buffer-limit", "1mb", NULL});
    struct tls_client c;
    struct reply reply;
    char *bytes = calloc(1, 4 * 1024 * 1024);
    connect_client(&c, s);
    assert_true(tls_client_send(&c, "*2\r\n$4\r\nECHO\r\n$8000000\r\n", 25));
    tls_client_send(&c, bytes, 4 * 1024 * 1024);
    assert_false(tls_client_reply(&c, &reply));
    tls_client_end(&c, false);
    wait_for_figure(s, "client_query_buffer_limit_disconnections", 1);
    expect_alive(s);
    free(bytes);
    support_server_end(s);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, CONNECTIONS = 25 };

static void *come_and_go(void *context)
{
    const struct test_server *s = context;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct tls_client c;
        connect_client(&c, s);
        for (int k = 0; k < 5; k++)
            tls_client_expect(&c, "PING", "PONG");
        tls_client_end(&c, i % 2 == 0);
    }
    return NULL;
}

static void test_many_clients_and_reloads(void **state)
{
    (void)state;
    struct test_server *s =
        support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "lanes", "4", NULL});
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, s), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(tls_reload(s->server, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    wait_for_figure(s, "connected_clients_tls", 0);
    wait_for_figure(s, "total_connections_tls", THREADS * CONNECTIONS);
    support_server_end(s);
}

static void test_the_threads_engine(void **state)
{
    (void)state;
    struct test_server *s =
        support_tls_server(folder, (const char *const[]){"tls-auth-clients", "no", "engine", "threads", NULL});
    expect_alive(s);
    come_and_go(s);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelines_in_tls_1_2),
        cmocka_unit_test(test_pipelines_in_tls_1_3),
        cmocka_unit_test(test_large_values),
        cmocka_unit_test(test_one_byte_at_a_time),
        cmocka_unit_test(test_users_over_tls),
        cmocka_unit_test(test_writes_over_tls),
        cmocka_unit_test(test_certificates_of_clients),
        cmocka_unit_test(test_the_servers_certificate_is_checked),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_config_set),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_versions_and_ciphers),
        cmocka_unit_test(test_wrong_settings_end_the_start),
        cmocka_unit_test(test_tls_only),
        cmocka_unit_test(test_quit_says_goodbye),
        cmocka_unit_test(test_replies_behind_the_clients_end),
        cmocka_unit_test(test_a_stop_says_goodbye),
        cmocka_unit_test(test_abrupt_ends),
        cmocka_unit_test(test_other_things_on_the_tls_port),
        cmocka_unit_test(test_a_forged_record_ends_the_connection),
        cmocka_unit_test(test_failures_are_logged_with_the_address),
        cmocka_unit_test(test_replies_that_nobody_reads),
        cmocka_unit_test(test_requests_sent_too_far_ahead),
        cmocka_unit_test(test_many_clients_and_reloads),
        cmocka_unit_test(test_the_threads_engine),
    };
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets that the server has closed */
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
