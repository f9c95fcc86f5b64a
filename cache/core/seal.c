/*
 * seal.c - the work behind sealed.h: which vectors leave the memory, and how segments become fewer.
 *
 * A seal takes the older half of the group that has the most vectors in memory. A merge takes segments of a group that
 * has too many, the smallest first and as long as the next one is no larger than those together, so that a row is
 * written anew as often as the logarithm of its group's size; or segments of which more than half is dead.
 *
 * Both go in the same steps, and only the short ones of them are under the lock:
 *
 *   list      ids of the rows, or segments and their dead rows as of now
 *   build     a folder, whole and synced; what dies meanwhile is built all the same
 *   join      the group's searches look into it: all of its rows are dead
 *   move      some entries at a time: logged, then placed. Of a seal their rows leave the graph
 *   retire    segments in which nothing is left
 *
 * Wherever it is interrupted, each entry is where the journal says. A lookup that had searched the memory before an
 * entry left it, and the segments before it came there, is told by the group's count of seals and by the count of
 * arrivals, and looks again.
 */
#include "cache/core/sealed.h"
#include "index/vector/codes.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    SEAL_ROWS = 65536,   /* of a group in memory, by default; and that one seal takes at most */
    SEGMENTS_MAX = 4,    /* of a group */
    SAMPLES = 4096,      /* of the times of a group's entries */
    LOOK_BATCH = 2048,   /* entries that are looked at under the lock at a time */
    GROUP_BATCH = 4096,  /* groups */
    MOVE_BATCH = 256,    /* entries that are moved */
    RETRY_MS = 10000,    /* after a failure */
    LISTS_ROWS = 4096,   /* from so many on a segment has inverted lists */
    NEAR_WAIT_US = 1000, /* for those who measure all vectors */
    BUILD_MEMORY = 512 << 20
};

struct seal {
    struct cache *cache;
    struct cache_scratch *scratch;
    struct group *group; /* pending counts it */
    uint32_t number;     /* of the new segment */
    char *path;
    struct sealed *added;
    struct merge_result result;
    /* of a seal */
    struct sealing *rows;
    uint32_t n_rows, rows_capacity;
    uint64_t until; /* created: those up to here */
    float *rotated;
    /* of a merge: the largest first */
    struct sealed **parts; /* references */
    struct merge_segment *segments;
    uint8_t **dead, **moved;
    uint32_t n_parts;
};

