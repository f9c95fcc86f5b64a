/*
 * quire_probe.c - `quire probe`: how fast a device reads at random, by block size and queue depth.
 *
 * With --gpu it measures a device for distances beside the processor instead (docs/gpu.md).
 *
 * The knee is the depth that reaches nine tenths of a block size's best rate: what `quire search --depth` is for.
 */
#include "index/offload/offload_probe.h"
#include "io/error.h"
#include "io/probe.h"
#include "tools/cli/cli_gpu.h"
#include "tools/quire_verbs.h"
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MIN (1u << 20)
#define LANES_MAX      64u
#define POINT_MS_MAX   60000u
#define USE_ROWS       1000000u /* of the works that --gpu tells of */
#define USE_DIM        128u

static const uint32_t blocks[] = {4096, 8192, 16384, 65536}, depths[] = {1, 4, 16, 32, 64, 128};
#define N_BLOCKS (sizeof blocks / sizeof *blocks)
#define N_DEPTHS (sizeof depths / sizeof *depths)

static int on_progress(void *context, uint32_t done, uint32_t total)
{
    return cli_progress(context, "probe", done, total);
}

static void report(struct cli *cli, const struct probe_report *r, uint64_t lanes)
{
    cli_put_text(cli, NULL, "folder", cli->arguments[0]);
    cli_put_text(cli, NULL, "engine", r->engine);
    cli_put_bool(cli, NULL, "direct_io", r->direct);
    cli_put_count(cli, NULL, "file_bytes", r->file_bytes);
    cli_put_count(cli, NULL, "lanes", lanes);
    for (uint32_t i = 0; i < r->n_points; i++) {
        const struct probe_point *p = &r->points[i];
        json_t *row = cli_put_row(cli, NULL, "points");
        cli_put_count(cli, row, "block_bytes", p->block_bytes);
        cli_put_count(cli, row, "depth", p->depth);
        cli_put_real(cli, row, "reads_per_second", p->iops);
        cli_put_real(cli, row, "mb_per_second", p->iops * p->block_bytes / 1e6);
        cli_put_real(cli, row, "mean_us", p->mean_us);
        cli_put_real(cli, row, "p50_us", p->p50_us);
        cli_put_real(cli, row, "p99_us", p->p99_us);
        cli_put_real(cli, row, "p999_us", p->p999_us);
    }
    for (size_t i = 0; i < N_BLOCKS; i++) {
        json_t *row = cli_put_row(cli, NULL, "knees");
        cli_put_count(cli, row, "block_bytes", blocks[i]);
        cli_put_count(cli, row, "depth", probe_knee(r, blocks[i]));
    }
}

/* ---- devices for distances --------------------------------------------------------------------------------------- */

static void report_devices(struct cli *cli)
{
    struct offload_device devices[16];
    struct quire_error err = {0};
    uint32_t n = 0;
    if (offload_list(devices, sizeof devices / sizeof *devices, &n, &err) < 0)
        cli_put_text(cli, NULL, "devices_note", err.message);
    for (uint32_t i = 0; i < n; i++) {
        json_t *row = cli_put_row(cli, NULL, "devices");
        cli_put_text(cli, row, "name", devices[i].name);
        cli_put_text(cli, row, "driver", devices[i].driver);
        cli_put_count(cli, row, "memory_bytes", devices[i].memory_bytes);
        cli_put_count(cli, row, "units", devices[i].units);
        cli_put_bool(cli, row, "is_processor", devices[i].is_processor);
    }
}

/* What auto would say of works of a common size. */
static void report_uses(struct cli *cli, const struct offload_rates *rates)
{
    struct offload_work truth, build[CLI_GPU_BUILD_WORKS];
    cli_gpu_truth_work(USE_ROWS, 1000, USE_DIM, QUIRE_TYPE_F32, &truth);
    cli_gpu_report_use(cli, rates, "truth of 1M x 128 f32, 1,000 queries", &truth, 1);
    cli_gpu_truth_work(USE_ROWS, 1000, USE_DIM, QUIRE_TYPE_U8, &truth);
    cli_gpu_report_use(cli, rates, "truth of 1M x 128 u8, 1,000 queries", &truth, 1);
    cli_gpu_build_works(USE_ROWS, USE_DIM, QUIRE_INDEX_PAGEGRAPH, 0, build);
    cli_gpu_report_build(cli, rates, "build of 1M x 128, page graph", build);
    cli_gpu_build_works(USE_ROWS, USE_DIM, QUIRE_INDEX_SPANN, 0, build);
    cli_gpu_report_build(cli, rates, "build of 1M x 128, lists", build);
}

