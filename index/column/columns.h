/*
 * columns.h - which rows of a segment have which values: the file `columns`, made at seal, resident while it is open.
 *
 * For each field of the rows' attributes a column: its values in order, for each value the rows that have it, and of
 * numbers marks: the rows of all values below some, so that a range is the difference of two. For each tenant the rows
 * granted to it. A set is a run, sorted numbers as gaps, or a Roaring bitmap, whichever is smaller. Row order is block
 * order, so what lies together is short in each.
 *
 * A filter is decided by set operations: an equality or a range takes the sets of its values; any other test of one
 * field is made once per distinct value; a test of several, or of a field with very many values, for each row by what
 * the columns say that it has. What no column can decide (what is in a list, a field that is not indexed) is left to
 * filter_matches on the attributes themselves; the set is then larger than the answer, and says so.
 *
 * Which fields get a column: all that are declared INDEXED; of the others those that rows have, by how many have them,
 * up to COLUMNS_LEARNT_MAX and as long as a column takes no more than COLUMN_BYTES_PER_ROW per row; of one that would
 * take more only the rows that have it are kept. A list puts its row into the set of each of its members, which stand
 * apart from the values of rows without lists.
 *
 * Tombstones are not known here. Immutable once open, but for what is kept (columns_kept_bytes); thread-safe.
 */
#ifndef QUIRE_INDEX_COLUMNS_H
#define QUIRE_INDEX_COLUMNS_H

#include "index/attribute/filter.h"
#include "index/attribute/grants.h"
#include "io/fs.h"

typedef struct roaring_bitmap_s roaring_bitmap_t; /* roaring/roaring.h takes .4 s to compile */

#define COLUMNS_NAME         "columns"
#define COLUMNS_LEARNT_MAX   64u
#define COLUMN_BYTES_PER_ROW 32u
#define COLUMN_TESTS_MAX     65536u /* distinct numbers that a test is made for; beyond that it is made for the rows */

struct columns;

/* Attributes of a row (0 .. n - 1, asked for in this order, twice or more), as grants.h has them; *bytes 0: none. */
typedef int columns_source(void *context, uint32_t row, const char **text, uint32_t *bytes, struct quire_error *err);
/* Writes the file; nothing where no row has attributes or grants (*written false). learnt_bytes_max: bytes that learnt
 * columns may take together, whatever their own limits (UINT64_MAX: those alone). Memory: what the values of the
 * largest column take, at least 64 MiB of them, and what the file does. */
int columns_write(struct io_fs *fs, const char *path, const uint8_t segment_id[16], uint32_t n_rows,
                  const struct attribute_schema *schema, uint64_t learnt_bytes_max, columns_source *source,
                  void *context, bool *written, struct quire_error *err);
/* Reads, checks every checksum and every structure: sets hold rows below n_rows, in order. */
int columns_open(struct io_fs *fs, const char *path, const uint8_t segment_id[16], uint32_t n_rows,
                 struct columns **out, struct quire_error *err);
void columns_close(struct columns *columns); /* NULL is fine */

struct columns_stats {
    uint32_t n_columns, n_tenants;
    uint64_t n_grants;
    uint64_t column_bytes, tenant_bytes; /* in memory */
};
void columns_get_stats(const struct columns *columns, struct columns_stats *out);
/* In memory besides: what selections have asked for by rows, at most as much as the columns take and 8 MiB. */
uint64_t columns_kept_bytes(const struct columns *columns);
/* What a column is, for `quire inspect` and VINFO; false behind the last. */
struct column_info {
    const char *name;
    uint32_t name_bytes;
    enum quire_column_type type; /* declared, or QUIRE_COLUMN_LEARNT */
    uint64_t rows, distinct, bytes;
};
bool columns_info(const struct columns *columns, uint32_t i, struct column_info *out);

/* The rows granted to any of the scope; QUIRE_ENOMEM. *out is owned by the caller, an empty one where nothing is. */
int columns_scope(const struct columns *columns, const struct tenant_scope *scope, roaring_bitmap_t **out);
/* Whether a row is granted to a tenant of this generation. Cost: of a few comparisons, whatever the tenant has. */
bool columns_tenant_has(const struct columns *columns, const struct grant *tenant, uint32_t row);
/* Tenants in no order; false behind the last. */
bool columns_tenant_at(const struct columns *columns, uint32_t i, struct grant *tenant, uint64_t *rows);

/* The rows that match, among `within` (NULL: all n_rows); *residual: filter_matches must be asked about each of them.
 * keys: rows whose names FILTER_KEYS lists, found by the caller, or NULL: then such a part is left over. *out is owned
 * by the caller. QUIRE_ENOMEM; QUIRE_EINVALID where within or keys have rows that the segment has not. */
int columns_select(const struct columns *columns, const struct filter *filter, const roaring_bitmap_t *within,
                   const roaring_bitmap_t *keys, roaring_bitmap_t **out, bool *residual);

#endif
