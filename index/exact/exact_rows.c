/*
 * exact_rows.c - the rows of a segment on their way to a device: read forward, turned into what the device compares.
 *
 * Blocks are read a megabyte at a time, each checked like those of a search, and go to the device as they come, so that
 * no copy of a segment is ever in memory here. Rows are on the device in the numbers that a search makes its distances
 * of, so that both differ by rounding alone:
 *
 *   elements as they are; bytes become halves, which hold them all
 *   unit codes: the levels less 127.5, which are halves, too, and the code's f as the row's factor
 *   other 8-bit codes: w = |q - c|^2 + a - 2 f <y, q> is |q|^2 - 2 <q, c + f y> + |c|^2 + a, so the row is (c + f y,
 *   -(|c|^2 + a) / 2), and the query has 1 in the last place
 *
 * A row that cannot be compared so (a zero vector among 8-bit codes of the last kind, which has a distance of its own;
 * elements so small or large that a device may lose them) makes the segment the processor's.
 */
#include "index/exact/exact_priv.h"
#include "index/format/format.h"
#include "index/kernels/kernels.h"
#include "index/vector/space.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES   (1u << 20)
#define UNIT_MOST    1.01 /* what a row's length times its factor may be under cosine */
#define HALF_LEVEL   127.5f
#define LENGTH_SLACK 1.0001

/* ---- what rows become -------------------------------------------------------------------------------------------- */

static enum exact_form form_of(const struct segment_params *p)
{
    if (p->slot == QUIRE_SLOT_Q8)
        return p->unit_codes ? EXACT_UNIT : EXACT_CENTRED;
    return p->metric == QUIRE_METRIC_L2 ? EXACT_L2 : p->metric == QUIRE_METRIC_COSINE ? EXACT_COSINE : EXACT_PRODUCT;
}

static enum offload_element element_of(const struct segment_params *p)
{
    bool floats = p->slot == QUIRE_SLOT_F32 || p->slot == QUIRE_SLOT_BF16 || form_of(p) == EXACT_CENTRED;
    return floats ? OFFLOAD_F32 : OFFLOAD_F16;
}

static uint32_t dim_of(const struct segment_params *p)
{
    if (p->slot == QUIRE_SLOT_Q8)
        return p->unit_codes ? p->code_dim : p->code_dim + 1;
    return p->dim;
}

static bool has_factors(enum exact_form form)
{
    return form == EXACT_COSINE || form == EXACT_UNIT;
}

/* As a point: without the last element of rows about a centre. */
static uint32_t space_dim_of(const struct segment_params *p)
{
    return p->slot == QUIRE_SLOT_Q8 ? p->code_dim : p->dim;
}

static uint32_t coded_dim_of(const struct segment_params *p)
{
    return (space_dim_of(p) + 31) / 32 * 32;
}

/* Of a row as it is, without its factor. */
static size_t elements_of(const struct segment_params *p)
{
    return offload_bytes(element_of(p), dim_of(p));
}

/* Of a row on the device, its factors included. */
static size_t bytes_of(const struct segment_params *p, unsigned bits)
{
    if (bits > 0)
        return coded_dim_of(p) / 8 * bits + sizeof(struct offload_estimate);
    return elements_of(p) + (has_factors(form_of(p)) ? sizeof(float) : 0);
}

static enum offload_element code_of(unsigned bits)
{
    return bits == 8 ? OFFLOAD_CODE8 : bits == 4 ? OFFLOAD_CODE4 : bits == 2 ? OFFLOAD_CODE2 : OFFLOAD_CODE1;
}

/* Pieces of rows on their way. */
struct stage {
    struct exact_rows *rows;
    struct quire_error *err;
    uint8_t *blocks; /* as read */
    size_t blocks_bytes;
    uint8_t *data; /* as the device has them */
    union {
        float *factors;
        struct offload_estimate *estimates; /* of codes */
    };
    uint8_t *row; /* of codes: one row as it is */
    struct exact_code_room room;
    float *floats, *centre; /* of one row; of its block */
    float factor;           /* of one row; 1 where rows have none */
    double centre_length;
    f16_t halves[256]; /* levels less 127.5 */
    uint32_t capacity, n, first;
};

static int refuse(struct stage *s, uint32_t row, const char *why)
{
    return error_set(s->err, QUIRE_EUNSUPPORTED, "row %u of %s %s: its distances are the processor's", row,
                     s->rows->segment->info.path, why);
}

