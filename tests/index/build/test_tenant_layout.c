/*
 * test_tenant_layout.c - rows of small tenants lie side by side, in both kinds of index, and nothing else suffers.
 *
 * What lies where is read back row by row from the segment: the rows of each tenant are counted from the grants in the
 * attributes, and those of a tenant that should have a run must be numbers without a gap. Every index is checked by
 * quire_verify, and searches of everything are held against brute force and against the same rows built without
 * tenants.
 */
#include "index/attribute/grants.h"
#include "index/format/format.h"
#include "index/segment/segment_view.h"
#include "io/bitmap.h"
#include "io/fs.h"
#include "io/random.h"
#include "tests/index/support_parts.h"
#include "tests/index/support_spann.h"
#include "tests/sanitized.h"
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS     SANITIZED_SIZE(20000u, 8000u)
#define FEW_ROWS 1500u
#define DIM      24u
#define TENANTS  2000u
#define BUILT_OF SANITIZED_SIZE(TENANTS, 100u) /* of ROWS: the first has more than RUN_MOST */
#define RUN_MOST 1024u                         /* rows; smaller than what fits in a MiB here */
#define QUERIES  SANITIZED_SIZE(60u, 40u)

static enum quire_index_kind kind; /* that the group of tests is run with */

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

/* Names per row, as quire_build takes them; owned. */
struct key_names {
    uint32_t n;
    char **of;
};

static void names_alloc(struct key_names *names, uint32_t n)
{
    *names = (struct key_names){n, calloc(n, sizeof(char *))};
    assert_non_null(names->of);
}

static void names_free(struct key_names *names)
{
    for (uint32_t i = 0; i < names->n; i++)
        free(names->of[i]);
    free(names->of);
}

static void name_row(struct key_names *names, uint32_t row, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    free(names->of[row]);
    assert_true(vasprintf(&names->of[row], format, args) > 0);
    va_end(args);
}

/* Of `tenants` tenant t has a share of 1 / t; rows have nothing to do with their tenant. Every 20th row is nobody's,
 * every 15th is granted to others, too, whose names come later in the alphabet. */
static void names_draw(struct key_names *names, uint32_t n, uint32_t tenants, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    names_alloc(names, n);
    for (uint32_t row = 0; row < n; row++) {
        double share = (double)random_below(&random, 1u << 30) / (1u << 30);
        unsigned tenant = (unsigned)pow(tenants, share);
        if (row % 20 == 7)
            continue;
        if (row % 15 == 4)
            name_row(names, row, "z%u t%u y%u", row % 5, tenant, row % 3);
        else
            name_row(names, row, "t%u", tenant);
    }
}

/* ---- where rows lie ---------------------------------------------------------------------------------------------- */

struct lain {
    char name[32];
    uint32_t rows, first, last;
};

/* What a segment has, by home. */
struct layout {
    struct lain *tenants;
    uint32_t n, nobodys, next_row;
};

static int see_row(void *context, const struct scanned_row *row)
{
    struct layout *layout = context;
    struct grant home;
    char name[32];
    uint32_t at = 0, i = 0;
    assert_int_equal(row->row, layout->next_row++);
    if (!grants_next(row->attributes, row->attribute_bytes, &at, &home)) {
        layout->nobodys++;
        return 0;
    }
    assert_true(home.generation == 0 && home.bytes < sizeof name);
    snprintf(name, sizeof name, "%.*s", (int)home.bytes, home.name);
    while (i < layout->n && strcmp(layout->tenants[i].name, name) != 0)
        i++;
    if (i == layout->n) {
        layout->tenants = realloc(layout->tenants, sizeof *layout->tenants * ++layout->n);
        assert_non_null(layout->tenants);
        layout->tenants[i] = (struct lain){.first = row->row};
        memcpy(layout->tenants[i].name, name, sizeof name);
    }
    layout->tenants[i].rows++;
    layout->tenants[i].last = row->row;
    return 0;
}

static bool lies_together(const struct lain *tenant)
{
    return tenant->last - tenant->first + 1 == tenant->rows;
}

