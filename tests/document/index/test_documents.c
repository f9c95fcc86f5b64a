/*
 * test_documents.c - indexes of documents in a store: documents in and out, numbers that ascend, names and aliases; and
 * all of it after the store was opened again, from the log and from a checkpoint.
 */
#include "document/index/document_search.h"
#include "document/index/documents_priv.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *folder;
static struct store *store;
static struct documents *documents;
static struct quire_error err;
static uint64_t lsn;

/* ---- a store with indexes in it ---------------------------------------------------------------------------------- */

static void open_all(void)
{
    assert_int_equal(documents_create(&documents, &err), 0);
    struct store_host host = {
        .restore = documents_restore, .replay = documents_replay, .save = documents_save, .context = documents};
    struct store_options options = {.no_maintenance = true, .memtable_bytes = 1 << 20, .threads = 1};
    struct store_report report;
    assert_int_equal(store_open(folder, &options, &host, &store, &report, &err), 0);
    assert_int_equal(documents_begin(documents, store, &err), 0);
    assert_int_equal(documents_begun(documents, &err), 0);
}

static void close_all(void)
{
    documents_destroy(documents);
    assert_int_equal(store_close(store, &err), 0);
}

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    open_all();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_all();
    support_folder_remove(folder);
    return 0;
}

static uint32_t split(const char *text, struct schema_word words[64])
{
    uint32_t n = 0;
    for (const char *at = text; *at && n < 64;) {
        size_t bytes = strcspn(at, " ");
        words[n++] = (struct schema_word){at, (uint32_t)bytes};
        at += bytes + (at[bytes] == ' ');
    }
    return n;
}

static struct schema_word word(const char *text)
{
    return (struct schema_word){text, (uint32_t)strlen(text)};
}

static int add(const char *text)
{
    struct schema_word words[64];
    struct document_index *index = NULL;
    uint32_t n = split(text, words);
    int rc = documents_add(documents, words, n, &index, &lsn, &err);
    document_index_unref(rc == 0 ? index : NULL);
    return rc;
}

