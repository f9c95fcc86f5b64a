/*
 * test_edge_codes.c - indexes whose blocks carry the codes of their edges: searched with nothing resident but centres.
 *
 * Two such indexes are built, of bytes under L2 and of floats under cosine. What they answer without resident codes is
 * judged by brute force, and what only depends on the codes of edges (links of a row) must be what the same codes
 * answer when they are resident. The least budget for resident codes is found by asking, not computed. Forged codes
 * get right checksums, so that only comparing them with the codes file finds them.
 */
#include "index/format/block.h"
#include "index/format/format.h"
#include "index/search/search.h"
#include "io/bytes.h"
#include "io/fs.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define ROWS    3000u
#define QUERIES 60u
#define K       10u
#define LINKS   10u

struct subject {
    const char *name;
    enum quire_metric metric;
    enum quire_type type;
    uint32_t dim;
    char *path;
    struct support_data data;
    float *queries;
    uint64_t least; /* smallest budget that has resident codes */
};

static char *folder;
static struct subject subjects[] = {
    {.name = "u8-l2", .metric = QUIRE_METRIC_L2, .type = QUIRE_TYPE_U8, .dim = 64},
    {.name = "f32-cosine", .metric = QUIRE_METRIC_COSINE, .type = QUIRE_TYPE_F32, .dim = 48},
};

static struct quire_build_options options_of(const struct subject *s, enum quire_edge_codes edge_codes)
{
    struct quire_build_options options = support_options(s->metric, QUIRE_SLOT_AUTO);
    options.block_bytes = 4096;
    options.edge_codes = edge_codes;
    return options;
}

static struct quire_index *open_within(const char *path, uint64_t memory_bytes)
{
    struct quire_open_options options;
    quire_open_options_init(&options);
    options.memory_bytes = memory_bytes;
    return support_open(path, &options);
}

/* Resident bits per dimension under a budget; -1: refused. */
static int bits_within(const char *path, uint64_t memory_bytes)
{
    struct quire_open_options options;
    struct quire_index *index = NULL;
    struct quire_info info;
    quire_open_options_init(&options);
    options.memory_bytes = memory_bytes;
    int rc = quire_open(path, &options, &index, NULL);
    if (rc < 0) {
        assert_int_equal(rc, QUIRE_ELIMIT);
        return -1;
    }
    quire_get_info(index, &info);
    quire_close(index);
    assert_true(info.resident_bytes <= memory_bytes);
    return (int)info.code_bits;
}

static uint64_t least_budget(const char *path)
{
    uint64_t low = 1, high = 1u << 24; /* too little, enough */
    assert_true(bits_within(path, low) <= 0 && bits_within(path, high) > 0);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (bits_within(path, middle) > 0)
            high = middle;
        else
            low = middle;
    }
    return high;
}

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct subject *s = &subjects[i];
        struct quire_build_options options = options_of(s, QUIRE_EDGE_CODES_YES);
        s->path = support_path(folder, s->name);
        support_clusters(ROWS, s->dim, s->type, 40 + i, &s->data);
        s->queries = support_queries(&s->data, QUERIES, 9);
        support_build(s->path, &s->data, &options);
        s->least = least_budget(s->path);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        support_data_free(&subjects[i].data);
        free(subjects[i].queries);
        free(subjects[i].path);
    }
    support_folder_remove(folder);
    return 0;
}

/* Mean recall of all queries at recall 0.95. */
static double recall_of(const struct subject *s, struct quire_index *index)
{
    struct quire_search_options options = support_search(K, 0.95f, 0);
    double recall = 0;
    for (uint32_t i = 0; i < QUERIES; i++) {
        const float *query = s->queries + (size_t)i * s->dim;
        struct quire_hit hits[K];
        struct quire_search_stats stats;
        struct quire_error err;
        uint32_t n_hits;
        if (quire_search(index, query, &options, hits, &n_hits, &stats, &err) < 0)
            fail_msg("%s: query %u: %s", s->name, i, err.message);
        assert_true(n_hits == K && stats.reads > 0 && stats.complete);
        recall += support_recall(s->metric, s->data.floats, ROWS, s->dim, query, K, hits, n_hits) / QUERIES;
    }
    return recall;
}