/* How many have runs. scattered: gets how many rows of the others lie apart. */
static uint32_t check_layout(struct segment *segment, struct layout *layout)
{
    struct quire_error err;
    uint32_t runs = 0;
    *layout = (struct layout){0};
    assert_int_equal(segment_scan(segment, NULL, see_row, NULL, layout, &err), 0);
    for (uint32_t i = 0; i < layout->n; i++) {
        const struct lain *tenant = &layout->tenants[i];
        if (tenant->rows < 2 || tenant->rows > RUN_MOST)
            continue;
        if (!lies_together(tenant))
            fail_msg("tenant %s: %u rows from %u to %u", tenant->name, tenant->rows, tenant->first, tenant->last);
        runs++;
    }
    return runs;
}

static const struct lain *tenant_of(const struct layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->n; i++)
        if (strcmp(layout->tenants[i].name, name) == 0)
            return &layout->tenants[i];
    fail_msg("no rows of %s", name);
    return NULL;
}

static void on_finding(void *context, const char *sentence)
{
    (void)context;
    fail_msg("%s", sentence);
}

static void verify(const char *path, uint64_t rows)
{
    struct quire_verify_report report;
    struct quire_error err;
    assert_int_equal(quire_verify(path, on_finding, NULL, NULL, &report, &err), 0);
    assert_true(report.findings == 0 && report.rows == rows && report.rows_reachable == rows);
}

/* ---- searches of everything -------------------------------------------------------------------------------------- */

struct quality {
    double recall, reads;
};

/* At the effort that was calibrated for recall 0.95. mode: of inverted lists. */
static struct quality search_all(const char *path, const struct support_data *data, enum spann_mode mode)
{
    static struct spann_answer answer;
    struct segment_options open = {.memory_bytes = UINT64_MAX, .read_lists = mode == SPANN_HEADS};
    struct quire_search_options options = support_search(10, 0.95f, 0);
    struct quality q = {0, 0};
    struct segment *segment = NULL;
    struct spann_lane lane;
    struct quire_error err;
    assert_int_equal(segment_open(path, &open, &segment, &err), 0);
    spann_lane_open(&lane, QUIRE_ENGINE_THREADS, 0, 1);
    float *queries = support_queries(data, QUERIES, 91);
    for (uint32_t i = 0; i < QUERIES; i++) {
        const float *query = queries + (size_t)i * data->dim;
        struct quire_hit hits[10];
        spann_ask(&lane, segment, query, &options, NULL, &answer);
        assert_true(answer.code == 0 && answer.n == 10);
        for (uint32_t h = 0; h < answer.n; h++)
            hits[h] = (struct quire_hit){.id = answer.ids[h], .row = answer.rows[h], .distance = answer.distances[h]};
        q.recall += support_recall(QUIRE_METRIC_L2, data->floats, data->rows, data->dim, query, 10, hits, 10) / QUERIES;
        q.reads += (double)(answer.stats.reads + answer.stats.cached) / QUERIES;
    }
    free(queries);
    spann_lane_close(&lane);
    segment_unref(segment);
    return q;
}

static struct quire_build_options options_of(const struct key_names *names)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    options.index = kind;
    options.list_rows = 64;
    options.tenants = names ? (const char *const *)names->of : NULL;
    return options;
}

static void test_small_tenants_lie_side_by_side(void **state)
{
    struct support_data data;
    struct key_names names;
    struct layout layout;
    char *folder = support_folder_make(), *with = support_path(folder, "with"), *without = support_path(folder, "none");
    (void)state;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 3, &data);
    names_draw(&names, ROWS, BUILT_OF, 11);
    struct quire_build_options options = options_of(&names);
    support_build(with, &data, &options);
    verify(with, ROWS);
    struct segment *segment = support_segment(with);
    uint32_t runs = check_layout(segment, &layout);
    assert_true(runs > BUILT_OF / 4 && layout.nobodys == ROWS / 20);
    assert_true(tenant_of(&layout, "t1")->rows > RUN_MOST && !lies_together(tenant_of(&layout, "t1")));
    assert_true(tenant_of(&layout, "t9")->rows > 50);
    segment_unref(segment);
    options.tenants = NULL;
    support_build(without, &data, &options);
    for (unsigned mode = 0; mode < (kind == QUIRE_INDEX_SPANN ? SPANN_MODES : 1); mode++) {
        struct quality a = search_all(with, &data, (enum spann_mode)mode),
                       b = search_all(without, &data, (enum spann_mode)mode);
        print_message("%s, mode %u: recall %.3f at %.1f reads with runs, %.3f at %.1f without\n",
                      quire_index_kind_name(kind), mode, a.recall, a.reads, b.recall, b.reads);
        assert_true(a.recall > 0.93 && b.recall > 0.93);
    }
    free(layout.tenants);
    names_free(&names);
    support_data_free(&data);
    free(with);
    free(without);
    support_folder_remove(folder);
}

