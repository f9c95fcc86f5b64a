/*
 * device_rows.c - which segments have their rows on the device, and whether a batch of queries is worth it.
 *
 * A device that was named by the operator gets all it can do. With auto a batch must be expected to take less time
 * there than on all lanes (docs/gpu.md has the model), and rows must be there first: to bring them costs as much as a
 * number of exact searches of them, which pays only if others follow. Nobody knows whether they will, so rows are
 * brought when the time that was lost for lack of them has come up to what bringing them costs: whatever follows, no
 * more than twice the least possible is lost (as with skis that may be rented or bought: Karlin et al., 1988).
 *
 * Rows that were used least recently make room for others. What failed is not tried again for a while; what cannot be,
 * never. Segments that left their set go within a second, as their files stay while they are held.
 */
#include "index/segment/segment.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "server/device/device_priv.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KEPT_MAX       1024u
#define AGAIN_US       60000000u /* after which what failed is tried again */
#define RECALL_DEFAULT 0.95f

static void close_at(struct device *d, uint32_t i)
{
    assert(i < d->n_kept);
    exact_close(d->kept[i].rows);
    d->kept[i] = d->kept[--d->n_kept];
}

void device_rows_forget(struct device *d, bool all)
{
    for (uint32_t i = d->n_kept; i-- > 0;)
        if (all || segment_is_retired(exact_segment(d->kept[i].rows)))
            close_at(d, i);
}

/* The one that was used longest ago, but for one (NULL: none); UINT32_MAX: there is no other. held: only of those that
 * have rows on the device. */
static uint32_t find_oldest(const struct device *d, const struct device_rows *but, bool held)
{
    uint32_t oldest = UINT32_MAX;
    for (uint32_t i = 0; i < d->n_kept; i++)
        if (&d->kept[i] != but && (!held || exact_bytes_held(d->kept[i].rows) > 0) &&
            (oldest == UINT32_MAX || d->kept[i].used < d->kept[oldest].used))
            oldest = i;
    return oldest;
}

struct device_rows *device_rows_find(struct device *d, struct segment *segment, struct quire_error *err)
{
    for (uint32_t i = 0; i < d->n_kept; i++)
        if (exact_segment(d->kept[i].rows) == segment) {
            d->kept[i].used = ++d->clock;
            return &d->kept[i];
        }
    if (d->n_kept == KEPT_MAX)
        close_at(d, find_oldest(d, NULL, false));
    struct exact_rows *rows;
    if (!array_reserve(&d->kept, &d->kept_capacity, d->n_kept + 1)) {
        error_set(err, QUIRE_ENOMEM, "no memory for a segment on the device");
        return NULL;
    }
    if (exact_open(d->offload, segment, exact_bits_for(segment, d->memory_bytes), &rows, err) < 0)
        return NULL;
    d->kept[d->n_kept] = (struct device_rows){.rows = rows, .used = ++d->clock};
    return &d->kept[d->n_kept++];
}

/* What another segment has on the device goes; false: there is nothing. */
static bool make_room(struct device *d, const struct device_rows *but)
{
    uint32_t oldest = find_oldest(d, but, true);
    if (oldest == UINT32_MAX)
        return false;
    exact_leave(d->kept[oldest].rows);
    d->kept[oldest].debt = 0;
    return true;
}

static uint64_t bytes_held(const struct device *d)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < d->n_kept; i++)
        bytes += exact_bytes_held(d->kept[i].rows);
    return bytes;
}

/* ---- whether it pays --------------------------------------------------------------------------------------------- */

/* What n searches that are not exact take the lanes: the codes of the blocks or lists that their effort stands for. */
static double usual_seconds(const struct device *d, const struct segment *segment, const struct device_ask *ask,
                            uint32_t n)
{
    const struct segment_info *i = segment_info(segment);
    float recall = ask->recall > 0 ? ask->recall : RECALL_DEFAULT;
    uint64_t effort = segment_effort(segment, recall, ask->k, false);
    effort = effort > ask->effort ? effort : ask->effort;
    uint64_t places = i->n_lists ? i->n_lists : i->n_blocks, codes = i->n_lists;
    codes += (effort < places ? effort : places) * (i->rows / places + 1);
    const struct offload_work work = {.kind = OFFLOAD_CODES, .products = codes * i->code_dim * n};
    return offload_processor_seconds(&d->rates, &work, d->service->n_lanes);
}

static bool auto_takes(const struct device *d, struct device_rows *r, const struct device_ask *ask, uint32_t n,
                       char *why, size_t bytes)
{
    struct segment *segment = exact_segment(r->rows);
    const struct segment_info *i = segment_info(segment);
    struct offload_work search, load;
    exact_work(segment, exact_bits(r->rows), n, &search, &load);
    double device = offload_device_seconds(&d->rates, &search);
    double processor = ask->exact ? offload_processor_seconds(&d->rates, &search, d->service->n_lanes)
                                  : usual_seconds(d, segment, ask, n);
    if (device >= processor) {
        snprintf(why, bytes, "auto: %.3g s expected on the device for %u queries of %llu rows, %.3g s on %u lanes",
                 device, n, (unsigned long long)i->rows, processor, d->service->n_lanes);
        return false;
    }
    if (exact_bytes_held(r->rows) == exact_bytes(segment, exact_bits(r->rows)))
        return true;
    double bringing = offload_device_seconds(&d->rates, &load);
    r->debt += processor - device;
    if (r->debt >= bringing)
        return true;
    snprintf(why, bytes, "auto: the device would have saved %.3g s so far, to bring the %llu rows there takes %.3g s",
             r->debt, (unsigned long long)i->rows, bringing);
    return false;
}

bool device_rows_pay(struct device *d, struct device_rows *r, const struct device_ask *ask, uint32_t n, char *why,
                     size_t bytes)
{
    struct segment *segment = exact_segment(r->rows);
    uint64_t needed = exact_bytes(segment, exact_bits(r->rows));
    if (r->until_us > clock_us()) {
        snprintf(why, bytes, "%s", r->why);
        return false;
    }
    r->until_us = 0;
    if (needed > d->memory_bytes) {
        snprintf(why, bytes, "the %llu rows of a segment take %llu bytes, the device has %llu for rows",
                 (unsigned long long)segment_info(segment)->rows, (unsigned long long)needed,
                 (unsigned long long)d->memory_bytes);
        return false;
    }
    if (ask->k > exact_most(r->rows, ask->k, 0)) {
        snprintf(why, bytes, "%u neighbours: the device names %u at most", ask->k, exact_most(r->rows, ask->k, 0));
        return false;
    }
    if (d->is_auto && !auto_takes(d, r, ask, n, why, bytes))
        return false;
    while (bytes_held(d) - exact_bytes_held(r->rows) + needed > d->memory_bytes && make_room(d, r))
        continue;
    return true;
}

bool device_rows_failed(struct device *d, struct device_rows *r, const struct quire_error *err)
{
    bool for_good = err->code == QUIRE_EUNSUPPORTED || err->code == QUIRE_ECORRUPT;
    exact_leave(r->rows);
    if (err->code == QUIRE_ENOMEM && make_room(d, r))
        return true;
    r->until_us = for_good ? UINT64_MAX : clock_us() + AGAIN_US;
    snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1, err->message);
    return false;
}
