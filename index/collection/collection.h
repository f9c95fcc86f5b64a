/*
 * collection.h - a live collection: elements under keys that are put, removed and searched while they change.
 *
 * Its rows lie in memtables (memtable.h: the newest takes writes, older ones are being sealed) and in sealed segments
 * (segment.h) with tombstones. Readers work on an immutable view of both. Every write is a frame of the store's journal
 * (store.h) before it is visible.
 *
 *   write   locate: where the key's row is, if a sealed segment holds one: decided in memory by the segments' key
 *           filters (collection_locate_now), or with reads on a lane (collection_fetch_start). Commit: under the
 *           collection's lock, in microseconds and without the disk: journal, memtable, tombstone. A commit whose
 *           `located` is older than the newest seal or merge answers QUIRE_ESTALE: locate again.
 *   search  segments first, on a lane's ring. When all have answered: under the lock the snapshot number and which of
 *           the hits have died; then the memtables as of that number. So each element is seen once, old or new.
 *
 * Reference-counted: a request under way holds a reference. Thread-safe but where a searcher is named (its lane's
 * thread).
 */
#ifndef QUIRE_INDEX_COLLECTION_H
#define QUIRE_INDEX_COLLECTION_H

#include "index/attribute/attribute_schema.h"
#include "index/attribute/grants.h"
#include "index/search/search.h"

struct collection;
struct filter;
struct number_set;
struct search_lane;
struct view;
struct store;

#define LINK_DEGREE_MAX 4096u
#define LINK_BEAM_MAX   4096u

/* What is fixed when a collection is made. */
struct collection_config {
    uint32_t dim;
    enum quire_type type;
    enum quire_metric metric;
    enum quire_slot slot;
    uint32_t block_bytes;            /* of sealed segments; 0: 8192 */
    unsigned code_bits;              /* 0: 4 */
    unsigned degree, build_beam;     /* of sealed segments; 0: the build's defaults */
    unsigned link_degree, link_beam; /* as Redis's M and EF, told again; 0: not given. Nothing is made by them */
    uint32_t input_dim;              /* dimensions that users give, reduced to dim by whoever calls; 0: dim */
    uint64_t memory_bytes;           /* resident budget of its sealed segments; 0: the store's */
    uint64_t seed; /* of rotation and builds: 0 of new ones, so that the same data gives the same scores */
    enum quire_index_kind index; /* of sealed segments */
    bool tenants; /* every element is some tenant's: small tenants lie side by side, and put needs a grant */
    /* Slot Q8 of COLLECTION_FLOATS_DIM dimensions or fewer under cosine: vectors are kept as they came, which takes no
     * more than their codes, padded to 32. Of new collections: collection_config_begin. */
    bool as_floats;
    /* Names begin with NUMBER_BYTES of a number (number_set.h), which one living element has at most. Where such an
     * element is is known in memory: what `located` of a write says is not looked at, and no write is stale. Searches
     * may be restricted to numbers. */
    bool numbered;
};
#define COLLECTION_FLOATS_DIM 8u
/* What memtables and sealed segments hold. */
enum quire_slot collection_slot(const struct collection_config *config);
#define COLLECTION_CONFIG_BYTES 96u
void collection_config_encode(const struct collection_config *config, uint8_t out[COLLECTION_CONFIG_BYTES]);
int collection_config_decode(const uint8_t in[COLLECTION_CONFIG_BYTES], struct collection_config *out,
                             struct quire_error *err);
/* QUIRE_EDIM, QUIRE_EINVALID, QUIRE_ERANGE with a sentence. Fills in defaults. */
int collection_config_validate(struct collection_config *config, struct quire_error *err);
/* The same for a collection that begins empty: also chooses how it keeps vectors. */
int collection_config_begin(struct collection_config *config, struct quire_error *err);

/* Checks n numbers as a vector of the user: QUIRE_ENOTFINITE. */
int collection_vector_validate(const struct collection_config *config, const float *vector, uint32_t n,
                               struct quire_error *err);

