/*
 * test_library_cache.c - the semantic cache as a program sees it that has only quire.h: every function, every error
 * that its comment names, threads that wait for each other, closing while they do, and what is there after a restart.
 */
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

static int setup(void **state)
{
    *state = support_folder_make();
    return 0;
}

static int teardown(void **state)
{
    support_folder_remove(*state);
    return 0;
}

static void sleep_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static struct quire_cache_options defaults(void)
{
    struct quire_cache_options o;
    quire_cache_options_init(&o);
    o.create = true;
    o.dim = DIM;
    return o;
}

static struct quire_cache *open_with(const char *folder, const struct quire_cache_options *options)
{
    struct quire_cache *c = NULL;
    struct quire_error err = {0};
    if (quire_cache_open(folder, options, &c, &err) < 0)
        fail_msg("%s", err.message);
    return c;
}

static struct quire_cache *open_new(const char *folder)
{
    struct quire_cache_options o = defaults();
    return open_with(folder, &o);
}

static void close_it(struct quire_cache *c)
{
    struct quire_error err = {0};
    if (quire_cache_close(c, &err) < 0)
        fail_msg("%s", err.message);
}

static int category_code(struct quire_cache *c, const char *name, const char *words, struct quire_error *err)
{
    struct quire_bytes list[32];
    uint32_t n = 0;
    for (const char *at = words; *at; at += strspn(at, " ")) {
        list[n++] = (struct quire_bytes){at, strcspn(at, " ")};
        at += strcspn(at, " ");
    }
    return quire_cache_set_category(c, bytes_of(name), list, n, err);
}

static void category(struct quire_cache *c, const char *name, const char *words)
{
    struct quire_error err = {0};
    if (category_code(c, name, words, &err) < 0)
        fail_msg("%s: %s", words, err.message);
}

