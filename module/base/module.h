/*
 * module.h - what all files of the module share: its one struct, items, and the shape of a lane.
 *
 * One struct module per process: callbacks of the engine come without a context. Its main thread is the engine's; what
 * is said to be the main thread's is touched by it alone.
 */
#ifndef QUIRE_MODULE_H
#define QUIRE_MODULE_H

#include "module/base/rm_api.h"
#include "server/call/caller.h"
#include "server/process/config.h"
#include "server/process/log.h"
#include <semaphore.h>

#define MODULE_NAME       "quire"
#define MODULE_TYPE_NAME  "quire-col" /* nine characters, as the engine wants them */
#define MODULE_MANIFEST   "QUIRE._MANIFEST"
#define MODULE_STORE_NAME "!store" /* under which the store has its own name */

enum {
    MODULE_ENCVER = 2,       /* of a manifest in an RDB; 1 had no image */
    MODULE_ID_BYTES = 16,    /* of a collection: random, or made of that of the one it is a copy of */
    MODULE_NAME_BYTES = 32,  /* the same in hexadecimal: its key in the store */
    MODULE_THREADS_MAX = 64, /* quire.lanes */
    MODULE_REPLICAS_MAX = 8, /* whose segments are counted */
    MODULE_TICK_MS = 100
};

/* ---- collections and caches by id: module_item.c ----------------------------------------------------------------- */

struct module_copy;

enum module_kind { MODULE_SET = 1, MODULE_CACHE = 2 };

enum module_state {
    MODULE_LIVE = 1,  /* a key has it, or had it when the process ended */
    MODULE_GONE = 2,  /* its key is gone; it stays until nothing on the disk may bring the key back */
    MODULE_ENDED = 3, /* it ended itself (VREM of the last element); only its name is remembered, as long */
    MODULE_ABSENT = 4 /* a manifest names it, and the store has it not */
};

struct module_item {
    struct module_item *next; /* of its bucket */
    char name[MODULE_NAME_BYTES + 1];
    enum module_kind kind;
    enum module_state state;
    unsigned attached;                /* keys and commands that have it; under the lock of the items */
    bool seen;                        /* a key has had it since the module was loaded */
    uint64_t copies, replayed_copies; /* made of it by COPY; by those that an AOF repeats */
    int32_t db;                       /* where its key is, as far as was heard */
    char *key;                        /* owned */
    uint32_t key_bytes;
    bool is_copy;                /* its writes come from a primary */
    struct module_copy *copy;    /* of a replica: how it stands with it (module_copies.c); NULL: it never was one */
    struct collection *fork_set; /* a reference, while a child is forked that saves for a replica (module_fork.c) */
    uint8_t *fork_bytes;         /* owned, as long: the image of a cache */
    size_t fork_n_bytes;
    uint64_t have[MODULE_REPLICAS_MAX]; /* numbers that replicas have, by their places in module_stream.c */
    uint64_t gone_ms;                   /* GONE, ENDED: since when, on the clock of clock_us */
    uint64_t gone_mark;                 /* GONE, ENDED: the how manieth that was */
};

/* Reads what the store says of them. Before the lanes start. */
int module_items_open(struct quire_error *err);
struct module_item *module_item_find(const char *name);
/* Whether something in the store may have such a name. */
bool module_item_is_name(const void *bytes, size_t n);
/* A new one, LIVE and not attached, with an id at random (name NULL) or this. Not in the store yet: module_item_log. */
struct module_item *module_item_create(const char *name, enum module_kind kind, struct quire_error *err);
/* Of one that nobody has been told of. */
void module_item_forget(struct module_item *item);
/* Where its key is. Takes a copy. */
void module_item_place(struct module_item *item, int db, const char *key, size_t key_bytes);
/* Writes what is known of it to the journal; *lsn is raised to the record's. */
int module_item_log(struct module_item *item, uint64_t *lsn, struct quire_error *err);
/* Whether the store has it. */
bool module_item_exists(const struct module_item *item);
void module_item_attach(struct module_item *item);  /* a key has it; GONE becomes LIVE */
void module_item_hold(struct module_item *item);    /* a command has it; let go by module_item_detach */
void module_item_detach(struct module_item *item);  /* any thread */
void module_item_give_up(struct module_item *item); /* of a new one that got no key, by the command that held it */
/* It has ended itself; the key goes. */
void module_item_end(struct module_item *item);
/* Its key is gone. */
void module_item_go(struct module_item *item);
void module_items_each(void (*visit)(void *context, struct module_item *item), void *context);
/* Marks those GONE whose values were freed on another thread, and all of a database that is flushed (db -1: of all). */
void module_items_settle(void);
void module_items_settle_all(void); /* after a full sync: also those that no key had before */
void module_items_flush(int db);
void module_items_swap(int first, int second);
/* Removes what is GONE for good: marked up to `mark`, or since before `before_ms`. Returns how many. */
unsigned module_items_drop(uint64_t mark, uint64_t before_ms);
uint64_t module_items_mark(void);
unsigned module_items_n_over(void); /* GONE or ENDED */
/* Before replies leave: what was logged of keys is as durable as quire.appendfsync says. */
void module_items_sync(void);
/* The item under a key. NULL: there is none; *other then says whether the key holds something else. */
struct module_item *module_item_of_key(struct rm_ctx *ctx, struct rm_string *key, bool *other);

/* ---- the engine: module_engine.c ------------------------------------------------------------------------------- */

/* A setting of the engine's; owned by the caller; NULL: it has none of that name. */
char *module_setting_of_engine(struct rm_ctx *ctx, const char *name);

/* ---- lanes ---------------------------------------------------------------------------------------- */

struct module_call;

struct module_lane {
    struct lane lane; /* first */
    pthread_mutex_t lock;
    struct message *first, *last; /* inbox; under the lock */
    int kick_fd;                  /* the main lane's: others write to it; -1 */
    pthread_t thread;
    bool has_thread;
    sem_t ready; /* posted when start_code is known */
    int start_code;
    struct quire_error start_error;
    atomic_bool stopping;
    _Atomic unsigned n_calls; /* under way */
    uint64_t tick_ms, scan_ms;
    struct io_op timer; /* the main lane's: when the first of `held` is to go on */
    bool timer_runs;
    struct module_call *held; /* replies that wait for the journal or for a moment; the main lane's */
};

/* ---- the module ------------------------------------------------------------------------------------------------- */

struct module_settings {
    char prefix[16];
    bool recover_keys;
    uint64_t copy_elements_max, ship_keep_s, divergent_keep_s;
    _Atomic uint64_t ship_rate; /* bytes a second; 0: no bound */
};

struct module {
    struct service service;
    struct config config;
    struct log log;
    struct module_settings settings;
    struct module_lane *lanes; /* n_lanes of the service: see module_lanes_start */
    unsigned n_threads;
    unsigned next_thread; /* that gets the next search, where all are equal */
    pthread_t main_thread;
    bool open;           /* the store is */
    bool loaded;         /* the engine has read what it had: keys are as they should be */
    unsigned n_replicas; /* attached */
    bool is_replica;
    bool evicts; /* maxmemory-policy may remove any key */
    struct rm_type *type;
    void (*forget_copy)(struct module_item *item); /* what replication keeps of one that goes (module_copy.h) */
    int pid;
    uint64_t n_recovered, n_absent, n_dropped, n_refused;
};

extern struct module module_the;

static inline bool module_is_main_thread(void)
{
    return pthread_equal(pthread_self(), module_the.main_thread);
}

#endif