/* ---- extremes ---------------------------------------------------------------------------------------------------- */

static const char *const files[] = {BLOCKS_NAME, CODES_NAME, KEYS_NAME, META_NAME, POSTINGS_NAME};

static unsigned n_files(void)
{
    return kind == QUIRE_INDEX_SPANN ? 5 : 4;
}

/* Whether two indexes have the same bytes, up to the id of the segment. except: a file that does not count, or NULL. */
static bool are_same(const char *a, const char *b, const char *except)
{
    bool same = true;
    for (unsigned i = 0; i < n_files() && same; i++) {
        size_t a_bytes, b_bytes;
        if (except && strcmp(files[i], except) == 0)
            continue;
        uint8_t *x = support_file_without_id(a, files[i], &a_bytes),
                *y = support_file_without_id(b, files[i], &b_bytes);
        same = a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
        free(x);
        free(y);
    }
    return same;
}

/* Nothing is laid out otherwise where nobody is small: one tenant has all rows, or each row has its own. */
static void test_no_runs_no_change(void **state)
{
    struct support_data data;
    char *folder = support_folder_make(), *plain = support_path(folder, "plain");
    (void)state;
    support_clusters(FEW_ROWS, DIM, QUIRE_TYPE_F32, 4, &data);
    struct quire_build_options options = options_of(NULL);
    support_build(plain, &data, &options);
    for (unsigned each = 0; each < 2; each++) {
        char *path = support_path(folder, each ? "each" : "one");
        struct key_names names;
        struct layout layout;
        names_alloc(&names, FEW_ROWS);
        for (uint32_t row = 0; row < FEW_ROWS; row++)
            name_row(&names, row, each ? "t%u" : "all", row);
        options = options_of(&names);
        support_build(path, &data, &options);
        verify(path, FEW_ROWS);
        struct segment *segment = support_segment(path);
        assert_int_equal(check_layout(segment, &layout), 0);
        assert_int_equal(layout.n, each ? FEW_ROWS : 1);
        segment_unref(segment);
        assert_true(are_same(plain, path, META_NAME)); /* which says that there are attributes */
        free(layout.tenants);
        names_free(&names);
        free(path);
    }
    support_data_free(&data);
    free(plain);
    support_folder_remove(folder);
}

/* Every tenant is small: every row is in a run. */
static void test_nothing_but_runs(void **state)
{
    struct support_data data;
    struct key_names names;
    struct layout layout;
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    (void)state;
    support_clusters(FEW_ROWS, DIM, QUIRE_TYPE_F32, 4, &data);
    names_alloc(&names, FEW_ROWS);
    for (uint32_t row = 0; row < FEW_ROWS; row++)
        name_row(&names, row, "t%u", row * 7 % 250);
    struct quire_build_options options = options_of(&names);
    support_build(path, &data, &options);
    verify(path, FEW_ROWS);
    struct segment *segment = support_segment(path);
    assert_int_equal(check_layout(segment, &layout), 250);
    segment_unref(segment);
    for (unsigned mode = 0; mode < (kind == QUIRE_INDEX_SPANN ? SPANN_MODES : 1); mode++)
        assert_true(search_all(path, &data, (enum spann_mode)mode).recall > 0.93);
    free(layout.tenants);
    names_free(&names);
    support_data_free(&data);
    free(path);
    support_folder_remove(folder);
}

