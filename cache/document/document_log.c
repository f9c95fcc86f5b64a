/*
 * document_log.c - the log of documents: opening, ending, accounting. The other verbs have files of their own:
 *
 *   document_log_append.c   which segment a document goes to; appending, dropping
 *   document_log_write.c    the thread: writing, syncing, removing, failures
 *   document_log_read.c     reading, and the documents in memory
 *   document_log_compact.c  moving what lives out of segments that are mostly dead
 *   document_log_format.c   a segment's first page
 *
 * Rules:
 *   1. A segment is written by the process that made it, from front to back, and by no later one. Opening reads the
 *      first page of each and takes the file's size for its end; what a crash left of the last documents is checked
 *      when it is read.
 *   2. The log counts what lives in a segment and knows no single document. The host tells it: append and adopt count
 *      up, drop counts down, and a segment of which nothing lives is removed.
 *   3. Numbers go up and are not used again. A new log begins at the time in seconds or behind the highest number
 *      there, whichever is higher: so an entry that a crash brought back does not point into a younger segment even
 *      where all the files between are gone. (If it did, the reader would still see another id.)
 *   4. Each segment keeps its file open, since opening one would cost a hit more than the read does.
 */
#include "cache/document/document_log_priv.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT_BYTES_MAX (1ull << 28) /* a cache keeps 24 bits of a place, in units of DOCUMENT_UNIT */
#define NAME_END          ".docs"

uint64_t document_log_now_ms(const struct document_log *log)
{
    return log->options.clock_ms(log->options.clock_context);
}

static uint64_t system_ms(void *context)
{
    (void)context;
    return clock_wall_ms();
}

