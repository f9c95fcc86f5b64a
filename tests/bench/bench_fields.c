/*
 * bench_fields.c - the inverted indexes of documents alone: additions, memory, queries, scores, removal.
 *
 *   bench_fields [DOCUMENTS [WORDS]]
 *
 * DOCUMENTS (200,000) of five fields: a TAG of 10 values, a TAG of as many values as documents, two NUMERICs (75 and
 * 1,000,000 values), a TEXT of WORDS (20) words out of 20,000, the first ones more often. Then half of them go, a purge
 * runs to its end, and the rest is renumbered; then a NUMERIC alone with a million numbers. Times are of the thread's
 * own clock, the best of seven for queries. One JSON object per line on standard output.
 */
#include "document/fields/fields.h"
#include "io/random.h"
#include "tests/document/support_query.h"
#include <roaring/roaring.h>
#include <stdio.h>
#include <time.h>

#define VOCABULARY 20000u
#define WORDS_MAX  200u
#define ROUNDS     7u
#define NUMBERS    1000000u

struct bench {
    struct random random;
    struct schema *schema;
    struct fields *fields;
    struct quire_error err;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(struct bench *b, int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s\n", b->err.message);
    exit(1);
}

static void open_fields(struct bench *b, const char *schema)
{
    b->schema = schema_of(schema);
    check(b, b->schema ? fields_create(b->schema, &b->fields, &b->err) : QUIRE_EPARSE);
}

static void add_document(struct bench *b, uint32_t id, uint32_t documents, uint32_t words)
{
    static char tenant[32], user[32], body[WORDS_MAX * 8];
    struct record_value values[5] = {0};
    struct record_field fields[5];
    size_t used = 0;
    snprintf(tenant, sizeof tenant, "tenant%u", (unsigned)random_below(&b->random, 10));
    snprintf(user, sizeof user, "user%u", (unsigned)random_below(&b->random, documents));
    for (uint32_t i = 0; i < words; i++) {
        double u = (double)random_below(&b->random, 1u << 20) / (1u << 20);
        used += (size_t)snprintf(body + used, sizeof body - used, "w%uq ", (unsigned)(VOCABULARY * u * u * u));
    }
    values[0] = (struct record_value){.text = tenant, .bytes = (uint32_t)strlen(tenant)};
    values[1] = (struct record_value){.text = user, .bytes = (uint32_t)strlen(user)};
    values[2].number = (double)(1950 + random_below(&b->random, 75));
    values[3].number = (double)random_below(&b->random, 1000000) / 100;
    values[4] = (struct record_value){.text = body, .bytes = (uint32_t)used};
    for (uint32_t i = 0; i < 5; i++)
        fields[i] = (struct record_field){.present = true, .n_values = 1, .values = &values[i]};
    const struct record record = {.schema = b->schema, .fields = fields, .score = 1};
    check(b, fields_add(b->fields, id, &record, &b->err));
}

static void show_memory(const char *what, const struct fields *fields)
{
    struct fields_stats s;
    fields_get_stats(fields, &s);
    double n = (double)s.n_documents;
    printf("{\"what\":\"memory %s\",\"documents\":%.0f,\"bytes_per_document\":%.1f,\"text\":%.1f,\"tags\":%.1f,"
           "\"numbers\":%.1f,\"documents_alone\":%.1f,\"words\":%llu,\"records\":%llu}\n",
           what, n, (double)fields_bytes(fields) / n, (double)s.text_bytes / n, (double)s.tag_bytes / n,
           (double)s.number_bytes / n, (double)s.document_bytes / n, (unsigned long long)s.n_words,
           (unsigned long long)s.n_records);
}

static void ask(struct bench *b, const char *text)
{
    const struct query_context context = {.schema = b->schema, .slop = -1, .dialect = 2};
    struct query *query = NULL;
    double best = 1e9, best_score = 1e9;
    uint64_t n = 0;
    check(b, query_parse(&context, text, strlen(text), &query, &b->err));
    const struct fields_request request = {.root = query_root(query)};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        roaring_bitmap_t *found = NULL;
        double begin = seconds();
        check(b, fields_eval(b->fields, &request, &found, &b->err));
        double took = seconds() - begin;
        best = took < best ? took : best;
        n = roaring_bitmap_get_cardinality(found);
        uint32_t *ids = malloc((n + 1) * sizeof *ids);
        double *scores = malloc((n + 1) * sizeof *scores);
        check(b, ids && scores ? 0 : QUIRE_ENOMEM);
        roaring_bitmap_to_uint32_array(found, ids);
        roaring_bitmap_free(found);
        begin = seconds();
        check(b, fields_score(b->fields, &request, FIELDS_BM25STD, 4, ids, n, scores, &b->err));
        took = seconds() - begin;
        best_score = took < best_score ? took : best_score;
        free(ids);
        free(scores);
    }
    query_free(query);
    printf("{\"what\":\"query\",\"query\":\"");
    for (const char *at = text; *at; at++)
        printf(*at == '"' ? "\\\"" : "%c", *at);
    printf("\",\"found\":%llu,\"ms\":%.3f,\"score_ms\":%.3f}\n", (unsigned long long)n, 1e3 * best, 1e3 * best_score);
}

