/*
 * caches_verify.c - see caches_verify.h.
 *
 * Before the restored rows are joined, the places of all documents that living entries point to are listed, sorted.
 * Then each segment is read once, and each document that is whole is looked up among them. What is left over is damage
 * where it was on the device once, which the journal says (struct document_extent), and otherwise what a crash kept
 * from being written. The same rule, document_judge, tells of a file what is damage when a cache is opened.
 *
 * An entry that has expired needs no document: it would not be served.
 *
 * For a repair each segment of documents is linked, or copied without what is damaged (document_rescue). Segments of
 * sealed vectors are checked like those of collections, and linked if they are whole; of others the vectors of whole
 * blocks go to a new one (sealed_rescue.h). What cannot be saved is taken out of the journal of the new folder, so
 * that nothing in it is missing.
 */
#include "cache/core/caches_verify.h"
#include "cache/core/sealed.h"
#include "cache/core/sealed_rescue.h"
#include "cache/document/document_scan.h"
#include "index/verify/verify.h"
#include "io/array.h"
#include "io/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { GONE_AT_ONCE = 4096 }; /* rows of one record */

enum place_state { PLACE_MISSING, PLACE_FOUND, PLACE_WRONG };

/* Where an entry's document should be. */
struct document_place {
    uint64_t id;
    uint32_t segment, unit, bytes;
    enum place_state state;
};

struct verifying {
    struct caches *caches;
    const struct caches_check *check;
    struct caches_report *report;
    struct quire_error *err;
    /* of one cache */
    struct cache *cache;
    char *from, *to;               /* its folders of documents; to: NULL unless it is a repair */
    struct document_place *places; /* by segment and unit */
    uint32_t n_places;
    uint32_t *numbers; /* of its files, ascending */
    uint32_t n_numbers, numbers_capacity;
    uint32_t number; /* of the segment that is read */
    uint32_t *gone;  /* repair: rows of entries that cannot be saved, some perhaps twice */
    uint32_t n_gone, gone_capacity;
};

static void tell(void (*say)(void *context, const char *sentence), void *context, const char *format, va_list arguments)
{
    char sentence[1024];
    vsnprintf(sentence, sizeof sentence, format, arguments);
    if (say)
        say(context, sentence);
}

__attribute__((format(printf, 2, 3))) static void found(struct verifying *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell(p->check->finding, p->check->context, format, arguments);
    va_end(arguments);
    p->report->findings++;
}

__attribute__((format(printf, 2, 3))) static void note(struct verifying *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell(p->check->note, p->check->context, format, arguments);
    va_end(arguments);
}

static int no_memory(struct verifying *p)
{
    return error_set(p->err, QUIRE_ENOMEM, "no memory to check the caches of %s", p->caches->folder);
}

static int name_length(const struct cache *cache)
{
    return (int)cache->config.name.n_bytes;
}

static const char *name_of(const struct cache *cache)
{
    return (const char *)cache->config.name.data;
}

