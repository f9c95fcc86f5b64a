/*
 * lane.h - the thread that a command runs on, as handlers see it; and how other threads reach it.
 *
 * What a lane owns is touched by its thread only. Threads talk through lane_post and worker_post. The host embeds
 * struct lane in what it keeps of a thread of its own.
 */
#ifndef QUIRE_SERVER_LANE_H
#define QUIRE_SERVER_LANE_H

#include "index/search/search.h"
#include "io/clock.h"
#include "server/call/lane_stats.h"
#include "server/call/service.h"

enum {
    LANE_WAITING_MAX = 4096 /* searches that wait for a task; beyond it a lane takes no further requests */
};

struct get_call;
struct host;
struct lane_fair;
struct lane_value;

struct lane {
    struct service *service;
    const struct host *host; /* who answers callers; caller.h */
    unsigned index;          /* 0..service->n_lanes - 1 */
    struct engine *engine;
    struct searcher *searcher;
    struct lane_fair *fair;              /* whose search is next; fair.c */
    struct cache_scratch *cache_scratch; /* NULL: there are no caches */
    struct get_call *cache_waits;        /* SC.GETs that wait for an answer; cmd_cache_get.c */
    uint64_t last_cache_complaint_ms;
    struct slice *slices, *last_slice;      /* work that goes on in later turns; slice.c */
    struct lane_value *values, *last_value; /* that it has brought, the oldest first; key_values.c */
    unsigned values_held;                   /* so many want them to stay */
    unsigned values_reading;                /* reads under way */
    unsigned gate_depth;                    /* inside the gate so many times */
    bool shut;                              /* requests run now must need neither keys nor sets: the gate is shut */
    uint64_t turn;                          /* of the host's loop */
    uint64_t now_us, now_ms;
    struct lane_stats stats;
};

/* Runs once on the lane it is posted to. Embedded in what it is about. */
struct message {
    struct message *next;
    void (*run)(struct lane *lane, struct message *message);
};

/* What else runs on a lane's thread than requests. Each member may be NULL. */
struct lane_hook {
    void (*tick)(struct lane *lane); /* ten times a second; not while it stops */
    /* Twice a second: ends what its time is over; all: everything, as the lane stops. */
    void (*scan)(struct lane *lane, bool all);
    void (*stop)(struct lane *lane);       /* when the stop begins */
    bool (*work)(struct lane *lane);       /* in each turn; true: there may be more to do at once */
    bool (*busy)(const struct lane *lane); /* whether the lane must not end yet */
    void (*close)(struct lane *lane);      /* its last call */
};

/* From any thread. */
void lane_post(struct lane *lane, struct message *message);

/* Around whatever runs requests or changes keys on a lane's thread; nests. gate.h says what for. */
void lane_enter(struct lane *lane);
void lane_leave(struct lane *lane);
/* As lane_enter, but false, with nothing entered, where the gate is shut for a transaction that takes long. The host
 * runs the lane's next turn when it is open. */
bool lane_try_enter(struct lane *lane);
/* Whether it is shut: what a completion would do to keys or sets is for a slice (slice.h), which runs when it is not.
 * On the lane of the transaction, too, which serves others in between. */
bool lane_is_shut(const struct lane *lane);

/* Engine, searcher and scratch memory of the lane, which has its service, host and index: on its thread, before it
 * serves. *out is the engine, which the host puts into lane->engine. On failure nothing is left. */
int lane_open(struct lane *lane, struct engine_config *config, struct engine **out, struct quire_error *err);
/* Frees them, after the last reply; the engine is given since the host has taken it out of the lane before. */
void lane_close(struct lane *lane, struct engine *engine);

/* Memory for what is counted by command and error; ended by lane_stats_fini. */
int lane_stats_init(struct lane *lane, struct quire_error *err);
void lane_stats_fini(struct lane *lane);

#endif
