/* support_sc.h - requests of semantic caches and what their replies must be: for tests that talk to a server. */
#ifndef QUIRE_TESTS_SERVER_SUPPORT_SC_H
#define QUIRE_TESTS_SERVER_SUPPORT_SC_H

#include "tests/server/support_server.h"

enum { DIM = 16, ID_DIGITS = 16 };

/* A vector of DIM numbers that is so similar to the direction of an axis; axes are orthogonal up to DIM / 2 of them.
 * Valid until the next call. */
const float *sc_at(unsigned axis, double similarity);

/* Words parted by blanks; in them "@" is the vector, "_" is nothing, and "~" stands for a blank. */
void sc_send_words(struct connection *c, const float *vector, const char *words);
struct reply sc_say(struct connection *c, const float *vector, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fields of a reply; each fails the test where there is none, or another. */
void sc_check_status(const struct reply *r, const char *status);
double sc_number(const struct reply *r, const char *field);
void sc_check_field(const struct reply *r, const char *field, const char *text);
void sc_copy_field(const struct reply *r, const char *field, char *out, size_t room);

/* SC.PUT with these words stores or replaces; id (NULL: not asked for) of the entry. */
void sc_put(struct connection *c, const float *vector, char id[ID_DIGITS + 1], const char *words);
/* SC.GET with these words ends so. */
void sc_check_get(struct connection *c, const float *vector, const char *words, const char *status);

/* Until so many requests wait for an answer of the cache `f`. */
void sc_await_waiting(struct connection *c, unsigned n);

/* A server with a cache `f` of DIM dimensions and encoder enc@1, and in it a category `q` of fixed threshold .9. */
struct test_server *sc_serve(struct connection *c);
void sc_end(struct test_server *s, struct connection *c);

#endif
