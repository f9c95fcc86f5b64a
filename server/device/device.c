/*
 * device.c - the thread that owns the device: it opens it, takes what lanes ask, and answers by messages.
 *
 * Asks wait in one line. Those for the same set and as many neighbours that stand together are one batch, whichever
 * clients they came from: a device takes hardly longer for a thousand queries than for one. For each segment of the set
 * it is decided whether the device is worth it (device_rows.c); of what it names, each ask gets its own piece of
 * memory. The line is bounded, and so are the places that all answers take; beyond that lanes go without.
 *
 * A driver may take seconds to open a device or to compile, and may hang; lanes see none of it. When a device is lost,
 * what is on it is forgotten, one line goes to the log, and from then on nothing is asked.
 */
#include "index/collection/collection_host.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include "server/device/device_priv.h"
#include "server/process/log.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITING_MAX 16384u             /* queries in line */
#define BATCH_MAX   4096u              /* queries that go to the device together, and one ask more */
#define PLACES_MAX  ((size_t)16 << 20) /* numbers in all answers: 64 MiB */
#define LOOK_MS     1000               /* how often segments that are gone are looked for */

/* ---- what is told ------------------------------------------------------------------------------------------------ */

static void set_state(struct device *d, enum device_state state)
{
    pthread_mutex_lock(&d->lock);
    d->status.state = state;
    pthread_mutex_unlock(&d->lock);
    atomic_store_explicit(&d->state, (int)state, memory_order_release);
}

bool device_is_ready(const struct device *d)
{
    return d && atomic_load_explicit(&d->state, memory_order_acquire) == DEVICE_READY;
}

void device_get_status(struct device *d, struct device_status *out)
{
    *out = (struct device_status){.state = DEVICE_NONE};
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    *out = d->status;
    pthread_mutex_unlock(&d->lock);
}

/* What the thread knows, for others to read. */
static void publish(struct device *d)
{
    struct offload_status offload = {0};
    uint64_t bytes = 0, segments = 0;
    if (d->offload)
        offload_get_status(d->offload, &offload);
    for (uint32_t i = 0; i < d->n_kept; i++) {
        uint64_t held = exact_bytes_held(d->kept[i].rows);
        bytes += held;
        segments += held > 0;
    }
    pthread_mutex_lock(&d->lock);
    d->status.offload = offload;
    d->status.rows_bytes = bytes;
    d->status.segments = segments;
    pthread_mutex_unlock(&d->lock);
}

