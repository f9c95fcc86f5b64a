/*
 * test_library_collection.c - quire.h's live collections as a user calls them: folders, refusals, elements in memory
 * and in segments, recall of every type and metric, snapshots, copies, limits, and threads that do all of it at once.
 *
 * Where threads are at work a vector says which element and which version it is of, in every number: a search that
 * mixed two versions, saw one twice or missed one would show it. What fails in a thread is counted and printed, because
 * cmocka's assertions are for the main thread only.
 */
#include "io/random.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { DIM = 8, TEXT = 48 };

struct state {
    char *folder, *path;
    struct quire_collection *c;
};

static atomic_uint failures; /* of threads */

static void require(bool right, const char *what, uint32_t key, uint32_t number)
{
    if (right)
        return;
    atomic_fetch_add(&failures, 1);
    fprintf(stderr, "%s: element %u, %u\n", what, key, number);
}

static int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "live");
    atomic_store(&failures, 0);
    *out = s;
    return 0;
}

static int tear_down(void **in)
{
    struct state *s = *in;
    quire_collection_close(s->c, NULL);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

static struct quire_collection_options live_options(uint32_t dim)
{
    struct quire_collection_options options;
    quire_collection_options_init(&options);
    options.create = true;
    options.dim = dim;
    options.slot = QUIRE_SLOT_F32;
    options.block_bytes = 4096;
    options.durability = QUIRE_DURABLE_NO;
    return options;
}

static struct quire_collection *open_live(const char *path, const struct quire_collection_options *options)
{
    struct quire_collection *c = NULL;
    struct quire_error err = {0};
    if (quire_collection_open(path, options, &c, &err) < 0)
        fail_msg("open %s: %s", path, err.message);
    return c;
}

static void close_live(struct state *s)
{
    struct quire_error err = {0};
    if (quire_collection_close(s->c, &err) < 0)
        fail_msg("close: %s", err.message);
    s->c = NULL;
}

static struct quire_collection_info info_of(struct quire_collection *c)
{
    struct quire_collection_info info;
    quire_collection_get_info(c, &info);
    return info;
}

static void refused_open(const char *path, const struct quire_collection_options *options, int code, const char *part)
{
    struct quire_collection *c = NULL;
    struct quire_error err = {0};
    int rc = quire_collection_open(path, options, &c, &err);
    if (rc != code || err.code != code || !strstr(err.message, part))
        fail_msg("%s was expected with \"%s\", not %s: %s", quire_error_name(code), part, quire_error_name(rc),
                 err.message);
    assert_null(c);
}

/* ---- elements whose vector says what they are -------------------------------------------------------------------- */

static size_t key_text(uint32_t key, char out[TEXT])
{
    return (size_t)snprintf(out, TEXT, "k%u", key);
}

static void vector_of(uint32_t key, uint32_t version, float out[DIM])
{
    struct random random;
    random_init(&random, (uint64_t)key << 32 | version);
    out[0] = (float)key;
    out[1] = (float)version;
    for (unsigned i = 2; i < DIM; i++)
        out[i] = (float)random_below(&random, 1u << 20);
}

static int put(struct quire_collection *c, uint32_t key, uint32_t version, const char *attributes,
               struct quire_error *err)
{
    char text[TEXT];
    float vector[DIM];
    size_t bytes = key_text(key, text);
    vector_of(key, version, vector);
    return quire_put(c, text, bytes, vector, attributes, attributes ? strlen(attributes) : 0, NULL, err);
}

static void put_some(struct quire_collection *c, uint32_t first, uint32_t n, uint32_t version)
{
    struct quire_error err = {0};
    for (uint32_t i = first; i < first + n; i++)
        if (put(c, i, version, NULL, &err) < 0)
            fail_msg("put: %s", err.message);
}

static void remove_some(struct quire_collection *c, uint32_t first, uint32_t n)
{
    char text[TEXT];
    for (uint32_t i = first; i < first + n; i++)
        assert_int_equal(quire_remove(c, text, key_text(i, text), NULL), 0);
}

/* The version that an element has; 0: there is none. */
static uint32_t version_of(struct quire_collection *c, uint32_t key)
{
    char text[TEXT];
    float vector[DIM], expected[DIM];
    int rc = quire_get(c, text, key_text(key, text), vector, NULL, NULL, NULL);
    if (rc == QUIRE_ENOTFOUND)
        return 0;
    if (rc < 0)
        return UINT32_MAX;
    uint32_t version = (uint32_t)vector[1];
    vector_of(key, version, expected);
    return memcmp(vector, expected, sizeof vector) == 0 ? version : UINT32_MAX;
}

/* All elements by an exact search: versions[key], 0 where there is none. n: keys are below that. Says whether each was
 * seen once at most and is what its vector says. */
static bool all_versions(struct quire_collection *c, const struct quire_snapshot *snapshot, uint32_t n,
                         uint32_t *versions)
{
    struct quire_search_options options;
    struct quire_result *result = NULL;
    struct quire_error err = {0};
    float query[DIM] = {1, 2, 3};
    bool right = true;
    quire_search_options_init(&options);
    options.k = n + 10;
    options.exact = true;
    memset(versions, 0, n * sizeof *versions);
    if (quire_collection_search(c, snapshot, query, &options, QUIRE_WITH_VECTORS, &result, NULL, &err) < 0) {
        fprintf(stderr, "search: %s\n", err.message);
        return false;
    }
    for (uint32_t i = 0; i < quire_result_count(result) && right; i++) {
        struct quire_element e;
        char text[TEXT] = "";
        float expected[DIM];
        quire_result_element(result, i, &e);
        uint32_t key = (uint32_t)e.vector[0], version = (uint32_t)e.vector[1];
        vector_of(key, version, expected);
        right = key < n && versions[key] == 0 && memcmp(expected, e.vector, sizeof expected) == 0 &&
                e.key_bytes == key_text(key, text) && memcmp(text, e.key, e.key_bytes) == 0;
        if (right)
            versions[key] = version;
        else
            fprintf(stderr, "hit %u: %.*s at version %u, seen at version %u before\n", i, (int)e.key_bytes,
                    (const char *)e.key, version, key < n ? versions[key] : 0);
    }
    quire_result_free(result);
    return right;
}

static void assert_versions(struct quire_collection *c, const struct quire_snapshot *snapshot, uint32_t n,
                            const uint32_t *expected)
{
    uint32_t *versions = calloc(n, sizeof *versions);
    assert_non_null(versions);
    assert_true(all_versions(c, snapshot, n, versions));
    for (uint32_t i = 0; i < n; i++)
        if (versions[i] != expected[i])
            fail_msg("element %u has version %u, not %u", i, versions[i], expected[i]);
    free(versions);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void opens_again_whatever_the_durability(void **in)
{
    static const enum quire_durability durabilities[] = {QUIRE_DURABLE_EVERYSEC, QUIRE_DURABLE_ALWAYS,
                                                         QUIRE_DURABLE_NO};
    struct state *s = *in;
    uint32_t expected[60];
    for (unsigned d = 0; d < SUPPORT_COUNT(durabilities); d++) {
        char name[TEXT];
        snprintf(name, sizeof name, "live-%u", d);
        char *path = support_path(s->folder, name);
        struct quire_collection_options options = live_options(DIM);
        options.durability = durabilities[d];
        s->c = open_live(path, &options);
        put_some(s->c, 0, 60, 1);
        put_some(s->c, 10, 20, 2);
        remove_some(s->c, 50, 10);
        for (uint32_t i = 0; i < 60; i++)
            expected[i] = i >= 50 ? 0 : i >= 10 && i < 30 ? 2 : 1;
        for (unsigned round = 0; round < 3; round++) {
            struct quire_collection_info info = info_of(s->c);
            assert_int_equal(info.elements, 50);
            assert_int_equal(info.raw_bytes, 50 * DIM * 4);
            assert_int_equal(info.dim, DIM);
            assert_int_equal(info.type, QUIRE_TYPE_F32);
            assert_int_equal(info.metric, QUIRE_METRIC_L2);
            assert_int_equal(info.slot, QUIRE_SLOT_F32);
            assert_int_equal(info.memory_rows, 50);
            assert_true(info.memory_bytes >= 50 * DIM * 4);
            assert_int_equal(info.segments, 0);
            assert_int_equal(info.replayed_records, round ? 91 : 0); /* with the record of its making */
            assert_versions(s->c, NULL, 60, expected);
            close_live(s);
            s->c = open_live(path, round ? NULL : &options);
        }
        close_live(s);
        free(path);
    }
}

static void what_cannot_be_opened_says_why(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err;
    char *nested = support_path(s->path, "below"), *file = support_path(s->folder, "file");
    refused_open(s->path, NULL, QUIRE_ENOFILE, "create");
    refused_open(nested, &options, QUIRE_ENOFILE, "below");
    support_write_file(file, "text", 4);
    refused_open(s->folder, NULL, QUIRE_ENOFILE, "create");
    assert_int_equal(support_count_entries(s->folder), 1); /* nothing was made there */
    assert_true(quire_collection_open(file, &options, &s->c, NULL) < 0);
    assert_int_equal(quire_collection_open(NULL, &options, &s->c, &err), QUIRE_EINVALID);
    assert_int_equal(quire_collection_open(s->path, &options, NULL, &err), QUIRE_EINVALID);
    options.struct_bytes--;
    refused_open(s->path, &options, QUIRE_EINVALID, "quire_collection_options_init");
    options = live_options(0);
    refused_open(s->path, &options, QUIRE_EDIM, "1..16384");
    options = live_options(QUIRE_DIM_MAX + 1);
    refused_open(s->path, &options, QUIRE_EDIM, "16385");
    options = live_options(DIM);
    options.type = (enum quire_type)9;
    refused_open(s->path, &options, QUIRE_EINVALID, "type 9");
    options = live_options(DIM);
    options.durability = (enum quire_durability)3;
    refused_open(s->path, &options, QUIRE_EINVALID, "durability 3");
    options = live_options(DIM);
    options.type = QUIRE_TYPE_U8;
    refused_open(s->path, &options, QUIRE_EINVALID, "u8");
    options = live_options(DIM);
    options.block_bytes = 5000;
    refused_open(s->path, &options, QUIRE_ERANGE, "5000");
    free(nested);
    free(file);
}

static void another_kind_of_vector_is_refused(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    s->c = open_live(s->path, &options);
    close_live(s);
    options.dim = DIM + 1;
    refused_open(s->path, &options, QUIRE_EDIM, "dimension 8, not 9");
    options = live_options(DIM);
    options.type = QUIRE_TYPE_F16;
    refused_open(s->path, &options, QUIRE_ETYPE, "f16");
    options = live_options(DIM);
    options.metric = QUIRE_METRIC_COSINE;
    refused_open(s->path, &options, QUIRE_ETYPE, "cosine");
    options = live_options(DIM);
    options.create = false;
    s->c = open_live(s->path, &options);
}

/* One handle at a time, and the refusal names the process that has the folder. */
static void a_folder_belongs_to_one_handle(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    char id[TEXT];
    int status = 0;
    s->c = open_live(s->path, &options);
    snprintf(id, sizeof id, "process %d:", (int)getpid());
    refused_open(s->path, &options, QUIRE_EBUSY, id);
    pid_t child = fork();
    if (child == 0) {
        struct quire_collection *c = NULL;
        struct quire_error err = {0};
        int rc = quire_collection_open(s->path, &options, &c, &err);
        _exit(rc == QUIRE_EBUSY && strstr(err.message, id) ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    put_some(s->c, 0, 3, 1);
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_int_equal(info_of(s->c).elements, 3);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void arguments_that_are_missing_are_refused(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    float vector[DIM] = {1};
    struct quire_result *result = NULL;
    struct quire_snapshot *snapshot = NULL;
    s->c = open_live(s->path, &options);
    assert_int_equal(quire_put(NULL, "a", 1, vector, NULL, 0, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_put(s->c, "a", 1, NULL, NULL, 0, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_put(s->c, NULL, 1, vector, NULL, 0, NULL, NULL), QUIRE_ERANGE);
    assert_int_equal(quire_remove(NULL, "a", 1, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_set_attributes(NULL, "a", 1, "{}", 2, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_get(NULL, "a", 1, vector, NULL, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(NULL, NULL, vector, NULL, 0, &result, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(s->c, NULL, NULL, NULL, 0, &result, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 0, NULL, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_snapshot_open(NULL, &snapshot, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_snapshot_open(s->c, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_checkpoint(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_seal(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_compact(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_backup(NULL, "copy", NULL), QUIRE_EINVALID);
    assert_int_equal(quire_backup(s->c, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_close(NULL, NULL), 0);
    quire_snapshot_close(NULL);
    quire_result_free(NULL);
    assert_int_equal(info_of(s->c).elements, 0);
}

static void keys_and_attributes_have_limits(void **in)
{
    enum { ATTRIBUTES_MAX = (1 << 24) - 1 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    float vector[DIM] = {1};
    char *big = malloc(ATTRIBUTES_MAX + 1), *back = malloc(ATTRIBUTES_MAX + 1);
    size_t bytes = ATTRIBUTES_MAX;
    assert_non_null(big);
    assert_non_null(back);
    memset(big, 'x', ATTRIBUTES_MAX + 1);
    s->c = open_live(s->path, &options);
    assert_int_equal(quire_put(s->c, "a", 0, vector, NULL, 0, NULL, &err), QUIRE_ERANGE);
    assert_non_null(strstr(err.message, "1..65535"));
    assert_int_equal(quire_put(s->c, big, 65536, vector, NULL, 0, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_remove(s->c, big, 65536, &err), QUIRE_ERANGE);
    assert_int_equal(quire_get(s->c, big, 0, vector, NULL, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_put(s->c, "a", 1, vector, big, ATTRIBUTES_MAX + 1, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_set_attributes(s->c, "a", 1, big, ATTRIBUTES_MAX + 1, &err), QUIRE_ERANGE);
    assert_int_equal(info_of(s->c).elements, 0);
    assert_int_equal(quire_put(s->c, big, 65535, vector, big, ATTRIBUTES_MAX, NULL, &err), 0);
    for (unsigned round = 0; round < 2; round++) {
        bytes = ATTRIBUTES_MAX;
        assert_int_equal(quire_get(s->c, big, 65535, NULL, back, &bytes, &err), 0);
        assert_int_equal(bytes, ATTRIBUTES_MAX);
        assert_memory_equal(back, big, bytes);
        assert_int_equal(quire_seal(s->c, &err), 0);
    }
    free(big);
    free(back);
}

static void vectors_without_sense_are_refused(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_search_options search;
    struct quire_result *result = NULL;
    struct quire_error err = {0};
    float vector[DIM] = {1}, zero[DIM] = {0};
    options.metric = QUIRE_METRIC_COSINE;
    s->c = open_live(s->path, &options);
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (unsigned i = 0; i < SUPPORT_COUNT(wrong); i++) {
        vector[3] = wrong[i];
        assert_int_equal(quire_put(s->c, "a", 1, vector, NULL, 0, NULL, &err), QUIRE_ENOTFINITE);
        assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 0, &result, NULL, &err), QUIRE_ENOTFINITE);
    }
    assert_int_equal(quire_put(s->c, "a", 1, zero, NULL, 0, NULL, &err), QUIRE_EZEROVEC);
    assert_int_equal(quire_collection_search(s->c, NULL, zero, NULL, 0, &result, NULL, &err), QUIRE_EZEROVEC);
    assert_int_equal(info_of(s->c).elements, 0);
    vector[3] = 1;
    quire_search_options_init(&search);
    search.k = 0;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_ERANGE);
    search.k = QUIRE_K_MAX + 1;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_ERANGE);
    search.k = 1;
    search.recall = NAN;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_ERANGE);
    search.recall = 0;
    search.struct_bytes = 1;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 4, &result, NULL, &err), QUIRE_EINVALID);
    assert_null(result);
    assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 0, &result, NULL, &err), 0);
    assert_int_equal(quire_result_count(result), 0); /* of an empty collection */
    quire_result_free(result);
    assert_int_equal(quire_get(s->c, "a", 1, vector, NULL, NULL, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_remove(s->c, "a", 1, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_set_attributes(s->c, "a", 1, "{}", 2, &err), QUIRE_ENOTFOUND);
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

/* An element's version and attributes (NULL: none), by every way of asking. */
static void assert_element(struct quire_collection *c, uint32_t key, uint32_t version, const char *attributes)
{
    char text[TEXT], back[TEXT] = "unchanged";
    float vector[DIM];
    size_t bytes = sizeof back, key_bytes = key_text(key, text), expected = attributes ? strlen(attributes) : 0;
    struct quire_search_options options;
    struct quire_result *result = NULL;
    struct quire_error err = {0};
    struct quire_element e;
    assert_int_equal(version_of(c, key), version);
    assert_int_equal(quire_get(c, text, key_bytes, NULL, back, &bytes, NULL), 0);
    assert_int_equal(bytes, expected);
    assert_memory_equal(back, attributes ? attributes : "unchanged", bytes);
    if (expected) {
        bytes = 0;
        vector[0] = -1;
        assert_int_equal(quire_get(c, text, key_bytes, vector, NULL, &bytes, &err), QUIRE_ELIMIT);
        assert_int_equal(bytes, expected);
        assert_true(vector[0] < 0); /* untouched */
    }
    vector_of(key, version, vector);
    quire_search_options_init(&options);
    options.k = 1;
    assert_int_equal(quire_collection_search(c, NULL, vector, &options, QUIRE_WITH_ATTRIBUTES, &result, NULL, NULL), 0);
    assert_int_equal(quire_result_count(result), 1);
    quire_result_element(result, 0, &e);
    assert_int_equal(e.key_bytes, key_bytes);
    assert_memory_equal(e.key, text, key_bytes);
    assert_true(e.distance == 0);
    assert_null(e.vector);
    assert_int_equal(e.attribute_bytes, expected);
    if (expected)
        assert_memory_equal(e.attributes, attributes, expected);
    else
        assert_null(e.attributes);
    quire_result_free(result);
}

enum place { IN_MEMORY, SEALED, MERGED };

static void move_to(struct quire_collection *c, enum place place)
{
    struct quire_error err = {0};
    if (place != IN_MEMORY && quire_seal(c, &err) < 0)
        fail_msg("seal: %s", err.message);
    if (place == MERGED && quire_compact(c, &err) < 0)
        fail_msg("compact: %s", err.message);
}

/* Every kind of write, to elements that lie in memory, in one segment of several, and in a merged one. */
static void elements_change_wherever_they_lie(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    s->c = open_live(s->path, &options);
    for (uint32_t place = IN_MEMORY; place <= MERGED; place++) {
        uint32_t k = 100 * place;
        char text[TEXT];
        float vector[DIM];
        bool was_new = false;
        size_t bytes = key_text(k, text);
        vector_of(k, 1, vector);
        assert_int_equal(quire_put(s->c, text, bytes, vector, "{\"a\":1}", 7, &was_new, NULL), 0);
        assert_true(was_new);
        put_some(s->c, k + 1, 40, 1);
        move_to(s->c, place);
        assert_element(s->c, k, 1, "{\"a\":1}");
        assert_element(s->c, k + 1, 1, NULL);
        vector_of(k, 2, vector);
        assert_int_equal(quire_put(s->c, text, bytes, vector, NULL, 0, &was_new, NULL), 0);
        assert_false(was_new);
        assert_element(s->c, k, 2, "{\"a\":1}"); /* they stay */
        move_to(s->c, place);
        assert_int_equal(put(s->c, k, 3, "{\"b\":2}", NULL), 0);
        assert_element(s->c, k, 3, "{\"b\":2}");
        move_to(s->c, place);
        assert_int_equal(put(s->c, k, 3, "", NULL), 0); /* none from now on */
        assert_element(s->c, k, 3, NULL);
        move_to(s->c, place);
        assert_int_equal(quire_set_attributes(s->c, text, bytes, "{\"c\":3}", 7, NULL), 0);
        assert_element(s->c, k, 3, "{\"c\":3}");
        move_to(s->c, place);
        assert_int_equal(quire_set_attributes(s->c, text, bytes, NULL, 99, NULL), 0);
        assert_element(s->c, k, 3, NULL);
        move_to(s->c, place);
        remove_some(s->c, k + 5, 10);
        assert_int_equal(version_of(s->c, k + 5), 0);
        assert_int_equal(quire_remove(s->c, "k5?", 3, NULL), QUIRE_ENOTFOUND);
        assert_int_equal(put(s->c, k + 5, 9, NULL, NULL), 0);
        assert_element(s->c, k + 5, 9, NULL);
        assert_int_equal(info_of(s->c).elements, (place + 1) * (41 - 9));
    }
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_int_equal(info_of(s->c).elements, 3 * (41 - 9));
    for (uint32_t place = IN_MEMORY; place <= MERGED; place++) {
        assert_element(s->c, 100 * place, 3, NULL);
        assert_element(s->c, 100 * place + 5, 9, NULL);
        assert_int_equal(version_of(s->c, 100 * place + 6), 0);
    }
}

static void keys_may_hold_any_bytes(void **in)
{
    static const size_t lengths[] = {1, 2, 3, 63, 64, 65, 255, 256, 4096, 9000, 65534, 65535};
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    uint8_t *key = malloc(65535);
    assert_non_null(key);
    for (size_t i = 0; i < 65535; i++)
        key[i] = (uint8_t)(i % 3 == 0 ? 0 : i % 3 == 1 ? 0xff : i);
    s->c = open_live(s->path, &options);
    for (unsigned round = 0; round < 3; round++) {
        float vector[DIM];
        for (uint32_t i = 0; i < SUPPORT_COUNT(lengths); i++) {
            bool was_new;
            vector_of(i, round + 1, vector);
            assert_int_equal(quire_put(s->c, key, lengths[i], vector, NULL, 0, &was_new, NULL), 0);
            assert_int_equal(was_new, round == 0);
        }
        move_to(s->c, SEALED);
        for (uint32_t i = 0; i < SUPPORT_COUNT(lengths); i++) {
            assert_int_equal(quire_get(s->c, key, lengths[i], vector, NULL, NULL, NULL), 0);
            assert_true((uint32_t)vector[0] == i && (uint32_t)vector[1] == round + 1);
        }
        assert_int_equal(info_of(s->c).elements, SUPPORT_COUNT(lengths));
    }
    free(key);
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

enum { ROWS = 600, FIRST_ROWS = 350, WIDE = 24, QUERIES = 20, K = 10 };

/* Mean recall of searches over the first n rows, whose keys are their numbers; hits are counted by their distance. */
static double recall_of(struct quire_collection *c, enum quire_metric metric, const struct support_data *data,
                        uint32_t n, const float *queries, bool exact)
{
    double sum = 0;
    struct quire_search_options options = support_search(K, exact ? 0 : 0.95f, 0);
    options.exact = exact;
    for (uint32_t q = 0; q < QUERIES; q++) {
        const float *query = queries + (size_t)q * WIDE;
        struct quire_hit hits[K];
        struct quire_result *result = NULL;
        struct quire_search_stats stats;
        struct quire_error err = {0};
        if (quire_collection_search(c, NULL, query, &options, 0, &result, &stats, &err) < 0)
            fail_msg("search: %s", err.message);
        assert_int_equal(quire_result_count(result), K);
        assert_int_equal(stats.exact, exact);
        assert_true(stats.complete && stats.rows_scored >= K);
        for (uint32_t i = 0; i < K; i++) {
            struct quire_element e;
            char text[TEXT] = "";
            quire_result_element(result, i, &e);
            memcpy(text, e.key, e.key_bytes < TEXT ? e.key_bytes : 0);
            hits[i] = (struct quire_hit){.id = strtoull(text + 1, NULL, 10), .distance = e.distance};
            assert_true(hits[i].id < n);
            double truth = support_distance(metric, query, data->floats + hits[i].id * WIDE, WIDE);
            double scale = metric == QUIRE_METRIC_COSINE ? 1 : fabs(truth) + 1;
            assert_true(fabs(truth - (double)e.distance) < 0.1 * scale);
            assert_true(i == 0 || hits[i].distance >= hits[i - 1].distance);
        }
        sum += support_recall(metric, data->floats, n, WIDE, query, K, hits, K);
        quire_result_free(result);
    }
    return sum / QUERIES;
}

static void assert_recall(struct quire_collection *c, enum quire_metric metric, const struct support_data *data,
                          uint32_t n, const float *queries)
{
    double exact = recall_of(c, metric, data, n, queries, true), usual = recall_of(c, metric, data, n, queries, false);
    if (exact < 0.93 || usual < 0.9)
        fail_msg("%s under %s, %u rows: recall %.3f exact, %.3f as usual", quire_type_name(data->type),
                 quire_metric_name(metric), n, exact, usual);
}

static void put_rows(struct quire_collection *c, const struct support_data *data, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        char text[TEXT];
        struct quire_error err = {0};
        size_t bytes = key_text(i, text), row_bytes = WIDE * quire_type_bytes(data->type);
        if (quire_put(c, text, bytes, data->vectors + i * row_bytes, NULL, 0, NULL, &err) < 0)
            fail_msg("put: %s", err.message);
    }
}

static void every_type_and_metric_is_found_again(void **in)
{
    struct state *s = *in;
    for (unsigned combination = 0; combination < 30; combination++) {
        enum quire_metric metric = (enum quire_metric)(combination % 3);
        enum quire_type type = (enum quire_type)(combination / 3 % 5);
        enum quire_index_kind kind = combination < 15 ? QUIRE_INDEX_AUTO : QUIRE_INDEX_SPANN;
        struct quire_collection_options options = live_options(WIDE);
        struct support_data data;
        char name[TEXT];
        snprintf(name, sizeof name, "live-%u", combination);
        char *path = support_path(s->folder, name);
        support_clusters(ROWS, WIDE, type, 11, &data);
        float *queries = support_queries(&data, QUERIES, 12);
        options.type = type;
        options.metric = metric;
        options.slot = QUIRE_SLOT_AUTO;
        options.index = kind;
        s->c = open_live(path, &options);
        assert_int_equal(info_of(s->c).index, kind == QUIRE_INDEX_AUTO ? QUIRE_INDEX_PAGEGRAPH : kind);
        put_rows(s->c, &data, 0, FIRST_ROWS);
        assert_recall(s->c, metric, &data, FIRST_ROWS, queries);
        move_to(s->c, SEALED);
        assert_int_equal(info_of(s->c).memory_rows, 0);
        assert_recall(s->c, metric, &data, FIRST_ROWS, queries);
        put_rows(s->c, &data, FIRST_ROWS, ROWS - FIRST_ROWS);
        put_rows(s->c, &data, 100, 100); /* again, in memory from now on */
        assert_recall(s->c, metric, &data, ROWS, queries);
        move_to(s->c, MERGED);
        assert_int_equal(info_of(s->c).segments, 1);
        assert_int_equal(info_of(s->c).segment_rows, ROWS);
        assert_int_equal(info_of(s->c).dead_rows, 0);
        assert_recall(s->c, metric, &data, ROWS, queries);
        close_live(s);
        free(queries);
        support_data_free(&data);
        free(path);
    }
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

enum { KEYS = 600 };

struct churn {
    struct quire_collection *c;
    uint32_t first, n, rounds; /* keys of its own */
    uint32_t *versions;        /* of its keys in the end; owned by the test */
    uint64_t seed;
};

/* Puts and removes at random. */
static void *churn(void *context)
{
    struct churn *w = context;
    struct random random;
    struct quire_error err = {0};
    random_init(&random, w->seed);
    for (uint32_t i = 0; i < w->rounds; i++) {
        uint32_t key = w->first + (uint32_t)random_below(&random, w->n), version = 100 + i;
        char text[TEXT];
        bool removes = random_below(&random, 3) == 0;
        int rc = removes ? quire_remove(w->c, text, key_text(key, text), &err) : put(w->c, key, version, NULL, &err);
        int expected = removes && w->versions[key] == 0 ? QUIRE_ENOTFOUND : 0;
        require(rc == expected, err.message, key, version);
        w->versions[key] = removes ? 0 : version;
    }
    return NULL;
}

static void a_snapshot_shows_what_was(void **in)
{
    enum { SNAPSHOTS = 3, ROUNDS = SANITIZED ? 800 : 2000 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_snapshot *snapshots[SNAPSHOTS];
    uint32_t *then[SNAPSHOTS], *now = calloc(KEYS, sizeof *now);
    assert_non_null(now);
    options.memtable_bytes = 64u << 10;
    s->c = open_live(s->path, &options);
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        struct churn writers[2];
        pthread_t threads[2];
        put_some(s->c, 0, KEYS / 2, i + 1);
        for (uint32_t k = 0; k < KEYS / 2; k++)
            now[k] = i + 1;
        then[i] = calloc(KEYS, sizeof *now);
        assert_non_null(then[i]);
        memcpy(then[i], now, KEYS * sizeof *now);
        assert_int_equal(quire_snapshot_open(s->c, &snapshots[i], NULL), 0);
        assert_int_equal(quire_snapshot_count(snapshots[i]), info_of(s->c).elements);
        for (unsigned t = 0; t < 2; t++) {
            writers[t] = (struct churn){s->c, KEYS / 2 * t, KEYS / 2, ROUNDS, now, 77 * i + t};
            assert_int_equal(pthread_create(&threads[t], NULL, churn, &writers[t]), 0);
        }
        for (unsigned step = 0; step < 6; step++) {
            move_to(s->c, step % 3 == 2 ? MERGED : SEALED);
            for (unsigned k = 0; k <= i; k++)
                assert_versions(s->c, snapshots[k], KEYS, then[k]);
        }
        for (unsigned t = 0; t < 2; t++)
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        assert_versions(s->c, NULL, KEYS, now);
    }
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        unsigned k = (i + 2) % SNAPSHOTS; /* not in the order of their opening */
        assert_versions(s->c, snapshots[k], KEYS, then[k]);
        quire_snapshot_close(snapshots[k]);
        free(then[k]);
    }
    assert_int_equal(atomic_load(&failures), 0);
    assert_versions(s->c, NULL, KEYS, now);
    free(now);
}

/* Waits for the background: whether memory falls below a limit within ten seconds. */
static bool memory_falls_below(struct quire_collection *c, uint64_t bytes)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (unsigned i = 0; i < 1000 && info_of(c).memory_bytes >= bytes; i++)
        nanosleep(&pause, NULL);
    return info_of(c).memory_bytes < bytes;
}

/* Removed rows stay for a snapshot; without a further write they go when it is closed. */
static void memory_comes_back_when_a_snapshot_is_closed(void **in)
{
    enum { MANY = 3000, BYTES = 1000 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_snapshot *snapshot;
    uint32_t then[MANY];
    char text[BYTES + 1];
    const struct timespec pause = {.tv_nsec = 300000000};
    memset(text, 'x', BYTES);
    text[BYTES] = 0;
    s->c = open_live(s->path, &options);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(put(s->c, i, 1, text, NULL), 0);
        then[i] = 1;
    }
    uint64_t full = info_of(s->c).memory_bytes;
    assert_true(full > MANY * BYTES);
    assert_int_equal(quire_snapshot_open(s->c, &snapshot, NULL), 0);
    remove_some(s->c, 0, MANY - 10);
    nanosleep(&pause, NULL); /* time for the background to do it wrong */
    assert_true(info_of(s->c).memory_bytes > full / 2);
    assert_versions(s->c, snapshot, MANY, then);
    quire_snapshot_close(snapshot);
    assert_true(memory_falls_below(s->c, full / 2));
    assert_int_equal(info_of(s->c).elements, 10);
}

static void a_snapshot_serves_its_own_collection_only(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    char *path = support_path(s->folder, "other");
    struct quire_snapshot *snapshot;
    struct quire_result *result = NULL;
    float query[DIM] = {1};
    s->c = open_live(s->path, &options);
    struct quire_collection *other = open_live(path, &options);
    put_some(s->c, 0, 5, 1);
    assert_int_equal(quire_snapshot_open(other, &snapshot, NULL), 0);
    assert_int_equal(quire_snapshot_count(snapshot), 0);
    assert_int_equal(quire_collection_search(s->c, snapshot, query, NULL, 0, &result, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(other, snapshot, query, NULL, 0, &result, NULL, NULL), 0);
    assert_int_equal(quire_result_count(result), 0);
    quire_result_free(result);
    quire_snapshot_close(snapshot);
    assert_int_equal(quire_collection_close(other, NULL), 0);
    free(path);
}

/* ---- copies, checkpoints ----------------------------------------------------------------------------------------- */

/* A copy that is made while a thread writes holds, of each element, a version that it had then. */
static void a_backup_opens_like_any_other(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    char *copy = support_path(s->folder, "copy");
    struct quire_error err = {0};
    uint32_t now[KEYS] = {0}, found[KEYS];
    struct churn writer;
    pthread_t thread;
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, KEYS, 7);
    for (uint32_t i = 0; i < KEYS; i++)
        now[i] = 7;
    move_to(s->c, SEALED);
    writer = (struct churn){s->c, 0, KEYS / 2, 3000, now, 5};
    assert_int_equal(pthread_create(&thread, NULL, churn, &writer), 0);
    assert_int_equal(quire_backup(s->c, copy, &err), 0);
    assert_int_equal(quire_backup(s->c, copy, &err), QUIRE_EEXISTS);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    struct quire_collection *other = open_live(copy, NULL);
    assert_true(all_versions(other, NULL, KEYS, found));
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(i < KEYS / 2 ? found[i] == 0 || found[i] == 7 || found[i] >= 100 : found[i] == 7);
    put_some(other, 0, KEYS, 9);
    assert_int_equal(quire_compact(other, &err), 0);
    assert_int_equal(quire_collection_close(other, &err), 0);
    assert_versions(s->c, NULL, KEYS, now);
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_versions(s->c, NULL, KEYS, now);
    free(copy);
}

static void a_checkpoint_leaves_nothing_to_replay(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    uint32_t expected[200];
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, 200, 1);
    move_to(s->c, SEALED);
    put_some(s->c, 100, 50, 2);
    remove_some(s->c, 20, 30);
    for (uint32_t i = 0; i < 200; i++)
        expected[i] = i >= 20 && i < 50 ? 0 : i >= 100 && i < 150 ? 2 : 1;
    assert_int_equal(quire_checkpoint(s->c, &err), 0);
    for (unsigned round = 0; round < 2; round++) {
        close_live(s);
        s->c = open_live(s->path, NULL);
        assert_int_equal(info_of(s->c).replayed_records, round);
        assert_int_equal(info_of(s->c).elements, 170);
        assert_versions(s->c, NULL, 200, expected);
        if (round == 0)
            assert_int_equal(put(s->c, 0, 5, NULL, NULL), 0);
        expected[0] = 5;
    }
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

enum { WRITERS = 2, READERS = 2, EACH = 150, UPDATES = SANITIZED ? 1500 : 4000 };

static struct {
    struct quire_collection *c;
    atomic_uint committed[WRITERS * EACH]; /* versions of puts that have returned */
    atomic_bool stop;
    atomic_uint searches;
} crowd;

static void *update_on(void *context)
{
    uint32_t first = *(const uint32_t *)context;
    struct random random;
    struct quire_error err = {0};
    random_init(&random, first);
    for (uint32_t i = 2; i < UPDATES; i++) {
        uint32_t key = first + (uint32_t)random_below(&random, EACH);
        require(put(crowd.c, key, i, i % 3 ? NULL : "{\"x\":1}", &err) == 0, err.message, key, i);
        atomic_store(&crowd.committed[key], i);
        if (i % 50 == 0)
            require(version_of(crowd.c, key) == i, "read what was written", key, i);
    }
    return NULL;
}

/* Sees each element once, in a version no older than what was committed before the search, and never an older one than
 * it has seen before. */
static void *search_on(void *context)
{
    enum { ALL = WRITERS * EACH };
    uint32_t seen[ALL] = {0}, before[ALL], found[ALL];
    (void)context;
    while (!atomic_load(&crowd.stop)) {
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t committed = atomic_load(&crowd.committed[i]);
            before[i] = committed > seen[i] ? committed : seen[i];
        }
        require(all_versions(crowd.c, NULL, ALL, found), "a search", 0, 0);
        for (uint32_t i = 0; i < ALL; i++) {
            require(found[i] >= before[i], "an older version was found", i, found[i]);
            seen[i] = found[i];
        }
        atomic_fetch_add(&crowd.searches, 1);
    }
    return NULL;
}

static void *seal_on(void *context)
{
    struct quire_error err = {0};
    (void)context;
    for (unsigned i = 0; !atomic_load(&crowd.stop); i++) {
        require(quire_seal(crowd.c, &err) == 0, err.message, 0, i);
        if (i % 4 == 3)
            require(quire_compact(crowd.c, &err) == 0, err.message, 0, i);
        if (i % 4 == 1)
            require(quire_checkpoint(crowd.c, &err) == 0, err.message, 0, i);
    }
    return NULL;
}

static void every_search_sees_each_element_once(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    pthread_t writers[WRITERS], readers[READERS], sealer;
    uint32_t firsts[WRITERS], expected[WRITERS * EACH];
    options.memtable_bytes = 64u << 10;
    crowd.c = s->c = open_live(s->path, &options);
    atomic_store(&crowd.stop, false);
    atomic_store(&crowd.searches, 0);
    put_some(s->c, 0, WRITERS * EACH, 1);
    for (uint32_t i = 0; i < WRITERS * EACH; i++)
        atomic_store(&crowd.committed[i], 1);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, search_on, NULL), 0);
    assert_int_equal(pthread_create(&sealer, NULL, seal_on, NULL), 0);
    for (uint32_t i = 0; i < WRITERS; i++) {
        firsts[i] = i * EACH;
        assert_int_equal(pthread_create(&writers[i], NULL, update_on, &firsts[i]), 0);
    }
    for (uint32_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(writers[i], NULL), 0);
    atomic_store(&crowd.stop, true);
    assert_int_equal(pthread_join(sealer, NULL), 0);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_true(atomic_load(&crowd.searches) >= 10);
    for (uint32_t i = 0; i < WRITERS * EACH; i++)
        expected[i] = atomic_load(&crowd.committed[i]);
    assert_versions(s->c, NULL, WRITERS * EACH, expected);
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_versions(s->c, NULL, WRITERS * EACH, expected);
}

static void *decorate(void *context)
{
    struct quire_error err = {0};
    (void)context;
    for (uint32_t i = 0; !atomic_load(&crowd.stop); i++) {
        char text[TEXT], json[TEXT];
        int n = snprintf(json, sizeof json, "{\"n\":%u}", i);
        require(quire_set_attributes(crowd.c, text, key_text(i % 4, text), json, (size_t)n, &err) == 0, err.message, i,
                0);
    }
    return NULL;
}

/* Setting attributes of a sealed element writes its vector again: not over one that was put meanwhile. */
static void attributes_do_not_bring_old_vectors_back(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    pthread_t threads[2], sealer;
    crowd.c = s->c = open_live(s->path, &options);
    atomic_store(&crowd.stop, false);
    put_some(s->c, 0, 4, 1);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, decorate, NULL), 0);
    assert_int_equal(pthread_create(&sealer, NULL, seal_on, NULL), 0);
    for (uint32_t i = 2; i < (SANITIZED ? 600 : 3000); i++) {
        require(put(s->c, i % 4, i, NULL, &err) == 0, err.message, i % 4, i);
        require(version_of(s->c, i % 4) == i, "what was written last", i % 4, i);
    }
    atomic_store(&crowd.stop, true);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(pthread_join(sealer, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
}

/* ---- limits, the log --------------------------------------------------------------------------------------------- */

static void a_full_disk_refuses_writes_only(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    const struct timespec pause = {.tv_nsec = 1000000};
    uint32_t n = 0;
    int rc = 0;
    options.disk_bytes = 256u << 10;
    s->c = open_live(s->path, &options);
    for (; rc == 0 && n < 200000; n++) {
        rc = put(s->c, n, 1, NULL, &err);
        if (n % 500 == 0) /* what is taken is counted ten times a second */
            nanosleep(&pause, NULL);
    }
    assert_int_equal(rc, QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "quota is 0.2 MiB"));
    n--;
    assert_int_equal(version_of(s->c, n), 0);
    assert_int_equal(version_of(s->c, n - 1), 1);
    assert_int_equal(info_of(s->c).elements, n);
    remove_some(s->c, 0, 10);
    close_live(s);
    options.disk_bytes = 0;
    s->c = open_live(s->path, &options);
    assert_int_equal(info_of(s->c).elements, n - 10);
    assert_int_equal(put(s->c, n, 1, NULL, &err), 0);
}

/* One that never waits is slowed down by pauses instead of being refused. */
static void a_writer_in_a_hurry_is_not_refused(void **in)
{
    enum { MANY = SANITIZED ? 4000 : 20000 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    options.memtable_bytes = 256u << 10;
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, MANY, 1);
    assert_int_equal(info_of(s->c).elements, MANY);
    assert_int_equal(version_of(s->c, MANY / 2), 1);
}

struct lines {
    atomic_uint n, warnings, seals;
};

static void on_line(void *context, bool warning, const char *line)
{
    struct lines *lines = context;
    atomic_fetch_add(&lines->n, 1);
    atomic_fetch_add(&lines->warnings, warning);
    atomic_fetch_add(&lines->seals, strstr(line, "seal") != NULL);
}

static void the_log_tells_what_was_done(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct lines lines = {0};
    options.log = on_line;
    options.context = &lines;
    s->c = open_live(s->path, &options);
    put_some(s->c, 0, 300, 1);
    move_to(s->c, SEALED);
    assert_true(atomic_load(&lines.seals) >= 1);
    unsigned before = atomic_load(&lines.n);
    assert_int_equal(quire_checkpoint(s->c, NULL), 0);
    assert_true(atomic_load(&lines.n) > before);
    assert_int_equal(atomic_load(&lines.warnings), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_again_whatever_the_durability),
        TEST(what_cannot_be_opened_says_why),
        TEST(another_kind_of_vector_is_refused),
        TEST(a_folder_belongs_to_one_handle),
        TEST(arguments_that_are_missing_are_refused),
        TEST(keys_and_attributes_have_limits),
        TEST(vectors_without_sense_are_refused),
        TEST(elements_change_wherever_they_lie),
        TEST(keys_may_hold_any_bytes),
        TEST(every_type_and_metric_is_found_again),
        TEST(a_snapshot_shows_what_was),
        TEST(memory_comes_back_when_a_snapshot_is_closed),
        TEST(a_snapshot_serves_its_own_collection_only),
        TEST(a_backup_opens_like_any_other),
        TEST(a_checkpoint_leaves_nothing_to_replay),
        TEST(every_search_sees_each_element_once),
        TEST(attributes_do_not_bring_old_vectors_back),
        TEST(a_full_disk_refuses_writes_only),
        TEST(a_writer_in_a_hurry_is_not_refused),
        TEST(the_log_tells_what_was_done),
    };
    return cmocka_run_group_tests_name("live collections of the library", tests, NULL, NULL);
}
