/*
 * library.c - the calls of quire.h over segments, searchers and engines.
 *
 * A handle holds a segment and a pool of lanes (search_lane.h) for blocking calls. The batch call gives each of its
 * lanes a thread and shares the queries out by an atomic counter. A loop (quire_loop) is a lane that the caller drives.
 * Filter and tenants are made a selection of rows (library_filter.c) once for all queries of a call.
 */
#include "index/api/library_priv.h"
#include "index/search/filtered_search.h"
#include "index/search/search_lane.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include "index/vector/parallel.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BEGINS     4u /* fewer: more system calls; more: answers wait for seeds of others */
#define INFLIGHT_DEFAULT 32u
#define LANES_MAX        256u

struct quire_index {
    struct segment *segment;
    struct quire_open_options options;
    struct search_lane_pool lanes;
};

struct quire_loop {
    struct search_lane *lane;
    struct home home;
    struct quire_loop_options options;
    int callbacks; /* run in the present poll */
};

struct loop_search {
    struct filtered_search search;
    struct quire_loop *loop;
    struct segment *segment;
    struct restriction restriction;
    float *query;
    quire_search_callback *callback;
    void *context;
    struct quire_hit *hits;
};

int library_struct_validate(size_t given, size_t known, const char *name, struct quire_error *err)
{
    if (given == known)
        return 0;
    return error_set(
        err, QUIRE_EINVALID,
        "struct_bytes of struct %s is %zu, this library knows %zu: fill the options with %s_init, and compile "
        "with the header of quire %s",
        name, given, known, name, QUIRE_VERSION_STRING);
}

void quire_open_options_init(struct quire_open_options *options)
{
    *options = (struct quire_open_options){.struct_bytes = sizeof *options};
}

int quire_open(const char *path, const struct quire_open_options *options, struct quire_index **out,
               struct quire_error *err)
{
    if (!path || !out)
        return error_set(err, QUIRE_EINVALID, "path and out must be given");
    int rc = options ? library_struct_validate(options->struct_bytes, sizeof *options, "quire_open_options", err) : 0;
    if (rc < 0)
        return rc;
    struct quire_index *index = calloc(1, sizeof *index);
    if (!index)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    if (options)
        index->options = *options;
    else
        quire_open_options_init(&index->options);
    struct segment_options segment_options = {.memory_bytes = index->options.memory_bytes,
                                              .no_cache = index->options.no_cache};
    rc = segment_open(path, &segment_options, &index->segment, err);
    if (rc == 0) {
        rc = search_lane_pool_init(&index->lanes, index->options.engine, index->options.reads_max, err);
        if (rc < 0)
            segment_unref(index->segment);
    }
    if (rc < 0)
        free(index);
    else
        *out = index;
    return rc;
}

void quire_close(struct quire_index *index)
{
    if (!index || search_lane_pool_check(&index->lanes, NULL) < 0)
        return;
    search_lane_pool_fini(&index->lanes);
    segment_unref(index->segment);
    free(index);
}

struct segment *library_segment(struct quire_index *index)
{
    return index->segment;
}

void quire_get_info(const struct quire_index *index, struct quire_info *out)
{
    const struct segment_info *i = segment_info(index->segment);
    *out = (struct quire_info){.rows = i->rows,
                               .dim = i->dim,
                               .type = i->type,
                               .metric = i->metric,
                               .index = i->index,
                               .lists = i->n_lists,
                               .list_entries = i->list_entries,
                               .slot = i->slot,
                               .block_bytes = i->block_bytes,
                               .blocks = i->n_blocks,
                               .slots_per_block = i->slots_per_block,
                               .code_bits = i->code_bits,
                               .edge_codes = i->edge_codes,
                               .resident_bytes = i->resident_bytes,
                               .cache_bytes = i->cache_bytes,
                               .memory_bytes = i->memory_bytes,
                               .index_bytes = i->index_bytes,
                               .raw_bytes = i->raw_bytes,
                               .direct_io = i->direct_io,
                               .user_keys = i->user_keys,
                               .format_version = i->format_version};
}

uint32_t quire_calibration(const struct quire_index *index, struct quire_calibration_point *points, uint32_t capacity)
{
    return segment_calibration(index->segment, points, capacity);
}