static void fall_back(struct device *d, uint64_t *count, uint64_t n, const char *why)
{
    pthread_mutex_lock(&d->lock);
    *count += n;
    snprintf(d->status.last_fall_back, sizeof d->status.last_fall_back, "%s", why);
    pthread_mutex_unlock(&d->lock);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void decide(struct device *d, const char *wanted)
{
    const struct service *s = d->service;
    struct quire_error err = {0};
    char note[sizeof d->status.note] = "";
    enum device_state state = DEVICE_NONE;
    d->offload = offload_open(wanted, note, sizeof note);
    if (d->offload && d->is_auto && offload_measure(d->offload, &d->rates, &err) < 0) {
        snprintf(note, sizeof note, "the processor does the work: %s", err.message);
    } else if (d->offload) {
        struct offload_status status;
        double device = d->rates.products_per_second[OFFLOAD_FLOATS];
        double lanes = d->rates.processor_per_second[OFFLOAD_FLOATS] * s->n_lanes;
        offload_get_status(d->offload, &status);
        d->memory_bytes = status.device.memory_bytes / 4 * 3;
        state = !d->is_auto || device > lanes ? DEVICE_READY : DEVICE_NONE;
        if (d->is_auto)
            snprintf(note, sizeof note, "%s: %.3g products per second on %s, %.3g on %u lanes",
                     state == DEVICE_READY ? "used where it pays" : "the processor does the work", device,
                     status.device.name, lanes, s->n_lanes);
        else
            snprintf(note, sizeof note, "%s is used whatever it takes", status.device.name);
    }
    if (state == DEVICE_NONE) {
        offload_close(d->offload);
        d->offload = NULL;
    }
    pthread_mutex_lock(&d->lock);
    snprintf(d->status.note, sizeof d->status.note, "%s", note);
    pthread_mutex_unlock(&d->lock);
    publish(d);
    set_state(d, state);
    log_line(s->log, state == DEVICE_READY || d->is_auto ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARNING, "gpu %s: %s", wanted,
             note);
}

/* ---- asks -------------------------------------------------------------------------------------------------------- */

bool device_ask(struct device *d, struct device_ask *ask)
{
    assert(ask->n > 0 && ask->k > 0 && ask->message.run && !ask->named);
    if (!device_is_ready(d))
        return false;
    pthread_mutex_lock(&d->lock);
    bool takes = !d->stopping && !d->ending && d->status.waiting + ask->n <= WAITING_MAX;
    if (takes) {
        ask->next = NULL;
        ask->device = d;
        if (d->first)
            d->last->next = ask;
        else
            d->first = ask;
        d->last = ask;
        d->status.waiting += ask->n;
        d->status.asks++;
        d->status.queries += ask->n;
        pthread_cond_signal(&d->changed);
    } else {
        d->status.refused += ask->n;
    }
    pthread_mutex_unlock(&d->lock);
    return takes;
}

void device_ask_end(struct device_ask *ask)
{
    for (uint32_t i = 0; i < ask->n_named; i++) {
        segment_unref(ask->named[i].segment);
        free((uint32_t *)(uintptr_t)ask->named[i].counts); /* rows lie behind */
    }
    free(ask->named);
    if (ask->places)
        atomic_fetch_sub(&ask->device->places, ask->places);
    ask->named = NULL;
    ask->n_named = 0;
    ask->places = 0;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

struct batch {
    struct device_ask *first; /* of a list of its own */
    uint32_t n;
    const float **queries;
    uint32_t *counts, *rows;
    size_t rows_capacity, n_capacity;
};

/* Takes those at the head of the line that ask the same. Under the lock. */
static struct device_ask *take_batch(struct device *d, uint32_t *n)
{
    struct device_ask *first = d->first, *last = first;
    uint64_t most = DEVICE_ASK_PLACES / device_ask_places(first->k);
    most = most < BATCH_MAX ? most : BATCH_MAX;
    *n = first->n;
    while (last->next && *n < most && last->next->collection == first->collection && last->next->k == first->k &&
           last->next->exact == first->exact && last->next->recall == first->recall &&
           last->next->effort == first->effort) {
        last = last->next;
        *n += last->n;
    }
    d->first = last->next;
    last->next = NULL;
    assert(d->status.waiting >= *n);
    d->status.waiting -= *n;
    d->status.batches++;
    return first;
}

/* An ask's piece of what was named for a segment, queries `from` .. of the batch. False: there is no memory. */
static bool give(struct device *d, struct device_ask *ask, const struct batch *b, uint32_t from,
                 struct segment *segment, uint32_t most)
{
    size_t places = (size_t)ask->n * (most + 1);
    if (atomic_fetch_add(&d->places, places) + places > PLACES_MAX) {
        atomic_fetch_sub(&d->places, places);
        return false;
    }
    uint32_t *memory = malloc(places * sizeof *memory);
    if (!memory) {
        atomic_fetch_sub(&d->places, places);
        return false;
    }
    memcpy(memory, b->counts + from, sizeof *memory * ask->n);
    memcpy(memory + ask->n, b->rows + (size_t)from * most, sizeof *memory * ask->n * most);
    ask->named[ask->n_named++] = (struct collection_named){segment_ref(segment), most, memory, memory + ask->n};
    ask->places += places;
    return true;
}

static void give_all(struct device *d, const struct batch *b, struct segment *segment, uint32_t most)
{
    uint64_t named = 0, uncertain = 0;
    uint32_t from = 0;
    for (struct device_ask *ask = b->first; ask; from += ask->n, ask = ask->next) {
        if (!ask->named || !give(d, ask, b, from, segment, most)) {
            fall_back(d, &d->status.failed, ask->n, "there is no memory for what the device has named");
            continue;
        }
        for (uint32_t q = 0; q < ask->n; q++) {
            named += b->counts[from + q] > 0;
            uncertain += b->counts[from + q] == 0;
        }
    }
    pthread_mutex_lock(&d->lock);
    d->status.named += named;
    pthread_mutex_unlock(&d->lock);
    if (uncertain)
        fall_back(d, &d->status.uncertain, uncertain,
                  "too many rows are nearly as near as the last: the device cannot tell which they are");
}

/* Names rows of one segment for all queries of the batch. */
static int name_rows(struct batch *b, const struct part *part, struct exact_rows *rows, uint32_t *most,
                     struct quire_error *err)
{
    uint64_t n_dead = atomic_load_explicit(&part->n_dead, memory_order_relaxed);
    *most = exact_most(rows, b->first->k, n_dead);
    if (!array_reserve(&b->rows, &b->rows_capacity, memory_size_mul(b->n, *most)))
        return error_set(err, QUIRE_ENOMEM, "no memory for the rows that a device names of %u queries", b->n);
    struct exact_request request = {.n = b->n,
                                    .k = b->first->k,
                                    .queries = b->queries,
                                    .dead = part->dead,
                                    .n_dead = n_dead,
                                    .most = *most,
                                    .counts = b->counts,
                                    .rows = b->rows};
    return exact_name(rows, &request, err);
}

static void look_at_part(struct device *d, struct batch *b, const struct part *part)
{
    struct quire_error err = {0};
    char why[512];
    uint32_t most = 0;
    assert(b->first && b->n > 0);
    if (b->first->k >= part_living(part)) {
        fall_back(d, &d->status.declined, b->n, "all rows of a segment are asked for");
        return;
    }
    struct device_rows *rows = device_rows_find(d, part->segment, &err);
    if (!rows) {
        fall_back(d, &d->status.failed, b->n, err.message);
        return;
    }
    if (!device_rows_pay(d, rows, b->first, b->n, why, sizeof why)) {
        fall_back(d, &d->status.declined, b->n, why);
        return;
    }
    int rc;
    while ((rc = name_rows(b, part, rows->rows, &most, &err)) < 0 && device_rows_failed(d, rows, &err))
        continue;
    if (rc < 0)
        fall_back(d, &d->status.failed, b->n, err.message);
    else
        give_all(d, b, part->segment, most);
}

/* Its device is lost: nothing is asked of it any more. */
static void notice_loss(struct device *d)
{
    struct offload_status status;
    offload_get_status(d->offload, &status);
    if (!status.is_lost || atomic_load(&d->state) == DEVICE_LOST)
        return;
    set_state(d, DEVICE_LOST);
    device_rows_forget(d, true);
    log_line(d->service->log, LOG_LEVEL_WARNING, "gpu %s: %s is lost, the processor does the work: %s",
             d->service->config->gpu, status.device.name, status.note);
}

static void answer(struct device *d, struct batch *b)
{
    assert(b->first && b->n > 0);
    struct view *view = collection_view(b->first->collection);
    uint32_t from = 0;
    bool right = array_reserve(&b->counts, &b->n_capacity, b->n);
    b->queries = malloc(memory_size_mul(b->n, sizeof *b->queries));
    for (struct device_ask *ask = b->first; ask; ask = ask->next) {
        for (uint32_t q = 0; q < ask->n && b->queries; q++)
            b->queries[from++] = ask->queries[q];
        ask->named = calloc(view->n_parts ? view->n_parts : 1, sizeof *ask->named);
    }
    right = right && b->queries;
    if (!right)
        fall_back(d, &d->status.failed, b->n, "there is no memory for the queries that go to the device");
    for (uint32_t i = 0; i < view->n_parts && right && device_is_ready(d); i++) {
        look_at_part(d, b, view->parts[i]);
        notice_loss(d);
    }
    view_unref(view);
    free(b->queries);
}

/* Sends a list of asks back to their lanes. */
static void send_back(struct device_ask *first)
{
    for (struct device_ask *ask = first, *next; ask; ask = next) {
        next = ask->next;
        lane_post(ask->lane, &ask->message); /* which may end it */
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Until something is to be done, or for a while where segments are held. Under the lock. */
static void wait_for_work(struct device *d)
{
    struct timespec until;
    if (d->n_kept == 0) {
        pthread_cond_wait(&d->changed, &d->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_MS / 1000;
    pthread_cond_timedwait(&d->changed, &d->lock, &until);
}

static void *run(void *context)
{
    struct device *d = context;
    struct batch b = {0};
    decide(d, d->service->config->gpu);
    pthread_mutex_lock(&d->lock);
    while (!d->stopping || d->first) {
        if (!d->first) {
            wait_for_work(d);
        } else {
            bool ending = d->ending;
            b.first = take_batch(d, &b.n);
            pthread_mutex_unlock(&d->lock);
            if (!ending && device_is_ready(d))
                answer(d, &b);
            publish(d);
            send_back(b.first);
            pthread_mutex_lock(&d->lock);
        }
        pthread_mutex_unlock(&d->lock);
        device_rows_forget(d, false);
        publish(d);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    device_rows_forget(d, true);
    offload_close(d->offload);
    d->offload = NULL;
    free(d->kept);
    free(b.counts);
    free(b.rows);
    return NULL;
}

int device_start(struct service *service, struct quire_error *err)
{
    const char *wanted = service->config->gpu;
    if (!*wanted || strcmp(wanted, "off") == 0)
        return 0;
    struct device *d = calloc(1, sizeof *d);
    pthread_condattr_t monotonic;
    if (!d)
        return error_set(err, QUIRE_ENOMEM, "no memory for the device that gpu names");
    d->service = service;
    d->is_auto = strcmp(wanted, "auto") == 0;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int errnum = pthread_create(&d->thread, NULL, run, d);
    if (errnum) {
        pthread_cond_destroy(&d->changed);
        pthread_mutex_destroy(&d->lock);
        free(d);
        return error_set_errno(err, errnum, "start", "the thread of the device that gpu names");
    }
    service->device = d;
    return 0;
}

void device_stop(struct service *service)
{
    struct device *d = service->device;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    assert(!d->first && atomic_load(&d->places) == 0);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
    service->device = NULL;
}

static void stop(struct lane *lane)
{
    struct device *d = lane->service->device;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->ending = true;
    pthread_mutex_unlock(&d->lock);
}

const struct lane_hook device_hook = {.stop = stop};