/* Vectors of a group; entries that are found by their hash only have none. */
static uint32_t in_memory(const struct group *group)
{
    return cache_group_linked(group) + group->n_rows;
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */

static bool is_short(const struct cache *cache)
{
    uint64_t used, capacity;
    cache_memory_use(cache, &used, &capacity);
    return cache->of->options.seal_always || used > capacity - capacity / 10;
}

static uint32_t seal_limit(const struct cache *cache)
{
    uint32_t rows = cache->of->options.seal_rows;
    return rows ? rows : SEAL_ROWS;
}

/* Fewer are not worth a segment: half of what one takes at least, of a group that is due. */
static uint32_t least_rows(const struct cache *cache)
{
    uint32_t limit = seal_limit(cache);
    return (limit / 2 < SEAL_ROWS ? limit / 2 : SEAL_ROWS) / 2;
}

/* The group with the most vectors in memory, if it is due; held. NULL: none is. (takes the lock) */
static struct group *choose_group(struct cache *cache)
{
    uint32_t best = 0, n_best = seal_limit(cache);
    bool end = false, found = false;
    for (uint32_t first = 0; !end; first += GROUP_BATCH) {
        pthread_mutex_lock(&cache->lock);
        end = first + GROUP_BATCH >= cache->n_groups || !is_short(cache);
        for (uint32_t i = first; i < first + GROUP_BATCH && i < cache->n_groups && is_short(cache); i++)
            if (cache->groups[i] && in_memory(cache->groups[i]) > n_best) {
                best = i;
                n_best = in_memory(cache->groups[i]);
                found = true;
            }
        pthread_mutex_unlock(&cache->lock);
    }
    pthread_mutex_lock(&cache->lock);
    struct group *group = found && best < cache->n_groups ? cache->groups[best] : NULL;
    if (group && in_memory(group) > seal_limit(cache))
        group->pending++;
    else
        group = NULL;
    pthread_mutex_unlock(&cache->lock);
    return group;
}

static bool is_half_dead(const struct sealed *sealed)
{
    return 2 * (uint64_t)sealed->n_living < sealed->n_rows;
}

static uint32_t count_segments(const struct group *group)
{
    uint32_t n = 0;
    for (const struct sealed *sealed = group->sealed; sealed; sealed = sealed->next)
        n++;
    return n;
}

/* A group whose segments are to be merged, held; NULL: none. Each time behind the segment that was the reason before,
 * so that one that cannot be read is not all that is ever tried. (takes the lock) */
static struct group *choose_merge(struct cache *cache)
{
    struct group *group = NULL;
    uint32_t first = 0;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < cache->n_sealed;) /* segments without entries go */
        if (cache->sealed[i]->n_living == 0)
            sealed_retire(cache, cache->sealed[i]);
        else
            i++;
    while (first < cache->n_sealed && cache->sealed[first]->number <= cache->merge_chosen)
        first++;
    for (uint32_t i = 0; i < cache->n_sealed && !group; i++) {
        const struct sealed *sealed = cache->sealed[(first + i) % cache->n_sealed];
        struct group *of = cache->groups[sealed->group];
        if (is_half_dead(sealed) || count_segments(of) > SEGMENTS_MAX) {
            group = of;
            cache->merge_chosen = sealed->number;
        }
    }
    if (group)
        group->pending++;
    pthread_mutex_unlock(&cache->lock);
    return group;
}

/* ---- the rows of a seal ------------------------------------------------------------------------------------------ */

/* Calls visit for each entry of the group whose vector is in memory, until it says false. (takes the lock) */
static void each_row(struct seal *s, bool (*visit)(struct seal *s, uint32_t row, void *context), void *context)
{
    struct cache *cache = s->cache;
    bool more = true;
    for (uint32_t first = 0; more; first += LOOK_BATCH) {
        pthread_mutex_lock(&cache->lock);
        for (uint32_t row = first; row < first + LOOK_BATCH && row < cache->n_rows && more; row++) {
            uint64_t word = cache_entry_word(cache, row), has_vector = ENTRY_LIVE | ENTRY_VECTOR;
            if ((word & has_vector) == has_vector && cache_entry_at(cache, row)->group == s->group->number &&
                !sealed_holds(cache, row))
                more = visit(s, row, context);
        }
        more = more && first + LOOK_BATCH < cache->n_rows;
        pthread_mutex_unlock(&cache->lock);
    }
}

struct samples {
    uint64_t created[SAMPLES];
    uint32_t n, seen, step;
};

static bool take_sample(struct seal *s, uint32_t row, void *context)
{
    struct samples *samples = context;
    if (samples->seen++ % samples->step == 0)
        samples->created[samples->n++] = cache_entry_created(cache_entry_at(s->cache, row));
    return samples->n < SAMPLES;
}

static bool take_row(struct seal *s, uint32_t row, void *context)
{
    const struct cache_entry *e = cache_entry_at(s->cache, row);
    (void)context;
    assert(s->n_rows < s->rows_capacity);
    if (cache_entry_created(e) <= s->until)
        s->rows[s->n_rows++] = (struct sealing){cache_entry_id(e, row), sealed_graph_row(s->cache, row), UINT32_MAX};
    return s->n_rows < s->rows_capacity;
}

