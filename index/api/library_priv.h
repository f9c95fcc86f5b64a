/* library_priv.h - what the files behind quire.h share. */
#ifndef QUIRE_INDEX_LIBRARY_PRIV_H
#define QUIRE_INDEX_LIBRARY_PRIV_H

#include "index/api/library.h"
#include "index/attribute/filter.h"
#include "index/collection/collection.h"
#include "index/search/search_lane.h"
#include "index/store/store.h"

struct selection;

/* dim: of what is searched. */
int library_search_validate(const struct quire_search_options *options, uint32_t dim, struct quire_error *err);

/* Tenants' names as a scope, or as grants, of generation 0; *out is freed by free(out->tenants). QUIRE_ERANGE: a name's
 * length. n may be 0. */
int library_scope_of(const struct quire_bytes *tenants, uint32_t n, struct tenant_scope *out, struct quire_error *err);

/* What filter and tenants of a search leave of an index; all NULL where it has neither. */
struct restriction {
    struct attribute_schema *schema; /* the filter's */
    struct filter *filter;
    struct selection *selection;
};
/* Compiles, and selects from the columns. Keys that the filter names are looked up on a lane of the pool. *out is ended
 * by library_restriction_end. */
int library_restriction_make(struct segment *segment, struct search_lane_pool *lanes,
                             const struct quire_search_options *options, struct restriction *out,
                             struct quire_error *err);
void library_restriction_end(struct restriction *restriction);

/* ---- live collections -------------------------------------------------------------------------------------------- */

struct quire_collection {
    struct store *store;
    struct collection *collection;
    struct search_lane_pool lanes;
    struct store_report report;
    void (*log)(void *context, bool warning, const char *line);
    void *context;
};

/* QUIRE_ECLOSED in a child of the process that opened it. NULL is fine: who is called says what is missing. */
static inline int library_here(const struct quire_collection *collection, struct quire_error *err)
{
    return collection ? search_lane_pool_check(&collection->lanes, err) : 0;
}

int library_key_validate(const void *key, size_t key_bytes, struct quire_error *err);
/* Changes an element in memory, or puts a sealed one again; links, and waits as the durability says. */
int library_change(struct quire_collection *collection, struct collection_change *change, struct quire_error *err);

/* Filter and scope of a call, both NULL where it has none. */
struct chosen {
    struct filter *filter;
    struct tenant_scope names; /* tenants NULL: no scope */
};
int library_choose(struct quire_collection *collection, const struct quire_where *where, struct chosen *out,
                   struct quire_error *err);
void library_chosen_free(struct chosen *chosen);
const struct tenant_scope *library_chosen_scope(const struct chosen *chosen); /* NULL: all */

#endif