void quire_search_options_init(struct quire_search_options *options)
{
    *options = (struct quire_search_options){.struct_bytes = sizeof *options, .k = 10};
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

struct batch {
    struct quire_index *index;
    const float *queries;
    uint64_t n;
    struct quire_search_options options;
    struct restriction restriction;
    const struct library_named *named; /* per query; NULL: all rows of all */
    unsigned inflight;
    struct quire_hit *hits;
    uint32_t *n_hits;
    struct quire_search_stats *stats;
    atomic_uint_fast64_t next;
    atomic_int code;
    pthread_mutex_t mutex; /* guards error */
    struct quire_error error;
};

struct batch_slot {
    struct filtered_search search;
    struct batch_lane *lane;
    struct selection *selection; /* of the rows that are named for its query; NULL: none */
    uint64_t query;
    bool busy;
};

struct batch_lane {
    struct batch *batch;
    struct search_lane *lane;
    struct batch_slot *slots;
    unsigned running;
};

static void copy_hits(const struct filtered_search *search, struct quire_hit *hits, uint32_t *n_hits)
{
    assert(search->n_hits <= search->options.k);
    for (uint32_t i = 0; i < search->n_hits; i++)
        hits[i] = (struct quire_hit){search->hits[i].id, search->hits[i].row, search->hits[i].distance,
                                     search->hits[i].deviation};
    *n_hits = search->n_hits;
}

static void batch_fail(struct batch *batch, int code, const struct quire_error *error)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&batch->code, &none, code)) {
        pthread_mutex_lock(&batch->mutex);
        batch->error = *error;
        pthread_mutex_unlock(&batch->mutex);
    }
}

static void batch_done(struct filtered_search *search)
{
    struct batch_slot *slot = search->owner;
    struct batch *batch = slot->lane->batch;
    assert(slot->busy && slot->lane->running > 0 && slot->query < batch->n);
    slot->busy = false;
    slot->lane->running--;
    selection_unref(slot->selection);
    slot->selection = NULL;
    if (search->code < 0) {
        batch_fail(batch, search->code, &search->error);
        return;
    }
    copy_hits(search, batch->hits + slot->query * batch->options.k, &batch->n_hits[slot->query]);
    if (batch->stats)
        batch->stats[slot->query] = search->stats;
}

static void batch_start(struct batch_slot *slot)
{
    struct batch *batch = slot->lane->batch;
    struct quire_error error = {0};
    int rc = 0;
    assert(!slot->busy && slot->lane->running < batch->inflight);
    if (atomic_load(&batch->code) < 0 || (slot->query = atomic_fetch_add(&batch->next, 1)) >= batch->n)
        return;
    uint32_t dim = segment_info(batch->index->segment)->dim;
    const struct library_named *named = batch->named ? &batch->named[slot->query] : NULL;
    if (named && named->n > 0)
        rc = selection_create_rows(batch->index->segment, named->rows, named->n, false, &slot->selection);
    if (rc < 0) {
        error_set(&error, rc, "no memory for the rows that are named for a query");
        batch_fail(batch, rc, &error);
        return;
    }
    slot->search =
        (struct filtered_search){.segment = batch->index->segment,
                                 .query = batch->queries + slot->query * dim,
                                 .options = batch->options,
                                 .selection = slot->selection ? slot->selection : batch->restriction.selection,
                                 .filter = batch->restriction.filter,
                                 .done = batch_done,
                                 .owner = slot};
    slot->busy = true;
    slot->lane->running++;
    rc = filtered_search_start(slot->lane->lane->searcher, &slot->search, &error);
    if (rc < 0) {
        slot->busy = false;
        slot->lane->running--;
        selection_unref(slot->selection);
        slot->selection = NULL;
        batch_fail(batch, rc, &error);
    }
}

static bool batch_has_more(const struct batch *batch)
{
    return atomic_load(&batch->next) < batch->n && atomic_load(&batch->code) == 0;
}

/* A slot whose query is done takes the next one after the poll, not inside it: recursion stays shallow. BATCH_BEGINS of
 * them begin at a time, and then the engine is polled: what has come for older ones goes before the seeds of the next,
 * and the device has the reads of the last meanwhile. */
static void *batch_run(void *argument)
{
    struct batch_lane *lane = argument;
    struct batch *batch = lane->batch;
    struct quire_error error = {0};
    do {
        unsigned begun = 0;
        for (unsigned i = 0; i < batch->inflight && begun < BATCH_BEGINS && batch_has_more(batch); i++)
            if (!lane->slots[i].busy) {
                batch_start(&lane->slots[i]);
                begun++;
            }
        bool wait = lane->running == batch->inflight || !batch_has_more(batch);
        int rc = lane->running > 0 ? engine_poll(lane->lane->engine, wait, wait ? UINT64_MAX : 0) : 0;
        if (rc < 0) {
            error_set(&error, rc, "the lane's engine failed: %s", quire_error_text(rc));
            batch_fail(batch, rc, &error);
            searcher_cancel(lane->lane->searcher);
        }
    } while (lane->running > 0 || batch_has_more(batch));
    assert(atomic_load(&batch->code) < 0 || atomic_load(&batch->next) >= batch->n);
    return NULL;
}