static struct document_index *find(const char *name)
{
    struct document_index *index = NULL;
    return documents_find(documents, word(name), &index, &err) == 0 ? index : NULL;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* A hash of two fields. */
struct hash {
    const char *g, *n;
    const float *v;
};

static bool field(const void *context, const char *name, uint32_t bytes, struct schema_word *value)
{
    const struct hash *h = context;
    const char *text = bytes == 1 && *name == 'g' ? h->g : bytes == 1 && *name == 'n' ? h->n : NULL;
    if (bytes == 1 && *name == 'v' && h->v) {
        *value = (struct schema_word){(const char *)h->v, 2 * sizeof *h->v};
        return true;
    }
    if (text)
        *value = word(text);
    return text != NULL;
}

static void put(const char *key, const char *g, const char *n, const float *v)
{
    struct hash h = {g, n, v};
    struct document_view view = {.source = SCHEMA_HASH, .field = field, .context = &h};
    documents_changed(documents, key, (uint32_t)strlen(key), &view);
}

static void put_json(const char *key, const char *text)
{
    struct document_view view = {.source = SCHEMA_JSON, .json = text, .json_bytes = (uint32_t)strlen(text)};
    documents_changed(documents, key, (uint32_t)strlen(key), &view);
}

static void on_done(struct document_search *search)
{
    *(bool *)search->owner = true;
}

/* Keys of the documents that a query finds, in the order of their numbers, with a blank behind each. */
static const char *found(const char *name, const char *text)
{
    static char keys[4096];
    struct document_index *index = find(name);
    struct query_context context = {.schema = document_index_schema(index), .slop = -1, .dialect = 2};
    struct query *query;
    bool done = false;
    assert_int_equal(query_parse(&context, text, strlen(text), &query, &err), 0);
    struct document_search search = {.index = index, .query = query, .done = on_done, .owner = &done};
    document_search_start(&search);
    assert_true(done && search.code == 0);
    keys[0] = 0;
    for (uint64_t i = 0; i < search.n; i++) {
        uint8_t key[QUIRE_KEY_BYTES_MAX];
        uint32_t bytes;
        assert_true(document_index_key(index, search.ids[i], key, &bytes));
        assert_true(i == 0 || search.ids[i] > search.ids[i - 1]);
        snprintf(keys + strlen(keys), sizeof keys - strlen(keys), "%.*s ", (int)bytes, (const char *)key);
    }
    document_search_fini(&search);
    query_free(query);
    document_index_unref(index);
    return keys;
}

static void test_documents_come_and_go(void **state)
{
    struct document_index_stats stats;
    (void)state;
    assert_int_equal(add("i PREFIX 1 d: SCHEMA g TAG n NUMERIC"), 0);
    put("d:1", "red", "1", NULL);
    put("d:2", "blue", "2", NULL);
    put("x:3", "red", "3", NULL);
    assert_string_equal(found("i", "@g:{red}"), "d:1 ");
    put("d:1", "blue", "5", NULL); /* the newest number */
    assert_string_equal(found("i", "@g:{blue}"), "d:2 d:1 ");
    assert_string_equal(found("i", "@g:{red}"), "");
    put("d:2", "blue", "no number", NULL); /* out, and counted */
    assert_string_equal(found("i", "*"), "d:1 ");
    struct document_index *index = find("i");
    document_index_get_stats(index, &stats);
    assert_true(stats.documents == 1 && stats.failures == 1 && stats.max_id >= 3);
    assert_non_null(strstr(stats.error, "no number"));
    assert_string_equal(stats.error_key, "d:2");
    document_index_unref(index);
    documents_gone(documents, "d:1", 3);
    documents_gone(documents, "d:1", 3);
    assert_string_equal(found("i", "*"), "");
}

static void test_numbers_are_swept(void **state)
{
    struct document_index_stats stats;
    char key[16];
    (void)state;
    assert_int_equal(add("i SCHEMA n NUMERIC"), 0);
    for (unsigned round = 0; round < 40; round++)
        for (unsigned i = 0; i < 200; i++) {
            snprintf(key, sizeof key, "%u", i);
            put(key, NULL, "7", NULL);
        }
    struct document_index *index = find("i");
    document_index_get_stats(index, &stats);
    assert_int_equal(stats.documents, 200);
    assert_int_equal(stats.max_id, 8000);
    assert_true(index->n_by_id < 2000);
    uint8_t keys[64];
    size_t n_bytes;
    uint32_t n = 0;
    for (uint32_t from = document_index_keys(index, 0, keys, sizeof keys, &n_bytes);;) {
        for (size_t at = 0; at < n_bytes; n++) {
            uint32_t bytes;
            memcpy(&bytes, keys + at, sizeof bytes);
            at += sizeof bytes + bytes;
        }
        if (!from)
            break;
        from = document_index_keys(index, from, keys, sizeof keys, &n_bytes);
    }
    assert_int_equal(n, 200);
    document_index_unref(index);
}

static void test_json(void **state)
{
    (void)state;
    assert_int_equal(add("j ON JSON SCHEMA $.tags[*] AS g TAG $.n AS n NUMERIC $.on AS b TAG $.at AS at GEO"), 0);
    put_json("1", "{\"tags\":[\"red\",null,\"blue\"],\"n\":[1,5],\"on\":true,\"at\":\"13.4,52.5\"}");
    put_json("2", "{\"tags\":[],\"n\":null}");
    put_json("3", "{\"tags\":[1]}");
    put_json("4", "{\"n\":\"5\"}");
    put_json("5", "not json");
    put_json("6", "{\"at\":\"500,500\"}");
    put_json("7", "{\"at\":\"2.35 48.85\"}");
    assert_string_equal(found("j", "@g:{blue}"), "1 ");
    assert_string_equal(found("j", "@n:[5 5]"), "1 ");
    assert_string_equal(found("j", "@b:{true}"), "1 ");
    assert_string_equal(found("j", "@at:[13.4 52.5 1 km]"), "1 ");
    assert_string_equal(found("j", "@at:[2.35 48.85 1 km]"), "7 ");
    assert_string_equal(found("j", "*"), "1 2 7 ");
    put("1", "red", "1", NULL); /* a hash under the key: the document is gone */
    assert_string_equal(found("j", "*"), "2 7 ");
    assert_int_equal(add("k ON JSON SCHEMA $.[ AS x TAG"), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "Invalid JSONPath '$.[' in attribute 'x': "));
    assert_non_null(strstr(err.message, " (position 5)"));
}