static void test_recall_with_nothing_resident(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct subject *s = &subjects[i];
        struct quire_info whole, info;
        struct quire_index *index = support_open(s->path, NULL);
        quire_get_info(index, &whole);
        assert_true(whole.edge_codes && whole.code_bits == 4);
        assert_true(recall_of(s, index) >= 0.9);
        quire_close(index);
        index = open_within(s->path, s->least - 1);
        quire_get_info(index, &info);
        assert_int_equal(info.code_bits, 0);
        assert_true(info.edge_codes);
        /* 1 bit per dimension and 4 bytes for each row are what is saved over the narrowest */
        assert_true(info.resident_bytes + ROWS * (info.dim / 8 + 4) <= s->least);
        double recall = recall_of(s, index);
        if (recall < 0.9)
            fail_msg("%s: recall %.3f", s->name, recall);
        quire_close(index);
    }
}

/* Clusters that no edge joins, each smaller than what is asked for: blocks far behind the nearest are read until there
 * are k answers. */
static void test_k_above_a_cluster(void **state)
{
    enum { PER_CLUSTER = 38, CLUSTERS = 80, FAR_DIM = 32, MANY = 1000 };
    struct random random;
    struct support_data data = {.rows = PER_CLUSTER * CLUSTERS, .dim = FAR_DIM, .type = QUIRE_TYPE_F32};
    float *rows = malloc(sizeof *rows * data.rows * FAR_DIM), centre[FAR_DIM];
    struct quire_hit hits[MANY];
    uint32_t ks[] = {10, 100, MANY}, n;
    (void)state;
    assert_non_null(rows);
    random_init(&random, 17);
    for (uint32_t i = 0; i < data.rows * FAR_DIM; i++) {
        if (i % (PER_CLUSTER * FAR_DIM) < FAR_DIM)
            centre[i % FAR_DIM] = (float)random_below(&random, 20000) / 1000;
        rows[i] = centre[i % FAR_DIM] + (float)random_below(&random, 1000) / 100000;
    }
    data.vectors = (uint8_t *)rows;
    data.floats = rows;
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    options.block_bytes = 4096;
    options.edge_codes = QUIRE_EDGE_CODES_YES;
    char *path = support_path(folder, "far");
    support_build(path, &data, &options);
    struct quire_index *index = open_within(path, least_budget(path) / 2);
    for (size_t i = 0; i < SUPPORT_COUNT(ks); i++) {
        struct quire_search_options search = support_search(ks[i], 0.95f, 0);
        struct quire_search_stats stats;
        struct quire_error err;
        assert_int_equal(quire_search(index, rows, &search, hits, &n, &stats, &err), 0);
        assert_int_equal(n, ks[i]);
        assert_true(stats.complete);
    }
    quire_close(index);
    free(path);
    free(rows);
}

static void test_least_of_all_budgets(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct quire_index *index = NULL;
        struct quire_open_options options;
        struct quire_error err;
        quire_open_options_init(&options);
        options.memory_bytes = 1;
        assert_int_equal(quire_open(subjects[i].path, &options, &index, &err), QUIRE_ELIMIT);
        const char *below = strstr(err.message, "below the ");
        assert_non_null(below);
        uint64_t least = strtoull(below + strlen("below the "), NULL, 10);
        assert_int_equal(bits_within(subjects[i].path, least), 0);
        assert_int_equal(bits_within(subjects[i].path, least - 1), -1);
    }
}

/* ---- which builds have them -------------------------------------------------------------------------------------- */

static void test_without_edge_codes_it_is_refused(void **state)
{
    const struct subject *s = &subjects[0];
    struct quire_build_options options = options_of(s, QUIRE_EDGE_CODES_NO);
    struct quire_open_options open_options;
    struct quire_index *index = NULL;
    struct quire_info info;
    struct quire_error err;
    char *path = support_path(folder, "plain"), number[24];
    (void)state;
    support_build(path, &s->data, &options);
    index = support_open(path, NULL);
    quire_get_info(index, &info);
    assert_false(info.edge_codes);
    quire_close(index);
    index = NULL;
    uint64_t least = least_budget(path);
    quire_open_options_init(&open_options);
    open_options.memory_bytes = least - 1;
    assert_int_equal(quire_open(path, &open_options, &index, &err), QUIRE_ELIMIT);
    assert_null(index);
    snprintf(number, sizeof number, " %llu ", (unsigned long long)least);
    assert_non_null(strstr(err.message, number));
    free(path);
}

