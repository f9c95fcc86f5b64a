/* support_parts.h - segments and rows in memory with keys and attributes, for the tests of scans and merges. */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_PARTS_H
#define QUIRE_TESTS_INDEX_SUPPORT_PARTS_H

#include "index/build/merge.h"
#include "tests/index/support_index.h"

/* Vectors with a key each, and attributes for every third row. */
struct support_part {
    struct support_data data;
    char **keys, **attributes; /* owned; attributes NULL or an entry NULL: none */
    uint32_t *key_bytes, *attribute_bytes;
};

/* Keys are NAME:row; every seventh is longer than a block holds itself where long_keys. */
void support_part_make(struct support_part *part, const char *name, uint32_t rows, uint32_t dim, enum quire_type type,
                       uint64_t seed, bool long_keys, bool attributes);
void support_part_free(struct support_part *part);
/* Builds and opens. options: its keys and attributes are set to the part's where with_keys. */
struct segment *support_part_segment(const struct support_part *part, const char *path,
                                     const struct quire_build_options *options, bool with_keys);
struct segment *support_segment(const char *path);
/* The part as rows in memory. */
struct merge_rows support_part_rows(const struct support_part *part);
/* A bitmap in which about one row in `every` is set; owned. */
uint8_t *support_dead(uint32_t rows, uint32_t every, uint64_t seed);

/* How far a stored vector is from the one that went in (between their directions where `unit`), in lengths of that. */
double support_stored_error(const float *stored, const float *original, uint32_t dim, bool unit);

#endif