static void test_names(void **state)
{
    struct document_index *index;
    struct schema_word more[2] = {word("g"), word("TAG")};
    (void)state;
    assert_null(find("i"));
    assert_non_null(strstr(err.message, "SEARCH_INDEX_NOT_FOUND Unknown index name: i"));
    assert_int_equal(add("i SCHEMA n NUMERIC"), 0);
    assert_int_equal(add("i SCHEMA n NUMERIC"), QUIRE_EEXISTS);
    assert_string_equal(err.message, "Index already exists");
    assert_int_equal(add("h SCHEMA n NUMERIC"), 0);
    assert_int_equal(add("l LANGUAGE klingon SCHEMA n NUMERIC"), QUIRE_EINVALID);
    assert_int_equal(documents_alias_set(documents, word("a"), word("i"), true, &lsn, &err), 0);
    assert_int_equal(documents_alias_set(documents, word("a"), word("h"), true, &lsn, &err), QUIRE_EEXISTS);
    assert_int_equal(documents_alias_set(documents, word("h"), word("i"), false, &lsn, &err), QUIRE_EEXISTS);
    assert_int_equal(documents_alias_set(documents, word("b"), word("a"), true, &lsn, &err), 0);
    index = find("b");
    assert_string_equal(document_index_name(index), "i");
    document_index_unref(index);
    assert_int_equal(documents_alias_set(documents, word("a"), word("h"), false, &lsn, &err), 0);
    index = find("a");
    assert_string_equal(document_index_name(index), "h");
    document_index_unref(index);
    assert_int_equal(documents_alter(documents, word("b"), more, 2, 4, &index, &lsn, &err), 0);
    assert_int_equal(document_index_schema(index)->n_fields, 2);
    document_index_unref(index);
    assert_int_equal(documents_alter(documents, word("b"), more, 2, 4, &index, &lsn, &err), QUIRE_EINVALID);
    put("1", "red", "1", NULL);
    assert_string_equal(found("b", "@g:{red} @n:[1 1]"), "1 ");
    assert_int_equal(documents_drop(documents, word("b"), &index, &lsn, &err), 0); /* with its aliases */
    assert_true(document_index_is_dropped(index));
    document_index_unref(index);
    assert_true(!find("i") && !find("b") && documents_count(documents) == 1);
    assert_int_equal(documents_alias_remove(documents, word("b"), &lsn, &err), QUIRE_ENOTFOUND);
    assert_int_equal(documents_alias_remove(documents, word("a"), &lsn, &err), 0);
}

/* What every opening must bring back. */
static void expect_world(void)
{
    assert_int_equal(documents_count(documents), 2);
    struct document_index *index = find("other");
    assert_string_equal(document_index_name(index), "i");
    assert_int_equal(document_index_schema(index)->n_fields, 3);
    document_index_unref(index);
    assert_true(!find("gone") && !find("old"));
    index = find("twice");
    assert_int_equal(document_index_schema(index)->n_fields, 1);
    assert_string_equal(document_index_schema(index)->fields[0].name, "g");
    document_index_unref(index);
}