/* The declared columns; never NULL, lives as long as the collection. Set once, while it is empty (store.h). */
const struct attribute_schema *collection_schema(const struct collection *collection);

struct collection *collection_ref(struct collection *collection);
void collection_unref(struct collection *collection);
/* 0; or why nothing of it can be read or written (a code and a sentence), until its files are mended and the folder is
 * opened again. Whoever takes a collection out of a table for a request asks first. Any thread. */
int collection_available(const struct collection *collection, struct quire_error *err);
uint64_t collection_uid(const struct collection *collection); /* unique in its store, for ever */
const struct collection_config *collection_config(const struct collection *collection);
uint64_t collection_count(const struct collection *collection); /* living elements */
/* What its seals and merges make; segments of VLOAD, or from before it was changed, may be of another kind. */
enum quire_index_kind collection_index_kind(const struct collection *collection);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Where a key's sealed row is, if anywhere, as of a generation of the collection's segments. */
struct located {
    uint64_t generation;
    uint64_t segment_uid; /* 0: no sealed segment holds a living row of it */
    uint32_t row;
    uint64_t seen_lsn; /* of a removal: an element that was put after this write stays; 0: whatever is there goes */
    /* Of a removal: a row in memory must match this, too, when it goes, whatever happened to its attributes since they
     * were looked at. NULL: it need not. Kept by the caller. */
    const struct filter *matching;
};
/* True: *out is right, found in memory; false: a segment may hold it, the disk must be asked
 * (collection_fetch_start). */
bool collection_locate_now(struct collection *collection, const void *key, uint32_t key_bytes, struct located *out);

/* ONLY_SEALED: QUIRE_ESTALE unless the row that is replaced is the one that `located` names, for a put that was made
 * from it, and by the grants of `old_text` is still somebody's. */
enum put_condition { PUT_ALWAYS, PUT_ONLY_NEW, PUT_ONLY_OLD, PUT_ONLY_SEALED };
struct collection_put {
    const void *key;
    uint32_t key_bytes;
    const void *vector;     /* elements of config.type, dim of them; checked */
    bool is_stored;         /* vector is in the form in which it is kept (collection_export.h) instead; checked, too */
    const void *attributes; /* NULL: none */
    uint32_t attribute_bytes;
    bool keep_attributes; /* the element keeps those that it has, a new one has none; `attributes` are not looked at */
    /* Whom it is granted to, generations are filled in; with keep_grants beside those whom it is granted to already:
     * for a VADD of an element that is there. Without any it is the tenant's of a scope that has one; a scope of
     * several is QUIRE_EINVALID then, as is none at all where config.tenants. */
    const struct grant *grants;
    uint32_t n_grants;
    bool keep_grants;
    /* The whole text (grants.h; a fetch with want_grants) of the sealed row that `located` names: what is kept of it if
     * that row is replaced. A row in memory gives its own. To put a sealed element again with another text
     * (collection_changed_text): that text here, both keep flags, PUT_ONLY_SEALED. */
    const void *old_text;
    uint32_t old_text_bytes;
    /* Of who writes: an element that is there and not granted to any of it is not replaced, and none is granted to
     * others (QUIRE_EPERM). NULL: all. */
    const struct tenant_scope *scope;
    enum put_condition condition;
    struct located located;
    /* out */
    bool was_new;
    uint64_t lsn;
};
/* Commits an element. 0, also where the condition did not hold (lsn 0 then); QUIRE_ESTALE: locate again. Other errors:
 * the vector's (EDIM is the caller's to check), the journal's, QUIRE_ELIMIT (a limit of the store: the sentence names
 * it), QUIRE_ENOMEM. */
int collection_put(struct collection *collection, struct collection_put *put, struct quire_error *err);
/* Before a batch in which an element will be put: 0, or why a put would be refused now. vector (elements of
 * config.type; NULL: none): room is made for one of its length, which a batch cannot do. */