int library_search_validate(const struct quire_search_options *options, uint32_t dim, struct quire_error *err)
{
    int rc = library_struct_validate(options->struct_bytes, sizeof *options, "quire_search_options", err);
    if (rc < 0)
        return rc;
    rc = search_options_validate(options, err);
    if (rc < 0)
        return rc;
    if (options->n_tenants > 0 && !options->tenants)
        return error_set(err, QUIRE_EINVALID, "n_tenants is %u, but tenants is NULL", options->n_tenants);
    if (options->dim != 0 && options->dim != dim)
        return error_set(err, QUIRE_EDIM, "the query has %u dimensions, what is searched has %u", options->dim, dim);
    return 0;
}

/* Lanes of a batch: taken from the pool, run, put back. */
static int batch_lanes(struct batch *batch, unsigned n_lanes, struct quire_error *err)
{
    struct batch_lane lanes[LANES_MAX];
    pthread_t threads[LANES_MAX];
    unsigned taken = 0, started = 0;
    int rc = 0;
    memset(lanes, 0, sizeof *lanes * n_lanes);
    for (; taken < n_lanes && rc == 0; taken += rc == 0) {
        struct batch_lane *lane = &lanes[taken];
        lane->batch = batch;
        lane->slots = calloc(batch->inflight, sizeof *lane->slots);
        rc = lane->slots ? search_lane_pool_take(&batch->index->lanes, batch->inflight, &lane->lane, err)
                         : error_set(err, QUIRE_ENOMEM, "no memory for %u queries in flight", batch->inflight);
        for (unsigned i = 0; rc == 0 && i < batch->inflight; i++)
            lane->slots[i].lane = lane;
        if (rc < 0)
            free(lane->slots);
    }
    while (rc == 0 && started + 1 < taken &&
           pthread_create(&threads[started], NULL, batch_run, &lanes[started + 1]) == 0)
        started++;
    if (rc == 0)
        batch_run(&lanes[0]);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < taken; i++) {
        search_lane_pool_put(&batch->index->lanes, lanes[i].lane);
        free(lanes[i].slots);
    }
    return rc;
}