static struct quire_cache_put_result store(struct quire_cache *c, const struct quire_cache_entry *wanted,
                                           const char *value)
{
    struct quire_cache_entry entry = *wanted;
    struct quire_cache_put_result result = {0};
    struct quire_bytes chunk = bytes_of(value ? value : "");
    struct quire_error err = {0};
    if (!entry.category.n_bytes)
        entry.category = bytes_of("k");
    if (!entry.n_chunks) {
        entry.chunks = &chunk;
        entry.n_chunks = 1;
    }
    if (quire_cache_put(c, &entry, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

static uint64_t store_simple(struct quire_cache *c, const char *text, const float *vector, const char *value)
{
    struct quire_cache_put_result result =
        store(c, &(struct quire_cache_entry){.text = bytes_of(text), .vector = vector}, value);
    assert_in_range(result.outcome, QUIRE_CACHE_STORED, QUIRE_CACHE_REPLACED);
    assert_int_not_equal(result.id, 0);
    return result.id;
}

static struct quire_cache_answer answer_of(struct quire_cache *c, const struct quire_cache_query *wanted)
{
    struct quire_cache_query query = *wanted;
    struct quire_cache_answer answer = {0};
    struct quire_error err = {0};
    if (!query.category.n_bytes)
        query.category = bytes_of("k");
    if (quire_cache_get(c, &query, &answer, &err) < 0)
        fail_msg("%s", err.message);
    assert_non_null(answer.reason);
    return answer;
}

static struct quire_cache_answer ask_text(struct quire_cache *c, const char *text, const float *vector)
{
    return answer_of(c, &(struct quire_cache_query){.text = bytes_of(text), .vector = vector});
}

static enum quire_cache_status status_of(struct quire_cache *c, const char *text, const float *vector)
{
    struct quire_cache_answer answer = ask_text(c, text, vector);
    enum quire_cache_status status = answer.status;
    quire_cache_answer_free(&answer);
    return status;
}

static void assert_bytes(struct quire_bytes bytes, const char *text)
{
    assert_int_equal(bytes.n_bytes, strlen(text));
    assert_memory_equal(bytes.data, text, strlen(text));
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_code(const char *folder, const struct quire_cache_options *options)
{
    struct quire_cache *c = NULL;
    struct quire_error err = {0};
    int rc = quire_cache_open(folder, options, &c, &err);
    if (rc < 0) {
        assert_null(c);
        assert_int_equal(err.code, rc);
        assert_true(err.message[0]);
    } else {
        close_it(c);
    }
    return rc;
}

static void refuses_to_open_what_is_not_there(void **state)
{
    char *missing = support_path(*state, "missing"), *other = support_path(*state, "other");
    struct quire_cache_options o = defaults();
    assert_int_equal(open_code(missing, NULL), QUIRE_ENOFILE);
    assert_int_equal(access(missing, F_OK), -1);
    assert_int_equal(open_code(*state, NULL), QUIRE_ENOFILE);
    assert_int_equal(support_count_entries(*state), 0);
    assert_int_equal(open_code(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_cache_open(other, &o, NULL, NULL), QUIRE_EINVALID);
    o.dim = 0;
    assert_int_equal(open_code(other, &o), QUIRE_ERANGE);
    o = defaults();
    o.type = QUIRE_TYPE_U8;
    assert_int_equal(open_code(other, &o), QUIRE_EINVALID);
    o = defaults();
    o.struct_bytes--;
    assert_int_equal(open_code(other, &o), QUIRE_EINVALID);
    o = defaults();
    o.durability = (enum quire_durability)7;
    assert_int_equal(open_code(other, &o), QUIRE_EINVALID);
    o = defaults();
    o.n_scope_keys = 1;
    assert_int_equal(open_code(other, &o), QUIRE_EINVALID);
    o.n_scope_keys = 17;
    assert_int_equal(open_code(other, &o), QUIRE_ERANGE);
    o = defaults();
    o.guard_folder = missing;
    assert_true(open_code(other, &o) < 0);
    o = defaults();
    assert_int_equal(open_code(other, &o), 0); /* what was refused has left nothing that is in the way */
    assert_int_equal(quire_cache_close(NULL, NULL), 0);
    free(missing);
    free(other);
}

static void compares_options_with_what_is_there(void **state)
{
    struct quire_bytes keys[] = {bytes_of("tenant"), bytes_of("user")};
    struct quire_cache_options o = defaults();
    o.encoder = "e5@1";
    o.memory_bytes = 64 << 20;
    o.scope_keys = keys;
    o.n_scope_keys = 2;
    assert_int_equal(open_code(*state, &o), 0);
    assert_int_equal(open_code(*state, &o), 0);
    assert_int_equal(open_code(*state, NULL), 0);
    o.dim = DIM + 1;
    assert_int_equal(open_code(*state, &o), QUIRE_EDIM);
    o.dim = DIM;
    o.type = QUIRE_TYPE_F16;
    assert_int_equal(open_code(*state, &o), QUIRE_ETYPE);
    o.dim = 0; /* neither is compared */
    assert_int_equal(open_code(*state, &o), 0);
    o.encoder = "e5@2";
    assert_int_equal(open_code(*state, &o), QUIRE_EINVALID);
    o.encoder = NULL;
    o.memory_bytes = 32 << 20;
    assert_int_equal(open_code(*state, &o), QUIRE_EINVALID);
    o.memory_bytes = 0;
    o.disk_bytes = 1 << 30;
    assert_int_equal(open_code(*state, &o), QUIRE_EINVALID);
    o.disk_bytes = 0;
    o.require_scope = true;
    assert_int_equal(open_code(*state, &o), QUIRE_EINVALID);
    o.require_scope = false;
    o.n_scope_keys = 1;
    assert_int_equal(open_code(*state, &o), QUIRE_EINVALID);
}

static void refuses_the_folder_of_a_server(void **state)
{
    struct store *made;
    struct store_options options = {.sync = JOURNAL_ALWAYS};
    struct store_report report;
    struct quire_error err = {0};
    uint64_t lsn;
    struct journal_record record = {.kind = HOST_KINDS, .bytes = "a key of it", .n_bytes = 11};
    assert_int_equal(store_open(*state, &options, NULL, &made, &report, &err), 0);
    assert_int_equal(journal_append(store_journal(made), &record, 1, &lsn, &err), 0);
    assert_int_equal(store_close(made, &err), 0);
    struct quire_cache_options o = defaults();
    assert_int_equal(open_code(*state, &o), QUIRE_EUNSUPPORTED);
}

/* It would leave the cache out of its next checkpoint. */
static void is_not_opened_as_a_collection(void **state)
{
    struct quire_collection_options o;
    struct quire_collection *collection = NULL;
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    struct quire_cache *c = open_new(*state);
    category(c, "k", "SIM 0.9");
    close_it(c);
    quire_collection_options_init(&o);
    o.create = true;
    o.dim = DIM;
    assert_int_equal(quire_collection_open(*state, &o, &collection, &err), QUIRE_EUNSUPPORTED);
    assert_null(collection);
    c = open_with(*state, NULL);
    assert_int_equal(quire_cache_get_stats(c, bytes_of("k"), &stats, &err), 0);
    close_it(c);
}

static void belongs_to_one_process(void **state)
{
    int opened[2], status;
    char byte = 0;
    assert_int_equal(pipe(opened), 0);
    pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct quire_cache *mine = NULL;
        struct quire_cache_options o = defaults();
        close(opened[1]);
        bool told = read(opened[0], &byte, 1) == 1;
        int rc = told ? quire_cache_open(*state, &o, &mine, NULL) : 0;
        _exit(rc == QUIRE_EBUSY ? 0 : 1);
    }
    struct quire_cache *c = open_new(*state);
    assert_int_equal(write(opened[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(open_code(*state, NULL), QUIRE_EBUSY); /* nor to two handles */
    close(opened[0]);
    close(opened[1]);
    close_it(c);
}

/* ---- questions and answers --------------------------------------------------------------------------------------- */

static void check_whole(const struct quire_cache_answer *answer)
{
    assert_int_equal(answer->status, QUIRE_CACHE_EXACT);
    assert_bytes(answer->value, "one, two, three");
    assert_int_equal(answer->n_chunks, 3);
    assert_bytes(answer->chunks[0], "one, ");
    assert_bytes(answer->chunks[1], "");
    assert_bytes(answer->chunks[2], "two, three");
    assert_bytes(answer->text, "count");
    assert_bytes(answer->model, "m-1");
    assert_int_equal(answer->tokens_in, 10);
    assert_int_equal(answer->tokens_out, 20);
    assert_int_equal(answer->llm_ms, 300);
    assert_float_equal(answer->cost, 0.25, 1e-6);
}

static void answers_are_whole_copies(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM], near[DIM];
    struct quire_bytes chunks[] = {bytes_of("one, "), NONE, bytes_of("two, three")};
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.96, 2);
    category(c, "k", "SIM 0.9 TTL 60000 JITTER 0");
    struct quire_cache_answer miss = ask_text(c, "count", v);
    assert_int_equal(miss.status, QUIRE_CACHE_MISS);
    assert_true(miss.lease[0] && miss.lease_ms > 0);
    assert_true(miss.similarity < 0);
    assert_null(miss.memory);
    struct quire_cache_put_result result = store(c,
                                                 &(struct quire_cache_entry){.lease = bytes_of(miss.lease),
                                                                             .text = bytes_of("count"),
                                                                             .vector = v,
                                                                             .chunks = chunks,
                                                                             .n_chunks = 3,
                                                                             .model = bytes_of("m-1"),
                                                                             .tokens_in = 10,
                                                                             .tokens_out = 20,
                                                                             .llm_ms = 300,
                                                                             .cost = 0.25},
                                                 NULL);
    assert_int_equal(result.outcome, QUIRE_CACHE_STORED);
    struct quire_cache_answer exact = ask_text(c, "count", NULL), hit = ask_text(c, "please count", near);
    struct quire_cache_answer told =
        answer_of(c, &(struct quire_cache_query){.text = bytes_of("count it"), .vector = near, .explain = true});
    assert_int_equal(hit.status, QUIRE_CACHE_HIT);
    assert_float_equal(hit.similarity, 0.96, 0.02);
    assert_float_equal(hit.threshold, 0.9, 1e-9);
    assert_int_equal(hit.id, result.id);
    assert_in_range(exact.ttl_ms, 50000, 60000);
    assert_int_equal(told.n_candidates, 1);
    assert_string_equal(told.candidates[0].verdict, "served");
    quire_cache_answer_free(&told);
    assert_null(told.memory);
    close_it(c);
    check_whole(&exact); /* answers outlive the cache */
    assert_bytes(hit.value, "one, two, three");
    quire_cache_answer_free(&exact);
    quire_cache_answer_free(&hit);
    quire_cache_answer_free(&miss);
    quire_cache_answer_free(NULL);
    c = open_with(*state, NULL);
    exact = ask_text(c, "count", NULL);
    check_whole(&exact);
    assert_int_equal(status_of(c, "please count", near), QUIRE_CACHE_HIT);
    quire_cache_answer_free(&exact);
    close_it(c);
}

static int get_code(struct quire_cache *c, const struct quire_cache_query *query)
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

static void questions_that_are_refused(void **state)
{
    struct quire_bytes keys[] = {bytes_of("tenant")};
    struct quire_cache_options o = defaults();
    float v[DIM], bad[DIM], zero[DIM] = {0};
    o.encoder = "e5@1";
    o.scope_keys = keys;
    o.n_scope_keys = 1;
    o.require_scope = true;
    struct quire_cache *c = open_with(*state, &o);
    vector_make(v, DIM, 1);
    memcpy(bad, v, sizeof v);
    bad[3] = NAN;
    category(c, "k", "SIM 0.9");
    struct quire_pair tenant = {bytes_of("tenant"), bytes_of("acme")}, twice[] = {tenant, tenant};
    struct quire_pair unknown[] = {tenant, {bytes_of("colour"), bytes_of("red")}};
    struct quire_cache_query good = {
        .category = bytes_of("k"), .scope = &tenant, .n_scope = 1, .vector = v, .text = bytes_of("hello")};
    struct quire_cache_query q = good;
    assert_int_equal(get_code(c, &q), 0);
    q.encoder = bytes_of("e5@1");
    assert_int_equal(get_code(c, &q), 0);
    q.encoder = bytes_of("e5@2");
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q = good;
    q.category = bytes_of("nobody");
    assert_int_equal(get_code(c, &q), QUIRE_ENOTFOUND);
    q.category = NONE;
    assert_int_equal(get_code(c, &q), QUIRE_ENOTFOUND);
    q = good;
    q.n_scope = 0;
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q.scope = unknown;
    q.n_scope = 2;
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q.scope = twice;
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q.scope = NULL;
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q = good;
    q.vector = bad;
    assert_int_equal(get_code(c, &q), QUIRE_ENOTFINITE);
    q.vector = zero;
    assert_int_equal(get_code(c, &q), QUIRE_EZEROVEC);
    q = good;
    q.similarity = 95;
    assert_int_equal(get_code(c, &q), QUIRE_ERANGE);
    q.similarity = NAN;
    assert_int_equal(get_code(c, &q), QUIRE_ERANGE);
    q = good;
    q.n_need = 1;
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q.need = keys;
    q.n_need = 65;
    assert_int_equal(get_code(c, &q), QUIRE_ERANGE);
    assert_int_equal(get_code(c, NULL), QUIRE_EINVALID);
    assert_int_equal(get_code(NULL, &good), QUIRE_EINVALID);
    assert_int_equal(quire_cache_get(c, &good, NULL, NULL), QUIRE_EINVALID);
    close_it(c);
}

static int put_code(struct quire_cache *c, const struct quire_cache_entry *entry)
{
    struct quire_cache_put_result result, before;
    struct quire_error err = {0};
    memset(&result, 0x55, sizeof result);
    before = result;
    int rc = quire_cache_put(c, entry, &result, &err);
    if (rc < 0) {
        assert_int_equal(err.code, rc);
        assert_memory_equal(&result, &before, sizeof result);
    }
    return rc;
}

static void answers_that_are_refused(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM], bad[DIM], zero[DIM] = {0};
    struct quire_bytes chunk = bytes_of("x"), tags[65];
    vector_make(v, DIM, 1);
    memcpy(bad, v, sizeof v);
    bad[0] = INFINITY;
    for (unsigned i = 0; i < COUNT(tags); i++)
        tags[i] = chunk;
    category(c, "k", "SIM 0.9");
    const struct quire_cache_entry good = {
        .category = bytes_of("k"), .text = bytes_of("t"), .vector = v, .chunks = &chunk, .n_chunks = 1};
    struct quire_cache_entry e = good;
    assert_int_equal(put_code(c, &e), 0);
    e.vector = bad;
    assert_int_equal(put_code(c, &e), QUIRE_ENOTFINITE);
    e.vector = zero;
    assert_int_equal(put_code(c, &e), QUIRE_EZEROVEC);
    e.vector = NULL;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.category = bytes_of("nobody");
    assert_int_equal(put_code(c, &e), QUIRE_ENOTFOUND);
    e = good;
    e.n_chunks = 0;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e.n_chunks = 1;
    e.chunks = NULL;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.lease = bytes_of("made-up");
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.encoder = bytes_of("e5@1"); /* the cache knows none to compare it with */
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.cost = -1;
    assert_int_equal(put_code(c, &e), QUIRE_ERANGE);
    e = good;
    e.tags = tags;
    e.n_tags = 65;
    assert_int_equal(put_code(c, &e), QUIRE_ERANGE);
    e.tags = NULL;
    e.n_tags = 1;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    chunk = (struct quire_bytes){calloc(1, DOCUMENT_BYTES_MAX), DOCUMENT_BYTES_MAX};
    assert_int_equal(put_code(c, &e), QUIRE_ELIMIT);
    free((void *)(uintptr_t)chunk.data);
    assert_int_equal(put_code(c, NULL), QUIRE_EINVALID);
    assert_int_equal(put_code(NULL, &good), QUIRE_EINVALID);
    assert_int_equal(status_of(c, "t", v), QUIRE_CACHE_EXACT);
    close_it(c);
}

static void outcomes_of_puts(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM], w[DIM];
    uint64_t n = 0;
    struct quire_error err = {0};
    vector_make(v, DIM, 1);
    vector_make(w, DIM, 2);
    category(c, "k", "SIM 0.9");
    category(c, "second", "SIM 0.9 ADMIT second");
    category(c, "off", "MODE off");
    category(c, "small", "SIM 0.9 ENTRIES 1");
    struct quire_cache_entry e = {.text = bytes_of("a"), .vector = v};
    uint64_t first = store(c, &e, "1").id;
    struct quire_cache_put_result r = store(c, &e, "2");
    assert_int_equal(r.outcome, QUIRE_CACHE_REPLACED);
    assert_int_not_equal(r.id, first);
    e.if_new = true;
    uint64_t second = r.id;
    r = store(c, &e, "3");
    assert_int_equal(r.outcome, QUIRE_CACHE_EXISTS);
    assert_int_equal(r.id, second);
    e = (struct quire_cache_entry){.category = bytes_of("second"), .text = bytes_of("a"), .vector = v};
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_NOT_ADMITTED);
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_STORED);
    e.category = bytes_of("off");
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_OFF);
    e.category = bytes_of("small");
    e.pin = true;
    r = store(c, &e, "1");
    assert_int_equal(r.outcome, QUIRE_CACHE_STORED);
    assert_true(r.expire_ms == UINT64_MAX);
    e.text = bytes_of("b");
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_NO_ROOM);
    struct quire_cache_answer miss = ask_text(c, "w", w);
    assert_true(miss.lease[0]);
    assert_int_equal(
        quire_cache_invalidate(c, &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_ALL}, false, &n, &err), 0);
    e = (struct quire_cache_entry){.text = bytes_of("w"), .vector = w, .lease = bytes_of(miss.lease)};
    assert_int_equal(store(c, &e, "old").outcome, QUIRE_CACHE_OUTDATED);
    assert_int_equal(status_of(c, "w", w), QUIRE_CACHE_MISS);
    close_it(c);
}

