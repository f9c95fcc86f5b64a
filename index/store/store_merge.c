/*
 * store_merge.c - seals and merges: frozen memtables and segments become one new segment.
 *
 * Both are one operation (merge.h): the rows of some parts and of the oldest memtables that live now are written to a
 * new folder, and one record exchanges them. Rows that die while it is written are marked dead in the new part by
 * collection_publish, which knows where each row went. Nothing is lost on the way: until the record is in the log, the
 * rows are where they were; if anything fails the new folder goes and the collection is as before.
 *
 * What is merged. Segments of a collection are kept few, since a search asks all of them, and each row is to be
 * written anew seldom. With more than MERGE_PARTS of them the smallest are merged: the two smallest at least, and each
 * next one as long as it is no larger than those before it together. So sizes grow geometrically, and a row that is
 * merged lands in a segment at least twice the size of its own most of the time: O(log n) times in all. A part whose
 * rows are dead to a fifth is written anew alone: its space comes back, and searches read no dead rows.
 *
 * A memtable all of whose rows have died keeps the structures that it grew to. It is "sealed", too: nothing comes of
 * it, and a new one takes its place.
 *
 * A seal takes parts smaller than half its rows along: to merge them later would cost the same and one more segment
 * meanwhile.
 *
 * A budget of resident memory is a collection's; its parts share it. A part gets its share by rows, but at most three
 * quarters of what the others leave: the next one needs some, too. At opening all shares are dealt anew.
 */
#include "index/collection/lineage.h"
#include "index/collection/part_numbers.h"
#include "index/memtable/memtable.h"
#include "index/store/store_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIKE_TIMES 4.0
#define LOOK_MS    20u

struct rebuild {
    bool is_seal; /* of memtables; otherwise a merge of parts alone */
    struct store *store;
    struct maintainer *maintainer; /* NULL: another thread */
    uint64_t look_ms;              /* when it looks again whether it is awaited, and whether that is for nothing */
    bool is_void;                  /* it is for nothing */
    struct collection *collection;
    struct view *view; /* a reference: its parts and memtables stay */
    struct part **parts;
    uint32_t n_parts; /* the largest first */
    struct memtable_ref *const *memtables;
    uint32_t n_memtables; /* the last ones of the view */
    struct merge_segment *segments;
    struct collection_ended *ended; /* what dies meanwhile */
    struct source {
        uint32_t table, row;
    } * sources; /* n_rows: where row i of the memtables is */
    uint32_t n_rows;
    float *scratch; /* where vectors are decoded */
    uint64_t uid;
    char *path;
    struct merge_result result;
    uint32_t **memtable_rows_of; /* n_memtables */
    struct part *added;
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

static uint64_t budget_of(const struct store *store, const struct collection *c)
{
    return collection_config(c)->memory_bytes ? collection_config(c)->memory_bytes
                                              : store->options.segment_memory_bytes;
}

uint64_t store_share(const struct store *store, const struct collection *collection, struct part *const *others,
                     uint32_t n, uint64_t rows)
{
    uint64_t budget = budget_of(store, collection), total = rows, taken = 0;
    if (budget == 0)
        return UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct segment_info *info = segment_info(others[i]->segment);
        total += info->rows;
        taken += info->memory_bytes == UINT64_MAX ? info->resident_bytes : info->memory_bytes;
    }
    uint64_t left = taken < budget ? (budget - taken) / 4 * 3 : 0;
    uint64_t share = (uint64_t)((double)budget * ((double)rows / (double)total));
    assert(rows <= total && left <= budget);
    return share < left ? share : left;
}

int store_open_part(struct store *store, const struct collection *collection, struct part *part, uint64_t memory_bytes,
                    struct quire_error *err)
{
    struct segment_options options = {
        .fs = store->fs, .memory_bytes = memory_bytes ? memory_bytes : 1, .naming = SEGMENT_NAMES};
    struct quire_error reason = {0};
    char *path = store_segment_path(store, part->uid);
    if (!path)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    int rc = part_open(part, path, &options, &reason);
    if (rc == QUIRE_ELIMIT) {
        store_log(store, true, "%s; opened with its narrowest codes, beyond the budget", reason.message);
        options = (struct segment_options){
            .fs = store->fs, .memory_bytes = UINT64_MAX, .code_bits = 1, .read_lists = true, .naming = SEGMENT_NOTHING};
        rc = part_open(part, path, &options, &reason);
    }
    free(path);
    if (rc == 0 && collection_config(collection)->numbered)
        rc = part_number(part, &reason);
    return rc < 0 ? error_set(err, rc, "%s", reason.message) : 0;
}

