/*
 * embed_fit.c - from lines of text to a model, in bounded memory.
 *
 * Lines come one at a time, from a pipe if need be. Of each, the distinct features are counted into a table of document
 * frequencies (4 bytes for each of 2^22 buckets; exact per bucket) and kept, 4 bytes for a feature, for the
 * decomposition. What is kept is bounded by ROWS_MAX texts and ENTRIES_MAX features: each text draws a number from the
 * seed and its place, and is kept while the number is below a limit; when the store is full the limit is halved and the
 * texts above it go. So the sample is uniform over all lines, depends on nothing but seed and text, and needs no second
 * reading. (Reservoir sampling bounds the number of texts, not their size.)
 *
 * Vocabulary: buckets seen in DF_MIN texts or more, and of those the most frequent FEATURES_MAX: what is seen once can
 * make nothing similar to anything else. Where the last frequency does not fit whole, lower buckets go first: any
 * choice will do, since a bucket's number is a hash, but it must be the same each time. IDF is smoothed: ln((1 + lines)
 * / (1 + df)) + 1.
 *
 * Choices by measurement (intents of CLINC150, right nearest neighbour of 4,500 test utterances; docs/embedding.md):
 *   parts of words against words   none: 0.791   0.5: 0.810   1: 0.834   1.5: 0.841   3: 0.836
 *   features                        5,000: 0.806   10,000: 0.832   20,000: 0.839   all 42,321: 0.841
 *   power of the singular values    1.5: 0.824   1: 0.841   0.5: 0.844   0: 0.829
 * The power is that of s in U s^p, the texts' vectors; p = 1 is latent semantic analysis as it has been since
 * Deerwester et al. 1990. 0.5 gains too little for a parameter, and spreads the vectors more evenly, which costs every
 * index reads.
 *
 * Peak at 256 dimensions: store 128 MiB; sparse matrix and its transposed copy 256 MiB each; two dense matrices of 136
 * and 68 MiB; projection 64 MiB in f32 and 32 MiB in f16. The store is gone before the transposed copy is made, which
 * leaves under 1 GiB. 117,000 glosses, which are not thinned out, take 0.6 GiB.
 */
#include "datasets/embed_priv.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX     131072u
#define ENTRIES_MAX  33554432u
#define FEATURES_MAX 65536u
#define DF_MIN       2u
#define DF_BINS      65536u
#define REPORT_EVERY 4096u

/* Lengths of the groups' parts in a row: words, pairs, parts. */
static const float GROUP_WEIGHT[EMBED_GROUPS] = {1.0f, 0.5f, 1.5f};

struct embed_fit {
    struct embed_fit_options options;
    struct features features;
    uint32_t *df;    /* EMBED_BUCKETS */
    uint32_t *store; /* kept texts: draw, n, n entries; ... */
    size_t used, capacity;
    uint64_t lines, kept;
    uint64_t limit; /* a text is kept if its draw (32 bits) is below */
};

void embed_fit_options_init(struct embed_fit_options *options)
{
    *options = (struct embed_fit_options){.dim = EMBED_DIM_DEFAULT, .seed = 1};
}

int embed_fit_create(const struct embed_fit_options *options, struct embed_fit **out, struct quire_error *err)
{
    if (options->dim == 0 || options->dim > EMBED_DIM_MAX)
        return error_set(err, QUIRE_EDIM, "an embedder of %u dimensions was asked for; give 1 to %u", options->dim,
                         EMBED_DIM_MAX);
    struct embed_fit *fit = calloc(1, sizeof *fit);
    uint32_t *df = calloc(EMBED_BUCKETS, sizeof *df);
    if (!fit || !df) {
        free(fit);
        free(df);
        return error_set(err, QUIRE_ENOMEM, "no memory to begin the fit of an embedder");
    }
    fit->options = *options;
    if (fit->options.threads == 0)
        fit->options.threads = parallel_processors();
    fit->df = df;
    fit->limit = 1ull << 32;
    *out = fit;
    return 0;
}

