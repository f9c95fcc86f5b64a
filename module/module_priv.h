/*
 * module_priv.h - what the files of this folder share, beside base/module.h.
 */
#ifndef QUIRE_MODULE_PRIV_H
#define QUIRE_MODULE_PRIV_H

#include "document/index/documents.h"
#include "module/base/module.h"
#include "server/access/command_table.h"
#include "server/call/keeper.h"

/* ---- the type of values: module_type.c --------------------------------------------------------------------------- */

int module_type_create(struct rm_ctx *ctx);
/* Puts an item under a key, whatever was there, and has the engine write it down (AOF). On the main thread, in a
 * context of the engine's. False: no memory, or the engine refused. */
bool module_type_put(struct rm_ctx *ctx, struct rm_string *key, struct module_item *item, bool replicate);
/* Removes the key if it still holds the item, and has the engine write that down. */
void module_type_remove(struct rm_ctx *ctx, struct rm_string *key, const struct module_item *item);
/* After loading: keys for what has none, and what keys name that is not there. */
void module_type_recover(struct rm_ctx *ctx);
rm_command_fn module_type_manifest; /* QUIRE._MANIFEST */

/* ---- lanes: module_lane.c ---------------------------------------------------------------------------------------- */

/* All lanes: [0] is the engine's main thread, then those with threads, then one more of the main thread, for what may
 * not wait (transactions, scripts). */
int module_lanes_create(struct quire_error *err); /* before the store is opened */
int module_lanes_start(struct quire_error *err);
void module_lanes_stop(void);  /* threads */
void module_lanes_close(void); /* all, when the worker has ended */
void module_lane_post(struct lane *lane, struct message *message);
/* The main lane is turned again in so many microseconds, or before. */
void module_lane_wake_in(struct module_lane *lane, uint64_t us);
/* On the main thread: what has come is worked on. */
void module_lane_turn(struct module_lane *lane);
void module_lanes_before_sleep(void);
/* Turns a lane of the main thread until *done. */
void module_lane_run(struct module_lane *lane, const bool *done);

/* ---- commands: module_call.c, module_reply.c, module_command.c --------------------------------------------------- */

/* One command of a client, from the engine and back. */
struct module_call {
    struct caller caller; /* first */
    struct module_lane *lane;
    unsigned row; /* of the command table */
    struct resp_buffer out;
    uint64_t lsn;
    uint32_t slow_us;
    bool waits, done; /* a deferred reply is to come; the reply is in `out` */
    bool runs;        /* its handler is being run, or the main thread waits for it on the spot */
    struct rm_blocked *blocked;
    struct rm_ctx *reply_ctx; /* of a lane with a thread: replies are built there */
    struct module_item *item; /* that the key names, or that a writer may make; NULL */
    bool is_new;              /* the item: no key had it before */
    bool made;                /* the item: and now one has it */
    bool settled;             /* key and store agree */
    bool reply_on_lane;
    int db;
    struct resp_arg key_bytes; /* what the client calls it */
    struct rm_user *user_acl;  /* while a handler of FT.* is run; NULL with `trusted` */
    bool trusted;              /* of the engine itself: its primary's stream */
    struct rm_string *key;     /* retained while a client is blocked; NULL: none */
    struct message message;
    struct module_call *next_held;
    struct module_call *next, *previous; /* of those whose clients are blocked; the main thread's */
    struct message gone;                 /* to the lane: its client is gone */
    bool gone_posted;
    atomic_bool gone_ran;
    uint64_t held_until_us;
    char *block; /* owned: copies of arguments */
    const struct resp_arg *args;
    uint32_t n_args;
    char user[64];
};

extern const struct host module_host;
rm_command_fn module_call_run;
/* Registers the commands. *failed: the name of one that the engine did not take. */
int module_commands_create(struct rm_ctx *ctx, const char **failed);
/* The row of a request, without the prefix: args[0] loses it. -1: none. */
int module_command_find(struct resp_arg *args, uint32_t n);
/* Whether the reply is given by a lane with a thread. */
bool module_command_is_search(unsigned row, const struct resp_arg *args, uint32_t n);
/* Of what kind the value of its key is; whether it makes the key where there is none; whether it may leave nothing. */
enum module_kind module_command_kind(unsigned row);
bool module_command_makes(unsigned row);
bool module_command_may_end(unsigned row);

