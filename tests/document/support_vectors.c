/* support_vectors.c - see support_vectors.h. */
#include "tests/document/support_vectors.h"
#include "index/vector/space.h"
#include "io/bytes.h"
#include "io/random.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <math.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RECORD_DOCUMENT HOST_KINDS /* u32 document, u32 version */

struct schema_vector world_field(enum schema_metric metric, enum schema_element element)
{
    return (struct schema_vector){.metric = metric, .element = element, .dim = WORLD_DIM};
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

NO_THREADS void world_vector(const struct world *w, uint32_t document, uint32_t version, void *out)
{
    struct random random;
    random_init(&random, (uint64_t)document << 32 | version);
    for (uint32_t i = 0; i < WORLD_DIM; i++) {
        double x = (double)random_below(&random, 1u << 20) / (1u << 19) - 1;
        float single = (float)x;
        switch (w->what.element) {
        case SCHEMA_FLOAT64:
            memcpy((double *)out + i, &x, sizeof x);
            break;
        case SCHEMA_INT8:
            ((int8_t *)out)[i] = (int8_t)(x * 100);
            break;
        case SCHEMA_UINT8:
            ((uint8_t *)out)[i] = (uint8_t)((x + 1) * 100);
            break;
        case SCHEMA_FLOAT16:
        case SCHEMA_BFLOAT16:
        case SCHEMA_FLOAT32:
            space_elements(vectors_type(&w->what), &single, 1, (char *)out + i * vectors_bytes(&w->what) / WORLD_DIM);
        }
    }
}

NO_THREADS static void floats_of(const struct world *w, const void *vector, float out[WORLD_DIM])
{
    double elements[WORLD_DIM];
    vectors_elements(&w->what, vector, elements);
    space_floats(vectors_type(&w->what), elements, WORLD_DIM, out);
}

void world_floats(const struct world *w, uint32_t document, uint32_t version, float out[WORLD_DIM])
{
    double vector[WORLD_DIM];
    world_vector(w, document, version, vector);
    floats_of(w, vector, out);
}

NO_THREADS static double distance_of(const struct world *w, const float *a, const float *b)
{
    double dot = 0, aa = 0, bb = 0, gap = 0;
    for (uint32_t i = 0; i < WORLD_DIM; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
        gap += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    return w->what.metric == SCHEMA_L2 ? gap : w->what.metric == SCHEMA_IP ? 1 - dot : 1 - dot / sqrt(aa * bb);
}

/* ---- the host: documents in the journal -------------------------------------------------------------------------- */

static int take_document(struct world *w, uint64_t lsn, const uint8_t *bytes, uint32_t n)
{
    uint32_t document = n == 8 ? bytes_load_u32(bytes) : UINT32_MAX;
    if (document >= w->n)
        return QUIRE_ECORRUPT;
    if (lsn > w->documents[document].lsn)
        w->documents[document] = (struct world_document){.version = bytes_load_u32(bytes + 4), .lsn = lsn};
    return 0;
}

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    (void)kind, (void)err;
    return take_document(context, lsn, bytes, n);
}

static int save(void *context, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct world *w = context;
    int rc = 0;
    for (uint32_t i = 0; i < w->n && rc == 0; i++) {
        uint8_t bytes[8];
        bytes_store_u32(bytes, i);
        bytes_store_u32(bytes + 4, w->documents[i].version);
        if (w->documents[i].lsn)
            rc = journal_checkpoint_put(checkpoint, RECORD_DOCUMENT, w->documents[i].lsn, bytes, sizeof bytes, err);
    }
    return rc;
}

static int log_document(struct world *w, uint32_t document, uint32_t version, uint64_t *lsn)
{
    uint8_t bytes[8];
    bytes_store_u32(bytes, document);
    bytes_store_u32(bytes + 4, version);
    const struct journal_record record = {.kind = RECORD_DOCUMENT, .bytes = bytes, .n_bytes = sizeof bytes};
    return journal_append(store_journal(w->store), &record, 1, lsn, NULL);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static int open_store(struct world *w)
{
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 2};
    struct quire_error err = {0};
    struct store_host host = {.restore = restore, .replay = restore, .save = save, .context = w};
    struct store_options options = {
        .fs = w->fs, .no_maintenance = !w->maintained, .memtable_bytes = w->maintained ? 1u << 17 : 1u << 20};
    int rc = store_open(w->path, &options, &host, &w->store, NULL, &err);
    if (rc < 0) {
        fprintf(stderr, "open: %s\n", err.message);
        return rc;
    }
    rc = w->fs ? engine_fault_create(&config, 7, &w->engine, &err) : engine_create(&config, &w->engine, &err);
    if (rc == 0)
        rc = searcher_create(w->engine, NULL, &w->searcher, &err);
    if (rc < 0)
        fail_msg("lane: %s", err.message);
    return 0;
}

void world_begin(struct world *w, struct io_fs *fs, const char *path, uint32_t n, const struct schema_vector *what,
                 bool maintained)
{
    uint64_t lsn;
    struct quire_error err = {0};
    *w = (struct world){.fs = fs, .path = strdup(path), .what = *what, .n = n, .next_id = 1, .maintained = maintained};
    w->documents = calloc(n, sizeof *w->documents);
    assert_true(w->path && w->documents);
    assert_int_equal(open_store(w), 0);
    if (vectors_create(w->store, what, &w->vectors, &lsn, &err) < 0)
        fail_msg("create: %s", err.message);
    w->uid = vectors_uid(w->vectors);
}

void world_close(struct world *w)
{
    if (w->searcher) {
        searcher_cancel(w->searcher);
        searcher_destroy(w->searcher);
        engine_destroy(w->engine);
    }
    vectors_unref(w->vectors);
    if (w->store)
        store_close(w->store, NULL);
    w->searcher = NULL;
    w->engine = NULL;
    w->vectors = NULL;
    w->store = NULL;
}

void world_end(struct world *w)
{
    world_close(w);
    free(w->documents);
    free(w->path);
}

static uint32_t key_of(uint32_t document, char out[64])
{
    return (uint32_t)snprintf(out, 64, "doc:%u", document);
}

int64_t world_open(struct world *w)
{
    struct quire_error err = {0};
    uint64_t n_removed = 0, n_written = 0;
    memset(w->documents, 0, sizeof *w->documents * w->n);
    w->next_id = 1;
    int rc = open_store(w);
    if (rc == 0)
        rc = vectors_open(w->store, w->uid, &w->what, &w->vectors, &err);
    if (rc == 0 && w->compares)
        rc = vectors_compare(w->vectors, &err);
    for (uint32_t i = 0; rc == 0 && i < w->n; i++) {
        char key[64];
        double vector[WORLD_DIM];
        struct world_document *d = &w->documents[i];
        if (d->version == 0)
            continue;
        d->version += w->compares && i < w->n_differ;
        world_vector(w, i, d->version, vector);
        bool here = w->compares || i % 2 == 0 ||
                    !vectors_keeps(&w->what, vector); /* of the others only the field has the vector */
        struct vectors_put put = {.key = key,
                                  .key_bytes = key_of(i, key),
                                  .old_id = VECTORS_NO_ID,
                                  .id = d->id = w->next_id++,
                                  .vector = here ? vector : NULL};
        n_written += vectors_put(w->vectors, &put, &err) < 0 || put.lsn > 0;
    }
    if (rc == 0)
        rc = vectors_loaded(w->vectors, &n_removed, &err);
    if (rc < 0) {
        fprintf(stderr, "open field: %s\n", err.message);
        return rc;
    }
    return (int64_t)(n_removed + n_written);
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

/* In one frame. version 0: the document goes. */
static int change(struct world *w, uint32_t document, uint32_t version, bool *silent)
{
    char key[64];
    double vector[WORLD_DIM];
    struct world_document *d = &w->documents[document];
    uint32_t old_id = d->version ? d->id : VECTORS_NO_ID, id = version ? w->next_id++ : VECTORS_NO_ID;
    uint64_t lsn = 0, end_lsn;
    int rc = journal_batch_begin(store_journal(w->store), NULL);
    if (rc < 0)
        return rc;
    rc = log_document(w, document, version, &lsn);
    if (rc == 0 && version) {
        world_vector(w, document, version, vector);
        struct vectors_put put = {
            .key = key, .key_bytes = key_of(document, key), .old_id = old_id, .id = id, .vector = vector};
        rc = vectors_put(w->vectors, &put, NULL);
        *silent = put.lsn == 0;
    } else if (rc == 0) {
        rc = vectors_remove(w->vectors, key, key_of(document, key), old_id, &end_lsn, NULL);
    }
    int end = journal_batch_end(store_journal(w->store), &end_lsn, NULL);
    if (rc == 0 && end == 0)
        *d = (struct world_document){.version = version, .id = id, .lsn = lsn};
    return rc < 0 ? rc : end;
}

int world_put(struct world *w, uint32_t document, uint32_t version)
{
    bool silent;
    return change(w, document, version, &silent);
}

int world_remove(struct world *w, uint32_t document)
{
    bool silent;
    return change(w, document, 0, &silent);
}

bool world_touch(struct world *w, uint32_t document)
{
    bool silent = false;
    assert_true(w->documents[document].version > 0);
    assert_int_equal(change(w, document, w->documents[document].version, &silent), 0);
    return silent;
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

static void on_answer(struct vectors_search *search)
{
    struct world_answer *out = search->owner;
    out->code = search->code;
    out->n = search->n < 4096 ? search->n : 4096;
    memcpy(out->ids, search->ids, search->code == 0 ? sizeof *out->ids * out->n : 0);
    memcpy(out->distances, search->distances, search->code == 0 ? sizeof *out->distances * out->n : 0);
    out->stats = search->stats;
    out->done = true;
}

void world_search(struct world *w, const void *query, const roaring_bitmap_t *set, uint32_t k, double radius,
                  struct world_answer *out)
{
    struct quire_error err = {0};
    struct vectors_search search = {.vectors = w->vectors,
                                    .query = query,
                                    .allowed = set,
                                    .k = k,
                                    .is_range = radius >= 0,
                                    .radius = radius,
                                    .done = on_answer,
                                    .owner = out};
    out->done = false;
    out->n = 0;
    int rc = vectors_search_start(w->searcher, &search, &err); /* may have answered within */
    if (rc < 0) {
        out->code = rc;
        return;
    }
    while (!out->done)
        engine_poll(w->engine, 1, 10000000);
    searcher_drop_retired(w->searcher);
}

struct true_answer {
    double distance;
    uint32_t id;
};

NO_THREADS static int by_distance(const void *left, const void *right)
{
    const struct true_answer *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

NO_THREADS uint32_t world_truth(const struct world *w, const void *query, const roaring_bitmap_t *set, uint32_t k,
                                double radius, uint32_t *ids, double *distances)
{
    struct true_answer *all = malloc(sizeof *all * (w->n + 1));
    float q[WORLD_DIM], x[WORLD_DIM];
    uint32_t n = 0;
    assert_non_null(all);
    floats_of(w, query, q);
    for (uint32_t i = 0; i < w->n; i++) {
        const struct world_document *d = &w->documents[i];
        if (d->version == 0 || (set && !roaring_bitmap_contains(set, d->id)))
            continue;
        world_floats(w, i, d->version, x);
        double distance = distance_of(w, q, x);
        if (radius < 0 || distance <= radius)
            all[n++] = (struct true_answer){distance, d->id};
    }
    qsort(all, n, sizeof *all, by_distance);
    n = n < k ? n : k;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = all[i].id;
        distances[i] = all[i].distance;
    }
    free(all);
    return n;
}

roaring_bitmap_t *world_set(const struct world *w, double share, uint64_t seed)
{
    roaring_bitmap_t *set = roaring_bitmap_create();
    assert_non_null(set);
    for (uint32_t i = 0; i < w->n; i++) {
        double x = (double)(random_mix((uint64_t)i * 7919 + seed) >> 11) / (double)(1ull << 53);
        if (w->documents[i].version && x < share)
            roaring_bitmap_add(set, w->documents[i].id);
    }
    return set;
}

NO_THREADS static const struct world_document *document_of(const struct world *w, uint32_t id, uint32_t *document)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->documents[i].version && w->documents[i].id == id) {
            *document = i;
            return &w->documents[i];
        }
    return NULL;
}

/* Everything that holds of an answer, whatever the recall. */
static void check_answer(const struct world *w, const void *query, const roaring_bitmap_t *set,
                         const struct world_answer *a)
{
    float q[WORLD_DIM], x[WORLD_DIM];
    floats_of(w, query, q);
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t document = 0;
        const struct world_document *d = document_of(w, a->ids[i], &document);
        assert_non_null(d);
        assert_true(!set || roaring_bitmap_contains(set, a->ids[i]));
        world_floats(w, document, d->version, x);
        assert_true(fabs(distance_of(w, q, x) - a->distances[i]) < 1e-9);
        assert_true(i == 0 || a->distances[i - 1] <= a->distances[i]);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(a->ids[k], a->ids[i]);
    }
}

