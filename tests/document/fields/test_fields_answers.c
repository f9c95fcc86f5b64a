/*
 * test_fields_answers.c - the documents that 13,464 recorded commands of a real RediSearch find are those that the
 * fields find: every FT.SEARCH without vectors, over hashes and JSON, sets compared without their order; and where the
 * order is that of scores, scores do not rise along it.
 *
 * The data are ../shared/data/ft-answers.jsonl.gz beside the source, or in QUIRE_SHARED_DATA; without them the test is
 * left out.
 */
#include "document/fields/fields.h"
#include "tests/document/support_query.h"
#include <jansson.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include <cmocka.h>

#define WORDS_MAX     4096u
#define DOCUMENTS_MAX 256u
#define VALUES_MAX    64u

struct answers {
    json_t *sets;
    struct schema *schema;
    struct fields *fields;
    char *keys[DOCUMENTS_MAX]; /* by id; owned */
    uint32_t n_keys;
    uint32_t n_bad; /* documents that are not indexed */
    uint32_t n_searches, n_left_out, n_different, n_ordered, n_disordered;
};

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* A string of the file: "b:" and the bytes as characters of Latin-1. The caller's to free. */
static char *bytes_of(const json_t *value, uint32_t *n_bytes)
{
    const unsigned char *from = (const unsigned char *)json_string_value(value);
    size_t length = json_string_length(value), n = 0;
    char *to = malloc(length + 1);
    assert_non_null(to);
    assert_true(length >= 2 && from[0] == 'b' && from[1] == ':');
    for (size_t i = 2; i < length; i++) {
        bool two = from[i] >= 0x80;
        to[n++] = (char)(two ? (from[i] << 6 | (from[i + 1] & 0x3f)) & 0xff : from[i]);
        i += two;
    }
    to[n] = 0;
    *n_bytes = (uint32_t)n;
    return to;
}

static uint32_t words_of(const json_t *command, struct schema_word *words)
{
    size_t n = json_array_size(command);
    assert_true(n <= WORDS_MAX);
    for (size_t i = 0; i < n; i++)
        words[i].data = bytes_of(json_array_get(command, i), &words[i].bytes);
    return (uint32_t)n;
}

static void free_words(const struct schema_word *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free((void *)(uintptr_t)words[i].data);
}

