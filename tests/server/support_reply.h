/* support_reply.h - reading RESP2 and RESP3 replies into trees, for tests that look at what the server wrote. */
#ifndef QUIRE_TESTS_SERVER_SUPPORT_REPLY_H
#define QUIRE_TESTS_SERVER_SUPPORT_REPLY_H

#include "server/protocol/resp.h"

struct reply {
    char type;         /* the byte it began with: + - : $ * % ~ , # _ = */
    bool null;         /* "$-1", "*-1" or "_" */
    long long integer; /* of : and # */
    double number;     /* of , */
    char *text;        /* of + - $ = , ends in 0 behind its bytes; owned */
    size_t bytes;
    struct reply *items; /* of * % ~ ; a map's keys and values alternate; owned */
    size_t n;
};

/* Reads one reply. 1: done, *used bytes; 0: incomplete; -1: not RESP. Nothing is kept unless it is 1. */
int reply_read(const uint8_t *bytes, size_t n, struct reply *out, size_t *used);
void reply_free(struct reply *reply);
/* The value of a field of a map, in either protocol; NULL where there is none. */
const struct reply *reply_field(const struct reply *map, const char *name);
/* Whether it is a text of this content. */
bool reply_is(const struct reply *reply, const char *text);
/* A number however the protocol wrote it; fails the test otherwise. */
double reply_number(const struct reply *reply);
/* Checks that out holds exactly one whole reply, and hands it over. */
struct reply reply_of_buffer(const struct resp_buffer *out);

#endif