static void raise_to(double *most, double value)
{
    *most = value > *most ? value : *most;
}

/* Somewhat more than the length, whatever the sum was rounded to. */
static double length_of(const float *x, uint32_t n)
{
    return sqrt((double)kernels()->f32_dot(x, x, n)) * LENGTH_SLACK;
}

static int put_elements(struct stage *s, const uint8_t *slot, const uint8_t *factor, uint32_t row, uint8_t *to)
{
    struct exact_rows *r = s->rows;
    const struct segment_params *p = &r->segment->params;
    space_floats(format_slot_type(p->slot), slot, p->dim, s->floats);
    double length = length_of(s->floats, p->dim), times = 1;
    if (r->form == EXACT_COSINE) {
        s->factor = bytes_load_f32(factor);
        times = (double)s->factor;
        if (!(length * times <= UNIT_MOST))
            return refuse(s, row, "is not as long as its factor says");
    }
    if (length > EXACT_LENGTH_MAX || (length < EXACT_LENGTH_MIN && length != 0) || isnan(length))
        return refuse(s, row, "is shorter than 10^-6 or longer than 10^6");
    raise_to(&r->maxima.length, length * times);
    if (r->element == OFFLOAD_F32)
        memcpy(to, s->floats, sizeof(float) * p->dim);
    else if (p->slot == QUIRE_SLOT_F16)
        memcpy(to, slot, sizeof(f16_t) * p->dim);
    else
        kernels()->f16_from_f32(s->floats, (f16_t *)(void *)to, p->dim);
    return 0;
}

static int put_unit_code(struct stage *s, const uint8_t *slot, const uint8_t *factor, uint8_t *to)
{
    struct exact_rows *r = s->rows;
    f16_t *halves = (f16_t *)(void *)to;
    double f = (double)bytes_load_f32(factor), half = (double)HALF_LEVEL;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < r->dim; i++) {
        halves[i] = s->halves[slot[i]];
        sum += slot[i];
    }
    /* of (u - 127.5)^2 */
    double length2 = (double)kernels()->u8_dot(slot, slot, r->dim) - 2 * half * sum + half * half * r->dim;
    s->factor = (float)f;
    raise_to(&r->maxima.factor, f);
    raise_to(&r->maxima.length, sqrt(length2 > 0 ? length2 : 0) * f);
    return 0;
}