static void test_names_are_checked(void **state)
{
    struct support_data data;
    struct key_names names;
    struct quire_error err;
    const char *const wrong[] = {"", " a", "a ", "a  b"};
    const char *const attributes[] = {NULL, "\1\1", NULL};
    const uint32_t attribute_bytes[] = {0, 2, 0};
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    (void)state;
    support_clusters(3, DIM, QUIRE_TYPE_F32, 4, &data);
    names_alloc(&names, 3);
    struct quire_build_options options = options_of(&names);
    for (unsigned i = 0; i < SUPPORT_COUNT(wrong); i++) {
        free(names.of[2]);
        names.of[2] = strdup(wrong[i]);
        assert_int_equal(quire_build(path, data.vectors, 3, DIM, data.type, &options, &err), QUIRE_ERANGE);
        assert_non_null(strstr(err.message, "row 2"));
    }
    name_row(&names, 2, "%0*u", (int)TENANT_BYTES_MAX + 1, 1u);
    assert_int_equal(quire_build(path, data.vectors, 3, DIM, data.type, &options, &err), QUIRE_ERANGE);
    free(names.of[2]);
    names.of[2] = calloc(2 * GRANTS_MAX + 2, 1);
    assert_non_null(names.of[2]);
    memset(names.of[2], 'a', 2 * GRANTS_MAX + 1);
    for (uint32_t i = 0; i < GRANTS_MAX; i++)
        names.of[2][2 * i + 1] = ' ';
    assert_int_equal(quire_build(path, data.vectors, 3, DIM, data.type, &options, &err), QUIRE_ELIMIT);
    /* attributes that would be read as grants */
    options.attributes = attributes;
    options.attribute_bytes = attribute_bytes;
    options.tenants = NULL;
    assert_int_equal(quire_build(path, data.vectors, 3, DIM, data.type, &options, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "row 1"));
    assert_int_equal(support_count_entries(folder), 0);
    names_free(&names);
    support_data_free(&data);
    free(path);
    support_folder_remove(folder);
}

/* ---- threads, memory, resumption --------------------------------------------------------------------------------- */

static bool is_there(const char *folder, const char *pattern)
{
    glob_t found;
    char *path = support_path(folder, pattern);
    int rc = glob(path, 0, NULL, &found);
    if (rc == 0)
        globfree(&found);
    free(path);
    return rc == 0;
}

struct job {
    const struct support_data *data;
    unsigned phase, stop_phase;
    char last[40];
    const char *folder; /* where the index is built */
    bool in_files;      /* rows were placed in files */
};

static int on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct job *job = context;
    assert_true(total == 0 || done <= total);
    job->in_files |=
        job->folder && strncmp(phase, "place", 5) == 0 && is_there(job->folder, "*.building-*/work.placed");
    if (strcmp(job->last, phase) != 0) {
        snprintf(job->last, sizeof job->last, "%s", phase);
        job->phase++;
    }
    return job->phase == job->stop_phase;
}

static int read_rows(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    const struct job *job = context;
    size_t bytes = job->data->dim * quire_type_bytes(job->data->type);
    (void)err;
    memcpy(out, job->data->vectors + row * bytes, n * bytes);
    return 0;
}

static int build(struct job *job, const char *path, struct quire_build_options *options, bool streamed,
                 struct quire_error *err)
{
    const struct support_data *data = job->data;
    struct quire_input input = {.rows = data->rows, .dim = data->dim, .type = data->type, .read = read_rows};
    input.vectors = streamed ? NULL : data->vectors;
    input.context = job;
    options->progress = on_progress;
    options->context = job;
    job->phase = 0;
    job->last[0] = 0;
    return quire_build_from(path, &input, options, err);
}

static void build_well(struct job *job, const char *path, struct quire_build_options *options, bool streamed)
{
    struct quire_error err;
    job->stop_phase = 0;
    if (build(job, path, options, streamed, &err) < 0)
        fail_msg("%s", err.message);
}

static uint64_t least_memory(struct job *job, const char *path, struct quire_build_options options)
{
    struct quire_error err;
    options.build_memory_bytes = 1;
    assert_int_equal(build(job, path, &options, false, &err), QUIRE_ELIMIT);
    const char *figure = strstr(err.message, "below the ");
    assert_non_null(figure);
    return strtoull(figure + strlen("below the "), NULL, 10);
}