static void negative_and_failed_answers(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM];
    struct quire_error err = {0};
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    struct quire_cache_query q = {.category = bytes_of("k"), .text = bytes_of("my salary?"), .vector = v};
    struct quire_cache_answer miss = answer_of(c, &q), other;
    assert_true(miss.lease[0]);
    assert_int_equal(quire_cache_negative(c, &q, 0, bytes_of(miss.lease), &err), 0);
    assert_int_equal(status_of(c, "my salary?", v), QUIRE_CACHE_NEGATIVE);
    assert_int_equal(quire_cache_fail(c, bytes_of(miss.lease), &err), QUIRE_ENOTFOUND); /* the lease has ended */
    q.text = bytes_of("something else");
    miss = answer_of(c, &q);
    other = answer_of(c, &q);
    assert_true(miss.lease[0]);
    assert_false(other.lease[0]); /* one caller computes it */
    assert_int_equal(quire_cache_fail(c, bytes_of(miss.lease), &err), 0);
    other = answer_of(c, &q);
    assert_true(other.lease[0]);
    assert_int_equal(quire_cache_fail(c, bytes_of("nonsense"), &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_fail(c, NONE, &err), QUIRE_ENOTFOUND);
    q.category = bytes_of("nobody");
    assert_int_equal(quire_cache_negative(c, &q, 0, NONE, &err), QUIRE_ENOTFOUND);
    q = (struct quire_cache_query){.category = bytes_of("k"), .vector = v};
    assert_int_equal(quire_cache_negative(c, &q, 0, NONE, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_negative(c, NULL, 0, NONE, &err), QUIRE_EINVALID);
    close_it(c);
}

static void stale_answers_and_who_renews_them(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9 TTL 20 JITTER 0 STALE 600000");
    store_simple(c, "weather", v, "sun");
    sleep_ms(40);
    struct quire_cache_query q = {.text = bytes_of("weather"), .vector = v, .stale_ok = true};
    struct quire_cache_answer answer = answer_of(c, &q);
    assert_int_equal(answer.status, QUIRE_CACHE_STALE);
    assert_bytes(answer.value, "sun");
    assert_int_equal(answer.ttl_ms, 0); /* nothing is left of its life */
    assert_false(answer.lease[0]);
    quire_cache_answer_free(&answer);
    q.stale_ok = false;
    answer = answer_of(c, &q);
    assert_int_equal(answer.status, QUIRE_CACHE_STALE);
    assert_true(answer.lease[0]);
    struct quire_cache_entry e = {
        .text = bytes_of("weather"), .vector = v, .lease = bytes_of(answer.lease), .ttl_ms = 60000};
    assert_int_equal(store(c, &e, "rain").outcome, QUIRE_CACHE_REPLACED);
    quire_cache_answer_free(&answer);
    answer = answer_of(c, &q);
    assert_int_equal(answer.status, QUIRE_CACHE_EXACT);
    assert_bytes(answer.value, "rain");
    quire_cache_answer_free(&answer);
    close_it(c);
}

static void overwrite_documents(const char *folder)
{
    glob_t found;
    char pattern[512];
    unsigned char noise[4096];
    memset(noise, 0xa5, sizeof noise);
    snprintf(pattern, sizeof pattern, "%s/documents/*/*.docs", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 4096 + 16, SEEK_SET), 0);
        assert_int_equal(fwrite(noise, 1, 200, file), 200);
        assert_int_equal(fclose(file), 0);
    }
    globfree(&found);
}