double world_recall(struct world *w, double share, uint32_t k, uint32_t n, uint64_t seed)
{
    static struct world_answer a;
    static uint32_t ids[4096];
    static double distances[4096];
    double found = 0, wanted = 0;
    roaring_bitmap_t *set = share < 0 ? NULL : world_set(w, share, seed);
    for (uint32_t i = 0; i < n; i++) {
        double query[WORLD_DIM];
        world_vector(w, 1000000 + i, (uint32_t)seed, query);
        world_search(w, query, set, k, -1, &a);
        assert_int_equal(a.code, 0);
        check_answer(w, query, set, &a);
        uint32_t n_true = world_truth(w, query, set, k, -1, ids, distances);
        if (a.n != n_true)
            fail_msg("%u answers, not %u, of a share of %g", a.n, n_true, share);
        wanted += n_true;
        for (uint32_t j = 0; j < a.n; j++)
            found += a.distances[j] <= distances[n_true - 1] + 1e-12;
    }
    if (set)
        roaring_bitmap_free(set);
    return wanted > 0 ? found / wanted : 1;
}

struct reading {
    uint8_t vector[sizeof(double) * WORLD_DIM];
    uint32_t bytes;
    int code;
    bool done;
};

static void on_read(struct vectors_read *read)
{
    struct reading *r = read->owner;
    r->code = read->code;
    if (read->code == 0)
        memcpy(r->vector, read->vector, r->bytes);
    r->done = true;
}

