/*
 * document_log_append.c - which segment a document goes to, appending, and counting what lives.
 *
 * A document's class is its remaining TTL: below 1 minute, below 2, below 4, ...; documents that never expire have
 * their own. Each class has one open segment, which takes documents for a quarter of the class's longest TTL: what
 * comes at any moment differs in expiry by half of that TTL at most, so all of a segment expires within three quarters
 * of it, and answers with one TTL within a quarter. (An end by the spread of expiry itself would let two TTLs of one
 * class take turns at ending each other's segments.)
 *
 * At most options.groups segments are open. Where a class needs one more, the one that was appended to longest ago ends
 * if it is idle or half full; else the document goes to the open segment of the nearest class. Without that, one class
 * too many would leave a segment for every document.
 *
 * Appending makes a place, not a file: the thread makes it (document_log_write.c). A place is given once and never
 * again, but for copies that compaction made of documents nobody wants any more: they were told to nobody, and taking
 * them back saves writing them.
 */
#include "cache/document/document_log_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

#define CLASS_FIRST_MS 60000u
#define IDLE_MS        60000u
#define NUMBERS_AHEAD  (1u << 20) /* of the clock's: a number beyond is believed of nobody */

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static bool never_expires(uint64_t expire_ms)
{
    return expire_ms == 0 || expire_ms == UINT64_MAX;
}

uint64_t document_log_class_ttl_ms(unsigned class)
{
    return class < LOG_CLASSES - 1 ? (uint64_t)CLASS_FIRST_MS << class : UINT64_MAX;
}

uint64_t document_log_class_open_ms(unsigned class)
{
    if (class == LOG_CLASS_NEVER)
        return UINT64_MAX;
    return ((uint64_t)CLASS_FIRST_MS << class) / 4;
}

