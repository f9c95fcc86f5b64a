/*
 * quire_build.c - `quire build`: a file of vectors, perhaps with keys, attributes and tenants, becomes an index.
 *
 * What the library cannot know is checked here before the long work begins: that the output is not there, that there
 * are as many keys, attributes and tenants as rows, and that each attribute is a JSON object. Keys are checked for
 * emptiness too; duplicates are found by the library, which sorts them anyway.
 *
 * A plain file of vectors is never loaded as a whole: the library reads it batch by batch. A pipe can be read only
 * once, so it is loaded.
 *
 * Under --build-memory the allocator is told to give everything of some size back at once: what it keeps would count.
 *
 * The library makes the folder appear whole or not at all; interrupting a build leaves nothing, or with --resume what
 * is finished.
 */
#include "datasets/vecfile.h"
#include "index/blocks/block_size.h"
#include "index/build/build.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include "tools/cli/cli_gpu.h"
#include "tools/quire_verbs.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define MAPPED_BYTES  (128 << 10) /* an allocation of so many has a mapping of its own under --build-memory */
#define RESERVE_BYTES (1u << 20)  /* of the budget, to look at the finished index */

static const struct cli_choice indexes[] = {
    {"pagegraph", QUIRE_INDEX_PAGEGRAPH}, {"spann", QUIRE_INDEX_SPANN}, {"auto", QUIRE_INDEX_AUTO}, {0}};
static const struct cli_choice slots[] = {
    {"auto", QUIRE_SLOT_AUTO}, {"f32", QUIRE_SLOT_F32}, {"f16", QUIRE_SLOT_F16}, {"bf16", QUIRE_SLOT_BF16},
    {"i8", QUIRE_SLOT_I8},     {"u8", QUIRE_SLOT_U8},   {"q8", QUIRE_SLOT_Q8},   {0}};
static const struct cli_choice edge_codes[] = {
    {"auto", QUIRE_EDGE_CODES_AUTO}, {"no", QUIRE_EDGE_CODES_NO}, {"yes", QUIRE_EDGE_CODES_YES}, {0}};
static const struct cli_choice widths[] = {{"auto", 0}, {"1", 1}, {"2", 2}, {"4", 4}, {"8", 8}, {0}};

struct build_work {
    struct cli_gpu gpu;
    struct cli *cli;
    const char *base, *out, *keys_path, *attributes_path, *tenants_path;
    struct cli_texts column_texts;
    struct cli_columns columns;
    int metric, slot, bits, index, edge_codes;
    uint64_t block_bytes, threads, seed, degree, beam, list_rows, calibration_queries;
    double replicas;
    struct cli_memory memory;
    uint64_t build_memory;
    bool resume;
    struct vecfile *file;
    struct vectors vectors; /* of a pipe; data NULL: they are read from the file */
    struct cli_lines keys, attributes, tenants;
    struct block_choice block;
    double seconds;
};

static int load_keys(struct build_work *w, struct quire_error *err)
{
    int rc = cli_lines_load_rows(w->keys_path, "one key", w->base, w->vectors.rows, &w->keys, err);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < w->keys.n; i++)
        if (w->keys.bytes[i] == 0 || w->keys.bytes[i] > QUIRE_KEY_BYTES_MAX)
            return error_set(err, QUIRE_EINVALID, "%s line %llu: a key of %u bytes, it must have 1 to %u", w->keys_path,
                             (unsigned long long)i + 1, w->keys.bytes[i], QUIRE_KEY_BYTES_MAX);
    return 0;
}

static int open_base(struct build_work *w, struct quire_error *err)
{
    int rc = vecfile_open(w->base, VECFILE_AUTO, &w->file, err);
    if (rc < 0)
        return rc;
    if (vecfile_is_seekable(w->file) && !vecfile_is_ivecs(w->file)) {
        w->vectors.rows = vecfile_rows(w->file);
        w->vectors.dim = vecfile_dim(w->file);
        w->vectors.type = vecfile_type(w->file);
        return 0;
    }
    if (w->build_memory && !vecfile_is_ivecs(w->file))
        return error_set(err, QUIRE_EINVALID,
                         "%s is a pipe, which must be loaded as a whole: write it to a file to use --build-memory",
                         w->base);
    return vecfile_vectors_read(w->file, &w->vectors, err);
}

static int load(struct build_work *w, struct quire_error *err)
{
    int rc = cli_refuse_existing(w->out, err);
    if (rc == 0)
        rc = open_base(w, err);
    if (rc == 0 && w->keys_path)
        rc = load_keys(w, err);
    if (rc == 0 && w->attributes_path)
        rc = cli_attributes_load(w->cli, w->attributes_path, w->base, w->vectors.rows, &w->attributes, err);
    if (rc == 0 && w->tenants_path)
        rc = cli_tenants_load(w->tenants_path, w->base, w->vectors.rows, &w->tenants, err);
    return rc == 0 ? cli_columns_parse(&w->column_texts, &w->columns, err) : rc;
}