/* The older half of the group, as samples tell which that is: sorting all would take memory, which is short. */
static int list_rows(struct seal *s, struct quire_error *err)
{
    struct samples *samples = calloc(1, sizeof *samples);
    pthread_mutex_lock(&s->cache->lock);
    uint32_t n = in_memory(s->group);
    pthread_mutex_unlock(&s->cache->lock);
    s->rows_capacity = n / 2 < SEAL_ROWS ? n / 2 : SEAL_ROWS;
    s->rows = malloc(sizeof *s->rows * (s->rows_capacity + 1u));
    s->rotated = malloc(sizeof *s->rotated * s->cache->space.code_dim);
    int rc = samples && s->rows && s->rotated ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to list %u vectors", n);
    if (rc == 0) {
        samples->step = n / SAMPLES + 1;
        each_row(s, take_sample, samples);
        if (samples->n)
            qsort(samples->created, samples->n, sizeof *samples->created, cache_compare_numbers);
        uint64_t at = n ? (uint64_t)samples->n * s->rows_capacity / n : 0;
        s->until = samples->n ? samples->created[at < samples->n ? at : samples->n - 1] : 0;
        if (s->rows_capacity && samples->n)
            each_row(s, take_row, NULL);
    }
    free(samples);
    return rc;
}

/* Vector i; of an entry that has gone meanwhile any vector does: nothing will be placed there. */
static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    struct seal *s = context;
    struct cache *cache = s->cache;
    const struct sealing *sealing = &s->rows[i];
    assert(i < s->n_rows);
    (void)attributes, (void)attribute_bytes;
    unsigned slot = epoch_enter(cache->of->epochs);
    pthread_mutex_lock(&cache->lock);
    uint32_t row = cache_entry_find(cache, sealing->id);
    bool there = row != UINT32_MAX && sealed_has_graph_row(cache, row, sealing->graph_row);
    pthread_mutex_unlock(&cache->lock);
    if (there) { /* the row keeps its code as long as this epoch lasts */
        const uint8_t *code;
        float f, norm2;
        graph_row(cache->graph, sealing->graph_row, &code, &f, &norm2);
        code_decode(code, cache->space.code_dim, 8, f, s->rotated);
        space_restore(&cache->space, s->rotated, vector);
    } else {
        memset(vector, 0, sizeof(float) * cache->config.dim);
        *(float *)vector = 1;
    }
    epoch_exit(cache->of->epochs, slot);
    *key = &sealing->id;
    *key_bytes = sizeof sealing->id;
}

/* ---- the segments of a merge ------------------------------------------------------------------------------------- */

static int by_living(const void *left, const void *right)
{
    uint32_t a = (*(struct sealed *const *)left)->n_living, b = (*(struct sealed *const *)right)->n_living;
    return (a > b) - (a < b);
}

/* Of all segments of the group, the fewest rows first, those to be merged: how many from the beginning on. */
static uint32_t choose_parts(struct sealed **all, uint32_t n)
{
    uint32_t taken = 0;
    uint64_t rows = 0;
    if (n > SEGMENTS_MAX) {
        for (; taken < n && (taken < 2 || all[taken]->n_living <= rows); taken++)
            rows += all[taken]->n_living;
        return taken;
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_half_dead(all[i])) {
            struct sealed *moved = all[i];
            all[i] = all[taken];
            all[taken++] = moved;
        }
    return taken;
}

/* (lock) */
static int take_parts(struct seal *s, struct quire_error *err)
{
    uint32_t n = count_segments(s->group), at = 0;
    s->parts = calloc(n + 1u, sizeof(struct sealed *));
    s->segments = calloc(n + 1u, sizeof *s->segments);
    s->dead = calloc(n + 1u, sizeof *s->dead);
    s->moved = calloc(n + 1u, sizeof *s->moved);
    if (!s->parts || !s->segments || !s->dead || !s->moved)
        return error_set(err, QUIRE_ENOMEM, "no memory to merge %u segments", n);
    for (struct sealed *sealed = s->group->sealed; sealed; sealed = sealed->next)
        s->parts[at++] = sealed;
    qsort(s->parts, n, sizeof(struct sealed *), by_living);
    s->n_parts = choose_parts(s->parts, n);
    for (uint32_t i = 0; i < s->n_parts / 2; i++) { /* the largest first: a merge reuses its edges */
        struct sealed *moved = s->parts[i];
        s->parts[i] = s->parts[s->n_parts - 1 - i];
        s->parts[s->n_parts - 1 - i] = moved;
    }
    for (uint32_t i = 0; i < s->n_parts; i++)
        sealed_ref(s->parts[i]);
    return 0;
}

