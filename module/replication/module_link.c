/*
 * module_link.c - a connection from a replica to its primary, beside the engine's: RESP2, blocking, with the engine's
 * own name, password and TLS files for replication.
 */
#include "io/error.h"
#include "module/replication/module_copy.h"
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMEOUT_S = 10, LINE_BYTES = 1024, BULK_BYTES_MAX = 1 << 30, IN_BYTES = 64 << 10 };

struct module_link {
    int fd;
    SSL_CTX *context;
    SSL *tls;
    uint8_t in[IN_BYTES];
    size_t at, end;
    uint8_t *bulk; /* owned */
    size_t bulk_capacity;
};

static int lost(const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_EIO, "the connection to the primary: %s", what);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int send_all(struct module_link *l, const void *bytes, size_t n, struct quire_error *err)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        ssize_t done =
            l->tls ? SSL_write(l->tls, at, n < INT_MAX ? (int)n : INT_MAX) : send(l->fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR && !l->tls)
            continue;
        if (done <= 0)
            return lost(l->tls ? "TLS does not take what is sent" : strerror(errno), err);
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

static int receive_some(struct module_link *l, void *bytes, size_t n, size_t *got, struct quire_error *err)
{
    ssize_t done;
    do
        done = l->tls ? SSL_read(l->tls, bytes, n < INT_MAX ? (int)n : INT_MAX) : recv(l->fd, bytes, n, 0);
    while (done < 0 && errno == EINTR && !l->tls);
    if (done == 0)
        return lost("it was closed", err);
    if (done < 0)
        return lost(errno == EAGAIN ? "no answer for 10 s" : strerror(errno), err);
    *got = (size_t)done;
    return 0;
}

static int fill(struct module_link *l, struct quire_error *err)
{
    l->at = l->end = 0;
    return receive_some(l, l->in, sizeof l->in, &l->end, err);
}

static int receive_line(struct module_link *l, char line[LINE_BYTES], struct quire_error *err)
{
    for (size_t n = 0;;) {
        int rc = l->at == l->end ? fill(l, err) : 0;
        if (rc < 0)
            return rc;
        char c = (char)l->in[l->at++];
        if (c == '\n' && n > 0 && line[n - 1] == '\r') {
            line[n - 1] = 0;
            return 0;
        }
        if (n + 1 >= LINE_BYTES)
            return lost("it does not speak RESP", err);
        line[n++] = c;
    }
}