static int read_rows(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    struct build_work *w = context;
    int rc = vecfile_seek(w->file, row, err);
    if (rc < 0)
        return rc;
    int64_t got = vecfile_read(w->file, out, n, err);
    if (got < 0 || (uint64_t)got == n)
        return got < 0 ? (int)got : 0;
    return error_set(err, QUIRE_ETRUNCATED, "%s became shorter while it was read: row %llu is not there any more",
                     w->base, (unsigned long long)(row + (uint64_t)got));
}

static uint64_t raw_bytes(const struct build_work *w)
{
    return w->vectors.rows * w->vectors.dim * quire_type_bytes(w->vectors.type);
}

static void set_attributes(struct build_work *w, struct quire_build_options *options)
{
    options->attributes = (const char *const *)w->attributes.start;
    options->attribute_bytes = w->attributes.bytes;
    options->columns = w->columns.columns;
    options->n_columns = w->columns.n;
    options->tenants = (const char *const *)w->tenants.start;
}

static void open_device(struct build_work *w, enum quire_index_kind kind)
{
    struct offload_work works[CLI_GPU_BUILD_WORKS];
    if (w->build_memory) {
        snprintf(w->gpu.note, sizeof w->gpu.note, "--build-memory plans without a device");
        return;
    }
    cli_gpu_build_works(w->vectors.rows, w->vectors.dim, kind, w->calibration_queries, works);
    cli_gpu_open_build(w->cli, &w->gpu, works, (unsigned)w->threads);
}

static int build(struct build_work *w, struct quire_error *err)
{
    struct quire_build_options options;
    quire_build_options_init(&options);
    options.metric = (enum quire_metric)w->metric;
    options.index = (enum quire_index_kind)w->index;
    options.slot = (enum quire_slot)w->slot;
    options.list_rows = (uint32_t)w->list_rows;
    options.replicas = (float)w->replicas;
    options.block_bytes = (uint32_t)w->block_bytes;
    options.code_bits = (unsigned)w->bits;
    options.degree = (unsigned)w->degree;
    options.build_beam = (unsigned)w->beam;
    options.threads = (unsigned)w->threads;
    options.seed = w->seed;
    options.memory_bytes = cli_memory_bytes(&w->memory, raw_bytes(w));
    options.edge_codes = (enum quire_edge_codes)w->edge_codes;
    options.keys = w->keys.start;
    options.key_bytes = w->keys.bytes;
    set_attributes(w, &options);
    options.progress = cli_build_progress;
    options.context = w->cli;
    options.build_memory_bytes = w->build_memory;
    options.resume = w->resume;
    options.calibration_queries = (uint32_t)w->calibration_queries;
    struct quire_input input = {.rows = w->vectors.rows,
                                .dim = w->vectors.dim,
                                .type = w->vectors.type,
                                .vectors = w->vectors.data,
                                .read = read_rows,
                                .context = w};
    uint32_t kind_reason;
    options.index = build_choose_kind(w->out, &input, &options, &kind_reason);
    if (options.block_bytes) {
        snprintf(w->block.why, sizeof w->block.why, "as it was asked for");
    } else if (options.index != QUIRE_INDEX_PAGEGRAPH) {
        snprintf(w->block.why, sizeof w->block.why, "small: single rows are read from behind inverted lists");
    } else if (w->resume) {
        /* a probe may choose otherwise tomorrow, and a build can go on with the same blocks only */
        snprintf(w->block.why, sizeof w->block.why, "the default, not probed because of --resume");
    } else {
        block_choose(w->out, &input, &options, &w->block);
        options.block_bytes = w->block.block_bytes;
    }
    uint64_t begin = clock_ns();
    open_device(w, options.index);
    int rc = build_offloaded(fs_real(), w->out, &input, &options, w->gpu.offload, w->gpu.steps, kind_reason, err);
    w->seconds = (double)(clock_ns() - begin) / 1e9;
    return rc;
}

/* The size of blocks, and whose choice it was. */
static void report_block(struct build_work *w, const struct quire_info *info)
{
    if (w->block_bytes && info->block_bytes != w->block_bytes) {
        cli_note(w->cli, "blocks have %u bytes: not one vector fits into the %llu that were asked for",
                 info->block_bytes, (unsigned long long)w->block_bytes);
        snprintf(w->block.why, sizeof w->block.why, "%llu were asked for, which hold no vector",
                 (unsigned long long)w->block_bytes);
    }
    cli_put_count(w->cli, NULL, "block_bytes", info->block_bytes);
    cli_put_text(w->cli, NULL, "block_choice", w->block.why);
    for (uint32_t i = 0; i < w->block.n_rates; i++) {
        json_t *row = cli_put_row(w->cli, NULL, "block_rates");
        cli_put_count(w->cli, row, "block_bytes", w->block.rates[i].block_bytes);
        cli_put_count(w->cli, row, "code_bits", w->block.rates[i].code_bits);
        cli_put_real(w->cli, row, "reads_per_second", w->block.rates[i].reads_per_second);
        cli_put_real(w->cli, row, "reads", w->block.rates[i].reads);
        cli_put_real(w->cli, row, "cpu_us", w->block.rates[i].cpu_us);
        cli_put_real(w->cli, row, "qps", w->block.rates[i].qps);
    }
}

