/*
 * quire_probe.c - `quire probe`: how fast a device reads at random, by block size and queue depth.
 *
 * The knee is the depth that reaches nine tenths of a block size's best rate: what `quire search --depth` is for.
 */
#include "io/error.h"
#include "io/probe.h"
#include "tools/cli.h"
#include <sys/stat.h>

#define FILE_BYTES_MIN (1u << 20)
#define LANES_MAX      64u
#define POINT_MS_MAX   60000u

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

static const char summary[] = "Measures random reads in a folder, with a temporary file that is removed afterwards.";
static const char examples[] = "  quire probe /mnt/nvme\n"
                               "  quire probe . --size 4G --lanes 2 --engine threads --json\n";

int quire_probe(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    uint64_t size = 0, lanes = 1, milliseconds = 500;
    int engine = QUIRE_ENGINE_AUTO, code;
    const struct cli_option options[] = {
        CLI_OPTION("size", CLI_SIZE, &size, "SIZE",
                   "size of the test file; auto: 1G, less where the disk has less space", CLI_RANGE(FILE_BYTES_MIN, 0)),
        CLI_OPTION("lanes", CLI_COUNT, &lanes, "N", "threads that share the depth", CLI_RANGE(1, LANES_MAX)),
        CLI_OPTION("time", CLI_COUNT, &milliseconds, "MS", "milliseconds per measurement", CLI_RANGE(1, POINT_MS_MAX)),
        CLI_OPTION("engine", CLI_CHOICE, &engine, NULL, "how blocks are read", .choices = cli_engines),
    };
    const struct cli_verb verb = {"quire probe", summary, "DIR", 1, options, sizeof options / sizeof *options,
                                  examples};
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
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