static void a_damaged_document_is_a_miss(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_cache_stats stats;
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9 TTL 20 JITTER 0 STALE 600000");
    store_simple(c, "a", v, "1");
    close_it(c);
    overwrite_documents(*state);
    sleep_ms(20);
    c = open_with(*state, NULL);
    struct quire_cache_answer answer = ask_text(c, "a", v); /* it was stale, with a lease to renew it */
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_int_equal(answer.id, 0);
    assert_true(answer.lease[0]); /* which is this caller's now: nobody else will compute it */
    assert_null(answer.memory);
    assert_int_equal(quire_cache_get_stats(c, NONE, &stats, NULL), 0);
    assert_int_equal(stats.lost, 1);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.stale, 0);
    store_simple(c, "a", v, "2");
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_EXACT);
    close_it(c);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 8 };

struct asker {
    struct quire_cache *cache;
    const float *vector;
    pthread_barrier_t *begin;
    uint64_t wait_ms, took_ms;
    const char *puts; /* what a leader does: stores this, or with NULL gives up where fails is set */
    bool fails;
    struct quire_cache_answer answer;
    int rc;
    pthread_t thread;
};

static void *ask_and_wait(void *context)
{
    struct asker *a = context;
    struct quire_cache_query q = {
        .category = bytes_of("k"), .text = bytes_of("a question"), .vector = a->vector, .wait_ms = a->wait_ms};
    pthread_barrier_wait(a->begin);
    uint64_t begun = now_ms();
    a->rc = quire_cache_get(a->cache, &q, &a->answer, NULL);
    a->took_ms = now_ms() - begun;
    if (a->rc < 0 || !a->answer.lease[0])
        return NULL;
    struct quire_bytes lease = bytes_of(a->answer.lease), chunk = bytes_of(a->puts ? a->puts : "");
    struct quire_cache_put_result result;
    struct quire_cache_entry e = {
        .category = q.category, .text = q.text, .vector = a->vector, .lease = lease, .chunks = &chunk, .n_chunks = 1};
    sleep_ms(50);
    if (a->fails)
        a->rc = quire_cache_fail(a->cache, lease, NULL);
    else if (a->puts)
        a->rc = quire_cache_put(a->cache, &e, &result, NULL);
    return NULL;
}

static void start_askers(struct asker *askers, const struct asker *like, pthread_barrier_t *begin)
{
    assert_int_equal(pthread_barrier_init(begin, NULL, THREADS), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] = *like;
        askers[i].begin = begin;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_and_wait, &askers[i]), 0);
    }
}

static void join_askers(struct asker *askers, pthread_barrier_t *begin)
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
    pthread_barrier_destroy(begin);
}

