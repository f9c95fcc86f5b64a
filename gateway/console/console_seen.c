/* console_seen.c - the last requests of the gateway: a ring of fixed size, texts cut to fit. */
#include "gateway/console/console_priv.h"
#include "io/clock.h"
#include <stdlib.h>
#include <string.h>

#define SEEN_MAX 1000u

struct seen {
    uint64_t number, time_ms, tokens_saved, cache_us, embed_us, upstream_us, first_byte_us, us, bytes;
    double similarity;
    int status;
    bool joined, client_gone, upstream_failed;
    char method[12], route[16], cache[12], path[96], category[96], model[96], tenant[96], upstream[96], reason[200],
        question[256];
};

struct console_seen {
    uint64_t n; /* ever */
    uint64_t began_ms;
    struct seen ring[SEEN_MAX];
};

struct console_seen *console_seen_create(void)
{
    struct console_seen *seen = calloc(1, sizeof *seen);
    if (seen)
        seen->began_ms = clock_wall_ms();
    return seen;
}

uint64_t console_seen_began_ms(const struct console_seen *seen)
{
    return seen->began_ms;
}

/* At most `room` - 1 bytes, and no half of a character. */
static void keep(char *out, size_t room, const char *text, size_t n)
{
    if (n >= room) {
        n = room - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(out, text, n);
    out[n] = 0;
}

static void keep_text(char *out, size_t room, const char *text)
{
    keep(out, room, text ? text : "", text ? strlen(text) : 0);
}

void console_seen_add(struct console_seen *seen, const struct http_request *r, const struct console_request *end)
{
    struct seen *s = &seen->ring[seen->n++ % SEEN_MAX];
    uint64_t began = http_began_us(r), first = http_first_byte_us(r);
    size_t path_bytes;
    const char *path = http_path(r, &path_bytes);
    *s = (struct seen){.number = seen->n,
                       .time_ms = clock_wall_ms(),
                       .tokens_saved = end->tokens_saved,
                       .cache_us = end->cache_us,
                       .embed_us = end->embed_us,
                       .upstream_us = end->upstream_us,
                       .first_byte_us = first > began ? first - began : 0,
                       .us = clock_us() - began,
                       .bytes = http_sent_bytes(r),
                       .similarity = end->similarity,
                       .status = http_status(r),
                       .joined = end->joined,
                       .client_gone = end->client_gone,
                       .upstream_failed = end->upstream_failed};
    keep(s->path, sizeof s->path, path, path_bytes);
    keep_text(s->method, sizeof s->method, http_method(r));
    keep_text(s->route, sizeof s->route, end->route);
    keep_text(s->cache, sizeof s->cache, end->cache);
    keep_text(s->category, sizeof s->category, end->category);
    keep_text(s->model, sizeof s->model, end->model);
    keep_text(s->tenant, sizeof s->tenant, end->tenant);
    keep_text(s->upstream, sizeof s->upstream, end->upstream);
    keep_text(s->reason, sizeof s->reason, end->reason);
    keep_text(s->question, sizeof s->question, end->question);
}

static json_t *text_of(const char *text)
{
    return console_json_text(text, strlen(text));
}

static json_t *ms_of(uint64_t us)
{
    return us > 0 ? json_real((double)us / 1000) : json_null();
}

static json_t *describe(const struct seen *s, bool texts)
{
    json_t *out = json_pack("{s:I, s:I, s:i, s:I, s:I, s:b, s:b, s:b}", "number", (json_int_t)s->number, "time_ms",
                            (json_int_t)s->time_ms, "status", s->status, "bytes", (json_int_t)s->bytes, "tokens_saved",
                            (json_int_t)s->tokens_saved, "joined", (int)s->joined, "client_gone", (int)s->client_gone,
                            "upstream_failed", (int)s->upstream_failed);
    const struct {
        const char *name;
        json_t *value;
    } more[] = {{"method", text_of(s->method)},
                {"route", text_of(s->route)},
                {"path", text_of(s->path)},
                {"cache", text_of(s->cache)},
                {"reason", text_of(s->reason)},
                {"category", text_of(s->category)},
                {"model", text_of(s->model)},
                {"tenant", text_of(s->tenant)},
                {"upstream", text_of(s->upstream)},
                {"similarity", s->similarity >= 0 ? json_real(s->similarity) : json_null()},
                {"cache_ms", ms_of(s->cache_us)},
                {"embed_ms", ms_of(s->embed_us)},
                {"upstream_ms", ms_of(s->upstream_us)},
                {"first_byte_ms", ms_of(s->first_byte_us)},
                {"ms", ms_of(s->us)},
                {"question", texts && *s->question ? text_of(s->question) : json_null()}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        json_object_set_new(out, more[i].name, more[i].value);
    return out;
}

json_t *console_seen_json(const struct console_seen *seen, uint64_t since, uint64_t limit, bool texts)
{
    json_t *all = json_array();
    uint64_t kept = seen->n < SEEN_MAX ? seen->n : SEEN_MAX;
    for (uint64_t i = 0; i < kept && i < limit && seen->n - i > since && all; i++) {
        if (json_array_append_new(all, describe(&seen->ring[(seen->n - 1 - i) % SEEN_MAX], texts)) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    return all;
}
