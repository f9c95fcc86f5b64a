/*
 * document_log_compact.c - what still lives in a segment that is mostly dead goes elsewhere.
 *
 * Worth it is a segment that takes no more documents, of which less than half lives, and whose documents do not expire
 * soon anyway: at least a minute and an eighth of its class's TTL must be left, else waiting is cheaper. Of those the
 * one goes of which the least share lives; one per round.
 *
 * The segment is read from front to back. The log does not know which of its documents live: the host is asked (lives),
 * and those are appended as new ones would be. When some have come together they are written and synced, and only then
 * the host hears of their new places (moved): a crash finds it with the old place or with the new one, and the document
 * at both. What died meanwhile is dropped at the new place too. Between documents there may be damage: then the reading
 * goes on with the next unit at which a document is whole. Bytes inside of a damaged document that look like one do no
 * harm, since no entry of the host points there.
 *
 * What lives and was not moved stays counted, and so the segment stays: a document that is not whole, whose
 * readers find out, or one whose place the host has been told but not yet noted. For the latter it is tried again,
 * three times in all.
 */
#include "cache/document/document_log_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"

#define SOON_MS   60000u
#define RETRY_NS  10000000000ull
#define TRIES_MAX 3u
#define MOVES_MAX 256u

/* Documents that are copied, and of which the host does not know yet. */
struct moves {
    struct {
        uint64_t id;
        struct document_at from, to;
    } list[MOVES_MAX];
    unsigned n;
    uint64_t bytes;
};

static bool is_worth(const struct document_log_segment *segment, uint64_t now_ms)
{
    if (segment->open || !segment->file || segment->queue.first || segment->documents == 0 ||
        segment->compact_tries >= TRIES_MAX || segment->live_bytes * 2 >= segment->bytes - LOG_HEADER_BYTES)
        return false;
    uint64_t ttl = document_log_class_ttl_ms(segment->class), soon = SOON_MS;
    if (ttl != UINT64_MAX && ttl / 8 > soon)
        soon = ttl / 8;
    return segment->last_expire_ms > now_ms && segment->last_expire_ms - now_ms > soon;
}

/* Puts the copies on the device and tells the host; where that fails, they are dropped. */
static int finish(struct document_log *log, struct moves *moves, struct quire_error *err)
{
    int rc = moves->n > 0 ? document_log_write_durably(log, err) : 0;
    uint64_t moved_bytes = 0;
    for (unsigned i = 0; i < moves->n; i++) {
        const struct document_at *from = &moves->list[i].from, *to = &moves->list[i].to;
        bool moved = rc == 0 && log->options.moved(log->options.host, moves->list[i].id, from, to);
        document_log_drop(log, moved ? from : to);
        moved_bytes += moved ? from->bytes : 0;
    }
    pthread_mutex_lock(&log->lock);
    log->stats.moved_bytes += moved_bytes;
    pthread_mutex_unlock(&log->lock);
    moves->n = 0;
    moves->bytes = 0;
    return rc;
}

/* Copies the document at an offset, if one is there that lives; *next: where to look then. */
static int visit(struct document_log *log, const struct document_log_segment *segment, struct document_window *window,
                 uint64_t offset, uint64_t *next, struct moves *moves, struct quire_error *err)
{
    struct document document;
    *next = offset + DOCUMENT_UNIT;
    int rc = document_check_at(window, segment->file, segment->disk, offset, &document, err);
    if (rc <= 0)
        return rc;
    uint32_t length = (uint32_t)document.packed.n_bytes;
    struct document_at from = {segment->number, (uint32_t)(offset / DOCUMENT_UNIT), length}, to;
    const uint8_t *bytes = document.packed.data;
    *next = offset + length;
    if (!log->options.lives(log->options.host, document.id, &from))
        return 0;
    rc = document_log_append(log, bytes, from.bytes, document.expire_ms, &to, err);
    if (rc == QUIRE_EBUSY && (rc = document_log_write_all(log, err)) == 0)
        rc = document_log_append(log, bytes, from.bytes, document.expire_ms, &to, err);
    if (rc < 0)
        return rc;
    moves->list[moves->n].id = document.id;
    moves->list[moves->n].from = from;
    moves->list[moves->n++].to = to;
    moves->bytes += length;
    return moves->n == MOVES_MAX || moves->bytes >= LOG_WRITE_BYTES ? finish(log, moves, err) : 0;
}

/* Whether something lives in it still, and nobody waits for the log's end. */
static bool goes_on(struct document_log *log, const struct document_log_segment *segment)
{
    pthread_mutex_lock(&log->lock);
    bool on = segment->documents > 0 && !log->stop;
    pthread_mutex_unlock(&log->lock);
    return on;
}

int document_log_compact(struct document_log *log, struct quire_error *err)
{
    bool may = log->options.moved && clock_ns() >= log->compact_ns;
    struct document_log_segment *segment = NULL; /* of which the least share lives */
    if (may) {
        uint64_t now_ms = document_log_now_ms(log);
        pthread_mutex_lock(&log->lock);
        for (size_t i = 0; log->begun && i < log->n_segments; i++) {
            struct document_log_segment *at = log->segments[i];
            if (is_worth(at, now_ms) && (!segment || (double)at->live_bytes / (double)at->bytes <
                                                         (double)segment->live_bytes / (double)segment->bytes))
                segment = at;
        }
        pthread_mutex_unlock(&log->lock);
    }
    struct document_window window = {0};
    struct moves moves = {.n = 0};
    struct quire_error why = {0};
    int rc = 0;
    assert(lock_is_held(&log->work));
    if (!segment)
        return 0;
    assert(!segment->open && segment->file && segment->disk == segment->bytes);
    pthread_mutex_lock(&log->lock);
    segment->keep_syncs = LOG_KEEP_SYNCS;
    log->dirty = true;
    pthread_mutex_unlock(&log->lock);
    uint64_t offset = LOG_HEADER_BYTES;
    while (rc == 0 && offset < segment->disk && goes_on(log, segment))
        rc = visit(log, segment, &window, offset, &offset, &moves, &why);
    int finished = finish(log, &moves, rc == 0 ? &why : NULL); /* what was copied before a failure as well */
    rc = rc == 0 ? finished : rc;
    pthread_mutex_lock(&log->lock);
    uint64_t left = segment->documents;
    log->stats.compactions++;
    log->ripe = log->ripe || left == 0;                /* perhaps another is worth it */
    segment->compact_tries += offset >= segment->disk; /* to the end */
    pthread_mutex_unlock(&log->lock);
    if (rc < 0) {
        log->compact_ns = clock_ns() + RETRY_NS;
        document_log_say(log, true, "cannot compact %s: %s", segment->file->path, why.message);
    } else if (window.damaged_units > 0 && left > 0 && segment->compact_tries == 1) {
        document_log_say(log, true, "%s is damaged: %llu documents of it are lost", segment->file->path,
                         (unsigned long long)left);
    }
    memory_free(window.bytes);
    if (rc < 0 && err)
        *err = why;
    return rc;
}
