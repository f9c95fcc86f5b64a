/*
 * build_lists.c - inverted lists: clusters, the graph of their heads, and the posting blocks.
 *
 * Rows are ordered by cluster (clusters.h), so a list's own rows are consecutive and their full vectors fill a few
 * blocks: what a search reads again after the lists falls together. Rows of small tenants stand elsewhere and are
 * guests of the list that they were put in (build_place.c). A list's head is the middle of its cluster and not
 * one of its rows: then half as many lists hold the same neighbours (docs/performance.md). All codes of the list are
 * residuals from the head's 8-bit code, which is what a search knows of it, so no rounding of the head enters the
 * estimates. Factors are stored in units that hold for the whole segment; the units come from a sample that is
 * encoded first.
 *
 * Lists are about 64 KiB long: what they cost is reads more than bytes, and the rows of one such list hold more of the
 * true neighbours than those of two that are half as long and take two reads (docs/performance.md).
 *
 * Lists are encoded a batch at a time on all threads and written in order. Where clusters begin is kept in a work file
 * for a build that is resumed; heads and replicas follow from the rows and are found again.
 */
#include "index/build/build_priv.h"
#include "index/format/posting_block.h"
#include "index/kernels/kernels.h"
#include "index/segment/lists.h"
#include "index/segment/segment_view.h"
#include "index/vector/near.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSTING_BYTES_WANTED 65536u
#define LIST_ROWS_MIN        32u /* of a list, own rows and replicas */
#define CLUSTER_MOST         2u  /* times the mean; of a cluster, and */
#define LIST_MOST            4u  /* of a list with its replicas */
#define REPLICAS_DEFAULT     2.0f
#define REPLICAS_BYTES       1.7f /* of vectors of bytes, beside which codes weigh more */
#define LIST_BITS            4u
#define ROUNDS               8u
#define SAMPLE_ROWS          4096u
#define FAR2                 16.0f /* an entry four times as far from its head as the median one is far out */

static struct clusters_config clusters_config(const struct build *b)
{
    const struct quire_build_options *o = &b->options;
    uint32_t fit = posting_block_entries_that_fit(POSTING_BYTES_WANTED, b->space.code_dim, b->params.list_bits);
    uint32_t largest = posting_block_entries_that_fit(POSTING_BYTES_MAX, b->space.code_dim, b->params.list_bits);
    bool bytes = b->type == QUIRE_TYPE_U8 || b->type == QUIRE_TYPE_I8;
    struct clusters_config config = {.rounds = ROUNDS, .threads = o->threads, .seed = o->seed};
    config.replicas = o->replicas > 0 ? o->replicas : bytes ? REPLICAS_BYTES : REPLICAS_DEFAULT;
    fit = fit < LIST_ROWS_MIN ? LIST_ROWS_MIN : fit;
    config.rows = o->list_rows ? o->list_rows : (uint32_t)((float)fit / config.replicas);
    config.rows = config.rows > largest / (2 * LIST_MOST) ? largest / (2 * LIST_MOST) : config.rows;
    config.rows = config.rows > b->n ? b->n : config.rows;
    config.most = CLUSTER_MOST * config.rows;
    config.list_most = LIST_MOST * config.rows;
    config.window_rows = b->plan.partition_rows;
    config.offload = build_device(b, BUILD_NEIGHBOURS);
    config.bisection = build_device(b, BUILD_BISECTION);
    return config;
}

/* Whether the memory that searches are expected to have holds the codes of all rows at so many bits. */
static bool bits_fit(const struct build *b, unsigned bits)
{
    struct build trial = {.n = b->n, .type = b->type, .options = b->options, .space.code_dim = b->space.code_dim};
    trial.params = b->params;
    trial.params.list_bits = bits;
    trial.params.rows = b->n;
    trial.params.code_dim = b->space.code_dim;
    trial.params.n_lists = b->n / clusters_config(&trial).rows + 1;
    return segment_lists_fit(&trial.params, build_columns_bytes(b), b->options.memory_bytes);
}

