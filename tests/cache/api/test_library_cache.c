/*
 * test_library_cache.c - a quire_cache opened and closed, questions and answers, and what is there after a crash.
 * Threads and management are in test_library_cache_threads.c and test_library_cache_manage.c.
 */
#include "tests/cache/support_library_cache.h"

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
    struct quire_bytes keys[] = {text_of("tenant"), text_of("user")};
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
    assert_int_equal(quire_cache_get_stats(c, text_of("k"), &stats, &err), 0);
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
    struct quire_bytes chunks[] = {text_of("one, "), NONE, text_of("two, three")};
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.96, 2);
    category(c, "k", "SIM 0.9 TTL 60000 JITTER 0");
    struct quire_cache_answer miss = ask_text(c, "count", v);
    assert_int_equal(miss.status, QUIRE_CACHE_MISS);
    assert_true(miss.lease[0] && miss.lease_ms > 0);
    assert_true(miss.similarity < 0);
    assert_null(miss.memory);
    struct quire_cache_put_result result = store(c,
                                                 &(struct quire_cache_entry){.lease = text_of(miss.lease),
                                                                             .text = text_of("count"),
                                                                             .vector = v,
                                                                             .chunks = chunks,
                                                                             .n_chunks = 3,
                                                                             .model = text_of("m-1"),
                                                                             .tokens_in = 10,
                                                                             .tokens_out = 20,
                                                                             .llm_ms = 300,
                                                                             .cost = 0.25},
                                                 NULL);
    assert_int_equal(result.outcome, QUIRE_CACHE_STORED);
    struct quire_cache_answer exact = ask_text(c, "count", NULL), hit = ask_text(c, "please count", near);
    struct quire_cache_answer told =
        answer_of(c, &(struct quire_cache_query){.text = text_of("count it"), .vector = near, .explain = true});
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

static void questions_that_are_refused(void **state)
{
    struct quire_bytes keys[] = {text_of("tenant")};
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
    struct quire_pair tenant = {text_of("tenant"), text_of("acme")}, twice[] = {tenant, tenant};
    struct quire_pair unknown[] = {tenant, {text_of("colour"), text_of("red")}};
    struct quire_cache_query good = {
        .category = text_of("k"), .scope = &tenant, .n_scope = 1, .vector = v, .text = text_of("hello")};
    struct quire_cache_query q = good;
    assert_int_equal(get_code(c, &q), 0);
    q.encoder = text_of("e5@1");
    assert_int_equal(get_code(c, &q), 0);
    q.encoder = text_of("e5@2");
    assert_int_equal(get_code(c, &q), QUIRE_EINVALID);
    q = good;
    q.category = text_of("nobody");
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
    struct quire_bytes chunk = text_of("x"), tags[65];
    vector_make(v, DIM, 1);
    memcpy(bad, v, sizeof v);
    bad[0] = INFINITY;
    for (unsigned i = 0; i < COUNT(tags); i++)
        tags[i] = chunk;
    category(c, "k", "SIM 0.9");
    const struct quire_cache_entry good = {
        .category = text_of("k"), .text = text_of("t"), .vector = v, .chunks = &chunk, .n_chunks = 1};
    struct quire_cache_entry e = good;
    assert_int_equal(put_code(c, &e), 0);
    e.vector = bad;
    assert_int_equal(put_code(c, &e), QUIRE_ENOTFINITE);
    e.vector = zero;
    assert_int_equal(put_code(c, &e), QUIRE_EZEROVEC);
    e.vector = NULL;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.category = text_of("nobody");
    assert_int_equal(put_code(c, &e), QUIRE_ENOTFOUND);
    e = good;
    e.n_chunks = 0;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e.n_chunks = 1;
    e.chunks = NULL;
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.lease = text_of("made-up");
    assert_int_equal(put_code(c, &e), QUIRE_EINVALID);
    e = good;
    e.encoder = text_of("e5@1"); /* the cache knows none to compare it with */
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
    struct quire_cache_entry e = {.text = text_of("a"), .vector = v};
    uint64_t first = store(c, &e, "1").id;
    struct quire_cache_put_result r = store(c, &e, "2");
    assert_int_equal(r.outcome, QUIRE_CACHE_REPLACED);
    assert_int_not_equal(r.id, first);
    e.if_new = true;
    uint64_t second = r.id;
    r = store(c, &e, "3");
    assert_int_equal(r.outcome, QUIRE_CACHE_EXISTS);
    assert_int_equal(r.id, second);
    e = (struct quire_cache_entry){.category = text_of("second"), .text = text_of("a"), .vector = v};
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_NOT_ADMITTED);
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_STORED);
    e.category = text_of("off");
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_OFF);
    e.category = text_of("small");
    e.pin = true;
    r = store(c, &e, "1");
    assert_int_equal(r.outcome, QUIRE_CACHE_STORED);
    assert_true(r.expire_ms == UINT64_MAX);
    e.text = text_of("b");
    assert_int_equal(store(c, &e, "1").outcome, QUIRE_CACHE_NO_ROOM);
    struct quire_cache_answer miss = ask_text(c, "w", w);
    assert_true(miss.lease[0]);
    assert_int_equal(
        quire_cache_invalidate(c, &(struct quire_cache_selector){.by = QUIRE_CACHE_BY_ALL}, false, &n, &err), 0);
    e = (struct quire_cache_entry){.text = text_of("w"), .vector = w, .lease = text_of(miss.lease)};
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
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("my salary?"), .vector = v};
    struct quire_cache_answer miss = answer_of(c, &q), other;
    assert_true(miss.lease[0]);
    assert_int_equal(quire_cache_negative(c, &q, 0, text_of(miss.lease), &err), 0);
    assert_int_equal(status_of(c, "my salary?", v), QUIRE_CACHE_NEGATIVE);
    assert_int_equal(quire_cache_fail(c, text_of(miss.lease), &err), QUIRE_ENOTFOUND); /* the lease has ended */
    q.text = text_of("something else");
    miss = answer_of(c, &q);
    other = answer_of(c, &q);
    assert_true(miss.lease[0]);
    assert_false(other.lease[0]); /* one caller computes it */
    assert_int_equal(quire_cache_fail(c, text_of(miss.lease), &err), 0);
    other = answer_of(c, &q);
    assert_true(other.lease[0]);
    assert_int_equal(quire_cache_fail(c, text_of("nonsense"), &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_cache_fail(c, NONE, &err), QUIRE_ENOTFOUND);
    q.category = text_of("nobody");
    assert_int_equal(quire_cache_negative(c, &q, 0, NONE, &err), QUIRE_ENOTFOUND);
    q = (struct quire_cache_query){.category = text_of("k"), .vector = v};
    assert_int_equal(quire_cache_negative(c, &q, 0, NONE, &err), QUIRE_EINVALID);
    assert_int_equal(quire_cache_negative(c, NULL, 0, NONE, &err), QUIRE_EINVALID);
    close_it(c);
}

