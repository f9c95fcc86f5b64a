/*
 * console_docs.c - the documents below /ui/docs/: pages of docs/ as they are, in Markdown, which the page draws.
 *
 * cmake/docs.cmake has put them into the program, compressed, so that what a figure means can be read where neither the
 * sources nor a package of documents is installed and nothing else can be reached. They hold nothing that a user might
 * not see, so no credential is asked for.
 */
#include "gateway/console/console_priv.h"
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

#define WINDOW_GZIP (15 + 16)

extern const char console_docs[];

/* A page, compressed; NULL: there is none of this name. */
static const char *find(const char *name, size_t n, uint32_t *bytes)
{
    for (const char *at = console_docs; *at; at += *bytes) {
        size_t length = strlen(at);
        bool same = length == n && memcmp(at, name, n) == 0;
        at += length + 1;
        memcpy(bytes, at, sizeof *bytes);
        at += sizeof *bytes;
        if (same)
            return at;
    }
    return NULL;
}

/* What gzip has compressed, whose last four bytes say how long it is; NULL: no memory. */
static char *unpack(const char *packed, uint32_t bytes, uint32_t *n)
{
    const unsigned char *end = (const unsigned char *)packed + bytes;
    *n = (uint32_t)end[-4] | (uint32_t)end[-3] << 8 | (uint32_t)end[-2] << 16 | (uint32_t)end[-1] << 24;
    char *out = malloc(*n + 1);
    z_stream stream = {
        .next_in = (const unsigned char *)packed, .avail_in = bytes, .next_out = (unsigned char *)out, .avail_out = *n};
    bool ok = out && inflateInit2(&stream, WINDOW_GZIP) == Z_OK;
    if (ok) {
        ok = inflate(&stream, Z_FINISH) == Z_STREAM_END;
        inflateEnd(&stream);
    }
    if (ok)
        return out;
    free(out);
    return NULL;
}

static bool set_fields(struct fields *fields, bool gzip)
{
    return console_fields(fields, "text/markdown; charset=utf-8") && fields_set(fields, "Cache-Control", "no-cache") &&
           fields_append(fields, "Vary", "Accept-Encoding") &&
           (!gzip || fields_append(fields, "Content-Encoding", "gzip"));
}

void console_docs_answer(struct http_request *r, const char *name, size_t n)
{
    struct console_refusal none = {.status = 404, .code = "not_found"};
    struct fields fields = {0};
    uint32_t bytes = 0;
    bool gzip = fields_has_word(http_fields(r), "Accept-Encoding", "gzip");
    const char *page = find(name, n, &bytes);
    char *plain = page && !gzip ? unpack(page, bytes, &bytes) : NULL;
    if (!page) {
        snprintf(none.message, sizeof none.message,
                 "this page is not in the program: see docs/%.*s of the sources, or of the package quire-doc",
                 n < 60 ? (int)n : 60, name);
        console_answer_error(r, &none);
    } else if ((gzip || plain) && set_fields(&fields, gzip))
        http_answer(r, 200, &fields, gzip ? page : plain, bytes);
    else
        http_abort(r);
    free(plain);
    fields_fini(&fields);
}