/* Whoever is awaited hurries, and no longer. A set that has become a copy takes nothing that is built here. */
static void look_around(struct rebuild *r)
{
    uint64_t now = store_now_ms();
    if (now < r->look_ms)
        return;
    r->is_void = r->is_void || lineage_is_replica(r->collection);
    if (r->maintainer) {
        struct view *view = collection_view(r->collection);
        store_priority_hurry(r->maintainer, store_is_awaited(r->store, view, r->is_seal));
        view_unref(view);
    }
    r->look_ms = now + LOOK_MS;
}

/* Called often. */
static int ask_stop(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct rebuild *r = context;
    (void)phase, (void)done, (void)total;
    look_around(r);
    return r->is_void || atomic_load(&r->store->stopping) || collection_is_dropped(r->collection);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Whether memtables keep codes and no vectors (memtable.h). */
static bool keeps_codes(const struct collection *c)
{
    const struct collection_config *config = collection_config(c);
    return config->metric == QUIRE_METRIC_COSINE && collection_slot(config) == QUIRE_SLOT_Q8;
}

/* Row i of all living rows of the memtables. They are frozen: their memory stays as long as the table. */
static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    const struct rebuild *r = context;
    const struct memtable *table = r->memtables[r->sources[i].table]->memtable;
    struct memtable_row row;
    memtable_row(table, r->sources[i].row, &row);
    if (keeps_codes(r->collection)) {
        memtable_vector(table, r->sources[i].row, r->scratch, vector);
        memtable_row_stored(table, r->sources[i].row,
                            (uint8_t *)vector + collection_config(r->collection)->dim * sizeof(float));
    } else {
        memtable_row_stored(table, r->sources[i].row, vector);
    }
    *key = row.key;
    *key_bytes = row.key_bytes;
    *attributes = row.attributes;
    *attribute_bytes = row.attribute_bytes;
}

/* The living rows of the memtables. */
static int list_rows(struct rebuild *r)
{
    uint64_t capacity = 0;
    for (uint32_t t = 0; t < r->n_memtables; t++)
        capacity += view_memtable_rows(r->memtables[t]->memtable);
    r->sources = malloc(memory_size_mul(capacity + 1, sizeof *r->sources));
    if (!r->sources)
        return QUIRE_ENOMEM;
    for (uint32_t t = 0; t < r->n_memtables; t++) {
        uint32_t rows = view_memtable_rows(r->memtables[t]->memtable);
        for (uint32_t i = 0; i < rows; i++)
            if (memtable_end_lsn(r->memtables[t]->memtable, i) == MEMTABLE_LSN_MAX)
                r->sources[r->n_rows++] = (struct source){t, i};
    }
    assert(r->n_rows <= capacity);
    return 0;
}

struct counted_part {
    uint64_t living;
    struct part *part;
};

static int by_living(const void *a, const void *b)
{
    const struct counted_part *x = a, *y = b;
    return x->living > y->living ? -1 : x->living < y->living;
}

/* Most rows first. Writers change how many live meanwhile: each number is read once. */
static int sort_parts(struct part **parts, uint32_t n)
{
    struct counted_part *counted = malloc(memory_size_mul((size_t)n + 1, sizeof *counted));
    if (!counted)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        counted[i] = (struct counted_part){part_living(parts[i]), parts[i]};
    qsort(counted, n, sizeof *counted, by_living);
    for (uint32_t i = 0; i < n; i++)
        parts[i] = counted[i].part;
    free(counted);
    return 0;
}

