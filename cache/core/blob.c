/*
 * blob.c - runs of cells, handed out from lists by length, or from the end.
 *
 * A run must lie in one region of the table (stable_array.h), since only there are its cells neighbours; the few cells
 * that are left before a region's end go to the lists. Lengths are those of heads, so nothing is stored to know them.
 * Lists are exact: a run is never split, since a cache's blobs are of few lengths and come and go alike.
 */
#include "cache/core/blob.h"
#include <assert.h>
#include <string.h>

#define REGION_BYTES ((size_t)64 << 20)

void blobs_init(struct blobs *blobs)
{
    memset(blobs, 0, sizeof *blobs);
    stable_array_init(&blobs->cells, BLOB_CELL, stable_array_shift(BLOB_CELL, REGION_BYTES));
    blobs->n = 1; /* 0 is no blob */
}

void blobs_fini(struct blobs *blobs)
{
    stable_array_fini(&blobs->cells);
}

uint32_t blob_bytes(const struct blob_head *head)
{
    return (uint32_t)(sizeof *head + head->n_tags * sizeof(uint64_t) + head->n_features);
}

static uint32_t cells_of(uint32_t bytes)
{
    return (bytes + BLOB_CELL - 1) / BLOB_CELL;
}

static void document_log_list_push(struct blobs *blobs, uint32_t blob, uint32_t cells)
{
    memcpy(stable_array_at(&blobs->cells, blob), &blobs->free[cells], sizeof(uint32_t));
    blobs->free[cells] = blob;
}

uint32_t blob_take(struct blobs *blobs, uint32_t bytes)
{
    uint32_t cells = cells_of(bytes), blob;
    assert(bytes >= sizeof(struct blob_head) && cells <= BLOB_CELLS);
    blob = blobs->free[cells];
    if (blob) {
        memcpy(&blobs->free[cells], stable_array_at(&blobs->cells, blob), sizeof(uint32_t));
    } else {
        if (stable_array_reserve(&blobs->cells, blobs->n + 2 * BLOB_CELLS) < 0)
            return 0;
        blob = blobs->n;
        if (stable_array_region(&blobs->cells, blob) != stable_array_region(&blobs->cells, blob + cells - 1)) {
            uint32_t left = 1; /* at most BLOB_CELLS - 1 cells: they become a run of their own */
            while (stable_array_region(&blobs->cells, blob + left) == stable_array_region(&blobs->cells, blob))
                left++;
            document_log_list_push(blobs, blob, left);
            blob += left;
        }
        blobs->n = blob + cells;
    }
    blobs->bytes += cells * BLOB_CELL;
    return blob;
}

void blob_give(struct blobs *blobs, uint32_t blob)
{
    if (!blob)
        return;
    uint32_t cells = cells_of(blob_bytes(blob_head(blobs, blob)));
    assert(blob < blobs->n && cells <= BLOB_CELLS && blobs->bytes >= cells * BLOB_CELL);
    blobs->bytes -= cells * BLOB_CELL;
    document_log_list_push(blobs, blob, cells);
}

const struct blob_head *blob_head(const struct blobs *blobs, uint32_t blob)
{
    static const struct blob_head none;
    return blob ? stable_array_at(&blobs->cells, blob) : &none;
}
