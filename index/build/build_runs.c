/*
 * build_runs.c - which tenants are small: their rows make runs.
 *
 * A row's home is the tenant that its text names first. A tenant that is home to 2 .. RUN_ROWS_MAX rows, and whose rows
 * fill no more than RUN_BYTES_MAX of blocks, gets a run: its rows follow one another in the index (build_place.c), so
 * that a search of that tenant is one sequential read. Rows of larger tenants stay where they are near others: a search
 * among thousands is better served by codes and a few blocks than by reading all, and each row that is taken out of its
 * neighbourhood costs those who search everything. A tenant of one row needs nothing. Runs are made anew by each build
 * from the rows that are there, so a tenant that has grown or shrunk changes at the next merge.
 *
 * Homes are numbered in order of their first row, which makes all that follows a function of the input.
 */
#include "index/attribute/grants.h"
#include "index/build/build_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RUN_ROWS_MAX  1024u
#define RUN_BYTES_MAX (1u << 20) /* about what is read in the time of two or three dependent reads */

/* Tenants by name, with how many rows they are home to. */
struct homes {
    struct home {
        struct grant tenant;
        uint32_t rows;
    } * list;
    uint32_t n, capacity;
    uint32_t *table; /* number of a home plus one; a power of two of places, at least twice the capacity */
    uint32_t mask;   /* places less one */
};

static uint32_t *place_of(const struct homes *h, const struct grant *g)
{
    for (uint64_t at = XXH3_64bits_withSeed(g->name, g->bytes, g->generation);; at++) {
        at &= h->mask;
        const struct grant *there = h->table[at] ? &h->list[h->table[at] - 1].tenant : NULL;
        if (!there || (there->bytes == g->bytes && there->generation == g->generation &&
                       memcmp(there->name, g->name, g->bytes) == 0))
            return &h->table[at];
    }
}

/* Space for one more, in a table at most half full. */
static int reserve_home(struct homes *h)
{
    if (h->n < h->capacity)
        return 0;
    if (!array_reserve(&h->list, &h->capacity, h->n + 1))
        return QUIRE_ENOMEM;
    uint32_t places = 2;
    while (places < 2 * h->capacity)
        places *= 2;
    free(h->table);
    h->table = calloc(places, sizeof *h->table);
    h->mask = places - 1;
    for (uint32_t i = 0; h->table && i < h->n; i++)
        *place_of(h, &h->list[i].tenant) = i + 1;
    return h->table ? 0 : QUIRE_ENOMEM;
}

/* The number of the tenant that is home to the row, or RUN_NONE, into *out. */
static int find_home(const struct build *b, struct homes *h, uint32_t row, uint32_t *out)
{
    const char *text = b->options.attributes[row], *json;
    uint32_t bytes = text ? b->options.attribute_bytes[row] : 0, json_bytes, n_grants, at = 0;
    struct grant first;
    *out = RUN_NONE;
    if (bytes == 0)
        return 0;
    if (grants_split(text, bytes, &json, &json_bytes, &n_grants) < 0)
        return error_set(b->err, QUIRE_ECORRUPT, "the grants of row %u are damaged", row);
    if (!grants_next(text, bytes, &at, &first))
        return 0;
    if (reserve_home(h) < 0)
        return QUIRE_ENOMEM;
    uint32_t *place = place_of(h, &first);
    if (!*place) {
        h->list[h->n] = (struct home){first, 0};
        *place = ++h->n;
    }
    *out = *place - 1;
    h->list[*out].rows++;
    return 0;
}

int build_find_runs(struct build *b)
{
    struct homes homes = {0};
    assert(b->params.slots_per_block > 0 && !b->runs.of);
    if (!b->has_tenants || !b->options.attributes)
        return 0;
    b->runs.of = malloc(sizeof *b->runs.of * b->n);
    int rc = b->runs.of ? 0 : QUIRE_ENOMEM;
    for (uint32_t row = 0; rc == 0 && row < b->n; row++)
        rc = find_home(b, &homes, row, &b->runs.of[row]);
    /* as many rows as lie in RUN_BYTES_MAX wherever the run begins in its first block */
    uint32_t blocks = RUN_BYTES_MAX / b->params.block_bytes;
    uint64_t most = (uint64_t)(blocks > 1 ? blocks - 1 : 1) * b->params.slots_per_block;
    most = most < RUN_ROWS_MAX ? most : RUN_ROWS_MAX;
    /* homes become runs, numbered anew, or nothing */
    for (uint32_t i = 0; rc == 0 && i < homes.n; i++) {
        bool small = homes.list[i].rows >= 2 && homes.list[i].rows <= most;
        b->runs.rows += small ? homes.list[i].rows : 0;
        homes.list[i].rows = small ? b->runs.n++ : RUN_NONE;
    }
    for (uint32_t row = 0; rc == 0 && row < b->n; row++)
        if (b->runs.of[row] != RUN_NONE)
            b->runs.of[row] = homes.list[b->runs.of[row]].rows;
    free(homes.list);
    free(homes.table);
    assert(b->runs.rows <= b->n && (b->runs.n == 0) == (b->runs.rows == 0));
    if (rc < 0 || b->runs.rows > 0)
        return rc;
    free(b->runs.of); /* nobody is small: nothing is laid out otherwise */
    b->runs.of = NULL;
    return 0;
}
