/*
 * names.h - the short keys of all rows in memory, so that a search can name a row whose block it has not read.
 *
 * On the disk (CODES_NAMES): a byte per row, the length of its key, or NAMES_LONG where that is longer than
 * NAMES_BYTES_MAX and stands in its block or in the key file only; then the bytes of the others, in order of rows.
 */
#ifndef QUIRE_INDEX_NAMES_H
#define QUIRE_INDEX_NAMES_H

#include "index/format/format.h"

#define NAMES_BYTES_MAX 64u
#define NAMES_LONG      255u

struct names {
    uint8_t *bytes; /* as on the disk: lengths, then names; memory_map */
    size_t mapped;
    uint64_t *starts; /* of the names of every NAMES_STRIDE-th row, in bytes; owned */
    uint64_t rows;
};

/* The keys of rows in order: keys[order[row]], of key_bytes[order[row]]. */
int names_write(struct section_writer *writer, const void *const *keys, const uint32_t *key_bytes,
                const uint32_t *order, uint64_t rows, struct quire_error *err);
/* What they take in memory; 0: there are none, *out of names_open stays NULL. */
uint64_t names_bytes_of(const struct section_file *codes, uint64_t rows);
int names_open(struct section_file *codes, uint64_t rows, struct names **out, struct quire_error *err);
void names_close(struct names *names); /* NULL is fine */
/* The key of a row and its bytes; NULL: it is long. Valid as long as `names` is. Thread-safe. */
const uint8_t *names_get(const struct names *names, uint32_t row, uint32_t *bytes);

#endif