int library_search_named(struct quire_index *index, const float *queries, uint64_t n,
                         const struct quire_search_options *options, unsigned lanes, unsigned inflight,
                         const struct library_named *named, struct quire_hit *hits, uint32_t *n_hits,
                         struct quire_search_stats *stats, struct quire_error *err)
{
    struct batch batch = {
        .index = index, .queries = queries, .n = n, .named = named, .hits = hits, .n_hits = n_hits, .stats = stats};
    if (!index || !queries || !hits || !n_hits)
        return error_set(err, QUIRE_EINVALID, "index, queries, hits and n_hits must be given");
    if (lanes > LANES_MAX)
        return error_set(err, QUIRE_ERANGE, "%u lanes: at most %u", lanes, LANES_MAX);
    quire_search_options_init(&batch.options);
    if (options)
        batch.options = *options;
    batch.inflight = inflight ? inflight : INFLIGHT_DEFAULT;
    int rc = library_search_validate(&batch.options, segment_info(index->segment)->dim, err);
    if (rc < 0)
        return rc;
    assert(!named || (batch.options.exact && !batch.options.filter && batch.options.n_tenants == 0));
    if (pthread_mutex_init(&batch.mutex, NULL) != 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a mutex");
    rc = library_restriction_make(index->segment, &index->lanes, &batch.options, &batch.restriction, err);
    if (rc == 0)
        rc = batch_lanes(&batch, lanes ? lanes : 1, err);
    library_restriction_end(&batch.restriction);
    if (rc == 0 && atomic_load(&batch.code) < 0) {
        rc = atomic_load(&batch.code);
        if (err)
            *err = batch.error;
    }
    pthread_mutex_destroy(&batch.mutex);
    return rc;
}

int quire_search_batch(struct quire_index *index, const float *queries, uint64_t n,
                       const struct quire_search_options *options, unsigned lanes, unsigned inflight,
                       struct quire_hit *hits, uint32_t *n_hits, struct quire_search_stats *stats,
                       struct quire_error *err)
{
    return library_search_named(index, queries, n, options, lanes, inflight, NULL, hits, n_hits, stats, err);
}

int quire_search(struct quire_index *index, const float *query, const struct quire_search_options *options,
                 struct quire_hit *hits, uint32_t *n_hits, struct quire_search_stats *stats, struct quire_error *err)
{
    return quire_search_batch(index, query, 1, options, 1, 1, hits, n_hits, stats, err);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

void quire_loop_options_init(struct quire_loop_options *options)
{
    *options = (struct quire_loop_options){.struct_bytes = sizeof *options};
}

int quire_loop_create(const struct quire_loop_options *options, struct quire_loop **out, struct quire_error *err)
{
    int rc = options ? library_struct_validate(options->struct_bytes, sizeof *options, "quire_loop_options", err) : 0;
    if (rc < 0)
        return rc;
    struct quire_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return error_set(err, QUIRE_ENOMEM, "no memory for a loop");
    quire_loop_options_init(&loop->options);
    if (options)
        loop->options = *options;
    unsigned inflight = loop->options.inflight ? loop->options.inflight : INFLIGHT_DEFAULT;
    rc = home_init(&loop->home, err);
    if (rc == 0)
        rc = search_lane_create(loop->options.engine, loop->options.reads_max, inflight, &loop->lane, err);
    if (rc < 0) {
        home_fini(&loop->home);
        free(loop);
    } else {
        *out = loop;
    }
    return rc;
}

void quire_loop_destroy(struct quire_loop *loop)
{
    if (!loop || home_check(&loop->home, NULL) < 0)
        return;
    search_lane_destroy(loop->lane);
    home_fini(&loop->home);
    free(loop);
}

static void loop_search_free(struct loop_search *search)
{
    library_restriction_end(&search->restriction);
    segment_unref(search->segment);
    free(search->query);
    free(search->hits);
    free(search);
}

static void loop_done(struct filtered_search *done)
{
    struct loop_search *search = done->owner;
    struct quire_loop *loop = search->loop;
    uint32_t n_hits = 0;
    copy_hits(done, search->hits, &n_hits);
    loop->callbacks++;
    search->callback(search->context, done->code, search->hits, n_hits, &done->stats,
                     done->code < 0 ? &done->error : NULL);
    loop_search_free(search);
}

int quire_loop_search(struct quire_loop *loop, struct quire_index *index, const float *query,
                      const struct quire_search_options *options, quire_search_callback *callback, void *context,
                      struct quire_error *err)
{
    struct quire_search_options defaults;
    if (!loop || !index || !query || !callback)
        return error_set(err, QUIRE_EINVALID, "loop, index, query and callback must be given");
    int here = home_check(&loop->home, err);
    if (here < 0)
        return here;
    quire_search_options_init(&defaults);
    if (!options)
        options = &defaults;
    int rc = library_search_validate(options, segment_info(index->segment)->dim, err);
    if (rc < 0)
        return rc;
    struct loop_search *search = calloc(1, sizeof *search);
    const struct segment_info *info = segment_info(index->segment);
    if (!search)
        return error_set(err, QUIRE_ENOMEM, "no memory for a search");
    search->segment = segment_ref(index->segment);
    search->hits = malloc(sizeof *search->hits * (options->k < info->rows ? options->k : info->rows));
    search->query = malloc(sizeof *query * info->dim);
    rc = search->hits && search->query
             ? library_restriction_make(index->segment, &index->lanes, options, &search->restriction, err)
             : error_set(err, QUIRE_ENOMEM, "no memory for a search with k %u", options->k);
    if (rc < 0) {
        loop_search_free(search);
        return rc;
    }
    memcpy(search->query, query, sizeof *query * info->dim);
    search->loop = loop;
    search->callback = callback;
    search->context = context;
    search->search = (struct filtered_search){.segment = search->segment,
                                              .query = search->query,
                                              .options = *options,
                                              .selection = search->restriction.selection,
                                              .filter = search->restriction.filter,
                                              .done = loop_done,
                                              .owner = search};
    rc = filtered_search_start(loop->lane->searcher, &search->search, err);
    if (rc < 0)
        loop_search_free(search);
    return rc;
}

int quire_loop_poll(struct quire_loop *loop, unsigned wait_min, uint64_t timeout_us)
{
    int here = home_check(&loop->home, NULL);
    if (here < 0)
        return here;
    loop->callbacks = 0;
    int rc = engine_poll(loop->lane->engine, wait_min, timeout_us);
    return rc < 0 ? rc : loop->callbacks;
}

int quire_loop_fd(struct quire_loop *loop)
{
    int here = home_check(&loop->home, NULL);
    if (here < 0)
        return here;
    return engine_event_fd(loop->lane->engine);
}

/* ---- keys and vectors -------------------------------------------------------------------------------------------- */

struct fetch_answer {
    float *vector;
    void *key;
    size_t *key_bytes;
    char *text;
    size_t *text_bytes;
    uint32_t *row;
    uint32_t dim;
    bool done;
    int code;
    struct quire_error *err;
};

static int copy_attributes(const struct fetch_answer *a, const struct fetch_request *request)
{
    size_t capacity = *a->text_bytes;
    const char *json = NULL;
    uint32_t bytes = 0, n_grants = 0;
    if (grants_split(request->attributes, request->attributes ? request->attributes_bytes : 0, &json, &bytes,
                     &n_grants) < 0)
        return error_set(a->err, QUIRE_ECORRUPT, "the attributes of row %u do not begin as they should", request->row);
    if (bytes == 0)
        return error_set(a->err, QUIRE_ENOTFOUND, "row %u has no attributes", request->row);
    *a->text_bytes = bytes;
    if (bytes > capacity)
        return error_set(a->err, QUIRE_ELIMIT, "the attributes have %u bytes, there is room for %zu", bytes, capacity);
    memcpy(a->text, json, bytes);
    return 0;
}

/* Copies what was asked for while the task still holds it. */
static void fetch_done(struct fetch_request *request)
{
    struct fetch_answer *a = request->owner;
    assert(!a->done);
    a->done = true;
    a->code = request->code;
    if (request->code < 0) {
        if (a->err)
            *a->err = request->error;
        return;
    }
    if (a->row)
        *a->row = request->row;
    if (a->vector)
        memcpy(a->vector, request->vector, sizeof(float) * a->dim);
    if (a->key) {
        memcpy(a->key, request->found_key, request->found_key_bytes);
        *a->key_bytes = request->found_key_bytes;
    }
    if (a->text_bytes)
        a->code = copy_attributes(a, request);
}

static int fetch_blocking(struct quire_index *index, struct fetch_request *request, struct fetch_answer *answer,
                          struct quire_error *err)
{
    struct search_lane *lane;
    if (!index)
        return error_set(err, QUIRE_EINVALID, "index must be given");
    answer->err = err;
    answer->dim = segment_info(index->segment)->dim;
    request->segment = index->segment;
    request->done = fetch_done;
    request->owner = answer;
    int rc = search_lane_pool_take(&index->lanes, 1, &lane, err);
    if (rc < 0)
        return rc;
    rc = fetch_start(lane->searcher, request, err);
    if (rc == 0)
        search_lane_run(lane, &answer->done);
    assert(rc < 0 || answer->done);
    search_lane_pool_put(&index->lanes, lane);
    return rc < 0 ? rc : answer->code;
}

int quire_lookup(struct quire_index *index, const void *key, size_t key_bytes, uint32_t *row, struct quire_error *err)
{
    struct fetch_answer answer = {.row = row};
    struct fetch_request request = {.key = key};
    int rc = library_key_validate(key, key_bytes, err);
    request.key_bytes = (uint32_t)key_bytes;
    return rc < 0 ? rc : fetch_blocking(index, &request, &answer, err);
}

int quire_key(struct quire_index *index, uint32_t row, void *key, size_t *key_bytes, struct quire_error *err)
{
    struct fetch_answer answer = {.key = key, .key_bytes = key_bytes};
    struct fetch_request request = {.row = row, .want_key = true};
    return fetch_blocking(index, &request, &answer, err);
}

int quire_vector(struct quire_index *index, uint32_t row, float *vector, struct quire_error *err)
{
    struct fetch_answer answer = {.vector = vector};
    struct fetch_request request = {.row = row, .want_vector = true};
    return fetch_blocking(index, &request, &answer, err);
}

int quire_attributes(struct quire_index *index, uint32_t row, char *text, size_t *bytes, struct quire_error *err)
{
    struct fetch_answer answer = {.text = text, .text_bytes = bytes};
    struct fetch_request request = {.row = row, .want_attributes = true};
    return fetch_blocking(index, &request, &answer, err);
}
