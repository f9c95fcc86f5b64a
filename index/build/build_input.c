/*
 * build_input.c - the vectors of the input: streamed past in order, and put in the order of blocks.
 *
 * An input in memory is used where it lies. One that is read (quire_build_from) is read forward, a batch at a time, and
 * never as a whole; later steps need its vectors block after block, so they are written to a file in that order once:
 * each goes to the window of places that it belongs to, and each window is put in order in memory. That takes two
 * passes whatever the size (a distribution sort); a build without a budget has one window and needs no passing file.
 *
 * Sizes of batches depend on the bytes of a row only, neither on threads nor on the budget.
 */
#include "index/build/build_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SCATTER_BYTES (4u << 20) /* buffers of all windows together */
#define PLACE_BYTES   4u

uint32_t build_batch_rows(const struct build *b, size_t bytes)
{
    size_t rows = BATCH_BYTES / (bytes > b->row_bytes ? bytes : b->row_bytes);
    return rows < 64 ? 64 : rows > 65536 ? 65536 : (uint32_t)rows / 64 * 64;
}

static int read_input(struct build *b, uint32_t first, uint32_t n, uint8_t *to)
{
    struct quire_error err = {0};
    int rc = b->input.read(b->input.context, first, n, to, &err);
    if (rc >= 0)
        return 0;
    return error_set(b->err, rc, "%s", err.code == rc && err.message[0] ? err.message : quire_error_text(rc));
}

int build_each_input(struct build *b, const char *phase, int (*body)(void *context, const struct row_batch *batch),
                     void *context)
{
    uint32_t most = build_batch_rows(b, row_record_bytes(b->space.code_dim));
    uint8_t *buffer = b->vectors ? NULL : malloc(most * b->row_bytes);
    int rc = b->vectors || buffer ? 0 : QUIRE_ENOMEM;
    for (uint32_t at = 0; rc == 0 && at < b->n;) {
        struct row_batch batch = {at, b->n - at < most ? b->n - at : most, buffer};
        if (b->vectors)
            batch.rows = b->vectors + at * b->row_bytes;
        else
            rc = read_input(b, at, batch.n, buffer);
        if (rc == 0)
            rc = body(context, &batch);
        at += batch.n;
        if (rc == 0 && phase)
            rc = build_report(b, phase, at, b->n);
    }
    free(buffer);
    return rc;
}

/* ---- into the order of blocks ------------------------------------------------------------------------------------ */

struct scatter {
    struct build *b;
    uint32_t *place; /* row of the input -> row of the index */
    uint32_t window_rows, n_windows;
    uint8_t *window;       /* window_rows vectors */
    struct io_file *spare; /* records of vector and place, by window; NULL: there is one window */
    size_t record_bytes, buffer_bytes;
    uint8_t *buffers;  /* per window */
    size_t *filled;    /* per window: bytes of its buffer */
    uint64_t *written; /* per window: bytes in the file */
};

static int flush_window(struct scatter *s, uint32_t w)
{
    uint64_t at = (uint64_t)w * s->window_rows * s->record_bytes + s->written[w];
    int rc = fs_write_exact(s->spare, s->buffers + w * s->buffer_bytes, s->filled[w], at, s->b->err);
    s->written[w] += s->filled[w];
    s->filled[w] = 0;
    return rc;
}

static int scatter_batch(void *context, const struct row_batch *batch)
{
    struct scatter *s = context;
    size_t row_bytes = s->b->row_bytes;
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint8_t *row = batch->rows + i * row_bytes;
        uint32_t place = s->place[batch->first + i], w = place / s->window_rows;
        assert(w < s->n_windows);
        if (!s->spare) {
            memcpy(s->window + place * row_bytes, row, row_bytes);
            continue;
        }
        if (s->filled[w] + s->record_bytes > s->buffer_bytes) {
            int rc = flush_window(s, w);
            if (rc < 0)
                return rc;
        }
        uint8_t *record = s->buffers + w * s->buffer_bytes + s->filled[w];
        memcpy(record, row, row_bytes);
        memcpy(record + row_bytes, &place, PLACE_BYTES);
        s->filled[w] += s->record_bytes;
    }
    return 0;
}

