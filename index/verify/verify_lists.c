/*
 * verify_lists.c - checks inverted lists: heads, posting blocks, and every code against the row that it stands for.
 *
 * Opening has checked the directory: each row of the segment is a member of exactly one list, and the posting blocks
 * follow each other without gaps. Here the graph of the heads is checked (graph_check), then each posting block:
 * checksum and shape, guests and replicas that are other rows in ascending order, all guests, no row in more than
 * POSTING_COPIES_MAX lists, zeros where nothing stands. The radius of a list is that of its farthest entry.
 *
 * A code and its two factors must be what docs/format.md says of the residual r = row - head: some step s gives every
 * level, f is |r|^2 / <r, y>, A is |r|^2 + 2 f <y, head>. How the step was chosen is the writer's affair, so none is
 * asked for: each level bounds s from both sides, and the bounds must leave one. The row's vector is known by its slot
 * as precisely as that holds it: of the input's own elements up to what the rounding of another instruction set's
 * transform leaves, of 8-bit codes and halves up to their rounding. All comparisons are of intervals that follow from
 * this error, so that a sound index has no finding whatever machine wrote it.
 *
 * Replicas are rows from anywhere. Blocks are therefore held a window of rows at a time; the first pass over the
 * posting blocks notes which windows each list has rows of, the others read only the lists of theirs. Memory: one
 * window, a byte per row, 40 per list.
 */
#include "index/graph/graph.h"
#include "index/kernels/kernels.h"
#include "index/vector/codes.h"
#include "index/verify/verify_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES  (16u << 20) /* of blocks, at least */
#define WINDOWS_MAX   64u         /* bits of a word */
#define ROUNDING      4e-6        /* of a vector's length, per coordinate: two transforms by the kernels' own limit */
#define HALF_ROUNDING 5e-4        /* of a half float, relative, and what floats lose on the way to it */
#define HALF_SMALL    3.1e-8      /* absolute, of the smallest ones */
#define HALF_TOP      65504.0
#define SUM_ROUNDING  1e-5
#define TINY          1e-30

struct interval {
    double low, high;
};

/* How far the entries of a list are from its head, as far as their slots tell. */
struct spread {
    uint64_t measured;
    double norms2_high; /* sum of squares, not below the true one */
    struct interval farthest;
};

struct lists_check {
    struct verification *v;
    uint64_t *windows;      /* per list: which windows it has rows of; 0: damaged */
    struct spread *spreads; /* per list */
    uint8_t *copies;        /* per row: lists that it is in as a replica */
    uint32_t window_blocks, n_windows;
    uint32_t first_block, n_blocks; /* of the window in memory */
    uint8_t *blocks;
    struct block_view *views; /* of the window; base NULL: damaged */
    uint8_t *posting;
    float *head;
    uint8_t *code;
};

static bool meet(struct interval a, struct interval b)
{
    return a.low <= b.high && b.low <= a.high;
}

/* ---- the error of a slot ----------------------------------------------------------------------------------------- */

/* What a slot leaves open of its row's vector in the working space: of each coordinate, and of the whole length. */
struct slot_error {
    double each, length;
};