static void probes_renewals_and_models_that_fail(void **state)
{
    struct quire_cache *c = open_new(*state);
    float v[DIM];
    struct quire_error err = {0};
    uint64_t left = 0;
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9 TTL 20 JITTER 0 STALEERROR 600000 LEASE 60000");
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("weather"), .probe = true};
    struct quire_cache_answer answer = answer_of(c, &q);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_true(answer.lease[0]);
    assert_int_equal(quire_cache_renew(c, text_of(answer.lease), 0, &left, &err), 0);
    assert_true(left > 50000 && left <= 60000);
    assert_int_equal(quire_cache_renew(c, text_of(answer.lease), 5, NULL, &err), 0);
    assert_int_equal(quire_cache_fail(c, text_of(answer.lease), &err), 0);
    assert_int_equal(quire_cache_renew(c, text_of(answer.lease), 0, &left, &err), QUIRE_ENOTFOUND);
    assert_non_null(strstr(err.message, "over"));
    assert_int_equal(quire_cache_renew(c, text_of("nonsense"), 0, &left, &err), QUIRE_ENOTFOUND);
    store_simple(c, "weather", v, "sun");
    q.text = text_of("the weather");
    assert_int_equal(answer_of(c, &q).status, QUIRE_CACHE_VECTOR);
    assert_string_equal(quire_cache_status_name(QUIRE_CACHE_VECTOR), "vector");
    q.probe = false;
    q.text = text_of("weather");
    sleep_ms(40);
    assert_int_equal(answer_of(c, &q).status, QUIRE_CACHE_MISS);
    q.on_error = true;
    answer = answer_of(c, &q);
    assert_int_equal(answer.status, QUIRE_CACHE_STALE);
    assert_bytes(answer.value, "sun");
    quire_cache_answer_free(&answer);
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
    struct quire_cache_query q = {.text = text_of("weather"), .vector = v, .stale_ok = true};
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
        .text = text_of("weather"), .vector = v, .lease = text_of(answer.lease), .ttl_ms = 60000};
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
    assert_int_equal(quire_cache_get_stats(c, text_of("k"), &stats, NULL), 0);
    assert_int_equal(stats.pinned, 1);
    assert_int_equal(stats.entries, 2);
    close_it(c);
}

/* A number for the place that was wrong; 0: all calls were refused. */
static int child_of_fork(struct quire_cache *c)
{
    struct quire_error err = {0};
    struct quire_bytes chunk = text_of("v");
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("a")};
    struct quire_cache_entry entry = {.category = text_of("k"), .text = text_of("b"), .chunks = &chunk, .n_chunks = 1};
    struct quire_cache_answer answer;
    struct quire_cache_put_result result;
    struct quire_cache_stats stats;
    if (quire_cache_get(c, &query, &answer, &err) != QUIRE_ECLOSED || !strstr(err.message, "forked"))
        return 1;
    if (quire_cache_put(c, &entry, &result, &err) != QUIRE_ECLOSED)
        return 2;
    if (quire_cache_negative(c, &query, 1000, NONE, &err) != QUIRE_ECLOSED ||
        quire_cache_fail(c, text_of("x"), &err) != QUIRE_ECLOSED)
        return 3;
    if (quire_cache_get_stats(c, text_of("k"), &stats, &err) != QUIRE_ECLOSED ||
        quire_cache_remove(c, 1, &err) != QUIRE_ECLOSED)
        return 4;
    return quire_cache_close(c, &err) == QUIRE_ECLOSED ? 0 : 5;
}

static void a_child_of_fork_is_refused(void **state)
{
    struct quire_cache *c = open_new(*state);
    category(c, "k", "MODE exact");
    store_simple(c, "a", NULL, "1");
    for (unsigned i = 0; i < 3; i++) {
        int status;
        pid_t child = fork();
        assert_int_not_equal(child, -1);
        if (child == 0) {
            alarm(60);
            _exit(child_of_fork(c));
        }
        store_simple(c, "a", NULL, "2");
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(status_of(c, "a", NULL), QUIRE_CACHE_EXACT);
    }
    close_it(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
        TEST(probes_renewals_and_models_that_fail),
        TEST(stale_answers_and_who_renews_them),
        TEST(a_damaged_document_is_a_miss),
        TEST(what_returned_is_there_after_a_crash),
        TEST(a_child_of_fork_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
