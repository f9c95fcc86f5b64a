/* support_store.c - see support_store.h. */
#include "tests/index/support_store.h"
#include "index/kernels/kernels.h"
#include "io/random.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRIES 100

void support_lane_open(struct support_lane *lane, struct io_fs *fs)
{
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 2};
    struct quire_error err = {0};
    int rc = fs && fs != fs_real() ? engine_fault_create(&config, 7, &lane->engine, &err)
                                   : engine_create(&config, &lane->engine, &err);
    if (rc == 0)
        rc = searcher_create(lane->engine, NULL, &lane->searcher, &err);
    if (rc < 0)
        fail_msg("lane: %s", err.message);
}

void support_lane_close(struct support_lane *lane)
{
    searcher_cancel(lane->searcher);
    searcher_destroy(lane->searcher);
    engine_destroy(lane->engine);
}

static void run_until(struct support_lane *lane, const bool *done)
{
    while (!*done)
        engine_poll(lane->engine, 1, 10000000);
    searcher_drop_retired(lane->searcher);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

void support_model_init(struct support_model *model, uint32_t n)
{
    model->n = n;
    model->elements = calloc(n, sizeof *model->elements);
    assert_non_null(model->elements);
}

void support_model_copy(struct support_model *to, const struct support_model *from)
{
    memcpy(to->elements, from->elements, from->n * sizeof *from->elements);
}

void support_model_free(struct support_model *model)
{
    free(model->elements);
    model->elements = NULL;
}

uint64_t support_model_count(const struct support_model *model)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < model->n; i++)
        n += model->elements[i].version != 0;
    return n;
}

void support_vector(uint32_t key, uint32_t version, float out[SUPPORT_DIM])
{
    struct random random;
    random_init(&random, (uint64_t)key << 32 | version);
    for (uint32_t i = 0; i < SUPPORT_DIM; i++)
        out[i] = (float)((double)random_below(&random, 1u << 24) / (1u << 23) - 1);
}

static uint32_t key_text(uint32_t key, char out[16])
{
    return (uint32_t)snprintf(out, 16, "key-%u", key);
}

