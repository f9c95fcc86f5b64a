/*
 * test_embed.c - the lexical embedder: what it must tell apart, what it must refuse, what must not change.
 *
 * The text is the committed sample (156 questions people ask a help desk, 12 topics). Models are fitted once at 48
 * dimensions and shared by the tests that only read them.
 */
#include "datasets/blas.h"
#include "datasets/embed_priv.h"
#include "io/random.h"
#include "io/sections.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

enum { DIM = 48, LINES_MAX = 200 };

static char folder[256];
static char *line[LINES_MAX], *key[LINES_MAX];
static unsigned n_lines;
static struct embed_model *shared;

static void assert_ok(int rc, const struct quire_error *err)
{
    if (rc < 0)
        fail_msg("%s: %s (%s)", quire_error_name(rc), err->message, err->where);
}

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static void fit_lines(const struct embed_fit_options *options, struct embed_model **out)
{
    struct embed_fit *fit = NULL;
    struct quire_error err;
    assert_ok(embed_fit_create(options, &fit, &err), &err);
    for (unsigned i = 0; i < n_lines; i++)
        assert_ok(embed_fit_line(fit, line[i], strlen(line[i]), &err), &err);
    assert_ok(embed_fit_finish(fit, out, &err), &err);
    embed_fit_destroy(fit);
}

static struct embed_fit_options options_of(uint32_t dim, uint64_t seed, unsigned threads)
{
    struct embed_fit_options options;
    embed_fit_options_init(&options);
    options.dim = dim;
    options.seed = seed;
    options.threads = threads;
    return options;
}

static void vector_of(const struct embed_model *model, const char *text, float *vector)
{
    struct quire_error err;
    assert_ok(embed_apply(model, text, strlen(text), vector, &err), &err);
}

static float dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return (float)sum;
}

static float cosine(const struct embed_model *model, const char *a, const char *b)
{
    float va[EMBED_DIM_MAX], vb[EMBED_DIM_MAX];
    struct embed_info info;
    embed_model_info(model, &info);
    vector_of(model, a, va);
    vector_of(model, b, vb);
    return dot(va, vb, info.dim);
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/quire-embed-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    FILE *in = fopen(QUIRE_SOURCE_DIR "/datasets/sample.tsv", "r");
    if (!in)
        return -1;
    char buffer[1024];
    while (n_lines < LINES_MAX && fgets(buffer, sizeof buffer, in)) {
        buffer[strcspn(buffer, "\n")] = 0;
        char *tab = strchr(buffer, '\t');
        *tab = 0;
        key[n_lines] = strdup(buffer);
        line[n_lines++] = strdup(tab + 1);
    }
    fclose(in);
    struct embed_fit_options options = options_of(DIM, 1, 2);
    fit_lines(&options, &shared);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct quire_error err;
    for (unsigned i = 0; i < n_lines; i++) {
        free(line[i]);
        free(key[i]);
    }
    embed_model_free(shared);
    return fs_remove_folder(fs_real(), folder, &err);
}

/* ---- features ---------------------------------------------------------------------------------------------------- */

static uint32_t count_features(const char *text, size_t bytes)
{
    struct features f = {0};
    struct quire_error err;
    assert_ok(embed_features_of(&f, text, bytes, &err), &err);
    for (uint32_t i = 1; i < f.n; i++)
        assert_true(embed_feature_bucket(f.entries[i - 1]) < embed_feature_bucket(f.entries[i]));
    uint32_t n = f.n;
    embed_features_fini(&f);
    return n;
}

static bool same_features(const char *a, const char *b)
{
    struct features fa = {0}, fb = {0};
    struct quire_error err;
    assert_ok(embed_features_of(&fa, a, strlen(a), &err), &err);
    assert_ok(embed_features_of(&fb, b, strlen(b), &err), &err);
    bool same = fa.n == fb.n && memcmp(fa.entries, fb.entries, fa.n * sizeof *fa.entries) == 0;
    embed_features_fini(&fa);
    embed_features_fini(&fb);
    return same;
}

static void test_features(void **state)
{
    (void)state;
    assert_int_equal(count_features("", 0), 0);
    assert_int_equal(count_features(" ,.!?\t\0-", 8), 0);
    /* " a ": word, one part. " ab ": word, parts " ab" "ab " " ab ". */
    assert_int_equal(count_features("a", 1), 2);
    assert_int_equal(count_features("ab", 2), 4);
    /* " cat " and " dog ": 2 words, 1 pair, 2 * (3 + 2 + 1) parts. */
    assert_int_equal(count_features("cat dog", 7), 15);
    /* Two letters of two bytes each are two characters, as in "ab". */
    assert_int_equal(count_features("\xc3\xa4\xc3\xb6", 4), 4);
    assert_true(same_features("The CAT, the dog!", "the cat the dog"));
    assert_true(same_features("don't", "DONT"));
    assert_true(same_features("'quoted'", "quoted"));
    assert_false(same_features("cat dog", "dog cat"));
}

