/*
 * support_live.h - live collections of quire.h for tests: a folder of the test's own, and elements whose vector says in
 * every number which element and which version it is of.
 */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_LIVE_H
#define QUIRE_TESTS_INDEX_SUPPORT_LIVE_H

#include "io/random.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 8, TEXT = 48 };

struct state {
    char *folder, *path;
    struct quire_collection *c;
};

static atomic_uint failures; /* of threads */

static inline void require(bool right, const char *what, uint32_t key, uint32_t number)
{
    if (right)
        return;
    atomic_fetch_add(&failures, 1);
    fprintf(stderr, "%s: element %u, %u\n", what, key, number);
}

static inline int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "live");
    atomic_store(&failures, 0);
    *out = s;
    return 0;
}

static inline int tear_down(void **in)
{
    struct state *s = *in;
    quire_collection_close(s->c, NULL);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

static inline struct quire_collection_options live_options(uint32_t dim)
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

static inline struct quire_collection *open_live(const char *path, const struct quire_collection_options *options)
{
    struct quire_collection *c = NULL;
    struct quire_error err = {0};
    if (quire_collection_open(path, options, &c, &err) < 0)
        fail_msg("open %s: %s", path, err.message);
    return c;
}

static inline void close_live(struct state *s)
{
    struct quire_error err = {0};
    if (quire_collection_close(s->c, &err) < 0)
        fail_msg("close: %s", err.message);
    s->c = NULL;
}

static inline struct quire_collection_info info_of(struct quire_collection *c)
{
    struct quire_collection_info info;
    quire_collection_get_info(c, &info);
    return info;
}

static inline void refused_open(const char *path, const struct quire_collection_options *options, int code,
                                const char *part)
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

static inline size_t key_text(uint32_t key, char out[TEXT])
{
    return (size_t)snprintf(out, TEXT, "k%u", key);
}

static inline void vector_of(uint32_t key, uint32_t version, float out[DIM])
{
    struct random random;
    random_init(&random, (uint64_t)key << 32 | version);
    out[0] = (float)key;
    out[1] = (float)version;
    for (unsigned i = 2; i < DIM; i++)
        out[i] = (float)random_below(&random, 1u << 20);
}

static inline int put(struct quire_collection *c, uint32_t key, uint32_t version, const char *attributes,
                      struct quire_error *err)
{
    char text[TEXT];
    float vector[DIM];
    size_t bytes = key_text(key, text);
    vector_of(key, version, vector);
    return quire_put(c, text, bytes, vector, attributes, attributes ? strlen(attributes) : 0, NULL, err);
}

static inline void put_some(struct quire_collection *c, uint32_t first, uint32_t n, uint32_t version)
{
    struct quire_error err = {0};
    for (uint32_t i = first; i < first + n; i++)
        if (put(c, i, version, NULL, &err) < 0)
            fail_msg("put: %s", err.message);
}

static inline void remove_some(struct quire_collection *c, uint32_t first, uint32_t n)
{
    char text[TEXT];
    for (uint32_t i = first; i < first + n; i++)
        assert_int_equal(quire_remove(c, text, key_text(i, text), NULL), 0);
}

/* The version that an element has; 0: there is none. */
static inline uint32_t version_of(struct quire_collection *c, uint32_t key)
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
static inline bool all_versions(struct quire_collection *c, const struct quire_snapshot *snapshot, uint32_t n,
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

static inline void assert_versions(struct quire_collection *c, const struct quire_snapshot *snapshot, uint32_t n,
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

enum place { IN_MEMORY, SEALED, MERGED };

static inline void move_to(struct quire_collection *c, enum place place)
{
    struct quire_error err = {0};
    if (place != IN_MEMORY && quire_seal(c, &err) < 0)
        fail_msg("seal: %s", err.message);
    if (place == MERGED && quire_compact(c, &err) < 0)
        fail_msg("compact: %s", err.message);
}

/* Every kind of write, to elements that lie in memory, in one segment of several, and in a merged one. */

#endif
