/*
 * module_copy.h - replicas: what a primary sends them, what a replica makes of it, and segments on their way between.
 *
 *   primary   module_stream.c  effects of writes and whole collections, in the engine's stream
 *             module_ship.c    segments and collections that a replica asks for
 *             module_fork.c    collections in an RDB that goes to a replica
 *   both      module_caches.c  semantic caches: images of them, effects, roles
 *   replica   module_copies.c  what comes in the stream and in the RDB; roles
 *             module_fetch.c   a thread that asks the primary for what is not here, over module_link.c
 *
 * All is the main thread's, but where it says so.
 */
#ifndef QUIRE_MODULE_COPY_H
#define QUIRE_MODULE_COPY_H

#include "cache/core/cache_replica.h"
#include "index/replica/replica_pool.h"
#include "module/base/module.h"

#define MODULE_WRITE "QUIRE._W"
#define MODULE_IMAGE "QUIRE._IMAGE"

enum { MODULE_TEXT_BYTES = 256 };

/* The set of an item, with a reference; NULL: the store has none. Any thread. */
struct collection *module_set_of(const char name[MODULE_NAME_BYTES + 1]);

/* ---- semantic caches: module_caches.c ---------------------------------------------------------------------------- */

/* With a reference; NULL: the store has none. Any thread. */
struct cache *module_cache_of(const char name[MODULE_NAME_BYTES + 1]);
/* All of a cache but its entries, owned by the caller. Any thread. */
int module_caches_image(const char name[MODULE_NAME_BYTES + 1], uint8_t **bytes, size_t *n, struct quire_error *err);
/* On a replica: the cache becomes what such an image says, and lacks entries from then on. */
int module_caches_take(const struct module_item *item, const uint8_t *bytes, size_t n, struct quire_error *err);
/* An effect is done. As cache_take_effect. */
int module_caches_apply(const struct module_item *item, const uint8_t *bytes, size_t n, uint64_t *lsn,
                        struct quire_error *err);
/* False: the store has no such cache. */
bool module_caches_standing(const struct module_item *item, struct cache_standing *out);
void module_caches_lead(const struct module_item *item);
void module_caches_follow(const struct module_item *item);
void module_caches_tell(const struct module_item *item, bool tells);

/* ---- the primary's stream: module_stream.c ----------------------------------------------------------------------- */

/* The store's: any thread, under the collection's lock. */
void module_stream_effect(void *context, struct collection *collection, const struct effect *effect);
/* What was done to a cache: any thread, under the cache's lock. */
void module_stream_told(void *context, struct cache *cache, const struct cache_told *told);
/* From now on replicas may follow: every set has an identity, and a new history. */
void module_stream_begin(void);
void module_stream_end(void);
bool module_stream_runs(void);
/* The set has an identity: it may be copied. */
int module_stream_identify(const struct module_item *item, struct collection *set, struct quire_error *err);
/* Gives the engine what has happened, in its order: in the context of a command, a reply callback, or a timer. False:
 * it takes nothing now. */
bool module_stream_flush(struct rm_ctx *ctx);
/* A key was made, or given a value that replicas have not: all of it goes to them; of a cache all but its entries. */
void module_stream_image(struct module_item *item);
/* What the key of the database is goes to replicas: which set or cache, with all of it, or that it is not there. For
 * one whose keys have come apart from those here. */
void module_stream_key(struct rm_ctx *ctx, const struct rm_string *db, struct rm_string *key);
void module_stream_tick(struct rm_ctx *ctx);
rm_command_fn module_stream_have; /* QUIRE._HAVE */
/* Replicas that are attached or waiting, as the engine counts them. */
unsigned module_stream_replicas(struct rm_ctx *ctx);
/* Whether the engine lets nothing into the stream now: it hands over the lead. */
bool module_stream_is_held(void);

/* ---- the primary's segments and entries: module_ship.c ----------------------------------------------------------- */

int module_ship_open(struct quire_error *err); /* when the store is open */
void module_ship_close(void);
void module_ship_note(const struct effect *effect); /* any thread */
/* Keeps all segments of a set for who gets its manifest now. */
int module_ship_lease(struct collection *set, struct quire_error *err);
void module_ship_tick(void);
struct module_ship_stats {
    uint64_t images, pieces, bytes;
    struct replica_pool_stats pool;
};
void module_ship_get_stats(struct module_ship_stats *out);
rm_command_fn module_ship_copy, module_ship_files, module_ship_read; /* QUIRE._COPY, _FILES, _READ */
rm_command_fn module_ship_list, module_ship_entries;                 /* QUIRE._LIST, _ENTRIES */

/* ---- a fork for replicas: module_fork.c -------------------------------------------------------------------------- */

int module_fork_open(struct quire_error *err);
/* In a child that saves for a replica: the set as of the fork, or the image of the cache, owned by the caller;
 * NULL: it is not for a replica, or there is no such thing. */
uint8_t *module_fork_image(const struct module_item *item, size_t *n_bytes);