static double length_of(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* Elements of this slot are those of the input, rounded; 0: as they came. */
static double element_rounding(const struct segment_params *p)
{
    bool integers = p->type == QUIRE_TYPE_U8 || p->type == QUIRE_TYPE_I8;
    if (integers || (p->slot != QUIRE_SLOT_F16 && p->slot != QUIRE_SLOT_BF16) ||
        (uint32_t)format_slot_type(p->slot) == p->type)
        return 0;
    return p->slot == QUIRE_SLOT_F16 ? 0x1p-11 : 0x1p-8;
}

/* Of a vector whose elements in v->vector were rounded by such a share. */
static double rounded_length(const struct verification *v, double share)
{
    const struct segment_params *p = &v->s->params;
    double length = length_of(v->vector, p->dim), error = share * length + HALF_SMALL * sqrt(p->dim);
    if (p->metric == QUIRE_METRIC_COSINE)
        return length > 0 ? 2 * error / length : 0;
    if (p->metric == QUIRE_METRIC_L2)
        return error;
    double change = error * (2 * length + error), rest = p->norm2_max - length * length;
    double lifted = rest > 0 ? fmin(sqrt(change), change / sqrt(rest)) : sqrt(change);
    return error + lifted;
}

/* Of the vector that verify_slot_vector has just decoded. */
static struct slot_error slot_error(const struct verification *v, const struct block_view *view, uint32_t slot)
{
    const struct segment_params *p = &v->s->params;
    double root = sqrt(p->code_dim), each = ROUNDING * length_of(v->rotated, p->code_dim) + TINY;
    struct slot_error out = {each, root * each};
    if (p->slot == QUIRE_SLOT_Q8 && !p->unit_codes) {
        /* Of a coordinate half a step, and as much for the factor, which is not quite the step. Of the length: the
         * factor leaves |r| tan of the angle to the levels, whose sine half a step per coordinate bounds. */
        double step = fabs((double)bytes_load_f32(view->factors + 8 * (size_t)slot + 4));
        out.each += step;
        out.length += 0.6 * root * step;
    } else if (element_rounding(p) > 0) {
        double length = rounded_length(v, element_rounding(p));
        out.each += length;
        out.length += length;
    }
    return out;
}

/* ---- a code ------------------------------------------------------------------------------------------------------ */

/* Whether some step gives all levels y of r, each coordinate of which is known up to `each`. */
static bool levels_agree(const float *r, const float *y, uint32_t dim, unsigned bits, double each)
{
    double top = code_half(bits);
    struct interval step = {0, INFINITY};
    for (uint32_t i = 0; i < dim; i++) {
        double m = fabs((double)y[i]), along = y[i] < 0 ? -(double)r[i] : (double)r[i];
        if (along + each < 0)
            return false;
        if (m > 0.5)
            step.low = fmax(step.low, (m - 0.5) / (along + each));
        if (m < top && along - each > 0)
            step.high = fmin(step.high, (m + 0.5) / (along - each));
    }
    return step.low <= step.high * (1 + SUM_ROUNDING);
}

/* What a half float may have been rounded from; at the limit anything beyond, too. */
static struct interval stored(const uint8_t *half, float scale)
{
    f16_t bits = bytes_load_u16(half);
    float value;
    kernels()->f32_from_f16(&bits, &value, 1);
    double h = (double)value, slack = fabs(h) * HALF_ROUNDING * 1.1 + HALF_SMALL;
    return (struct interval){h <= -HALF_TOP ? -INFINITY : (h - slack) * (double)scale,
                             h >= HALF_TOP ? INFINITY : (h + slack) * (double)scale};
}

/* Sums over a residual r, its levels y and the head. */
struct code_sums {
    double norm2, ry, y_abs, yy, head_y;
};

static struct code_sums sum_up(const float *r, const float *y, const float *head, uint32_t dim)
{
    struct code_sums s = {0, 0, 0, 0, 0};
    for (uint32_t i = 0; i < dim; i++) {
        s.norm2 += (double)r[i] * r[i];
        s.ry += (double)r[i] * y[i];
        s.y_abs += fabs((double)y[i]);
        s.yy += (double)y[i] * y[i];
        s.head_y += (double)head[i] * y[i];
    }
    return s;
}

/* Whether the factors are those of the code, given the error of r and the length that it has apart. */
static bool factors_agree(const struct code_sums *s, struct slot_error e, float apart, const uint8_t *factors,
                          float scale_a, float scale_f)
{
    double length = sqrt(s->norm2), shorter = fmax(0, length - e.length), longer = length + e.length;
    double ry_error = fmin(e.each * s->y_abs, e.length * sqrt(s->yy)) + TINY;
    struct interval norm2 = {shorter * shorter, longer * longer}, f, a, f_stored = stored(factors + 2, scale_f);
    f.low = norm2.low / fmax(s->ry + ry_error, TINY) * (1 - SUM_ROUNDING);
    f.high = s->ry > ry_error ? norm2.high / (s->ry - ry_error) * (1 + SUM_ROUNDING) : INFINITY;
    if (!meet(f, f_stored))
        return false;
    f.low = fmax(f.low, f_stored.low);
    f.high = fmin(f.high, f_stored.high);
    if (!isfinite(f.high))
        return true; /* the slot says too little of a row that is its list's head, but for rounding */
    double one = 2 * f.low * s->head_y, two = 2 * f.high * s->head_y;
    double slack = SUM_ROUNDING * (norm2.high + fmax(fabs(one), fabs(two)));
    a.low = (double)apart + norm2.low + fmin(one, two) - slack;
    a.high = (double)apart + norm2.high + fmax(one, two) + slack;
    return meet(a, stored(factors, scale_a));
}

/* How far the decoded code is from the row, for the report. */
static void measure_code(struct verification *v, const float *r, const float *y, double norm2, const uint8_t *factor)
{
    const struct segment *s = v->s;
    struct interval f = stored(factor, s->params.scale_f[s->width]);
    double middle = (f.low + f.high) / 2, wrong = 0;
    if (!isfinite(middle) || norm2 <= 1e-12 * verify_scale2(&s->params))
        return;
    for (uint32_t i = 0; i < s->params.code_dim; i++) {
        double d = (double)r[i] - middle * (double)y[i];
        wrong += d * d;
    }
    v->error_sum += wrong / norm2;
    v->errors++;
    v->report.code_error_max = fmax(v->report.code_error_max, sqrt(wrong / norm2));
}

/* ---- an entry ---------------------------------------------------------------------------------------------------- */

static void add_to_spread(struct spread *spread, double distance, double error)
{
    spread->measured++;
    spread->norms2_high += (distance + error) * (distance + error);
    spread->farthest.low = fmax(spread->farthest.low, distance - error);
    spread->farthest.high = fmax(spread->farthest.high, distance + error);
}

static void verify_entry(struct lists_check *check, const struct posting_block_view *posting, uint32_t i,
                         const struct block_view *view, uint32_t slot)
{
    struct verification *v = check->v;
    const struct segment *s = v->s;
    const struct segment_params *p = &s->params;
    const uint8_t *factors = posting->factors + 4 * (size_t)i;
    if (p->slot == QUIRE_SLOT_Q8)
        segment_centre(s, view->number, v->centre);
    float apart = verify_slot_vector(v, view, slot);
    struct slot_error error = slot_error(v, view, slot);
    for (uint32_t d = 0; d < p->code_dim; d++)
        v->rotated[d] -= check->head[d];
    code_group_get(posting->groups + (size_t)(i / CODE_GROUP) * posting->group_bytes, i % CODE_GROUP, p->code_dim,
                   p->list_bits, check->code);
    code_decode(check->code, p->code_dim, p->list_bits, 1, v->decoded);
    struct code_sums sums = sum_up(v->rotated, v->decoded, check->head, p->code_dim);
    add_to_spread(&check->spreads[posting->number], sqrt(sums.norm2), error.length);
    measure_code(v, v->rotated, v->decoded, sums.norm2, factors + 2);
    if (!levels_agree(v->rotated, v->decoded, p->code_dim, p->list_bits, error.each))
        verify_found(v, "entry %u of list %u of %s: its code is not one of row %u", i, posting->number,
                     section_file_io(s->postings)->path, posting_block_row(posting, i));
    else if (!factors_agree(&sums, error, apart, factors, p->scale_a[s->width], p->scale_f[s->width]))
        verify_found(v, "entry %u of list %u of %s: its factors are not those of row %u", i, posting->number,
                     section_file_io(s->postings)->path, posting_block_row(posting, i));
}

/* The entries whose rows are in the window. */
static void verify_entries_of(struct lists_check *check, const struct posting_block_view *posting)
{
    const struct segment *s = check->v->s;
    uint32_t slots = s->params.slots_per_block;
    const uint8_t *code;
    float f, norm2;
    graph_row(s->lists->heads, posting->number, &code, &f, &norm2);
    code_decode(code, s->params.code_dim, 8, f, check->head);
    for (uint32_t i = 0; i < posting->entries; i++) {
        uint32_t row = posting_block_row(posting, i), block = row / slots - check->first_block;
        if (block < check->n_blocks && check->views[block].base)
            verify_entry(check, posting, i, &check->views[block], row % slots);
    }
}

/* ---- a posting block --------------------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Places of the last group that no entry has, as bits that are not zero. */
static bool spare_places_are_zero(const struct lists_check *check, const struct posting_block_view *posting)
{
    const struct segment_params *p = &check->v->s->params;
    for (uint32_t i = posting->entries; i < posting->n_groups * CODE_GROUP; i++) {
        code_group_get(posting->groups + (size_t)(i / CODE_GROUP) * posting->group_bytes, i % CODE_GROUP, p->code_dim,
                       p->list_bits, check->code);
        if (!is_zero(check->code, code_bytes_of(p->code_dim, p->list_bits)))
            return false;
    }
    return true;
}

static bool rest_is_zero(const struct lists_check *check, const struct posting_block_view *posting,
                         const struct posting_block_shape *shape)
{
    const uint8_t *base = check->posting;
    uint32_t ids = shape->ids + 4 * (posting->entries - posting->own), factors = shape->factors + 4 * posting->entries;
    uint32_t end = shape->groups + shape->n_groups * shape->group_bytes;
    return bytes_load_u16(base + 6) == 0 && is_zero(base + 40, POSTING_HEADER_BYTES - 40) &&
           is_zero(base + ids, shape->factors - ids) && is_zero(base + factors, shape->groups - factors) &&
           is_zero(base + end, shape->bytes - end) && spare_places_are_zero(check, posting);
}

static void count_copies(struct lists_check *check, const struct posting_block_view *posting)
{
    const struct lists *lists = check->v->s->lists;
    uint32_t guests = 0;
    assert(posting->number < lists->n && posting->own <= posting->entries);
    for (uint32_t i = posting->own; i < posting->entries; i++) {
        uint32_t row = posting_block_row(posting, i);
        if (row >= lists->first_guest && lists->guest_lists[row - lists->first_guest] == posting->number) {
            guests++;
            continue;
        }
        if (check->copies[row] < POSTING_COPIES_MAX && ++check->copies[row] == POSTING_COPIES_MAX)
            verify_found(check->v, "row %u stands in list %u and in %u others: more than %u", row, posting->number,
                         POSTING_COPIES_MAX, POSTING_COPIES_MAX);
    }
    if (guests != lists_guests(lists, posting->number))
        verify_found(check->v, "list %u has %u of its %u guests", posting->number, guests,
                     lists_guests(lists, posting->number));
    check->v->report.rows_reachable += posting->own + guests;
}

static uint64_t windows_of(const struct lists_check *check, const struct posting_block_view *posting)
{
    assert(check->n_windows <= WINDOWS_MAX);
    uint64_t windows = 0, rows = (uint64_t)check->window_blocks * check->v->s->params.slots_per_block;
    for (uint32_t i = 0; i < posting->entries; i++)
        windows |= (uint64_t)1 << posting_block_row(posting, i) / rows;
    return windows;
}

/* Reads a posting block; in the first pass it is checked. *damaged: it cannot be used, and a finding says so. */
static int read_posting(struct lists_check *check, uint32_t list, bool first, struct posting_block_view *view,
                        bool *damaged)
{
    struct verification *v = check->v;
    struct segment *s = v->s;
    const struct segment_params *p = &s->params;
    const struct list_entry *e = &s->lists->entries[list];
    struct posting_block_shape shape;
    struct quire_error err = {0};
    uint64_t at = (uint64_t)e->page * SECTION_ALIGN;
    bool fits = posting_block_shape(e->entries, e->own, p->code_dim, p->list_bits, &shape);
    assert(fits && shape.bytes <= p->posting_bytes_max); /* lists_open */
    int rc = section_read(s->postings, section_find(s->postings, POSTINGS_POSTINGS), at, check->posting, shape.bytes,
                          v->err);
    if (rc < 0)
        return rc;
    rc = posting_block_open(check->posting, list, e, p->code_dim, p->list_bits, p->rows, s->segment_id, view, &err);
    if (rc < 0) {
        verify_found(v, "list %u of %s at offset %llu is damaged: %s", list, section_file_io(s->postings)->path,
                     (unsigned long long)(s->postings_at + at), err.message);
        *damaged = true;
    }
    if (*damaged || !first)
        return 0;
    if (!rest_is_zero(check, view, &shape))
        verify_found(v, "list %u of %s: what belongs to no entry is not zero", list,
                     section_file_io(s->postings)->path);
    count_copies(check, view);
    v->report.list_entries += e->entries;
    return 0;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static int load_window(struct lists_check *check, uint32_t window)
{
    struct segment *s = check->v->s;
    const struct segment_params *p = &s->params;
    uint32_t first = window * check->window_blocks, n = p->n_blocks - first;
    check->first_block = first;
    assert(first < p->n_blocks);
    check->n_blocks = n = n < check->window_blocks ? n : check->window_blocks;
    int rc = section_read(s->blocks, section_find(s->blocks, BLOCKS_BLOCKS), (uint64_t)first * p->block_bytes,
                          check->blocks, (size_t)n * p->block_bytes, check->v->err);
    for (uint32_t b = 0; rc == 0 && b < n; b++) {
        struct block_view *view = &check->views[b];
        /* a damaged block is a finding already */
        if (!bitmap_has(check->v->sound, first + b) ||
            block_open(check->blocks + (size_t)b * p->block_bytes, &s->shape, first + b, s->segment_id, view, NULL) < 0)
            view->base = NULL;
    }
    return rc;
}

static int verify_window(struct lists_check *check, uint32_t window)
{
    struct verification *v = check->v;
    uint32_t n = v->s->lists->n;
    int rc = load_window(check, window);
    for (uint32_t list = 0; rc == 0 && list < n; list++) {
        struct posting_block_view view;
        bool damaged = false;
        if (window == 0 || check->windows[list] >> window & 1) {
            rc = read_posting(check, list, window == 0, &view, &damaged);
            check->windows[list] = rc < 0 || damaged ? 0 : windows_of(check, &view);
            if (rc == 0 && !damaged)
                verify_entries_of(check, &view);
        }
        if (rc == 0 && (list % 256 == 255 || list + 1 == n))
            rc = verify_progress(v, "check lists", (uint64_t)window * n + list + 1, (uint64_t)check->n_windows * n);
    }
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The radius is that of the farthest entry, which exact bounds rely on. A list's spread counts what lies far out as
 * less: it is never above the plain mean. */
static void verify_spreads(const struct lists_check *check)
{
    const struct lists *lists = check->v->s->lists;
    for (uint32_t i = 0; i < lists->n; i++) {
        const struct list_entry *e = &lists->entries[i];
        const struct spread *spread = &check->spreads[i];
        double most = sqrt(spread->norms2_high / e->entries) * (1 + SUM_ROUNDING), radius = (double)e->radius;
        assert(spread->measured <= e->entries);
        if (spread->measured != e->entries)
            continue; /* of a damaged list or block */
        if ((double)e->rms > most)
            verify_found(check->v, "list %u has spread %g in the directory, but its rows are %g from its head", i,
                         (double)e->rms, most);
        if (radius < spread->farthest.low * (1 - SUM_ROUNDING) || radius > spread->farthest.high * (1 + SUM_ROUNDING))
            verify_found(check->v, "list %u has radius %g in the directory, but its farthest row is %g from its head",
                         i, radius, spread->farthest.low);
    }
}

static void verify_heads(struct verification *v)
{
    const struct graph_root *const root = &v->s->lists->root;
    struct quire_error reason = {0};
    if (graph_check(v->s->lists->heads, &root, 1, &reason) < 0)
        verify_found(v, "the graph of the heads of %s: %s", v->s->info.path, reason.message);
}

static int lists_check_init(struct lists_check *check)
{
    const struct segment_params *p = &check->v->s->params;
    uint32_t n = p->n_lists, least = (p->n_blocks + WINDOWS_MAX - 1) / WINDOWS_MAX,
             most = WINDOW_BYTES / p->block_bytes;
    check->window_blocks = least > most ? least : most < p->n_blocks ? most : p->n_blocks;
    check->n_windows = (p->n_blocks + check->window_blocks - 1) / check->window_blocks;
    check->windows = calloc(n, sizeof *check->windows);
    check->spreads = calloc(n, sizeof *check->spreads);
    check->copies = calloc(p->rows, 1);
    check->blocks = memory_map_alone((size_t)check->window_blocks * p->block_bytes, 0);
    check->views = calloc(check->window_blocks, sizeof *check->views);
    check->posting = memory_map_alone(p->posting_bytes_max, 0);
    check->head = malloc(sizeof *check->head * p->code_dim);
    check->code = malloc(p->code_dim);
    return check->windows && check->spreads && check->copies && check->blocks && check->views && check->posting &&
                   check->head && check->code
               ? 0
               : error_set(check->v->err, QUIRE_ENOMEM, "no memory to verify %u lists", n);
}

static void lists_check_fini(struct lists_check *check)
{
    const struct segment_params *p = &check->v->s->params;
    free(check->windows);
    free(check->spreads);
    free(check->copies);
    memory_unmap(check->blocks, (size_t)check->window_blocks * p->block_bytes);
    free(check->views);
    memory_unmap(check->posting, p->posting_bytes_max);
    free(check->head);
    free(check->code);
}

int verify_lists(struct verification *v)
{
    struct lists_check check = {.v = v};
    struct lists *lists = v->s->lists;
    v->report.lists = lists->n;
    verify_heads(v);
    int rc = lists_check_init(&check);
    unsigned slot = epoch_enter(lists->epochs);
    for (uint32_t window = 0; rc == 0 && window < check.n_windows; window++)
        rc = verify_window(&check, window);
    epoch_exit(lists->epochs, slot);
    if (rc == 0)
        verify_spreads(&check);
    lists_check_fini(&check);
    return rc;
}