static int list_parts(struct seal *s, struct quire_error *err)
{
    struct cache *cache = s->cache;
    pthread_mutex_lock(&cache->lock);
    int rc = take_parts(s, err);
    pthread_mutex_unlock(&cache->lock);
    for (uint32_t i = 0; i < s->n_parts && rc == 0; i++) {
        size_t bytes = s->parts[i]->n_rows / 8 + 1;
        s->dead[i] = malloc(bytes);
        s->moved[i] = calloc(bytes, 1);
        if (!s->dead[i] || !s->moved[i])
            return error_set(err, QUIRE_ENOMEM, "no memory to merge %u segments", s->n_parts);
        pthread_mutex_lock(&cache->lock);
        memcpy(s->dead[i], s->parts[i]->dead, bytes);
        pthread_mutex_unlock(&cache->lock);
        s->segments[i] = (struct merge_segment){.segment = s->parts[i]->segment, .dead = s->dead[i]};
    }
    return rc;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static int ask_stop(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct seal *s = context;
    (void)phase, (void)done, (void)total;
    return atomic_load(&s->cache->of->stopping) || atomic_load(&s->cache->closed);
}

void seal_build_options(const struct cache *cache, struct merge_options *out)
{
    struct io_fs *fs = cache->of->options.fs;
    *out = (struct merge_options){.fs = fs, .type = QUIRE_TYPE_F32, .dim = cache->config.dim};
    quire_build_options_init(&out->build);
    out->build.metric = QUIRE_METRIC_COSINE;
    out->build.code_bits = sealed_code_bits(cache);
    out->build.threads = 1;
    out->build.seed = cache->uid;
    out->build.build_memory_bytes = fs == fs_real() ? BUILD_MEMORY : 0; /* files in memory are no bound */
}

/* At most so many rows will be in the segment. */
static uint64_t count_rows(const struct seal *s)
{
    uint64_t n = s->n_rows;
    for (uint32_t i = 0; i < s->n_parts; i++)
        n += s->parts[i]->n_rows;
    return n;
}

/* Lookups of what is near take a quarter of the time in inverted lists: the nearest lists are known by their heads,
 * their codes stand side by side, and nothing has to be read to go on from (docs/performance.md). Of few rows a page
 * graph takes less memory. */
static int build(struct seal *s, struct quire_error *err)
{
    struct cache *cache = s->cache;
    struct merge_options options;
    const struct merge_rows rows = {.n = s->n_rows, .type = QUIRE_TYPE_F32, .row = give_row, .context = s};
    seal_build_options(cache, &options);
    options.build.index = count_rows(s) < LISTS_ROWS ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN;
    options.build.progress = ask_stop;
    options.build.context = s;
    pthread_mutex_lock(&cache->lock);
    s->number = cache->next_sealed++;
    pthread_mutex_unlock(&cache->lock);
    s->path = sealed_path(cache->of->folder, cache->uid, s->number);
    if (!s->path)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): seal_work frees what s points to */
    return merge_build(s->path, s->segments, s->n_parts, s->n_rows ? &rows : NULL, &options, &s->result, err);
}