static void one_computes_for_all_who_wait(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    float v[DIM];
    unsigned leaders = 0, followers = 0;
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = 20000, .puts = "the answer"}, &begin);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].rc, 0);
        leaders += askers[i].answer.lease[0] != 0;
        if (askers[i].answer.status == QUIRE_CACHE_EXACT) {
            followers++;
            assert_bytes(askers[i].answer.value, "the answer");
            assert_in_range(askers[i].answer.waited_ms, 1, 19000);
        }
        quire_cache_answer_free(&askers[i].answer);
    }
    assert_int_equal(leaders, 1);
    assert_int_equal(followers, THREADS - 1);
    struct quire_cache_stats stats;
    assert_int_equal(quire_cache_get_stats(c, bytes_of("k"), &stats, NULL), 0);
    assert_int_equal(stats.requests, THREADS);
    assert_int_equal(stats.exact, THREADS - 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.waited, THREADS - 1);
    close_it(c);
}

static void leaders_that_fail_are_followed(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = 20000, .fails = true}, &begin);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) { /* each leads once, one after the other */
        assert_int_equal(askers[i].rc, 0);
        assert_int_equal(askers[i].answer.status, QUIRE_CACHE_MISS);
        assert_true(askers[i].answer.lease[0]);
        quire_cache_answer_free(&askers[i].answer);
    }
    close_it(c);
}

static void waits_end_in_time(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    float v[DIM];
    unsigned leaders = 0;
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = 60}, &begin);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].rc, 0);
        assert_int_equal(askers[i].answer.status, QUIRE_CACHE_MISS);
        assert_non_null(askers[i].answer.reason);
        leaders += askers[i].answer.lease[0] != 0;
        if (!askers[i].answer.lease[0])
            assert_in_range(askers[i].took_ms, 40, 5000);
    }
    assert_int_equal(leaders, 1);
    close_it(c);
}

static void closing_ends_waits_with_a_miss(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    struct quire_cache_stats stats = {0};
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    struct quire_cache_answer leader = ask_text(c, "a question", v);
    assert_true(leader.lease[0]);
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = UINT64_MAX}, &begin);
    while (stats.waited < THREADS)
        assert_int_equal(quire_cache_get_stats(c, NONE, &stats, NULL), 0);
    close_it(c);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].rc, 0);
        assert_int_equal(askers[i].answer.status, QUIRE_CACHE_MISS);
        assert_non_null(askers[i].answer.reason);
        assert_false(askers[i].answer.lease[0]);
    }
}

struct churner {
    struct quire_cache *cache;
    unsigned seed, wrong;
    pthread_t thread;
};

/* Puts, asks and removes; an answer must be the one that belongs to its question. */
static void *churn(void *context)
{
    struct churner *me = context;
    for (unsigned i = 0; i < 400; i++) {
        float v[DIM];
        char text[32];
        unsigned question = (me->seed * 31 + i * 7) % 40;
        vector_make(v, DIM, question);
        snprintf(text, sizeof text, "question %u", question);
        if (i % 3 == 0) {
            store_simple(me->cache, text, v, text);
            continue;
        }
        struct quire_cache_answer answer =
            answer_of(me->cache, &(struct quire_cache_query){.text = bytes_of(text), .vector = v, .wait_ms = 1});
        bool served = answer.status == QUIRE_CACHE_EXACT || answer.status == QUIRE_CACHE_HIT;
        me->wrong += served && !bytes_equal(answer.value, bytes_of(text));
        if (served && i % 11 == 0)
            quire_cache_remove(me->cache, answer.id, NULL); /* another thread may have done so */
        quire_cache_answer_free(&answer);
    }
    return NULL;
}