static int probe_gpu(struct cli *cli, struct cli_gpu *gpu)
{
    static const char *const kinds[OFFLOAD_KINDS] = {"f32 distances", "u8 distances", "products of codes"};
    struct offload_rates rates;
    struct quire_error err = {0};
    report_devices(cli);
    cli_gpu_open(cli, gpu, NULL, 0, 0);
    int rc = gpu->offload ? offload_measure(gpu->offload, &rates, &err) : 0;
    cli_gpu_report(cli, gpu, true);
    if (rc == 0 && gpu->offload) {
        cli_put_real(cli, NULL, "send_mb_per_second", rates.send_bytes_per_second / 1e6);
        cli_put_real(cli, NULL, "call_us", rates.call_seconds * 1e6);
        for (unsigned i = 0; i < OFFLOAD_KINDS; i++) {
            json_t *row = cli_put_row(cli, NULL, "rates");
            cli_put_text(cli, row, "work", kinds[i]);
            cli_put_real(cli, row, "device_products_per_second", rates.products_per_second[i]);
            cli_put_real(cli, row, "thread_products_per_second", rates.processor_per_second[i]);
        }
        report_uses(cli, &rates);
    }
    cli_gpu_close(gpu);
    return cli_end(cli, rc, &err);
}

static const char summary[] = "Measures random reads in a folder, with a temporary file that is removed afterwards.\n"
                              "With --gpu and no folder: a device for distances beside the processor.";
static const char examples[] = "  quire probe /mnt/nvme\n"
                               "  quire probe . --size 4G --lanes 2 --engine threads --json\n"
                               "  quire probe --gpu auto\n";

int quire_probe(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    uint64_t size = 0, lanes = 1, milliseconds = 500;
    int engine = QUIRE_ENGINE_AUTO, code;
    struct cli_gpu gpu = {0};
    bool asks_gpu = false; /* it takes the folder's place */
    for (int i = 0; i < argc; i++)
        asks_gpu = asks_gpu || strncmp(argv[i], "--gpu", 5) == 0;
    const struct cli_option options[] = {
        CLI_OPTION("size", CLI_SIZE, &size, "SIZE",
                   "size of the test file; auto: 1G, less where the disk has less space", CLI_RANGE(FILE_BYTES_MIN, 0)),
        CLI_OPTION("lanes", CLI_COUNT, &lanes, "N", "threads that share the depth", CLI_RANGE(1, LANES_MAX)),
        CLI_OPTION("time", CLI_COUNT, &milliseconds, "MS", "milliseconds per measurement", CLI_RANGE(1, POINT_MS_MAX)),
        CLI_OPTION("engine", CLI_CHOICE, &engine, NULL, "how blocks are read", .choices = cli_engines),
        CLI_GPU_OPTION(&gpu),
    };
    const struct cli_verb verb = {
        "quire probe", summary, asks_gpu ? "" : "DIR", !asks_gpu, options, sizeof options / sizeof *options, examples};
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (asks_gpu)
        return probe_gpu(&cli, &gpu);
    struct probe_config config = {.block_bytes = blocks,
                                  .n_blocks = N_BLOCKS,
                                  .depths = depths,
                                  .n_depths = N_DEPTHS,
                                  .lanes = (uint32_t)lanes,
                                  .file_bytes = size,
                                  .measure_ms = (uint32_t)milliseconds,
                                  .engine = (enum quire_engine_kind)engine,
                                  .progress = on_progress,
                                  .context = &cli};
    struct probe_report r = {0};
    struct stat status;
    if (stat(cli.arguments[0], &status) == 0 && !S_ISDIR(status.st_mode)) {
        int wrong = error_set(&err, QUIRE_EINVALID, "%s is not a folder: name the one whose device is to be measured",
                              cli.arguments[0]);
        return cli_fail(&cli, wrong, &err);
    }
    int rc = probe_run(cli.arguments[0], &config, &r, &err);
    if (rc == QUIRE_ECANCELLED)
        cli_cancelled(&err);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    report(&cli, &r, lanes);
    probe_free(&r);
    return cli_finish(&cli, CLI_OK);
}
