/*
 * cli_gpu.c - `--gpu off|auto|NAME`: which device, and what is said about it.
 *
 * A device is never needed: whatever is wrong with it is one line, and the processor does the work. The line goes to
 * standard error where the user named a device, and into the report in any case.
 *
 * Auto compares expected times. They come from rates that are measured here and now, which takes about half a second,
 * so work that the processor does in about that time stays there unmeasured.
 */
#include "tools/cli/cli_gpu.h"
#include "index/build/build.h"
#include "index/vector/parallel.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LAST_CUT 8u /* rows of a part that is not cut any more */

/* What works take on either side. */
static void expect(const struct offload_rates *rates, const struct offload_work *works, unsigned n_works,
                   unsigned threads, double *device, double *processor)
{
    *device = *processor = 0;
    for (unsigned i = 0; i < n_works; i++) {
        *device += offload_device_seconds(rates, &works[i]);
        *processor += offload_processor_seconds(rates, &works[i], threads ? threads : parallel_processors());
    }
}

static bool is_too_little(const struct offload_work *works, unsigned n_works, uint64_t *products)
{
    *products = 0;
    for (unsigned i = 0; i < n_works; i++)
        *products += works[i].products;
    return n_works > 0 && *products < OFFLOAD_PRODUCTS_LEAST;
}

/* With auto: closes a device on which the work does not pay. */
static void decide(struct cli_gpu *gpu, const struct offload_work *works, unsigned n_works, unsigned threads)
{
    struct offload_rates rates;
    struct quire_error err = {0};
    bool pays = false;
    if (offload_measure(gpu->offload, &rates, &err) < 0) {
        snprintf(gpu->note, sizeof gpu->note, "auto: %s", err.message);
    } else {
        double device, processor;
        expect(&rates, works, n_works, threads, &device, &processor);
        pays = device < processor;
        snprintf(gpu->note, sizeof gpu->note, "auto: %.3g s expected on the device, %.3g s on the processor", device,
                 processor);
    }
    if (!pays)
        cli_gpu_close(gpu);
}

static const char *const step_names[CLI_GPU_BUILD_WORKS] = {"bisection", "neighbours", "calibration"};

static void decide_steps(struct cli_gpu *gpu, const struct offload_work *works, unsigned threads)
{
    struct offload_rates rates;
    struct quire_error err = {0};
    size_t at = (size_t)snprintf(gpu->note, sizeof gpu->note, "auto, seconds expected on the device and without:");
    gpu->steps = 0;
    if (offload_measure(gpu->offload, &rates, &err) < 0)
        snprintf(gpu->note, sizeof gpu->note, "auto: %s", err.message);
    for (unsigned i = 0; i < CLI_GPU_BUILD_WORKS && err.code == 0; i++) {
        double device, processor;
        expect(&rates, &works[i], 1, threads, &device, &processor);
        gpu->steps |= device < processor ? 1u << i : 0;
        at += (size_t)snprintf(gpu->note + at, sizeof gpu->note - at, "%s %s %.3g, %.3g (%s)", i ? ";" : "",
                               step_names[i], device, processor, device < processor ? "device" : "processor");
    }
    assert(at < sizeof gpu->note);
    if (gpu->steps == 0)
        cli_gpu_close(gpu);
}

/* Opens what is wanted; true: auto is to decide about it. */
static bool open_wanted(struct cli *cli, struct cli_gpu *gpu, const struct offload_work *works, unsigned n_works)
{
    const char *wanted = gpu->wanted ? gpu->wanted : "auto";
    bool is_auto = strcmp(wanted, "auto") == 0;
    uint64_t products;
    gpu->steps = BUILD_STEPS;
    if (is_auto && is_too_little(works, n_works, &products)) {
        snprintf(gpu->note, sizeof gpu->note, "auto: %.3g products are too few to ask a device", (double)products);
        return false;
    }
    gpu->offload = offload_open(wanted, gpu->note, sizeof gpu->note);
    if (gpu->note[0] && !is_auto)
        cli_note(cli, "--gpu %s: %s", wanted, gpu->note);
    return gpu->offload && is_auto && n_works > 0;
}

void cli_gpu_open(struct cli *cli, struct cli_gpu *gpu, const struct offload_work *works, unsigned n_works,
                  unsigned threads)
{
    if (open_wanted(cli, gpu, works, n_works))
        decide(gpu, works, n_works, threads);
}

void cli_gpu_open_build(struct cli *cli, struct cli_gpu *gpu, const struct offload_work works[CLI_GPU_BUILD_WORKS],
                        unsigned threads)
{
    if (open_wanted(cli, gpu, works, CLI_GPU_BUILD_WORKS))
        decide_steps(gpu, works, threads);
}

