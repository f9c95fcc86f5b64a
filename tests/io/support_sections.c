/*
 * support_sections.c - writes and checks the section file of the tests.
 *
 * One section of each sort: shorter than a page, longer than one, self-checked, empty. The large one is written in
 * pieces of odd sizes, as builders do.
 */
#include "support_sections.h"
#include "support_contents.h"
#include <stdlib.h>

const uint8_t support_segment_id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static const struct {
    uint32_t id, flags;
    uint64_t bytes; /* 0 of the large one: as asked for */
} rows[] = {{SUPPORT_SMALL, 0, 10},
            {SUPPORT_LARGE, 0, 0},
            {SUPPORT_SELF_CHECKED, SECTION_SELF_CHECKED, 8192},
            {SUPPORT_EMPTY, 0, 0}};

#define ROWS (sizeof rows / sizeof *rows)

static int write_section(struct section_writer *writer, uint32_t id, uint32_t flags, uint64_t bytes, uint64_t seed,
                         struct quire_error *err)
{
    uint8_t piece[3333];
    int rc = section_begin(writer, id, flags, err);
    for (uint64_t at = 0; rc == 0 && at < bytes;) {
        size_t n = bytes - at < sizeof piece ? (size_t)(bytes - at) : sizeof piece;
        support_fill(piece, n, at, seed + id);
        rc = section_write(writer, piece, n, err);
        at += n;
    }
    return rc == 0 ? section_end(writer, err) : rc;
}

int support_sections_write(struct io_fs *fs, const char *path, uint64_t seed, uint64_t large_bytes,
                           struct quire_error *err)
{
    struct section_writer *writer;
    int rc = section_writer_create(fs, path, SUPPORT_KIND, support_segment_id, &writer, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < ROWS; i++)
        rc = write_section(writer, rows[i].id, rows[i].flags, rows[i].id == SUPPORT_LARGE ? large_bytes : rows[i].bytes,
                           seed, err);
    if (rc == 0)
        return section_writer_finish(writer, err);
    section_writer_abort(writer);
    return rc;
}

static int check_section(struct section_file *file, uint32_t id, uint64_t bytes, uint64_t seed)
{
    const struct section_entry *entry = section_find(file, id);
    if (!entry || entry->bytes != bytes)
        return QUIRE_ECORRUPT;
    uint8_t *data = malloc(bytes + 1);
    int rc = data ? section_load(file, entry, data, NULL) : QUIRE_ENOMEM;
    if (rc == 0 && support_differs(data, bytes, 0, seed + id) != bytes)
        rc = QUIRE_ECORRUPT;
    free(data);
    return rc;
}

int support_sections_check(struct io_fs *fs, const char *path, uint64_t seed, uint64_t large_bytes, unsigned flags)
{
    struct section_file *file;
    int rc = section_file_open(fs, path, SUPPORT_KIND, support_segment_id, flags, &file, NULL);
    if (rc < 0)
        return rc;
    if (section_count(file) != ROWS)
        rc = QUIRE_ECORRUPT;
    for (size_t i = 0; rc == 0 && i < ROWS; i++)
        rc = check_section(file, rows[i].id, rows[i].id == SUPPORT_LARGE ? large_bytes : rows[i].bytes, seed);
    section_file_close(file);
    return rc;
}