static int put_centred(struct stage *s, const uint8_t *slot, const uint8_t *factor, uint32_t row, uint8_t *to)
{
    struct exact_rows *r = s->rows;
    const struct segment_params *p = &r->segment->params;
    float a = bytes_load_f32(factor), f = bytes_load_f32(factor + 4);
    float *out = (float *)(void *)to;
    double centre = s->centre_length;
    if (format_is_zero_vector(p, a, f))
        return refuse(s, row, "is a zero vector");
    for (uint32_t i = 0; i < p->code_dim; i++)
        out[i] = s->centre[i] + f * ((float)slot[i] - HALF_LEVEL);
    out[p->code_dim] = (float)(-(centre * centre + (double)a) / 2);
    double length = length_of(out, p->code_dim);
    if (!(length <= EXACT_LENGTH_MAX) || !(fabs((double)a) <= EXACT_LENGTH_MAX * EXACT_LENGTH_MAX))
        return refuse(s, row, "is longer than 10^6");
    raise_to(&r->maxima.factor, fabs((double)f));
    raise_to(&r->maxima.centre, centre);
    raise_to(&r->maxima.length, length);
    raise_to(&r->maxima.constant, fabs((double)out[p->code_dim]));
    raise_to(&r->maxima.offset, fabs((double)a));
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* What is staged goes to the device. */
static int flush(struct stage *s, struct offload_block *block)
{
    bool factors = s->rows->bits > 0 || has_factors(s->rows->form);
    const struct offload_piece piece = {s->first, s->n, s->data, factors ? s->factors : NULL};
    int rc = s->n > 0 ? offload_put(s->rows->offload, block, &piece, s->err) : 0;
    s->first += s->n;
    s->n = 0;
    return rc;
}

static void place_centre(struct stage *s, uint32_t block)
{
    uint32_t n = s->rows->segment->params.code_dim;
    double sum = 0;
    segment_centre(s->rows->segment, block, s->centre);
    for (uint32_t i = 0; i < n; i++)
        sum += (double)s->centre[i] * (double)s->centre[i];
    s->centre_length = sqrt(sum);
}

/* A row of a block whose centre is placed, as it is, and s->factor. */
static int put_row(struct stage *s, const struct block_view *view, uint32_t slot, uint8_t *to)
{
    const struct exact_rows *r = s->rows;
    const struct segment_params *p = &r->segment->params;
    const uint8_t *at = view->slots + (size_t)slot * p->slot_bytes;
    const uint8_t *factor = view->factors ? view->factors + (size_t)slot * p->factor_bytes : NULL;
    assert(slot < view->n_slots);
    s->factor = 1;
    return r->form == EXACT_UNIT      ? put_unit_code(s, at, factor, to)
           : r->form == EXACT_CENTRED ? put_centred(s, at, factor, view->first_row + slot, to)
                                      : put_elements(s, at, factor, view->first_row + slot, to);
}

static int stage_block(struct stage *s, const struct block_view *view)
{
    struct exact_rows *r = s->rows;
    size_t code_bytes = r->coded_dim / 8 * r->bits, bytes = elements_of(&r->segment->params);
    int rc = 0;
    if (r->form == EXACT_CENTRED)
        place_centre(s, view->number);
    for (uint32_t slot = 0; rc == 0 && slot < view->n_slots; slot++) {
        assert(s->n < s->capacity);
        if (r->bits == 0) {
            rc = put_row(s, view, slot, s->data + s->n * bytes);
            s->factors[s->n] = s->factor;
        } else {
            rc = put_row(s, view, slot, s->row);
            if (rc == 0)
                exact_codes_put(r, &s->room, s->row, s->factor, s->data + s->n * code_bytes, &s->estimates[s->n]);
        }
        s->n++;
    }
    return rc;
}

static int open_block(struct stage *s, const uint8_t *bytes, uint32_t number, struct block_view *view)
{
    const struct segment *g = s->rows->segment;
    struct quire_error why = {0};
    int rc = block_open(bytes, &g->shape, number, g->segment_id, view, &why);
    if (rc == 0 && (view->first_row != number * g->params.slots_per_block ||
                    view->n_slots != format_block_rows(&g->params, number)))
        rc = error_set(&why, QUIRE_ECORRUPT, "it holds other rows");
    if (rc < 0)
        error_set(s->err, rc, "block %u of %s at offset %llu is damaged: %s", number, section_file_io(g->blocks)->path,
                  (unsigned long long)segment_block_offset(g, number), why.message);
    return rc;
}

static int read_part(struct stage *s, uint32_t part, struct offload_block *block)
{
    const struct segment *g = s->rows->segment;
    const struct segment_params *p = &g->params;
    uint32_t at_once = p->block_bytes < READ_BYTES ? READ_BYTES / p->block_bytes : 1;
    uint32_t at = part * s->rows->part_blocks, end = at + s->rows->part_blocks;
    int rc = 0;
    end = end < p->n_blocks ? end : p->n_blocks;
    for (uint32_t n = 0; rc == 0 && at < end; at += n) {
        n = end - at < at_once ? end - at : at_once;
        rc = fs_read_exact(section_file_io(g->blocks), s->blocks, (size_t)n * p->block_bytes,
                           segment_block_offset(g, at), s->err);
        for (uint32_t i = 0; rc == 0 && i < n; i++) {
            struct block_view view;
            rc = open_block(s, s->blocks + (size_t)i * p->block_bytes, at + i, &view);
            if (rc == 0)
                rc = stage_block(s, &view);
        }
        if (rc == 0)
            rc = flush(s, block);
    }
    assert(rc < 0 || s->first == exact_part_rows(s->rows, part));
    return rc;
}

static void stage_fini(struct stage *s)
{
    memory_unmap(s->blocks, s->blocks_bytes);
    free(s->data);
    free(s->factors);
    free(s->row);
    free(s->room.point);
    free(s->room.rest);
    free(s->floats);
    free(s->centre);
}

static int stage_init(struct stage *s)
{
    const struct segment_params *p = &s->rows->segment->params;
    uint32_t at_once = p->block_bytes < READ_BYTES ? READ_BYTES / p->block_bytes : 1;
    s->capacity = at_once * p->slots_per_block;
    s->blocks_bytes = (size_t)at_once * p->block_bytes;
    s->blocks = memory_map_alone(s->blocks_bytes, 0);
    s->data = malloc(memory_size_mul(s->capacity, s->rows->row_bytes));
    s->estimates = malloc(sizeof *s->estimates * s->capacity); /* the larger of the two */
    s->row = malloc(elements_of(p));
    s->room.point = malloc(sizeof(float) * space_dim_of(p));
    s->room.rest = malloc(sizeof(float) * coded_dim_of(p));
    s->floats = malloc(sizeof *s->floats * p->dim);
    s->centre = malloc(sizeof *s->centre * p->code_dim);
    for (unsigned level = 0; level < 256; level++) {
        float y = (float)level - HALF_LEVEL;
        kernels()->f16_from_f32(&y, &s->halves[level], 1);
    }
    return s->blocks && s->data && s->factors && s->row && s->room.point && s->room.rest && s->floats && s->centre
               ? 0
               : error_set(s->err, QUIRE_ENOMEM, "no memory for rows on their way to a device");
}

/* ---- single rows ------------------------------------------------------------------------------------------------- */

struct exact_reader {
    struct stage stage;
    struct block_view view;
    bool has_view;
};

void exact_reader_close(struct exact_reader *reader)
{
    if (!reader)
        return;
    stage_fini(&reader->stage);
    free(reader);
}

struct exact_reader *exact_reader_open(struct exact_rows *r, struct quire_error *err)
{
    struct exact_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        error_set(err, QUIRE_ENOMEM, "no memory to read rows");
        return NULL;
    }
    reader->stage = (struct stage){.rows = r, .err = err};
    if (stage_init(&reader->stage) == 0)
        return reader;
    exact_reader_close(reader);
    return NULL;
}

