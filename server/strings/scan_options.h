/*
 * scan_options.h - what SCAN and HSCAN share: cursor [MATCH pattern] [COUNT count] [TYPE type], and the reply.
 */
#ifndef QUIRE_SERVER_SCAN_OPTIONS_H
#define QUIRE_SERVER_SCAN_OPTIONS_H

#include "server/call/caller.h"
#include "server/protocol/glob.h"

struct scan_options {
    uint64_t cursor, count;
    bool matches; /* only what `glob` does */
    struct glob glob;
    uint64_t steps;       /* taken so far: nanoseconds, about */
    struct resp_arg type; /* data NULL: any */
};

/* A call ends after so many steps, whatever COUNT says: the client goes on with the cursor. */
enum { SCAN_STEPS_MAX = 500000, SCAN_AT_ONCE = 16 };

/* args[0] is the cursor. False after an error reply. Ended by scan_reply. */
bool scan_take_options(struct caller *c, const struct resp_arg *args, uint32_t n, bool with_type,
                       struct scan_options *out);
bool scan_matches(struct scan_options *options, struct resp_arg name);
/* Whether a pattern is short enough; after an error reply where not. */
bool scan_fits(struct caller *c, struct resp_arg pattern);
/* The next cursor and the n items that `items` holds, which is freed. */
void scan_reply(struct caller *c, struct scan_options *options, uint64_t cursor, struct resp_buffer *items, size_t n);

#endif