/* ---- a replica: module_copies.c ---------------------------------------------------------------------------------- */

/* Copies of the last run are copies: before the store begins to seal and merge. */
int module_copies_open(struct quire_error *err);
/* When the engine has read its files: which role is it? */
void module_copies_begin(struct rm_ctx *ctx);
void module_copies_role(bool is_replica);
/* The engine loads what its primary has sent, or has ended that. */
void module_copies_loading(struct rm_ctx *ctx, bool begins);
bool module_copies_are_loading(void);
/* On a replica a key has the item. bytes: all of it, from an RDB; NULL: it is to come. */
void module_copies_attach(struct module_item *item, const uint8_t *bytes, size_t n);
void module_copies_forget(struct module_item *item);
/* Why commands on it cannot be answered here now. False: they can. */
bool module_copies_refuse(struct module_item *item, char text[MODULE_TEXT_BYTES]);
void module_copies_tick(struct rm_ctx *ctx);
rm_command_fn module_copies_write, module_copies_image; /* QUIRE._W, QUIRE._IMAGE */
struct module_copies_stats {
    uint64_t whole, incomplete, stopped, copied_anew, effects, skipped, damaged, caches_whole, caches_incomplete;
    bool is_guarded; /* this node is not to be elected */
};
void module_copies_get_stats(struct module_copies_stats *out);
/* One line about a copy that is not whole; false: it is, or no copy. */
bool module_copies_describe(struct module_item *item, char text[MODULE_TEXT_BYTES]);
/* Where what a set had that led here, and was replaced by its new primary's, is kept for a while. */
void module_copies_lost_name(const struct module_item *item, char out[MODULE_NAME_BYTES + 2]);

/* ---- a replica's thread: module_fetch.c -------------------------------------------------------------------------- */

/* Asks the primary for a set or cache (anew), or for the segments or entries that it lacks. The result comes back as a
 * message. */
struct module_fetch {
    struct message message;
    struct module_fetch *next;
    char name[MODULE_NAME_BYTES + 1];
    enum module_kind kind;
    uint64_t generation;
    bool anew;
    char *key; /* owned; NULL, or: the primary has not known the id, and is to say what this key of `db` is */
    uint32_t key_bytes;
    int db;
    int code;
    struct quire_error error;
    struct collection *fresh; /* anew: a reference */
    uint32_t n_segments;
    uint8_t *image; /* anew: of a cache, which it brings; of a set that was given to it, NULL: it is asked for; owned */
    size_t n_image;
};
void module_copies_fetched(struct lane *lane, struct message *message);
int module_fetch_open(struct quire_error *err);
void module_fetch_close(void);
/* asks_key: the primary is asked what the item's key is, too. False: no memory. */
bool module_fetch_post(const struct module_item *item, uint64_t generation, bool anew, bool asks_key);
/* As if the primary had just answered with this image of a set, which is copied. */
bool module_fetch_given(const struct module_item *item, uint64_t generation, const uint8_t *image, size_t n);
void module_fetch_free(struct module_fetch *task);
/* What it is at is for nobody any more. */
void module_fetch_cancel(void);
/* In a timer: where the primary is, and how to log in there. */
void module_fetch_look(struct rm_ctx *ctx, uint64_t now_ms);
/* To be told to the primary: the set has all publications up to the number. */
void module_fetch_have(const char *name, uint64_t seq);
struct module_fetch_stats {
    uint64_t segments, entries, bytes, damaged, failures;
    char link[MODULE_TEXT_BYTES]; /* "up", or what is wrong */
};
void module_fetch_get_stats(struct module_fetch_stats *out);

/* ---- a connection to a primary: module_link.c; blocking ---------------------------------------------------------- */

struct module_link_target {
    char host[256], user[128], password[512], ca_file[512], ca_folder[512], cert_file[512], key_file[512];
    unsigned port;
    bool tls;
};
struct module_link;
int module_link_open(const struct module_link_target *target, struct module_link **out, struct quire_error *err);
void module_link_close(struct module_link *link); /* NULL is fine */
struct module_word {
    const void *bytes;
    size_t n;
};
int module_link_send(struct module_link *link, const struct module_word *words, unsigned n, struct quire_error *err);
/* A reply: a bulk (valid until the next call), or an integer, or an array of n items that follow as replies. An error
 * of the other side has the code that its first word says: NOSEGMENT is QUIRE_ENOTFOUND. */
enum module_reply_kind { MODULE_REPLY_BULK, MODULE_REPLY_INTEGER, MODULE_REPLY_ARRAY, MODULE_REPLY_SIMPLE };
struct module_link_reply {
    enum module_reply_kind kind;
    const uint8_t *bytes;
    size_t n;
    int64_t number;
};
int module_link_receive(struct module_link *link, struct module_link_reply *out, struct quire_error *err);

/* ---- QUIRE.REPLICATION, QUIRE.DOCTOR, QUIRE.LOST: module_replication.c ------------------------------------------- */

rm_command_fn module_replication_report, module_replication_doctor, module_replication_lost;

#endif
