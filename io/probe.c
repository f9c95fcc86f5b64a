/*
 * probe.c - measures random reads of a folder's device.
 *
 * The file is unlinked as soon as it is open: whatever happens to the process, its space comes back. It is filled with
 * random bytes, for devices that compress or elide zeros, and synced before the first read.
 *
 * A point is measured by `lanes` threads with an engine each; the queue depth is split between them as evenly as it
 * goes. Each op is queued again from its own `done` with a new offset, so exactly the wanted number of reads is in
 * flight, until the time is over; the last reads count, and their time with them, so that a device slower than the time
 * given has a rate as well. A latency runs from queueing to `done`, as a search sees it. Latencies go to a
 * histogram, within 0.8 %: memory does not grow with the rate.
 *
 * Without O_DIRECT (the report says so) the page cache is dropped before each point, which makes the first reads those
 * of the device and the later ones those of memory.
 */
#include "io/probe.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/histogram.h"
#include "io/memory.h"
#include "io/random.h"
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILE_BYTES_DEFAULT (1ull << 30)
#define MEASURE_MS_DEFAULT 500u
#define FILL_BYTES         (1u << 20)
#define BLOCK_MAX          (64u << 20)
#define DEPTH_MAX          4096u
#define LANES_MAX          256u
#define LATENCY_SUB_BITS   6u
#define LATENCY_BITS       40u /* 2^40 ns: 18 minutes */

/* Of reads, in ns. */
struct latencies {
    struct histogram histogram;
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS)];
};

struct probe_lane {
    struct io_file *file;
    enum quire_engine_kind engine_kind;
    uint32_t block_bytes, depth;
    uint64_t n_blocks, measure_ns;
    struct random random;
    pthread_t thread;
    struct engine *engine;
    const char *engine_name;
    uint64_t begun_ns, end_ns, last_ns;
    uint32_t running;
    struct latencies latencies;
    int failed;
    struct quire_error error;
};

struct probe_read {
    struct io_op op;
    uint64_t begun_ns;
};

/* ---- one lane ---------------------------------------------------------------------------------------------------- */

static void queue_read(struct probe_lane *lane, struct probe_read *read, uint64_t now_ns)
{
    read->op.offset = random_below(&lane->random, lane->n_blocks) * lane->block_bytes;
    read->begun_ns = now_ns;
    engine_queue(lane->engine, &read->op);
}

static void on_read(struct io_op *op, int result, unsigned flags)
{
    struct probe_read *read = (struct probe_read *)(void *)op;
    struct probe_lane *lane = op->owner;
    uint64_t now = clock_ns();
    (void)flags;
    assert(lane->running > 0 && now >= read->begun_ns);
    if (result != (int)op->bytes && !lane->failed)
        lane->failed =
            error_set(&lane->error, result < 0 ? result : QUIRE_ESHORTREAD,
                      "probe: read of %u bytes at offset %llu of %s: %s", op->bytes, (unsigned long long)op->offset,
                      op->file->path, quire_error_text(result < 0 ? result : QUIRE_ESHORTREAD));
    if (!lane->failed)
        histogram_add(&lane->latencies.histogram, now - read->begun_ns);
    lane->last_ns = now;
    if (!lane->failed && now < lane->end_ns)
        queue_read(lane, read, now);
    else
        lane->running--;
}

static int measure(struct probe_lane *lane, uint8_t *buffers, struct probe_read *reads)
{
    int rc = engine_attach(lane->engine, lane->file);
    /* registered buffers are an extra: locked-memory limits may forbid them */
    engine_register_buffers(lane->engine, buffers, memory_size_mul(lane->depth, lane->block_bytes));
    uint64_t now = clock_ns();
    assert(lane->depth > 0 && lane->n_blocks > 0);
    lane->begun_ns = now;
    lane->end_ns = now + lane->measure_ns;
    for (uint32_t i = 0; i < lane->depth; i++) {
        reads[i].op = (struct io_op){.kind = IO_READ,
                                     .file = lane->file,
                                     .buffer = buffers + (size_t)i * lane->block_bytes,
                                     .bytes = lane->block_bytes,
                                     .done = on_read,
                                     .owner = lane};
        queue_read(lane, &reads[i], now);
    }
    lane->running = lane->depth;
    while (lane->running > 0 && rc >= 0)
        rc = engine_poll(lane->engine, 1, UINT64_MAX);
    if (rc < 0 && !lane->failed)
        error_set(&lane->error, rc, "probe: cannot wait for reads: %s", quire_error_text(rc));
    return lane->failed ? lane->failed : rc < 0 ? rc : 0;
}