int collection_admit(struct collection *collection, const void *vector, struct quire_error *err);
/* *removed: whether there was one that the scope (NULL: all) lets be seen. */
int collection_remove(struct collection *collection, const void *key, uint32_t key_bytes, const struct located *located,
                      const struct tenant_scope *scope, bool *removed, uint64_t *lsn, struct quire_error *err);
/* Other attributes, or other grants, for an element that a memtable holds. QUIRE_ENOTFOUND: none does, or none that the
 * scope lets be seen; then one of a segment is put again with its stored vector by the caller. */
struct collection_change {
    const void *key;
    uint32_t key_bytes;
    bool set_attributes; /* to these */
    const void *attributes;
    uint32_t attribute_bytes;
    const struct grant *grant, *revoke; /* added, taken away; what is there already or is not stays as it is */
    uint32_t n_grant, n_revoke;
    const struct tenant_scope *scope; /* NULL: all */
    uint64_t lsn;                     /* out; 0: nothing had to be changed */
    uint32_t n_changed;               /* out: grants added and taken away */
};
int collection_change(struct collection *collection, struct collection_change *change, struct quire_error *err);
/* What an element's text (grants and JSON) becomes by a change: owned by the caller, NULL where nothing is left. Void
 * grants go. QUIRE_ENOTFOUND: the scope does not let it be seen; QUIRE_EPERM: the scope lacks a tenant that is granted
 * or revoked; QUIRE_EINVALID: config.tenants, and nobody would be left. */
int collection_changed_text(struct collection *collection, const struct collection_change *change, const void *text,
                            uint32_t text_bytes, char **out, uint32_t *out_bytes, uint32_t *n_changed,
                            struct quire_error *err);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct collection_hit {
    const void *key;
    uint32_t key_bytes;
    float distance, deviation; /* deviation: 0, or the standard deviation of an estimate */
    const char *attributes;    /* NULL unless want_attributes and the element has some */
    uint32_t attribute_bytes;
    const float *vector; /* NULL unless want_vectors */
};

/* Rows of a segment that can be among the k nearest to some queries (index/exact): counts[q] of them, ascending, from
 * rows[q * most] on; 0: any can. */
struct collection_named {
    struct segment *segment;
    uint32_t most;
    const uint32_t *counts, *rows;
};

struct collection_search {
    /* set by the caller, who owns the struct until done */
    struct collection *collection; /* a reference is taken */
    const float *query;            /* dim floats; copied */
    struct quire_search_options options;
    struct filter *filter;            /* compiled with the collection's schema; a reference is taken; NULL: all */
    const struct tenant_scope *scope; /* copied; NULL: all. The options' filter and tenants are not looked at here */
    /* Of a numbered collection, without filter and scope: the elements that may be answered; kept by the caller until
     * done. NULL: all */
    const struct number_set *numbers;
    bool want_vectors, want_attributes;
    uint32_t priority;                          /* of its searches in segments: search.h */
    const struct collection_snapshot *snapshot; /* NULL: the present; otherwise kept by the caller until done */
    /* What is known of some of its segments, for query `named_query` of those: they are searched exactly, and among the
     * named rows alone, unless one of these has ended. For at most as many neighbours as they were named for. Kept by
     * the caller until done, with references to the segments. Not looked at with a filter, a scope or a snapshot. */
    const struct collection_named *named;
    uint32_t n_named, named_query;
    void (*done)(struct collection_search *search);
    void *owner;
    /* Asked each time that what was found, with keys, vectors and attributes, takes more, from some hundred KiB on: all
     * that it takes; false: the search fails with QUIRE_ENOMEM. It is freed after done. NULL: there is no limit */
    bool (*may_hold)(struct collection_search *search, size_t bytes);
    /* filled before done; pointers valid during done */
    int code;
    struct quire_error error;
    const struct collection_hit *hits; /* nearest first */
    uint32_t n_hits;
    struct quire_search_stats stats;      /* sums over segments and memtables */
    uint32_t n_segments, n_list_segments; /* searched; of inverted lists among them */
    uint32_t n_named_segments;            /* searched among named rows */
    uint32_t memtable_rows_scored;
    /* inside */
    struct search_work *work;
};
/* As search_start. QUIRE_ENOTFINITE at once. */
int collection_search_start(struct searcher *searcher, struct collection_search *search, struct quire_error *err);