void embed_fit_destroy(struct embed_fit *fit)
{
    if (!fit)
        return;
    embed_features_fini(&fit->features);
    free(fit->df);
    free(fit->store);
    free(fit);
}

/* Halves the limit and drops the texts above it, until there is space for n more words. */
static void thin_out(struct embed_fit *fit, uint64_t n)
{
    while (fit->used + n > ENTRIES_MAX || fit->kept >= ROWS_MAX) {
        uint64_t to = 0;
        fit->limit /= 2;
        fit->kept = 0;
        for (uint64_t from = 0; from < fit->used;) {
            uint64_t words = 2 + (uint64_t)fit->store[from + 1];
            if (fit->store[from] < fit->limit) {
                memmove(fit->store + to, fit->store + from, words * sizeof *fit->store);
                to += words;
                fit->kept++;
            }
            from += words;
        }
        fit->used = to;
    }
}

int embed_fit_line(struct embed_fit *fit, const char *text, size_t bytes, struct quire_error *err)
{
    struct features *f = &fit->features;
    int rc = embed_features_of(f, text, bytes, err);
    if (rc != 0)
        return rc;
    struct random random;
    random_init(&random, fit->options.seed + fit->lines * 0x9e3779b97f4a7c15ull);
    uint32_t draw = (uint32_t)(random_next(&random) >> 32);
    uint64_t words = 2 + (uint64_t)f->n;
    if (f->n > 0 && draw < fit->limit) {
        thin_out(fit, words);
        if (draw < fit->limit) {
            if (!array_reserve(&fit->store, &fit->capacity, fit->used + words))
                return error_set(err, QUIRE_ENOMEM, "no memory to keep %llu features of the text",
                                 (unsigned long long)(fit->used + words));
            fit->store[fit->used] = draw;
            fit->store[fit->used + 1] = f->n;
            memcpy(fit->store + fit->used + 2, f->entries, f->n * sizeof *f->entries);
            fit->used += words;
            fit->kept++;
        }
    }
    for (uint32_t i = 0; i < f->n; i++)
        fit->df[embed_feature_bucket(f->entries[i])] += fit->df[embed_feature_bucket(f->entries[i])] < UINT32_MAX;
    fit->lines++;
    return 0;
}

static uint32_t clip_frequency(uint32_t df)
{
    return df < DF_BINS ? df : DF_BINS - 1;
}

/* What is in the vocabulary: every bucket seen in more than `cut` texts, and the first `at_cut` of those seen in `cut`.
 */
struct choice {
    uint32_t cut, at_cut, n;
};

static int choose_frequency(const struct embed_fit *fit, struct choice *choice, struct quire_error *err)
{
    uint32_t *bins = calloc(DF_BINS, sizeof *bins);
    if (!bins)
        return error_set(err, QUIRE_ENOMEM, "no memory to choose the vocabulary of an embedder");
    for (uint32_t b = 0; b < EMBED_BUCKETS; b++)
        bins[clip_frequency(fit->df[b])]++;
    struct choice c = {.cut = DF_BINS};
    while (c.cut > DF_MIN && c.n < FEATURES_MAX) {
        c.cut--;
        c.at_cut = bins[c.cut] < FEATURES_MAX - c.n ? bins[c.cut] : FEATURES_MAX - c.n;
        c.n += c.at_cut;
    }
    free(bins);
    *choice = c;
    return 0;
}