static unsigned class_of(uint64_t expire_ms, uint64_t now_ms)
{
    if (never_expires(expire_ms))
        return LOG_CLASS_NEVER;
    uint64_t ttl = expire_ms > now_ms ? expire_ms - now_ms : 0;
    unsigned class = 0;
    while (ttl >= document_log_class_ttl_ms(class))
        class ++;
    return class;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* Ends appending to a segment. Under `lock`. */
static void close_segment(struct document_log *log, struct document_log_segment *segment)
{
    uint32_t before = log->n_open;
    assert(lock_is_held(&log->lock) && segment->open);
    for (unsigned i = 0; i < log->n_open; i++)
        if (log->open[i] == segment)
            log->open[i] = log->open[--log->n_open];
    assert(log->n_open == before - 1);
    segment->open = false;
    if (segment->documents == 0)
        log->ripe = true;
}

static bool is_aged(const struct document_log_segment *segment, uint64_t now_ms)
{
    uint64_t open_ms = document_log_class_open_ms(segment->class);
    return open_ms != UINT64_MAX && now_ms > segment->created_ms && now_ms - segment->created_ms > open_ms;
}

void document_log_close_aged(struct document_log *log, uint64_t now_ms)
{
    for (unsigned i = log->n_open; i-- > 0;)
        if (is_aged(log->open[i], now_ms))
            close_segment(log, log->open[i]);
}

static bool has_capacity(const struct document_log *log, const struct document_log_segment *segment, uint32_t bytes)
{
    return segment->bytes == LOG_HEADER_BYTES || segment->bytes + bytes <= log->options.segment_bytes;
}

/* The segment that a document goes to; NULL without memory. */
static struct document_log_segment *pick_segment(struct document_log *log, unsigned class, uint32_t bytes,
                                                 uint64_t now_ms)
{
    struct document_log_segment *segment = log->n_open ? log->open[0] : NULL; /* the nearest class */
    for (unsigned i = 1; i < log->n_open; i++)
        if (abs((int)log->open[i]->class - (int)class) < abs((int)segment->class - (int)class))
            segment = log->open[i];
    if (segment && segment->class == class && !is_aged(segment, now_ms) && has_capacity(log, segment, bytes))
        return segment;
    if (segment && segment->class != class && log->n_open == log->options.groups) {
        /* The open segment that was appended to longest ago. */
        struct document_log_segment *oldest = log->open[0];
        for (unsigned i = 1; i < log->n_open; i++)
            if (log->open[i]->appended_ms < oldest->appended_ms)
                oldest = log->open[i];
        bool idle = now_ms > oldest->appended_ms && now_ms - oldest->appended_ms > IDLE_MS;
        if (!idle && oldest->bytes < log->options.segment_bytes / 2 && has_capacity(log, segment, bytes))
            return segment;
        segment = idle || oldest->bytes >= log->options.segment_bytes / 2 ? oldest : segment;
        close_segment(log, segment);
    } else if (segment && segment->class == class) {
        close_segment(log, segment);
    }
    struct document_log_segment *opened = log->next_number ? calloc(1, sizeof *opened) : NULL;
    if (!opened)
        return NULL;
    *opened = (struct document_log_segment){.number = log->next_number,
                                            .class = class,
                                            .open = true,
                                            .bytes = LOG_HEADER_BYTES,
                                            .created_ms = now_ms,
                                            .appended_ms = now_ms};
    if (document_log_enter_segment(log, opened) < 0) {
        free(opened);
        return NULL;
    }
    assert(log->n_open < log->options.groups);
    log->next_number++;
    log->open[log->n_open++] = opened;
    return opened;
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

int document_log_append(struct document_log *log, const uint8_t *document, uint32_t bytes, uint64_t expire_ms,
                        struct document_at *at, struct quire_error *err)
{
    if (bytes < DOCUMENT_UNIT || bytes % DOCUMENT_UNIT || bytes > DOCUMENT_BYTES_MAX ||
        bytes > log->options.buffer_bytes)
        return error_set(err, QUIRE_ELIMIT, "a document of %u bytes: a multiple of %u up to %llu is right", bytes,
                         DOCUMENT_UNIT,
                         (unsigned long long)(log->options.buffer_bytes < DOCUMENT_BYTES_MAX ? log->options.buffer_bytes
                                                                                             : DOCUMENT_BYTES_MAX));
    struct resident *resident = document_log_resident_new(&(struct document_at){.bytes = bytes}, document);
    if (!resident)
        return error_set(err, QUIRE_ENOMEM, "no memory for a document of %u bytes", bytes);
    uint64_t now_ms = document_log_now_ms(log);
    pthread_mutex_lock(&log->lock);
    int rc = log->failure.code;
    if (rc < 0 && err)
        *err = log->failure;
    if (rc == 0 && log->stats.buffered_bytes + bytes > log->options.buffer_bytes)
        rc = error_set(err, QUIRE_EBUSY,
                       "the disk is behind: %llu bytes of documents wait to be written, at most %llu may: try again",
                       (unsigned long long)log->stats.buffered_bytes, (unsigned long long)log->options.buffer_bytes);
    struct document_log_segment *segment =
        rc < 0 ? NULL : pick_segment(log, class_of(expire_ms, now_ms), bytes, now_ms);
    if (segment) {
        uint64_t before = log->stats.buffered_bytes, expire = never_expires(expire_ms) ? UINT64_MAX : expire_ms;
        assert(lock_is_held(&log->lock) && segment->open && segment->bytes % DOCUMENT_UNIT == 0);
        resident->segment = segment->number;
        resident->unit = (uint32_t)(segment->bytes / DOCUMENT_UNIT);
        resident->pending = true;
        document_log_index_add(log, resident);
        document_log_list_push(&segment->queue, resident);
        segment->bytes += resident->bytes;
        segment->live_bytes += resident->bytes;
        segment->documents++;
        segment->appended_ms = now_ms;
        if (expire > segment->last_expire_ms)
            segment->last_expire_ms = expire;
        log->stats.appended_bytes += resident->bytes;
        log->stats.buffered_bytes += resident->bytes;
        if (before == 0)
            log->filled_ns = clock_ns();
        if (before == 0 || (before < LOG_WRITE_BYTES && log->stats.buffered_bytes >= LOG_WRITE_BYTES))
            pthread_cond_signal(&log->wake);
        *at = (struct document_at){resident->segment, resident->unit, bytes};
    } else if (rc == 0) {
        rc = error_set(err, log->next_number ? QUIRE_ENOMEM : QUIRE_ELIMIT,
                       "no segment for a document in %s: there is no %s", log->folder,
                       log->next_number ? "memory" : "number left");
    }
    pthread_mutex_unlock(&log->lock);
    if (rc < 0)
        free(resident);
    return rc;
}

/* ---- what lives -------------------------------------------------------------------------------------------------- */

bool document_log_adopt(struct document_log *log, const struct document_at *at)
{
    uint64_t offset = (uint64_t)at->unit * DOCUMENT_UNIT;
    pthread_mutex_lock(&log->lock);
    struct document_log_segment *segment = document_log_find_segment(log, at->segment);
    bool there = segment && at->bytes > 0 && offset >= LOG_HEADER_BYTES && offset + at->bytes <= segment->bytes;
    if (there) {
        segment->documents++;
        segment->live_bytes += at->bytes;
    }
    /* a file that a crash kept from being made: another one of its number would take its place in the entry's eyes */
    if (log->next_number && at->segment - log->next_number < NUMBERS_AHEAD)
        log->next_number = at->segment + 1;
    pthread_mutex_unlock(&log->lock);
    return there;
}

void document_log_drop(struct document_log *log, const struct document_at *at)
{
    pthread_mutex_lock(&log->lock);
    struct document_log_segment *segment = document_log_find_segment(log, at->segment);
    assert(segment && segment->documents > 0 && segment->live_bytes >= at->bytes);
    segment->documents--;
    segment->live_bytes -= at->bytes;
    segment->drops++;
    document_log_forget(log, at);
    if (segment->documents == 0 && !segment->open && log->begun) {
        log->ripe = true;
        pthread_cond_signal(&log->wake);
    }
    pthread_mutex_unlock(&log->lock);
}