/* An index is always fit for the budget that it was built for. */
static void test_auto(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        const struct subject *s = &subjects[i];
        struct quire_build_options options = options_of(s, QUIRE_EDGE_CODES_AUTO);
        char *path = support_path(folder, "auto");
        support_build(path, &s->data, &options);
        uint64_t least = least_budget(path);
        const uint64_t budgets[] = {least, least - 1, least / 2};
        for (size_t b = 0; b < SUPPORT_COUNT(budgets); b++) {
            struct quire_info info;
            assert_int_equal(fs_remove_folder(fs_real(), path, NULL), 0);
            options.memory_bytes = budgets[b];
            support_build(path, &s->data, &options);
            struct quire_index *index = support_open(path, NULL);
            quire_get_info(index, &info);
            bool expected = budgets[b] < least;
            if (info.edge_codes != expected || (info.code_bits == 0) != expected)
                fail_msg("%s within %llu of %llu bytes: edge codes %d, %u bits resident", s->name,
                         (unsigned long long)budgets[b], (unsigned long long)least, info.edge_codes, info.code_bits);
            quire_close(index);
        }
        assert_int_equal(fs_remove_folder(fs_real(), path, NULL), 0);
        free(path);
    }
}

static void test_files_do_not_depend_on_threads(void **state)
{
    static const char *const names[] = {META_NAME, BLOCKS_NAME, CODES_NAME, KEYS_NAME};
    const struct subject *s = &subjects[0];
    (void)state;
    struct quire_build_options options = options_of(s, QUIRE_EDGE_CODES_YES); /* s->path: two threads */
    char *path = support_path(folder, "one-thread");
    options.threads = 1;
    support_build(path, &s->data, &options);
    for (size_t n = 0; n < SUPPORT_COUNT(names); n++) {
        size_t bytes, other_bytes;
        uint8_t *two = support_file_without_id(s->path, names[n], &bytes);
        uint8_t *one = support_file_without_id(path, names[n], &other_bytes);
        assert_int_equal(bytes, other_bytes);
        if (memcmp(two, one, bytes) != 0)
            fail_msg("file %s differs between one and two threads", names[n]);
        free(two);
        free(one);
    }
    free(path);
}

/* ---- fetches ----------------------------------------------------------------------------------------------------- */

struct fetched {
    bool done;
    uint32_t n_links;
    uint32_t rows[LINKS];
    uint64_t id, ids[LINKS];
    float distances[LINKS];
};

static void on_fetched(struct fetch_request *r)
{
    struct fetched *f = r->owner;
    if (r->code < 0)
        fail_msg("row %u: %s", r->row, r->error.message);
    f->done = true;
    f->id = r->id;
    f->n_links = r->n_links;
    assert_true(r->n_links <= LINKS && r->vector && r->found_key);
    for (uint32_t i = 0; i < r->n_links; i++) {
        assert_true(r->links[i].key && r->links[i].key_bytes > 0);
        f->rows[i] = r->links[i].row;
        f->ids[i] = r->links[i].id;
        f->distances[i] = r->links[i].distance;
    }
}