static void test_feature_counts_and_groups(void **state)
{
    (void)state;
    struct features f = {0};
    struct quire_error err;
    char text[4096];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "x "[i % 2];
    assert_ok(embed_features_of(&f, text, sizeof text, &err), &err);
    assert_int_equal(f.n, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(embed_feature_count(f.entries[i]), EMBED_COUNT_MAX);
        assert_int_equal(embed_bucket_group(embed_feature_bucket(f.entries[i])), i); /* word, pair, part */
    }
    embed_features_fini(&f);
}

/* ---- linear algebra ---------------------------------------------------------------------------------------------- */

/* About a third of the places filled; the dense copy is for the model answers. */
static void random_sparse(struct sparse *a, uint32_t rows, uint32_t columns, float *dense, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    a->rows = rows;
    a->columns = columns;
    a->start = calloc(rows + 1, sizeof *a->start);
    a->column = calloc((size_t)rows * columns, sizeof *a->column);
    a->value = calloc((size_t)rows * columns, sizeof *a->value);
    memset(dense, 0, (size_t)rows * columns * sizeof *dense);
    uint64_t n = 0;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < columns; c++)
            if (random_below(&random, 3) == 0) {
                a->column[n] = c;
                a->value[n] = (float)random_below(&random, 1000) / 500 - 1;
                dense[r * columns + c] = a->value[n++];
            }
        a->start[r + 1] = n;
    }
}

static void test_sparse_products(void **state)
{
    (void)state;
    enum { ROWS = 700, COLUMNS = 31, WIDTH = 5 };
    static float dense[ROWS * COLUMNS], x[ROWS * WIDTH], y[ROWS * WIDTH];
    struct sparse a, t;
    struct quire_error err;
    random_sparse(&a, ROWS, COLUMNS, dense, 7);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i % 17) - 8;
    assert_int_equal(embed_sparse_multiply(&a, x, y, WIDTH, 3, NULL), 0);
    for (int r = 0; r < ROWS; r++)
        for (int w = 0; w < WIDTH; w++) {
            double sum = 0;
            for (int c = 0; c < COLUMNS; c++)
                sum += (double)dense[r * COLUMNS + c] * x[c * WIDTH + w];
            assert_true(fabs(sum - y[r * WIDTH + w]) < 1e-3);
        }
    assert_ok(embed_sparse_transpose(&a, &t, &err), &err);
    assert_int_equal(t.rows, COLUMNS);
    assert_int_equal(embed_sparse_multiply(&t, x, y, WIDTH, 1, NULL), 0);
    for (int c = 0; c < COLUMNS; c++)
        for (int w = 0; w < WIDTH; w++) {
            double sum = 0;
            for (int r = 0; r < ROWS; r++)
                sum += (double)dense[r * COLUMNS + c] * x[r * WIDTH + w];
            assert_true(fabs(sum - y[c * WIDTH + w]) < 2e-2);
        }
    embed_sparse_fini(&a);
    embed_sparse_fini(&t);
}

/* Against the eigenvalues of A'A, made densely: the basis is orthonormal and holds as much of A as the best one. */
static void test_svd(void **state)
{
    (void)state;
    enum { ROWS = 90, COLUMNS = 60, KEEP = 10 };
    static float dense[ROWS * COLUMNS], gram[COLUMNS * COLUMNS], values[COLUMNS];
    struct sparse a;
    struct blas blas;
    struct quire_error err;
    float *basis = NULL;
    random_sparse(&a, ROWS, COLUMNS, dense, 3);
    assert_ok(blas_open(&blas, &err), &err);
    blas_gram(&blas, dense, gram, ROWS, COLUMNS);
    assert_ok(blas_eigen_symmetric(&blas, gram, COLUMNS, values, &err), &err);
    assert_ok(embed_svd_right(&a, KEEP, 5, 2, NULL, &basis, &err), &err);
    blas_gram(&blas, basis, gram, COLUMNS, KEEP);
    for (int i = 0; i < KEEP * KEEP; i++)
        assert_true(fabsf(gram[i] - (i % (KEEP + 1) == 0)) < 1e-3f);
    double held = 0, best = 0;
    for (int d = 0; d < KEEP; d++) {
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int c = 0; c < COLUMNS; c++)
                sum += (double)dense[r * COLUMNS + c] * basis[c * KEEP + d];
            held += sum * sum;
        }
        best += values[COLUMNS - 1 - d];
    }
    assert_true(held <= best * 1.001 && held >= best * 0.99);
    blas_close(&blas);
    free(basis);
    embed_sparse_fini(&a);
}

