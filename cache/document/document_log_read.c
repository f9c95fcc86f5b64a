/*
 * document_log_read.c - reading documents, and those in memory: waiting to be written, or read lately.
 *
 * One hash table of (segment, unit) holds both kinds. A document is in it from before its place is told to anybody, and
 * when it is written, the lock under which it may leave the table is the one under which the segment's length on the
 * disk grows: a reader finds it here or there, always. A document that is dropped leaves the table at once; where it
 * still waits it is written all the same, since what lies behind it has its place already. Who reads a dropped document
 * before its segment is removed may make it hot again; with the segment it goes for good.
 *
 * Hot documents stand in the order of their last read; the one read longest ago goes first. Copies are made without the
 * lock, of a document that is counted (copies), so a large answer holds up nobody.
 *
 * Reads from the disk are whole pages into aligned memory, as O_DIRECT wants them: the kernel keeps no second copy.
 */
#include "cache/document/document_log_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/random.h"
#include <stdlib.h>
#include <string.h>

#define HOT_SHARE 4u /* a document above 1/4 of the cache would only push the others out */

/* ---- lists and the table ----------------------------------------------------------------------------------------- */

void document_log_list_push(struct resident_list *list, struct resident *resident)
{
    resident->next = NULL;
    resident->prev = list->last;
    if (list->last)
        list->last->next = resident;
    else
        list->first = resident;
    list->last = resident;
}

void document_log_list_remove(struct resident_list *list, struct resident *resident)
{
    if (resident->prev)
        resident->prev->next = resident->next;
    else
        list->first = resident->next;
    if (resident->next)
        resident->next->prev = resident->prev;
    else
        list->last = resident->prev;
    resident->next = resident->prev = NULL;
}

struct resident *document_log_resident_new(const struct document_at *at, const uint8_t *bytes)
{
    struct resident *resident = malloc(sizeof *resident + at->bytes);
    if (!resident)
        return NULL;
    *resident = (struct resident){.segment = at->segment, .unit = at->unit, .bytes = at->bytes};
    memcpy(resident->data, bytes, at->bytes);
    return resident;
}

static struct resident **bucket_of(const struct document_log *log, uint32_t segment, uint32_t unit)
{
    return &log->buckets[random_mix((uint64_t)segment << 32 | unit) & (log->n_buckets - 1)];
}

void document_log_index_add(struct document_log *log, struct resident *resident)
{
    struct resident **bucket = bucket_of(log, resident->segment, resident->unit);
    assert(lock_is_held(&log->lock) && !resident->indexed);
    resident->chain = *bucket;
    resident->indexed = true;
    *bucket = resident;
}

static struct resident *index_find(const struct document_log *log, uint32_t segment, uint32_t unit)
{
    struct resident *resident = *bucket_of(log, segment, unit);
    while (resident && (resident->segment != segment || resident->unit != unit))
        resident = resident->chain;
    return resident;
}

static void index_remove(struct document_log *log, struct resident *resident)
{
    struct resident **at = bucket_of(log, resident->segment, resident->unit);
    assert(resident->indexed);
    while (*at != resident)
        at = &(*at)->chain;
    *at = resident->chain;
    resident->indexed = false;
}

void document_log_release(struct resident *resident)
{
    if (!resident->indexed && !resident->pending && resident->copies == 0)
        free(resident);
}

/* ---- the hot ones ------------------------------------------------------------------------------------------------ */

static uint64_t hot_cost(const struct resident *resident)
{
    return sizeof *resident + resident->bytes;
}

static void hot_remove(struct document_log *log, struct resident *resident)
{
    assert(!resident->pending && log->stats.hot_bytes >= hot_cost(resident));
    document_log_list_remove(&log->hot, resident);
    log->stats.hot_bytes -= hot_cost(resident);
    index_remove(log, resident);
    document_log_release(resident);
}

/* Makes an indexed document the one that was read last. */
static void hot_add(struct document_log *log, struct resident *resident)
{
    assert(resident->indexed && !resident->pending);
    document_log_list_push(&log->hot, resident);
    log->stats.hot_bytes += hot_cost(resident);
    while (log->stats.hot_bytes > log->options.hot_bytes)
        hot_remove(log, log->hot.first); /* NOLINT(clang-analyzer-unix.Malloc): what was freed is in no list */
}

static bool hot_takes(const struct document_log *log, uint64_t bytes)
{
    return sizeof(struct resident) + bytes <= log->options.hot_bytes / HOT_SHARE;
}

void document_log_forget(struct document_log *log, const struct document_at *at)
{
    struct resident *resident = index_find(log, at->segment, at->unit);
    assert(lock_is_held(&log->lock));
    if (resident && resident->pending)
        index_remove(log, resident);
    else if (resident)
        hot_remove(log, resident);
}

void document_log_forget_segment(struct document_log *log, uint32_t number)
{
    for (struct resident *resident = log->hot.first, *next; resident; resident = next) {
        next = resident->next;
        if (resident->segment == number)
            hot_remove(log, resident);
    }
}