static void many_threads_get_their_own_answers(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct churner churners[THREADS];
    category(c, "k", "SIM 0.9");
    for (unsigned i = 0; i < THREADS; i++) {
        churners[i] = (struct churner){.cache = c, .seed = i};
        assert_int_equal(pthread_create(&churners[i].thread, NULL, churn, &churners[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(churners[i].thread, NULL), 0);
        assert_int_equal(churners[i].wrong, 0);
    }
    close_it(c);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void feedback_raises_an_entrys_threshold(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.95, 2);
    category(c, "k", "SIM 0.9");
    uint64_t id = store_simple(c, "a", v, "1");
    struct quire_cache_answer hit = ask_text(c, "b", near);
    assert_int_equal(hit.status, QUIRE_CACHE_HIT);
    assert_int_equal(quire_cache_feedback(c, id, true, hit.similarity, &err), 0);
    assert_int_equal(status_of(c, "b", near), QUIRE_CACHE_HIT);
    assert_int_equal(quire_cache_feedback(c, id, false, hit.similarity, &err), 0);
    assert_int_equal(status_of(c, "b", near), QUIRE_CACHE_MISS);
    assert_int_equal(status_of(c, "a", NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(quire_cache_feedback(c, id, false, -1, &err), 0); /* an exact hit that was wrong */
    assert_int_equal(status_of(c, "a", NULL), QUIRE_CACHE_MISS);
    assert_int_equal(quire_cache_feedback(c, id ^ 1, true, 0.9, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_feedback(c, id, true, 90, &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_feedback(NULL, id, true, 0.9, &err), QUIRE_EINVALID);
    quire_cache_answer_free(&hit);
    close_it(c);
    c = open_with(*state, NULL);
    assert_int_equal(status_of(c, "b", near), QUIRE_CACHE_MISS); /* also after a restart */
    close_it(c);
}

static void audits_carry_both_sides(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_cache_audit audit = {0};
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.97, 2);
    category(c, "k", "SIM 0.9 AUDIT 1");
    uint64_t id = store_simple(c, "how are you", v, "fine");
    assert_int_equal(quire_cache_audit_pop(c, &audit, &err), QUIRE_ENOTFOUND);
    struct quire_cache_answer first = ask_text(c, "how do you do", near), second = ask_text(c, "how is it", near);
    assert_int_equal(first.status, QUIRE_CACHE_AUDIT);
    assert_bytes(first.value, "fine");
    assert_true(first.audit && second.audit && first.audit != second.audit);
    assert_int_equal(quire_cache_audit_pop(c, &audit, &err), 0);
    assert_int_equal(audit.number, first.audit);
    assert_int_equal(audit.id, id);
    assert_float_equal(audit.similarity, first.similarity, 1e-6);
    assert_int_equal(quire_cache_remove(c, id, &err), 0);
    struct quire_cache_audit gone = {0};
    assert_int_equal(quire_cache_audit_pop(c, &gone, &err), 0);
    assert_int_equal(gone.number, second.audit);
    assert_bytes(gone.text, "how is it");
    assert_int_equal(gone.entry_text.n_bytes + gone.entry_value.n_bytes, 0);
    assert_int_equal(quire_cache_audit_pop(c, &gone, &err), QUIRE_ENOTFOUND);
    assert_bytes(gone.text, "how is it"); /* what fails touches nothing */
    assert_int_equal(quire_cache_audit_put(c, first.audit, true, &err), 0);
    assert_int_equal(quire_cache_audit_put(c, first.audit, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_put(c, 0, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_put(c, second.audit + 5000, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_audit_pop(c, NULL, &err), QUIRE_EINVALID);
    close_it(c);
    assert_bytes(audit.category, "k");
    assert_bytes(audit.text, "how do you do");
    assert_bytes(audit.entry_text, "how are you");
    assert_bytes(audit.entry_value, "fine");
    quire_cache_audit_free(&audit);
    assert_null(audit.memory);
    quire_cache_audit_free(&gone);
    quire_cache_audit_free(NULL);
    quire_cache_answer_free(&first);
    quire_cache_answer_free(&second);
}

/* A number of before a restart must not label another pair. */
static void numbers_of_audits_are_not_used_again(void **state)
{
    float v[DIM], near[DIM];
    uint64_t before = 0;
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.97, 2);
    for (unsigned round = 0; round < 2; round++) {
        struct quire_cache *c = open_new(*state);
        category(c, "k", "SIM 0.9 AUDIT 1");
        store_simple(c, "how are you", v, "fine");
        struct quire_cache_answer answer = ask_text(c, "how do you do", near);
        assert_int_equal(answer.status, QUIRE_CACHE_AUDIT);
        assert_int_not_equal(answer.audit, before);
        if (before)
            assert_int_equal(quire_cache_audit_put(c, before, false, NULL), QUIRE_ENOTFOUND);
        before = answer.audit;
        quire_cache_answer_free(&answer);
        close_it(c);
    }
}

static void load_is_checked(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    category(c, "k", "SIM 0.9 LOADMAX 0.8 1");
    assert_int_equal(quire_cache_get_stats(c, bytes_of("k"), &stats, &err), 0);
    assert_float_equal(stats.lam, 0, 0);
    assert_float_equal(stats.threshold, 0.9, 1e-9);
    assert_int_equal(quire_cache_load(c, bytes_of("m-1"), 1, 0, &err), 0);
    assert_int_equal(quire_cache_load(c, bytes_of("m-1"), 2, 0, &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_load(c, bytes_of("m-1"), NAN, 0, &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_load(NULL, bytes_of("m-1"), 1, 0, &err), QUIRE_EINVALID);
    close_it(c);
}

/* ---- what goes, and what stays ----------------------------------------------------------------------------------- */

static uint64_t went(struct quire_cache *c, struct quire_cache_selector selector)
{
    struct quire_error err = {0};
    struct quire_cache_stats before, after;
    uint64_t would = UINT64_MAX, n = UINT64_MAX;
    quire_cache_get_stats(c, NONE, &before, NULL);
    if (quire_cache_invalidate(c, &selector, true, &would, &err) < 0)
        fail_msg("%s", err.message);
    quire_cache_get_stats(c, NONE, &after, NULL);
    assert_int_equal(before.entries, after.entries);
    assert_int_equal(quire_cache_invalidate(c, &selector, false, &n, &err), 0);
    quire_cache_get_stats(c, NONE, &after, NULL);
    assert_int_equal(n, would);
    assert_int_equal(before.entries - after.entries, n);
    return n;
}

static void invalidates_what_is_selected(void **state)
{
    struct quire_cache_options o = defaults();
    o.encoder = "e5@1";
    struct quire_cache *c = open_with(*state, &o);
    float v[9][DIM], near[DIM];
    struct quire_bytes tag = bytes_of("blue"), name, pair[2] = {bytes_of("tenant"), bytes_of("acme")};
    struct quire_pair scope = {pair[0], pair[1]};
    category(c, "k", "SIM 0.9");
    category(c, "other", "SIM 0.9");
    for (unsigned i = 0; i < COUNT(v); i++)
        vector_make(v[i], DIM, i);
    vector_near(near, v[5], DIM, 0.97, 77);
    uint64_t ids[2] = {store_simple(c, "0", v[0], "x"), 12345};
    store(c, &(struct quire_cache_entry){.text = bytes_of("1"), .vector = v[1], .tags = &tag, .n_tags = 1}, "x");
    store(c, &(struct quire_cache_entry){.category = bytes_of("other"), .text = bytes_of("2"), .vector = v[2]}, "x");
    store(c, &(struct quire_cache_entry){.text = bytes_of("3"), .vector = v[3], .scope = &scope, .n_scope = 1}, "x");
    store(c, &(struct quire_cache_entry){.text = bytes_of("4"), .vector = v[4], .model = bytes_of("m-1")}, "x");
    store_simple(c, "5", v[5], "x");
    store_simple(c, "6", v[6], "x");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ID, .ids = ids, .n = 2}), 1);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_TAG, .names = &tag, .n = 1}), 1);
    name = bytes_of("other");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_CATEGORY, .names = &name, .n = 1}), 1);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_SCOPE, .names = pair, .n = 2}), 1);
    name = bytes_of("m-1");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_MODEL, .names = &name, .n = 1}), 1);
    assert_int_equal(
        went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = near, .similarity = 0.9}), 1);
    assert_int_equal(status_of(c, "6", v[6]), QUIRE_CACHE_EXACT);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_BEFORE, .age_ms = 3600000}), 0);
    name = bytes_of("e5@0");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ENCODER, .names = &name, .n = 1}), 0);
    name = bytes_of("e5@1");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ENCODER, .names = &name, .n = 1}), 1);
    store_simple(c, "7", v[7], "x");
    sleep_ms(30);
    store_simple(c, "8", v[8], "x");
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_BEFORE, .age_ms = 25}), 1);
    assert_int_equal(went(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_ALL}), 1);
    close_it(c);
}

static int invalidate_code(struct quire_cache *c, struct quire_cache_selector selector)
{
    struct quire_error err = {0};
    uint64_t n = 77;
    int rc = quire_cache_invalidate(c, &selector, false, &n, &err);
    if (rc < 0)
        assert_int_equal(n, 77);
    return rc;
}