void document_log_say(const struct document_log *log, bool warning, const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (!log->options.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log->options.log(log->options.log_context, warning, line);
}

char *document_log_path(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

void document_log_segment_name(char name[LOG_NAME_BYTES], uint32_t number)
{
    snprintf(name, LOG_NAME_BYTES, "%016x" NAME_END, number);
}

/* ---- the table of segments --------------------------------------------------------------------------------------- */

struct document_log_segment *document_log_find_segment(const struct document_log *log, uint32_t number)
{
    size_t at;
    array_find_first(at, 0, log->n_segments, log->segments[at]->number < number);
    return at < log->n_segments && log->segments[at]->number == number ? log->segments[at] : NULL;
}

int document_log_enter_segment(struct document_log *log, struct document_log_segment *segment)
{
    if (!array_reserve(&log->segments, &log->segments_capacity, log->n_segments + 1))
        return QUIRE_ENOMEM;
    log->segments[log->n_segments++] = segment;
    return 0;
}

void document_log_free_segment(struct document_log *log, struct document_log_segment *segment)
{
    assert(segment->reads == 0);
    while (segment->queue.first) {
        segment->queue.first->wanted = false;
        document_log_settle_first(log, segment);
    }
    fs_close(segment->file);
    free(segment->tail);
    free(segment);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

uint32_t document_log_parse_name(const char *name)
{
    char again[LOG_NAME_BYTES];
    unsigned long long number = strtoull(name, NULL, 16);
    if (number == 0 || number > UINT32_MAX)
        return 0;
    document_log_segment_name(again, (uint32_t)number);
    return strcmp(name, again) == 0 ? (uint32_t)number : 0;
}

static int note_segment(void *context, const char *name)
{
    struct document_log *log = context;
    uint32_t number = document_log_parse_name(name);
    if (number == 0)
        return 0;
    struct document_log_segment *segment = calloc(1, sizeof *segment);
    if (!segment || document_log_enter_segment(log, segment) < 0) {
        free(segment);
        return QUIRE_ENOMEM;
    }
    segment->number = number;
    segment->made = segment->old = true;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct document_log_segment *const *first = a, *const *second = b;
    return (*first)->number < (*second)->number ? -1 : (*first)->number > (*second)->number;
}

static int stop_at_first(void *context, const struct document *document, uint32_t unit)
{
    (void)context, (void)document, (void)unit;
    return 1;
}

/* A file that is there. One of which nothing can be served has no bytes, and goes with the first round if no entry
 * needs it. */
static int open_segment(struct document_log *log, struct document_log_segment *segment, uint8_t *page, bool *is_own,
                        struct quire_error *err)
{
    char name[LOG_NAME_BYTES];
    struct document_judgement judgement;
    struct document_segment found = {0};
    uint64_t durable = document_extent_of(log->extents, log->options.n_extents, segment->number);
    document_log_segment_name(name, segment->number);
    char *path = document_log_path(log->folder, name);
    int rc = path ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to open the segments of %s", log->folder);
    if (rc == 0)
        rc = fs_open(log->fs, path, FS_READ | FS_DIRECT, &segment->file, err);
    ssize_t n = rc == 0 ? log->fs->ops->read(segment->file, page, LOG_HEADER_BYTES, 0) : 0;
    if (n < 0)
        rc = error_set(err, (int)n, "cannot read %s: %s", path, quire_error_text((int)n));
    if (rc == 0)
        rc = document_log_header_decode(path, page, (size_t)n, segment, err);
    enum document_header header = rc < 0 ? DOCUMENT_HEADER_NONE : (enum document_header)rc;
    if (rc > DOCUMENT_HEADER_WHOLE) {
        segment->class = LOG_CLASS_NEVER;
        segment->last_expire_ms = UINT64_MAX;
        rc = document_scan(log->fs, path, segment->number, stop_at_first, NULL, &found, err);
    }
    if (rc == 0) {
        document_judge(header, found.documents > 0, durable, &judgement);
        *is_own = judgement.use != DOCUMENTS_OTHERS;
        if (judgement.use == DOCUMENTS_SERVED)
            segment->bytes = segment->disk = segment->synced = segment->file->bytes / DOCUMENT_UNIT * DOCUMENT_UNIT;
        segment->told = durable < segment->synced ? durable : segment->synced;
        if (judgement.what)
            document_log_say(log, true, "%s: %s", path, judgement.what);
    }
    free(path);
    return rc;
}

static int open_segments(struct document_log *log, struct quire_error *err)
{
    uint8_t *page = memory_aligned(LOG_PAGE, LOG_HEADER_BYTES);
    int rc = page ? log->fs->ops->list(log->fs, log->folder, note_segment, log) : QUIRE_ENOMEM;
    if (rc == QUIRE_ENOFILE && log->options.read_only)
        rc = 0;
    if (rc < 0)
        error_set(err, rc, "cannot list %s: %s", log->folder, quire_error_text(rc));
    if (log->n_segments)
        qsort(log->segments, log->n_segments, sizeof(struct document_log_segment *), by_number);
    uint32_t highest = log->n_segments ? log->segments[log->n_segments - 1]->number : 0;
    size_t kept = 0;
    for (size_t i = 0; i < log->n_segments; i++) { /* those of others are not this log's */
        struct document_log_segment *segment = log->segments[i];
        bool is_own = true;
        rc = rc == 0 ? open_segment(log, segment, page, &is_own, err) : rc;
        if (is_own)
            log->segments[kept++] = segment;
        else
            document_log_free_segment(log, segment);
    }
    log->n_segments = kept;
    memory_free(page);
    uint64_t seconds = document_log_now_ms(log) / 1000, next = seconds < UINT32_MAX ? seconds : UINT32_MAX;
    log->next_number = next > highest ? (uint32_t)next : highest + 1;
    return rc;
}

static int take_options(struct document_log *log, const struct document_log_options *options, struct quire_error *err)
{
    struct document_log_options *own = &log->options;
    *own = *options;
    own->segment_bytes = own->segment_bytes ? own->segment_bytes : 32u << 20;
    own->buffer_bytes = own->buffer_bytes ? own->buffer_bytes : 32u << 20;
    own->hot_bytes = own->hot_bytes ? own->hot_bytes : 8u << 20;
    own->groups = own->groups ? own->groups : 8;
    own->clock_ms = own->clock_ms ? own->clock_ms : system_ms;
    if (own->groups > LOG_GROUPS_MAX)
        return error_set(err, QUIRE_ERANGE, "%u groups of documents: at most %u", own->groups, LOG_GROUPS_MAX);
    if (own->segment_bytes > SEGMENT_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "segments of %llu bytes: at most %llu",
                         (unsigned long long)own->segment_bytes, SEGMENT_BYTES_MAX);
    log->fs = options->fs ? options->fs : fs_real();
    log->folder = strdup(options->folder);
    log->extents = malloc(sizeof *log->extents * (options->n_extents + (size_t)1));
    if (log->extents && options->n_extents)
        memcpy(log->extents, options->extents, sizeof *log->extents * options->n_extents);
    own->extents = NULL; /* the caller's */
    log->buffer = memory_aligned(LOG_PAGE, LOG_WRITE_BYTES);
    log->n_buckets = 1024;
    while (log->n_buckets < (own->buffer_bytes + own->hot_bytes) / 2048 && log->n_buckets < 1u << 24)
        log->n_buckets *= 2;
    log->buckets = calloc(log->n_buckets, sizeof(struct resident *));
    return log->folder && log->buffer && log->buckets && log->extents
               ? 0
               : error_set(err, QUIRE_ENOMEM, "no memory for a document log");
}

static void free_log(struct document_log *log)
{
    for (size_t i = 0; i < log->n_segments; i++)
        document_log_free_segment(log, log->segments[i]);
    while (log->gone) {
        struct document_log_segment *next = log->gone->next_gone;
        document_log_free_segment(log, log->gone);
        log->gone = next;
    }
    while (log->hot.first) {
        struct resident *next = log->hot.first->next;
        free(log->hot.first);
        log->hot.first = next;
    }
    pthread_cond_destroy(&log->wake);
    pthread_mutex_destroy(&log->lock);
    pthread_mutex_destroy(&log->work);
    free(log->segments);
    free(log->buckets);
    free(log->extents);
    memory_free(log->buffer);
    free(log->folder);
    free(log);
}

int document_log_open(const struct document_log_options *options, struct document_log **out, struct quire_error *err)
{
    struct document_log *log = calloc(1, sizeof *log);
    pthread_condattr_t monotonic;
    if (!log)
        return error_set(err, QUIRE_ENOMEM, "no memory for a document log");
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&log->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&log->lock, NULL);
    pthread_mutex_init(&log->work, NULL);
    int rc = take_options(log, options, err);
    if (rc == 0 && !log->options.read_only) {
        /* Makes the folder, durably. */
        rc = log->fs->ops->mkdir(log->fs, log->folder);
        if (rc == 0) {
            char *parent = strdup(log->folder), *slash = parent ? strrchr(parent, '/') : NULL;
            if (slash)
                slash[slash == parent] = '\0';
            rc = parent ? log->fs->ops->sync_dir(log->fs, slash ? parent : ".") : QUIRE_ENOMEM;
            free(parent);
        }
        rc = rc == 0 || rc == QUIRE_EEXISTS
                 ? 0
                 : error_set(err, rc, "cannot make the folder %s: %s", log->folder, quire_error_text(rc));
    }
    if (rc == 0)
        rc = open_segments(log, err);
    if (rc < 0) {
        free_log(log);
        return rc;
    }
    *out = log;
    return 0;
}

int document_log_begin(struct document_log *log, struct quire_error *err)
{
    pthread_mutex_lock(&log->lock);
    assert(!log->begun && !log->options.read_only);
    log->begun = log->ripe = true;
    pthread_mutex_unlock(&log->lock);
    if (log->options.no_thread)
        return 0;
    int errnum = pthread_create(&log->thread, NULL, document_log_thread, log);
    if (errnum)
        return error_set_errno(err, errnum, "start the thread of", log->folder);
    log->running = true;
    return 0;
}

int document_log_close(struct document_log *log, struct quire_error *err)
{
    if (!log)
        return 0;
    pthread_mutex_lock(&log->lock);
    log->stop = true;
    pthread_cond_signal(&log->wake);
    pthread_mutex_unlock(&log->lock);
    if (log->running)
        pthread_join(log->thread, NULL);
    document_log_remove_dead(log);
    int rc = document_log_flush(log, err);
    free_log(log);
    return rc;
}

/* ---- what others ask --------------------------------------------------------------------------------------------- */

void document_log_get_stats(const struct document_log *log, struct document_log_stats *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&log->lock;
    pthread_mutex_lock(lock);
    *out = log->stats;
    out->segments = log->n_segments;
    for (size_t i = 0; i < log->n_segments; i++) {
        out->bytes += log->segments[i]->bytes;
        out->live_bytes += log->segments[i]->live_bytes;
        out->documents += log->segments[i]->documents;
    }
    pthread_mutex_unlock(lock);
}

int document_log_health(const struct document_log *log, struct quire_error *err)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&log->lock;
    pthread_mutex_lock(lock);
    int rc = log->failure.code;
    if (rc < 0 && err)
        *err = log->failure;
    pthread_mutex_unlock(lock);
    return rc;
}

int document_log_sync(struct document_log *log, struct quire_error *err)
{
    pthread_mutex_lock(&log->work);
    int rc = document_log_flush(log, err);
    pthread_mutex_unlock(&log->work);
    return rc;
}

int document_log_work(struct document_log *log, struct quire_error *err)
{
    pthread_mutex_lock(&log->work);
    int rc = document_log_round(log, err);
    pthread_mutex_unlock(&log->work);
    return rc;
}

/* ---- what is durable --------------------------------------------------------------------------------------------- */

struct document_extent *document_log_extents(const struct document_log *log, uint32_t *n)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&log->lock;
    pthread_mutex_lock(lock);
    struct document_extent *list = malloc(sizeof *list * (log->n_segments + 1));
    *n = list ? 0 : 1;
    for (size_t i = 0; list && i < log->n_segments; i++)
        if (log->segments[i]->told)
            list[(*n)++] = (struct document_extent){log->segments[i]->number, log->segments[i]->told};
    pthread_mutex_unlock(lock);
    return list;
}

