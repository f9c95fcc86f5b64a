/*
 * cache_call.c - the common part of the commands of semantic caches.
 *
 * Documents are read by the lane's engine, as blocks of an index are; what an entry shows to people (its question, its
 * answer) is copied out of them at once, so that a list of a thousand entries holds a thousand questions and at most
 * CACHE_READS documents. A document that cannot be read leaves its entry without a text: looking at entries is no
 * reason to remove them, the next hit will.
 */
#include "server/cache/cache_call.h"
#include "cache/document/document.h"
#include "cache/document/document_log.h"
#include "io/error.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_DIGITS = 16 };

struct cache *cache_call_find(struct caller *c, struct resp_arg name)
{
    struct caches *caches = c->lane->service->caches;
    struct cache *cache = caches ? caches_find(caches, cache_arg_bytes(name)) : NULL;
    if (!cache)
        caller_error(c, "ERR no such cache '%.*s': SC.CREATE makes one, SC.LIST shows those there are",
                     ARG_SHOWN(name, 64u));
    struct quire_error why = {0};
    if (cache && cache_available(cache, &why) < 0) {
        caller_error(c, "DAMAGED cache '%.*s' is unavailable: %s; SC.DROP removes it", ARG_SHOWN(name, 64u),
                     why.message);
        cache_unref(cache);
        return NULL;
    }
    return cache;
}

int cache_arg_id(struct resp_arg arg, uint64_t *out, struct quire_error *err)
{
    uint64_t id = 0;
    bool right = arg.bytes == ID_DIGITS;
    for (uint32_t i = 0; right && i < ID_DIGITS; i++) {
        unsigned lower = arg.data[i] | 32u, digit = lower >= 'a' ? lower - 'a' + 10 : lower - '0';
        right = isxdigit(arg.data[i]);
        id = id << 4 | (digit & 15);
    }
    if (!right)
        return error_set(err, QUIRE_EINVALID, "'%.*s' is not an id: give the 16 hexadecimal digits of a reply",
                         ARG_SHOWN(arg, 64u));
    *out = id;
    return 0;
}

int cache_arg_option(const struct resp_arg *args, uint32_t n, uint32_t at, const char *word, const char *syntax,
                     struct quire_error *err)
{
    if (n == at || (n == at + 2 && arg_is(args[at], word)))
        return 0;
    return error_set(err, QUIRE_EINVALID, "syntax error at '%.*s': %s", ARG_SHOWN(args[at], 64u), syntax);
}

void cache_reply_error(struct caller *c, const struct quire_error *err)
{
    resp_quire_error(caller_reply(c), err);
}

void cache_reply_ok(struct caller *c, int rc, uint64_t lsn, const struct quire_error *err)
{
    if (rc < 0) {
        cache_reply_error(c, err);
        return;
    }
    resp_simple(caller_reply(c), "OK");
    caller_wait_lsn(c, lsn);
}

void cache_reply_number(struct caller *c, int rc, uint64_t number, uint64_t lsn, const struct quire_error *err)
{
    if (rc < 0) {
        cache_reply_error(c, err);
        return;
    }
    resp_integer(caller_reply(c), (long long)number);
    caller_wait_lsn(c, lsn);
}

void cache_reply_whether(struct caller *c, int rc, uint64_t lsn, const struct quire_error *err)
{
    if (rc == QUIRE_ENOTFOUND)
        cache_reply_number(c, 0, 0, 0, err);
    else
        cache_reply_number(c, rc, 1, lsn, err);
}

/* ---- parts of replies -------------------------------------------------------------------------------------------- */

static void reply_bytes(struct resp_buffer *out, struct quire_bytes bytes)
{
    if (bytes.n_bytes)
        resp_bulk(out, bytes.data, bytes.n_bytes);
    else
        resp_null(out);
}

void cache_reply_id(struct resp_buffer *out, uint64_t id)
{
    char text[ID_DIGITS + 1];
    snprintf(text, sizeof text, "%016" PRIx64, id);
    resp_bulk(out, text, ID_DIGITS);
}