/* A basis of dependent columns: still orthonormal, and it spans them. */
static void test_orthonormalise_dependent_columns(void **state)
{
    (void)state;
    enum { N = 40, WIDTH = 4 };
    float a[N * WIDTH], first[N], gram[WIDTH * WIDTH];
    struct blas blas;
    struct quire_error err;
    assert_ok(blas_open(&blas, &err), &err);
    for (int i = 0; i < N; i++) {
        first[i] = (float)(i % 7) - 3;
        a[i * WIDTH] = first[i];
        a[i * WIDTH + 1] = 2 * first[i];
        a[i * WIDTH + 2] = 0;
        a[i * WIDTH + 3] = (float)i;
    }
    assert_ok(blas_orthonormalise(&blas, a, N, WIDTH, NULL, 0, 0, &err), &err);
    blas_gram(&blas, a, gram, N, WIDTH);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        assert_true(fabsf(gram[i] - (i % (WIDTH + 1) == 0)) < 1e-5f);
    double held = 0, length = dot(first, first, N);
    for (int w = 0; w < WIDTH; w++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += (double)a[i * WIDTH + w] * first[i];
        held += sum * sum;
    }
    assert_true(fabs(held - length) < 1e-3 * length);
    blas_close(&blas);
}

/* Counts steps, and stops at one of them. */
struct steps {
    uint64_t seen, stop_at, before, total;
};

static int on_step(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct steps *steps = context;
    assert_string_equal(phase, "steps");
    assert_int_equal(done, steps->before + ++steps->seen);
    assert_int_equal(total, steps->total);
    return steps->seen == steps->stop_at;
}

/* More columns than a panel holds, so that panels have others before and behind them: the result is an orthonormal
 * basis that spans the columns, and each step is told. */
static void test_orthonormalise_by_panels(void **state)
{
    (void)state;
    enum { N = 150, WIDTH = 75 };
    static float before[N * WIDTH], a[N * WIDTH], gram[WIDTH * WIDTH];
    struct blas blas;
    struct quire_error err;
    struct random random;
    random_init(&random, 11);
    for (int i = 0; i < N * WIDTH; i++)
        before[i] = (float)(random_next(&random) >> 40) * 0x1p-23f - 1.0f;
    memcpy(a, before, sizeof a);
    struct steps steps = {.before = 5, .total = 99};
    struct progress progress = {on_step, &steps, "steps"};
    assert_ok(blas_open(&blas, &err), &err);
    assert_ok(blas_orthonormalise(&blas, a, N, WIDTH, &progress, 5, 99, &err), &err);
    assert_int_equal(steps.seen, blas_orthonormalise_steps(WIDTH));
    assert_int_equal(steps.seen, 6);
    blas_gram(&blas, a, gram, N, WIDTH);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        assert_true(fabsf(gram[i] - (i % (WIDTH + 1) == 0)) < 1e-4f);
    for (int c = 0; c < WIDTH; c++) { /* what of a column is outside of the basis' span */
        double outside[N];
        for (int i = 0; i < N; i++)
            outside[i] = before[i * WIDTH + c];
        for (int w = 0; w < WIDTH; w++) {
            double along = 0;
            for (int i = 0; i < N; i++)
                along += (double)a[i * WIDTH + w] * before[i * WIDTH + c];
            for (int i = 0; i < N; i++)
                outside[i] -= along * a[i * WIDTH + w];
        }
        for (int i = 0; i < N; i++)
            assert_true(fabs(outside[i]) < 1e-4);
    }
    for (uint64_t at = 1; at <= 6; at++) {
        memcpy(a, before, sizeof a);
        steps = (struct steps){.stop_at = at, .before = 5, .total = 99};
        assert_int_equal(blas_orthonormalise(&blas, a, N, WIDTH, &progress, 5, 99, &err), QUIRE_ECANCELLED);
        assert_int_equal(steps.seen, at);
    }
    blas_close(&blas);
}

static void expect_no_blas(const char *library, const char *wanted)
{
    struct blas blas;
    struct quire_error err = {0};
    setenv("QUIRE_BLAS", library, 1);
    assert_int_equal(blas_open(&blas, &err), QUIRE_EUNSUPPORTED);
    unsetenv("QUIRE_BLAS");
    assert_non_null(strstr(err.message, "libopenblas0-pthread"));
    assert_non_null(strstr(err.message, wanted));
}

static void test_no_blas(void **state)
{
    (void)state;
    expect_no_blas("/nonexistent/libblas.so", "/nonexistent/libblas.so");
    expect_no_blas("libm.so.6", "cblas_sgemm");
}

/* ---- what it is for ---------------------------------------------------------------------------------------------- */

static void test_unit_vectors(void **state)
{
    (void)state;
    float v[DIM];
    for (unsigned i = 0; i < n_lines; i++) {
        vector_of(shared, line[i], v);
        assert_true(fabsf(dot(v, v, DIM) - 1) < 1e-5f);
    }
}

