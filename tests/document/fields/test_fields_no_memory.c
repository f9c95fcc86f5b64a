/*
 * test_fields_no_memory.c - documents, queries, scores, renumbering and alterations that run out of memory at any of
 * their allocations: they are refused, and nothing of them is there.
 *
 * The program's own malloc, calloc and realloc pass on to glibc's but for the one that is to fail. Sanitizers bring
 * their own allocators, so there the test is left out and says so.
 */
#include "document/fields/fields.h"
#include "io/random.h"
#include "tests/document/support_query.h"
#include "tests/sanitized.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static unsigned fail_in; /* calls; 0: none fails */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_in == 0 || --fail_in > 0;
}

#include "tests/allocator.h"
#endif

#define DOCUMENTS 400u

static const char *const schema_words =
    "i SCHEMA tag TAG INDEXMISSING number NUMERIC place GEO title TEXT body TEXT INDEXMISSING";
static const char *const altered_words = "more TAG";

static bool left_out(void)
{
    if (SANITIZED)
        print_message("a sanitizer's allocator does not fail: nothing is tested here\n");
    return SANITIZED;
}

/* One document; texts are the caller's. */
struct made {
    char tag[64], title[128], body[64];
    struct record_value values[5], numbers[3];
    struct record_field fields[6];
    struct record record;
};

static void make(struct made *made, const struct schema *schema, struct random *random)
{
    *made = (struct made){.record = {.schema = schema, .fields = made->fields, .score = .5}};
    snprintf(made->tag, sizeof made->tag, "t%u,u%u,t%u", (unsigned)random_below(random, 200),
             (unsigned)random_below(random, 5), (unsigned)random_below(random, 200));
    snprintf(made->title, sizeof made->title, "word%u words%u running word%u word%u",
             (unsigned)random_below(random, 300), (unsigned)random_below(random, 30), (unsigned)random_below(random, 9),
             (unsigned)random_below(random, 9));
    snprintf(made->body, sizeof made->body, "house%u and houses", (unsigned)random_below(random, 1000));
    made->values[0] = (struct record_value){.text = made->tag, .bytes = (uint32_t)strlen(made->tag)};
    for (unsigned i = 0; i < 3; i++)
        made->numbers[i].number = (double)random_below(random, 1000);
    made->values[2] = (struct record_value){.number = 13.4, .latitude = 52.5};
    made->values[3] = (struct record_value){.text = made->title, .bytes = (uint32_t)strlen(made->title)};
    made->values[4] = (struct record_value){.text = made->body, .bytes = (uint32_t)strlen(made->body)};
    for (unsigned i = 0; i < 5; i++)
        made->fields[i] = (struct record_field){.present = true, .n_values = 1, .values = &made->values[i]};
    made->fields[1].values = made->numbers;
    made->fields[1].n_values = random_below(random, 3) == 0 ? 3 : 1;
    made->fields[0].present = random_below(random, 4) > 0;
    made->fields[0].n_values = made->fields[0].present;
    made->fields[4].present = random_below(random, 4) > 0;
    made->fields[4].n_values = made->fields[4].present;
}

static void same_stats(const struct fields *fields, const struct fields_stats *before)
{
    struct fields_stats now;
    fields_get_stats(fields, &now);
    assert_int_equal(now.n_documents, before->n_documents);
    assert_int_equal(now.n_words, before->n_words);
    assert_int_equal(now.n_stems, before->n_stems);
    assert_int_equal(now.n_tags, before->n_tags);
    assert_int_equal(now.n_numbers, before->n_numbers);
    assert_int_equal(now.n_records, before->n_records);
    assert_int_equal(now.n_positions, before->n_positions);
    assert_int_equal(now.n_blocks, before->n_blocks);
}

/* Adds a document again and again, failing at each allocation in turn, until none is left to fail. */
static unsigned add_with_failures(struct fields *fields, uint32_t id, const struct record *record)
{
    struct fields_stats before;
    fields_get_stats(fields, &before);
    for (unsigned n = 1;; n++) {
        fail_in = n;
        int rc = fields_add(fields, id, record, NULL);
        bool all = fail_in > 0;
        fail_in = 0;
        if (rc == 0)
            return n - 1; /* it may have done without the allocation that failed */
        assert_true(rc == QUIRE_ENOMEM && !all);
        same_stats(fields, &before);
        assert_false(fields_has(fields, id));
        assert_int_equal(fields_next_id(fields), id);
    }
}

static const char *const queries[] = {
    "@tag:{t1 | u2 | t*}", "@number:[100 700] -@tag:{u3}", "@place:[13.4 52.5 10 km] word1", "running houses",
    "\"word1 running\"",   "(wor* | %hous1%) ~@tag:{u1}",  "w'?ord*' | ismissing(@body)"};
#define QUERIES (sizeof queries / sizeof *queries)

