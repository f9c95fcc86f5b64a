/*
 * scan_options.h - what SCAN and HSCAN share: cursor [MATCH pattern] [COUNT count] [TYPE type], and the reply.
 */
#ifndef QUIRE_SERVER_SCAN_OPTIONS_H
#define QUIRE_SERVER_SCAN_OPTIONS_H

#include "server/call/caller.h"

struct scan_options {
    uint64_t cursor, count;
    struct resp_arg pattern; /* data NULL: none */
    struct resp_arg type;    /* data NULL: any */
};

/* args[0] is the cursor. False after an error reply. */
bool scan_take_options(struct caller *c, const struct resp_arg *args, uint32_t n, bool with_type,
                       struct scan_options *out);
bool scan_matches(const struct scan_options *options, struct resp_arg name);
/* The next cursor and the n items that `items` holds, which is freed. */
void scan_reply(struct caller *c, uint64_t cursor, struct resp_buffer *items, size_t n);

#endif
