/*
 * embed_run.c - a whole file of lines through a model, on several threads, in order.
 *
 * Lines are read into a batch (BATCH_LINES of them, or BATCH_BYTES of text, whichever comes first, so that a file of
 * long lines does not take more memory than one of short ones), embedded in parallel, and handed over one by one.
 * Threads are made per batch: a batch takes tens of milliseconds, a thread tens of microseconds. Reading and embedding
 * do not overlap; reading is a hundredth of the time.
 */
#include "datasets/embed_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

enum { BATCH_LINES = 4096, BATCH_BYTES = 4 << 20, LINES_PER_CHUNK = 64 };

struct batch {
    const struct embed_model *model;
    char *bytes; /* texts and keys of the batch; a last line may go over BATCH_BYTES by its own length */
    size_t used;
    struct embed_line line[BATCH_LINES];
    int code[BATCH_LINES]; /* of embed_apply */
    float *vectors;        /* BATCH_LINES x dim */
    uint32_t n;
};

static const char *keep(struct batch *batch, const char *bytes, size_t n)
{
    char *copy = batch->bytes + batch->used;
    memcpy(copy, bytes, n);
    batch->used += n;
    return copy;
}

/* Fills the batch; it is empty at the end of the file. */
static int read_batch(struct batch *batch, struct embed_lines *lines, struct quire_error *err)
{
    batch->n = 0;
    batch->used = 0;
    while (batch->n < BATCH_LINES && batch->used < BATCH_BYTES) {
        struct embed_line line;
        int rc = embed_lines_next(lines, &line, err);
        if (rc <= 0)
            return rc;
        line.text = keep(batch, line.text, line.text_bytes);
        if (line.key)
            line.key = keep(batch, line.key, line.key_bytes);
        batch->line[batch->n++] = line;
    }
    return 0;
}

static int embed_some(void *context, uint64_t begin, uint64_t end)
{
    struct batch *batch = context;
    for (uint64_t i = begin; i < end; i++)
        batch->code[i] = embed_apply(batch->model, batch->line[i].text, batch->line[i].text_bytes,
                                     batch->vectors + i * batch->model->info.dim, NULL);
    return 0;
}

/* The message of a line that failed: made again, on the calling thread. */
static int explain(const struct batch *batch, uint32_t i, struct quire_error *err)
{
    struct quire_error why = {0};
    const struct embed_line *line = &batch->line[i];
    int rc = embed_apply(batch->model, line->text, line->text_bytes, batch->vectors, &why);
    return error_set(err, rc < 0 ? rc : QUIRE_EINTERNAL, "line %llu: %s", (unsigned long long)line->number,
                     why.message);
}

static int hand_over(struct batch *batch, const struct embed_run *run, uint64_t *rows, uint64_t *skipped,
                     struct quire_error *err)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        if (batch->code[i] == QUIRE_EZEROVEC && run->skip_empty) {
            ++*skipped;
            continue;
        }
        if (batch->code[i] != 0)
            return explain(batch, i, err);
        int rc = run->take(run->context, &batch->line[i], batch->vectors + (size_t)i * batch->model->info.dim);
        if (rc < 0)
            return rc;
        ++*rows;
    }
    return 0;
}

static int report(const struct embed_run *run, const struct embed_lines *lines, struct quire_error *err)
{
    uint64_t done, total;
    embed_lines_place(lines, &done, &total);
    if (run->progress && run->progress(run->context, "embed", done, total) != 0)
        return error_set(err, QUIRE_ECANCELLED, "embedding was cancelled");
    return 0;
}

int embed_lines_apply(const struct embed_model *model, struct embed_lines *lines, const struct embed_run *run,
                      uint64_t *rows, uint64_t *skipped, struct quire_error *err)
{
    uint64_t n_rows = 0, n_skipped = 0;
    unsigned threads = run->threads ? run->threads : parallel_processors();
    struct batch *batch = calloc(1, sizeof *batch);
    char *bytes = malloc(BATCH_BYTES + 2 * (size_t)EMBED_LINE_BYTES_MAX);
    float *vectors = malloc(memory_size_mul(BATCH_LINES, memory_size_mul(model->info.dim, sizeof *vectors)));
    int rc = 0;
    if (!batch || !bytes || !vectors) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a batch of %d texts", BATCH_LINES);
        goto out;
    }
    batch->model = model;
    batch->bytes = bytes;
    batch->vectors = vectors;
    do {
        rc = read_batch(batch, lines, err);
        if (rc == 0)
            rc = parallel_for(threads, batch->n, LINES_PER_CHUNK, embed_some, batch, NULL);
        if (rc == 0)
            rc = hand_over(batch, run, &n_rows, &n_skipped, err);
        if (rc == 0)
            rc = report(run, lines, err);
    } while (rc == 0 && batch->n > 0);
out:
    free(batch);
    free(bytes);
    free(vectors);
    if (rc == 0 && rows)
        *rows = n_rows;
    if (rc == 0 && skipped)
        *skipped = n_skipped;
    return rc;
}