static void remove_half(struct bench *b, uint32_t documents)
{
    double worst = 0, all = 0;
    uint32_t slices = 0, *old_ids = NULL;
    struct fields *dense = NULL;
    for (uint32_t id = 0; id < documents; id += 2)
        fields_remove(b->fields, id);
    for (bool more = true; more; slices++) {
        double begin = seconds();
        more = fields_purge(b->fields);
        double took = seconds() - begin;
        worst = took > worst ? took : worst;
        all += took;
    }
    printf("{\"what\":\"purge\",\"dead\":%u,\"slices\":%u,\"ms\":%.1f,\"longest_ms\":%.2f}\n", (documents + 1) / 2,
           slices, 1e3 * all, 1e3 * worst);
    show_memory("after the purge", b->fields);
    double begin = seconds();
    check(b, fields_renumber(b->fields, &dense, &old_ids, &b->err));
    printf("{\"what\":\"renumbering\",\"documents\":%llu,\"ms\":%.1f}\n", (unsigned long long)fields_documents(dense),
           1e3 * (seconds() - begin));
    show_memory("after renumbering", dense);
    free(old_ids);
    fields_free(dense);
}

static void numbers_alone(struct bench *b)
{
    open_fields(b, "i SCHEMA x NUMERIC");
    double begin = seconds();
    for (uint32_t id = 0; id < NUMBERS; id++) {
        const struct record_value value = {.number = (double)random_below(&b->random, NUMBERS)};
        const struct record_field field = {.present = true, .n_values = 1, .values = &value};
        const struct record record = {.schema = b->schema, .fields = &field, .score = 1};
        check(b, fields_add(b->fields, id, &record, &b->err));
    }
    printf("{\"what\":\"numbers\",\"n\":%u,\"per_second\":%.0f}\n", NUMBERS, NUMBERS / (seconds() - begin));
    show_memory("of numbers", b->fields);
    ask(b, "@x:[0 500000]");
    ask(b, "@x:[0 5000]");
    fields_free(b->fields);
    schema_free(b->schema);
}

int main(int argc, char **argv)
{
    static const char *const queries[] = {"*",
                                          "@tenant:{tenant3}",
                                          "-@tenant:{tenant3}",
                                          "@year:[1950 1986]",
                                          "@price:[0 5000]",
                                          "@price:[0 50]",
                                          "@tenant:{tenant3} @price:[0 5000]",
                                          "@user:{user77} @price:[0 5000]",
                                          "@tenant:{tenant1|tenant2|tenant3}",
                                          "@user:{user12*}",
                                          "@user:{*77*}",
                                          "w0q",
                                          "w1q w2q",
                                          "\"w0q w1q\"",
                                          "w12*",
                                          "%w7919%",
                                          "@body:(w0q|w1q) @year:[1990 1995] -@tenant:{tenant5}"};
    uint32_t documents = argc > 1 ? (uint32_t)atoi(argv[1]) : 200000, words = argc > 2 ? (uint32_t)atoi(argv[2]) : 20;
    struct bench b = {0};
    if (documents == 0 || words > WORDS_MAX) {
        fprintf(stderr, "bench_fields [DOCUMENTS [WORDS]]: at least one document, at most %u words\n", WORDS_MAX);
        return 2;
    }
    random_init(&b.random, 1);
    open_fields(&b, "i SCHEMA tenant TAG user TAG year NUMERIC price NUMERIC body TEXT");
    double begin = seconds();
    for (uint32_t id = 0; id < documents; id++)
        add_document(&b, id, documents, words);
    printf("{\"what\":\"additions\",\"documents\":%u,\"words\":%u,\"per_second\":%.0f}\n", documents, words,
           documents / (seconds() - begin));
    show_memory("of documents", b.fields);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        ask(&b, queries[i]);
    remove_half(&b, documents);
    fields_free(b.fields);
    schema_free(b.schema);
    numbers_alone(&b);
    return 0;
}