static int gather(struct rebuild *r, struct quire_error *err)
{
    const struct collection_config *config = collection_config(r->collection);
    int rc = sort_parts(r->parts, r->n_parts);
    r->segments = calloc(r->n_parts + 1u, sizeof *r->segments);
    r->memtable_rows_of = calloc(r->n_memtables + 1u, sizeof *r->memtable_rows_of);
    r->scratch = malloc(sizeof(float) * (memory_size_mul(config->dim, 2) + 1024));
    if (!r->segments || !r->memtable_rows_of || !r->scratch)
        rc = QUIRE_ENOMEM;
    /* before rows are listed: what dies after this is noted */
    if (rc == 0)
        rc = collection_ended_begin(r->collection, r->parts, r->n_parts, r->memtables, r->n_memtables, &r->ended);
    for (uint32_t i = 0; i < r->n_parts && rc == 0; i++)
        r->segments[i] =
            (struct merge_segment){.segment = r->parts[i]->segment, .dead = collection_ended_dead(r->ended, i)};
    if (rc == 0)
        rc = list_rows(r);
    return rc < 0 ? error_set(err, rc, "no memory to list the rows of a new segment") : 0;
}

/* ---- the new segment --------------------------------------------------------------------------------------------- */

/* The part whose calibration a seal may go by: the one whose size is nearest to that of the new segment, if it has no
 * more than LIKE_TIMES as many rows, and no fewer than such a part of them. */
static const struct segment *like_segment(const struct rebuild *r)
{
    const struct segment *best = NULL;
    double n = r->n_rows + 1.0, least = log(LIKE_TIMES);
    for (uint32_t i = 0; i < r->view->n_parts; i++) {
        const struct segment *s = r->view->parts[i]->segment;
        double apart = fabs(log((double)segment_info(s)->rows / n));
        if (apart > least)
            continue;
        best = s;
        least = apart;
    }
    return best;
}

static int write_segment(struct rebuild *r, struct quire_error *err)
{
    bool brief = r->is_seal && r->maintainer; /* whoever asks for a seal waits for all of it */
    const struct collection_config *config = collection_config(r->collection);
    struct merge_options options = {.fs = r->store->fs,
                                    .type = config->type,
                                    .dim = config->dim,
                                    .like = brief ? like_segment(r) : NULL,
                                    .brief = brief,
                                    .tenant_runs = config->tenants,
                                    .unit_codes = keeps_codes(r->collection)};
    quire_build_options_init(&options.build);
    options.build.metric = config->metric;
    options.build.index = config->index;
    options.build.slot = collection_slot(config);
    options.build.block_bytes = config->block_bytes;
    options.build.code_bits = config->code_bits;
    options.build.degree = config->degree;
    options.build.build_beam = config->build_beam;
    options.build.seed = config->seed;
    options.build.threads = r->store->options.threads;
    /* a bound is kept by files that are mapped: files in memory are none */
    options.build.build_memory_bytes = r->store->fs == fs_real() ? r->store->options.build_memory_bytes : 0;
    options.build.memory_bytes = budget_of(r->store, r->collection);
    options.build.columns = collection_schema(r->collection)->columns;
    options.build.n_columns = collection_schema(r->collection)->n;
    options.build.progress = ask_stop;
    options.build.context = r;
    struct merge_rows rows = {.n = r->n_rows,
                              .type = keeps_codes(r->collection) ? QUIRE_TYPE_F32 : config->type,
                              .unit_codes = keeps_codes(r->collection),
                              .seed = config->seed,
                              .row = give_row,
                              .context = r};
    r->uid = store_new_segment(r->store);
    r->path = store_segment_path(r->store, r->uid);
    if (!r->path)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): rebuild_fini frees what r points to */
    return merge_build(r->path, r->segments, r->n_parts, r->n_rows ? &rows : NULL, &options, &r->result, err);
}

/* With the budget that parts which go leave behind. */
static int open_added(struct rebuild *r, struct quire_error *err)
{
    struct part **others = calloc(r->view->n_parts + 1u, sizeof(struct part *));
    uint32_t n = 0;
    if (!others)
        return error_set(err, QUIRE_ENOMEM, "no memory to open a new segment");
    for (uint32_t i = 0; i < r->view->n_parts; i++) {
        bool goes = false;
        for (uint32_t k = 0; k < r->n_parts; k++)
            goes |= r->parts[k] == r->view->parts[i];
        if (!goes)
            others[n++] = r->view->parts[i];
    }
    uint64_t share = store_share(r->store, r->collection, others, n, r->result.rows);
    int rc = part_create(r->uid, &r->added, err);
    if (rc == 0)
        rc = store_open_part(r->store, r->collection, r->added, share, err);
    free(others);
    return rc;
}

