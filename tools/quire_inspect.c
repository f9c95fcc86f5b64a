/*
 * quire_inspect.c - `quire inspect`: what an index is, where its bytes on disk and in memory go, and what its
 * calibration promises. With --gpu it measures a device, too, and says what auto would have it do with this index.
 *
 * The parts of memory come from the segment (which the handle of the library does not show), so the index is opened
 * twice, one after the other and with the same budget.
 */
#include "index/column/columns.h"
#include "index/exact/exact.h"
#include "index/format/format.h"
#include "index/offload/offload_probe.h"
#include "index/segment/segment.h"
#include "io/array.h"
#include "io/error.h"
#include "tools/cli/cli_gpu.h"
#include "tools/quire_verbs.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void report_files(struct cli *cli, const char *path)
{
    static const char *const names[] = {META_NAME, BLOCKS_NAME,     CODES_NAME,  POSTINGS_NAME,
                                        KEYS_NAME, ATTRIBUTES_NAME, COLUMNS_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat status;
        char *name;
        if (asprintf(&name, "%s/%s", path, names[i]) < 0)
            return;
        if (stat(name, &status) == 0) {
            json_t *row = cli_put_row(cli, NULL, "files");
            cli_put_text(cli, row, "file", names[i]);
            cli_put_count(cli, row, "bytes", (uint64_t)status.st_size);
        }
        free(name);
    }
}

static void report_memory(struct cli *cli, const struct segment_info *i)
{
    json_t *memory = json_object();
    cli_put_count(cli, memory, "budget_bytes", i->memory_bytes);
    cli_put_count(cli, memory, "planned_bytes", i->resident_bytes + i->cache_bytes + i->reserve_bytes);
    cli_put_count(cli, memory, "resident_bytes", i->resident_bytes);
    cli_put_count(cli, memory, "codes_bytes", i->resident_codes_bytes);
    cli_put_count(cli, memory, "factors_bytes", i->resident_factors_bytes);
    cli_put_count(cli, memory, "centres_bytes", i->resident_entries_bytes);
    if (i->n_lists)
        cli_put_count(cli, memory, "heads_bytes", i->resident_heads_bytes);
    cli_put_count(cli, memory, "naming_bytes", i->resident_naming_bytes);
    if (i->has_columns)
        cli_put_count(cli, memory, "columns_bytes", i->resident_columns_bytes);
    cli_put_count(cli, memory, "cache_bytes", i->cache_bytes);
    cli_put_count(cli, memory, "reserve_bytes", i->reserve_bytes);
    cli_put_real(cli, memory, "of_raw", (double)i->resident_bytes / (double)i->raw_bytes);
    cli_put_real(cli, memory, "bytes_per_row", (double)i->resident_bytes / (double)i->rows);
    cli_put(cli, NULL, "memory", memory);
}

/* Rows or bytes of all posting blocks. */
static void report_lengths(struct cli *cli, json_t *lists, const char *name, uint32_t *sizes, uint32_t n)
{
    json_t *lengths = json_object();
    array_sort_u32(sizes, n);
    cli_put_count(cli, lengths, "min", sizes[0]);
    cli_put_count(cli, lengths, "p50", sizes[n / 2]);
    cli_put_count(cli, lengths, "p99", sizes[(uint64_t)n * 99 / 100]);
    cli_put_count(cli, lengths, "max", sizes[n - 1]);
    cli_put(cli, lists, name, lengths);
}

static int report_lists(struct cli *cli, const struct segment *segment, struct quire_error *err)
{
    const struct segment_info *i = segment_info(segment);
    if (i->n_lists == 0)
        return 0;
    uint32_t *rows = malloc(sizeof *rows * i->n_lists), *bytes = malloc(sizeof *bytes * i->n_lists);
    int rc = rows && bytes ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the lengths of %u lists", i->n_lists);
    if (rc == 0) {
        json_t *lists = json_object();
        segment_list_lengths(segment, rows, bytes);
        cli_put_count(cli, lists, "lists", i->n_lists);
        cli_put_count(cli, lists, "entries", i->list_entries);
        cli_put_real(cli, lists, "replicas", (double)i->list_entries / (double)i->rows);
        cli_put_count(cli, lists, "code_bits", i->list_bits);
        report_lengths(cli, lists, "posting_rows", rows, i->n_lists);
        report_lengths(cli, lists, "posting_bytes", bytes, i->n_lists);
        cli_put(cli, NULL, "lists", lists);
    }
    free(rows);
    free(bytes);
    return rc;
}