/* The collection as it is now, whatever is written afterwards. Costs a bit per sealed row, and what is removed
 * meanwhile keeps its memory and its disk until it is closed. Thread-safe; no search uses it when it is closed. */
struct collection_snapshot;
int collection_snapshot_open(struct collection *collection, struct collection_snapshot **out, struct quire_error *err);
void collection_snapshot_close(struct collection_snapshot *snapshot); /* NULL is fine */
uint64_t collection_snapshot_count(const struct collection_snapshot *snapshot);

/* Inside of requests that ask the segments for a key, one after the other. */
struct part_walk {
    struct fetch_request fetch;
    struct searcher *searcher;
    struct view *view;
    uint32_t next_part; /* of the view, from the last to the first; n_parts - next_part have been asked */
    uint32_t tries;
    void (*ended)(struct part_walk *walk, bool found); /* or an error: fetch.code */
    void *owner;
};

/* An element by its key, with what is wanted of it; with nothing wanted only where it is. */
struct collection_fetch {
    struct collection *collection;
    const void *key; /* kept by the caller until done */
    uint32_t key_bytes;
    bool want_vector, want_attributes, want_links;
    uint32_t links_max;
    /* NULL: all. An element that is not granted to any of it is QUIRE_ENOTFOUND (`located` still says where it is, for
     * a put), and no link leads to it. Copied. */
    const struct tenant_scope *scope;
    bool want_grants; /* attributes are the whole text (grants.h), not the JSON alone */
    void (*done)(struct collection_fetch *fetch);
    void *owner;
    /* filled; pointers valid during done */
    int code; /* QUIRE_ENOTFOUND */
    struct quire_error error;
    struct located located; /* for a write: of its row in a segment, or of none; set with QUIRE_ENOTFOUND, too */
    bool in_memory;         /* a memtable has it */
    const float *vector;
    const char *attributes;
    uint32_t attribute_bytes;
    const struct collection_hit *links;
    uint32_t n_links;
    uint32_t reads, rounds;
    uint64_t bytes;
    /* inside */
    struct part_walk walk;
    struct tenant_scope *resolved;
};
int collection_fetch_start(struct searcher *searcher, struct collection_fetch *fetch, struct quire_error *err);

/* The vector of an element of a numbered collection, as it is when the read is started: whatever becomes of the element
 * meanwhile, that vector is answered. In a memtable it is there at once; of a sealed row it costs one read. */
struct collection_read {
    struct collection *collection; /* a reference is taken until done */
    uint32_t number;
    const void *name; /* begins with the number; kept by the caller until the start returns */
    uint32_t name_bytes;
    void (*done)(struct collection_read *read); /* perhaps inside the start */
    void *owner;
    /* filled; pointers valid during done */
    int code; /* QUIRE_ENOTFOUND */
    struct quire_error error;
    const float *vector;
    uint32_t reads;
    /* inside */
    struct fetch_request fetch;
    struct view *view;
};
/* An error at once, without done: QUIRE_ENOMEM. */
int collection_read_start(struct searcher *searcher, struct collection_read *read, struct quire_error *err);
/* The same of a row in memory, without the disk: false, where no memtable has it, or there is no memory. */
bool collection_read_now(struct collection *collection, const void *name, uint32_t name_bytes, float *vector);

/* The keys of elements picked at random with repetition, for VRANDMEMBER: `place` is any number; each place is an
 * element of the view (collection_view), or one that has died (QUIRE_ENOTFOUND: try another). 0 <= place <
 * collection_places. */
