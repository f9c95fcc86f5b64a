/*
 * build_tenants.c - whose the rows are: grants become part of each row's text, and rows of small tenants make runs.
 *
 * A build is told of tenants in one of two ways. quire_build gets their names beside the JSON, and both become one text
 * here (grants.h), so that everything behind sees texts only. Seals and merges have such texts already. No other JSON
 * may begin with the byte that grants begin with: it would be read as grants that nobody made.
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
#include "io/error.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RUN_ROWS_MAX  1024u
#define RUN_BYTES_MAX (1u << 20) /* about what is read in the time of two or three dependent reads */

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* The names of a row, separated by single spaces, as grants; returns how many, or QUIRE_ELIMIT. */
static int split_names(const char *names, struct grant *out)
{
    int n = 0;
    for (const char *at = names;;) {
        size_t length = strcspn(at, " ");
        if ((uint32_t)n == GRANTS_MAX)
            return QUIRE_ELIMIT;
        out[n++] = (struct grant){.name = at, .bytes = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length};
        if (!at[length])
            return n;
        at += length + 1;
    }
}

static int join_row(struct build *b, uint32_t row, struct grant *grants)
{
    const struct quire_build_options *o = &b->options;
    const char *names = o->tenants ? o->tenants[row] : NULL, *json = o->attributes ? o->attributes[row] : NULL;
    uint32_t json_bytes = json ? o->attribute_bytes[row] : 0;
    struct quire_error reason = {0};
    int n = names ? split_names(names, grants) : 0;
    if (n < 0)
        return error_set(b->err, n, "row %u has more than %u tenants: grant it to a common one instead", row,
                         GRANTS_MAX);
    int rc = grants_join(grants, (uint32_t)n, json, json_bytes, &b->texts[row], &b->text_bytes[row], &reason);
    return rc == 0 ? 0
                   : error_set(b->err, rc, "row %u: %s; names of tenants are separated by single spaces", row,
                               reason.message);
}

static int join_rows(struct build *b)
{
    struct grant *grants = malloc(sizeof *grants * GRANTS_MAX);
    bool any = false;
    b->texts = calloc(b->n, sizeof *b->texts);
    b->text_bytes = calloc(b->n, sizeof *b->text_bytes);
    int rc = grants && b->texts && b->text_bytes ? 0 : QUIRE_ENOMEM;
    for (uint32_t row = 0; rc == 0 && row < b->n; row++) {
        rc = join_row(b, row, grants);
        any |= rc == 0 && b->texts[row];
    }
    free(grants);
    b->options.attributes = any ? (const char *const *)b->texts : NULL;
    b->options.attribute_bytes = any ? b->text_bytes : NULL;
    return rc;
}

static int check_json(const struct build *b)
{
    const struct quire_build_options *o = &b->options;
    for (uint32_t row = 0; o->attributes && row < b->n; row++)
        if (o->attributes[row] && o->attribute_bytes[row] && o->attributes[row][0] == 1)
            return error_set(b->err, QUIRE_EINVALID, "attributes of row %u begin with a byte 1: they are not JSON",
                             row);
    return 0;
}

int build_take_tenants(struct build *b)
{
    int rc = b->merge ? 0 : check_json(b);
    b->has_tenants = b->merge ? b->merge->tenant_runs : b->options.tenants != NULL;
    return rc == 0 && b->options.tenants ? join_rows(b) : rc;
}

void build_forget_tenants(struct build *b)
{
    for (uint32_t row = 0; b->texts && row < b->n; row++)
        free(b->texts[row]);
    free(b->texts);
    free(b->text_bytes);
    free(b->runs.of);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Tenants by name, with how many rows they are home to. */
struct homes {
    struct home {
        struct grant tenant;
        uint32_t rows;
    } * list;
    uint32_t n, room;
    uint32_t *table; /* number of a home plus one; a power of two of places, at least twice `room` */
};

static uint64_t hash_of(const struct grant *g)
{
    return XXH3_64bits_withSeed(g->name, g->bytes, g->generation);
}

static uint32_t *place_of(const struct homes *h, const struct grant *g)
{
    uint32_t mask = 2 * h->room - 1;
    for (uint32_t at = (uint32_t)hash_of(g) & mask;; at = (at + 1) & mask) {
        const struct grant *there = h->table[at] ? &h->list[h->table[at] - 1].tenant : NULL;
        if (!there || (there->bytes == g->bytes && there->generation == g->generation &&
                       memcmp(there->name, g->name, g->bytes) == 0))
            return &h->table[at];
    }
}

static int grow_homes(struct homes *h)
{
    uint32_t room = h->room ? 2 * h->room : 64;
    struct home *list = realloc(h->list, sizeof *list * room);
    if (list)
        h->list = list;
    uint32_t *table = calloc(2 * (size_t)room, sizeof *table);
    if (!list || !table) {
        free(table);
        return QUIRE_ENOMEM;
    }
    free(h->table);
    h->table = table;
    h->room = room;
    for (uint32_t i = 0; i < h->n; i++)
        *place_of(h, &h->list[i].tenant) = i + 1;
    return 0;
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
    if (h->n == h->room) {
        int rc = grow_homes(h);
        if (rc < 0)
            return rc;
    }
    uint32_t *place = place_of(h, &first);
    if (!*place) {
        h->list[h->n] = (struct home){first, 0};
        *place = ++h->n;
    }
    *out = *place - 1;
    h->list[*out].rows++;
    return 0;
}

/* Rows that a run may have: as many as lie in RUN_BYTES_MAX wherever the run begins in its first block. */
static uint32_t run_rows_max(const struct build *b)
{
    uint32_t blocks = RUN_BYTES_MAX / b->params.block_bytes;
    uint64_t rows = (uint64_t)(blocks > 1 ? blocks - 1 : 1) * b->params.slots_per_block;
    return rows < RUN_ROWS_MAX ? (uint32_t)rows : RUN_ROWS_MAX;
}

/* Homes become runs, numbered anew, or nothing. */
static void keep_small(struct build *b, struct homes *h)
{
    uint32_t most = run_rows_max(b);
    for (uint32_t i = 0; i < h->n; i++) {
        bool small = h->list[i].rows >= 2 && h->list[i].rows <= most;
        b->runs.rows += small ? h->list[i].rows : 0;
        h->list[i].rows = small ? b->runs.n++ : RUN_NONE;
    }
    for (uint32_t row = 0; row < b->n; row++)
        if (b->runs.of[row] != RUN_NONE)
            b->runs.of[row] = h->list[b->runs.of[row]].rows;
}

int build_find_runs(struct build *b)
{
    struct homes homes = {0};
    if (!b->has_tenants || !b->options.attributes)
        return 0;
    b->runs.of = malloc(sizeof *b->runs.of * b->n);
    int rc = b->runs.of ? 0 : QUIRE_ENOMEM;
    for (uint32_t row = 0; rc == 0 && row < b->n; row++)
        rc = find_home(b, &homes, row, &b->runs.of[row]);
    if (rc == 0)
        keep_small(b, &homes);
    free(homes.list);
    free(homes.table);
    if (rc < 0 || b->runs.rows > 0)
        return rc;
    free(b->runs.of); /* nobody is small: nothing is laid out otherwise */
    b->runs.of = NULL;
    return 0;
}