/* A reply as the engine's functions take it. own, own_bytes: what the client calls the collection `name`. False: it is
 * not RESP. */
bool module_reply_send(struct rm_ctx *ctx, const struct resp_buffer *reply, const char *name, const char *own,
                       size_t own_bytes);
/* Hands on replies of the main lane that wait for nothing any more; all: that wait at all. */
void module_call_release(struct module_lane *lane, bool all);
/* In a timer: keys of commands whose clients went before the reply. */
void module_calls_tick(struct rm_ctx *ctx);
void module_calls_fini(void);

/* ---- FT.*, JSON.*: module_keeper.c, module_follow.c, module_query.c, module_json.c ------------------------------- */

/* A key of the engine's, opened, as a document: until module_document_end. */
struct module_document {
    struct rm_key *key;
    struct rm_string **values; /* of a hash, that were asked for; owned */
    uint32_t n, capacity;
};
/* False: it is neither a hash nor a JSON document, and nothing is to be ended. */
bool module_document_view(struct module_document *document, struct rm_key *key, struct document_view *view);
void module_document_end(struct module_document *document);
extern const struct keeper module_keeper;

/* Database 0, on the main thread, outside of commands. */
struct rm_ctx *module_documents_context(void);
int module_documents_create(struct rm_ctx *ctx);
/* When the engine has read its files: indexes and keys agree from then on. */
void module_documents_begin(void);
bool module_documents_begun(void);
bool module_documents_owed(void); /* some are in no index, since the store did not take them yet */
void module_documents_fill(struct service *service, struct document_index *index, bool again);
void module_documents_flush(int db);
void module_documents_swap(int first, int second);
/* In a timer: documents that could not be taken when they were written. */
void module_documents_tick(void);
void module_documents_end(void); /* before the store is closed */

/* module_definitions.c */
int module_definitions_create(struct rm_ctx *ctx);
int module_definitions_open(struct quire_error *err);

/* module_json.c */
int module_json_create(struct rm_ctx *ctx);
int module_json_open(struct quire_error *err);
void module_json_close(void);
/* False: the key holds no JSON document. */
bool module_json_view(struct rm_key *key, struct document_view *view);
bool module_command_is_json(unsigned row);
/* Runs the handler, and does to the engine's keys what it has done. */
void module_json_run(struct rm_ctx *ctx, struct module_call *call, struct rm_string **argv, int argc);

bool module_command_is_query(unsigned row);
/* Why an FT command cannot run in this context; NULL: it can. */
const char *module_query_refusal(struct rm_ctx *ctx, unsigned row);
/* Around its handler. */
void module_query_enter(struct rm_ctx *ctx, struct module_call *call);
void module_query_leave(struct rm_ctx *ctx, struct module_call *call, struct rm_string **argv, int argc);
struct rm_ctx *module_query_context(void); /* of the command that is run */
bool module_query_may_read(const struct module_call *call, struct resp_arg key);

/* ---- settings, INFO, the rest ------------------------------------------------------------------------------------ */

int module_config_register(struct rm_ctx *ctx);
int module_info_register(struct rm_ctx *ctx);
/* Whether the engine may remove any key to win memory; the log is told when that begins. */
bool module_look_at_eviction(struct rm_ctx *ctx);
/* In a timer: removes what is gone for good. */
void module_saves_tick(struct rm_ctx *ctx);
void module_saves_fork(struct rm_ctx *ctx, bool born);
char *module_saves_path(struct rm_ctx *ctx); /* of the engine's RDB; owned by the caller; NULL: no memory */
void module_saves_foreground(uint64_t what); /* an event of RM_EVENT_PERSISTENCE in this process */
int module_admin_create(struct rm_ctx *ctx, const char **failed);
void module_backup_child_ended(bool saved);
bool module_backup_runs(void);

#endif