/* The links of every step-th row, into out[ROWS / step]. */
static void fetch_links(const char *path, const struct segment_options *options, uint32_t step, struct fetched *out)
{
    struct segment *segment = NULL;
    struct engine *engine = NULL;
    struct searcher *searcher = NULL;
    struct engine_config config = {.one_thread = true};
    struct quire_error err;
    if (segment_open(path, options, &segment, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(segment_info(segment)->code_bits, options->code_bits);
    assert_int_equal(engine_create(&config, &engine, NULL), 0);
    assert_int_equal(searcher_create(engine, NULL, &searcher, NULL), 0);
    for (uint32_t i = 0; i < ROWS / step; i++) {
        struct fetch_request request = {.segment = segment,
                                        .row = i * step,
                                        .want_vector = true,
                                        .want_key = true,
                                        .want_links = true,
                                        .links_max = LINKS,
                                        .done = on_fetched,
                                        .owner = &out[i]};
        out[i] = (struct fetched){.done = false};
        assert_int_equal(fetch_start(searcher, &request, NULL), 0);
        while (!out[i].done)
            assert_true(engine_poll(engine, 1, UINT64_MAX) >= 0);
    }
    searcher_destroy(searcher);
    engine_destroy(engine);
    segment_unref(segment);
}

/* Links chosen by codes in the blocks are those chosen by the same codes in memory; distances are the true ones. */
static void test_links(void **state)
{
    enum { STEP = 37, N = ROWS / STEP };
    struct fetched *edges = malloc(sizeof *edges * N), *resident = malloc(sizeof *resident * N);
    (void)state;
    assert_true(edges && resident);
    for (size_t s = 0; s < SUPPORT_COUNT(subjects); s++) {
        const struct subject *subject = &subjects[s];
        const struct support_data *data = &subject->data;
        const struct segment_options of_edges = {.memory_bytes = subject->least - 1}, one_bit = {.code_bits = 1};
        double near = 0;
        fetch_links(subject->path, &of_edges, STEP, edges);
        fetch_links(subject->path, &one_bit, STEP, resident);
        for (uint32_t i = 0; i < N; i++) {
            const float *row = data->floats + edges[i].id * data->dim;
            uint32_t nearest[LINKS + 1];
            assert_int_equal(edges[i].n_links, LINKS);
            assert_memory_equal(&edges[i], &resident[i], sizeof edges[i]);
            support_truth(subject->metric, data->floats, ROWS, data->dim, row, LINKS + 1, nearest, NULL);
            for (uint32_t l = 0; l < LINKS; l++) {
                const float *other = data->floats + edges[i].ids[l] * data->dim;
                double distance = support_distance(subject->metric, row, other, data->dim);
                assert_true(edges[i].ids[l] != edges[i].id);
                assert_true(fabs(edges[i].distances[l] - distance) <= 0.02 * (1 + distance));
                assert_true(l == 0 || edges[i].distances[l] >= edges[i].distances[l - 1]);
                for (uint32_t n = 0; n <= LINKS; n++)
                    near += nearest[n] == edges[i].ids[l];
            }
        }
        if (near / N / LINKS < 0.6)
            fail_msg("%s: %.3f of the links are among the nearest", subject->name, near / N / LINKS);
    }
    free(edges);
    free(resident);
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

struct findings {
    uint32_t n, of_codes;
    char last[512];
};

static void on_finding(void *context, const char *sentence)
{
    struct findings *f = context;
    f->n++;
    f->of_codes += strncmp(sentence, "the code of edge", strlen("the code of edge")) == 0;
    snprintf(f->last, sizeof f->last, "%s", sentence);
}

static void test_verify_finds_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct findings findings = {0};
        struct quire_verify_report report;
        if (quire_verify(subjects[i].path, on_finding, NULL, &findings, &report, NULL) < 0)
            fail_msg("%s: %s", subjects[i].name, findings.last);
        assert_int_equal(report.findings, 0);
        assert_true(report.edges > ROWS);
        assert_int_equal(report.rows_reachable, ROWS);
        assert_in_range(report.rows_by_edges, ROWS / 2, ROWS);
    }
}

/* Number of the first block from `number` on that has edges. */
static uint32_t block_with_edges(const uint8_t *blocks, uint32_t number)
{
    while (bytes_load_u32(blocks + (size_t)number * 4096 + 28) == 0)
        number++;
    return number;
}

static void seal_block(uint8_t *block, const uint8_t *segment_id)
{
    uint64_t head = XXH3_64bits_withSeed(block, 16, bytes_load_u64(segment_id));
    bytes_store_u64(block + 16, XXH3_64bits_withSeed(block + 24, 4096 - 24, head));
}

static void test_forged_edge_codes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        const struct subject *s = &subjects[i];
        const uint32_t code_bytes = (s->dim + 31) / 32 * 4, each = code_bytes + EDGE_CODE_FACTOR_BYTES;
        const uint32_t places[] = {0, code_bytes - 1, code_bytes, code_bytes + 3}; /* of code and factors */
        char *copy = support_path(folder, "forged");
        support_copy_folder(s->path, copy);
        char *file = support_path(copy, BLOCKS_NAME), expected[64];
        size_t bytes;
        uint8_t *data = support_read_file(file, &bytes), *blocks = data + SECTION_ALIGN;
        for (size_t n = 0; n < SUPPORT_COUNT(places); n++) {
            struct findings findings = {0};
            struct quire_error err;
            uint32_t number = block_with_edges(blocks, (uint32_t)n * 5), edges;
            uint8_t *block = blocks + (size_t)number * 4096;
            edges = bytes_load_u32(block + 28);
            uint8_t *byte = block + bytes_load_u32(block + 36) + (edges - 1) * each + places[n];
            *byte ^= 4;
            seal_block(block, data + 16);
            support_write_file(file, data, bytes);
            assert_int_equal(quire_verify(copy, on_finding, NULL, &findings, NULL, &err), QUIRE_ECORRUPT);
            assert_int_equal(findings.n, 1);
            assert_int_equal(findings.of_codes, 1);
            snprintf(expected, sizeof expected, " of block %u ", number);
            if (!strstr(findings.last, expected))
                fail_msg("block %u is not named in \"%s\"", number, findings.last);
            *byte ^= 4;
            seal_block(block, data + 16);
        }
        support_write_file(file, data, bytes);
        assert_int_equal(quire_verify(copy, NULL, NULL, NULL, NULL, NULL), 0);
        assert_int_equal(fs_remove_folder(fs_real(), copy, NULL), 0);
        free(data);
        free(file);
        free(copy);
    }
}