uint64_t collection_places(const struct collection *collection);
/* Changes when elements move to other places: with a seal, a merge, an adoption. */
uint64_t collection_places_version(const struct collection *collection);
struct place_request {
    struct collection *collection;
    uint64_t place;
    const struct tenant_scope *scope; /* others' elements are QUIRE_ENOTFOUND; copied; NULL: all */
    void (*done)(struct place_request *request);
    void *owner;
    int code;
    struct quire_error error;
    const void *key; /* valid during done */
    uint32_t key_bytes, reads;
    struct fetch_request fetch;
    struct view *view;
};
int collection_place_start(struct searcher *searcher, struct place_request *request, struct quire_error *err);

/* The name of each living element, in no order; blocks where names of sealed rows are not in memory. Of a numbered
 * collection that nobody writes to meanwhile. Ends with what visit answers if that is not 0. */
int collection_each_name(struct collection *collection, int (*visit)(void *context, const void *name, uint32_t bytes),
                         void *context, struct quire_error *err);

/* ---- tenants and sets of elements -------------------------------------------------------------------------------- */

/* The current generation of a tenant's name, for grants and scopes that are made now. Thread-safe. */
uint32_t collection_tenant_generation(struct collection *collection, const char *name, uint32_t bytes);
/* Elements that the scope lets be seen, counted in memory. Cost: about a bit per sealed row, and the memtables'
 * rows. */
uint64_t collection_count_scope(struct collection *collection, const struct tenant_scope *scope);
/* Those of them that have attributes. Without a scope (NULL) it is kept as elements come and go, and costs nothing. */
uint64_t collection_count_attributed(struct collection *collection, const struct tenant_scope *scope);
/* From this moment no element is the tenant's: one record, whatever it had. Elements that were nobody else's are
 * removed by and by, in the background (also after a restart); until then requests without a scope may see them, those
 * with one never, and a put takes their name as if it were free. *elements: how many it had; of none, nothing is
 * written (lsn 0). */
int collection_drop_tenant(struct collection *collection, const char *name, uint32_t bytes, uint64_t *elements,
                           uint64_t *lsn, struct quire_error *err);
/* Each tenant that has elements, with their number; any order. */
int collection_each_tenant(struct collection *collection,
                           void (*visit)(void *context, const char *name, uint32_t bytes, uint64_t elements),
                           void *context, struct quire_error *err);

/* All living elements that match, in no order, in batches. Blocks on reads of its own lane: for workers and for library
 * calls, never on a server's lane. Elements written meanwhile may or may not be visited; each at most once. */
struct collection_scan {
    struct collection *collection;
    struct filter *filter;            /* NULL: all */
    const struct tenant_scope *scope; /* NULL: all */
    bool want_keys;                   /* false: only counted, without reading what columns can tell */
    /* other than 0 ends the scan with that. located: for a removal that leaves an element that has been put anew. May
     * write to the collection. */
    int (*visit)(void *context, const void *key, uint32_t key_bytes, const struct located *located);
    void *context;
    uint64_t n; /* out: elements that match */
    uint64_t reads;
};
int collection_scan(struct search_lane *lane, struct collection_scan *scan, struct quire_error *err);

struct collection_stats {
    uint64_t elements, memtable_rows, memtable_bytes, memtables;
    uint64_t segments, segment_rows, dead_rows, resident_bytes, cache_bytes, cache_hits, cache_misses, disk_bytes;
    uint64_t raw_bytes, last_lsn, seals, merges;
};
void collection_get_stats(const struct collection *collection, struct collection_stats *out);

/* A segment of it. Those of a collection that is unavailable are not visited. */
struct collection_segment {
    uint64_t uid; /* no two of a folder have the same, nor had */
    enum quire_index_kind index;
    unsigned code_bits; /* of a dimension, in memory; 0: none are */
    uint64_t rows, dead_rows, resident_bytes, cache_bytes, disk_bytes;
    uint64_t memory_bytes; /* the budget in force; 0: none */
    uint32_t n_curve;
    const struct quire_calibration_point *curve; /* as quire_calibration gives it; during the call */
};
void collection_each_segment(const struct collection *collection,
                             void (*visit)(void *context, const struct collection_segment *segment), void *context);

#endif