/* The new segment is the group's. */
static int join(struct seal *s, struct quire_error *err)
{
    struct cache *cache = s->cache;
    struct sealed *sealed = NULL;
    int rc = sealed_create(s->number, s->group->number, &sealed);
    rc = rc < 0 ? error_set(err, rc, "no memory for a segment") : sealed_open(cache, sealed, err);
    if (rc == 0) {
        pthread_mutex_lock(&cache->lock);
        if (cache_entries_part(cache) < 0 || sealed_insert(cache, sealed) < 0) {
            rc = error_set(err, QUIRE_ENOMEM, "no memory for a segment");
        } else {
            sealed_join(cache, sealed, s->group);
            s->added = sealed_ref(sealed);
        }
        pthread_mutex_unlock(&cache->lock);
    }
    if (rc < 0)
        sealed_unref(sealed);
    return rc;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* (lock) Those of a batch whose entries still have their vectors in memory come first, are logged and moved; how many
 * or an error. */
static int move_some(struct seal *s, struct sealing *batch, uint32_t n, struct quire_error *err)
{
    struct cache *cache = s->cache;
    uint32_t kept = 0;
    assert(lock_is_held(&cache->lock) && cache->near_scans == 0 && s->added && n <= MOVE_BATCH);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = cache_entry_find(cache, batch[i].id);
        if (row != UINT32_MAX && sealed_has_graph_row(cache, row, batch[i].graph_row))
            batch[kept++] = batch[i];
    }
    int rc = kept ? cache_log_sealed(cache, s->added, batch, kept, err) : 0;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < kept; i++) {
        group_unlist(cache, s->group, (uint32_t)batch[i].id);
        sealed_place(cache, (uint32_t)batch[i].id, s->added, batch[i].segment_row);
    }
    if (kept) {
        s->group->seals = ++cache->seals;
        cache->arrivals[s->group->key & 255]++;
    }
    return (int)kept;
}

static int move_rows(struct seal *s, struct quire_error *err)
{
    struct cache *cache = s->cache;
    int moved = 0;
    assert(s->result.rows_of && s->n_parts == 0);
    for (uint32_t i = 0; i < s->n_rows; i++)
        s->rows[i].segment_row = s->result.rows_of[0][i];
    for (uint32_t first = 0; first < s->n_rows && moved >= 0; first += MOVE_BATCH) {
        uint32_t n = s->n_rows - first < MOVE_BATCH ? s->n_rows - first : MOVE_BATCH;
        /* The lock, at a moment at which vectors may leave the memory. */
        pthread_mutex_lock(&cache->lock);
        while (cache->near_scans) {
            pthread_mutex_unlock(&cache->lock);
            nanosleep(&(struct timespec){.tv_nsec = NEAR_WAIT_US * 1000}, NULL);
            pthread_mutex_lock(&cache->lock);
        }
        moved = move_some(s, s->rows + first, n, err);
        pthread_mutex_unlock(&cache->lock);
        for (int i = 0; i < moved; i++) { /* the group stays: it is held */
            unsigned slot = epoch_enter(cache->of->epochs);
            graph_remove(cache->graph, &s->group->root, s->scratch->graph, s->rows[first + (uint32_t)i].graph_row);
            epoch_exit(cache->of->epochs, slot);
        }
    }
    return moved < 0 ? moved : 0;
}

/* Which of the parts a segment is; n_parts: none. */
static uint32_t part_of(const struct seal *s, uint32_t number)
{
    uint32_t p = 0;
    while (p < s->n_parts && s->parts[p]->number != number)
        p++;
    return p;
}