static void test_after_a_restart(void **state)
{
    struct schema_word more[] = {
        word("v"), word("VECTOR"),          word("FLAT"), word("6"), word("TYPE"), word("FLOAT32"), word("DIM"),
        word("2"), word("DISTANCE_METRIC"), word("L2")};
    static const float vector[2] = {1, 2};
    struct document_index *index;
    (void)state;
    assert_int_equal(add("i SCHEMA g TAG n NUMERIC"), 0);
    assert_int_equal(add("gone SCHEMA g TAG"), 0);
    assert_int_equal(add("twice SCHEMA n NUMERIC"), 0);
    assert_int_equal(documents_alias_set(documents, word("other"), word("i"), true, &lsn, &err), 0);
    assert_int_equal(documents_alias_set(documents, word("old"), word("i"), true, &lsn, &err), 0);
    assert_int_equal(documents_alter(documents, word("i"), more, 10, 4, &index, &lsn, &err), 0);
    document_index_unref(index);
    assert_int_equal(documents_drop(documents, word("gone"), &index, &lsn, &err), 0);
    document_index_unref(index);
    assert_int_equal(documents_drop(documents, word("twice"), &index, &lsn, &err), 0);
    document_index_unref(index);
    assert_int_equal(add("twice SCHEMA g TAG"), 0);
    assert_int_equal(documents_alias_remove(documents, word("old"), &lsn, &err), 0);
    put("1", "red", "1", vector);
    expect_world();
    for (unsigned round = 0; round < 3; round++) {
        close_all();
        open_all();
        expect_world();
        put("1", "red", "1", vector);
        assert_string_equal(found("other", "@g:{red}"), "1 ");
        if (round == 1)
            assert_int_equal(store_checkpoint(store, &err), 0);
    }
    documents_cleared(documents);
    assert_int_equal(documents_count(documents), 0);
}

struct given {
    enum document_log_kind kind;
    uint8_t words[512];
    uint32_t n;
};

static struct given given[8];
static uint32_t n_given;

static void take_definition(void *context, enum document_log_kind kind, const void *words, uint32_t n)
{
    (void)context;
    assert_true(n_given < 8 && n <= sizeof given->words);
    given[n_given].kind = kind;
    given[n_given].n = n;
    memcpy(given[n_given++].words, words, n);
}

/* What makes indexes is given to a store that has none. */
static void test_definitions_elsewhere(void **state)
{
    struct schema_word more[] = {
        word("v"), word("VECTOR"),          word("FLAT"), word("6"), word("TYPE"), word("FLOAT32"), word("DIM"),
        word("2"), word("DISTANCE_METRIC"), word("L2")};
    struct document_index *index;
    (void)state;
    assert_int_equal(add("i SCHEMA g TAG n NUMERIC"), 0);
    assert_int_equal(add("twice SCHEMA g TAG"), 0);
    assert_int_equal(documents_alter(documents, word("i"), more, 10, 4, &index, &lsn, &err), 0);
    document_index_unref(index);
    assert_int_equal(documents_alias_set(documents, word("other"), word("i"), true, &lsn, &err), 0);
    n_given = 0;
    documents_each_definition(documents, take_definition, NULL);
    assert_int_equal(n_given, 4);
    assert_int_equal(documents_define(documents, given[0].kind, given[0].words, given[0].n, &lsn, &err), QUIRE_EEXISTS);
    close_all();
    support_folder_remove(folder);
    folder = support_folder_make();
    open_all();
    assert_int_equal(documents_count(documents), 0);
    for (uint32_t i = 0; i < n_given; i++)
        assert_int_equal(documents_define(documents, given[i].kind, given[i].words, given[i].n, &lsn, &err), 0);
    expect_world();
    for (uint32_t n = 0; n < given[0].n; n++) /* whole or not at all */
        assert_true(documents_define(documents, given[0].kind, given[0].words, n, &lsn, &err) < 0);
    assert_int_equal(documents_define(documents, DOCUMENT_LOG_DROP, given[0].words, given[0].n, &lsn, &err),
                     QUIRE_ECORRUPT);
}

static void test_which_keys(void **state)
{
    (void)state;
    assert_false(documents_follow_key(documents, "a:1", 3));
    assert_int_equal(add("i PREFIX 2 a: b: SCHEMA g TAG"), 0);
    assert_true(documents_follow_key(documents, "a:1", 3) && documents_follow_key(documents, "b:", 2));
    assert_false(documents_follow_key(documents, "c:1", 3) || documents_follow_key(documents, "a", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_documents_come_and_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_are_swept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_after_a_restart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_definitions_elsewhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_which_keys, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