static int choose_vocabulary(const struct embed_fit *fit, struct vocabulary *v, struct quire_error *err)
{
    struct choice choice = {0};
    int rc = choose_frequency(fit, &choice, err);
    if (rc != 0)
        return rc;
    if (choice.n == 0)
        return error_set(err, QUIRE_EDIM,
                         "no word, word pair or part of a word is in two of these %llu texts: nothing to learn from; "
                         "give more text",
                         (unsigned long long)fit->lines);
    v->bucket = malloc(memory_size_mul(choice.n, sizeof *v->bucket));
    v->idf = malloc(memory_size_mul(choice.n, sizeof *v->idf));
    if (!v->bucket || !v->idf)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vocabulary of %u features", choice.n);
    for (uint32_t b = 0; b < EMBED_BUCKETS; b++) {
        uint32_t frequency = clip_frequency(fit->df[b]);
        if (frequency < choice.cut || (frequency == choice.cut && choice.at_cut == 0))
            continue;
        choice.at_cut -= frequency == choice.cut;
        v->bucket[v->n] = b;
        v->idf[v->n++] = (float)(log((1.0 + (double)fit->lines) / (1.0 + (double)fit->df[b])) + 1.0);
    }
    memcpy(v->weight, GROUP_WEIGHT, sizeof v->weight);
    return embed_vocabulary_index(v, err);
}

/* How many texts are weighed, from the choice of the vocabulary on. */
static int report(const struct embed_fit *fit, uint64_t done)
{
    const struct embed_fit_options *o = &fit->options;
    return o->progress && o->progress(o->context, "weigh words", done, fit->kept) != 0 ? QUIRE_ECANCELLED : 0;
}

/* Weighted rows of the kept texts; those without a known feature are left out. */
static int make_rows(const struct embed_fit *fit, const struct vocabulary *v, struct sparse *out,
                     struct quire_error *err)
{
    uint64_t seen = 0;
    struct sparse a = {.columns = v->n};
    uint64_t most = fit->used - 2 * fit->kept;
    a.start = malloc(memory_size_mul(fit->kept + 1, sizeof *a.start));
    a.column = malloc(memory_size_mul(most + 1, sizeof *a.column));
    a.value = malloc(memory_size_mul(most + 1, sizeof *a.value));
    if (!a.start || !a.column || !a.value) {
        embed_sparse_fini(&a);
        return error_set(err, QUIRE_ENOMEM, "no memory for a matrix of %llu entries", (unsigned long long)most);
    }
    uint64_t n = 0;
    a.start[0] = 0;
    for (uint64_t at = 0; at < fit->used; at += 2 + (uint64_t)fit->store[at + 1]) {
        uint32_t known = embed_vocabulary_row(v, fit->store + at + 2, fit->store[at + 1], a.column + n, a.value + n);
        n += known;
        if (known > 0)
            a.start[++a.rows] = n;
        if (++seen % REPORT_EVERY == 0 && report(fit, seen) != 0) {
            embed_sparse_fini(&a);
            return QUIRE_ECANCELLED;
        }
    }
    *out = a;
    return 0;
}

int embed_fit_finish(struct embed_fit *fit, struct embed_model **out, struct quire_error *err)
{
    struct sparse rows = {0};
    float *basis = NULL;
    struct progress progress = {fit->options.progress, fit->options.context, "decompose"};
    struct embed_model *model = calloc(1, sizeof *model);
    int rc = model ? report(fit, 0) : error_set(err, QUIRE_ENOMEM, "no memory for a model");
    if (rc == 0)
        rc = choose_vocabulary(fit, &model->vocabulary, err);
    if (rc == 0)
        rc = make_rows(fit, &model->vocabulary, &rows, err);
    if (rc != 0)
        goto out;
    free(fit->store); /* its space is wanted for the decomposition */
    fit->store = NULL;
    fit->used = fit->capacity = fit->kept = 0;
    rc = embed_svd_right(&rows, fit->options.dim, fit->options.seed, fit->options.threads, &progress, &basis, err);
    if (rc != 0)
        goto out;
    model->info = (struct embed_info){.dim = fit->options.dim,
                                      .features = model->vocabulary.n,
                                      .lines = fit->lines,
                                      .rows = rows.rows,
                                      .seed = fit->options.seed};
    rc = embed_model_pack(model, basis, err);
out:
    if (rc == QUIRE_ECANCELLED)
        error_set(err, rc, "the fit was cancelled");
    embed_sparse_fini(&rows);
    free(basis);
    if (rc == 0)
        *out = model;
    else
        embed_model_free(model);
    return rc;
}