/* rows_of of all rows from memtables, which merge_build numbers through, by table and its own row numbers. */
static int split_rows(struct rebuild *r, struct quire_error *err)
{
    const uint32_t *rows_of = r->n_rows ? r->result.rows_of[r->n_parts] : NULL;
    for (uint32_t t = 0; t < r->n_memtables; t++) {
        size_t bytes = sizeof(uint32_t) * ((size_t)view_memtable_rows(r->memtables[t]->memtable) + 1);
        r->memtable_rows_of[t] = malloc(bytes);
        if (!r->memtable_rows_of[t])
            return error_set(err, QUIRE_ENOMEM, "no memory for where rows have gone");
        memset(r->memtable_rows_of[t], 0xff, bytes);
    }
    assert(r->n_rows == 0 || rows_of);
    for (uint32_t i = 0; i < r->n_rows; i++)
        r->memtable_rows_of[r->sources[i].table][r->sources[i].row] = rows_of[i];
    return 0;
}

/* What copies are told of: room for the ids of parts that go, and where rows were in them. */
static int prepare_copies(struct rebuild *r, uint8_t (**gone)[LINEAGE_ID_BYTES], struct quire_error *err)
{
    int rc = 0;
    bool has_copies = r->store->host.effect && lineage_get(r->collection, NULL);
    *gone = malloc(LINEAGE_ID_BYTES * ((size_t)r->n_parts + 1));
    if (!*gone || (r->added && r->n_parts && has_copies &&
                   lineage_make_origins(r->added, r->parts, r->n_parts, r->result.rows_of) < 0))
        rc = error_set(err, QUIRE_ENOMEM, "no memory to tell copies of a new segment");
    return rc;
}

int store_publish(struct store *store, struct collection *collection, const struct collection_edit *edit, uint64_t *lsn,
                  struct quire_error *err)
{
    pthread_mutex_lock(&store->publish);
    /* most of it before writers wait */
    int rc = collection_ended_carry(collection, edit, err);
    assert(!edit->added || edit->added->segment);
    if (rc == 0) {
        journal_quiesce_begin(store->journal);
        rc = collection_publish(collection, edit, lsn, err);
        journal_quiesce_end(store->journal);
    }
    for (uint32_t i = 0; rc == 0 && i < edit->n_removed_parts; i++)
        store_mark_removed(store, edit->removed_parts[i]);
    for (uint32_t i = 0; rc == 0 && i < edit->n_removed_memtables; i++)
        store_mark_table_removed(store, edit->removed_memtables[i]);
    pthread_mutex_unlock(&store->publish);
    return rc;
}

static void rebuild_fini(struct rebuild *r, int rc)
{
    assert(rc < 0 || (r->added != NULL) == (r->result.rows > 0));
    if (rc < 0 && r->added)
        store_mark_removed(r->store, r->added);
    else if (rc < 0 && r->path)
        fs_remove_folder(r->store->fs, r->path, NULL);
    part_unref(r->added);
    merge_result_fini(&r->result);
    collection_ended_free(r->collection, r->ended);
    for (uint32_t i = 0; r->memtable_rows_of && i < r->n_memtables; i++)
        free(r->memtable_rows_of[i]);
    free(r->memtable_rows_of);
    free(r->segments);
    free(r->sources);
    free(r->scratch);
    free(r->path);
}