void cache_field_integer(struct resp_buffer *out, const char *name, long long value)
{
    resp_text(out, name);
    resp_integer(out, value);
}

void cache_field_double(struct resp_buffer *out, const char *name, double value)
{
    resp_text(out, name);
    resp_double(out, value);
}

void cache_field_text(struct resp_buffer *out, const char *name, const char *value)
{
    resp_text(out, name);
    resp_text(out, value);
}

void cache_field_bytes(struct resp_buffer *out, const char *name, struct quire_bytes value)
{
    resp_text(out, name);
    reply_bytes(out, value);
}

void cache_field_id(struct resp_buffer *out, const char *name, uint64_t id)
{
    resp_text(out, name);
    cache_reply_id(out, id);
}

long long cache_ttl(uint64_t expire_ms, uint64_t now_ms)
{
    return expire_ms == UINT64_MAX ? -1 : expire_ms > now_ms ? (long long)(expire_ms - now_ms) : 0;
}

/* ---- documents of several entries -------------------------------------------------------------------------------- */

/* Copies what is wanted out of a document. */
static void take_document(const struct cache_reading *r, struct cache_text *item, const uint8_t *bytes)
{
    struct document document;
    size_t n;
    if (document_decode(bytes, item->at.bytes, &document, &n, NULL) < 0 || document.id != item->id)
        return;
    struct quire_bytes value = r->with_values ? document_value(&document) : (struct quire_bytes){NULL, 0};
    size_t kept = document.text.n_bytes + value.n_bytes + 1;
    item->bytes = caller_hold(r->pending, kept) ? malloc(kept) : NULL;
    if (!item->bytes)
        return;
    if (document.text.n_bytes)
        memcpy(item->bytes, document.text.data, document.text.n_bytes);
    if (value.n_bytes)
        memcpy(item->bytes + document.text.n_bytes, value.data, value.n_bytes);
    item->text = document.text.n_bytes;
    item->value = value.n_bytes;
    item->found = true;
}

static void start_more(struct cache_reading *r);

static void on_read(struct io_op *op, int result, unsigned flags)
{
    struct cache_read_slot *slot = op->owner;
    struct cache_reading *r = slot->reading;
    (void)flags;
    if (document_read_bytes(&slot->read, result, NULL) == 0)
        take_document(r, &r->items[slot->item], slot->read.bytes);
    document_read_end(&slot->read);
    caller_let_go(r->pending, slot->read.at.bytes);
    slot->busy = false;
    r->running--;
    start_more(r);
}

static void start_more(struct cache_reading *r)
{
    uint32_t at = 0;
    while (r->next < r->n && r->running < CACHE_READS) {
        while (r->slots[at].busy)
            at++;
        struct cache_read_slot *slot = &r->slots[at];
        struct cache_text *item = &r->items[r->next];
        slot->item = r->next++;
        if (!caller_hold(r->pending, item->at.bytes))
            continue; /* its client goes */
        int rc = item->at.segment ? document_read_begin(r->log, &item->at, &slot->read, NULL) : QUIRE_ENOTFOUND;
        if (rc == DOCUMENT_IN_MEMORY) {
            take_document(r, item, slot->read.bytes);
            document_read_end(&slot->read);
        }
        if (rc != DOCUMENT_ON_DISK) {
            caller_let_go(r->pending, item->at.bytes);
            continue;
        }
        slot->reading = r;
        slot->busy = true;
        slot->read.op.done = on_read;
        slot->read.op.owner = slot;
        r->running++;
        engine_queue(r->lane->engine, &slot->read.op);
    }
    if (r->running == 0)
        r->done(r);
}

void cache_reading_start(struct cache_reading *reading)
{
    start_more(reading);
}

void cache_reading_fini(struct cache_reading *reading)
{
    for (uint32_t i = 0; i < reading->n; i++)
        free(reading->items[i].bytes);
}
