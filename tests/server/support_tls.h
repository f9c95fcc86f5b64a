/* support_tls.h - certificates made on the spot, and a TLS client that sees what goes over the wire. */
#ifndef QUIRE_TESTS_SERVER_SUPPORT_TLS_H
#define QUIRE_TESTS_SERVER_SUPPORT_TLS_H

#include "tests/server/support_server.h"
#include <openssl/ssl.h>

/* An authority in folder/NAME.crt and NAME.key (PEM). */
void support_authority(const char *folder, const char *name);
/* folder/NAME.crt and NAME.key, signed by the authority `by` of the same folder. password: of the key's file, or NULL.
 */
void support_certificate(const char *folder, const char *name, const char *by, const char *password);

/* A server with plain and TLS port, whose certificate is folder/server.crt; then the settings. */
struct test_server *support_tls_server(const char *folder, const char *const *settings);

/* The same, and the log's lines are added to the file `log`. */
struct test_server *support_tls_server_logging(const char *folder, const char *log, const char *const *settings);

struct tls_client {
    struct connection plain; /* the socket, and decrypted bytes that were not read as a reply yet */
    SSL_CTX *context;
    SSL *ssl;
    unsigned long error; /* OpenSSL's, of what failed last */
};

/* Prepares: trusts the authority folder/NAME.crt of the file `trusted`; shows `own`'s certificate where not NULL. */
void tls_client_init(struct tls_client *c, const char *folder, const char *trusted, const char *own);
/* Connects and shakes hands; false where the server refuses (with TLS 1.3 it may refuse later: see tls_client_ask). */
bool tls_client_connect(struct tls_client *c, unsigned port);
/* Frees all; `orderly` says goodbye before. */
void tls_client_end(struct tls_client *c, bool orderly);
/* Sends all of it; false when the connection is broken. */
bool tls_client_send(struct tls_client *c, const void *bytes, size_t n);
/* The next reply; false when the connection ended or broke before it was whole. */
bool tls_client_reply(struct tls_client *c, struct reply *reply);
/* A request of words parted by blanks, and its reply as text; false as above. */
bool tls_client_ask(struct tls_client *c, const char *words, struct reply *reply);
void tls_client_expect(struct tls_client *c, const char *words, const char *text);

#endif
