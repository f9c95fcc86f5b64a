/*
 * numbers.h - the input numbers of all rows in memory, so that a search can name a row whose block it has not read.
 *
 * On the disk (CODES_NUMBERS) and in memory alike: row r's number in bits [r * w, (r + 1) * w), least significant
 * first, where w = numbers_bits(rows).
 */
#ifndef QUIRE_INDEX_NUMBERS_H
#define QUIRE_INDEX_NUMBERS_H

#include "index/format/format.h"

struct numbers {
    uint8_t *bytes; /* memory_map */
    size_t mapped;
    uint32_t bits;
};

/* Bits of a number among so many rows, 1 to 32. */
uint32_t numbers_bits(uint64_t rows);
/* Bytes of all: a few more than they fill, so that any of them can be read as 8 bytes. */
uint64_t numbers_bytes_of(uint64_t rows);
/* of[row] is the number of a row. */
int numbers_write(struct section_writer *writer, const uint32_t *of, uint64_t rows, struct quire_error *err);
/* QUIRE_ECORRUPT where a number is not below `rows`. */
int numbers_open(struct section_file *codes, uint64_t rows, struct numbers **out, struct quire_error *err);
void numbers_close(struct numbers *numbers); /* NULL is fine */
/* Thread-safe. */
uint32_t numbers_get(const struct numbers *numbers, uint32_t row);

#endif