static struct query *parsed(const struct schema *schema, const char *text)
{
    const struct query_context context = {.schema = schema, .slop = -1, .dialect = 2};
    struct query *query = NULL;
    struct quire_error err = {0};
    if (query_parse(&context, text, strlen(text), &query, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return query;
}

/* Evaluates and scores, failing at each allocation in turn; the answers are those without failures. */
static void ask_with_failures(const struct fields *fields, const struct schema *schema, const char *text)
{
    static uint32_t ids[DOCUMENTS];
    static double scores[DOCUMENTS], again[DOCUMENTS];
    struct query *query = parsed(schema, text);
    const struct fields_request request = {.root = query_root(query)};
    roaring_bitmap_t *right = NULL, *found = NULL;
    assert_int_equal(fields_eval(fields, &request, &right, NULL), 0);
    uint64_t n_ids = roaring_bitmap_get_cardinality(right);
    roaring_bitmap_to_uint32_array(right, ids);
    assert_int_equal(fields_score(fields, &request, FIELDS_TFIDF, 4, ids, n_ids, scores, NULL), 0);
    for (unsigned n = 1, left = 0; !left; n++) {
        fail_in = n;
        int rc = fields_eval(fields, &request, &found, NULL);
        left = fail_in;
        fail_in = 0;
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !left));
        if (rc < 0)
            continue;
        assert_true(roaring_bitmap_equals(found, right));
        roaring_bitmap_free(found);
    }
    for (unsigned n = 1, left = 0; !left; n++) {
        fail_in = n;
        int rc = fields_score(fields, &request, FIELDS_TFIDF, 4, ids, n_ids, again, NULL);
        left = fail_in;
        fail_in = 0;
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !left));
        assert_true(rc < 0 || memcmp(again, scores, n_ids * sizeof *scores) == 0);
    }
    roaring_bitmap_free(right);
    query_free(query);
}

static void documents_and_queries(void **state)
{
    (void)state;
    if (left_out())
        skip();
    struct schema *schema = schema_of(schema_words);
    struct fields *fields = NULL;
    struct random random;
    unsigned n_failures = 0;
    random_init(&random, 5);
    for (unsigned n = 1; !fields; n++) {
        fail_in = n;
        int rc = fields_create(schema, &fields, NULL);
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && fail_in == 0));
        fail_in = 0;
    }
    for (uint32_t id = 0; id < DOCUMENTS; id++) {
        struct made made;
        make(&made, schema, &random);
        n_failures += add_with_failures(fields, id, &made.record);
        if (id % 3 == 0)
            assert_true(fields_remove(fields, id));
    }
    print_message("%u additions refused\n", n_failures);
    assert_true(n_failures > 10 * DOCUMENTS);
    for (size_t i = 0; i < QUERIES; i++)
        ask_with_failures(fields, schema, queries[i]);
    fields_free(fields);
    schema_free(schema);
}

static struct schema *altered(const struct schema *schema)
{
    struct schema_word words[8];
    struct schema *out = NULL;
    uint32_t n = 0;
    for (const char *at = altered_words; *at; n++) {
        size_t bytes = strcspn(at, " ");
        words[n] = (struct schema_word){at, (uint32_t)bytes};
        at += bytes + (at[bytes] == ' ');
    }
    struct quire_error err = {0};
    if (schema_alter(schema, words, n, 4, &out, &err) < 0)
        fail_msg("%s", err.message);
    return out;
}

static void alterations_and_renumbering(void **state)
{
    (void)state;
    if (left_out())
        skip();
    struct schema *schema = schema_of(schema_words), *wider = altered(schema);
    struct fields *fields = NULL, *dense = NULL;
    struct fields_stats before;
    struct random random;
    uint32_t *old_ids = NULL;
    random_init(&random, 6);
    assert_int_equal(fields_create(schema, &fields, NULL), 0);
    for (uint32_t id = 0; id < 40; id++) {
        struct made made;
        make(&made, schema, &random);
        assert_int_equal(fields_add(fields, id, &made.record, NULL), 0);
    }
    fields_remove(fields, 7);
    fields_get_stats(fields, &before);
    for (unsigned n = 1; !dense; n++) {
        fail_in = n;
        int rc = fields_renumber(fields, &dense, &old_ids, NULL);
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && fail_in == 0));
        fail_in = 0;
        same_stats(fields, &before);
    }
    assert_int_equal(fields_documents(dense), 39);
    assert_int_equal(old_ids[7], 8);
    free(old_ids);
    fields_free(dense);
    for (unsigned n = 1, done = 0; !done; n++) {
        fail_in = n;
        int rc = fields_alter(fields, wider, NULL);
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && fail_in == 0));
        fail_in = 0;
        done = rc == 0;
        same_stats(fields, &before);
    }
    struct made made;
    make(&made, wider, &random);
    made.fields[5] = (struct record_field){.present = true, .n_values = 1, .values = &made.values[0]};
    add_with_failures(fields, 40, &made.record);
    ask_with_failures(fields, wider, "@more:{u1 | u2 | u3 | u4 | u0}");
    fields_free(fields);
    schema_free(wider);
    schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents_and_queries),
                                       cmocka_unit_test(alterations_and_renumbering)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
