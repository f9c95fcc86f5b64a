/* top_reply.h - replies of a server, as far as AUTH, CLIENT SETNAME and INFO have them: a line, an error, a text. */
#ifndef QUIRE_TOOLS_TOP_REPLY_H
#define QUIRE_TOOLS_TOP_REPLY_H

#include <stddef.h>
#include <stdint.h>

#define TOP_REPLY_LINE_MAX  4096u      /* of a line: a status, an error, a length */
#define TOP_REPLY_BYTES_MAX (4u << 20) /* of a text: INFO of 256 caches and 100 tenants has some 300 KiB */

enum top_reply_status { TOP_REPLY_BROKEN = -1, TOP_REPLY_MORE = 0, TOP_REPLY_DONE = 1 };

struct top_reply {
    char type;        /* '+' a status, '-' an error, '$' a text */
    const char *text; /* into the parsed bytes, without an end of its own; NULL: a null */
    size_t bytes;
};

/* The reply at the beginning of n bytes, which has *consumed of them (TOP_REPLY_DONE). TOP_REPLY_BROKEN: no such reply,
 * or a longer one than the limits; nothing is read beyond n. */
enum top_reply_status top_reply_parse(const char *bytes, size_t n, struct top_reply *out, size_t *consumed);

#endif
