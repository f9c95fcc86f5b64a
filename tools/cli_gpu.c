/*
 * cli_gpu.c - `--gpu off|auto|NAME`: which device, and what is said about it.
 *
 * A device is never needed: whatever is wrong with it is one line, and the processor does the work. The line goes to
 * standard error where the user named a device, and into the report in any case.
 */
#include "tools/cli_gpu.h"
#include <stdio.h>
#include <string.h>

void cli_gpu_open(struct cli *cli, struct cli_gpu *gpu)
{
    const char *wanted = gpu->wanted ? gpu->wanted : "auto";
    gpu->offload = offload_open(wanted, gpu->note, sizeof gpu->note);
    if (gpu->note[0] && strcmp(wanted, "auto") != 0)
        cli_note(cli, "--gpu %s: %s", wanted, gpu->note);
}

void cli_gpu_report(struct cli *cli, const struct cli_gpu *gpu, bool all)
{
    struct offload_status status = {0};
    if (gpu->offload)
        offload_get_status(gpu->offload, &status);
    bool used = status.products > 0 && !(all && status.note[0]);
    cli_put_text(cli, NULL, "device", used ? status.device.name : "processor");
    const char *note = gpu->offload ? status.note : gpu->note;
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