void cli_gpu_report(struct cli *cli, const struct cli_gpu *gpu, bool all)
{
    struct offload_status status = {0};
    if (gpu->offload)
        offload_get_status(gpu->offload, &status);
    bool used = status.products > 0 && !(all && status.note[0]);
    cli_put_text(cli, NULL, "device", used ? status.device.name : "processor");
    const char *note = status.note[0] ? status.note : gpu->note;
    if (note[0])
        cli_put_text(cli, NULL, "device_note", note);
    if (used) {
        cli_put_text(cli, NULL, "device_way", status.way);
        cli_put_real(cli, NULL, "device_seconds", status.seconds);
    }
}

void cli_gpu_close(struct cli_gpu *gpu)
{
    offload_close(gpu->offload);
    gpu->offload = NULL;
}

/* ---- works ------------------------------------------------------------------------------------------------------- */

void cli_gpu_truth_work(uint64_t rows, uint64_t queries, uint32_t dim, enum quire_type type, struct offload_work *out)
{
    bool bytes = type == QUIRE_TYPE_U8 || type == QUIRE_TYPE_I8;
    *out = (struct offload_work){.kind = bytes ? OFFLOAD_BYTES : OFFLOAD_FLOATS,
                                 .products = rows * queries * dim,
                                 .bytes = rows * dim * quire_type_bytes(type),
                                 .calls = queries / 256 + 1};
}

/* Most products are those of rows with the rows of near groups, or with near centroids in each round, and those of all
 * rows with the queries of the calibration. Each level of the bisection multiplies each row once; rows go there once,
 * their order with each level, and a direction for each part that is cut, twice that of the last level in all. */
void cli_gpu_build_works(uint64_t rows, uint32_t dim, enum quire_index_kind kind, uint64_t queries,
                         struct offload_work out[CLI_GPU_BUILD_WORKS])
{
    uint64_t per_row = kind == QUIRE_INDEX_SPANN ? BUILD_LIST_PRODUCTS : BUILD_GRAPH_PRODUCTS, elements = rows * dim;
    uint64_t most = queries ? queries : BUILD_QUERIES_MOST, asked = rows / 20 < most ? rows / 20 : most, levels = 1;
    while (rows >> levels > LAST_CUT && levels < 63)
        levels++;
    out[0] = (struct offload_work){.kind = OFFLOAD_CODES,
                                   .products = elements * levels,
                                   .bytes = elements + 4 * rows * levels + 2 * elements / LAST_CUT,
                                   .calls = levels * (rows / 262144 + 1)};
    out[1] = (struct offload_work){.kind = OFFLOAD_CODES,
                                   .products = elements * per_row,
                                   .bytes = elements * 2, /* as rows and as queries */
                                   .calls = rows / 2048 + 1};
    out[2] = (struct offload_work){.kind = OFFLOAD_FLOATS,
                                   .products = elements * asked,
                                   .bytes = elements * sizeof(float),
                                   .calls = elements * sizeof(float) * 4 / (4u << 20) + 1};
}

static void report_use(struct cli *cli, const struct offload_rates *rates, const char *use,
                       const struct offload_work *works, unsigned n_works, bool little)
{
    double device, processor;
    json_t *row = cli_put_row(cli, NULL, "uses");
    expect(rates, works, n_works, 0, &device, &processor);
    cli_put_text(cli, row, "use", use);
    cli_put_real(cli, row, "device_seconds", device);
    cli_put_real(cli, row, "processor_seconds", processor);
    cli_put_text(cli, row, "auto", little ? "processor: too little" : device < processor ? "device" : "processor");
}

void cli_gpu_report_use(struct cli *cli, const struct offload_rates *rates, const char *use,
                        const struct offload_work *works, unsigned n_works)
{
    uint64_t products;
    report_use(cli, rates, use, works, n_works, is_too_little(works, n_works, &products));
}

void cli_gpu_report_build(struct cli *cli, const struct offload_rates *rates, const char *what,
                          const struct offload_work works[CLI_GPU_BUILD_WORKS])
{
    char use[128];
    uint64_t products;
    bool little = is_too_little(works, CLI_GPU_BUILD_WORKS, &products);
    for (unsigned i = 0; i < CLI_GPU_BUILD_WORKS; i++) {
        snprintf(use, sizeof use, "%s: %s", what, step_names[i]);
        report_use(cli, rates, use, &works[i], 1, little);
    }
}
