/* support_server.h - a server in this process, sockets to talk to it, and small indexes for it to load. */
#ifndef QUIRE_TESTS_SERVER_SUPPORT_SERVER_H
#define QUIRE_TESTS_SERVER_SUPPORT_SERVER_H

#include "server/server.h"
#include "tests/server/support_reply.h"
#include "tests/temp_folder.h"

enum { SUPPORT_ROWS = 600, SUPPORT_DIM = 16 };

/* ---- folder and indexes ------------------------------------------------------------------------------------------ */

/* SUPPORT_ROWS x SUPPORT_DIM numbers in clusters, the same each time. Row i is always element "i". */
const float *support_vectors(void);
/* Builds folder/name from them, with numbers as they are (slot f32). */
void support_build(const char *folder, const char *name, enum quire_metric metric);
void support_build_kind(const char *folder, const char *name, enum quire_metric metric, enum quire_index_kind kind);
/* The score VSIM should give, in double. */
double support_score(enum quire_metric metric, const float *query, uint32_t row);
/* Scores of all rows, the greatest first. */
void support_best_scores(enum quire_metric metric, const float *query, double scores[SUPPORT_ROWS]);

/* ---- server ------------------------------------------------------------------------------------------------------ */

struct test_server {
    struct config config;
    struct log log;
    struct server *server;
    char *data; /* folder, removed in the end */
    unsigned port;
};

/* Port 0 of 127.0.0.1, 2 lanes, a data folder of its own, a log that is thrown away; then the settings: name, value,
 * ..., NULL. The server keeps pointers into *out, which is set also on failure and ended by support_server_end. */
int support_try_server(struct test_server **out, struct quire_error *err, const char *const *settings);
/* The same; a failure fails the test. */
struct test_server *support_server(const char *const *settings);
/* The same, and the log's lines are added to the file `log`. */
struct test_server *support_server_logging(const char *log, const char *const *settings);
void support_server_end(struct test_server *s);

/* ---- connections ------------------------------------------------------------------------------------------------- */

struct connection {
    int fd;
    uint8_t *in;
    size_t have, room;
};

/* Waiting for a reply fails the test after 20 seconds. */
void connect_to(struct connection *c, unsigned port);
/* Its two halves: a socket, which takes a descriptor; connecting it, which takes none. */
void make_socket(struct connection *c);
void connect_socket(struct connection *c, unsigned port);
void disconnect(struct connection *c);
void send_bytes(struct connection *c, const void *bytes, size_t n);
#define send_literal(c, text)  send_bytes((c), (text), sizeof(text) - 1)
#define put_literal(out, text) resp_raw((out), (text), sizeof(text) - 1)
/* A request as an array; the words are parted by blanks. */
void put_request(struct resp_buffer *out, const char *words);
void send_request(struct connection *c, const char *words);
struct reply read_reply(struct connection *c);
/* send_request and read_reply. */
struct reply ask(struct connection *c, const char *words);
/* A request as one line, so that "words in quotes" may hold blanks. */
void send_line(struct connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same and read_reply. */
struct reply ask_line(struct connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The reply is this simple or bulk text, this integer, an error that begins with this text. */
void expect_text(struct connection *c, const char *words, const char *text);
void expect_integer(struct connection *c, const char *words, long long value);
void expect_error(struct connection *c, const char *words, const char *begin);
void check_error(struct reply reply, const char *begin); /* takes the reply over */
void check_text(struct reply reply, const char *text);
/* The server has closed: nothing more comes but the end (or a reset). */
void expect_closed(struct connection *c);

/* A number out of INFO, by the field's name. */
long long info_number(struct connection *c, const char *field);

#endif
