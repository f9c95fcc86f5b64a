/*
 * acl.h - users: who may connect, which commands they may run, on which keys.
 *
 * A `struct acl_user` never changes once it is in the table: ACL SETUSER changes a copy and puts it in the place of the
 * old one, and raises the table's generation. A client holds a reference to the copy it saw last; before each request
 * it compares one number, and fetches its user again when that differs. So a request of a user who may do everything
 * costs two loads, and permissions changed by one lane hold for every request that any lane begins afterwards.
 *
 * Thread-safety: functions on `struct acl` may be called from any thread; those on a user need nothing, as it is
 * constant, except acl_user_apply, whose user must not be in the table.
 */
#ifndef QUIRE_SERVER_ACL_H
#define QUIRE_SERVER_ACL_H

#include "server/protocol/resp.h"
#include <pthread.h>
#include <stdatomic.h>

struct config;

enum {
    ACL_ROWS_MAX = 512,         /* of the command table: the bits of a user */
    ACL_USERS_MAX = 100000,     /* in the table */
    ACL_ITEMS_MAX = 1024,       /* passwords, patterns, channels, tenants, rules: of each, per user */
    ACL_RULE_BYTES_MAX = 4096,  /* of one rule, and of a user's name */
    ACL_LISTS = 5,              /* of texts, that a user has */
    ACL_DIGEST_TEXT_BYTES = 64, /* a SHA-256 in lower-case hexadecimal digits */
    ACL_PATTERN_READ = 1,
    ACL_PATTERN_WRITE = 2
};

/* ---- one user: acl_rules.c --------------------------------------------------------------------------------------- */

struct acl_text {
    char *data; /* owned; ends in 0 behind its bytes */
    size_t bytes;
    unsigned flags; /* ACL_PATTERN_... of keys; whether a rule allows */
};

struct acl_texts {
    struct acl_text *items; /* owned */
    unsigned n, capacity;
};

struct acl_user {
    atomic_uint references;
    uint64_t id; /* the same in all copies; a user deleted and made again has another */
    char *name;
    size_t name_bytes;
    bool on, nopass, all_keys, all_channels;
    bool all_commands;                   /* rules are exceptions from +@all, not from -@all */
    bool everything;                     /* no request of theirs needs a look: every command, every key, no tenants */
    uint64_t allowed[ACL_ROWS_MAX / 64]; /* a bit per row of the command table */
    union {
        struct acl_texts lists[ACL_LISTS];
        struct {
            struct acl_texts passwords; /* SHA-256 as hexadecimal text */
            struct acl_texts keys, channels, tenants;
            struct acl_texts rules; /* of commands and categories, in the order they hold */
        };
    };
};

enum acl_verdict { ACL_ALLOWED, ACL_DENIED_COMMAND, ACL_DENIED_KEY, ACL_DENIED_TENANT };

/* A user as ACL SETUSER makes it: off, without password, keys and commands. One reference. NULL: no memory. */
struct acl_user *acl_user_create(const void *name, size_t name_bytes);
struct acl_user *acl_user_copy(const struct acl_user *user);
void acl_user_retain(struct acl_user *user);
void acl_user_release(struct acl_user *user); /* NULL is fine */
/* One rule ("on", ">password", "~docs:*", "+@read", ...). The message of an error is the one Redis gives for it. */
int acl_user_apply(struct acl_user *user, const void *rule, size_t bytes, struct quire_error *err);
/* Adds "user NAME RULE ..." as ACL LIST and files have it: rules that make the same user again. */
void acl_user_describe(const struct acl_user *user, struct resp_buffer *text);
/* The parts of it that ACL GETUSER shows: commands ("-@all +get"), keys, channels. */
void acl_user_commands(const struct acl_user *user, struct resp_buffer *text);
void acl_user_keys(const struct acl_user *user, struct resp_buffer *text);
void acl_user_channels(const struct acl_user *user, struct resp_buffer *text);
/* Whether the password is one of theirs. Takes as long for a wrong one as for a right one. */
bool acl_user_has_password(const struct acl_user *user, const void *password, size_t bytes);
/* What the user may do with a request that fits row's arity. *key_at: place in args of the key that is denied. */
enum acl_verdict acl_user_check(const struct acl_user *user, unsigned row, const struct resp_arg *args, uint32_t n,
                                uint32_t *key_at);

/* Whether a request of theirs may read the key. */
bool acl_user_may_read(const struct acl_user *user, struct resp_arg key);

/* The sentence behind NOPERM. verbose names the key, for the administrator's eyes. */
void acl_denial(char *text, size_t bytes, const struct acl_user *user, enum acl_verdict verdict, unsigned row,
                struct resp_arg key, bool verbose);

/* ---- the table: acl.c -------------------------------------------------------------------------------------------- */

struct acl_log_entry {
    struct acl_log_entry *next;
    uint64_t id, count, created_ms, updated_ms; /* wall clock */
    const char *reason;                         /* "auth", "command" or "key" */
    char *object, *user_name, *client;          /* owned */
};

struct acl_table {
    struct acl_user **users; /* in the order of names; a reference each */
    size_t n, capacity;
};

struct acl {
    const struct config *config;
    /* The host's, set before acl_init: called without the lock after every change. */
    void (*changed)(void *context);
    void *changed_context;
    pthread_mutex_t lock;
    struct acl_table table;
    _Atomic uint64_t generation; /* raised by every change */
    uint64_t next_id;
    struct acl_log_entry *log; /* the latest first */
    size_t n_log;
    uint64_t next_log_id;
};

/* The default user (with requirepass), then users of the configuration's `user` lines or of `aclfile`. */
int acl_init(struct acl *acl, struct quire_error *err);
void acl_fini(struct acl *acl);
/* A user of the table as it is now, with a reference, and the generation that it is of. id 0: any; otherwise NULL where
 * the user of that name is another one by now. */
struct acl_user *acl_fetch(struct acl *acl, const void *name, size_t bytes, uint64_t id, uint64_t *generation);
/* Whether a new connection may do anything without a password. */
bool acl_default_is_open(struct acl *acl);
/* The password of the default user, in the place of all it had; "" is none. */
int acl_set_requirepass(struct acl *acl, const char *password, struct quire_error *err);

/* A reference to the user of that name; NULL where there is none. */
struct acl_user *acl_find(struct acl *acl, const void *name, size_t bytes);
/* Makes or changes a user: all rules or none. */
int acl_change(struct acl *acl, struct resp_arg name, const struct resp_arg *rules, uint32_t n,
               struct quire_error *err);
/* False where there is none. */
bool acl_delete(struct acl *acl, struct resp_arg name);
/* Calls visit for each user in the order of names, under the lock: no other call of this module. */
void acl_each(struct acl *acl, void (*visit)(void *context, const struct acl_user *user), void *context);
/* Reads `aclfile` and replaces all users, or changes nothing. *problems gets all errors, with file and line; owned by
 * the caller. Blocks. */
int acl_load(struct acl *acl, struct resp_buffer *problems);
/* Writes all users to `aclfile`: the new file is there whole, or the old one stays. Blocks. */
int acl_save(struct acl *acl, struct quire_error *err);

/* ---- the log of denials: acl_log.c ------------------------------------------------------------------------------- */

/* client: as CLIENT INFO describes it; taken over, NULL: no memory. */
void acl_log_add(struct acl *acl, char *client, const char *reason, const void *object, size_t object_bytes,
                 const void *user, size_t user_bytes);
void acl_log_reset(struct acl *acl);
/* The latest `most` entries. */
void acl_log_reply(struct acl *acl, struct resp_buffer *out, uint64_t most);

#endif