/* Under --build-memory the index is opened with what is left of it, if that is less than its own budget. */
static int open_index(const struct build_work *w, struct quire_index **index, struct quire_error *err)
{
    struct quire_open_options options;
    struct memory_resident resident;
    memory_resident(&resident);
    uint64_t own = cli_memory_bytes(&w->memory, raw_bytes(w)), used = resident.total + RESERVE_BYTES;
    uint64_t left = w->build_memory > used ? w->build_memory - used : 1;
    quire_open_options_init(&options);
    if (w->build_memory && (own == 0 || left < own))
        options.memory_bytes = left;
    return quire_open(w->out, &options, index, err);
}

/* What was built, as quire_open sees it. A budget that is too small is no reason to throw the index away. */
static void report(struct build_work *w)
{
    struct quire_index *index = NULL;
    struct quire_info info;
    struct quire_error err = {0};
    struct memory_resident resident;
    memory_resident(&resident);
    cli_put_text(w->cli, NULL, "index", w->out);
    cli_put_count(w->cli, NULL, "rows", w->vectors.rows);
    cli_put_count(w->cli, NULL, "dim", w->vectors.dim);
    cli_put_text(w->cli, NULL, "type", quire_type_name(w->vectors.type));
    cli_put_text(w->cli, NULL, "metric", quire_metric_name((enum quire_metric)w->metric));
    cli_put_real(w->cli, NULL, "seconds", w->seconds);
    cli_put_real(w->cli, NULL, "rows_per_second", (double)w->vectors.rows / w->seconds);
    cli_gpu_report(w->cli, &w->gpu, false);
    cli_put_count(w->cli, NULL, "peak_resident_bytes", resident.peak);
    cli_put_count(w->cli, NULL, "raw_bytes", raw_bytes(w));
    if (open_index(w, &index, &err) < 0) {
        cli_note(w->cli, "built, but it does not open with its default budget: %s", err.message);
        cli_put_text(w->cli, NULL, "warning", err.message);
        return;
    }
    quire_get_info(index, &info);
    cli_put_text(w->cli, NULL, "kind", quire_index_kind_name(info.index));
    if (info.lists) {
        cli_put_count(w->cli, NULL, "lists", info.lists);
        cli_put_count(w->cli, NULL, "list_entries", info.list_entries);
    }
    cli_put_text(w->cli, NULL, "slot", quire_slot_name(info.slot));
    report_block(w, &info);
    cli_put_count(w->cli, NULL, "blocks", info.blocks);
    cli_put_count(w->cli, NULL, "code_bits", info.code_bits);
    cli_put_count(w->cli, NULL, "index_bytes", info.index_bytes);
    cli_put_count(w->cli, NULL, "index_resident_bytes", info.resident_bytes);
    cli_put_count(w->cli, NULL, "memory_budget_bytes", info.memory_bytes);
    cli_put_count(w->cli, NULL, "calibration_points", quire_calibration(index, NULL, 0));
    quire_close(index);
}

static const char summary[] =
    "Builds an index in the new folder --out. The folder appears whole or not at all; interrupting leaves nothing, or\n"
    "with --resume the phases that are finished, in OUT.building-resume: the same command goes on from there. The\n"
    "first to be kept are the rows in their order, after `partition` (or `cluster`) and `order input`; a build that "
    "is\n"
    "stopped before leaves nothing.";
static const char examples[] =
    "  quire build --base base.fbin --out index\n"
    "  quire build --base base.u8bin --out index --memory 15% --threads 4\n"
    "  quire build --base base.fbin --out index --index pagegraph --block 8K\n"
    "  quire build --base large.fbin --out index --build-memory 2G --resume\n"
    "  quire build --base text.fbin --out index --metric cosine --keys text.keys --attrs text.jsonl\n"
    "  quire build --base base.fbin --out index --attrs a.jsonl --attr time:timestamp:indexed --tenants t.txt\n";