static int move_parts(struct seal *s, struct quire_error *err)
{
    struct cache *cache = s->cache;
    int rc = 0;
    bool end = false;
    for (uint32_t first = 0; rc == 0 && !end; first += MOVE_BATCH) {
        pthread_mutex_lock(&cache->lock);
        end = first + MOVE_BATCH >= cache->n_rows;
        uint32_t last = end ? cache->n_rows : first + MOVE_BATCH;
        struct sealing batch[MOVE_BATCH]; /* entries of rows first .. last - 1 that are in one of the parts */
        uint32_t n = 0;
        assert(lock_is_held(&cache->lock) && s->added && last - first <= MOVE_BATCH);
        for (uint32_t row = first; row < last; row++) {
            struct place place = sealed_place_of(cache, row);
            uint32_t from = part_of(s, place.segment);
            if ((cache_entry_word(cache, row) & ENTRY_LIVE) && from < s->n_parts &&
                s->result.rows_of[from][place.row] != UINT32_MAX)
                batch[n++] = (struct sealing){cache_entry_id(cache_entry_at(cache, row), row), 0,
                                              s->result.rows_of[from][place.row]};
        }
        rc = n ? cache_log_sealed(cache, s->added, batch, n, err) : 0;
        for (uint32_t i = 0; i < n && rc == 0; i++) {
            struct place place = sealed_place_of(cache, (uint32_t)batch[i].id);
            bitmap_add(s->moved[part_of(s, place.segment)], place.row); /* what could not be logged has not moved */
            sealed_place(cache, (uint32_t)batch[i].id, s->added, batch[i].segment_row);
        }
        if (rc < 0) { /* it could not be logged to its end: rows whose entries have moved are dead where they were */
            for (uint32_t p = 0; p < s->n_parts; p++)
                for (uint32_t row = 0; row < s->parts[p]->n_rows; row++)
                    if (bitmap_has(s->moved[p], row))
                        bitmap_add_shared(s->parts[p]->dead, row);
            s->group->seals = ++s->cache->seals;
        }
        pthread_mutex_unlock(&cache->lock);
    }
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int run(struct seal *s, bool merge, struct quire_error *err)
{
    assert(s->group && !s->added);
    int rc = merge ? list_parts(s, err) : list_rows(s, err);
    if (rc == 0 && !merge && s->n_rows < least_rows(s->cache))
        return 0; /* they went meanwhile */
    if (rc == 0)
        rc = build(s, err);
    if (rc == 0 && s->result.rows)
        rc = join(s, err);
    if (rc < 0 && s->path)
        sealed_remove_folder(s->cache, s->number, NULL);
    if (rc == 0 && s->added)
        rc = merge ? move_parts(s, err) : move_rows(s, err);
    return rc;
}

static bool may_try(uint64_t failed_ms, uint64_t now)
{
    return failed_ms == 0 || now - failed_ms >= RETRY_MS;
}

bool seal_work(struct cache *cache, struct cache_scratch *scratch)
{
    struct quire_error err = {0};
    sealed_remove_retired(cache);
    uint64_t now = cache_now(cache);
    if (atomic_load(&cache->closed))
        return false;
    struct seal s = {.cache = cache, .scratch = scratch};
    s.group = may_try(cache->merge_failed_ms, now) ? choose_merge(cache) : NULL;
    bool merge = s.group != NULL;
    if (!merge && may_try(cache->seal_failed_ms, now))
        s.group = choose_group(cache);
    if (!s.group)
        return false;
    int rc = run(&s, merge, &err);
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < s.n_parts; i++)
        if (s.parts[i]->n_living == 0 && sealed_find(cache, s.parts[i]->number))
            sealed_retire(cache, s.parts[i]);
    if (s.added && s.added->n_living == 0 && sealed_find(cache, s.added->number))
        sealed_retire(cache, s.added);
    assert(s.group->pending > 0);
    s.group->pending--;
    group_release(cache, s.group);
    pthread_mutex_unlock(&cache->lock);
    bool done = rc == 0 && s.added;
    *(merge ? &cache->merge_failed_ms : &cache->seal_failed_ms) = rc < 0 ? now : 0;
    if (rc < 0 && rc != QUIRE_ECANCELLED) {
        char line[1200];
        snprintf(line, sizeof line, "vectors of the cache '%.*s' cannot be sealed: %s", (int)cache->config.name.n_bytes,
                 (const char *)cache->config.name.data, err.message);
        caches_say(cache->of, true, line);
    }
    merge_result_fini(&s.result);
    for (uint32_t i = 0; i < s.n_parts; i++) {
        sealed_unref(s.parts[i]);
        free(s.dead[i]);
        free(s.moved[i]);
    }
    sealed_unref(s.added);
    free(s.parts);
    free(s.segments);
    free(s.dead);
    free(s.moved);
    free(s.rows);
    free(s.rotated);
    free(s.path);
    return done;
}
