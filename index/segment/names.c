/* names.c - the short keys of all rows: written by a build, loaded and checked at opening. */
#include "index/segment/names.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/sections.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_STRIDE 64u /* lengths of at most so many rows are added up to find a name */
#define WRITE_BYTES  65536u

static inline uint32_t stored_bytes(uint8_t length)
{
    return length == NAMES_LONG ? 0 : length;
}

int names_write(struct section_writer *writer, const void *const *keys, const uint32_t *key_bytes,
                const uint32_t *order, uint64_t rows, struct quire_error *err)
{
    uint8_t *out = malloc(WRITE_BYTES);
    size_t n = 0;
    int rc = out ? section_begin(writer, CODES_NAMES, 0, err) : QUIRE_ENOMEM;
    for (uint64_t row = 0; rc == 0 && row < rows; row++) {
        uint32_t bytes = key_bytes[order[row]];
        out[n++] = bytes <= NAMES_BYTES_MAX ? (uint8_t)bytes : NAMES_LONG;
        if (n == WRITE_BYTES) {
            rc = section_write(writer, out, n, err);
            n = 0;
        }
    }
    for (uint64_t row = 0; rc == 0 && row < rows; row++) {
        uint32_t bytes = key_bytes[order[row]];
        if (n + NAMES_BYTES_MAX > WRITE_BYTES) {
            rc = section_write(writer, out, n, err);
            n = 0;
        }
        if (bytes <= NAMES_BYTES_MAX)
            memcpy(out + n, keys[order[row]], bytes);
        n += bytes <= NAMES_BYTES_MAX ? bytes : 0;
    }
    if (rc == 0)
        rc = section_write(writer, out, n, err);
    free(out);
    return rc == 0 ? section_end(writer, err) : rc;
}

uint64_t names_bytes_of(const struct section_file *codes, uint64_t rows)
{
    const struct section_entry *entry = section_find(codes, CODES_NAMES);
    return entry ? entry->bytes + sizeof(uint64_t) * (rows / NAMES_STRIDE + 1) : 0;
}

/* Where names begin, from their lengths, which must add up to what is there. */
static int find_starts(struct names *names, const char *path, struct quire_error *err)
{
    uint64_t at = names->rows;
    for (uint64_t row = 0; row < names->rows; row++) {
        uint8_t length = names->bytes[row];
        if (length > NAMES_BYTES_MAX && length != NAMES_LONG)
            return error_set(err, QUIRE_ECORRUPT, "%s: the name of row %llu has %u bytes", path,
                             (unsigned long long)row, length);
        if (row % NAMES_STRIDE == 0)
            names->starts[row / NAMES_STRIDE] = at;
        at += stored_bytes(length);
    }
    if (at != names->mapped)
        return error_set(err, QUIRE_ECORRUPT, "%s: names of %llu bytes, their lengths say %llu", path,
                         (unsigned long long)names->mapped, (unsigned long long)at);
    return 0;
}

int names_open(struct section_file *codes, uint64_t rows, struct names **out, struct quire_error *err)
{
    const struct section_entry *entry = section_find(codes, CODES_NAMES);
    const char *path = section_file_io(codes)->path;
    if (!entry)
        return 0;
    if (entry->bytes < rows)
        return error_set(err, QUIRE_ECORRUPT, "%s: names of %llu bytes for %llu rows", path,
                         (unsigned long long)entry->bytes, (unsigned long long)rows);
    struct names *names = calloc(1, sizeof *names);
    int rc = names ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        names->rows = rows;
        names->mapped = entry->bytes;
        names->bytes = memory_map(entry->bytes, 1);
        names->starts = malloc(sizeof *names->starts * (rows / NAMES_STRIDE + 1));
        rc = names->bytes && names->starts ? section_load(codes, entry, names->bytes, err) : QUIRE_ENOMEM;
    }
    if (rc == QUIRE_ENOMEM)
        error_set(err, rc, "no memory for %llu bytes of names", (unsigned long long)entry->bytes);
    if (rc == 0)
        rc = find_starts(names, path, err);
    if (rc < 0)
        names_close(names);
    else
        *out = names;
    return rc;
}

void names_close(struct names *names)
{
    if (!names)
        return;
    memory_unmap(names->bytes, names->mapped);
    free(names->starts);
    free(names);
}

const uint8_t *names_get(const struct names *names, uint32_t row, uint32_t *bytes)
{
    assert(row < names->rows);
    uint64_t at = names->starts[row / NAMES_STRIDE];
    for (uint32_t i = row / NAMES_STRIDE * NAMES_STRIDE; i < row; i++)
        at += stored_bytes(names->bytes[i]);
    *bytes = stored_bytes(names->bytes[row]);
    return names->bytes[row] == NAMES_LONG ? NULL : names->bytes + at;
}