int exact_reader_row(struct exact_reader *reader, uint32_t row, const uint8_t **out, float *factor)
{
    struct stage *s = &reader->stage;
    const struct segment *g = s->rows->segment;
    uint32_t number = row / g->params.slots_per_block;
    int rc = 0;
    assert(row < g->params.rows);
    if (!reader->has_view || reader->view.number != number) {
        reader->has_view = false;
        rc = fs_read_exact(section_file_io(g->blocks), s->blocks, g->params.block_bytes,
                           segment_block_offset(g, number), s->err);
        if (rc == 0)
            rc = open_block(s, s->blocks, number, &reader->view);
        reader->has_view = rc == 0;
        if (rc == 0 && s->rows->form == EXACT_CENTRED)
            place_centre(s, number);
    }
    if (rc == 0)
        rc = put_row(s, &reader->view, row - reader->view.first_row, s->row);
    *out = s->row;
    *factor = s->factor;
    return rc;
}

static int load_part(struct exact_rows *r, uint32_t part, struct quire_error *err)
{
    struct offload_shape shape = {r->element, exact_part_rows(r, part), r->dim, has_factors(r->form)};
    if (r->bits > 0)
        shape = (struct offload_shape){code_of(r->bits), shape.n, r->coded_dim, true};
    struct stage s = {.rows = r, .err = err};
    struct offload_block *block = NULL;
    int rc = r->bits > 0 && !r->mean ? exact_codes_mean(r, err) : 0;
    if (rc == 0)
        rc = offload_reserve(r->offload, &shape, &block, err);
    if (rc == 0)
        rc = stage_init(&s);
    if (rc == 0)
        rc = read_part(&s, part, block);
    stage_fini(&s);
    if (rc < 0) {
        offload_unload(r->offload, block);
        return rc;
    }
    r->parts[part] = block;
    r->n_held++;
    return 0;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

uint32_t exact_part_rows(const struct exact_rows *r, uint32_t part)
{
    uint64_t rows = (uint64_t)r->part_blocks * r->segment->params.slots_per_block, all = r->segment->params.rows;
    uint64_t first = part * rows;
    assert(first < all);
    return (uint32_t)(all - first < rows ? all - first : rows);
}

static void drop_part(struct exact_rows *r, uint32_t part)
{
    if (!r->parts[part])
        return;
    assert(r->n_held > 0);
    offload_unload(r->offload, r->parts[part]);
    r->parts[part] = NULL;
    r->n_held--;
}

/* Parts of at most `most` rows, none of which is on the device. */
static int cut(struct exact_rows *r, uint32_t most, struct quire_error *err)
{
    const struct segment_params *p = &r->segment->params;
    uint32_t blocks = most < p->rows ? most / p->slots_per_block : p->n_blocks;
    blocks = blocks < 1 ? 1 : blocks < p->n_blocks ? blocks : p->n_blocks;
    uint32_t n = (p->n_blocks + blocks - 1) / blocks;
    struct offload_block **parts = calloc(n, sizeof *parts);
    assert(r->n_held == 0);
    if (!parts)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u parts of a segment", n);
    free(r->parts);
    r->parts = parts;
    r->n_parts = n;
    r->part_blocks = blocks;
    return 0;
}

/* Any part but this one goes; false: there is none. */
static bool drop_another(struct exact_rows *r, uint32_t part)
{
    for (uint32_t i = 1; i < r->n_parts; i++) {
        uint32_t other = (part + r->n_parts - i) % r->n_parts; /* the one that was used last is needed last */
        if (r->parts[other]) {
            drop_part(r, other);
            return true;
        }
    }
    return false;
}

bool exact_make_room(struct exact_rows *r, uint32_t part)
{
    if (drop_another(r, part))
        return true;
    uint32_t rows = exact_part_rows(r, 0), least = r->segment->params.slots_per_block;
    least = least > OFFLOAD_ROWS_LEAST ? least : OFFLOAD_ROWS_LEAST;
    if (rows <= least)
        return false;
    drop_part(r, part);
    return cut(r, rows / 2 > least ? rows / 2 : least, NULL) == 0;
}

int exact_need_part(struct exact_rows *r, uint32_t part, struct quire_error *err)
{
    assert(part < r->n_parts);
    return r->parts[part] ? 0 : load_part(r, part, err);
}

unsigned exact_bits_for(const struct segment *segment, uint64_t room)
{
    if (exact_bytes(segment, 0) <= room || form_of(&segment->params) == EXACT_PRODUCT)
        return 0;
    for (unsigned bits = 8; bits >= 1; bits /= 2)
        if (exact_bytes(segment, bits) <= room && exact_bytes(segment, bits) < exact_bytes(segment, 0))
            return bits;
    return 0;
}

int exact_open(struct offload *offload, struct segment *segment, unsigned bits, struct exact_rows **out,
               struct quire_error *err)
{
    const struct segment_params *p = &segment->params;
    struct exact_rows *r = calloc(1, sizeof *r);
    assert(bits == 0 || ((bits == 1 || bits == 2 || bits == 4 || bits == 8) && form_of(p) != EXACT_PRODUCT));
    if (!r)
        return error_set(err, QUIRE_ENOMEM, "no memory for the rows of %s on a device", segment->info.path);
    *r = (struct exact_rows){.offload = offload,
                             .segment = segment_ref(segment),
                             .form = form_of(p),
                             .element = element_of(p),
                             .dim = dim_of(p),
                             .row_bytes = bytes_of(p, bits),
                             .bits = bits,
                             .space_dim = space_dim_of(p),
                             .coded_dim = coded_dim_of(p),
                             .maxima = {.h_least = INFINITY, .h_most = -INFINITY}};
    int rc = cut(r, offload_rows_max(offload, r->row_bytes, (uint32_t)p->rows), err);
    if (rc < 0)
        exact_close(r);
    else
        *out = r;
    return rc;
}

void exact_leave(struct exact_rows *r)
{
    for (uint32_t i = 0; i < r->n_parts; i++)
        drop_part(r, i);
    assert(r->n_held == 0);
}

void exact_close(struct exact_rows *r)
{
    if (!r)
        return;
    exact_leave(r);
    free(r->parts);
    free(r->mean);
    segment_unref(r->segment);
    free(r);
}

struct segment *exact_segment(const struct exact_rows *r)
{
    return r->segment;
}

unsigned exact_bits(const struct exact_rows *r)
{
    return r->bits;
}

uint64_t exact_bytes(const struct segment *segment, unsigned bits)
{
    return segment->params.rows * bytes_of(&segment->params, bits);
}

uint64_t exact_bytes_held(const struct exact_rows *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->n_parts; i++)
        bytes += r->parts[i] ? (uint64_t)exact_part_rows(r, i) * r->row_bytes : 0;
    return bytes;
}