static void test_near_duplicates_are_near(void **state)
{
    (void)state;
    const char *asked = "How can I reset my password";
    assert_true(cosine(shared, asked, "How do I reset my password?") > 0.9f);
    assert_true(cosine(shared, "cancelling my subscriptions", "How do I cancel my subscription?") > 0.5f);
    assert_true(cosine(shared, "the app crashs when opend", "The app crashes when I open it.") > 0.7f);
    const char *unrelated[] = {"Where is my parcel?", "Is there a vegetarian meal on the flight?",
                               "The router shows a red light, what does it mean?", "Do you deliver to islands?"};
    for (size_t i = 0; i < sizeof unrelated / sizeof *unrelated; i++)
        assert_true(cosine(shared, asked, unrelated[i]) < 0.4f);
}

/* The topic is the part of the key before the dash; one in twelve would be right by chance. */
static void test_nearest_question_has_the_topic(void **state)
{
    (void)state;
    static float v[LINES_MAX][DIM];
    unsigned right = 0;
    for (unsigned i = 0; i < n_lines; i++)
        vector_of(shared, line[i], v[i]);
    for (unsigned i = 0; i < n_lines; i++) {
        unsigned nearest = i == 0;
        for (unsigned j = 0; j < n_lines; j++)
            if (j != i && dot(v[i], v[j], DIM) > dot(v[i], v[nearest], DIM))
                nearest = j;
        size_t topic = strcspn(key[i], "-") + 1;
        right += strncmp(key[i], key[nearest], topic) == 0;
    }
    assert_true(right * 2 > n_lines);
}

/* ---- determinism ------------------------------------------------------------------------------------------------- */

static char *file_bytes(const char *path, size_t *bytes)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    *bytes = (size_t)ftell(in);
    rewind(in);
    char *data = malloc(*bytes + 1);
    assert_int_equal(fread(data, 1, *bytes, in), *bytes);
    fclose(in);
    return data;
}

static void write_bytes(const char *path, const char *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    fclose(out);
}

static char *saved_fit(uint64_t seed, unsigned threads, size_t *bytes)
{
    struct embed_fit_options options = options_of(DIM, seed, threads);
    struct embed_model *model;
    struct quire_error err;
    const char *path = in_folder("deterministic");
    fit_lines(&options, &model);
    assert_ok(embed_model_save(model, path, &err), &err); /* replaces the one before */
    embed_model_free(model);
    return file_bytes(path, bytes);
}

