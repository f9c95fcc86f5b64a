/*
 * fair.h - fair shares: which search a lane starts next, and what a tenant may ask for.
 *
 * For commands that search (all on the lane's thread):
 *
 *   fair_enter   when the request is understood: its limits are checked, once per command. An error is the reply.
 *   fair_start   for each search: `run` is called when it is its turn, perhaps before fair_start returns
 *   fair_end     when that search has ended, whatever came of it, before anything else is started
 *   fair_leave   when the command is done; after fair_enter that gave 0, and only then
 *
 * A command that reads no index enters and leaves: only its limits count. A request counts for the tenant it names; for
 * that of its user, if that is bound to one; else for its user. Limits and weights: fair_limits.h.
 *
 *   struct fair_request facts = {.tenant = name, .tenant_bytes = n, .n_queries = 1, .k = k, .filter_bytes = f};
 *   if (fair_enter(caller, &facts, &call->pass, &err) < 0)
 *       resp_quire_error(caller_reply(caller), &err);
 *   ...
 *   q->ticket.run = begin_search;
 *   fair_start(&call->pass, &q->ticket);
 */
#ifndef QUIRE_SERVER_FAIR_H
#define QUIRE_SERVER_FAIR_H

#include "server/call/caller.h"
#include "server/call/fair_queue.h"
#include "server/protocol/resp.h"

struct caller;
struct fair_share;

/* What limits look at. */
struct fair_request {
    const char *tenant; /* NULL: it names none, and its user is bound to none */
    uint32_t tenant_bytes;
    uint32_t n_queries;    /* what it counts for the rate; of VMSIM many */
    uint32_t k, effort;    /* 0: not given */
    float recall;          /* 0: not given */
    bool exact;            /* TRUTH: an effort beyond all limits */
    uint64_t filter_bytes; /* 0: no filter */
};

/* Kept by the command until fair_leave. */
struct fair_pass {
    struct caller *caller;
    struct lane *lane;
    struct fair_share *share;
    bool counted; /* among those at once */
};

/* Kept by the command until fair_end, or until run was given an error. */
struct fair_ticket {
    struct fair_item item;
    struct fair_pass *pass;
    uint64_t since_us; /* 0: it did not wait */
    uint32_t priority; /* when run is called: what its search is to be given (search.h) */
    /* Set by the caller. code 0: start, and fair_end when it is over. QUIRE_ECANCELLED: it will not be its turn (the
     * client is gone, or the lane stops), nothing more is called for it. */
    void (*run)(struct fair_ticket *ticket, int code);
    void *owner;
};

/* 0, or QUIRE_ELIMIT with a sentence that names the limit, its value, what was asked for, and the remedy; or
 * QUIRE_ENOMEM. */
int fair_enter(struct caller *caller, const struct fair_request *request, struct fair_pass *pass,
               struct quire_error *err);
void fair_leave(struct fair_pass *pass);
void fair_start(struct fair_pass *pass, struct fair_ticket *ticket);
/* stats: what it did; NULL: it failed before it began. */
void fair_end(struct fair_ticket *ticket, const struct quire_search_stats *stats);

/* ---- for the lane ------------------------------------------------------------------------------------------------ */

int fair_open(struct lane *lane, struct quire_error *err);
void fair_close(struct lane *lane); /* nothing waits or runs any more */
/* Once in each turn of the loop: starts what may start. */
void fair_work(struct lane *lane);
/* Whether something could be started now that waits only for the next turn. */
bool fair_is_ready(const struct lane *lane);
unsigned fair_waiting(const struct lane *lane);
unsigned fair_at_once(const struct lane *lane); /* how many searches it would run now before others wait */
/* The lane has waited for the disk from `before` to `after`. */
void fair_note_wait(struct lane *lane, uint64_t before_us, uint64_t after_us);
/* Drops what clients wait for that are gone; of all, and for good, where the lane ends. */
void fair_expire(struct lane *lane, bool all);
void fair_reset_stats(struct lane *lane);

/* ---- for the server ---------------------------------------------------------------------------------------------- */

int fair_init(struct service *service, struct quire_error *err);
void fair_fini(struct service *service);
/* The setting tenant-limits: whether it can be understood; and puts it in force. Thread-safe. */
int fair_check_limits(const char *text, struct quire_error *err);
int fair_set_limits(struct service *service, const char *text, struct quire_error *err);

#endif
