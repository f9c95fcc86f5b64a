/* support_bed.h - a cache whose groups are sealed at a hundred rows, and entries put into it, for tests. */
#ifndef QUIRE_TESTS_CACHE_SUPPORT_BED_H
#define QUIRE_TESTS_CACHE_SUPPORT_BED_H

#include "tests/cache/support_cache.h"

enum { DIM = 32, SEAL_ROWS = 100, VECTORS = 2000 };

struct bed {
    struct world w;
    struct io_fs *fs;
    float vectors[VECTORS][DIM];
    uint64_t ids[VECTORS];
};

void bed_open(struct bed *b);
void bed_close(struct bed *b);
/* Puts vector i under the text "q<i>" for a tenant; its tag is "even" or "odd". */
uint64_t bed_put(struct bed *b, unsigned i, const char *tenant, uint64_t ttl_ms);
void bed_put_many(struct bed *b, unsigned first, unsigned n, const char *tenant);
struct quire_cache_stats bed_stats(struct bed *b);
/* 300 entries of tenant a, of which more than half are sealed. */
struct bed *bed_sealed(void);

#endif
