/* support_library_cache.h - a quire_cache, opened, filled and asked, for the tests of cache/api. */
#ifndef QUIRE_TESTS_SUPPORT_LIBRARY_CACHE_H
#define QUIRE_TESTS_SUPPORT_LIBRARY_CACHE_H

#include "index/store/store.h"
#include "tests/cache/support_cache.h"
#include "tests/temp_folder.h"
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define DIM         64
#define NONE        ((struct quire_bytes){NULL, 0})
#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof *(list)))

static inline int setup(void **state)
{
    *state = support_folder_make();
    return 0;
}

static inline int teardown(void **state)
{
    support_folder_remove(*state);
    return 0;
}

static inline void sleep_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static inline uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline struct quire_cache_options defaults(void)
{
    struct quire_cache_options o;
    quire_cache_options_init(&o);
    o.create = true;
    o.dim = DIM;
    return o;
}

static inline struct quire_cache *open_with(const char *folder, const struct quire_cache_options *options)
{
    struct quire_cache *c = NULL;
    struct quire_error err = {0};
    if (quire_cache_open(folder, options, &c, &err) < 0)
        fail_msg("%s", err.message);
    return c;
}

static inline struct quire_cache *open_new(const char *folder)
{
    struct quire_cache_options o = defaults();
    return open_with(folder, &o);
}

static inline void close_it(struct quire_cache *c)
{
    struct quire_error err = {0};
    if (quire_cache_close(c, &err) < 0)
        fail_msg("%s", err.message);
}

static inline int category_code(struct quire_cache *c, const char *name, const char *words, struct quire_error *err)
{
    struct quire_bytes list[32];
    uint32_t n = 0;
    for (const char *at = words; *at; at += strspn(at, " ")) {
        list[n++] = (struct quire_bytes){at, strcspn(at, " ")};
        at += strcspn(at, " ");
    }
    return quire_cache_set_category(c, text_of(name), list, n, err);
}

static inline void category(struct quire_cache *c, const char *name, const char *words)
{
    struct quire_error err = {0};
    if (category_code(c, name, words, &err) < 0)
        fail_msg("%s: %s", words, err.message);
}

static inline struct quire_cache_put_result store(struct quire_cache *c, const struct quire_cache_entry *wanted,
                                                  const char *value)
{
    struct quire_cache_entry entry = *wanted;
    struct quire_cache_put_result result = {0};
    struct quire_bytes chunk = text_of(value ? value : "");
    struct quire_error err = {0};
    if (!entry.category.n_bytes)
        entry.category = text_of("k");
    if (!entry.n_chunks) {
        entry.chunks = &chunk;
        entry.n_chunks = 1;
    }
    if (quire_cache_put(c, &entry, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

static inline uint64_t store_simple(struct quire_cache *c, const char *text, const float *vector, const char *value)
{
    struct quire_cache_put_result result =
        store(c, &(struct quire_cache_entry){.text = text_of(text), .vector = vector}, value);
    assert_in_range(result.outcome, QUIRE_CACHE_STORED, QUIRE_CACHE_REPLACED);
    assert_int_not_equal(result.id, 0);
    return result.id;
}

static inline struct quire_cache_answer answer_of(struct quire_cache *c, const struct quire_cache_query *wanted)
{
    struct quire_cache_query query = *wanted;
    struct quire_cache_answer answer = {0};
    struct quire_error err = {0};
    if (!query.category.n_bytes)
        query.category = text_of("k");
    if (quire_cache_get(c, &query, &answer, &err) < 0)
        fail_msg("%s", err.message);
    assert_non_null(answer.reason);
    return answer;
}

static inline struct quire_cache_answer ask_text(struct quire_cache *c, const char *text, const float *vector)
{
    return answer_of(c, &(struct quire_cache_query){.text = text_of(text), .vector = vector});
}

static inline enum quire_cache_status status_of(struct quire_cache *c, const char *text, const float *vector)
{
    struct quire_cache_answer answer = ask_text(c, text, vector);
    enum quire_cache_status status = answer.status;
    quire_cache_answer_free(&answer);
    return status;
}

static inline void assert_bytes(struct quire_bytes bytes, const char *text)
{
    assert_int_equal(bytes.n_bytes, strlen(text));
    assert_memory_equal(bytes.data, text, strlen(text));
}

static inline int get_code(struct quire_cache *c, const struct quire_cache_query *query)
{
    struct quire_cache_answer answer, before;
    struct quire_error err = {0};
    memset(&answer, 0x55, sizeof answer);
    before = answer;
    int rc = quire_cache_get(c, query, &answer, &err);
    if (rc < 0) {
        assert_int_equal(err.code, rc);
        assert_true(err.message[0]);
        assert_memory_equal(&answer, &before, sizeof answer);
    } else {
        quire_cache_answer_free(&answer);
    }
    return rc;
}

#endif