int quire_build_verb(int argc, char **argv)
{
    struct cli cli;
    struct build_work w = {.cli = &cli, .index = QUIRE_INDEX_AUTO};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("base", CLI_TEXT, &w.base, "FILE", "vectors: .fbin .u8bin .i8bin .bf16bin .fvecs .bvecs .npy",
                   CLI_REQUIRED),
        CLI_OPTION("out", CLI_TEXT, &w.out, "DIR", "the new folder", CLI_REQUIRED),
        CLI_OPTION("index", CLI_CHOICE, &w.index, NULL,
                   "kind of index; auto: lists if --memory holds their 4-bit codes, or no codes at all",
                   .choices = indexes),
        CLI_OPTION("metric", CLI_CHOICE, &w.metric, NULL, "distance", .choices = cli_metrics),
        CLI_OPTION("slot", CLI_CHOICE, &w.slot, NULL, "how blocks store vectors", .choices = slots),
        CLI_OPTION("block", CLI_SIZE, &w.block_bytes, "SIZE",
                   "bytes of a block, a multiple of 4K; auto: what suits device and vectors",
                   CLI_RANGE(0, QUIRE_BLOCK_BYTES_MAX)),
        CLI_OPTION("memory", CLI_MEMORY, &w.memory, "SIZE|N%", "memory budget of searches that name none"),
        CLI_OPTION("build-memory", CLI_SIZE, &w.build_memory, "SIZE",
                   "resident memory of the build; what does not fit lies in files; auto: no limit", CLI_RANGE(0, 0)),
        CLI_OPTION("resume", CLI_FLAG, &w.resume, NULL, "keep what is finished when stopped; go on from there"),
        CLI_OPTION("bits", CLI_CHOICE, &w.bits, NULL,
                   "bits per dimension of the widest navigation code, or of the codes in inverted lists (1, 2 or 4)",
                   .choices = widths),
        CLI_OPTION("edge-codes", CLI_CHOICE, &w.edge_codes, NULL,
                   "codes of edges inside blocks; auto: if --memory is too small for resident ones",
                   .choices = edge_codes),
        CLI_OPTION("degree", CLI_COUNT, &w.degree, "N", "out-edges per row; 0: chosen", CLI_RANGE(0, 256)),
        CLI_OPTION("beam", CLI_COUNT, &w.beam, "N", "candidates per row while building; 0: chosen", CLI_RANGE(0, 4096)),
        CLI_OPTION("list-rows", CLI_COUNT, &w.list_rows, "N", "spann: rows of a cluster on average; 0: chosen",
                   CLI_RANGE(0, 65536)),
        CLI_OPTION("replicas", CLI_REAL, &w.replicas, "X", "spann: lists that a row stands in on average, 1 to 8",
                   .maximum = 8),
        CLI_OPTION("calibration-queries", CLI_COUNT, &w.calibration_queries, "N",
                   "rows asked to measure which effort gives which recall; 50 to 800; fewer: a faster build; 0: 800",
                   CLI_RANGE(0, BUILD_QUERIES_MOST)),
        CLI_OPTION("keys", CLI_TEXT, &w.keys_path, "FILE", "one key per line; line number is row number"),
        CLI_OPTION("attrs", CLI_TEXT, &w.attributes_path, "FILE", "one JSON object per line; an empty line for none"),
        CLI_OPTION("attr", CLI_TEXTS, &w.column_texts, "NAME:TYPE[:indexed]",
                   "declares a field of --attrs: integer, float, string, bool, list or timestamp; again for more"),
        CLI_OPTION("tenants", CLI_TEXT, &w.tenants_path, "FILE",
                   "whom each row is granted to: a line of names with spaces between; an empty line for nobody"),
        CLI_THREADS(&w.threads),
        CLI_GPU_OPTION(&w.gpu),
        CLI_OPTION("seed", CLI_COUNT, &w.seed, "N", "same seed, input and --block: same index"),
    };
    const struct cli_verb verb = {"quire build", summary, "", 0, options, sizeof options / sizeof *options, examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (w.block_bytes % QUIRE_BLOCK_BYTES_MIN)
        return cli_mistake(&cli, "--block %llu: it must be a multiple of %u up to %u",
                           (unsigned long long)w.block_bytes, QUIRE_BLOCK_BYTES_MIN, QUIRE_BLOCK_BYTES_MAX);
    if (w.build_memory) {
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
        mallopt(M_TRIM_THRESHOLD, MAPPED_BYTES);
        mallopt(M_ARENA_MAX, 2);
    }
    cli_may_end(true);
    int rc = load(&w, &err);
    cli_may_end(false);
    if (rc == 0)
        rc = build(&w, &err);
    if (rc == 0)
        report(&w);
    vecfile_vectors_free(&w.vectors);
    vecfile_close(w.file);
    cli_lines_free(&w.keys);
    cli_lines_free(&w.attributes);
    cli_lines_free(&w.tenants);
    cli_columns_free(&w.columns);
    cli_gpu_close(&w.gpu);
    return cli_end(&cli, rc, &err);
}