static bool word_is(const struct schema_word *word, const char *text)
{
    return strlen(text) == word->bytes && strncasecmp(word->data, text, word->bytes) == 0;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* What becomes a record: fields, each with one value. False: the document is not to be indexed. */
struct made_record {
    struct record record;
    struct record_field fields[VALUES_MAX];
    struct record_value values[VALUES_MAX];
};

static void make_field(struct made_record *made, uint32_t field, struct record_value value)
{
    assert_true(field < VALUES_MAX);
    made->values[field] = value;
    made->fields[field] = (struct record_field){.present = true, .n_values = 1, .values = &made->values[field]};
}

static bool value_of_hash(const struct schema_field *field, const struct schema_word *word, struct record_value *value)
{
    char *end, text[64];
    *value = (struct record_value){.text = word->data, .bytes = word->bytes};
    if (field->type == SCHEMA_VECTOR)
        return word->bytes == 4 * field->vector.dim;
    if (field->type != SCHEMA_NUMERIC)
        return true;
    snprintf(text, sizeof text, "%.*s", (int)word->bytes, word->data);
    value->number = strtod(text, &end);
    return end != text && *end == 0;
}

static bool record_of_hash(const struct schema *schema, const struct schema_word *words, uint32_t n,
                           struct made_record *made)
{
    for (uint32_t i = 0; i < schema->n_fields; i++)
        for (uint32_t k = 2; k + 1 < n; k += 2) {
            const struct schema_field *field = &schema->fields[i];
            struct record_value value;
            if (words[k].bytes != field->identifier_bytes ||
                memcmp(words[k].data, field->identifier, words[k].bytes) != 0)
                continue;
            if (!value_of_hash(field, &words[k + 1], &value))
                return false;
            make_field(made, i, value);
        }
    return true;
}

static bool record_of_json(const struct schema *schema, const json_t *json, struct made_record *made)
{
    for (uint32_t i = 0; i < schema->n_fields; i++) {
        const struct schema_field *field = &schema->fields[i];
        assert_true(strncmp(field->identifier, "$.", 2) == 0);
        const json_t *member = json_object_get(json, field->identifier + 2);
        struct record_value value = {0};
        if (!member || json_is_null(member))
            continue;
        if (field->type == SCHEMA_VECTOR) {
            if (!json_is_array(member) || json_array_size(member) != field->vector.dim)
                return false;
        } else if (field->type == SCHEMA_NUMERIC) {
            if (!json_is_number(member))
                return false;
            value.number = json_number_value(member);
        } else {
            assert_true(json_is_string(member));
            value.text = json_string_value(member);
            value.bytes = (uint32_t)json_string_length(member);
        }
        make_field(made, i, value);
    }
    return true;
}

static void add_document(struct answers *a, const struct schema_word *words, uint32_t n, bool is_hash)
{
    struct made_record made = {.record = {.schema = a->schema, .score = 1}};
    struct quire_error err = {0};
    json_t *json = NULL;
    made.record.fields = made.fields;
    if (!is_hash)
        json = json_loadb(words[3].data, words[3].bytes, JSON_ALLOW_NUL, NULL);
    bool indexed = is_hash ? record_of_hash(a->schema, words, n, &made) : record_of_json(a->schema, json, &made);
    assert_true(a->n_keys < DOCUMENTS_MAX);
    if (indexed) {
        if (fields_add(a->fields, a->n_keys, &made.record, &err) < 0)
            fail_msg("%s: %s", words[1].data, err.message);
        a->keys[a->n_keys++] = strdup(words[1].data);
    }
    a->n_bad += !indexed;
    json_decref(json);
}

static void unload(struct answers *a)
{
    for (uint32_t i = 0; i < a->n_keys; i++)
        free(a->keys[i]);
    a->n_keys = 0;
    fields_free(a->fields);
    a->fields = NULL;
    schema_free(a->schema);
    a->schema = NULL;
}

static void load(struct answers *a, const json_t *commands)
{
    static struct schema_word words[WORDS_MAX];
    struct quire_error err = {0};
    unload(a);
    for (size_t i = 0; i < json_array_size(commands); i++) {
        uint32_t n = words_of(json_array_get(commands, i), words);
        if (word_is(&words[0], "FT.CREATE")) {
            if (schema_parse(words + 1, n - 1, &a->schema, &err) < 0 || fields_create(a->schema, &a->fields, &err) < 0)
                fail_msg("FT.CREATE: %s", err.message);
        } else {
            bool is_hash = word_is(&words[0], "HSET");
            assert_true(is_hash || word_is(&words[0], "JSON.SET"));
            add_document(a, words, n, is_hash);
        }
        free_words(words, n);
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static bool has_vector(const struct query_node *node)
{
    bool has = node->kind == QUERY_KNN || node->kind == QUERY_RANGE;
    for (uint32_t i = 0; i < node->n_children && !has; i++)
        has = has_vector(node->children[i]);
    return has;
}

static uint32_t id_of(const struct answers *a, const json_t *key)
{
    uint32_t bytes, id = 0;
    char *text = bytes_of(key, &bytes);
    while (id < a->n_keys && strcmp(a->keys[id], text) != 0)
        id++;
    free(text);
    return id;
}

/* Rows of the reply are a key, a sort key if they were asked for, and, unless NOCONTENT, fields. */
static uint32_t ids_of_reply(const struct answers *a, const json_t *reply, bool sort_keys, uint32_t *ids)
{
    uint32_t n = 0;
    for (size_t i = 1; i < json_array_size(reply); i++) {
        const json_t *item = json_array_get(reply, i);
        if (json_is_string(item)) {
            assert_true(n < DOCUMENTS_MAX);
            ids[n++] = id_of(a, item);
            i += sort_keys;
        }
    }
    return n;
}

static void compare(struct answers *a, const struct query_node *root, const json_t *reply, const char *text,
                    bool by_score, bool sort_keys)
{
    const struct fields_request request = {.root = root, .expansions_max = 200};
    uint32_t ids[DOCUMENTS_MAX], found[DOCUMENTS_MAX], n = ids_of_reply(a, reply, sort_keys, ids);
    roaring_bitmap_t *here = NULL;
    struct quire_error err = {0};
    if (fields_eval(a->fields, &request, &here, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    uint64_t n_found = roaring_bitmap_get_cardinality(here);
    bool same = n_found == (uint64_t)json_integer_value(json_array_get(reply, 0)) && n <= n_found;
    for (uint32_t i = 0; i < n; i++)
        same = same && ids[i] < a->n_keys && roaring_bitmap_contains(here, ids[i]);
    a->n_searches++;
    if (!same) {
        print_message("%lld there, %llu here: %s\n", (long long)json_integer_value(json_array_get(reply, 0)),
                      (unsigned long long)n_found, text);
        a->n_different++;
    }
    if (by_score && same) {
        double scores[DOCUMENTS_MAX], before = 0;
        bool falls = true;
        roaring_bitmap_to_uint32_array(here, found);
        assert_int_equal(fields_score(a->fields, &request, FIELDS_TFIDF, 4, found, n_found, scores, &err), 0);
        for (uint32_t i = 0; i < n; i++) {
            double score = 0;
            for (uint32_t k = 0; k < n_found; k++)
                score = found[k] == ids[i] ? scores[k] : score;
            falls = falls && (i == 0 || score <= before * (1 + 1e-9));
            before = score;
        }
        a->n_ordered++;
        if (!falls) {
            print_message("scores rise: %s\n", text);
            a->n_disordered++;
        }
    }
    roaring_bitmap_free(here);
}

static uint32_t params_of(const struct schema_word *words, uint32_t n, struct query_param *params)
{
    for (uint32_t i = 3; i + 1 < n; i++) {
        if (!word_is(&words[i], "PARAMS"))
            continue;
        uint32_t n_params = (uint32_t)atoi(words[i + 1].data) / 2;
        assert_true(n_params <= 16 && i + 1 + 2 * n_params < n);
        for (uint32_t k = 0; k < n_params; k++) {
            const struct schema_word *pair = words + i + 2 + 2 * k;
            params[k].name = (struct query_text){pair[0].data, pair[0].bytes};
            params[k].value = (struct query_text){pair[1].data, pair[1].bytes};
        }
        return n_params;
    }
    return 0;
}

static void answer(struct answers *a, const json_t *line)
{
    static struct schema_word words[WORDS_MAX];
    struct query_param params[16];
    struct query *query = NULL;
    struct quire_error err = {0};
    const json_t *reply = json_object_get(line, "reply");
    uint32_t n = words_of(json_object_get(line, "cmd"), words);
    bool sorted = false, sort_keys = false;
    for (uint32_t i = 3; i < n; i++) {
        sorted = sorted || word_is(&words[i], "SORTBY");
        sort_keys = sort_keys || word_is(&words[i], "WITHSORTKEYS");
    }
    struct query_context context = {.schema = a->schema, .params = params, .slop = -1, .dialect = 2};
    context.n_params = params_of(words, n, params);
    if (word_is(&words[0], "FT.SEARCH") && !json_is_true(json_object_get(line, "fails"))) {
        int rc = query_parse(&context, words[2].data, words[2].bytes, &query, &err);
        if (rc < 0)
            fail_msg("%s: %s", words[2].data, err.message);
        if (json_is_array(reply) && !has_vector(query_root(query)))
            compare(a, query_root(query), reply, words[2].data, !sorted, sort_keys);
        else
            a->n_left_out++;
    }
    query_free(query);
    free_words(words, n);
}

static void read_lines(struct answers *a, FILE *file)
{
    char *line = NULL, *set = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) > 0) {
        json_t *value = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        if (!a->sets) {
            a->sets = value;
            continue;
        }
        const char *name = json_string_value(json_object_get(value, "set"));
        if (!set || strcmp(set, name) != 0) {
            free(set);
            set = strdup(name);
            load(a, json_object_get(json_object_get(a->sets, "sets"), name));
        }
        answer(a, value);
        json_decref(value);
    }
    unload(a);
    free(line);
    free(set);
}

static void test_answers(void **state)
{
    char file[1024], command[1100];
    const char *folder = getenv("QUIRE_SHARED_DATA");
    struct answers a = {0};
    (void)state;
    snprintf(file, sizeof file, "%s%s/ft-answers.jsonl.gz", folder ? folder : QUIRE_SOURCE_DIR,
             folder ? "" : "/../shared/data");
    if (access(file, R_OK) != 0) {
        print_message("skipped: no ft-answers.jsonl.gz in QUIRE_SHARED_DATA or ../shared/data\n");
        skip();
    }
    snprintf(command, sizeof command, "gzip -dc '%s'", file);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    read_lines(&a, pipe);
    assert_int_equal(pclose(pipe), 0);
    json_decref(a.sets);
    print_message("%u searches, %u otherwise than there; %u left out (vectors, or no reply kept)\n", a.n_searches,
                  a.n_different, a.n_left_out);
    print_message("%u in the order of scores, %u in which they rise\n", a.n_ordered, a.n_disordered);
    assert_true(a.n_searches > 0 && a.n_bad > 0);
    assert_int_equal(a.n_different, 0);
    /* TFIDF there; distances within nested parts are not in every case what they are there */
    assert_true(a.n_disordered * 100 <= a.n_ordered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
