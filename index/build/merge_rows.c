/*
 * merge_rows.c - the rows of a merge between the segments that they come from and the build that they go to.
 *
 * A build goes through its input about six times, and a pass over segments costs a checksum per block and a rotation
 * per row. So the segments are scanned once, and vectors are kept as the build wants them: in memory where there is
 * memory, otherwise in a file beside the new segment, written and read forward only.
 *
 * Vectors are kept as floats, or as the elements themselves where the new slots hold these (u8, i8). Nothing else is
 * exact for all: a slot of half floats, or a decoded 8-bit code, comes from the vector's type but is no longer of it.
 *
 * Keys and attributes of segments are copied into pieces of memory that never move; those of rows in memory stay where
 * they are.
 */
#include "index/build/merge_priv.h"
#include "index/vector/space.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20) /* of vectors on their way to the file */
#define PIECE_BYTES  (1u << 20)
#define WORK_NAME    "work.vectors"

struct arena_piece {
    struct arena_piece *next;
    size_t used, capacity;
    uint8_t bytes[];
};

/* ---- keys and attributes ----------------------------------------------------------------------------------------- */

static void *keep(struct merge_input *input, const void *bytes, size_t n)
{
    struct arena_piece *piece = input->pieces;
    if (!piece || piece->capacity - piece->used < n) {
        size_t capacity = n > PIECE_BYTES ? n : PIECE_BYTES;
        piece = malloc(sizeof *piece + capacity);
        if (!piece)
            return NULL;
        *piece = (struct arena_piece){input->pieces, 0, capacity};
        input->pieces = piece;
    }
    void *to = piece->bytes + piece->used;
    memcpy(to, bytes, n);
    piece->used += n;
    return to;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int open_file(struct merge_input *input, const char *path, struct quire_error *err)
{
    uint32_t random;
    char *name = NULL;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return error_set(err, QUIRE_EINTERNAL, "no random bytes from the kernel");
    if (asprintf(&input->folder, "%s" MERGING_MARK "-%d-%08x", path, (int)getpid(), random) < 0) {
        input->folder = NULL;
        return QUIRE_ENOMEM;
    }
    int rc = input->fs->ops->mkdir(input->fs, input->folder);
    if (rc < 0) {
        error_set(err, rc, "cannot make folder %s: %s", input->folder, quire_error_text(rc));
        free(input->folder);
        input->folder = NULL;
        return rc;
    }
    if (asprintf(&name, "%s/%s", input->folder, WORK_NAME) < 0)
        return QUIRE_ENOMEM;
    rc = fs_open(input->fs, name, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &input->file, err);
    free(name);
    return rc;
}

/* Writes the vectors that the buffer holds. */
static int flush(struct merge_input *input, struct quire_error *err)
{
    uint32_t n = input->n - input->n_written;
    int rc =
        n ? fs_write_exact(input->file, input->vectors, n * input->row_bytes, input->n_written * input->row_bytes, err)
          : 0;
    input->n_written = input->n;
    return rc;
}

static int read_vectors(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    struct merge_input *input = context;
    return fs_read_exact(input->file, out, n * input->row_bytes, row * input->row_bytes, err);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

int merge_input_init(struct merge_input *input, struct io_fs *fs, const char *path, uint32_t n, uint32_t dim,
                     enum quire_type type, bool unit_codes, uint64_t memory_bytes, struct quire_error *err)
{
    *input = (struct merge_input){.capacity = n, .dim = dim, .type = type, .fs = fs};
    input->vector_bytes = dim * quire_type_bytes(type);
    input->row_bytes = build_row_bytes(dim, type, unit_codes);
    bool in_file = n * input->row_bytes > memory_bytes;
    input->n_buffer = in_file ? (uint32_t)(BUFFER_BYTES / input->row_bytes) + 1 : n;
    input->vectors = malloc(memory_size_mul(input->n_buffer, input->row_bytes));
    input->floats = malloc(sizeof(float) * dim);
    input->keys = malloc(sizeof *input->keys * n);
    input->key_bytes = malloc(sizeof *input->key_bytes * n);
    input->attributes = malloc(sizeof *input->attributes * n);
    input->attribute_bytes = malloc(sizeof *input->attribute_bytes * n);
    int rc = input->vectors && input->floats && input->keys && input->key_bytes && input->attributes &&
                     input->attribute_bytes
                 ? 0
                 : error_set(err, QUIRE_ENOMEM, "no memory for %u rows", n);
    if (rc == 0 && in_file)
        rc = open_file(input, path, err);
    if (rc < 0)
        merge_input_fini(input);
    return rc;
}

void merge_input_fini(struct merge_input *input)
{
    fs_close(input->file);
    if (input->folder)
        fs_remove_folder(input->fs, input->folder, NULL);
    array_free_all(input->folder, input->vectors, input->floats, input->keys, input->key_bytes, input->attributes,
                   input->attribute_bytes);
    for (struct arena_piece *piece = input->pieces, *next; piece; piece = next) {
        next = piece->next;
        free(piece);
    }
    memset(input, 0, sizeof *input);
}

/* Elements of another type; floats become integers only where a collection of integers has taken floats. */
static void convert(struct merge_input *input, const void *vector, enum quire_type type, uint8_t *to)
{
    long low = input->type == QUIRE_TYPE_I8 ? INT8_MIN : 0, high = input->type == QUIRE_TYPE_I8 ? INT8_MAX : UINT8_MAX;
    space_floats(type, vector, input->dim, input->floats);
    if (input->type == QUIRE_TYPE_F32) {
        memcpy(to, input->floats, input->vector_bytes);
        return;
    }
    for (uint32_t i = 0; i < input->dim; i++) {
        long x = lrintf(input->floats[i]);
        to[i] = (uint8_t)(x < low ? low : x > high ? high : x);
    }
}

int merge_input_add(struct merge_input *input, const void *vector, enum quire_type type, const void *key,
                    uint32_t key_bytes, const char *attributes, uint32_t attribute_bytes, bool copy,
                    struct quire_error *err)
{
    if (input->n == input->capacity)
        return error_set(err, QUIRE_EINTERNAL, "more than the %u rows that were counted", input->capacity);
    if (input->file && input->n - input->n_written == input->n_buffer) {
        int rc = flush(input, err);
        if (rc < 0)
            return rc;
    }
    uint32_t row = input->n;
    bool has_attributes = attributes && attribute_bytes;
    uint8_t *to = input->vectors + (row - input->n_written) * input->row_bytes;
    if (type == input->type)
        memcpy(to, vector, input->vector_bytes);
    else
        convert(input, vector, type, to);
    input->keys[row] = copy ? keep(input, key, key_bytes) : key;
    input->key_bytes[row] = key_bytes;
    input->attributes[row] = has_attributes && copy ? keep(input, attributes, attribute_bytes) : attributes;
    input->attribute_bytes[row] = has_attributes ? attribute_bytes : 0;
    if (!has_attributes)
        input->attributes[row] = NULL;
    else if (!input->attributes[row] || !input->keys[row])
        return error_set(err, QUIRE_ENOMEM, "no memory for the key and attributes of %u rows", input->capacity);
    if (!input->keys[row])
        return error_set(err, QUIRE_ENOMEM, "no memory for the keys of %u rows", input->capacity);
    input->any_attributes |= has_attributes;
    input->n++;
    return 0;
}

uint8_t *merge_input_code(struct merge_input *input, float **vector)
{
    assert(input->n > input->n_written && input->type == QUIRE_TYPE_F32 && input->row_bytes > input->vector_bytes);
    uint8_t *row = input->vectors + (input->n - 1 - input->n_written) * input->row_bytes;
    *vector = (float *)(void *)row; /* rows and codes are multiples of 4 bytes */
    return row + input->vector_bytes;
}

int merge_input_finish(struct merge_input *input, struct quire_input *out, struct quire_error *err)
{
    *out = (struct quire_input){.rows = input->n, .dim = input->dim, .type = input->type};
    if (!input->file) {
        out->vectors = input->vectors;
        return 0;
    }
    int rc = flush(input, err);
    free(input->vectors);
    input->vectors = NULL;
    out->read = read_vectors;
    out->context = input;
    return rc;
}