void document_log_settle_first(struct document_log *log, struct document_log_segment *segment)
{
    struct resident *resident = segment->queue.first;
    assert(resident->pending && log->stats.buffered_bytes >= resident->bytes);
    document_log_list_remove(&segment->queue, resident);
    resident->pending = false;
    log->stats.buffered_bytes -= resident->bytes;
    if (resident->indexed && resident->wanted && hot_takes(log, resident->bytes)) {
        hot_add(log, resident);
        return;
    }
    if (resident->indexed)
        index_remove(log, resident);
    document_log_release(resident);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A document in memory that is counted as being copied, or NULL. */
static struct resident *take_resident(struct document_log *log, const struct document_at *at)
{
    struct resident *resident = index_find(log, at->segment, at->unit);
    if (!resident || resident->bytes != at->bytes)
        return NULL;
    log->stats.hot_hits++;
    resident->copies++;
    if (resident->pending) {
        resident->wanted = true;
    } else {
        document_log_list_remove(&log->hot, resident);
        document_log_list_push(&log->hot, resident);
    }
    return resident;
}

/* A segment that has the document on the disk, with one read more under way; or NULL. */
static struct document_log_segment *take_segment(struct document_log *log, const struct document_at *at)
{
    struct document_log_segment *segment = document_log_find_segment(log, at->segment);
    uint64_t offset = (uint64_t)at->unit * DOCUMENT_UNIT;
    if (!segment || !segment->file || at->bytes == 0 || offset < LOG_HEADER_BYTES || offset + at->bytes > segment->disk)
        return NULL;
    log->stats.hot_misses++;
    segment->reads++;
    return segment;
}

int document_read_begin(struct document_log *log, const struct document_at *at, struct document_read *out,
                        struct quire_error *err)
{
    pthread_mutex_lock(&log->lock);
    struct resident *resident = take_resident(log, at);
    struct document_log_segment *segment = resident ? NULL : take_segment(log, at);
    uint32_t drops = segment ? segment->drops : 0;
    pthread_mutex_unlock(&log->lock);
    if (resident) {
        uint8_t *copy = memory_aligned(64, at->bytes);
        if (copy)
            memcpy(copy, resident->data, at->bytes);
        pthread_mutex_lock(&log->lock);
        assert(resident->copies > 0);
        resident->copies--;
        document_log_release(resident);
        pthread_mutex_unlock(&log->lock);
        if (!copy)
            return error_set(err, QUIRE_ENOMEM, "no memory for a document of %u bytes", at->bytes);
        *out = (struct document_read){.log = log, .at = *at, .buffer = copy, .bytes = copy};
        return DOCUMENT_IN_MEMORY;
    }
    if (segment) {
        uint64_t offset = (uint64_t)at->unit * DOCUMENT_UNIT, begin = offset / LOG_PAGE * LOG_PAGE;
        uint32_t bytes = (uint32_t)((offset + at->bytes - begin + LOG_PAGE - 1) / LOG_PAGE * LOG_PAGE);
        struct document_read read = {.log = log, .at = *at, .segment = segment, .drops = drops};
        read.buffer = memory_aligned(LOG_PAGE, bytes);
        if (!read.buffer) {
            document_read_end(&read);
            return error_set(err, QUIRE_ENOMEM, "no memory for a read of %u bytes", bytes);
        }
        read.op = (struct io_op){
            .kind = IO_READ, .file = segment->file, .buffer = read.buffer, .bytes = bytes, .offset = begin};
        *out = read;
        return DOCUMENT_ON_DISK;
    }
    return error_set(err, QUIRE_ENOTFOUND, "there is no document at unit %u of segment %u: it was dropped", at->unit,
                     at->segment);
}

int document_read_bytes(struct document_read *read, int result, struct quire_error *err)
{
    assert(read->segment && !read->bytes);
    uint32_t skip = (uint32_t)((uint64_t)read->at.unit * DOCUMENT_UNIT - read->op.offset);
    if (result < 0)
        return error_set(err, result, "read of %s at offset %llu: %s", read->op.file->path,
                         (unsigned long long)read->op.offset, quire_error_text(result));
    if ((uint32_t)result < skip + read->at.bytes)
        return error_set(err, QUIRE_ESHORTREAD,
                         "read of %s at offset %llu gave %d bytes of the %u up to the document's end",
                         read->op.file->path, (unsigned long long)read->op.offset, result, skip + read->at.bytes);
    read->bytes = read->buffer + skip;
    struct document_log *log = read->log;
    const struct document_log_segment *segment = read->segment;
    /* kept, unless something of its segment was dropped meanwhile: it may have been this document */
    struct resident *resident =
        hot_takes(log, read->at.bytes) ? document_log_resident_new(&read->at, read->bytes) : NULL;
    if (resident) {
        pthread_mutex_lock(&log->lock);
        if (!segment->gone && segment->drops == read->drops && !index_find(log, read->at.segment, read->at.unit)) {
            document_log_index_add(log, resident);
            hot_add(log, resident);
            resident = NULL;
        }
        pthread_mutex_unlock(&log->lock);
        free(resident);
    }
    return 0;
}

void document_read_end(struct document_read *read)
{
    struct document_log_segment *segment = read->segment;
    if (segment) {
        pthread_mutex_lock(&read->log->lock);
        assert(segment->reads > 0);
        segment->reads--;
        pthread_mutex_unlock(&read->log->lock);
    }
    memory_free(read->buffer);
    read->buffer = read->bytes = NULL;
    read->segment = NULL;
}
