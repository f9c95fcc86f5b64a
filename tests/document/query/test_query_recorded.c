/*
 * test_query_recorded.c - every query of 13,464 recorded commands of a real RediSearch is read, or refused, as there;
 * and the trees of those that search texts find as many documents as there, when each document is held against them.
 *
 * The data are ../shared/data/ft-answers.jsonl.gz beside the source, or in QUIRE_SHARED_DATA; without them the test is
 * left out. A failure of FT.AGGREGATE may come from its steps and says nothing of the query; one of FT.SEARCH comes from
 * the query, since these commands have no other part that could be wrong.
 */
#include "document/text/text_words.h"
#include "tests/document/support_query.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include <cmocka.h>

#define WORDS_MAX 4096u

#define DOCUMENTS_MAX 128u
#define TOKENS_MAX    256u

/* A word of a document, in the field of this bit. */
struct held_word {
    char text[64], stem[64];
    uint64_t field;
};

struct document {
    struct held_word words[TOKENS_MAX];
    uint32_t n_words;
};

struct recorded {
    json_t *sets;
    struct document *documents; /* DOCUMENTS_MAX */
    uint32_t n_documents;
    uint32_t n_searches, n_aggregates, n_refused, n_different, n_counted, n_miscounted;
};

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

static struct schema *schema_of_set(const json_t *commands)
{
    static struct schema_word words[WORDS_MAX];
    struct schema *schema = NULL;
    struct quire_error err = {0};
    for (size_t i = 0; i < json_array_size(commands) && !schema; i++) {
        uint32_t n = words_of(json_array_get(commands, i), words);
        if (word_is(&words[0], "FT.CREATE") && schema_parse(words + 1, n - 1, &schema, &err) < 0)
            fail_msg("FT.CREATE: %s", err.message);
        free_words(words, n);
    }
    return schema;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

static void hold_value(struct document *d, const struct schema *schema, const struct schema_word *name,
                       const char *value, size_t bytes)
{
    const struct schema_field *field = schema_find(schema, name->data, name->bytes);
    const struct text_rules rules = {
        .schema = schema, .language = text_language_find("english", 7), .no_stems = field && field->no_stem};
    struct text_words words;
    struct text_word word;
    if (!field || field->type != SCHEMA_TEXT)
        return;
    text_words_init(&words, &rules, value, bytes);
    while (text_words_next(&words, &word) == 1) {
        assert_true(d->n_words < TOKENS_MAX);
        struct held_word *held = &d->words[d->n_words++];
        snprintf(held->text, sizeof held->text, "%.*s", (int)word.bytes, word.text);
        snprintf(held->stem, sizeof held->stem, "%.*s", (int)word.stem_bytes, word.stem ? word.stem : "");
        held->field = 1ull << field->text_bit;
    }
    text_words_fini(&words);
}

static void hold_json(struct document *d, const struct schema *schema, const struct schema_word *text)
{
    json_t *value = json_loadb(text->data, text->bytes, JSON_ALLOW_NUL, NULL), *member;
    const char *key;
    assert_non_null(value);
    json_object_foreach(value, key, member)
    {
        struct schema_word name = {key, (uint32_t)strlen(key)};
        if (json_is_string(member))
            hold_value(d, schema, &name, json_string_value(member), json_string_length(member));
    }
    json_decref(value);
}

static void hold_documents(struct recorded *r, const json_t *commands, const struct schema *schema)
{
    static struct schema_word words[WORDS_MAX];
    r->n_documents = 0;
    for (size_t i = 0; i < json_array_size(commands); i++) {
        uint32_t n = words_of(json_array_get(commands, i), words);
        struct document *d = &r->documents[r->n_documents];
        assert_true(r->n_documents < DOCUMENTS_MAX);
        d->n_words = 0;
        bool hash = word_is(&words[0], "HSET"), json = word_is(&words[0], "JSON.SET");
        for (uint32_t k = 2; hash && k + 1 < n; k += 2)
            hold_value(d, schema, &words[k], words[k + 1].data, words[k + 1].bytes);
        if (json)
            hold_json(d, schema, &words[3]);
        r->n_documents += hash || json;
        free_words(words, n);
    }
}

/* ---- one document against a tree --------------------------------------------------------------------------------- */

static uint32_t distance_of(const char *a, uint32_t n_a, const char *b, uint32_t n_b)
{
    uint32_t row[64], next[64];
    assert_true(n_b < 64);
    for (uint32_t k = 0; k <= n_b; k++)
        row[k] = k;
    for (uint32_t i = 1; i <= n_a; i++) {
        next[0] = i;
        for (uint32_t k = 1; k <= n_b; k++) {
            uint32_t best = row[k - 1] + (a[i - 1] != b[k - 1]);
            best = row[k] + 1 < best ? row[k] + 1 : best;
            next[k] = next[k - 1] + 1 < best ? next[k - 1] + 1 : best;
        }
        memcpy(row, next, sizeof row);
    }
    return row[n_b];
}

static bool same(const char *held, const struct query_text *text)
{
    return strlen(held) == text->bytes && memcmp(held, text->data, text->bytes) == 0;
}

static bool word_fits(const struct held_word *held, const struct query_node *node)
{
    const char *word = held->text;
    uint32_t bytes = (uint32_t)strlen(word), n = node->text.bytes;
    if (!(held->field & node->text_fields))
        return false;
    switch (node->kind) {
    case QUERY_TERM:
        return same(word, &node->text) ||
               (node->stem.bytes > 0 && (same(word, &node->stem) || same(held->stem, &node->stem)));
    case QUERY_PREFIX:
        return bytes >= n && memcmp(word, node->text.data, n) == 0;
    case QUERY_SUFFIX:
        return bytes >= n && memcmp(word + bytes - n, node->text.data, n) == 0;
    case QUERY_FUZZY:
        return distance_of(word, bytes, node->text.data, n) <= node->distance;
    default:
        fail_msg("node of kind %d", (int)node->kind);
        return false;
    }
}

static bool fits(const struct document *d, const struct query_node *node)
{
    bool all = true, any = false;
    if (node->kind == QUERY_ALL || node->kind == QUERY_NONE || node->kind == QUERY_OPTIONAL)
        return node->kind != QUERY_NONE;
    if (node->n_children == 0) {
        for (uint32_t i = 0; i < d->n_words && !any; i++)
            any = word_fits(&d->words[i], node);
        return any;
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
        bool one = fits(d, node->children[i]);
        all = all && one;
        any = any || one;
    }
    assert_true(node->kind == QUERY_AND || node->kind == QUERY_OR || node->kind == QUERY_NOT);
    return node->kind == QUERY_AND ? all : node->kind == QUERY_OR ? any : !any;
}

static void count(struct recorded *r, const json_t *line, const struct query_node *root, const char *text)
{
    const json_t *reply = json_object_get(line, "reply");
    json_int_t there = json_integer_value(json_array_get(reply, 0));
    uint32_t here = 0;
    if (!json_is_array(reply)) /* some answers were not kept */
        return;
    for (uint32_t i = 0; i < r->n_documents; i++)
        here += fits(&r->documents[i], root);
    r->n_counted++;
    if (here != there) {
        print_message("%lld documents there, %u here: %s\n", (long long)there, here, text);
        r->n_miscounted++;
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

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

static void check(struct recorded *r, const json_t *line, const struct schema *schema)
{
    static struct schema_word words[WORDS_MAX];
    struct query_param params[16];
    struct query *query = NULL;
    struct quire_error err = {0};
    uint32_t n = words_of(json_object_get(line, "cmd"), words);
    bool fails = json_is_true(json_object_get(line, "fails"));
    bool search = word_is(&words[0], "FT.SEARCH");
    struct query_context context = {.schema = schema, .params = params, .slop = -1, .dialect = 2};
    context.n_params = params_of(words, n, params);
    int rc = query_parse(&context, words[2].data, words[2].bytes, &query, &err);
    r->n_searches += search;
    r->n_aggregates += !search;
    r->n_refused += rc < 0;
    if ((rc < 0 && !fails) || (rc == 0 && fails && search)) {
        print_message("%s there, %s here: %s %s\n", fails ? "refused" : "read", rc < 0 ? "refused" : "read",
                      words[2].data, err.message);
        r->n_different++;
    }
    const char *test = json_string_value(json_object_get(line, "test"));
    if (rc == 0 && search && !fails && strncmp(test, "test_text_", 10) == 0)
        count(r, line, query_root(query), words[2].data);
    query_free(query);
    free_words(words, n);
}

static void read_lines(struct recorded *r, FILE *file)
{
    char *line = NULL, *set = NULL;
    size_t capacity = 0;
    struct schema *schema = NULL;
    while (getline(&line, &capacity, file) > 0) {
        json_t *value = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        if (!r->sets) {
            r->sets = value;
            continue;
        }
        const char *name = json_string_value(json_object_get(value, "set"));
        if (!set || strcmp(set, name) != 0) {
            free(set);
            schema_free(schema);
            set = strdup(name);
            const json_t *commands = json_object_get(json_object_get(r->sets, "sets"), name);
            schema = schema_of_set(commands);
            assert_non_null(schema);
            hold_documents(r, commands, schema);
        }
        check(r, value, schema);
        json_decref(value);
    }
    schema_free(schema);
    free(line);
    free(set);
}

static void test_recorded(void **state)
{
    char file[1024], command[1100];
    const char *folder = getenv("QUIRE_SHARED_DATA");
    struct recorded r = {0};
    (void)state;
    snprintf(file, sizeof file, "%s%s/ft-answers.jsonl.gz", folder ? folder : QUIRE_SOURCE_DIR,
             folder ? "" : "/../shared/data");
    if (access(file, R_OK) != 0) {
        print_message("skipped: no ft-answers.jsonl.gz in QUIRE_SHARED_DATA or ../shared/data\n");
        skip();
    }
    snprintf(command, sizeof command, "gzip -dc '%s'", file);
    FILE *pipe = popen(command, "r");
    r.documents = calloc(DOCUMENTS_MAX, sizeof *r.documents);
    assert_true(pipe && r.documents);
    read_lines(&r, pipe);
    free(r.documents);
    assert_int_equal(pclose(pipe), 0);
    json_decref(r.sets);
    print_message("%u FT.SEARCH, %u FT.AGGREGATE; %u queries refused; %u otherwise than there\n", r.n_searches,
                  r.n_aggregates, r.n_refused, r.n_different);
    print_message("%u searches of texts counted, %u otherwise than there\n", r.n_counted, r.n_miscounted);
    assert_true(r.n_searches > 0 && r.n_aggregates > 0 && r.n_refused > 0);
    assert_int_equal(r.n_different, 0);
    assert_int_equal(r.n_miscounted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