/* Four per dimension; two where their codes fit into that memory, but not those of four: no posting block is read
 * then. */
static unsigned bits_for_budget(const struct build *b)
{
    return !bits_fit(b, LIST_BITS) && bits_fit(b, LIST_BITS / 2) ? LIST_BITS / 2 : LIST_BITS;
}

/* Fewer bits where a posting block has no room for two groups of the vectors of so many dimensions. */
unsigned build_list_bits(const struct build *b)
{
    unsigned bits = b->options.code_bits ? b->options.code_bits : bits_for_budget(b);
    struct posting_block_shape shape;
    while (bits > 1 && !posting_block_shape(2 * CODE_GROUP, CODE_GROUP, b->space.code_dim, bits, &shape))
        bits /= 2;
    return bits;
}

bool build_lists_fit(const struct build *b)
{
    return build_list_bits(b) == LIST_BITS && bits_fit(b, LIST_BITS);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

int build_open_lists(struct build *b)
{
    struct io_file *file = NULL;
    struct clusters *c = &b->clusters;
    int rc = build_open_work(b, WORK_LISTS, FS_READ, &file);
    if (rc < 0)
        return rc;
    uint64_t n = file->bytes / sizeof *c->first;
    if (n < 2 || n > (uint64_t)b->n + 1 || file->bytes % sizeof *c->first) {
        rc = error_set(b->err, QUIRE_ECORRUPT, "%s has %llu bytes, not those of 1 to %u lists: remove %s to begin anew",
                       file->path, (unsigned long long)file->bytes, b->n, b->folder);
        goto out;
    }
    c->first = malloc(n * sizeof *c->first);
    c->n = (uint32_t)n - 1;
    rc = c->first ? fs_read_exact(file, c->first, n * sizeof *c->first, 0, b->err) : QUIRE_ENOMEM;
    /* a work file has no checksum, and what it says are places in arrays */
    bool good = rc == 0 && c->first[0] == 0 && c->first[c->n] == b->n;
    for (uint32_t i = 0; i < c->n && good; i++)
        good = c->first[i] < c->first[i + 1];
    if (rc == 0 && !good)
        rc = error_set(b->err, QUIRE_ECORRUPT, "%s/%s is damaged: remove that folder to begin anew", b->folder,
                       WORK_LISTS);
out:
    fs_close(file);
    return rc;
}

int build_order_lists(struct build *b)
{
    struct clusters_config config = clusters_config(b);
    struct row_store spare;
    struct progress progress;
    struct io_file *file = NULL;
    bool in_files = b->plan.in_files;
    assert(build_is_lists(b) && b->order && !b->clusters.first);
    int rc = in_files ? build_open_store(b, &spare, b->n, WORK_SPARE, false) : 0;
    if (rc < 0)
        return rc;
    build_progress(b, "cluster", &progress);
    rc = clusters_find(&b->rows, in_files ? &spare : NULL, b->merge ? b->merge->clusters : NULL, &config, &progress,
                       b->order, &b->clusters);
    if (in_files)
        row_store_close(&spare);
    if (rc == 0 && in_files)
        rc = build_remove_file(b, WORK_SPARE);
    assert(rc < 0 || (b->clusters.n > 0 && b->clusters.first[b->clusters.n] == b->n));
    if (rc < 0 || !b->options.resume)
        return rc;
    rc = build_open_work(b, WORK_LISTS, FS_WRITE | FS_CREATE, &file);
    if (rc == 0)
        rc =
            fs_write_exact(file, b->clusters.first, ((size_t)b->clusters.n + 1) * sizeof *b->clusters.first, 0, b->err);
    if (rc == 0)
        rc = fs_sync(file, b->err);
    fs_close(file);
    return rc;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* Heads are linked one after the other: the graph is the same whatever the threads. */
static int link_heads(struct build *b)
{
    struct graph_root root;
    struct graph_scratch *scratch = NULL;
    const struct rows *points = &b->clusters.points;
    int rc = lists_graph_create(b->space.code_dim, b->options.seed, &b->epochs, &b->heads, b->err);
    graph_root_init(&root);
    if (rc == 0)
        rc = graph_scratch_create(&scratch, b->err);
    unsigned slot = b->epochs ? epoch_enter(b->epochs) : 0;
    for (uint32_t i = 0; rc == 0 && i < b->clusters.n; i++) {
        uint32_t row;
        rc = graph_add(b->heads, points->codes + (size_t)i * points->code_dim, points->f[i], points->norm2[i], &row);
        assert(rc < 0 || row == i);
        if (rc == 0)
            rc = graph_link(b->heads, &root, scratch, row);
        if (rc == 0 && (i % 1024 == 0 || i + 1 == b->clusters.n))
            rc = build_report(b, "link heads", i + 1, b->clusters.n);
    }
    if (b->epochs)
        epoch_exit(b->epochs, slot);
    graph_scratch_destroy(scratch);
    return rc;
}

int build_find_heads(struct build *b)
{
    struct clusters_config config = clusters_config(b);
    struct progress progress;
    assert(b->step == STEP_CENTRES && !b->heads && b->clusters.n > 0);
    build_progress(b, "replicas", &progress);
    int rc = clusters_close(&b->rows, &config, &progress, &b->clusters);
    return rc == 0 ? link_heads(b) : rc;
}

/* The head of a list as a search decodes it. */
static void decode_head(const struct build *b, uint32_t list, float *out)
{
    const uint8_t *code;
    float f, norm2;
    graph_row(b->heads, list, &code, &f, &norm2);
    code_decode(code, b->space.code_dim, 8, f, out);
}

/* ---- posting blocks ---------------------------------------------------------------------------------------------- */

struct lists_job {
    struct build *b;
    struct list_entry *entries; /* of all lists */
    double *errors;             /* per list, summed over its entries */
    uint32_t width, longest;    /* entries of the longest list */
    uint32_t first;             /* list of the batch */
    uint8_t *buffer;            /* the batch's posting blocks */
    uint32_t sampled;           /* rows of the sample */
    float *a, *f;               /* of the sample */
};

struct list_scratch {
    float *head, *v, *x;
    uint8_t *raw, *code;
    struct residual *rows; /* of the longest list */
    float *sorted;
};

static int list_scratch_init(struct list_scratch *s, const struct build *b, uint32_t entries)
{
    uint32_t dim = b->space.code_dim;
    *s = (struct list_scratch){malloc(sizeof(float) * dim),
                               malloc(sizeof(float) * dim),
                               malloc(sizeof(float) * dim),
                               malloc(b->row_bytes),
                               malloc(dim),
                               malloc(sizeof(struct residual) * (entries + 1)),
                               malloc(sizeof(float) * (entries + 1))};
    return s->head && s->v && s->x && s->raw && s->code && s->rows && s->sorted ? 0 : QUIRE_ENOMEM;
}

static int encode_row(const struct build *b, struct list_scratch *s, uint32_t row, struct residual *out)
{
    const uint8_t *raw;
    int rc = build_input_row(b, row, s->raw, &raw);
    if (rc == 0)
        build_encode_residual(b, raw, s->head, b->params.list_bits, s->v, s->x, s->code, out);
    return rc;
}

/* The root mean square distance from the head, where an entry far out counts as one at the limit. */
static float spread_of(struct list_scratch *s, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        s->sorted[i] = (float)s->rows[i].norm2;
    assert(n > 0);
    float limit = FAR2 * near_limit_of(s->sorted, n, (n + 1) / 2).value;
    for (uint32_t i = 0; i < n; i++)
        sum += limit > 0 ? fmin(s->rows[i].norm2, limit) : s->rows[i].norm2; /* 0: most rows are the head */
    return (float)sqrt(sum / n);
}

static int make_posting(struct lists_job *job, struct list_scratch *s, uint32_t list)
{
    struct build *b = job->b;
    struct list_entry *e = &job->entries[list];
    const uint32_t *replicas = b->clusters.replicas + b->clusters.replica_at[list];
    uint8_t *posting = job->buffer + (size_t)(e->page - job->entries[job->first].page) * SECTION_ALIGN;
    struct posting_block_shape shape;
    bool fits = posting_block_shape(e->entries, e->own, b->space.code_dim, b->params.list_bits, &shape);
    assert(fits);
    memset(posting, 0, fits ? shape.bytes : 0);
    decode_head(b, list, s->head);
    for (uint32_t i = 0; i < e->entries; i++) {
        uint32_t row = i < e->own ? e->first + i : replicas[i - e->own];
        int rc = encode_row(b, s, row, &s->rows[i]);
        if (rc != 0)
            return rc;
        code_group_put(posting + shape.groups + (size_t)(i / CODE_GROUP) * shape.group_bytes, i % CODE_GROUP, s->code,
                       b->space.code_dim, b->params.list_bits);
        job->errors[list] += s->rows[i].error;
        if (i >= e->own)
            bytes_store_u32(posting + shape.ids + 4 * (size_t)(i - e->own), row);
    }
    build_factor_halves(s->rows, e->entries, b->params.scale_a[job->width], b->params.scale_f[job->width],
                        posting + shape.factors);
    e->rms = spread_of(s, e->entries);
    for (uint32_t i = 0; i < e->entries; i++)
        e->radius = fmaxf(e->radius, (float)sqrt(s->rows[i].norm2));
    posting_block_seal(posting, list, e, b->params.list_bits, &shape, b->segment_id);
    return 0;
}

static int make_range(void *context, uint64_t begin, uint64_t end)
{
    struct lists_job *job = context;
    struct list_scratch s;
    int rc = list_scratch_init(&s, job->b, job->longest);
    for (uint64_t i = begin; rc == 0 && i < end; i++)
        rc = make_posting(job, &s, job->first + (uint32_t)i);
    array_free_all(s.head, s.v, s.x, s.raw, s.code, s.rows, s.sorted);
    return rc;
}

static int sample_range(void *context, uint64_t begin, uint64_t end)
{
    struct lists_job *job = context;
    const struct build *b = job->b;
    const struct clusters *c = &b->clusters;
    struct list_scratch s;
    int rc = list_scratch_init(&s, b, 0);
    for (uint64_t i = begin; rc == 0 && i < end; i++) {
        uint32_t list = (uint32_t)(i * c->n / job->sampled), at = (uint32_t)i;
        const struct list_entry *e = &job->entries[list];
        struct residual residual;
        assert(e->entries >= e->own && e->entries > 0);
        decode_head(b, list, s.head);
        /* of the list's own rows if it has any */
        uint32_t row = e->own ? e->first + at % e->own : c->replicas[c->replica_at[list] + at % e->entries];
        rc = encode_row(b, &s, row, &residual);
        if (rc == 0) {
            job->a[i] = residual.a;
            job->f[i] = residual.f;
        }
    }
    array_free_all(s.head, s.v, s.x, s.raw, s.code, s.rows, s.sorted);
    return rc;
}

static int find_units(struct lists_job *job)
{
    struct build *b = job->b;
    job->sampled = b->n < SAMPLE_ROWS ? b->n : SAMPLE_ROWS;
    job->a = malloc(sizeof *job->a * job->sampled);
    job->f = malloc(sizeof *job->f * job->sampled);
    int rc =
        job->a && job->f ? parallel_for(b->options.threads, job->sampled, 128, sample_range, job, NULL) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = build_factor_unit(job->a, job->sampled, &b->params.scale_a[job->width]);
    if (rc == 0)
        rc = build_factor_unit(job->f, job->sampled, &b->params.scale_f[job->width]);
    array_free_all(job->a, job->f);
    return rc;
}

/* The directory but for the spreads; pages follow from the lengths. */
static int plan_entries(struct lists_job *job)
{
    struct build *b = job->b;
    const struct clusters *c = &b->clusters;
    uint64_t page = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t own = c->first[i + 1] - c->first[i];
        uint32_t entries = own + (uint32_t)(c->replica_at[i + 1] - c->replica_at[i]);
        struct posting_block_shape shape;
        if (!posting_block_shape(entries, own, b->space.code_dim, b->params.list_bits, &shape) || page > UINT32_MAX)
            return error_set(
                b->err, QUIRE_ELIMIT,
                "an inverted list of %u rows of %u dimensions does not fit in %u bytes: use fewer list rows", entries,
                b->dim, POSTING_BYTES_MAX);
        job->entries[i] = (struct list_entry){(uint32_t)page, entries, c->first[i], own, 0, 0};
        page += shape.bytes / SECTION_ALIGN;
        b->params.list_entries += entries;
        job->longest = entries > job->longest ? entries : job->longest;
        if (shape.bytes > b->params.posting_bytes_max)
            b->params.posting_bytes_max = shape.bytes;
    }
    assert(b->params.list_entries == b->clusters.first[c->n] + c->replica_at[c->n]);
    b->params.n_lists = c->n;
    return 0;
}

static int write_postings(struct lists_job *job)
{
    struct build *b = job->b;
    struct section_writer *writer = NULL;
    int rc = build_section_writer(b, POSTINGS_NAME, FILE_POSTINGS, &writer);
    if (rc == 0)
        rc = section_begin(writer, POSTINGS_POSTINGS, SECTION_SELF_CHECKED, b->err);
    for (uint32_t n; rc == 0 && job->first < b->clusters.n; job->first += n) {
        size_t bytes = 0; /* of the next lists whose posting blocks together take a batch */
        for (n = 0; job->first + n < b->clusters.n; n++) {
            const struct list_entry *e = &job->entries[job->first + n];
            struct posting_block_shape shape;
            posting_block_shape(e->entries, e->own, b->space.code_dim, b->params.list_bits, &shape);
            if (n > 0 && bytes + shape.bytes > BATCH_BYTES)
                break;
            bytes += shape.bytes;
        }
        assert(n > 0 && bytes <= BATCH_BYTES + POSTING_BYTES_MAX);
        rc = parallel_for(b->options.threads, n, 4, make_range, job, NULL);
        if (rc == 0)
            rc = section_write(writer, job->buffer, bytes, b->err);
        if (rc == 0)
            rc = build_report(b, "write lists", job->first + n, b->clusters.n);
    }
    if (rc == 0)
        rc = section_end(writer, b->err);
    return section_writer_conclude(writer, rc, b->err);
}

int build_write_lists(struct build *b, struct section_writer *codes)
{
    struct lists_job job = {.b = b};
    double error = 0;
    assert(b->heads && b->epochs && b->clusters.replica_at && !b->guest_lists == !b->runs.of);
    job.width = (uint32_t)kernels_code_index(b->params.list_bits);
    job.entries = calloc(b->clusters.n, sizeof *job.entries);
    job.errors = calloc(b->clusters.n, sizeof *job.errors);
    job.buffer = malloc(BATCH_BYTES + POSTING_BYTES_MAX);
    b->params.list_entries = b->params.posting_bytes_max = 0;
    int rc = job.entries && job.errors && job.buffer ? plan_entries(&job) : QUIRE_ENOMEM;
    unsigned slot = epoch_enter(b->epochs);
    if (rc == 0)
        rc = find_units(&job);
    if (rc == 0)
        rc = write_postings(&job);
    epoch_exit(b->epochs, slot);
    for (uint32_t i = 0; rc == 0 && i < b->clusters.n; i++)
        error += job.errors[i];
    b->params.error[job.width] = fmaxf((float)sqrt(error / (double)b->params.list_entries), 1e-6f);
    if (rc == 0)
        rc = lists_write(codes, job.entries, b->clusters.n, b->heads, b->epochs, b->guest_lists, b->params.run_rows,
                         b->err);
    array_free_all(job.entries, job.errors, job.buffer);
    return rc;
}
