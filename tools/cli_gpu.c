/*
 * cli_gpu.c - `--gpu off|auto|NAME`: which device, and what is said about it.
 *
 * A device is never needed: whatever is wrong with it is one line, and the processor does the work. The line goes to
 * standard error where the user named a device, and into the report in any case.
 *
 * Auto compares expected times. They come from rates that are measured here and now, which takes about half a second,
 * so work that the processor does in about that time stays there unmeasured.
 */
#include "tools/cli_gpu.h"
#include "index/vector/parallel.h"
#include <stdio.h>
#include <string.h>

/* With auto: closes a device on which the work does not pay. */
static void decide(struct cli_gpu *gpu, const struct offload_work *works, unsigned n_works, unsigned threads)
{
    struct offload_rates rates;
    struct quire_error err = {0};
    bool pays = false;
    if (offload_measure(gpu->offload, &rates, &err) < 0) {
        snprintf(gpu->note, sizeof gpu->note, "auto: %s", err.message);
    } else {
        double device = 0, processor = 0;
        for (unsigned i = 0; i < n_works; i++) {
            device += offload_device_seconds(&rates, &works[i]);
            processor += offload_processor_seconds(&rates, &works[i], threads ? threads : parallel_processors());
        }
        pays = device < processor;
        snprintf(gpu->note, sizeof gpu->note, "auto: %.3g s expected on the device, %.3g s on the processor", device,
                 processor);
    }
    if (!pays)
        cli_gpu_close(gpu);
}

void cli_gpu_open(struct cli *cli, struct cli_gpu *gpu, const struct offload_work *works, unsigned n_works,
                  unsigned threads)
{
    const char *wanted = gpu->wanted ? gpu->wanted : "auto";
    bool is_auto = strcmp(wanted, "auto") == 0;
    uint64_t products = 0;
    for (unsigned i = 0; i < n_works; i++)
        products += works[i].products;
    if (is_auto && n_works > 0 && products < OFFLOAD_PRODUCTS_LEAST) {
        snprintf(gpu->note, sizeof gpu->note, "auto: %.3g products are too few to ask a device", (double)products);
        return;
    }
    gpu->offload = offload_open(wanted, gpu->note, sizeof gpu->note);
    if (gpu->note[0] && !is_auto)
        cli_note(cli, "--gpu %s: %s", wanted, gpu->note);
    if (gpu->offload && is_auto && n_works > 0)
        decide(gpu, works, n_works, threads);
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
    if (used)
        cli_put_real(cli, NULL, "device_seconds", status.seconds);
}

void cli_gpu_close(struct cli_gpu *gpu)
{
    offload_close(gpu->offload);
    gpu->offload = NULL;
}
