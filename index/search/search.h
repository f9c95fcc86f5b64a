/*
 * search.h - the one search: a resumable task on a lane's engine. Blocking, batch, loop and server calls all use it.
 *
 * A searcher belongs to one lane (thread). It owns a pool of task contexts with their block buffers, sized at creation;
 * after the first queries nothing is allocated. Tasks started beyond the pool wait in order. Every callback runs on
 * the lane's thread: inside engine_poll, or, where no read was needed, inside the starting call itself.
 */
#ifndef QUIRE_INDEX_SEARCH_H
#define QUIRE_INDEX_SEARCH_H

#include "index/segment/segment.h"

struct graph_scratch;
struct searcher;
struct selection;
struct task_kind;

/* A request's place in line, from its start to its end; the searcher's. */
struct task_ticket {
    struct task_ticket *next;
    const struct task_kind *kind;
    struct segment *segment;
    uint32_t priority;
    uint64_t rank; /* how many requests of the lane began before it */
};

struct searcher_config {
    unsigned tasks_max; /* tasks that run at once; 0: 32 */
};
int searcher_create(struct engine *engine, const struct searcher_config *config, struct searcher **out,
                    struct quire_error *err);
/* No task may be under way: drain or destroy the engine's ops first (searcher_cancel). */
void searcher_destroy(struct searcher *searcher);
/* Ends every waiting and running task with QUIRE_ECANCELLED; polls the engine until the last read is back. */
void searcher_cancel(struct searcher *searcher);
unsigned searcher_running(const struct searcher *searcher);
/* Those of them that wait for a task. */
unsigned searcher_waiting(const struct searcher *searcher);
/* Steps of searches with a priority whose reads are back: whether there are any; and runs them, one at least, until the
 * time is over. Not from inside a callback. Between calls the engine is to be polled, so that what has come meanwhile
 * for lower numbers goes first. */
bool searcher_has_steps(const struct searcher *searcher);
void searcher_work(struct searcher *searcher, uint64_t time_ns);

/* A lane's first task on a segment registers its files and takes a reference. This lets both go for every segment that
 * was retired (segment_retire) and that no task of this lane uses. Cheap; to be called now and then. */
void searcher_drop_retired(struct searcher *searcher);

/* The lane's scratch for searches in graphs in memory, or NULL without memory. */
struct graph_scratch *searcher_graph_scratch(struct searcher *searcher);

/* What a room above keeps with the lane from one request to the next, empty at first. Whatever is there when the
 * searcher is destroyed is given to `free`. */
struct searcher_guest {
    void *data;
    void (*free)(void *data);
};
struct searcher_guest *searcher_guest(struct searcher *searcher);

struct search_hit {
    uint64_t id; /* input number; UINT64_MAX: not known, of an estimate in a segment without numbers in memory */
    uint32_t row;
    float distance;  /* as quire.h defines it per metric */
    float deviation; /* 0: it is exact */
    const void *key; /* NULL unless want_keys; valid during the callback */
    uint32_t key_bytes;
    const float *vector; /* NULL unless want_vectors; dim floats, valid during the callback */
};

struct search_request {
    /* set by the caller, who owns the struct until `done` */
    struct segment *segment; /* the caller holds a reference until done */
    const float *query;      /* dim floats; copied by search_start */
    struct quire_search_options options;
    bool want_keys, want_vectors;
    bool by_row;         /* hits are told by their rows alone, so that all may be estimates; neither of the two above */
    const uint8_t *dead; /* rows that are neither followed nor answered, a bitmap; NULL: those of the segment */
    /* Rows that may be answered, of this segment, kept by the caller until done; NULL: all. Filter and tenants of the
     * options are not looked at here. */
    const struct selection *selection;
    /* 0: a step runs as soon as its reads are back. Otherwise in searcher_work, the lower numbers first. */
    uint32_t priority;
    void (*done)(struct search_request *request);
    void *owner;
    /* filled before `done` */
    int code; /* 0 or a negative QUIRE_E */
    struct quire_error error;
    const struct search_hit *hits; /* nearest first; valid during done */
    uint32_t n_hits;
    struct quire_search_stats stats;
    /* the searcher's */
    struct task_ticket ticket;
    float *kept_query;
    uint64_t started_ns;
};

/* QUIRE_ERANGE, with a sentence, for a k or a recall out of range. */
int search_options_validate(const struct quire_search_options *options, struct quire_error *err);
/* 0 when the task was started or waits (done will run exactly once), or a negative QUIRE_E at once for a bad request
 * (dimension is not checked here: the query has dim floats), without done. */
int search_start(struct searcher *searcher, struct search_request *request, struct quire_error *err);

/* The key of a row whose keys are input row numbers, in decimal; returns its bytes (<= 10). */
uint32_t search_number_key(uint32_t id, uint8_t *out);

/* What to fetch of one row, found by key or by row number. */
struct fetch_request {
    struct segment *segment;
    const void *key; /* look up by key, kept by the caller until done; NULL: by row */
    uint32_t key_bytes;
    uint32_t row; /* in, or found */
    bool want_vector, want_key, want_attributes, want_links;
    uint32_t links_max; /* want_links: at most so many, nearest first */
    void (*done)(struct fetch_request *request);
    void *owner;
    /* filled; pointers valid during done */
    int code; /* QUIRE_ENOTFOUND when there is no such key */
    struct quire_error error;
    uint64_t id;         /* not of a row of which nothing but its attributes is wanted: its block is not read then */
    const float *vector; /* dim floats, decoded from the slot (unit length under cosine) */
    const void *found_key;
    uint32_t found_key_bytes;
    const char *attributes; /* NULL: none */
    uint32_t attributes_bytes;
    const struct search_hit *links; /* rows of its block and out-edges, nearest first, with keys */
    uint32_t n_links;
    uint32_t reads, rounds;
    uint64_t bytes;            /* read */
    struct task_ticket ticket; /* the searcher's */
};
int fetch_start(struct searcher *searcher, struct fetch_request *request, struct quire_error *err);

#endif