/* The table entry of a section; its data begins at the offset that stands in it. */
static uint8_t *table_entry(uint8_t *file, uint32_t id)
{
    uint8_t *entry = file + 72;
    for (uint32_t i = 0; i < bytes_load_u32(file + 40); i++, entry += 40)
        if (bytes_load_u32(entry) == id)
            return entry;
    fail_msg("no section %u", id);
    return NULL;
}

static void seal_superblock(uint8_t *file)
{
    bytes_store_u64(file + SECTION_ALIGN - 8, XXH3_64bits(file, SECTION_ALIGN - 8));
}

/* Renames the sections of navigation codes of n widths, so that no reader knows them, and makes every checksum
 * right again. */
static void hide_codes(const char *index, unsigned first, unsigned n)
{
    char *codes_path = support_path(index, CODES_NAME), *meta_path = support_path(index, META_NAME);
    size_t codes_bytes, meta_bytes;
    uint8_t *codes = support_read_file(codes_path, &codes_bytes), *meta = support_read_file(meta_path, &meta_bytes);
    for (unsigned w = first; w < first + n; w++)
        bytes_store_u32(table_entry(codes, CODES_NAVIGATION + nav_bits[w]), 1000 + w);
    seal_superblock(codes);
    uint8_t *list = table_entry(meta, META_FILES), *files = meta + bytes_load_u64(list + 8);
    uint64_t bytes = bytes_load_u64(list + 16);
    for (uint8_t *line = files; line < files + bytes; line += FILE_ENTRY_BYTES)
        if (strcmp((const char *)line, CODES_NAME) == 0)
            bytes_store_u64(line + 24, XXH3_64bits(codes, SECTION_ALIGN));
    bytes_store_u64(list + 24, XXH3_64bits(files, bytes));
    seal_superblock(meta);
    support_write_file(codes_path, codes, codes_bytes);
    support_write_file(meta_path, meta, meta_bytes);
    free(codes);
    free(meta);
    free(codes_path);
    free(meta_path);
}

/* Without codes to load an index with edge codes can still be searched; it is damaged all the same. */
static void test_hidden_codes(void **state)
{
    static const struct {
        unsigned first, n;
        const char *expected;
        bool nothing_resident;
    } cases[] = {{0, 1, "no navigation codes of width 1", false}, {0, 3, "has no navigation codes", true}};
    const struct subject *s = &subjects[0];
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        char *copy = support_path(folder, "hidden");
        struct findings findings = {0};
        struct quire_info info;
        support_copy_folder(s->path, copy);
        hide_codes(copy, cases[i].first, cases[i].n);
        struct quire_index *index = support_open(copy, NULL);
        quire_get_info(index, &info);
        assert_int_equal(info.code_bits == 0, cases[i].nothing_resident);
        assert_true(recall_of(s, index) >= 0.9);
        quire_close(index);
        assert_int_equal(quire_verify(copy, on_finding, NULL, &findings, NULL, NULL), QUIRE_ECORRUPT);
        assert_int_equal(findings.n, 1);
        if (!strstr(findings.last, cases[i].expected))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].expected, findings.last);
        assert_int_equal(fs_remove_folder(fs_real(), copy, NULL), 0);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall_with_nothing_resident),
        cmocka_unit_test(test_k_above_a_cluster),
        cmocka_unit_test(test_least_of_all_budgets),
        cmocka_unit_test(test_without_edge_codes_it_is_refused),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_files_do_not_depend_on_threads),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_verify_finds_nothing),
        cmocka_unit_test(test_forged_edge_codes),
        cmocka_unit_test(test_hidden_codes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