bool document_log_lacks(const struct document_log *log, const struct document_at *at, struct quire_error *err)
{
    uint64_t durable = document_extent_of(log->extents, log->options.n_extents, at->segment);
    pthread_mutex_t *lock = (pthread_mutex_t *)&log->lock;
    if (!document_was_durable(at->unit, at->bytes, durable))
        return false;
    pthread_mutex_lock(lock);
    const struct document_log_segment *segment = document_log_find_segment(log, at->segment);
    bool is_file = segment != NULL, lacks = !segment || !document_was_durable(at->unit, at->bytes, segment->bytes);
    uint64_t bytes = segment && segment->file ? segment->file->bytes : 0;
    pthread_mutex_unlock(lock);
    if (lacks && !is_file)
        error_set(err, QUIRE_ENOFILE, "%s/%016x.docs is not there", log->folder, at->segment);
    else if (lacks)
        error_set(err, QUIRE_ECORRUPT, "%s/%016x.docs is damaged: it has %llu bytes, %llu were on the disk",
                  log->folder, at->segment, (unsigned long long)bytes, (unsigned long long)durable);
    return lacks;
}

void document_log_pin(struct document_log *log)
{
    pthread_mutex_lock(&log->work); /* whoever removes some is done */
    pthread_mutex_lock(&log->lock);
    log->pins++;
    pthread_mutex_unlock(&log->lock);
    pthread_mutex_unlock(&log->work);
}