static void test_threads_memory_and_resumption(void **state)
{
    struct support_data data;
    struct key_names names;
    struct quire_error err;
    char *folder = support_folder_make(), *wanted = support_path(folder, "wanted"), *path = support_path(folder, "it");
    struct job job = {.data = &data, .folder = folder};
    (void)state;
    support_clusters(FEW_ROWS, DIM, QUIRE_TYPE_F32, 4, &data);
    names_draw(&names, FEW_ROWS, TENANTS, 12);
    struct quire_build_options options = options_of(&names);
    build_well(&job, wanted, &options, true);
    unsigned phases = job.phase;
    for (unsigned i = 0; i < 4; i += SANITIZED_SIZE(1, 3)) {
        options.threads = 1 + i;
        options.build_memory_bytes = i < 2 ? 0 : least_memory(&job, path, options) + (SANITIZED ? 32u << 20 : 2u << 20);
        job.in_files = false;
        build_well(&job, path, &options, i % 2);
        assert_true(are_same(wanted, path, NULL));
        /* what a sanitizer takes itself leaves room for everything */
        assert_true(i < 2 ? !job.in_files : job.in_files || SANITIZED);
        assert_int_equal(fs_remove_folder(fs_real(), path, NULL), 0);
    }
    for (unsigned at = phases / 3; at <= phases; at += SANITIZED_SIZE(1, 5)) {
        options.resume = true;
        options.build_memory_bytes =
            at % 2 ? 0 : least_memory(&job, path, options) + (SANITIZED ? 32u << 20 : 2u << 20);
        job.stop_phase = at;
        assert_int_equal(build(&job, path, &options, at % 3, &err), QUIRE_ECANCELLED);
        bool kept = support_count_entries(folder) == 2;
        free(names.of[5]);
        names.of[5] = strdup("somebody");
        job.stop_phase = 0;
        int rc = kept ? build(&job, path, &options, true, &err) : QUIRE_EINVALID;
        assert_int_equal(rc, QUIRE_EINVALID); /* other tenants: not the build that was stopped */
        names_free(&names);
        names_draw(&names, FEW_ROWS, TENANTS, 12);
        options.tenants = (const char *const *)names.of;
        build_well(&job, path, &options, true);
        assert_true(are_same(wanted, path, NULL));
        assert_int_equal(fs_remove_folder(fs_real(), path, NULL), 0);
    }
    names_free(&names);
    support_data_free(&data);
    free(wanted);
    free(path);
    support_folder_remove(folder);
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

#define PARTS 3u

/* Two segments and rows in memory, all granted. */
struct scene {
    char *folder;
    struct support_part parts[PARTS];
    struct key_names names[PARTS];
    struct segment *segments[PARTS - 1];
    uint8_t *dead[PARTS - 1];
    struct merge_options options;
};

/* The part's JSON becomes grants and JSON. */
static void join_texts(struct support_part *part, const struct key_names *names)
{
    for (uint32_t row = 0; row < part->data.rows; row++) {
        struct grant grants[4];
        uint32_t n = 0, bytes;
        char *text, *rest = NULL, *copy = names->of[row] ? strdup(names->of[row]) : NULL;
        struct quire_error err;
        for (char *name = copy ? strtok_r(copy, " ", &rest) : NULL; name; name = strtok_r(NULL, " ", &rest))
            grants[n++] = (struct grant){name, (uint32_t)strlen(name), 0};
        assert_int_equal(grants_join(grants, n, part->attributes[row], part->attribute_bytes[row], &text, &bytes, &err),
                         0);
        free(part->attributes[row]);
        part->attributes[row] = text;
        part->attribute_bytes[row] = bytes;
        free(copy);
    }
}

static void scene_make(struct scene *s, const uint32_t *rows, void (*grant)(struct key_names *names, uint32_t part))
{
    struct quire_build_options build = options_of(NULL);
    *s = (struct scene){.folder = support_folder_make()};
    s->options = (struct merge_options){.build = build, .type = QUIRE_TYPE_F32, .dim = DIM, .tenant_runs = true};
    for (uint32_t p = 0; p < PARTS; p++) {
        char name[16];
        snprintf(name, sizeof name, "part%u", p);
        char *path = support_path(s->folder, name);
        support_part_make(&s->parts[p], name, rows[p], DIM, QUIRE_TYPE_F32, 100 + p, false, true);
        names_draw(&s->names[p], rows[p], TENANTS, 50 + p);
        grant(&s->names[p], p);
        build.tenants = (const char *const *)s->names[p].of;
        if (p < PARTS - 1)
            s->segments[p] = support_part_segment(&s->parts[p], path, &build, true);
        else
            join_texts(&s->parts[p], &s->names[p]);
        free(path);
    }
}

static void scene_free(struct scene *s)
{
    for (uint32_t p = 0; p < PARTS; p++) {
        if (p < PARTS - 1) {
            segment_unref(s->segments[p]);
            free(s->dead[p]);
        }
        names_free(&s->names[p]);
        support_part_free(&s->parts[p]);
    }
    support_folder_remove(s->folder);
}

/* Merges the first n_segments and, where rows, what is in memory; the result is opened. */
static struct segment *merge(struct scene *s, const char *name, uint32_t n_segments, bool rows,
                             struct merge_result *result)
{
    char *path = support_path(s->folder, name);
    struct merge_segment segments[PARTS];
    struct merge_rows memory = support_part_rows(&s->parts[PARTS - 1]);
    struct quire_error err;
    for (uint32_t p = 0; p < n_segments; p++)
        segments[p] = (struct merge_segment){s->segments[p], s->dead[p]};
    if (merge_build(path, segments, n_segments, rows ? &memory : NULL, &s->options, result, &err) < 0)
        fail_msg("%s", err.message);
    verify(path, result->rows);
    struct segment *segment = support_segment(path);
    free(path);
    return segment;
}

/* `grows` has 700 rows in each of the parts; `shrinks` 1,500 in the first, of which most die. */
static void grant_growing(struct key_names *names, uint32_t part)
{
    for (uint32_t i = 0; i < 700; i++)
        name_row(names, i * 4 + 1, "grows");
    for (uint32_t i = 0; part == 0 && i < 1500; i++)
        name_row(names, i * 4 + 2, "shrinks");
}

static void kill_shrinking(struct scene *s)
{
    const struct segment *segment = s->segments[0];
    struct layout layout;
    (void)segment;
    check_layout(s->segments[0], &layout);
    assert_true(tenant_of(&layout, "shrinks")->rows == 1500 && !lies_together(tenant_of(&layout, "shrinks")));
    assert_true(tenant_of(&layout, "grows")->rows == 700 && lies_together(tenant_of(&layout, "grows")));
    free(layout.tenants);
    s->dead[0] = calloc(s->parts[0].data.rows / 8 + 1, 1);
    assert_non_null(s->dead[0]);
}

static int kill_row(void *context, const struct scanned_row *row)
{
    struct scene *s = context;
    uint32_t input = (uint32_t)row->id;
    if (input % 4 == 2 && input / 4 < 1500 && input / 4 >= 400)
        bitmap_add(s->dead[0], row->row);
    return 0;
}

static void test_merges_keep_runs(void **state)
{
    const uint32_t rows[PARTS] = {6400, 3000, 2900};
    struct scene s;
    struct layout layout;
    struct merge_result result;
    struct quire_error err;
    (void)state;
    scene_make(&s, rows, grant_growing);
    kill_shrinking(&s);
    assert_int_equal(segment_scan(s.segments[0], NULL, kill_row, NULL, &s, &err), 0);

    struct segment *sealed = merge(&s, "sealed", 0, true, &result);
    assert_true(check_layout(sealed, &layout) > 100);
    assert_true(tenant_of(&layout, "grows")->rows == 700);
    free(layout.tenants);
    merge_result_fini(&result);
    segment_unref(sealed);

    struct segment *merged = merge(&s, "merged", 2, false, &result);
    assert_true(result.rows == 6400 + 3000 - 1100 && result.reused_rows == 6400 - 1100);
    assert_true(check_layout(merged, &layout) > 300);
    assert_true(tenant_of(&layout, "grows")->rows == 1400 && !lies_together(tenant_of(&layout, "grows")));
    assert_true(tenant_of(&layout, "shrinks")->rows == 400); /* and lies together: check_layout */
    free(layout.tenants);
    merge_result_fini(&result);

    /* once more, with what was merged as the first part; not of each kind under a sanitizer, where it takes minutes */
    if (SANITIZED && kind == QUIRE_INDEX_SPANN) {
        segment_unref(merged);
        scene_free(&s);
        return;
    }
    struct segment *first = s.segments[0];
    uint8_t *dead = s.dead[0];
    s.segments[0] = merged;
    s.dead[0] = NULL;
    struct segment *again = merge(&s, "again", 1, true, &result);
    assert_true(result.rows == 6400 + 3000 - 1100 + 2900 && result.reused_rows == 6400 + 3000 - 1100);
    assert_true(check_layout(again, &layout) > 300 && tenant_of(&layout, "grows")->rows == 2100);
    free(layout.tenants);
    merge_result_fini(&result);
    segment_unref(again);
    segment_unref(merged);
    s.segments[0] = first;
    s.dead[0] = dead;
    scene_free(&s);
}

static void grant_nothing(struct key_names *names, uint32_t part)
{
    (void)names;
    (void)part;
}

/* A merge that is not told of tenants lays nothing out, and under a budget the same comes out. */
static void test_merges_with_and_without(void **state)
{
    const uint32_t rows[PARTS] = {3000, 1500, 500};
    struct scene s;
    struct layout layout;
    struct merge_result result;
    struct quire_error err;
    (void)state;
    scene_make(&s, rows, grant_nothing);
    char *whole = support_path(s.folder, "whole"), *small = support_path(s.folder, "small");
    segment_unref(merge(&s, "whole", 2, true, &result));
    merge_result_fini(&result);
    struct job job = {.data = &s.parts[0].data, .folder = s.folder};
    s.options.build.progress = on_progress;
    s.options.build.context = &job;
    /* what the process holds already comes on top: the message has both figures */
    unsigned long long given, needed;
    struct merge_rows memory = support_part_rows(&s.parts[PARTS - 1]);
    struct merge_segment first = {s.segments[0], NULL};
    s.options.build.build_memory_bytes = 1u << 20;
    assert_int_equal(merge_build(small, &first, 1, &memory, &s.options, &result, &err), QUIRE_ELIMIT);
    assert_int_equal(sscanf(err.message, "a build memory of %llu bytes is below the %llu", &given, &needed), 2);
    s.options.build.build_memory_bytes = (1u << 20) + needed - given + (SANITIZED ? 32u << 20 : 2u << 20);
    segment_unref(merge(&s, "small", 2, true, &result));
    merge_result_fini(&result);
    assert_true(job.in_files || SANITIZED);
    assert_true(are_same(whole, small, KEYS_NAME)); /* whose checksums are seeded with the id */
    s.options.build.build_memory_bytes = 0;
    s.options.tenant_runs = false;
    struct segment *plain = merge(&s, "plain", 2, true, &result);
    layout = (struct layout){0};
    assert_int_equal(segment_scan(plain, NULL, see_row, NULL, &layout, &err), 0);
    assert_false(lies_together(tenant_of(&layout, "t2")));
    free(layout.tenants);
    merge_result_fini(&result);
    segment_unref(plain);
    free(whole);
    free(small);
    scene_free(&s);
}

static int run_with(enum quire_index_kind which, const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_tenants_lie_side_by_side),
        cmocka_unit_test(test_no_runs_no_change),
        cmocka_unit_test(test_nothing_but_runs),
        cmocka_unit_test(test_names_are_checked),
        cmocka_unit_test(test_threads_memory_and_resumption),
        cmocka_unit_test(test_merges_keep_runs),
        cmocka_unit_test(test_merges_with_and_without),
    };
    kind = which;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    int failed = run_with(QUIRE_INDEX_PAGEGRAPH, "tenant layout of a page graph");
    return failed + run_with(QUIRE_INDEX_SPANN, "tenant layout of inverted lists");
}