static void an_empty_selection_is_no_selection(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM], zero[DIM] = {0};
    uint64_t n;
    struct quire_bytes empty = NONE, name = bytes_of("nobody");
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    store_simple(c, "a", v, "1");
    for (int by = 0; by <= QUIRE_CACHE_BY_ENCODER; by++) {
        assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = (enum quire_cache_by)by}),
                         QUIRE_EINVALID);
        assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = (enum quire_cache_by)by, .n = 1}),
                         QUIRE_EINVALID);
        if (by > QUIRE_CACHE_BY_ID)
            assert_int_equal(
                invalidate_code(c,
                                (struct quire_cache_selector){.by = (enum quire_cache_by)by, .names = &empty, .n = 1}),
                QUIRE_EINVALID);
    }
    assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = (enum quire_cache_by)99}), QUIRE_EINVALID);
    assert_int_equal(
        invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_CATEGORY, .names = &name, .n = 1}),
        QUIRE_ENOTFOUND);
    assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .similarity = 0.9}),
                     QUIRE_EINVALID);
    assert_int_equal(invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = v}),
                     QUIRE_ERANGE);
    assert_int_equal(
        invalidate_code(c, (struct quire_cache_selector){.by = QUIRE_CACHE_BY_NEAR, .vector = zero, .similarity = 0.9}),
        QUIRE_EZEROVEC);
    assert_int_equal(quire_cache_invalidate(c, NULL, false, &n, NULL), QUIRE_EINVALID);
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_EXACT);
    close_it(c);
}