/* Writes what r names and exchanges it. The view is released by the caller. */
static int rebuild(struct rebuild *r, struct quire_error *err)
{
    int rc = gather(r, err);
    if (rc == 0)
        rc = write_segment(r, err);
    if (rc == QUIRE_ECANCELLED && r->is_void)
        rc = lineage_cancel(r->collection, err);
    if (rc == 0 && r->result.rows > 0)
        rc = open_added(r, err);
    if (rc == 0)
        rc = split_rows(r, err);
    uint8_t(*gone)[LINEAGE_ID_BYTES] = NULL;
    if (rc == 0)
        rc = prepare_copies(r, &gone, err);
    if (rc == 0) {
        struct collection_edit edit = {.gone = gone,
                                       .removed_parts = r->parts,
                                       .n_removed_parts = r->n_parts,
                                       .removed_memtables = r->memtables,
                                       .n_removed_memtables = r->n_memtables,
                                       .added = r->added,
                                       .rows_of = r->result.rows_of,
                                       .ended = r->ended,
                                       .memtable_rows_of = r->memtable_rows_of};
        uint64_t lsn;
        rc = store_publish(r->store, r->collection, &edit, &lsn, err);
    }
    free(gone);
    uint64_t rows = r->result.rows;
    rebuild_fini(r, rc);
    r->result.rows = rows; /* for the log */
    return rc;
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */

bool store_seal_is_due(const struct store *store, const struct view *view)
{
    uint64_t limit = store->options.memtable_bytes, frozen_rows = 0;
    struct memtable_stats stats;
    for (uint32_t i = 1; i < view->n_memtables; i++) {
        memtable_get_stats(view->memtables[i]->memtable, &stats);
        frozen_rows += stats.rows + stats.dead;
    }
    memtable_get_stats(view->memtables[0]->memtable, &stats);
    bool full = stats.bytes > limit && (stats.rows >= SEAL_ROWS_MIN || stats.bytes > 4 * limit);
    bool empty = stats.rows == 0 && stats.bytes > EMPTY_BYTES_MAX;
    return full || empty || frozen_rows >= SEAL_ROWS_MIN || view->n_memtables > SEAL_TABLES_MAX;
}

/* A memtable and a half: the limit at which they wait is two. Half of the segments between those of a collection that
 * is merged in time and those at which writers wait. */
bool store_is_awaited(const struct store *store, const struct view *view, bool is_seal)
{
    uint64_t bytes = 0;
    if (!is_seal)
        return view->n_parts > (MERGE_PARTS + store->options.segments_max + 1) / 2;
    for (uint32_t i = 0; i < view->n_memtables; i++) {
        struct memtable_stats stats;
        memtable_get_stats(view->memtables[i]->memtable, &stats);
        bytes += stats.bytes;
    }
    return bytes > store->options.memtable_bytes / 2 * 3;
}

struct candidate {
    uint64_t living;
    uint32_t part;
};

static int by_living_rows(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->living < y->living ? -1 : x->living > y->living;
}

uint32_t store_plan_merge(const struct view *view, bool *flags)
{
    struct candidate candidates[UINT8_MAX];
    uint32_t n = view->n_parts < UINT8_MAX ? view->n_parts : UINT8_MAX, taken = 0;
    uint64_t sum = 0;
    memset(flags, 0, view->n_parts * sizeof *flags);
    for (uint32_t i = 0; i < n; i++)
        candidates[i] = (struct candidate){part_living(view->parts[i]), i};
    qsort(candidates, n, sizeof *candidates, by_living_rows);
    while (n > MERGE_PARTS && taken < n && (taken < 2 || candidates[taken].living <= sum)) {
        sum += candidates[taken].living;
        flags[candidates[taken++].part] = true;
    }
    for (uint32_t i = 0; taken == 0 && i < n; i++) {
        const struct part *part = view->parts[candidates[i].part];
        taken = atomic_load(&part->n_dead) * MERGE_DEAD_SHARE > segment_info(part->segment)->rows;
        flags[candidates[i].part] = taken > 0;
    }
    return taken;
}

/* ---- seal and merge ---------------------------------------------------------------------------------------------- */

/* Rebuilds what r names, if that is anything, and counts it; gives back the view and the parts of r. */
static int rebuild_and_count(struct rebuild *r, uint64_t started_us, struct quire_error *err)
{
    struct store *store = r->store;
    struct store_stats *stats = &store->stats;
    bool is_seal = r->is_seal;
    int rc = 0;
    if (is_seal ? r->n_memtables > 0 : r->n_parts > 0) {
        bool *working = is_seal ? &stats->sealing : &stats->merging;
        pthread_mutex_lock(&store->lock);
        assert(store_upkeep(r->collection)->busy & (is_seal ? BUSY_SEAL : BUSY_MERGE));
        *working = true;
        pthread_mutex_unlock(&store->lock);
        rc = rebuild(r, err);
        uint64_t us = clock_us() - started_us;
        pthread_mutex_lock(&store->lock);
        *working = false;
        if (rc == 0) {
            *(is_seal ? &stats->seals : &stats->merges) += 1;
            *(is_seal ? &stats->seal_us : &stats->merge_us) += us;
            *(is_seal ? &stats->rows_sealed : &stats->rows_merged) += r->result.rows;
            collection_count_rebuild(r->collection, is_seal);
        }
        pthread_mutex_unlock(&store->lock);
        if (rc == 0)
            store_log(store, false, "%s: set %llu, %llu rows to segment %llu in %.2f s", is_seal ? "sealed" : "merged",
                      (unsigned long long)collection_uid(r->collection), (unsigned long long)r->result.rows,
                      (unsigned long long)r->uid, (double)us * 1e-6);
    }
    free(r->parts);
    view_unref(r->view);
    store_count(store, r->collection);
    return rc;
}

int store_seal_claimed(struct store *store, struct maintainer *m, struct collection *collection, bool with_parts,
                       struct quire_error *err)
{
    struct rebuild r = {.is_seal = true, .store = store, .maintainer = m, .collection = collection};
    uint64_t started = clock_us(), rows = 0;
    journal_quiesce_begin(store->journal);
    int rc = collection_freeze(collection, err);
    journal_quiesce_end(store->journal);
    if (rc < 0)
        return rc;
    r.view = collection_view(collection);
    r.n_memtables = r.view->n_memtables - 1;
    r.memtables = r.view->memtables + 1;
    for (uint32_t i = 0; i < r.n_memtables; i++) {
        struct memtable_stats stats;
        memtable_get_stats(r.memtables[i]->memtable, &stats);
        assert(r.memtables[i]->last_lsn < MEMTABLE_LSN_MAX); /* frozen */
        rows += stats.rows;
    }
    r.parts = calloc(r.view->n_parts + 1u, sizeof(struct part *));
    for (uint32_t i = 0; r.parts && with_parts && i < r.view->n_parts; i++)
        if (part_living(r.view->parts[i]) <= rows / 2)
            r.parts[r.n_parts++] = r.view->parts[i];
    if (!r.parts) {
        view_unref(r.view);
        return error_set(err, QUIRE_ENOMEM, "no memory to seal");
    }
    return rebuild_and_count(&r, started, err);
}

int store_merge_claimed(struct store *store, struct maintainer *m, struct collection *collection, bool all,
                        struct quire_error *err)
{
    struct rebuild r = {.store = store, .maintainer = m, .collection = collection, .view = collection_view(collection)};
    uint64_t started = clock_us();
    uint32_t n_parts = r.view->n_parts, n = 0;
    bool *flags = calloc(n_parts + 1u, sizeof *flags);
    r.parts = calloc(n_parts + 1u, sizeof(struct part *));
    if (!flags || !r.parts) {
        free(flags);
        free(r.parts);
        view_unref(r.view);
        return error_set(err, QUIRE_ENOMEM, "no memory to merge");
    }
    if (!all)
        n = store_plan_merge(r.view, flags);
    else if (n_parts > 1 || (n_parts == 1 && atomic_load(&r.view->parts[0]->n_dead)))
        n = n_parts;
    for (uint32_t i = 0; i < n_parts && n > 0; i++)
        if (all || flags[i])
            r.parts[r.n_parts++] = r.view->parts[i];
    assert(r.n_parts == n);
    free(flags);
    int rc = rebuild_and_count(&r, started, err);
    return rc < 0 ? rc : n > 0;
}

/* ---- on request -------------------------------------------------------------------------------------------------- */

/* With what one does to a collection claimed: seals, and merges all if that is wanted. */
static int seal_on_request(struct store *store, struct collection *collection, bool compact, struct quire_error *err)
{
    unsigned bits = compact ? BUSY_SEAL | BUSY_MERGE : BUSY_SEAL;
    int available = collection_available(collection, err);
    if (available < 0)
        return available;
    if (lineage_is_replica(collection))
        return error_set(err, QUIRE_EPERM, "set %llu is a copy: its leader seals and merges",
                         (unsigned long long)collection_uid(collection));
    store_claim(store, collection, bits, true);
    int rc = collection_is_dropped(collection) ? error_set(err, QUIRE_ECLOSED, "collection %llu was dropped",
                                                           (unsigned long long)collection_uid(collection))
                                               : store_seal_claimed(store, NULL, collection, compact, err);
    if (rc == 0 && compact)
        rc = store_merge_claimed(store, NULL, collection, true, err);
    store_release(store, collection, bits);
    return rc < 0 ? rc : 0;
}

int store_seal(struct store *store, struct collection *collection, struct quire_error *err)
{
    return seal_on_request(store, collection, false, err);
}

int store_compact(struct store *store, struct collection *collection, struct quire_error *err)
{
    return seal_on_request(store, collection, true, err);
}