static uint32_t attribute_text(uint32_t attributes, char out[32])
{
    return attributes ? (uint32_t)snprintf(out, 32, "{\"n\":%u}", attributes) : 0;
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

enum quire_index_kind support_kind;

struct collection_config support_config(void)
{
    struct collection_config config = {.dim = SUPPORT_DIM,
                                       .type = QUIRE_TYPE_F32,
                                       .metric = QUIRE_METRIC_L2,
                                       .slot = QUIRE_SLOT_F32,
                                       .block_bytes = 4096,
                                       .seed = 3,
                                       .index = support_kind};
    return config;
}

struct store_options support_store_options(struct io_fs *fs)
{
    return (struct store_options){.fs = fs, .no_maintenance = true, .memtable_bytes = 1u << 20};
}

struct store *support_store_open(const char *path, const struct store_options *options)
{
    struct store *store = NULL;
    struct quire_error err = {0};
    if (store_open(path, options, NULL, &store, NULL, &err) < 0)
        fail_msg("open %s: %s", path, err.message);
    return store;
}

void support_store_close(struct store *store)
{
    struct quire_error err = {0};
    if (store_close(store, &err) < 0)
        fail_msg("close: %s", err.message);
}

struct collection *support_create(struct store *store)
{
    struct collection_config config = support_config();
    struct collection *collection = NULL;
    struct quire_error err = {0};
    uint64_t lsn;
    if (store_create_collection(store, &config, NULL, &collection, &lsn, &err) < 0)
        fail_msg("create: %s", err.message);
    return collection;
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

struct place {
    struct located located;
    int code;
    bool done;
};

static void on_place(struct collection_fetch *fetch)
{
    struct place *place = fetch->owner;
    *place = (struct place){fetch->located, fetch->code == QUIRE_ENOTFOUND ? 0 : fetch->code, true};
}

static int locate(struct support_lane *lane, struct collection *collection, const char *key, uint32_t n,
                  struct located *out)
{
    struct place place = {.done = false};
    struct collection_fetch fetch = {
        .collection = collection, .key = key, .key_bytes = n, .done = on_place, .owner = &place};
    if (collection_locate_now(collection, key, n, out))
        return 0;
    int rc = collection_fetch_start(lane->searcher, &fetch, NULL);
    if (rc < 0)
        return rc;
    run_until(lane, &place.done);
    *out = place.located;
    return place.code;
}

int support_put(struct support_lane *lane, struct collection *collection, struct support_model *model, uint32_t key,
                uint32_t version, uint32_t attributes, uint64_t *lsn)
{
    char text[16], json[32];
    float vector[SUPPORT_DIM];
    support_vector(key, version, vector);
    struct collection_put put = {.key = text, .key_bytes = key_text(key, text), .vector = vector};
    put.attribute_bytes = attribute_text(attributes, json);
    put.attributes = attributes ? json : NULL;
    int rc = QUIRE_ESTALE;
    for (unsigned i = 0; i < TRIES && rc == QUIRE_ESTALE; i++) {
        rc = locate(lane, collection, text, put.key_bytes, &put.located);
        if (rc == 0)
            rc = collection_put(collection, &put, NULL);
    }
    if (rc == 0) {
        assert_int_equal(put.was_new, model->elements[key].version == 0);
        model->elements[key] = (struct support_element){version, attributes};
    }
    if (lsn)
        *lsn = put.lsn;
    return rc;
}

int support_remove(struct support_lane *lane, struct collection *collection, struct support_model *model, uint32_t key,
                   uint64_t *lsn)
{
    char text[16];
    uint32_t n = key_text(key, text);
    uint64_t number = 0;
    bool removed = false;
    struct located where;
    int rc = QUIRE_ESTALE;
    for (unsigned i = 0; i < TRIES && rc == QUIRE_ESTALE; i++) {
        rc = locate(lane, collection, text, n, &where);
        if (rc == 0)
            rc = collection_remove(collection, text, n, &where, NULL, &removed, &number, NULL);
    }
    if (rc == 0) {
        assert_int_equal(removed, model->elements[key].version != 0);
        model->elements[key] = (struct support_element){0, 0};
    }
    if (lsn)
        *lsn = number;
    return rc;
}

int support_set_attributes(struct collection *collection, struct support_model *model, uint32_t key,
                           uint32_t attributes, uint64_t *lsn)
{
    char text[16], json[32];
    uint32_t n = key_text(key, text), bytes = attribute_text(attributes, json);
    struct collection_change change = {
        .key = text, .key_bytes = n, .set_attributes = true, .attributes = json, .attribute_bytes = bytes};
    int rc = collection_change(collection, &change, NULL);
    if (rc == 0)
        model->elements[key].attributes = attributes;
    if (lsn)
        *lsn = change.lsn;
    return rc;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

struct comparison {
    const struct support_model *model;
    uint32_t key;
    bool done, equal;
    float vector[SUPPORT_DIM]; /* of the query */
    uint8_t *seen;             /* per key */
    uint32_t found;            /* of the ten true neighbours */
    const float *truth;        /* distance of the tenth */
};

static void fetched(struct collection_fetch *fetch)
{
    struct comparison *c = fetch->owner;
    struct support_element expected = c->model->elements[c->key];
    char json[32];
    float vector[SUPPORT_DIM];
    uint32_t bytes = attribute_text(expected.attributes, json);
    support_vector(c->key, expected.version, vector);
    c->done = true;
    c->equal = expected.version == 0 ? fetch->code == QUIRE_ENOTFOUND
                                     : fetch->code == 0 && memcmp(fetch->vector, vector, sizeof vector) == 0 &&
                                           (fetch->attributes ? fetch->attribute_bytes : 0) == bytes &&
                                           (bytes == 0 || memcmp(fetch->attributes, json, bytes) == 0);
    if (!c->equal)
        fprintf(stderr, "key-%u: version %u with attributes %u expected, got %d (%s), %u bytes of attributes\n", c->key,
                expected.version, expected.attributes, fetch->code, fetch->code ? fetch->error.message : "found",
                fetch->attributes ? fetch->attribute_bytes : 0);
}

static bool equal_by_key(struct support_lane *lane, struct collection *collection, const struct support_model *model)
{
    bool equal = true;
    for (uint32_t key = 0; key < model->n; key++) {
        char text[16];
        struct comparison c = {.model = model, .key = key};
        struct collection_fetch fetch = {.collection = collection,
                                         .key = text,
                                         .key_bytes = key_text(key, text),
                                         .want_vector = true,
                                         .want_attributes = true,
                                         .done = fetched,
                                         .owner = &c};
        assert_int_equal(collection_fetch_start(lane->searcher, &fetch, NULL), 0);
        run_until(lane, &c.done);
        equal &= c.equal;
    }
    return equal;
}

static float distance_to(const float *query, uint32_t key, uint32_t version)
{
    float vector[SUPPORT_DIM], sum = 0;
    support_vector(key, version, vector);
    for (uint32_t i = 0; i < SUPPORT_DIM; i++)
        sum += (vector[i] - query[i]) * (vector[i] - query[i]);
    return sum;
}

static bool hit_is_right(struct comparison *c, const struct collection_hit *hit)
{
    char text[32] = "";
    unsigned key;
    if (hit->key_bytes >= sizeof text)
        return false;
    memcpy(text, hit->key, hit->key_bytes);
    if (sscanf(text, "key-%u", &key) != 1 || key >= c->model->n || c->seen[key]++)
        return false;
    uint32_t version = c->model->elements[key].version;
    float expected = version ? distance_to(c->vector, key, version) : 0;
    return version && hit->distance > expected - 1e-4f && hit->distance < expected + 1e-4f;
}

static void searched_all(struct collection_search *search)
{
    struct comparison *c = search->owner;
    c->done = true;
    c->equal = search->code == 0 && search->n_hits == support_model_count(c->model);
    if (!c->equal)
        fprintf(stderr, "search: code %d, %u hits, %llu expected\n", search->code, search->n_hits,
                (unsigned long long)support_model_count(c->model));
    for (uint32_t i = 0; i < search->n_hits; i++)
        if (!hit_is_right(c, &search->hits[i])) {
            fprintf(stderr, "search: hit %u (%.*s at %g) is wrong\n", i, (int)search->hits[i].key_bytes,
                    (const char *)search->hits[i].key, (double)search->hits[i].distance);
            c->equal = false;
        }
}

static void run_search(struct support_lane *lane, struct collection *collection, struct comparison *c,
                       const struct quire_search_options *options, void (*done)(struct collection_search *search))
{
    struct collection_search search = {
        .collection = collection, .query = c->vector, .options = *options, .done = done, .owner = c};
    c->done = false;
    memset(c->seen, 0, c->model->n);
    assert_int_equal(collection_search_start(lane->searcher, &search, NULL), 0);
    run_until(lane, &c->done);
}

bool support_equal(struct support_lane *lane, struct collection *collection, const struct support_model *model)
{
    struct comparison c = {.model = model, .seen = calloc(model->n, 1)};
    struct quire_search_options options;
    quire_search_options_init(&options);
    options.k = model->n + 10;
    options.exact = true;
    support_vector(1, 99, c.vector);
    assert_non_null(c.seen);
    bool equal = collection_count(collection) == support_model_count(model);
    if (!equal)
        fprintf(stderr, "%llu elements are counted, %llu expected\n", (unsigned long long)collection_count(collection),
                (unsigned long long)support_model_count(model));
    run_search(lane, collection, &c, &options, searched_all);
    equal &= c.equal;
    free(c.seen);
    return equal_by_key(lane, collection, model) && equal;
}

static void searched_nearest(struct collection_search *search)
{
    struct comparison *c = search->owner;
    uint32_t closer = 0;
    c->done = c->equal = true;
    for (uint32_t i = 0; i < search->n_hits; i++)
        c->equal &= hit_is_right(c, &search->hits[i]);
    for (uint32_t key = 0; key < c->model->n; key++)
        if (c->model->elements[key].version && !c->seen[key])
            closer += distance_to(c->vector, key, c->model->elements[key].version) <
                      search->hits[search->n_hits - 1].distance - 1e-5f;
    c->equal &= search->code == 0 && search->n_hits == search->options.k && closer == 0;
    if (!c->equal)
        fprintf(stderr, "search: code %d, %u hits of %u, %u that are nearer\n", search->code, search->n_hits,
                search->options.k, closer);
}

bool support_equal_after(struct support_lane *lane, struct collection *collection, const struct support_model *model,
                         uint32_t k, void (*meanwhile)(void *context), void *context)
{
    struct comparison c = {.model = model, .seen = calloc(model->n, 1)};
    struct collection_search search = {
        .collection = collection, .query = c.vector, .done = k ? searched_nearest : searched_all, .owner = &c};
    assert_non_null(c.seen);
    quire_search_options_init(&search.options);
    search.options.k = k ? k : model->n + 10;
    search.options.exact = true;
    support_vector(1, 99, c.vector);
    assert_int_equal(collection_search_start(lane->searcher, &search, NULL), 0);
    assert_false(c.done);
    meanwhile(context);
    run_until(lane, &c.done);
    free(c.seen);
    return c.equal;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void searched_ten(struct collection_search *search)
{
    struct comparison *c = search->owner;
    c->done = true;
    for (uint32_t i = 0; i < search->n_hits; i++)
        c->found += hit_is_right(c, &search->hits[i]) && search->hits[i].distance <= *c->truth + 1e-5f;
}

double support_recall_at_10(struct support_lane *lane, struct collection *collection, const struct support_model *model,
                            uint32_t n)
{
    struct comparison c = {.model = model, .seen = calloc(model->n, 1)};
    float *distances = malloc(sizeof *distances * model->n);
    struct quire_search_options options;
    quire_search_options_init(&options);
    options.k = 10;
    options.recall = 0.98f;
    assert_true(c.seen && distances && support_model_count(model) >= 10);
    for (uint32_t q = 0; q < n; q++) {
        uint32_t living = 0;
        support_vector(q, 1000000, c.vector);
        for (uint32_t key = 0; key < model->n; key++)
            if (model->elements[key].version)
                distances[living++] = distance_to(c.vector, key, model->elements[key].version);
        qsort(distances, living, sizeof *distances, ascending);
        c.truth = &distances[9];
        run_search(lane, collection, &c, &options, searched_ten);
    }
    free(distances);
    free(c.seen);
    return c.found / (10.0 * n);
}