static void test_same_seed_same_bytes(void **state)
{
    (void)state;
    size_t a_bytes, b_bytes, c_bytes;
    char *a = saved_fit(11, 1, &a_bytes), *b = saved_fit(11, 3, &b_bytes), *c = saved_fit(12, 1, &c_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    assert_int_equal(a_bytes, c_bytes);
    assert_memory_not_equal(a, c, a_bytes);
    free(a);
    free(b);
    free(c);
}

static void test_saved_model_gives_the_same_vectors(void **state)
{
    (void)state;
    const char *path = in_folder("model");
    struct embed_model *model;
    struct quire_error err;
    struct embed_info before, after;
    float a[DIM], b[DIM];
    assert_ok(embed_model_save(shared, path, &err), &err);
    assert_ok(embed_model_open(path, &model, &err), &err);
    embed_model_info(shared, &before);
    embed_model_info(model, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(after.dim, DIM);
    assert_int_equal(after.lines, n_lines);
    for (unsigned i = 0; i < n_lines; i++) {
        vector_of(shared, line[i], a);
        vector_of(model, line[i], b);
        assert_memory_equal(a, b, sizeof a);
    }
    embed_model_free(model);
}

/* ---- text that is empty, strange or long ------------------------------------------------------------------------- */

static void expect_zero(const char *text, size_t bytes)
{
    float v[DIM];
    struct quire_error err;
    memset(v, 1, sizeof v);
    assert_int_equal(embed_known(shared, text, bytes, &err), 0);
    assert_int_equal(embed_apply(shared, text, bytes, v, &err), QUIRE_EZEROVEC);
    for (size_t i = 0; i < sizeof v; i++)
        assert_int_equal(((const char *)v)[i], 1); /* untouched on failure */
}

static void test_empty_text(void **state)
{
    (void)state;
    expect_zero("", 0);
    expect_zero("\0\0\0", 3);
    expect_zero("?!... --- \r\n", 12);
    expect_zero("\xe6\x97\xa5\xe6\x9c\xac", 6); /* letters, but none that the model has seen */
    struct quire_error err;
    assert_int_equal(embed_known(shared, "password", 8, &err), 1);
}

static void test_any_bytes(void **state)
{
    (void)state;
    struct random random;
    struct quire_error err;
    char text[300];
    float v[DIM];
    random_init(&random, 99);
    for (int round = 0; round < 2000; round++) {
        size_t bytes = random_below(&random, sizeof text);
        for (size_t i = 0; i < bytes; i++)
            text[i] = (char)(round % 2 ? 0x80 | random_next(&random) >> 57 : random_next(&random) >> 56);
        /* An exact copy on the heap, so that a sanitizer sees a read past the end. */
        char *copy = malloc(bytes + 1);
        memcpy(copy, text, bytes);
        char *exact = realloc(copy, bytes ? bytes : 1);
        int rc = embed_apply(shared, exact, bytes, v, &err);
        assert_true(rc == 0 || rc == QUIRE_EZEROVEC);
        if (rc == 0)
            assert_true(fabsf(dot(v, v, DIM) - 1) < 1e-5f);
        free(exact);
    }
}

static void test_damaged_utf8_keeps_the_rest(void **state)
{
    (void)state;
    assert_true(cosine(shared, "how do I reset my password \xff\xfe\xc3", "How do I reset my password?") > 0.9f);
}

static void test_long_text(void **state)
{
    (void)state;
    size_t bytes = EMBED_TEXT_BYTES_MAX;
    char *text = malloc(bytes + 1);
    struct quire_error err;
    float v[DIM];
    for (size_t i = 0; i < bytes; i++)
        text[i] = "reset  password "[i % 16];
    assert_ok(embed_apply(shared, text, bytes, v, &err), &err);
    memset(text, 'a', bytes); /* one word */
    assert_int_equal(embed_apply(shared, text, bytes, v, &err), QUIRE_EZEROVEC);
    memset(text, 0x80, bytes); /* one word of one damaged character */
    assert_int_equal(embed_apply(shared, text, bytes, v, &err), QUIRE_EZEROVEC);
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)(i % 2 ? ' ' : 'a' + i / 2 % 26); /* as many words as there can be */
    assert_in_range(count_features(text, bytes), 26 * 3, 26 * 3 + 1);
    assert_int_equal(embed_apply(shared, text, bytes + 1, v, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "1048577"));
    struct embed_fit_options options = options_of(DIM, 1, 1);
    struct embed_fit *fit;
    assert_ok(embed_fit_create(&options, &fit, &err), &err);
    assert_int_equal(embed_fit_line(fit, text, bytes + 1, &err), QUIRE_ELIMIT);
    embed_fit_destroy(fit);
    free(text);
}

/* ---- fits that cannot be ----------------------------------------------------------------------------------------- */

static int fit_of(const char *const *texts, unsigned n, uint32_t dim, struct quire_error *err)
{
    struct embed_fit_options options = options_of(dim, 1, 1);
    struct embed_fit *fit = NULL;
    struct embed_model *model = NULL;
    int rc = embed_fit_create(&options, &fit, err);
    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = embed_fit_line(fit, texts[i], strlen(texts[i]), err);
    if (rc == 0)
        rc = embed_fit_finish(fit, &model, err);
    embed_fit_destroy(fit);
    embed_model_free(model);
    return rc;
}

static void test_dimensions_that_cannot_be(void **state)
{
    (void)state;
    struct quire_error err = {0};
    assert_int_equal(fit_of(NULL, 0, 0, &err), QUIRE_EDIM);
    assert_int_equal(fit_of(NULL, 0, EMBED_DIM_MAX + 1, &err), QUIRE_EDIM);
    assert_non_null(strstr(err.message, "1025"));
    assert_int_equal(fit_of((const char *const *)line, n_lines, 256, &err), QUIRE_EDIM);
    assert_non_null(strstr(err.message, "256 dimensions were asked for"));
}

/* Seven texts, of which three are different: the message says what works, and that works. */
static void test_rank_is_told(void **state)
{
    (void)state;
    const char *texts[] = {"red apple", "green pear", "red apple", "blue plum", "green pear", "blue plum", "red apple"};
    struct quire_error err = {0};
    assert_int_equal(fit_of(texts, 7, 6, &err), QUIRE_EDIM);
    assert_non_null(strstr(err.message, "give --dim 3 or less"));
    assert_ok(fit_of(texts, 7, 3, &err), &err);
    assert_ok(fit_of(texts, 7, 1, &err), &err);
}

static void test_nothing_to_learn_from(void **state)
{
    (void)state;
    struct quire_error err = {0};
    const char *apart[] = {"abcdef", "ghijkl", "mnopqr"}, *empty[] = {"", "...", "\n"};
    assert_int_equal(fit_of(NULL, 0, 4, &err), QUIRE_EDIM);
    assert_int_equal(fit_of(apart, 3, 1, &err), QUIRE_EDIM);
    assert_non_null(strstr(err.message, "3 texts"));
    assert_int_equal(fit_of(empty, 3, 1, &err), QUIRE_EDIM);
}

struct stop {
    uint64_t calls, stop_at, decomposed;
};

static int stop(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct stop *s = context;
    assert_true(done <= total);
    assert_true(strcmp(phase, s->calls == 0 ? "weigh words" : "decompose") == 0 || strcmp(phase, "weigh words") == 0);
    assert_true(strcmp(phase, "decompose") != 0 || done >= s->decomposed);
    s->decomposed = strcmp(phase, "decompose") == 0 ? done : 0;
    return ++s->calls == s->stop_at;
}

/* Stopped at each of its calls in turn; the last one is at the end of the last product. */
static void test_cancel(void **state)
{
    (void)state;
    struct stop all = {0};
    for (uint64_t at = 1; at == 1 || at <= all.calls; at++) {
        struct stop s = {.stop_at = at - 1};
        struct embed_fit_options options = options_of(DIM, 1, 2);
        options.progress = stop;
        options.context = &s;
        struct embed_fit *fit;
        struct embed_model *model = NULL;
        struct quire_error err;
        assert_ok(embed_fit_create(&options, &fit, &err), &err);
        for (unsigned i = 0; i < n_lines; i++)
            assert_ok(embed_fit_line(fit, line[i], strlen(line[i]), &err), &err);
        int rc = embed_fit_finish(fit, &model, &err);
        if (at == 1) {
            assert_ok(rc, &err);
            assert_true(s.calls > 12); /* eight products and four orthonormalisations of several steps */
            all = s;
        } else {
            assert_int_equal(rc, QUIRE_ECANCELLED);
            assert_string_equal(err.message, "the fit was cancelled");
            assert_null(model);
            assert_int_equal(s.calls, s.stop_at);
        }
        embed_model_free(model);
        embed_fit_destroy(fit);
    }
}

/* More texts than are kept: all are counted, a sample is decomposed, and the result still works. */
static void test_more_text_than_is_kept(void **state)
{
    (void)state;
    enum { TEXTS = 140000 };
    static const char *const words[] = {"north", "south", "east", "west", "up", "down", "left", "right"};
    struct embed_fit_options options = options_of(6, 1, 2);
    struct embed_fit *fit;
    struct embed_model *model;
    struct quire_error err;
    struct embed_info info;
    assert_ok(embed_fit_create(&options, &fit, &err), &err);
    for (unsigned i = 0; i < TEXTS; i++) {
        const char *word = words[i * 2654435761u >> 29];
        assert_ok(embed_fit_line(fit, word, strlen(word), &err), &err);
    }
    assert_ok(embed_fit_finish(fit, &model, &err), &err);
    embed_model_info(model, &info);
    assert_int_equal(info.lines, TEXTS);
    assert_in_range(info.rows, TEXTS / 2 - 2000, TEXTS / 2 + 2000);
    assert_true(cosine(model, "north", "north") > 0.999f);
    embed_model_free(model);
    embed_fit_destroy(fit);
}

/* ---- whole files ------------------------------------------------------------------------------------------------- */

struct taken {
    unsigned n, stop_at;
    unsigned number[LINES_MAX];
    float vector[LINES_MAX][DIM];
    char key[LINES_MAX][32];
};

static int take(void *context, const struct embed_line *taken_line, const float *vector)
{
    struct taken *t = context;
    if (t->n == t->stop_at)
        return QUIRE_ENOSPACE;
    t->number[t->n] = (unsigned)taken_line->number;
    memcpy(t->vector[t->n], vector, sizeof t->vector[0]);
    snprintf(t->key[t->n++], sizeof t->key[0], "%.*s", (int)taken_line->key_bytes, taken_line->key);
    return 0;
}

static int run_file(const char *path, bool skip, struct taken *t, uint64_t *skipped, struct quire_error *err)
{
    struct embed_lines *lines = NULL;
    struct embed_run run = {.threads = 3, .skip_empty = skip, .take = take, .context = t};
    uint64_t rows = 0;
    assert_ok(embed_lines_open(path, 2, 1, false, &lines, err), err);
    int rc = embed_lines_apply(shared, lines, &run, &rows, skipped, err);
    embed_lines_close(lines);
    if (rc == 0)
        assert_int_equal(rows, t->n);
    return rc;
}

static void test_whole_file(void **state)
{
    (void)state;
    static struct taken t;
    struct quire_error err;
    uint64_t skipped = 99;
    float v[DIM];
    t = (struct taken){.stop_at = LINES_MAX};
    assert_ok(run_file(QUIRE_SOURCE_DIR "/datasets/sample.tsv", false, &t, &skipped, &err), &err);
    assert_int_equal(t.n, n_lines);
    assert_int_equal(skipped, 0);
    for (unsigned i = 0; i < n_lines; i++) {
        vector_of(shared, line[i], v);
        assert_memory_equal(v, t.vector[i], sizeof v);
        assert_string_equal(t.key[i], key[i]);
    }
    t = (struct taken){.stop_at = 3};
    assert_int_equal(run_file(QUIRE_SOURCE_DIR "/datasets/sample.tsv", false, &t, NULL, &err), QUIRE_ENOSPACE);
    assert_int_equal(t.n, 3);
}

static void test_lines_without_a_vector(void **state)
{
    (void)state;
    static const char text[] = "a\tthe parcel\nb\t\nc\t--\nd\tmy password\n";
    static struct taken t;
    struct quire_error err;
    uint64_t skipped = 0;
    const char *path = in_folder("gaps.tsv");
    write_bytes(path, text, sizeof text - 1);
    t = (struct taken){.stop_at = LINES_MAX};
    assert_int_equal(run_file(path, false, &t, &skipped, &err), QUIRE_EZEROVEC);
    assert_non_null(strstr(err.message, "line 2: "));
    t = (struct taken){.stop_at = LINES_MAX};
    assert_ok(run_file(path, true, &t, &skipped, &err), &err);
    assert_int_equal(t.n, 2);
    assert_int_equal(skipped, 2);
    assert_int_equal(t.number[1], 4);
    assert_string_equal(t.key[1], "d");
}

/* ---- damaged models ---------------------------------------------------------------------------------------------- */

static int open_code(const char *path, struct quire_error *err)
{
    struct embed_model *model = NULL;
    int rc = embed_model_open(path, &model, err);
    embed_model_free(model);
    return rc;
}

static void test_truncated_model(void **state)
{
    (void)state;
    struct quire_error err;
    const char *good = in_folder("whole"), *bad = in_folder("cut");
    size_t bytes;
    assert_ok(embed_model_save(shared, good, &err), &err);
    char *data = file_bytes(good, &bytes);
    const size_t cuts[] = {0, 1, 100, 4095, 4096, 5000, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_bytes(bad, data, cuts[i]);
        int rc = open_code(bad, &err);
        assert_true(rc == QUIRE_ETRUNCATED || rc == QUIRE_EFORMAT || rc == QUIRE_ECORRUPT || rc == QUIRE_ESHORTREAD);
        assert_non_null(strstr(err.message, "cut"));
    }
    free(data);
    assert_int_equal(open_code(in_folder("there is none"), &err), QUIRE_ENOFILE);
}

static void test_flipped_bits(void **state)
{
    (void)state;
    struct quire_error err;
    const char *good = in_folder("whole"), *bad = in_folder("flipped");
    size_t bytes;
    assert_ok(embed_model_save(shared, good, &err), &err);
    char *data = file_bytes(good, &bytes);
    struct section_file *file;
    assert_ok(section_file_open(fs_real(), good, EMBED_KIND, NULL, FS_READ, &file, &err), &err);
    assert_int_equal(section_count(file), 4);
    for (uint32_t s = 0; s < 4; s++) {
        const struct section_entry *e = section_at(file, s);
        const uint64_t places[] = {e->offset, e->offset + e->bytes / 2, e->offset + e->bytes - 1};
        for (int p = 0; p < 3; p++) {
            data[places[p]] ^= 0x10;
            write_bytes(bad, data, bytes);
            assert_int_equal(open_code(bad, &err), QUIRE_ECORRUPT);
            data[places[p]] ^= 0x10;
        }
    }
    section_file_close(file);
    for (size_t place = 0; place < 64; place += 9) { /* the superblock */
        data[place] ^= 1;
        write_bytes(bad, data, bytes);
        assert_true(open_code(bad, &err) < 0);
        data[place] ^= 1;
    }
    free(data);
}

/* A model of two features and two dimensions made by hand, whole as a container, with one thing wrong in it. */
struct made {
    uint32_t kind, version, dim, features;
    float weight;
    uint32_t bucket[2];
    float idf[2];
    uint16_t projection[4];
    size_t projection_bytes;
};
static const struct made GOOD = {.kind = EMBED_KIND,
                                 .version = 1,
                                 .dim = 2,
                                 .features = 2,
                                 .weight = 1,
                                 .bucket = {5, 9},
                                 .idf = {1, 2},
                                 .projection = {0x3c00, 0, 0, 0x3c00},
                                 .projection_bytes = 8};

static void put_section(struct section_writer *w, uint32_t id, const void *data, size_t bytes)
{
    struct quire_error err;
    assert_ok(section_begin(w, id, 0, &err), &err);
    assert_ok(section_write(w, data, bytes, &err), &err);
    assert_ok(section_end(w, &err), &err);
}

static int open_made(const struct made *m, struct quire_error *err)
{
    const char *path = in_folder("made");
    const uint8_t id[16] = {1};
    struct section_writer *w;
    uint8_t parameters[64] = {0};
    memcpy(parameters, &m->version, 4);
    memcpy(parameters + 4, &m->dim, 4);
    memcpy(parameters + 8, &m->features, 4);
    for (int g = 0; g < 3; g++)
        memcpy(parameters + 12 + 4 * g, &m->weight, 4);
    unlink(path);
    assert_ok(section_writer_create(fs_real(), path, m->kind, id, &w, err), err);
    put_section(w, 1, parameters, sizeof parameters);
    put_section(w, 2, m->bucket, sizeof m->bucket);
    put_section(w, 3, m->idf, sizeof m->idf);
    if (m->projection_bytes > 0)
        put_section(w, 4, m->projection, m->projection_bytes);
    assert_ok(section_writer_finish(w, err), err);
    return open_code(path, err);
}

static void test_models_that_lie(void **state)
{
    (void)state;
    struct quire_error err;
    struct made m = GOOD;
    assert_ok(open_made(&m, &err), &err);
    m.kind = EMBED_KIND + 1;
    assert_true(open_made(&m, &err) < 0);
#define EXPECT_MADE(code, change)                                                                                      \
    do {                                                                                                               \
        m = GOOD;                                                                                                      \
        change;                                                                                                        \
        assert_int_equal(open_made(&m, &err), code);                                                                   \
    } while (0)
    EXPECT_MADE(QUIRE_EVERSION, m.version = 2);
    EXPECT_MADE(QUIRE_ECORRUPT, m.dim = 0);
    EXPECT_MADE(QUIRE_ECORRUPT, m.dim = 1); /* the projection is larger than that */
    EXPECT_MADE(QUIRE_ECORRUPT, m.dim = EMBED_DIM_MAX + 1);
    EXPECT_MADE(QUIRE_ECORRUPT, m.features = 0);
    EXPECT_MADE(QUIRE_ECORRUPT, m.features = 3);
    EXPECT_MADE(QUIRE_ECORRUPT, m.features = UINT32_MAX);
    EXPECT_MADE(QUIRE_ECORRUPT, m.weight = NAN);
    EXPECT_MADE(QUIRE_ECORRUPT, m.weight = -1);
    EXPECT_MADE(QUIRE_ECORRUPT, m.bucket[1] = 5);
    EXPECT_MADE(QUIRE_ECORRUPT, m.bucket[1] = EMBED_BUCKETS);
    EXPECT_MADE(QUIRE_ECORRUPT, m.idf[0] = INFINITY);
    EXPECT_MADE(QUIRE_ECORRUPT, m.idf[1] = 0);
    EXPECT_MADE(QUIRE_ECORRUPT, m.projection[3] = 0x7c00);
    EXPECT_MADE(QUIRE_ECORRUPT, m.projection[0] = 0xfe01);
    EXPECT_MADE(QUIRE_ECORRUPT, m.projection_bytes = 6);
    EXPECT_MADE(QUIRE_ECORRUPT, m.projection_bytes = 0); /* no such section */
#undef EXPECT_MADE
}

/* Known features whose rows are all zero, or nothing but weights of zero: no direction, and it says so. */
static void test_zero_projection(void **state)
{
    (void)state;
    struct quire_error err;
    struct embed_model *model;
    struct features f = {0};
    float v[2];
    struct made m = GOOD;
    assert_ok(embed_features_of(&f, "x", 1, &err), &err);
    m.bucket[0] = embed_feature_bucket(f.entries[0]);
    m.bucket[1] = embed_feature_bucket(f.entries[1]);
    embed_features_fini(&f);
    assert_ok(open_made(&m, &err), &err);
    assert_ok(embed_model_open(in_folder("made"), &model, &err), &err);
    assert_ok(embed_apply(model, "x", 1, v, &err), &err);
    assert_true(fabsf(dot(v, v, 2) - 1) < 1e-5f);
    embed_model_free(model);
    memset(m.projection, 0, sizeof m.projection);
    assert_ok(open_made(&m, &err), &err);
    assert_ok(embed_model_open(in_folder("made"), &model, &err), &err);
    assert_int_equal(embed_apply(model, "x", 1, v, &err), QUIRE_EZEROVEC);
    embed_model_free(model);
    m.weight = 0;
    assert_ok(open_made(&m, &err), &err);
    assert_ok(embed_model_open(in_folder("made"), &model, &err), &err);
    assert_int_equal(embed_apply(model, "x", 1, v, &err), QUIRE_EZEROVEC);
    embed_model_free(model);
}

static void test_save_into_nowhere(void **state)
{
    (void)state;
    struct quire_error err = {0};
    assert_true(embed_model_save(shared, in_folder("none/model"), &err) < 0);
    assert_non_null(strstr(err.message, "none/model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_feature_counts_and_groups),
        cmocka_unit_test(test_sparse_products),
        cmocka_unit_test(test_svd),
        cmocka_unit_test(test_orthonormalise_dependent_columns),
        cmocka_unit_test(test_orthonormalise_by_panels),
        cmocka_unit_test(test_no_blas),
        cmocka_unit_test(test_unit_vectors),
        cmocka_unit_test(test_near_duplicates_are_near),
        cmocka_unit_test(test_nearest_question_has_the_topic),
        cmocka_unit_test(test_same_seed_same_bytes),
        cmocka_unit_test(test_saved_model_gives_the_same_vectors),
        cmocka_unit_test(test_empty_text),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_damaged_utf8_keeps_the_rest),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_dimensions_that_cannot_be),
        cmocka_unit_test(test_rank_is_told),
        cmocka_unit_test(test_nothing_to_learn_from),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_more_text_than_is_kept),
        cmocka_unit_test(test_whole_file),
        cmocka_unit_test(test_lines_without_a_vector),
        cmocka_unit_test(test_truncated_model),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_models_that_lie),
        cmocka_unit_test(test_zero_projection),
        cmocka_unit_test(test_save_into_nowhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
