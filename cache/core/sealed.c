/*
 * sealed.c - the segments of a cache: made, opened, joined to groups, retired, checked. See sealed.h.
 *
 * Folders. A segment is built whole, renamed and synced before the journal names it (seal.c), and removed after the
 * journal has synced that nothing is in it any more. So the journal of a crash names folders that are there, and what
 * it does not name is removed when the caches begin.
 */
#include "cache/core/sealed.h"
#include "index/segment/segment.h"
#include "io/array.h"
#include "io/error.h"
#include "io/lock.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    /* Bits of a dimension in memory. The more dimensions, the fewer say where to read: at 64 dimensions 4 instead of 2
     * halve the time on the processor and take a third off the reads (bench_cache --seal). */
    CODE_BITS_FEW_DIM = 4,
    CODE_BITS = 2,
    FEW_DIM = 192
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

uint32_t sealed_parse_name(const char *name, uint64_t *uid)
{
    char *end;
    if (strlen(name) != 25 || name[16] != '-' || strspn(name, "0123456789abcdef") != 16 ||
        strspn(name + 17, "0123456789abcdef") != 8)
        return 0;
    *uid = strtoull(name, &end, 16);
    return (uint32_t)strtoul(name + 17, NULL, 16);
}

char *sealed_path(const char *folder, uint64_t uid, uint32_t number)
{
    char *path;
    return asprintf(&path, "%s/" SEALED_NAME "/%016llx-%08x", folder, (unsigned long long)uid, number) < 0 ? NULL
                                                                                                           : path;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

struct sealed *sealed_ref(struct sealed *sealed)
{
    atomic_fetch_add_explicit(&sealed->references, 1, memory_order_relaxed);
    return sealed;
}

void sealed_unref(struct sealed *sealed)
{
    uint32_t before = sealed ? atomic_fetch_sub_explicit(&sealed->references, 1, memory_order_acq_rel) : 0;
    assert(!sealed || before > 0);
    if (before != 1)
        return;
    if (sealed->segment) {
        segment_retire(sealed->segment);
        segment_unref(sealed->segment);
    }
    free(sealed->dead);
    free(sealed->entries);
    free(sealed);
}

/* Where a number is, or would be. */
static uint32_t place_of(const struct cache *cache, uint32_t number)
{
    uint32_t at;
    array_find_first(at, 0, cache->n_sealed, cache->sealed[at]->number < number);
    return at;
}

struct sealed *sealed_find(const struct cache *cache, uint32_t number)
{
    uint32_t at = place_of(cache, number);
    return at < cache->n_sealed && cache->sealed[at]->number == number ? cache->sealed[at] : NULL;
}

int sealed_create(uint32_t number, uint32_t group, struct sealed **out)
{
    struct sealed *sealed = calloc(1, sizeof *sealed);
    if (!sealed)
        return QUIRE_ENOMEM;
    atomic_init(&sealed->references, 1);
    sealed->number = number;
    sealed->group = group;
    *out = sealed;
    return 0;
}

int sealed_insert(struct cache *cache, struct sealed *sealed)
{
    assert(sealed->number != 0 && !sealed_find(cache, sealed->number));
    if (!array_reserve(&cache->sealed, &cache->sealed_capacity, cache->n_sealed + (size_t)1))
        return QUIRE_ENOMEM;
    uint32_t at = place_of(cache, sealed->number);
    memmove(cache->sealed + at + 1, cache->sealed + at, sizeof(struct sealed *) * (cache->n_sealed - at));
    cache->sealed[at] = sealed;
    cache->n_sealed++;
    if (sealed->number >= cache->next_sealed)
        cache->next_sealed = sealed->number + 1;
    return 0;
}

static void take_out(struct cache *cache, const struct sealed *sealed)
{
    uint32_t at = place_of(cache, sealed->number);
    assert(at < cache->n_sealed && cache->sealed[at] == sealed);
    memmove(cache->sealed + at, cache->sealed + at + 1, sizeof(struct sealed *) * (cache->n_sealed - at - 1));
    cache->n_sealed--;
}

unsigned sealed_code_bits(const struct cache *cache)
{
    return cache->config.dim < FEW_DIM ? CODE_BITS_FEW_DIM : CODE_BITS;
}

int sealed_open(const struct cache *cache, struct sealed *sealed, struct quire_error *err)
{
    struct segment_options options = {.memory_bytes = UINT64_MAX,
                                      .code_bits = sealed_code_bits(cache),
                                      .no_cache = true,
                                      .naming = SEGMENT_NOTHING,
                                      .fs = cache->of->options.fs};
    char *path = sealed_path(cache->of->folder, cache->uid, sealed->number);
    if (!path)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    int rc = segment_open(path, &options, &sealed->segment, err);
    if (rc == 0) {
        const struct segment_info *info = segment_info(sealed->segment);
        sealed->n_rows = (uint32_t)info->rows;
        sealed->dead = malloc(info->rows / 8 + 1);
        sealed->entries = calloc(info->rows, sizeof *sealed->entries);
        if (!sealed->dead || !sealed->entries)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for the rows of %s", path);
        else if (info->dim != cache->config.dim || info->metric != QUIRE_METRIC_COSINE)
            rc = error_set(err, QUIRE_ECORRUPT, "%s is not of this cache: it has %u dimensions", path, info->dim);
        else
            memset(sealed->dead, 0xff, info->rows / 8 + 1);
    }
    free(path);
    return rc;
}

static uint64_t memory_of(const struct sealed *sealed)
{
    uint64_t bytes_of_rows = sealed->n_rows / 8 + sizeof *sealed->entries * (uint64_t)sealed->n_rows;
    return sizeof *sealed + bytes_of_rows + segment_info(sealed->segment)->resident_bytes;
}

void sealed_join(struct cache *cache, struct sealed *sealed, struct group *group)
{
    assert(sealed->segment && sealed->n_living == 0 && sealed->group == group->number);
    sealed->next = group->sealed;
    group->sealed = sealed;
    cache->sealed_memory_bytes += memory_of(sealed);
    cache->sealed_disk_bytes += segment_info(sealed->segment)->index_bytes;
}

void sealed_retire(struct cache *cache, struct sealed *sealed)
{
    struct sealed **at = &cache->groups[sealed->group]->sealed;
    assert(sealed->n_living == 0);
    while (*at && *at != sealed)
        at = &(*at)->next;
    if (*at) {
        *at = sealed->next;
        cache->sealed_memory_bytes -= memory_of(sealed);
        cache->sealed_disk_bytes -= segment_info(sealed->segment)->index_bytes;
    }
    take_out(cache, sealed);
    if (sealed->segment)
        segment_retire(sealed->segment); /* lanes release it */
    sealed->next = cache->retired;
    cache->retired = sealed;
}

int sealed_remove_folder(const struct cache *cache, uint32_t number, struct quire_error *err)
{
    char *path = sealed_path(cache->of->folder, cache->uid, number);
    int rc = path ? fs_remove_folder(cache->of->options.fs, path, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    free(path);
    return rc;
}

void sealed_remove_retired(struct cache *cache)
{
    struct caches *caches = cache->of;
    struct quire_error err = {0};
    if (pthread_mutex_trylock(&caches->removal) != 0) /* a snapshot links them */
        return;
    struct sealed *list = NULL; /* retired ones that only the cache refers to */
    pthread_mutex_lock(&cache->lock);
    for (struct sealed **at = &cache->retired, *sealed; (sealed = *at);) {
        if (atomic_load_explicit(&sealed->references, memory_order_acquire) > 1) {
            at = &sealed->next;
            continue;
        }
        *at = sealed->next;
        sealed->next = list;
        list = sealed;
    }
    pthread_mutex_unlock(&cache->lock);
    int rc = list && caches->journal ? journal_sync(caches->journal, &err) : 0;
    while (list) {
        struct sealed *sealed = list;
        list = list->next;
        if (rc == 0)
            rc = sealed_remove_folder(cache, sealed->number, &err);
        if (rc < 0) { /* tried again */
            pthread_mutex_lock(&cache->lock);
            sealed->next = cache->retired;
            cache->retired = sealed;
            pthread_mutex_unlock(&cache->lock);
        } else {
            sealed_unref(sealed);
        }
    }
    pthread_mutex_unlock(&caches->removal);
}

void sealed_free(struct cache *cache, bool remove)
{
    struct quire_error err;
    for (uint32_t i = 0; i < cache->n_sealed; i++) {
        if (remove && sealed_remove_folder(cache, cache->sealed[i]->number, &err) < 0)
            caches_say(cache->of, true, err.message);
        sealed_unref(cache->sealed[i]);
    }
    for (struct sealed *sealed = cache->retired, *next; sealed; sealed = next) {
        next = sealed->next;
        if (remove && sealed_remove_folder(cache, sealed->number, &err) < 0)
            caches_say(cache->of, true, err.message);
        sealed_unref(sealed);
    }
    free(cache->sealed);
    stable_array_fini(&cache->places);
    stable_array_fini(&cache->graph_entries);
}

/* ---- entries in them --------------------------------------------------------------------------------------------- */

static void count(struct cache *cache, uint32_t row, struct sealed *sealed, int more)
{
    struct group *group = cache->groups[cache_entry_at(cache, row)->group];
    assert(group->number == sealed->group && (more == 1 || more == -1));
    assert(more > 0 || (sealed->n_living > 0 && group->n_sealed > 0 && cache->sealed_entries > 0));
    sealed->n_living += (uint32_t)more;
    group->n_sealed += (uint32_t)more;
    cache->sealed_entries += (uint64_t)more;
}

void sealed_kill(struct cache *cache, uint32_t row)
{
    struct place place = sealed_place_of(cache, row);
    struct sealed *sealed = place.segment ? sealed_find(cache, place.segment) : NULL;
    if (!sealed)
        return;
    assert(!bitmap_has(sealed->dead, place.row));
    bitmap_add_shared(sealed->dead, place.row);
    count(cache, row, sealed, -1);
}

void sealed_revive(struct cache *cache, uint32_t row, struct sealed *sealed, uint32_t segment_row)
{
    assert(segment_row < sealed->n_rows && bitmap_has(sealed->dead, segment_row));
    sealed->entries[segment_row] = row;
    bitmap_remove_shared(sealed->dead, segment_row);
    count(cache, row, sealed, 1);
}

void sealed_place(struct cache *cache, uint32_t row, struct sealed *sealed, uint32_t segment_row)
{
    struct place place = sealed_place_of(cache, row);
    struct sealed *old = place.segment ? sealed_find(cache, place.segment) : NULL;
    assert(lock_is_held(&cache->lock) && old != sealed && (cache_entry_word(cache, row) & ENTRY_LIVE));
    if (old) /* its row there stays alive, so that searches which began before find the entry in one of both */
        count(cache, row, old, -1);
    sealed_set_place(cache, row, (struct place){sealed->number, segment_row});
    sealed_revive(cache, row, sealed, segment_row);
}

/* ---- after a folder was read ------------------------------------------------------------------------------------- */

/* Rows of the graph get their entries, segments are known to be needed. */
static int note_places(struct cache *cache, struct quire_error *err)
{
    uint32_t n_graph = graph_row_end(cache->graph);
    if (stable_array_reserve(&cache->graph_entries, cache->n_rows) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to open a cache of %u entries", cache->n_rows);
    for (uint32_t row = 0; row < cache->n_rows; row++) {
        struct place place = sealed_place_of(cache, row);
        if (!(cache_entry_word(cache, row) & ENTRY_LIVE))
            continue;
        struct sealed *sealed = place.segment ? sealed_find(cache, place.segment) : NULL;
        if (place.segment && (!sealed || sealed->group != cache_entry_at(cache, row)->group))
            return error_set(err, QUIRE_ECORRUPT, "entry %u is said to be in segment %u, which is not of its scope",
                             row, place.segment);
        if (sealed)
            sealed->is_named = true;
        else if (sealed_graph_row(cache, row) >= n_graph)
            return error_set(err, QUIRE_ECORRUPT, "entry %u is said to have vector %u of %u", row,
                             sealed_graph_row(cache, row), n_graph);
        else
            sealed_set_graph_entry(cache, sealed_graph_row(cache, row), row);
    }
    return 0;
}

/* Those that entries are in; what nobody needs any more is not looked at. One that cannot be opened ends it, but for
 * checks of a folder that nobody has open: they go on without. */
static int open_named(struct cache *cache, struct quire_error *err)
{
    for (uint32_t i = 0; i < cache->n_sealed;) {
        struct sealed *sealed = cache->sealed[i];
        struct group *group = sealed->group < cache->n_groups ? cache->groups[sealed->group] : NULL;
        struct quire_error reason = {0};
        bool opens = sealed->is_named && group;
        int rc = opens ? sealed_open(cache, sealed, &reason) : 0;
        if (rc == 0 && opens) {
            sealed_join(cache, sealed, group);
            i++;
            continue;
        }
        if (rc < 0 && (cache_error_is_own(rc) || !cache->of->options.read_only))
            return error_set(err, rc, "%s", reason.message);
        take_out(cache, sealed);
        sealed_unref(sealed);
    }
    return 0;
}

int sealed_restore_end(struct cache *cache, struct quire_error *err)
{
    if (cache_entries_reserve(cache, graph_row_end(cache->graph)) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to open a cache");
    int rc = cache->apart ? note_places(cache, err) : 0;
    if (rc == 0)
        rc = open_named(cache, err);
    cache->scan_row = 0;
    cache->scan_end = cache->apart ? cache->n_rows : 0;
    return rc;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

struct check {
    struct cache *cache;
    struct sealed *sealed;
    struct quire_error *reason;
    uint32_t n;
};

static int check_row(void *context, const struct scanned_row *row)
{
    struct check *p = context;
    uint64_t id;
    p->n++;
    if (row->key_bytes != sizeof id)
        return error_set(p->reason, QUIRE_ECORRUPT, "row %u of segment %u has a key of %u bytes, not an id", row->row,
                         p->sealed->number, row->key_bytes);
    memcpy(&id, row->key, sizeof id);
    uint32_t entry = cache_entry_find(p->cache, id);
    struct place place = entry == UINT32_MAX ? (struct place){0, 0} : sealed_place_of(p->cache, entry);
    if (place.segment != p->sealed->number || place.row != row->row)
        return error_set(p->reason, QUIRE_ECORRUPT, "row %u of segment %u is living, but entry %016llx is not there",
                         row->row, p->sealed->number, (unsigned long long)id);
    return 0;
}

static int check_segment(struct cache *cache, struct sealed *sealed, struct quire_error *reason)
{
    struct check p = {.cache = cache, .sealed = sealed, .reason = reason};
    const struct sealed *at =
        sealed->group < cache->n_groups && cache->groups[sealed->group] ? cache->groups[sealed->group]->sealed : NULL;
    while (at && at != sealed)
        at = at->next;
    if (!at)
        return error_set(reason, QUIRE_ECORRUPT, "segment %u is not of its group %u", sealed->number, sealed->group);
    struct quire_error damage = {0};
    int rc = segment_scan(sealed->segment, sealed->dead, check_row, NULL, &p, &damage);
    if (rc < 0)
        return reason->code ? rc : error_set(reason, rc, "%s", damage.message);
    return p.n == sealed->n_living ? 0
                                   : error_set(reason, QUIRE_ECORRUPT, "segment %u counts %u living rows, there are %u",
                                               sealed->number, sealed->n_living, p.n);
}

/* One entry: its place. */
static int check_place(const struct cache *cache, uint32_t row, struct quire_error *reason)
{
    struct place place = sealed_place_of(cache, row);
    const struct sealed *sealed = place.segment ? sealed_find(cache, place.segment) : NULL;
    if (place.segment == 0)
        return sealed_graph_entry(cache, true, sealed_graph_row(cache, row)) == row
                   ? 0
                   : error_set(reason, QUIRE_ECORRUPT, "entry %u has vector %u, which is another one's", row,
                               sealed_graph_row(cache, row));
    if (!sealed || sealed->group != cache_entry_at(cache, row)->group || place.row >= sealed->n_rows ||
        bitmap_has(sealed->dead, place.row) || (cache_entry_word(cache, row) & ENTRY_LISTED))
        return error_set(reason, QUIRE_ECORRUPT, "entry %u is said to be in row %u of segment %u, and is not", row,
                         place.row, place.segment);
    return 0;
}

int sealed_check(struct cache *cache, struct quire_error *reason)
{
    uint64_t n = 0, of_groups = 0;
    int rc = 0;
    memset(reason, 0, sizeof *reason);
    for (uint32_t row = 0; cache->apart && row < cache->n_rows && rc == 0; row++)
        if (cache_entry_word(cache, row) & ENTRY_LIVE) {
            rc = check_place(cache, row, reason);
            n += sealed_holds(cache, row);
        }
    for (uint32_t at = cache->free_rows; at && rc == 0; at = cache_entry_at(cache, at - 1)->chain)
        if (cache_entry_word(cache, at - 1) != ENTRY_TAKEN)
            rc = error_set(reason, QUIRE_ECORRUPT, "number %u is in the list of free ones, but used", at - 1);
    for (uint32_t i = 0; i < cache->n_groups && rc == 0; i++)
        of_groups += cache->groups[i] ? cache->groups[i]->n_sealed : 0;
    for (uint32_t i = 0; i < cache->n_sealed && rc == 0; i++)
        rc = check_segment(cache, cache->sealed[i], reason);
    if (rc == 0 && (n != cache->sealed_entries || n != of_groups))
        rc = error_set(reason, QUIRE_ECORRUPT, "the cache counts %llu sealed entries, its groups %llu, there are %llu",
                       (unsigned long long)cache->sealed_entries, (unsigned long long)of_groups, (unsigned long long)n);
    return rc;
}
