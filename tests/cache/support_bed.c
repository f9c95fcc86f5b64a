/* support_bed.c - a cache whose groups are sealed at a hundred rows, on a disk in memory, and entries put into it. */
#include "tests/cache/support_bed.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void bed_open(struct bed *b)
{
    memset(b, 0, sizeof *b);
    b->fs = fault_fs_create();
    for (unsigned i = 0; i < VECTORS; i++)
        vector_make(b->vectors[i], DIM, i);
    world_make(&b->w, "/data", &(struct cache_config){.dim = DIM},
               &(struct world_options){.fs = b->fs, .sync = JOURNAL_NO, .seal_rows = SEAL_ROWS});
    world_category(&b->w, "k", "SIM 0.9 JITTER 0 GUARD none");
}

void bed_close(struct bed *b)
{
    world_check(&b->w);
    world_close(&b->w);
    fault_fs_destroy(b->fs);
    free(b);
}

/* Puts vector i under the text "q<i>" for a tenant; its tag is "even" or "odd". */
uint64_t bed_put(struct bed *b, unsigned i, const char *tenant, uint64_t ttl_ms)
{
    char text[32], value[64];
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    struct quire_pair scope = {text_of("tenant"), text_of(tenant)};
    struct quire_bytes tag = text_of(i % 2 ? "odd" : "even");
    snprintf(text, sizeof text, "q%u", i);
    snprintf(value, sizeof value, "%s %u", tenant, i);
    struct quire_cache_entry entry = {.text = text_of(text),
                                      .vector = b->vectors[i],
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .tags = &tag,
                                      .n_tags = 1,
                                      .ttl_ms = ttl_ms};
    if (put(&b->w, &entry, value, &result, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(result.outcome <= QUIRE_CACHE_REPLACED);
    return result.id;
}

void bed_put_many(struct bed *b, unsigned first, unsigned n, const char *tenant)
{
    for (unsigned i = first; i < first + n; i++) {
        b->w.now_ms++;
        b->ids[i] = bed_put(b, i, tenant, 100000000);
    }
}

struct quire_cache_stats bed_stats(struct bed *b)
{
    return stats_of(&b->w, "");
}

/* 300 entries of tenant a, of which more than half are sealed. */
struct bed *bed_sealed(void)
{
    struct bed *b = malloc(sizeof *b);
    bed_open(b);
    bed_put_many(b, 0, 300, "a");
    world_work(&b->w);
    assert_in_range(bed_stats(b).sealed_entries, 150, 299);
    world_check(&b->w);
    return b;
}
