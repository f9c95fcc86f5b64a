/*
 * support_fake_parts.h - parts of a collection that have rows and tombstones but no files, for tests and measurements
 * of how parts come and go: any number of rows in no time. Nobody may search them.
 */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_FAKE_PARTS_H
#define QUIRE_TESTS_INDEX_SUPPORT_FAKE_PARTS_H

#include "index/collection/part.h"
#include "index/segment/segment_priv.h"
#include <stdlib.h>

/* NULL: no memory. Its segment is not freed with it. */
static inline struct part *support_fake_part(uint64_t uid, uint64_t rows)
{
    struct part *part = NULL;
    struct segment_whole *whole = calloc(1, sizeof *whole);
    uint64_t capacity = 1024;
    while (capacity < rows)
        capacity *= 2;
    if (!whole || part_create(uid, &part, NULL) < 0) {
        free(whole);
        return NULL;
    }
    atomic_init(&whole->references, 2);
    whole->view.info.rows = rows;
    part->segment = &whole->view;
    part->dead_capacity = capacity;
    part->dead = calloc(capacity / 8, 1);
    return part->dead ? part : NULL;
}

/* After its part. */
static inline void support_fake_segment_free(struct segment *segment)
{
    free(segment_whole(segment));
}

#endif
