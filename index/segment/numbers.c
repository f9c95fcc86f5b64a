/* numbers.c - the input numbers of all rows, packed. */
#include "index/segment/numbers.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/sections.h"
#include <assert.h>
#include <stdlib.h>

#define SPARE_BYTES 8u

uint32_t numbers_bits(uint64_t rows)
{
    uint32_t bits = 1;
    assert(rows > 0 && rows <= QUIRE_ROWS_MAX);
    while (bits < 32 && rows > (uint64_t)1 << bits)
        bits++;
    return bits;
}

uint64_t numbers_bytes_of(uint64_t rows)
{
    return (rows * numbers_bits(rows) + 7) / 8 + SPARE_BYTES;
}

int numbers_write(struct section_writer *writer, const uint32_t *of, uint64_t rows, struct quire_error *err)
{
    uint8_t out[4096];
    uint32_t bits = numbers_bits(rows), held = 0; /* bits of `word` that are not written */
    uint64_t word = 0;
    size_t n = 0;
    int rc = section_begin(writer, CODES_NUMBERS, 0, err);
    for (uint64_t row = 0; rc == 0 && row < rows; row++) {
        assert(of[row] < rows);
        word |= (uint64_t)of[row] << held;
        for (held += bits; held >= 8; held -= 8, word >>= 8)
            out[n++] = (uint8_t)word;
        if (n > sizeof out - SPARE_BYTES) {
            rc = section_write(writer, out, n, err);
            n = 0;
        }
    }
    if (held > 0)
        out[n++] = (uint8_t)word;
    if (rc == 0)
        rc = section_write(writer, out, n, err);
    static const uint8_t spare[SPARE_BYTES];
    if (rc == 0)
        rc = section_write(writer, spare, sizeof spare, err);
    return rc == 0 ? section_end(writer, err) : rc;
}

int numbers_open(struct section_file *codes, uint64_t rows, struct numbers **out, struct quire_error *err)
{
    const struct section_entry *entry = NULL;
    uint64_t bytes = numbers_bytes_of(rows);
    int rc = format_section(codes, CODES_NUMBERS, bytes, &entry, err);
    if (rc < 0)
        return rc;
    struct numbers *numbers = calloc(1, sizeof *numbers);
    if (numbers) {
        numbers->bytes = memory_map(bytes, 1);
        numbers->mapped = bytes;
        numbers->bits = numbers_bits(rows);
    }
    rc = numbers && numbers->bytes
             ? section_load(codes, entry, numbers->bytes, err)
             : error_set(err, QUIRE_ENOMEM, "no memory for %llu bytes of row numbers", (unsigned long long)bytes);
    for (uint32_t row = 0; rc == 0 && row < rows; row++)
        if (numbers_get(numbers, row) >= rows)
            rc = error_set(err, QUIRE_ECORRUPT, "%s: row %u has number %u of %llu", section_file_io(codes)->path, row,
                           numbers_get(numbers, row), (unsigned long long)rows);
    if (rc < 0)
        numbers_close(numbers);
    else
        *out = numbers;
    return rc;
}

void numbers_close(struct numbers *numbers)
{
    if (!numbers)
        return;
    if (numbers->bytes)
        memory_unmap(numbers->bytes, numbers->mapped);
    free(numbers);
}

uint32_t numbers_get(const struct numbers *numbers, uint32_t row)
{
    uint64_t at = (uint64_t)row * numbers->bits;
    assert(at / 8 + SPARE_BYTES <= numbers->mapped);
    uint64_t word = bytes_load_u64(numbers->bytes + at / 8) >> at % 8;
    return (uint32_t)(word & (((uint64_t)1 << numbers->bits) - 1));
}
