/*
 * sc_scan.h - finds where a reply of RESP3 ends, in bytes that come piece by piece; what it says is for others to read.
 *
 * For the console, which turns replies into JSON as they are and needs the types of RESP3 for it: hiredis 0.14, which
 * Debian 12 has, reads RESP2 alone.
 */
#ifndef QUIRE_GATEWAY_SC_SCAN_H
#define QUIRE_GATEWAY_SC_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SC_SCAN_DEPTH 16u

struct sc_scan {
    char *bytes; /* what has come and was not dropped; owned */
    size_t n, capacity;
    size_t at; /* how far it was looked at; where a reply has ended: its bytes */
    unsigned depth;
    uint64_t left[SC_SCAN_DEPTH]; /* values that are missing at each level */
};

enum sc_scanned { SC_SCAN_MORE, SC_SCAN_WHOLE, SC_SCAN_BROKEN };

/* Room for more bytes behind those that are there; NULL without memory. The caller adds to `n` what it has written. */
char *sc_scan_room(struct sc_scan *scan, size_t bytes);
/* WHOLE: bytes[0 .. at) is a reply; look at it, then sc_scan_drop. BROKEN: no RESP3, or deeper than SC_SCAN_DEPTH. */
enum sc_scanned sc_scan_next(struct sc_scan *scan);
/* Drops the reply that was found. */
void sc_scan_drop(struct sc_scan *scan);
void sc_scan_fini(struct sc_scan *scan);

/* One line of RESP, from `bytes` on: its type and number, and where it ends. False: it is not whole, or there is no
 * number where one must be (*broken). */
struct sc_line {
    char type;
    int64_t number; /* of : $ * % ~ > = ! */
    size_t bytes;   /* with its end */
};
bool sc_scan_line(const char *bytes, size_t n, struct sc_line *out, bool *broken);

#endif