static int receive_bytes(struct module_link *l, uint8_t *out, size_t n, struct quire_error *err)
{
    while (n > 0) {
        size_t have = l->end - l->at, got = have < n ? have : n;
        if (have > 0) {
            memcpy(out, l->in + l->at, got);
            l->at += got;
        } else {
            int rc = receive_some(l, out, n, &got, err);
            if (rc < 0)
                return rc;
        }
        out += got;
        n -= got;
    }
    return 0;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static int failure_of(const char *text, struct quire_error *err)
{
    bool gone = strncmp(text, "NOSEGMENT", 9) == 0;
    return error_set(err, gone ? QUIRE_ENOTFOUND : QUIRE_EIO, "the primary answers: %.300s", text);
}

int module_link_receive(struct module_link *l, struct module_link_reply *out, struct quire_error *err)
{
    char line[LINE_BYTES];
    int rc = receive_line(l, line, err);
    if (rc < 0)
        return rc;
    long long n = strtoll(line + 1, NULL, 10);
    *out = (struct module_link_reply){.kind = MODULE_REPLY_INTEGER, .number = n};
    switch (line[0]) {
    case '-':
        return failure_of(line + 1, err);
    case '+':
        out->kind = MODULE_REPLY_SIMPLE;
        return 0;
    case ':':
        return 0;
    case '*':
        out->kind = MODULE_REPLY_ARRAY;
        out->n = n > 0 ? (size_t)n : 0;
        return 0;
    case '$':
        break;
    default:
        return lost("it does not speak RESP", err);
    }
    if (n < 0 || n > BULK_BYTES_MAX)
        return lost("a reply is missing, or of more than 1 GiB", err);
    if ((size_t)n + 2 > l->bulk_capacity) {
        uint8_t *grown = realloc(l->bulk, (size_t)n + 2);
        if (!grown)
            return error_set(err, QUIRE_ENOMEM, "no memory for %lld bytes from the primary", n);
        l->bulk = grown;
        l->bulk_capacity = (size_t)n + 2;
    }
    rc = receive_bytes(l, l->bulk, (size_t)n + 2, err);
    out->kind = MODULE_REPLY_BULK;
    out->bytes = l->bulk;
    out->n = (size_t)n;
    return rc;
}

int module_link_send(struct module_link *l, const struct module_word *words, unsigned n, struct quire_error *err)
{
    char head[32];
    int rc = send_all(l, head, (size_t)snprintf(head, sizeof head, "*%u\r\n", n), err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = send_all(l, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", words[i].n), err);
        if (rc == 0)
            rc = send_all(l, words[i].bytes, words[i].n, err);
        if (rc == 0)
            rc = send_all(l, "\r\n", 2, err);
    }
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int connect_within(const struct addrinfo *address, struct quire_error *err)
{
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int one = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return lost(strerror(errno), err);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout); /* of connect, too */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0) {
        int rc = lost(strerror(errno), err);
        close(fd);
        return rc;
    }
    return fd;
}

static int connect_to(const struct module_link_target *target, struct quire_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%u", target->port);
    int code = getaddrinfo(target->host, port, &hints, &found);
    if (code != 0)
        return lost(gai_strerror(code), err);
    int fd = QUIRE_EIO;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = connect_within(a, err);
    freeaddrinfo(found);
    return fd;
}

static int begin_tls(struct module_link *l, const struct module_link_target *t, struct quire_error *err)
{
    l->context = SSL_CTX_new(TLS_client_method());
    bool done = l->context && SSL_CTX_set_min_proto_version(l->context, TLS1_2_VERSION);
    if (done && (t->ca_file[0] || t->ca_folder[0]))
        done = SSL_CTX_load_verify_locations(l->context, t->ca_file[0] ? t->ca_file : NULL,
                                             t->ca_folder[0] ? t->ca_folder : NULL) == 1;
    if (done && t->cert_file[0])
        done = SSL_CTX_use_certificate_chain_file(l->context, t->cert_file) == 1 &&
               SSL_CTX_use_PrivateKey_file(l->context, t->key_file, SSL_FILETYPE_PEM) == 1;
    if (!done)
        return lost("the engine's TLS files cannot be used (tls-ca-cert-file, tls-cert-file, tls-key-file)", err);
    SSL_CTX_set_verify(l->context, SSL_VERIFY_PEER, NULL); /* as the engine does: the chain, not the name */
    l->tls = SSL_new(l->context);
    if (!l->tls || SSL_set_fd(l->tls, l->fd) != 1 || SSL_connect(l->tls) != 1) {
        char text[160] = "TLS fails";
        unsigned long code = ERR_get_error();
        if (code)
            ERR_error_string_n(code, text, sizeof text);
        return lost(text, err);
    }
    return 0;
}

static int log_in(struct module_link *l, const struct module_link_target *t, struct quire_error *err)
{
    struct module_word words[3] = {{"AUTH", 4}};
    struct module_link_reply reply;
    unsigned n = 1;
    if (!t->password[0])
        return 0;
    if (t->user[0])
        words[n++] = (struct module_word){t->user, strlen(t->user)};
    words[n++] = (struct module_word){t->password, strlen(t->password)};
    int rc = module_link_send(l, words, n, err);
    return rc == 0 ? module_link_receive(l, &reply, err) : rc;
}

int module_link_open(const struct module_link_target *target, struct module_link **out, struct quire_error *err)
{
    struct module_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(err, QUIRE_ENOMEM, "no memory for a connection to the primary");
    l->fd = connect_to(target, err);
    int rc = l->fd < 0 ? QUIRE_EIO : 0;
    if (rc == 0 && target->tls)
        rc = begin_tls(l, target, err);
    if (rc == 0)
        rc = log_in(l, target, err);
    if (rc < 0)
        module_link_close(l);
    else
        *out = l;
    return rc;
}

void module_link_close(struct module_link *l)
{
    if (!l)
        return;
    SSL_free(l->tls);
    SSL_CTX_free(l->context);
    if (l->fd >= 0)
        close(l->fd);
    free(l->bulk);
    free(l);
}
