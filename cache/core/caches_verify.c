/*
 * caches_verify.c - see caches_verify.h.
 *
 * Before the restored rows are joined, the places of all documents that living entries point to are listed, sorted.
 * Then each segment is read once, and each document that is whole is looked up among them. What is left over is
 * assessed by where it should lie:
 *   - behind the end of its file, or zeros that no document follows: it was never written, since documents are written
 *     in the order of their places;
 *   - in a file that is not there, while none with a higher number is: it was never made, since numbers rise;
 *   - anything else is damage.
 * An entry that has expired needs no document: it would not be served.
 *
 * For a repair each segment is linked, or copied without what is damaged (document_rescue).
 *
 * Segments of sealed vectors are opened with the rows, checked like those of collections, and for a repair linked if
 * they are whole. Entries of those that are not go when the new folder is opened.
 */
#include "cache/core/caches_verify.h"
#include "cache/core/sealed.h"
#include "cache/document/document_scan.h"
#include "index/verify/verify.h"
#include "io/array.h"
#include "io/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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
        /* only of an entry that would be served, or joined at least */
        uint64_t word = cache_entry_word(cache, row), expire = word & EXPIRE_NEVER;
        uint32_t number = cache_entry_at(cache, row)->group;
        const struct group *group = number < cache->n_groups ? cache->groups[number] : NULL;
        if (!(word & ENTRY_LIVE) || !group)
            continue;
        const struct category *cat = cache_category_at(cache, group->category);
        if (cat->dropped || (expire != EXPIRE_NEVER && expire + cat->settings.stale_ms <= now))
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
    uint32_t low = 0, high = p->n_places;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (by_place(&p->places[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
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
    if (rc == QUIRE_ENOFILE) {
        found(p, "cache '%.*s' has no folder %s: the documents of its %u entries are lost", name_length(p->cache),
              name_of(p->cache), p->from, p->n_places);
        return 0;
    }
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

static int verify_document_segment(struct verifying *p)
{
    struct document_segment segment;
    struct quire_error reason = {0};
    char name[LOG_NAME_BYTES];
    document_log_segment_name(name, p->number);
    char *path = document_log_path(p->from, name);
    int rc = path ? document_scan(p->caches->options.fs, path, p->number, visit, p, &segment, &reason) : no_memory(p);
    p->report->document_segments++;
    if (path && rc < 0 && rc != QUIRE_ENOMEM) { /* what it holds counts as damaged: see assess_rest */
        found(p, "%s", reason.message);
        free(path);
        return 0;
    }
    if (rc == 0 && segment.header_damaged)
        found(p, "%s: its header is damaged: the server would remove it", path);
    if (rc == 0) {
        /* Says once per segment what its entries lack. */
        uint64_t damaged = 0, lost = 0, all = 0;
        const struct document_place *first = NULL;
        for (uint32_t i = first_place(p, p->number, 0); i < p->n_places && p->places[i].segment == p->number; i++) {
            const struct document_place *place = &p->places[i];
            uint64_t begin = (uint64_t)place->unit * DOCUMENT_UNIT;
            all++;
            if (place->state == PLACE_FOUND)
                continue;
            /* begins behind all that is written of the file, or is cut off by its end */
            bool cut = begin + place->bytes > segment.bytes || (begin >= segment.end && segment.damaged_units == 0);
            bool never = place->state == PLACE_MISSING && !segment.header_damaged && cut;
            first = first || never ? first : place;
            damaged += !never;
            lost += never;
        }
        if (damaged)
            found(p,
                  "%s: the documents of %llu of its %llu entries are not whole; the first is that of entry "
                  "%016llx at offset %llu",
                  path, (unsigned long long)damaged, (unsigned long long)all, (unsigned long long)first->id,
                  (unsigned long long)first->unit * DOCUMENT_UNIT);
        else if (segment.damaged_units)
            note(p, "%s: %llu units of %u bytes are no documents, and no entry needs them", path,
                 (unsigned long long)segment.damaged_units, DOCUMENT_UNIT);
        p->report->entries_damaged += damaged;
        p->report->entries_lost += lost;
    }
    if (rc == 0 && p->to && segment.documents > 0) {
        /* The segment in the new folder: all of it, or what is whole. */
        struct io_fs *fs = p->caches->options.fs;
        char *to = document_log_path(p->to, name);
        bool whole = segment.has_header && segment.damaged_units == 0;
        rc = to ? 0 : no_memory(p);
        if (rc == 0 && (!whole || fs->ops->link(fs, path, to) < 0))
            rc = document_rescue(fs, path, to, p->number, p->err);
        free(to);
    }
    free(path);
    return rc == QUIRE_ENOMEM ? no_memory(p) : rc;
}

/* Entries whose segments are not there. */
static void assess_rest(struct verifying *p)
{
    uint32_t highest = p->n_numbers ? p->numbers[p->n_numbers - 1] : 0;
    for (uint32_t i = 0, next; i < p->n_places; i = next) {
        uint32_t number = p->places[i].segment;
        next = first_place(p, number, UINT32_MAX);
        for (; next < p->n_places && p->places[next].segment == number; next++)
            ;
        if (array_has_u32(p->numbers, p->n_numbers, number))
            continue;
        bool never = number > highest;
        if (!never)
            found(p, "%s/%016x.docs is not there: the documents of %u entries are lost", p->from, number, next - i);
        *(never ? &p->report->entries_lost : &p->report->entries_damaged) += next - i;
    }
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
        assess_rest(p);
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

static void hear_warning(void *context, bool warning, const char *line)
{
    struct verifying *p = context;
    if (warning)
        found(p, "cache '%.*s': %s", name_length(p->cache), name_of(p->cache), line);
}

static void hear_finding(void *context, const char *sentence)
{
    found(context, "%s", sentence);
}

static int verify_sealed(struct verifying *p)
{
    const struct verify_listener listener = {.finding = hear_finding, .context = p};
    int rc = 0;
    for (uint32_t i = 0; i < p->cache->n_sealed && rc == 0; i++) {
        uint32_t number = p->cache->sealed[i]->number;
        struct quire_verify_report report;
        struct quire_error reason = {0};
        char *path = sealed_path(p->caches->folder, p->cache->uid, number);
        rc = path ? verify_segment(p->caches->options.fs, path, &listener, &report, &reason) : no_memory(p);
        bool whole = rc == 0;
        if (path && rc < 0 && rc != QUIRE_ENOMEM) {
            if (rc != QUIRE_ECORRUPT)
                found(p, "%s", reason.message);
            rc = 0;
        }
        if (whole && p->check->to) {
            char *to = sealed_path(p->check->to, p->cache->uid, number);
            rc = to ? store_link_folder(p->caches->options.fs, path, to, true, p->err) : no_memory(p);
            free(to);
        }
        p->report->sealed_segments++;
        free(path);
    }
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
    if (rc == 0) {
        /* Opened as a server would, but for writing: all that it keeps in several places agrees. */
        struct quire_error reason = {0};
        rc = cache_open_documents(p->cache, &reason);
        p->caches->options.log = hear_warning; /* of segments that are lost */
        p->caches->options.log_context = p;
        if (rc == 0)
            rc = cache_restore_end(p->cache, &reason);
        p->caches->options.log = NULL;
        if (rc == 0)
            rc = cache_check(p->cache, &reason);
        if (rc < 0 && rc != QUIRE_ENOMEM)
            found(p, "cache '%.*s': %s", name_length(p->cache), name_of(p->cache), reason.message);
        rc = rc == QUIRE_ENOMEM ? no_memory(p) : 0;
    }
    if (rc == 0)
        rc = verify_sealed(p);
    p->report->caches++;
    free(p->from);
    free(p->to);
    free(p->places);
    free(p->numbers);
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

/* Segments that were linked for a cache. */
static void discard_sealed(const struct verifying *p, const struct cache *cache)
{
    for (uint32_t i = 0; i < cache->n_sealed; i++) {
        char *path = sealed_path(p->check->to, cache->uid, cache->sealed[i]->number);
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