static int report_columns(struct cli *cli, const struct columns *columns, struct quire_error *err)
{
    struct columns_stats stats;
    struct column_info info;
    if (!columns)
        return 0;
    for (uint32_t i = 0; columns_info(columns, i, &info); i++) {
        char *name = strndup(info.name, info.name_bytes);
        if (!name)
            return error_set(err, QUIRE_ENOMEM, "no memory for the name of a column");
        json_t *row = cli_put_row(cli, NULL, "columns");
        cli_put_text(cli, row, "column", name);
        cli_put_text(cli, row, "type", quire_column_type_name(info.type));
        cli_put_count(cli, row, "rows", info.rows);
        cli_put_count(cli, row, "distinct", info.distinct);
        cli_put_count(cli, row, "bytes", info.bytes);
        free(name);
    }
    columns_get_stats(columns, &stats);
    if (stats.n_tenants) {
        json_t *tenants = json_object();
        cli_put_count(cli, tenants, "tenants", stats.n_tenants);
        cli_put_count(cli, tenants, "grants", stats.n_grants);
        cli_put_count(cli, tenants, "bytes", stats.tenant_bytes);
        cli_put(cli, NULL, "tenants", tenants);
    }
    return 0;
}

static void report_segment(struct cli *cli, const struct segment_info *i)
{
    cli_put_text(cli, NULL, "index", cli->arguments[0]);
    cli_put_text(cli, NULL, "kind", quire_index_kind_name(i->index));
    cli_put_text(cli, NULL, "kind_reason", i->index_reason);
    cli_put_count(cli, NULL, "format_version", i->format_version);
    cli_put_count(cli, NULL, "rows", i->rows);
    cli_put_count(cli, NULL, "dim", i->dim);
    cli_put_text(cli, NULL, "type", quire_type_name(i->type));
    cli_put_text(cli, NULL, "metric", quire_metric_name(i->metric));
    cli_put_text(cli, NULL, "slot", quire_slot_name(i->slot));
    cli_put_bool(cli, NULL, "user_keys", i->user_keys);
    cli_put_bool(cli, NULL, "attributes", i->has_attributes);
    cli_put_count(cli, NULL, "block_bytes", i->block_bytes);
    cli_put_count(cli, NULL, "blocks", i->n_blocks);
    cli_put_count(cli, NULL, "slots_per_block", i->slots_per_block);
    cli_put_count(cli, NULL, "degree", i->degree);
    cli_put_count(cli, NULL, "build_beam", i->build_beam);
    cli_put_count(cli, NULL, "seed", i->seed);
    cli_put_count(cli, NULL, "code_bits", i->code_bits);
    cli_put_count(cli, NULL, "code_dim", i->code_dim);
    cli_put_bool(cli, NULL, "direct_io", i->direct_io);
    cli_put_count(cli, NULL, "raw_bytes", i->raw_bytes);
    cli_put_count(cli, NULL, "index_bytes", i->index_bytes);
    report_memory(cli, i);
    report_files(cli, cli->arguments[0]);
}

static int report_calibration(struct cli *cli, uint64_t memory_bytes, struct quire_error *err)
{
    struct quire_open_options options;
    struct quire_index *index = NULL;
    quire_open_options_init(&options);
    options.memory_bytes = memory_bytes;
    int rc = quire_open(cli->arguments[0], &options, &index, err);
    if (rc < 0)
        return rc;
    uint32_t n = quire_calibration(index, NULL, 0);
    struct quire_calibration_point *points = calloc(n + 1u, sizeof *points);
    if (!points) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u points of calibration", n);
        goto out;
    }
    quire_calibration(index, points, n);
    cli_put_bool(cli, NULL, "calibrated", n > 0);
    for (uint32_t i = 0; i < n; i++) {
        json_t *row = cli_put_row(cli, NULL, "calibration");
        cli_put_text(cli, row, "distance", points[i].distance == QUIRE_DISTANCE_EXACT ? "exact" : "estimate");
        cli_put_count(cli, row, "k", points[i].k);
        cli_put_count(cli, row, "effort", points[i].effort);
        cli_put_real(cli, row, "recall", points[i].recall);
        cli_put_real(cli, row, "reads", points[i].reads);
    }
    free(points);