/* ---- where documents should be ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct document_place *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

static int list_places(struct verifying *p)
{
    const struct cache *cache = p->cache;
    uint64_t now = cache_now(cache);
    p->places = malloc(sizeof *p->places * (cache->n_rows + (size_t)1));
    if (!p->places)
        return no_memory(p);
    for (uint32_t row = 0; row < cache->n_rows; row++) {
        if (!cache_entry_is_wanted(cache, row, now))
            continue;
        struct document_at at = cache_entry_document(cache_entry_at(cache, row));
        p->places[p->n_places++] = (struct document_place){cache_entry_id(cache_entry_at(cache, row), row), at.segment,
                                                           at.unit, at.bytes, PLACE_MISSING};
    }
    if (p->n_places)
        qsort(p->places, p->n_places, sizeof *p->places, by_place);
    p->report->entries += p->n_places;
    return 0;
}

/* The first place that is not before this one; n_places: none. */
static uint32_t first_place(const struct verifying *p, uint32_t segment, uint32_t unit)
{
    struct document_place wanted = {.segment = segment, .unit = unit};
    uint32_t at;
    array_find_first(at, 0, p->n_places, by_place(&p->places[at], &wanted) < 0);
    return at;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static int note_number(void *context, const char *name)
{
    struct verifying *p = context;
    uint32_t number = document_log_parse_name(name);
    if (number == 0)
        return 0;
    if (!array_reserve(&p->numbers, &p->numbers_capacity, p->n_numbers + (size_t)1))
        return no_memory(p);
    p->numbers[p->n_numbers++] = number;
    return 0;
}

static int list_segments(struct verifying *p)
{
    struct io_fs *fs = p->caches->options.fs;
    int rc = fs->ops->list(fs, p->from, note_number, p);
    if (rc == QUIRE_ENOFILE) /* its segments are missing, one by one */
        return 0;
    if (rc < 0 && rc != QUIRE_ENOMEM)
        return error_set(p->err, rc, "cannot list %s: %s", p->from, quire_error_text(rc));
    array_sort_u32(p->numbers, p->n_numbers);
    return rc;
}

static int visit(void *context, const struct document *document, uint32_t unit)
{
    struct verifying *p = context;
    uint32_t at = first_place(p, p->number, unit);
    p->report->documents++;
    for (; at < p->n_places && p->places[at].segment == p->number && p->places[at].unit == unit; at++) {
        struct document_place *place = &p->places[at];
        bool own = document->id == place->id && document->packed.n_bytes == place->bytes;
        place->state = own ? PLACE_FOUND : PLACE_WRONG;
    }
    return 0;
}

/* A document that an entry needs and that is not there, or not whole. */
static int lose(struct verifying *p, const struct document_place *place, uint64_t durable, uint64_t *damaged)
{
    if (!document_was_durable(place->unit, place->bytes, durable)) {
        p->report->entries_lost++; /* it goes when the cache is opened, or asked for */
        return 0;
    }
    p->report->entries_damaged++;
    ++*damaged;
    if (!p->to)
        return 0;
    if (!array_reserve(&p->gone, &p->gone_capacity, p->n_gone + (size_t)1))
        return no_memory(p);
    p->gone[p->n_gone++] = (uint32_t)place->id;
    return 0;
}

/* What the entries of a segment lack, which is said once. */
static int assess_places(struct verifying *p, const char *path, const struct document_segment *segment,
                         uint64_t durable)
{
    const struct document_place *first = NULL;
    uint64_t damaged = 0, all = 0;
    int rc = 0;
    for (uint32_t i = first_place(p, p->number, 0); i < p->n_places && p->places[i].segment == p->number; i++, all++) {
        uint64_t before = damaged;
        if (rc == 0 && p->places[i].state != PLACE_FOUND)
            rc = lose(p, &p->places[i], durable, &damaged);
        first = first || damaged == before ? first : &p->places[i];
    }
    if (first)
        found(p,
              "%s: the documents of %llu of its %llu entries are not whole; the first is that of entry %016llx at "
              "offset %llu%s",
              path, (unsigned long long)damaged, (unsigned long long)all, (unsigned long long)first->id,
              (unsigned long long)first->unit * DOCUMENT_UNIT,
              segment->bytes < durable ? "; the file was longer once" : "");
    else if (segment->damaged_units)
        note(p, "%s: %llu units of %u bytes are no documents, and no entry needs them", path,
             (unsigned long long)segment->damaged_units, DOCUMENT_UNIT);
    return rc;
}

/* The segment in the new folder: all of it, or what is whole. */
static int save_segment(struct verifying *p, const char *path, const char *name, const struct document_segment *segment)
{
    struct io_fs *fs = p->caches->options.fs;
    char *to = document_log_path(p->to, name);
    bool whole = segment->header == DOCUMENT_HEADER_WHOLE && segment->damaged_units == 0;
    int rc = to ? 0 : no_memory(p);
    if (rc == 0 && (!whole || fs->ops->link(fs, path, to) < 0))
        rc = document_rescue(fs, path, to, p->number, p->err);
    free(to);
    return rc;
}

static int verify_document_segment(struct verifying *p)
{
    struct document_segment segment = {0};
    struct document_judgement judgement = {.use = DOCUMENTS_NONE};
    struct quire_error reason = {0};
    char name[LOG_NAME_BYTES];
    uint64_t durable = document_extent_of(p->cache->extents, p->cache->n_extents, p->number);
    document_log_segment_name(name, p->number);
    char *path = document_log_path(p->from, name);
    if (!path)
        return no_memory(p);
    int rc = document_scan(p->caches->options.fs, path, p->number, visit, p, &segment, &reason);
    bool unread = rc < 0 && rc != QUIRE_ENOMEM && rc != QUIRE_EPERM; /* its entries have lost their documents */
    p->report->document_segments++;
    if (rc == 0)
        document_judge(segment.header, segment.documents > 0, durable, &judgement);
    if (unread)
        found(p, "%s", reason.message);
    else if (rc < 0)
        rc = error_set(p->err, rc, "%s", reason.message);
    else if (judgement.is_damaged)
        found(p, "%s: %s", path, judgement.what);
    else if (judgement.what)
        note(p, "%s: %s", path, judgement.what);
    if (rc == 0 || unread)
        rc = assess_places(p, path, &segment, durable);
    if (rc == 0 && p->to && segment.documents > 0)
        rc = save_segment(p, path, name, &segment);
    free(path);
    return rc;
}

/* Entries whose segments are not there. */
static int assess_rest(struct verifying *p)
{
    int rc = 0;
    for (uint32_t i = 0; i < p->n_places && rc == 0;) {
        uint32_t number = p->places[i].segment;
        uint64_t damaged = 0, durable = document_extent_of(p->cache->extents, p->cache->n_extents, number);
        bool there = array_has_u32(p->numbers, p->n_numbers, number);
        for (; i < p->n_places && p->places[i].segment == number; i++)
            if (rc == 0 && !there)
                rc = lose(p, &p->places[i], durable, &damaged);
        if (damaged)
            found(p, "%s/%016x.docs is not there: the documents of %llu entries are lost", p->from, number,
                  (unsigned long long)damaged);
    }
    return rc;
}

static int verify_documents(struct verifying *p)
{
    struct io_fs *fs = p->caches->options.fs;
    uint64_t lost = p->report->entries_lost;
    int rc = list_places(p);
    if (rc == 0)
        rc = list_segments(p);
    if (rc == 0 && p->to && fs->ops->mkdir(fs, p->to) < 0)
        rc = error_set(p->err, QUIRE_EIO, "cannot make the folder %s", p->to);
    for (uint32_t i = 0; rc == 0 && i < p->n_numbers; i++) {
        p->number = p->numbers[i];
        rc = verify_document_segment(p);
        if (rc == 0 && p->check->progress && p->check->progress(p->check->context, "documents", i + 1, p->n_numbers))
            rc = error_set(p->err, QUIRE_ECANCELLED, "interrupted");
    }
    if (rc == 0)
        rc = assess_rest(p);
    if (rc == 0 && p->report->entries_lost > lost)
        note(p,
             "cache '%.*s': a crash kept the documents of %llu entries from being written; the entries go when it is "
             "opened, or asked for",
             name_length(p->cache), name_of(p->cache), (unsigned long long)(p->report->entries_lost - lost));
    if (rc == 0 && p->to)
        rc = fs->ops->sync_dir(fs, p->to) < 0 ? error_set(p->err, QUIRE_EIO, "cannot sync %s", p->to) : 0;
    return rc;
}

/* ---- sealed vectors ---------------------------------------------------------------------------------------------- */

static void hear_finding(void *context, const char *sentence)
{
    found(context, "%s", sentence);
}

/* Entries whose vectors are in a segment, by its rows. */
static int list_sealed(struct verifying *p, const struct sealed *sealed, struct sealed_rescue *rescue)
{
    const struct cache *cache = p->cache;
    uint64_t now = cache_now(cache);
    *rescue = (struct sealed_rescue){.cache = p->cache, .number = sealed->number, .group = sealed->group};
    for (uint32_t row = 0; row < cache->n_rows; row++) {
        if (sealed_place_of(cache, row).segment != sealed->number || !cache_entry_is_wanted(cache, row, now))
            continue;
        if (!array_reserve(&rescue->entries, &rescue->capacity, rescue->n + (size_t)1))
            return no_memory(p);
        rescue->entries[rescue->n++] = (struct rescued_entry){.id = cache_entry_id(cache_entry_at(cache, row), row),
                                                              .from = sealed_place_of(cache, row).row};
    }
    return 0;
}

/* Of a segment that is not whole: what of it can be, in a new one; the rest of its entries is gone. */
static int save_sealed(struct verifying *p, struct sealed_rescue *rescue)
{
    uint32_t lost = 0;
    int rc = sealed_rescue(rescue, p->check->to, p->check->journal, p->err);
    for (uint32_t i = 0; i < rescue->n && rc == 0; i++) {
        if (rescue->entries[i].saved)
            continue;
        lost++;
        if (!array_reserve(&p->gone, &p->gone_capacity, p->n_gone + (size_t)1))
            return no_memory(p);
        p->gone[p->n_gone++] = (uint32_t)rescue->entries[i].id;
    }
    p->report->vectors_lost += lost;
    if (rc == 0)
        found(p, "cache '%.*s': of the %u entries whose vectors are in segment %u, %u could be saved",
              name_length(p->cache), name_of(p->cache), rescue->n, rescue->number, rescue->n - lost);
    return rc;
}

static int verify_one_sealed(struct verifying *p, const struct sealed *sealed)
{
    const struct verify_listener listener = {.finding = hear_finding, .context = p};
    struct io_fs *fs = p->caches->options.fs;
    struct quire_verify_report report;
    struct quire_error reason = {0};
    struct sealed_rescue rescue;
    int rc = list_sealed(p, sealed, &rescue);
    char *path = sealed_path(p->caches->folder, p->cache->uid, sealed->number), *to = NULL;
    if (rc == 0 && rescue.n > 0) { /* otherwise nobody needs it */
        uint64_t before = p->report->findings;
        rc = path ? verify_segment(fs, path, &listener, &report, &reason) : no_memory(p);
        bool whole = rc == 0, own = rc == QUIRE_ENOMEM || rc == QUIRE_EPERM;
        p->report->sealed_segments++;
        if (own)
            rc = error_set(p->err, rc, "%s", path ? reason.message : "no memory for the name of a segment");
        else if (rc < 0 && p->report->findings == before)
            found(p, "cache '%.*s': %s", name_length(p->cache), name_of(p->cache), reason.message);
        rc = own ? rc : 0;
        if (rc == 0 && whole && p->check->to) {
            to = sealed_path(p->check->to, p->cache->uid, sealed->number);
            rc = to ? store_link_folder(fs, path, to, true, p->err) : no_memory(p);
        } else if (rc == 0 && p->check->to) {
            rc = save_sealed(p, &rescue);
        }
    }
    free(rescue.entries);
    free(path);
    free(to);
    return rc;
}

static int verify_sealed(struct verifying *p)
{
    int rc = 0;
    uint32_t n = p->cache->n_sealed; /* a repair makes no more of them known */
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = verify_one_sealed(p, p->cache->sealed[i]);
    return rc;
}

/* What cannot be saved is gone in the new folder's journal. */
static int log_gone(struct verifying *p)
{
    struct caches *caches = p->caches;
    int rc = 0;
    caches->journal = p->check->journal;
    pthread_mutex_lock(&p->cache->lock);
    for (uint32_t i = 0; i < p->n_gone && rc == 0; i += GONE_AT_ONCE) {
        uint32_t n = p->n_gone - i < GONE_AT_ONCE ? p->n_gone - i : GONE_AT_ONCE;
        uint64_t lsn;
        rc = cache_log_gone(p->cache, p->gone + i, n, &lsn, p->err);
        if (rc == QUIRE_EBUSY && (rc = journal_sync(caches->journal, p->err)) == 0) /* its buffer was full */
            rc = cache_log_gone(p->cache, p->gone + i, n, &lsn, p->err);
    }
    pthread_mutex_unlock(&p->cache->lock);
    caches->journal = NULL;
    return rc;
}

/* ---- a cache ----------------------------------------------------------------------------------------------------- */

static int verify_cache(struct verifying *p, struct cache *cache)
{
    unsigned long long uid = cache->uid;
    int rc = 0;
    p->cache = cache;
    if (asprintf(&p->from, "%s/documents/%016llx", p->caches->folder, uid) < 0)
        rc = no_memory(p);
    if (rc == 0 && p->check->to && asprintf(&p->to, "%s/documents/%016llx", p->check->to, uid) < 0)
        rc = no_memory(p);
    if (rc == 0)
        rc = verify_documents(p);
    if (rc == 0)
        rc = verify_sealed(p);
    if (rc == 0) {
        /* Opened as a server would, but for writing: all that it keeps in several places agrees. What cannot be opened
         * has been told of. */
        struct quire_error reason = {0};
        rc = cache_open_documents(p->cache, &reason);
        if (rc == 0)
            rc = cache_restore_end(p->cache, &reason);
        if (rc == 0)
            rc = cache_check(p->cache, &reason);
        if (rc < 0 && !cache_error_is_own(rc) && rc != QUIRE_EVERSION)
            found(p, "cache '%.*s': %s", name_length(p->cache), name_of(p->cache), reason.message);
        rc = cache_error_is_own(rc) ? error_set(p->err, rc, "%s", reason.message) : 0;
    }
    if (rc == 0 && p->n_gone)
        rc = log_gone(p);
    p->report->caches++;
    free(p->from);
    free(p->to);
    free(p->places);
    free(p->numbers);
    free(p->gone);
    *p = (struct verifying){.caches = p->caches, .check = p->check, .report = p->report, .err = p->err};
    return rc;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static int look_at_folder(void *context, const char *name)
{
    struct verifying *p = context;
    char *end;
    uint64_t uid = strtoull(name, &end, 16);
    if (strlen(name) != 16 || *end)
        note(p, "%s/documents/%s is of no cache, and stays", p->caches->folder, name);
    else if (!caches_by_uid(p->caches, uid))
        note(p, "%s/documents/%s is of no cache any more: the server removes it", p->caches->folder, name);
    return 0;
}

static int look_at_sealed(void *context, const char *name)
{
    struct verifying *p = context;
    uint64_t uid = 0;
    uint32_t number = sealed_parse_name(name, &uid);
    const struct cache *cache = number ? caches_by_uid(p->caches, uid) : NULL;
    if (!cache || !sealed_find(cache, number))
        note(p, "%s/" SEALED_NAME "/%s is of no cache any more: the server removes it", p->caches->folder, name);
    return 0;
}

static int make_target_folder(struct verifying *p, const char *name)
{
    struct io_fs *fs = p->caches->options.fs;
    char *path;
    if (!p->check->to)
        return 0;
    if (asprintf(&path, "%s/%s", p->check->to, name) < 0)
        return no_memory(p);
    int rc = fs->ops->mkdir(fs, path);
    if (rc < 0)
        error_set(p->err, rc, "cannot make the folder %s: %s", path, quire_error_text(rc));
    free(path);
    return rc;
}

/* Segments that were linked or made for a cache. */
static void discard_sealed(const struct verifying *p, const struct cache *cache)
{
    for (uint32_t number = 1; number < cache->next_sealed; number++) {
        char *path = sealed_path(p->check->to, cache->uid, number);
        if (path)
            fs_remove_folder(p->caches->options.fs, path, NULL);
        free(path);
    }
}

/* What was made below the new folder, which will not be. */
static void discard_target(const struct verifying *p)
{
    struct io_fs *fs = p->caches->options.fs;
    char *path;
    for (uint32_t i = 0; i < p->caches->n; i++)
        if (asprintf(&path, "%s/documents/%016llx", p->check->to, (unsigned long long)p->caches->all[i]->uid) >= 0) {
            fs_remove_folder(fs, path, NULL);
            free(path);
            discard_sealed(p, p->caches->all[i]);
        }
    if (asprintf(&path, "%s/" SEALED_NAME, p->check->to) >= 0) {
        fs->ops->rmdir(fs, path);
        free(path);
    }
    if (asprintf(&path, "%s/documents", p->check->to) >= 0) {
        fs->ops->rmdir(fs, path);
        free(path);
    }
}

int caches_verify(struct caches *caches, const struct caches_check *check, struct caches_report *report,
                  struct quire_error *err)
{
    struct verifying p = {.caches = caches, .check = check, .report = report, .err = err};
    struct io_fs *fs = caches->options.fs;
    char *folder = NULL;
    *report = (struct caches_report){0};
    int rc = make_target_folder(&p, "documents");
    if (rc == 0)
        rc = make_target_folder(&p, SEALED_NAME);
    for (uint32_t i = 0; i < caches->n && rc == 0; i++)
        rc = verify_cache(&p, caches->all[i]);
    if (rc == 0 && asprintf(&folder, "%s/documents", caches->folder) < 0)
        rc = no_memory(&p);
    if (rc == 0)
        fs->ops->list(fs, folder, look_at_folder, &p); /* without caches it need not be there */
    free(folder);
    folder = NULL;
    if (rc == 0 && asprintf(&folder, "%s/" SEALED_NAME, caches->folder) < 0)
        rc = no_memory(&p);
    if (rc == 0)
        fs->ops->list(fs, folder, look_at_sealed, &p);
    free(folder);
    if (rc < 0 && check->to)
        discard_target(&p);
    return rc;
}