/* The vectors of a window from the passing file to their places in memory. */
static int gather_window(struct scatter *s, uint32_t w, uint32_t n, uint8_t *buffer)
{
    uint32_t per_read = (uint32_t)(s->buffer_bytes * s->n_windows / s->record_bytes);
    size_t row_bytes = s->b->row_bytes;
    for (uint32_t at = 0; at < n;) {
        uint32_t now = n - at < per_read ? n - at : per_read, place;
        uint64_t offset = ((uint64_t)w * s->window_rows + at) * s->record_bytes;
        int rc = fs_read_exact(s->spare, buffer, now * s->record_bytes, offset, s->b->err);
        if (rc < 0)
            return rc;
        for (uint32_t i = 0; i < now; i++) {
            const uint8_t *record = buffer + i * s->record_bytes;
            memcpy(&place, record + row_bytes, PLACE_BYTES);
            memcpy(s->window + (size_t)(place - w * s->window_rows) * row_bytes, record, row_bytes);
        }
        at += now;
    }
    return 0;
}

static int scatter_init(struct scatter *s, struct build *b)
{
    *s = (struct scatter){.b = b, .window_rows = b->plan.input_rows, .record_bytes = b->row_bytes + PLACE_BYTES};
    s->n_windows = (b->n + s->window_rows - 1) / s->window_rows;
    s->place = malloc(sizeof *s->place * b->n);
    s->window = malloc(s->window_rows * b->row_bytes);
    int rc = s->place && s->window ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && s->n_windows > 1) {
        size_t each = SCATTER_BYTES / s->n_windows;
        s->buffer_bytes = each > s->record_bytes ? each : s->record_bytes;
        s->buffers = malloc(s->buffer_bytes * s->n_windows);
        s->filled = calloc(s->n_windows, sizeof *s->filled);
        s->written = calloc(s->n_windows, sizeof *s->written);
        rc = s->buffers && s->filled && s->written
                 ? build_open_work(b, WORK_SPARE, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &s->spare)
                 : QUIRE_ENOMEM;
    }
    for (uint32_t row = 0; rc == 0 && row < b->n; row++)
        s->place[b->order[row]] = row;
    return rc;
}

int build_order_input(struct build *b, const char *phase)
{
    struct scatter s;
    assert(b->order && !b->sorted);
    if (b->vectors)
        return 0;
    int rc = scatter_init(&s, b);
    if (rc == 0)
        rc = build_open_work(b, WORK_INPUT, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &b->sorted);
    if (rc == 0)
        rc = build_each_input(b, phase, scatter_batch, &s);
    for (uint32_t w = 0; rc == 0 && w < s.n_windows; w++)
        rc = s.spare && s.filled[w] ? flush_window(&s, w) : 0;
    for (uint32_t w = 0; rc == 0 && w < s.n_windows; w++) {
        uint32_t first = w * s.window_rows, n = b->n - first < s.window_rows ? b->n - first : s.window_rows;
        if (s.spare)
            rc = gather_window(&s, w, n, s.buffers);
        size_t bytes = n * b->row_bytes;
        for (size_t at = 0; rc == 0 && at < bytes; at += BATCH_BYTES)
            rc = fs_write_exact(b->sorted, s.window + at, bytes - at < BATCH_BYTES ? bytes - at : BATCH_BYTES,
                                first * b->row_bytes + at, b->err);
    }
    bool had_spare = s.spare != NULL;
    fs_close(s.spare);
    array_free_all(s.place, s.window, s.buffers, s.filled, s.written);
    if (rc == 0 && had_spare)
        rc = build_remove_file(b, WORK_SPARE);
    return rc;
}

/* ---- out of it --------------------------------------------------------------------------------------------------- */

struct gather {
    const struct build *b;
    uint32_t first;
    uint8_t *to;
};

static int gather_range(void *context, uint64_t begin, uint64_t end)
{
    const struct gather *g = context;
    size_t row_bytes = g->b->row_bytes;
    for (uint64_t i = begin; i < end; i++)
        memcpy(g->to + i * row_bytes, g->b->vectors + g->b->order[g->first + i] * row_bytes, row_bytes);
    return 0;
}

int build_load_input(struct build *b, uint32_t first, uint32_t n, uint8_t *to)
{
    struct gather gather = {b, first, to};
    assert(b->order && first + (uint64_t)n <= b->n && (b->vectors || b->sorted));
    if (b->vectors)
        return parallel_for(b->options.threads, n, 1024, gather_range, &gather, NULL);
    return fs_read_exact(b->sorted, to, n * b->row_bytes, first * b->row_bytes, b->err);
}

int build_input_row(const struct build *b, uint32_t row, uint8_t *buffer, const uint8_t **out)
{
    *out = b->vectors ? b->vectors + b->order[row] * b->row_bytes : buffer;
    return b->vectors ? 0 : fs_read_exact(b->sorted, buffer, b->row_bytes, row * b->row_bytes, NULL);
}