static void single_entries(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9 TTL 60000 JITTER 0");
    uint64_t id = store_simple(c, "a", v, "1");
    assert_int_equal(quire_cache_touch(c, id, 500000, &err), 0);
    struct quire_cache_answer answer = ask_text(c, "a", v);
    assert_in_range(answer.ttl_ms, 400000, 500000);
    quire_cache_answer_free(&answer);
    assert_int_equal(quire_cache_touch(c, id, 0, &err), 0); /* used, no more */
    assert_int_equal(quire_cache_pin(c, id, true, &err), 0);
    answer = ask_text(c, "a", v);
    assert_true(answer.ttl_ms == UINT64_MAX);
    quire_cache_answer_free(&answer);
    quire_cache_get_stats(c, bytes_of("k"), &stats, NULL);
    assert_int_equal(stats.pinned, 1);
    close_it(c);
    c = open_with(*state, NULL);
    quire_cache_get_stats(c, bytes_of("k"), &stats, NULL);
    assert_int_equal(stats.pinned, 1);
    assert_int_equal(quire_cache_pin(c, id, false, &err), 0);
    answer = ask_text(c, "a", v);
    assert_in_range(answer.ttl_ms, 1, 60000);
    quire_cache_answer_free(&answer);
    assert_int_equal(quire_cache_remove(c, id, &err), 0);
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_MISS);
    quire_cache_get_stats(c, bytes_of("k"), &stats, NULL);
    assert_int_equal(stats.removed, 1);
    assert_int_equal(stats.invalidated, 0);
    assert_int_equal(quire_cache_remove(c, id, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_touch(c, id, 0, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_pin(c, id, true, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_pin(NULL, id, true, &err), QUIRE_EINVALID);
    close_it(c);
}

/* ---- categories, insight ----------------------------------------------------------------------------------------- */

static void categories_come_and_go(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    float v[DIM];
    vector_make(v, DIM, 1);
    assert_int_equal(category_code(c, "k", "SIM 95", &err), QUIRE_ERANGE);
    assert_int_equal(category_code(c, "k", "SIMILAR 0.9", &err), QUIRE_EINVALID);
    assert_int_equal(category_code(c, "", "SIM 0.9", &err), QUIRE_ERANGE);
    assert_int_equal(quire_cache_set_category(c, bytes_of("k"), NULL, 2, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_get_stats(c, bytes_of("k"), &stats, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_set_category(c, bytes_of("k"), NULL, 0, &err), 0); /* defaults */
    category(c, "k", "SIM 0.9");
    store_simple(c, "a", v, "1");
    assert_int_equal(quire_cache_drop_category(c, bytes_of("k"), &err), 0);
    assert_int_equal(quire_cache_drop_category(c, bytes_of("k"), &err), QUIRE_ENOTFOUND);
    assert_int_equal(get_code(c, &(struct quire_cache_query){.category = bytes_of("k"), .vector = v}), QUIRE_ENOTFOUND);
    category(c, "k", "SIM 0.9");
    assert_int_equal(status_of(c, "a", v), QUIRE_CACHE_MISS); /* its entries are gone */
    category(c, "*", "SIM 0.9");
    assert_int_equal(get_code(c, &(struct quire_cache_query){.category = bytes_of("whatever"), .vector = v}), 0);
    close_it(c);
}

static void tells_about_itself(void **state)
{
    char *one = support_path(*state, "one"), *two = support_path(*state, "two");
    struct quire_cache *a = open_new(one), *b = open_new(two);
    static struct quire_cache_tune tune;
    struct quire_cache_stats stats = {.entries = 77};
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    void *bytes = NULL;
    size_t n = 0;
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.95, 2);
    category(a, "k", "RISK 0.05");
    category(b, "k", "RISK 0.05");
    uint64_t id = store_simple(a, "a", v, "1");
    memset(&tune, 0x55, sizeof tune); /* nothing of what the caller has there is read */
    assert_int_equal(quire_cache_tune(a, bytes_of("k"), -1, &tune, &err), 0);
    assert_float_equal(tune.delta, 0.05, 1e-9);
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(quire_cache_feedback(a, id, true, 0.95, &err), 0);
    category(a, "audited", "SIM 0.9 AUDIT 1");
    store(a, &(struct quire_cache_entry){.category = bytes_of("audited"), .text = bytes_of("a"), .vector = v}, "1");
    for (unsigned i = 0; i < 30; i++) {
        struct quire_cache_answer answer =
            answer_of(a, &(struct quire_cache_query){.category = bytes_of("audited"), .vector = near});
        assert_int_equal(quire_cache_audit_put(a, answer.audit, true, &err), 0);
        quire_cache_answer_free(&answer);
    }
    assert_int_equal(quire_cache_tune(a, bytes_of("audited"), -1, &tune, &err), 0);
    assert_int_equal(tune.labels, 30);
    assert_in_range(tune.n, 1, COUNT(tune.points));
    assert_int_equal(quire_cache_tune(a, bytes_of("nobody"), -1, &tune, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_get_stats(a, bytes_of("nobody"), &stats, &err), QUIRE_ENOTFOUND);
    assert_int_equal(stats.entries, 77);
    assert_int_equal(quire_cache_get_stats(a, NONE, &stats, &err), 0);
    assert_int_equal(stats.entries, 2);
    assert_int_equal(stats.feedback_good, 30);
    assert_true(stats.memory_bytes > 0 && stats.document_bytes > 0);
    assert_int_equal(quire_cache_export(a, &bytes, &n, &err), 0);
    assert_true(n > 12);
    assert_true(quire_cache_import(b, bytes, n, &err) >= 0);
    assert_int_equal(quire_cache_import(b, bytes, n - 1, &err), QUIRE_ETRUNCATED);
    assert_int_equal(quire_cache_import(b, "nothing of the kind", 19, &err), QUIRE_EFORMAT);
    assert_int_equal(quire_cache_import(b, NULL, 0, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_export(a, NULL, &n, &err), QUIRE_EINVALID);
    free(bytes);
    close_it(a);
    close_it(b);
    free(one);
    free(two);
}

static void names_of_numbers(void **state)
{
    (void)state;
    assert_string_equal(quire_cache_status_name(QUIRE_CACHE_MISS), "miss");
    assert_string_equal(quire_cache_status_name(QUIRE_CACHE_AUDIT), "audit");
    assert_string_equal(quire_cache_status_name((enum quire_cache_status)99), "unknown");
    assert_string_equal(quire_cache_put_outcome_name(QUIRE_CACHE_STORED), "stored");
    assert_string_equal(quire_cache_put_outcome_name(QUIRE_CACHE_OFF), "off");
    assert_string_equal(quire_cache_put_outcome_name((enum quire_cache_put_outcome)99), "unknown");
}

/* ---- after a crash ----------------------------------------------------------------------------------------------- */

static void write_and_crash(const char *folder)
{
    struct quire_cache_options o = defaults();
    float v[DIM];
    vector_make(v, DIM, 1);
    o.durability = QUIRE_DURABLE_ALWAYS;
    struct quire_cache *c = open_with(folder, &o);
    category(c, "k", "SIM 0.9");
    uint64_t id = store_simple(c, "a", v, "1");
    store_simple(c, "b", v, "2");
    sleep_ms(1500); /* documents are synced every second */
    uint64_t n;
    if (quire_cache_pin(c, id, true, NULL) < 0 ||
        quire_cache_invalidate(
            c, &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_ID, .ids = (uint64_t[]){id ^ 1 << 20}, .n = 1},
            false, &n, NULL) < 0)
        _exit(1);
    _exit(0);
}

static void what_returned_is_there_after_a_crash(void **state)
{
    int status;
    struct quire_cache_stats stats;
    pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0)
        write_and_crash(*state);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct quire_cache *c = open_with(*state, NULL);
    assert_int_equal(status_of(c, "a", NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(status_of(c, "b", NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(quire_cache_get_stats(c, bytes_of("k"), &stats, NULL), 0);
    assert_int_equal(stats.pinned, 1);
    assert_int_equal(stats.entries, 2);
    close_it(c);
}

/* Vectors on the disk answer calls that block, from several threads, and after the folder was opened again. */
struct asking {
    struct quire_cache *cache;
    unsigned first, hits;
    atomic_bool failed;
};

static float *vector_number(unsigned i)
{
    static _Thread_local float vector[DIM];
    uint64_t x = i * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (unsigned k = 0; k < DIM; k++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        vector[k] = (float)(x >> 40) / (float)(1 << 23) - 1;
    }
    return vector;
}

static void *ask_some(void *context)
{
    struct asking *a = context;
    for (unsigned i = a->first; i < a->first + 100; i++) {
        struct quire_cache_answer answer = {0};
        char right[32];
        struct quire_cache_query query = {
            .category = bytes_of("k"), .text = bytes_of("in other words"), .vector = vector_number(i)};
        int n = snprintf(right, sizeof right, "answer %u", i);
        if (quire_cache_get(a->cache, &query, &answer, NULL) < 0)
            atomic_store(&a->failed, true);
        else if (answer.status == QUIRE_CACHE_HIT)
            a->hits += answer.value.n_bytes == (size_t)n && memcmp(answer.value.data, right, (size_t)n) == 0;
        quire_cache_answer_free(&answer);
    }
    return NULL;
}

static void sealed_vectors_answer(void **state)
{
    enum { ENTRIES = 4800, ASKERS = 3 };
    struct quire_cache_options o = defaults();
    struct quire_cache_stats stats = {0};
    o.memory_bytes = 1 << 20;
    o.seal_rows = 1000;
    o.durability = QUIRE_DURABLE_NO;
    struct quire_cache *c = open_with(*state, &o);
    category(c, "k", "SIM 0.95 JITTER 0 GUARD none");
    for (unsigned i = 0; i < ENTRIES; i++) {
        char text[32], value[32];
        snprintf(text, sizeof text, "q%u", i);
        snprintf(value, sizeof value, "answer %u", i);
        store_simple(c, text, vector_number(i), value);
    }
    for (unsigned i = 0; stats.sealed_entries < ENTRIES / 4; i++) {
        assert_true(i < 500);
        sleep_ms(20);
        assert_int_equal(quire_cache_get_stats(c, NONE, &stats, NULL), 0);
    }
    for (unsigned round = 0; round < 2; round++) {
        struct asking asking[ASKERS];
        pthread_t threads[ASKERS];
        for (unsigned t = 0; t < ASKERS; t++) { /* of the older half */
            asking[t] = (struct asking){.cache = c, .first = ENTRIES / 4 + 200 * t};
            assert_int_equal(pthread_create(&threads[t], NULL, ask_some, &asking[t]), 0);
        }
        for (unsigned t = 0; t < ASKERS; t++) {
            pthread_join(threads[t], NULL);
            assert_false(atomic_load(&asking[t].failed));
            assert_true(asking[t].hits >= 98);
        }
        close_it(c);
        c = open_with(*state, &o);
    }
    close_it(c);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(refuses_to_open_what_is_not_there),
        TEST(compares_options_with_what_is_there),
        TEST(refuses_the_folder_of_a_server),
        TEST(is_not_opened_as_a_collection),
        TEST(belongs_to_one_process),
        TEST(answers_are_whole_copies),
        TEST(questions_that_are_refused),
        TEST(answers_that_are_refused),
        TEST(outcomes_of_puts),
        TEST(negative_and_failed_answers),
        TEST(stale_answers_and_who_renews_them),
        TEST(a_damaged_document_is_a_miss),
        TEST(one_computes_for_all_who_wait),
        TEST(leaders_that_fail_are_followed),
        TEST(waits_end_in_time),
        TEST(closing_ends_waits_with_a_miss),
        TEST(many_threads_get_their_own_answers),
        TEST(feedback_raises_an_entrys_threshold),
        TEST(audits_carry_both_sides),
        TEST(numbers_of_audits_are_not_used_again),
        TEST(load_is_checked),
        TEST(invalidates_what_is_selected),
        TEST(an_empty_selection_is_no_selection),
        TEST(single_entries),
        TEST(categories_come_and_go),
        TEST(tells_about_itself),
        TEST(names_of_numbers),
        TEST(what_returned_is_there_after_a_crash),
        TEST(sealed_vectors_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