/* Whether the document's vector comes back as it was put, from the disk and, where it is in memory, without it. */
static bool reads_back(struct world *w, uint32_t document, uint32_t id, const void *vector)
{
    struct reading r = {.bytes = vectors_bytes(&w->what)}, now = r;
    char key[64];
    uint32_t key_bytes = key_of(document, key);
    if (!vectors_keeps(&w->what, vector))
        return true;
    struct vectors_read read = {
        .vectors = w->vectors, .key = key, .key_bytes = key_bytes, .id = id, .done = on_read, .owner = &r};
    if (!vectors_have(w->vectors, id) || vectors_read_start(w->searcher, &read, NULL) < 0)
        return false;
    while (!r.done)
        engine_poll(w->engine, 1, 10000000);
    bool right = r.code == 0 && memcmp(r.vector, vector, r.bytes) == 0;
    if (vectors_read_now(w->vectors, key, key_bytes, id, now.vector))
        right = right && memcmp(now.vector, vector, now.bytes) == 0;
    return right;
}

bool world_is_whole(struct world *w)
{
    static struct world_answer a;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct world_document *d = &w->documents[i];
        double query[WORLD_DIM];
        if (d->version == 0)
            continue;
        roaring_bitmap_t *set = roaring_bitmap_create();
        roaring_bitmap_add(set, d->id);
        world_vector(w, i, d->version, query);
        world_search(w, query, set, 3, -1, &a);
        roaring_bitmap_free(set);
        n++;
        /* under IP a vector is at a distance of its own length from itself */
        bool near = w->what.metric == SCHEMA_IP || (a.n == 1 && a.distances[0] == 0);
        if (a.code < 0 || a.n != 1 || a.ids[0] != d->id || !near) {
            fprintf(stderr, "document %u, version %u: %u answers at %g\n", i, d->version, a.n,
                    a.n ? a.distances[0] : -1.0);
            return false;
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        double vector[WORLD_DIM];
        if (w->documents[i].version == 0)
            continue;
        world_vector(w, i, w->documents[i].version, vector);
        if (!reads_back(w, i, w->documents[i].id, vector)) {
            fprintf(stderr, "document %u, version %u: another vector is read back\n", i, w->documents[i].version);
            return false;
        }
    }
    struct vectors_stats stats;
    vectors_get_stats(w->vectors, &stats);
    const char *reason;
    if (!vectors_table_check(&w->vectors->table, &reason)) {
        fprintf(stderr, "%s\n", reason);
        return false;
    }
    return stats.documents == n && collection_count(w->vectors->collection) == n;
}