void document_log_unpin(struct document_log *log)
{
    pthread_mutex_lock(&log->lock);
    assert(log->pins > 0);
    log->pins--;
    log->ripe = true;
    pthread_cond_signal(&log->wake);
    pthread_mutex_unlock(&log->lock);
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

static int link_all(struct document_log *log, const char *to, struct quire_error *err)
{
    int rc = log->fs->ops->mkdir(log->fs, to);
    if (rc < 0)
        return error_set(err, rc, "cannot make the folder %s: %s", to, quire_error_text(rc));
    for (size_t i = 0; rc == 0; i++) {
        pthread_mutex_lock(&log->lock);
        const struct document_log_segment *segment = i < log->n_segments ? log->segments[i] : NULL;
        pthread_mutex_unlock(&log->lock);
        if (!segment)
            break;
        if (segment->disk > 0) {
            char name[LOG_NAME_BYTES];
            document_log_segment_name(name, segment->number);
            char *old_path = document_log_path(log->folder, name), *new_path = document_log_path(to, name);
            rc = old_path && new_path ? log->fs->ops->link(log->fs, old_path, new_path) : QUIRE_ENOMEM;
            if (rc < 0)
                error_set(err, rc, "cannot link %s/%s into %s: %s", log->folder, name, to, quire_error_text(rc));
            free(old_path);
            free(new_path);
        }
    }
    if (rc == 0) {
        rc = log->fs->ops->sync_dir(log->fs, to);
        if (rc < 0)
            error_set(err, rc, "cannot sync the folder %s: %s", to, quire_error_text(rc));
    }
    if (rc < 0)
        fs_remove_folder(log->fs, to, NULL);
    return rc;
}

int document_log_link(struct document_log *log, const char *to, struct quire_error *err)
{
    pthread_mutex_lock(&log->work);
    int rc = document_log_flush(log, err);
    if (rc == 0)
        rc = link_all(log, to, err);
    pthread_mutex_unlock(&log->work);
    return rc;
}