out:
    quire_close(index);
    return rc;
}

/* Exact searches of so many queries, and a build of as many rows. */
static int report_device(struct cli *cli, const struct segment *segment, struct cli_gpu *gpu, struct quire_error *err)
{
    static const struct {
        uint32_t queries;
        const char *use;
    } uses[] = {
        {1, "exact search, 1 query"}, {100, "exact search, 100 queries"}, {10000, "exact search, 10,000 queries"}};
    const struct segment_info *i = segment_info(segment);
    struct offload_work works[CLI_GPU_BUILD_WORKS];
    struct offload_rates rates;
    cli_gpu_open(cli, gpu, NULL, 0, 0);
    int rc = gpu->offload ? offload_measure(gpu->offload, &rates, err) : 0;
    cli_gpu_report(cli, gpu, true);
    if (rc == 0 && gpu->offload) {
        struct offload_status status;
        offload_get_status(gpu->offload, &status);
        cli_put_count(cli, NULL, "device_memory_bytes", status.device.memory_bytes);
        unsigned bits = exact_bits_for(segment, status.device.memory_bytes / 4 * 3);
        cli_put_count(cli, NULL, "device_rows_bytes", exact_bytes(segment, 0));
        if (bits > 0) { /* the rows themselves have no room */
            cli_put_count(cli, NULL, "device_code_bits", bits);
            cli_put_count(cli, NULL, "device_codes_bytes", exact_bytes(segment, bits));
        }
        for (size_t u = 0; u < sizeof uses / sizeof *uses; u++) {
            exact_work(segment, bits, uses[u].queries, &works[0], &works[1]);
            cli_gpu_report_use(cli, &rates, uses[u].use, works, 2);
        }
        cli_gpu_build_works(i->rows, i->dim, i->index, 0, works);
        cli_gpu_report_build(cli, &rates, "build", works);
    }
    cli_gpu_close(gpu);
    return rc;
}

static int inspect(struct cli *cli, const struct cli_memory *memory, struct cli_gpu *gpu, struct quire_error *err)
{
    uint64_t raw_bytes = 0;
    struct segment_options options = {0};
    struct segment *segment = NULL;
    int rc = cli_index_raw_bytes(cli->arguments[0], &raw_bytes, err);
    options.memory_bytes = cli_memory_bytes(memory, raw_bytes);
    if (rc == 0)
        rc = segment_open(cli->arguments[0], &options, &segment, err);
    if (rc < 0)
        return rc;
    report_segment(cli, segment_info(segment));
    rc = report_lists(cli, segment, err);
    if (rc == 0)
        rc = report_columns(cli, segment_columns(segment), err);
    if (rc == 0 && gpu->wanted)
        rc = report_device(cli, segment, gpu, err);
    segment_unref(segment);
    return rc == 0 ? report_calibration(cli, options.memory_bytes, err) : rc;
}

static const char summary[] = "Shows what an index is, where its memory goes under a budget, and its calibration.";
static const char examples[] = "  quire inspect index\n"
                               "  quire inspect index --memory 10% --json\n"
                               "  quire inspect index --gpu auto\n";

int quire_inspect(int argc, char **argv)
{
    struct cli cli;
    struct cli_memory memory = {0};
    struct cli_gpu gpu = {0};
    struct quire_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION("memory", CLI_MEMORY, &memory, "SIZE|N%", "budget to plan for; without: the index's own"),
        CLI_OPTION("gpu", CLI_TEXT, &gpu.wanted, "off|auto|NAME",
                   "measure a device for distances, and say what auto would have it do"),
    };
    const struct cli_verb verb = {"quire inspect", summary, "DIR", 1, options, sizeof options / sizeof *options,
                                  examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    cli_may_end(true); /* it writes nothing */
    int rc = inspect(&cli, &memory, &gpu, &err);
    return cli_end(&cli, rc, &err);
}
