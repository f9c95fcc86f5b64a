/*
 * hiredis_tls.c - hiredis as a user of the ACL, plain and over TLS.
 *
 *   hiredis_tls plain PORT FOLDER     redisConnect, as most programs in C do
 *   hiredis_tls tls PORT FOLDER       hiredis formats requests and reads replies, OpenSSL carries the bytes, since
 *                                     Debian's hiredis has no TLS part; FOLDER holds ca.crt, client.crt, client.key
 *
 * The server knows the user "search" (password search-word), who may read keys words*, and has the default user off.
 * Prints a line per check; exit status 0 when all are right.
 */
#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIPELINE = 1000 };

struct link {
    redisContext *plain; /* NULL: TLS */
    SSL_CTX *context;
    SSL *ssl;
    redisReader *reader;
    int fd;
};

static const char *mode;
static int failed;

static void check(const char *name, bool right, const redisReply *reply)
{
    printf("%s - hiredis, %s: %s\n", right ? "ok" : "FAIL", mode, name);
    if (!right)
        printf("    | type %d '%s'\n", reply ? reply->type : -1, reply && reply->str ? reply->str : "");
    failed += !right;
}

static void give_up(const char *what)
{
    printf("FAIL - hiredis, %s: %s\n", mode, what);
    exit(1);
}

static void connect_tls(struct link *l, int port, const char *folder)
{
    char path[3][1024];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(path[0], sizeof path[0], "%s/ca.crt", folder);
    snprintf(path[1], sizeof path[1], "%s/client.crt", folder);
    snprintf(path[2], sizeof path[2], "%s/client.key", folder);
    l->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(l->context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_load_verify_file(l->context, path[0]) != 1 ||
        SSL_CTX_use_certificate_chain_file(l->context, path[1]) != 1 ||
        SSL_CTX_use_PrivateKey_file(l->context, path[2], SSL_FILETYPE_PEM) != 1)
        give_up("certificates");
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(l->fd, (struct sockaddr *)&to, sizeof to) < 0)
        give_up("connecting");
    l->ssl = SSL_new(l->context);
    l->reader = redisReaderCreate();
    SSL_set_fd(l->ssl, l->fd);
    SSL_set1_host(l->ssl, "localhost");
    if (SSL_connect(l->ssl) != 1)
        give_up("the handshake");
}

static void put(struct link *l, const char *request, size_t bytes)
{
    size_t sent;
    if (l->plain ? redisAppendFormattedCommand(l->plain, request, bytes) != REDIS_OK
                 : SSL_write_ex(l->ssl, request, bytes, &sent) != 1)
        give_up("sending");
}

static redisReply *get(struct link *l)
{
    void *reply = NULL;
    char bytes[16384];
    size_t got;
    if (l->plain) {
        if (redisGetReply(l->plain, &reply) != REDIS_OK)
            give_up(l->plain->errstr);
        return reply;
    }
    while (redisReaderGetReply(l->reader, &reply) == REDIS_OK && !reply) {
        if (SSL_read_ex(l->ssl, bytes, sizeof bytes, &got) != 1)
            give_up("the connection ended");
        redisReaderFeed(l->reader, bytes, got);
    }
    if (!reply)
        give_up(l->reader->errstr);
    return reply;
}

static redisReply *ask(struct link *l, const char *words)
{
    char *request;
    int bytes = redisFormatCommand(&request, words);
    if (bytes < 0)
        give_up("formatting");
    put(l, request, (size_t)bytes);
    redisFreeCommand(request);
    return get(l);
}

static void expect(struct link *l, const char *words, int type, const char *begin)
{
    redisReply *reply = ask(l, words);
    check(words, reply->type == type && (!begin || strncmp(reply->str, begin, strlen(begin)) == 0), reply);
    freeReplyObject(reply);
}

static void check_search(struct link *l)
{
    redisReply *reply = ask(l, "VSIM words ELE apple-0 COUNT 3 WITHSCORES");
    bool right = reply->type == REDIS_REPLY_ARRAY && reply->elements == 6;
    check("a search", right && strcmp(reply->element[0]->str, "apple-0") == 0, reply);
    freeReplyObject(reply);
}

static void check_pipeline(struct link *l)
{
    char *request;
    int right = 0;
    for (int i = 0; i < PIPELINE; i++) {
        int bytes = redisFormatCommand(&request, "ECHO %d", i);
        put(l, request, (size_t)bytes);
        redisFreeCommand(request);
    }
    for (int i = 0; i < PIPELINE; i++) {
        redisReply *reply = get(l);
        right += reply->type == REDIS_REPLY_STRING && atoi(reply->str) == i;
        freeReplyObject(reply);
    }
    check("a pipeline", right == PIPELINE, NULL);
}

int main(int argc, char **argv)
{
    struct link l = {.fd = -1};
    if (argc != 4)
        return 2;
    mode = argv[1];
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(mode, "tls") == 0) {
        connect_tls(&l, atoi(argv[2]), argv[3]);
    } else {
        l.plain = redisConnect("127.0.0.1", atoi(argv[2]));
        if (!l.plain || l.plain->err)
            give_up("connecting");
    }
    expect(&l, "PING", REDIS_REPLY_ERROR, "NOAUTH");
    expect(&l, "AUTH search wrong", REDIS_REPLY_ERROR, "WRONGPASS");
    expect(&l, "AUTH search search-word", REDIS_REPLY_STATUS, "OK");
    expect(&l, "ACL LIST", REDIS_REPLY_ERROR, "NOPERM");
    expect(&l, "VCARD words", REDIS_REPLY_INTEGER, NULL);
    expect(&l, "VCARD other", REDIS_REPLY_ERROR, "NOPERM No permissions to access a key");
    expect(&l, "DEL words", REDIS_REPLY_ERROR, "NOPERM User search has no permissions to run the 'del' command");
    check_search(&l);
    check_pipeline(&l);
    if (l.plain) {
        redisFree(l.plain);
    } else {
        SSL_shutdown(l.ssl);
        SSL_free(l.ssl);
        SSL_CTX_free(l.context);
        redisReaderFree(l.reader);
        close(l.fd);
    }
    return failed ? 1 : 0;
}