static void *run_lane(void *context)
{
    struct probe_lane *lane = context;
    size_t bytes = memory_size_mul(lane->depth, lane->block_bytes);
    struct engine_config config = {.kind = lane->engine_kind,
                                   .reads_max = lane->depth,
                                   .entries = lane->depth > 256 ? lane->depth : 0,
                                   .threads = lane->depth < 64 ? lane->depth : 64,
                                   .one_thread = true};
    struct probe_read *reads = calloc(lane->depth, sizeof *reads);
    uint8_t *buffers = memory_map_alone(bytes, 0);
    if (!reads || !buffers)
        lane->failed = error_set(&lane->error, QUIRE_ENOMEM, "no memory for %u reads of %u bytes: lower the depth",
                                 lane->depth, lane->block_bytes);
    if (!lane->failed)
        lane->failed = engine_create(&config, &lane->engine, &lane->error);
    if (!lane->failed) {
        lane->engine_name = engine_name(lane->engine);
        int rc = measure(lane, buffers, reads);
        lane->failed = rc;
        if (rc == 0)
            engine_detach(lane->engine, lane->file);
        engine_destroy(lane->engine);
    }
    memory_unmap(buffers, bytes);
    free(reads);
    return NULL;
}

/* ---- one point --------------------------------------------------------------------------------------------------- */

static void latencies_init(struct latencies *latencies)
{
    histogram_init(&latencies->histogram, latencies->counts, LATENCY_SUB_BITS, LATENCY_BITS);
}

static void sum_up(const struct probe_lane *lanes, uint32_t n_lanes, struct histogram *all, struct probe_point *point)
{
    uint64_t begun = UINT64_MAX, last = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
        histogram_merge(all, &lanes[i].latencies.histogram);
        begun = lanes[i].begun_ns < begun ? lanes[i].begun_ns : begun;
        last = lanes[i].last_ns > last ? lanes[i].last_ns : last;
    }
    assert(n_lanes > 0 && last >= begun);
    point->iops = (double)histogram_count(all) * 1e9 / (double)(last - begun + 1);
    point->mean_us = histogram_mean(all) / 1000;
    point->p50_us = histogram_percentile(all, 0.5) / 1000;
    point->p99_us = histogram_percentile(all, 0.99) / 1000;
    point->p999_us = histogram_percentile(all, 0.999) / 1000;
}

