/*
 * cli_gpu.h - `--gpu off|auto|NAME` of the verbs that can have a device do the work.
 */
#ifndef QUIRE_TOOLS_CLI_GPU_H
#define QUIRE_TOOLS_CLI_GPU_H

#include "index/offload/offload_probe.h"
#include "tools/cli/cli.h"

struct cli_gpu {
    const char *wanted;
    struct offload *offload; /* NULL: the processor */
    unsigned steps;          /* of a build that are the device's: enum build_device_step */
    char note[512];          /* why there is none, "" for off; or why auto took it */
};

#define CLI_GPU_OPTION(gpu)                                                                                            \
    CLI_OPTION("gpu", CLI_TEXT, &(gpu)->wanted, "off|auto|NAME",                                                       \
               "device for distances: a GPU if there is one, or what has NAME in its name")

/* Opens what is wanted, "auto" where nothing is said. With auto the device is taken only where all of this work
 * together pays on it by its measured rates; n_works 0: in any case. threads: of the processor, 0 for all. Never fails:
 * without a device the processor does the work, and a line on standard error says so where a device was named. */
void cli_gpu_open(struct cli *cli, struct cli_gpu *gpu, const struct offload_work *works, unsigned n_works,
                  unsigned threads);
/* Who did the work, and why not the device. all: it counts only where it did all that it was asked for. */
void cli_gpu_report(struct cli *cli, const struct cli_gpu *gpu, bool all);
void cli_gpu_close(struct cli_gpu *gpu);

/* The works of a ground truth and of a build, as docs/gpu.md counts them. */
void cli_gpu_truth_work(uint64_t rows, uint64_t queries, uint32_t dim, enum quire_type type, struct offload_work *out);
#define CLI_GPU_BUILD_WORKS 3u /* in the order of enum build_device_step */
/* queries of the calibration; 0: as by default */
void cli_gpu_build_works(uint64_t rows, uint32_t dim, enum quire_index_kind kind, uint64_t queries,
                         struct offload_work out[CLI_GPU_BUILD_WORKS]);
/* cli_gpu_open for a build: with auto the device gets those of its steps that pay, each by itself. */
void cli_gpu_open_build(struct cli *cli, struct cli_gpu *gpu, const struct offload_work works[CLI_GPU_BUILD_WORKS],
                        unsigned threads);
/* What auto would say of such works with all threads, by rates that were measured: a row of "uses". */
void cli_gpu_report_use(struct cli *cli, const struct offload_rates *rates, const char *use,
                        const struct offload_work *works, unsigned n_works);

/* The same of each step of a build of `what`. */
void cli_gpu_report_build(struct cli *cli, const struct offload_rates *rates, const char *what,
                          const struct offload_work works[CLI_GPU_BUILD_WORKS]);

#endif