static int measure_point(const struct probe_config *config, struct io_file *file, uint64_t file_bytes, uint64_t seed,
                         struct probe_report *report, struct probe_point *point, struct quire_error *err)
{
    uint32_t n = config->lanes < point->depth ? config->lanes : point->depth, started = 0;
    uint64_t measure_ms = config->measure_ms ? config->measure_ms : MEASURE_MS_DEFAULT;
    struct probe_lane *lanes = calloc(n, sizeof *lanes);
    struct latencies *all = calloc(1, sizeof *all);
    int rc = lanes && all ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for %u lanes", n);
    if (rc == 0 && !file->direct)
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
    for (; rc == 0 && started < n; started += rc == 0) {
        struct probe_lane *lane = &lanes[started];
        lane->file = file;
        lane->engine_kind = config->engine;
        lane->block_bytes = point->block_bytes;
        lane->depth = point->depth / n + (started < point->depth % n);
        lane->n_blocks = file_bytes / point->block_bytes;
        lane->measure_ns = measure_ms * 1000000;
        random_init(&lane->random, seed + started);
        latencies_init(&lane->latencies);
        int errnum = pthread_create(&lane->thread, NULL, run_lane, lane);
        rc = errnum ? error_set_errno(err, errnum, "start", "a thread of the probe") : 0;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(lanes[i].thread, NULL);
        if (rc == 0 && lanes[i].failed) {
            rc = lanes[i].failed;
            if (err)
                *err = lanes[i].error;
        }
    }
    if (rc == 0) {
        latencies_init(all);
        sum_up(lanes, n, &all->histogram, point);
        report->engine = lanes[0].engine_name;
    }
    free(all);
    free(lanes);
    return rc;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* The wanted size, or half of the space that is left where that is less, in whole pages. */
static uint64_t choose_bytes(const char *folder, uint64_t wanted)
{
    struct statvfs capacity;
    uint64_t bytes = wanted ? wanted : FILE_BYTES_DEFAULT;
    if (!wanted && statvfs(folder, &capacity) == 0) {
        uint64_t half = (uint64_t)capacity.f_bavail * capacity.f_frsize / 2;
        bytes = half < bytes ? half : bytes;
    }
    return (bytes + 4095) / 4096 * 4096;
}

static int open_file(const char *folder, struct io_file **out, struct quire_error *err)
{
    struct io_fs *fs = fs_real();
    char *path;
    if (asprintf(&path, "%s/.quire-probe-%ld-%llx", folder, (long)getpid(), (unsigned long long)clock_ns()) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a path in %s", folder);
    int rc = fs_open(fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE | FS_DIRECT, out, err);
    if (rc == 0) {
        rc = fs->ops->unlink(fs, path);
        if (rc < 0)
            error_set(err, rc, "cannot unlink %s: %s", path, quire_error_text(rc));
    }
    free(path);
    return rc;
}

static int fill_file(struct io_file *file, uint64_t bytes, struct quire_error *err)
{
    struct random random;
    uint64_t *buffer = memory_aligned(4096, FILL_BYTES);
    int rc = buffer ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to fill the probe's file");
    random_init(&random, clock_ns());
    for (uint64_t at = 0; rc == 0 && at < bytes; at += FILL_BYTES) {
        for (size_t i = 0; i < FILL_BYTES / sizeof *buffer; i++)
            buffer[i] = random_next(&random);
        rc = fs_write_exact(file, buffer, bytes - at < FILL_BYTES ? (size_t)(bytes - at) : FILL_BYTES, at, err);
    }
    if (rc == 0)
        rc = fs_sync(file, err);
    memory_free(buffer);
    return rc;
}

/* ---- all points -------------------------------------------------------------------------------------------------- */

static int check_config(const struct probe_config *config, uint64_t file_bytes, struct quire_error *err)
{
    if (config->n_blocks == 0 || config->n_depths == 0)
        return error_set(err, QUIRE_EINVALID, "probe: name at least one block size and one queue depth");
    if (config->lanes == 0 || config->lanes > LANES_MAX)
        return error_set(err, QUIRE_EINVALID, "probe: %u lanes, use 1 to %u", config->lanes, LANES_MAX);
    for (uint32_t i = 0; i < config->n_blocks; i++) {
        uint32_t block = config->block_bytes[i];
        if (block == 0 || block % 4096 || block > BLOCK_MAX)
            return error_set(err, QUIRE_EINVALID, "probe: block of %u bytes, use a multiple of 4096 up to %u", block,
                             BLOCK_MAX);
        if (block > file_bytes)
            return error_set(err, QUIRE_EINVALID,
                             "probe: block of %u bytes in a file of %llu: make room or choose a "
                             "larger file",
                             block, (unsigned long long)file_bytes);
    }
    for (uint32_t i = 0; i < config->n_depths; i++)
        if (config->depths[i] == 0 || config->depths[i] > DEPTH_MAX)
            return error_set(err, QUIRE_EINVALID, "probe: queue depth %u, use 1 to %u", config->depths[i], DEPTH_MAX);
    return 0;
}

static int measure_all(const struct probe_config *config, struct io_file *file, struct probe_report *report,
                       struct quire_error *err)
{
    uint32_t total = config->n_blocks * config->n_depths;
    for (uint32_t i = 0; i < total; i++) {
        struct probe_point *point = &report->points[i];
        point->block_bytes = config->block_bytes[i / config->n_depths];
        point->depth = config->depths[i % config->n_depths];
        int rc = measure_point(config, file, report->file_bytes, (uint64_t)i * LANES_MAX, report, point, err);
        if (rc < 0)
            return rc;
        report->n_points = i + 1;
        if (config->progress && config->progress(config->context, i + 1, total))
            return error_set(err, QUIRE_ECANCELLED, "probe stopped after %u of %u points", i + 1, total);
    }
    return 0;
}

int probe_run(const char *folder, const struct probe_config *config, struct probe_report *out, struct quire_error *err)
{
    struct probe_report report = {.file_bytes = choose_bytes(folder, config->file_bytes)};
    struct io_file *file = NULL;
    int rc = check_config(config, report.file_bytes, err);
    if (rc < 0)
        return rc;
    report.points = calloc(memory_size_mul(config->n_blocks, config->n_depths), sizeof *report.points);
    if (!report.points)
        return error_set(err, QUIRE_ENOMEM, "no memory for the probe's report");
    rc = open_file(folder, &file, err);
    if (rc == 0)
        rc = fill_file(file, report.file_bytes, err);
    if (rc == 0) {
        report.direct = file->direct;
        rc = measure_all(config, file, &report, err);
    }
    fs_close(file);
    if (rc < 0)
        probe_free(&report);
    else
        *out = report;
    return rc;
}

void probe_free(struct probe_report *report)
{
    free(report->points);
    report->points = NULL;
    report->n_points = 0;
}

double probe_rate(const struct probe_report *report, uint32_t block_bytes)
{
    double best = 0;
    for (uint32_t i = 0; i < report->n_points; i++)
        if (report->points[i].block_bytes == block_bytes && report->points[i].iops > best)
            best = report->points[i].iops;
    return best;
}

uint32_t probe_knee(const struct probe_report *report, uint32_t block_bytes)
{
    double best = probe_rate(report, block_bytes);
    uint32_t knee = 0;
    for (uint32_t i = 0; i < report->n_points; i++) {
        const struct probe_point *point = &report->points[i];
        bool good = point->block_bytes == block_bytes && point->iops >= 0.9 * best;
        if (good && (knee == 0 || point->depth < knee))
            knee = point->depth;
    }
    return knee;
}
