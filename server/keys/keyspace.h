/*
 * keyspace.h - keys of the server: their types, values, expiry and versions.
 *
 * 256 shards, each a table under a lock of its own. A command holds the shards of its keys (in the order of their
 * numbers, so that two commands never wait for each other), looks up, changes, and lets go: so it is atomic on all of
 * its keys, whatever lanes run at once. What a look-up returns is valid until then.
 *
 * Every change is one frame of the journal before it is made: memory it needs is there first, then the frame is
 * appended under the shards' locks, then the change is made, which cannot fail. So the order of the log is the order of
 * changes to each key, and a change that could not be logged was not made.
 *
 * An expired key does not exist: a look-up removes it and logs that. Where it cannot be logged it stays, unseen by
 * readers, and writers get the error.
 *
 * Thread-safe, but for init and fini.
 */
#ifndef QUIRE_SERVER_KEYSPACE_H
#define QUIRE_SERVER_KEYSPACE_H

#include "index/collection/collection.h"
#include "server/keys/hash_value.h"
#include <pthread.h>
#include <stdatomic.h>

struct journal;

enum { KEYSPACE_SHARDS = 256 };

enum key_type { KEY_STRING, KEY_HASH, KEY_VECTOR_SET, KEY_JSON };
const char *keyspace_type_name(enum key_type type); /* as TYPE says it */
/* Whether its value is a struct value: a string, or a JSON document, packed (document/json/tree.h). */
static inline bool keyspace_has_bytes(unsigned type)
{
    return type == KEY_STRING || type == KEY_JSON;
}

/* The value of a string or a JSON document. References are taken under the shard's lock; whoever has the only one,
 * under that lock, may write to it. */
struct value {
    atomic_uint references;
    uint32_t bytes, capacity;
    uint8_t data[];
};
/* `bytes` of data (NULL: not filled yet), capacity >= bytes. NULL without memory. */
struct value *keyspace_value_create(const void *data, uint32_t bytes, uint32_t capacity);
struct value *keyspace_value_ref(struct value *value);
void keyspace_value_unref(struct value *value);

/* A value that no key has yet: a reference to a string, a document or a set, or a hash. */
struct key_value {
    enum key_type type;
    union {
        struct value *string;
        struct hash *hash;
        struct collection *set;
    };
};
void keyspace_release(const struct key_value *value); /* NULL inside is fine */

/* A key as it was looked up; points into the request. */
struct key {
    const uint8_t *data;
    uint32_t bytes;
    uint64_t hash;
};

struct key_entry {
    struct table_node node;
    uint64_t expire_ms; /* wall clock; 0: never */
    uint64_t version;   /* of its shard's changes: differs after each change to the key, also after it was gone */
    uint64_t lsn;       /* of its last change; 0: not logged */
    union {
        struct value *string; /* of a JSON document, too */
        struct hash *hash;
        struct collection *set; /* a reference */
        uint64_t uid;           /* of the collection, while `unbound` */
    };
    uint32_t used_s;   /* last access, on the clock of keyspace->second, modulo 2^32 */
    uint32_t queue_at; /* place among the shard's entries that expire */
    uint8_t type;
    bool unbound;  /* while a folder is read: the key of a collection that is not there yet */
    bool restored; /* from a checkpoint: frames up to lsn, that one too, are in it */
    uint8_t key[];
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct node_table table;
    _Atomic size_t n_keys;    /* of the table, for those who do not lock */
    struct key_entry **queue; /* heap of the entries that expire, the next first */
    size_t n_queue, queue_capacity;
    _Atomic uint64_t next_ms;       /* when the first of the queue is over, for those who do not lock; 0: never */
    unsigned __int128 expiries_sum; /* of the queue's expire_ms, for their mean */
    uint64_t version;
};

/* Who follows what becomes of values: told under the shard's lock, behind the change, which it cannot refuse. It may
 * read the entry, and may call nothing of the keyspace but keyspace_send_away. */
struct keyspace_follower {
    void (*changed)(void *context, struct key_entry *entry);    /* a value is there, or is another than before */
    void (*gone)(void *context, const struct key_entry *entry); /* leaves the table now */
    void (*cleared)(void *context);                             /* all keys are gone */
    /* Whether it logs on its part: changes under one lock and what it makes of them are then one frame of the
     * journal. Between begin and end, which may wait for another thread's, nobody else makes such a frame: what frames
     * change must be changed in the order of their numbers. Behind the locks of keys; not by who has opened a batch. */
    bool (*joins)(void *context);
    void (*begin)(void *context);
    void (*end)(void *context);
    /* Whether a value for this key can be taken now; an error is the change's. */
    int (*admit)(void *context, const void *key, uint32_t key_bytes, struct quire_error *err);
    void *context;
};

struct keyspace {
    struct shard *shards;
    struct journal *journal; /* NULL: nothing is logged */
    uint64_t seed;
    uint64_t (*clock_ms)(void *context); /* wall clock */
    void *clock_context;
    /* has run(argument) called soon on a thread that may take long (freeing millions of fields); NULL: at once */
    void (*later)(void *context, void (*run)(void *argument), void *argument);
    void *later_context;
    /* a collection has lost its key, which was logged; the reference is taken over; NULL: it is released */
    void (*unbind)(void *context, struct collection *collection);
    void *unbind_context;
    const struct keyspace_follower *follower; /* NULL: nobody; set when the folder has been read, before lanes run */
    _Atomic uint64_t used_bytes;              /* keys, values and tables */
    _Atomic uint64_t expired;                 /* keys that were removed because their time was over */
    atomic_uint second;
    atomic_bool keeps_expired; /* keyspace_expire_due does nothing: for tests */
};

int keyspace_init(struct keyspace *keyspace, struct quire_error *err);
/* Frees what there is; nobody uses it any more, and lanes have ended. */
void keyspace_fini(struct keyspace *keyspace);

/* ---- locks ------------------------------------------------------------------------------------------------------- */

/* The shards that a command has locked: begun by keyspace_lock..., ended by keyspace_unlock. */
struct keyspace_lock {
    struct keyspace *keyspace;
    uint64_t shards[KEYSPACE_SHARDS / 64];
    uint64_t now_ms;            /* 0: not looked at yet */
    uint64_t lsn;               /* the highest of what was appended; 0: nothing was */
    struct key_entry *removed;  /* to be freed when nothing is held any more */
    struct node_table *cleared; /* the same, of all shards */
    bool in_batch;              /* a batch of the journal was begun, and ends with the lock */
    bool joined;                /* what was logged may be followed by writes to collections */
};

struct key keyspace_key(const struct keyspace *keyspace, struct resp_arg arg);
void keyspace_lock_key(struct keyspace_lock *lock, struct keyspace *keyspace, const struct key *key);
/* The shards of args[0], args[step], ... below n. */
void keyspace_lock_args(struct keyspace_lock *lock, struct keyspace *keyspace, const struct resp_arg *args, uint32_t n,
                        uint32_t step);
void keyspace_lock_shard(struct keyspace_lock *lock, struct keyspace *keyspace, unsigned shard);
void keyspace_lock_all(struct keyspace_lock *lock, struct keyspace *keyspace);
void keyspace_unlock(struct keyspace_lock *lock);
/* The wall clock, the same for all that is done under one lock. */
uint64_t keyspace_now(struct keyspace_lock *lock);

/* The living entry of a key whose shard is held, or NULL. */
struct key_entry *keyspace_find(struct keyspace_lock *lock, const struct key *key);
/* The same for one who will write: fails where an expired entry could not be removed. */
int keyspace_find_to_write(struct keyspace_lock *lock, const struct key *key, struct key_entry **out,
                           struct quire_error *err);
/* Notes an access, for OBJECT IDLETIME. */
void keyspace_used(struct keyspace_lock *lock, struct key_entry *entry);

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* Of keys whose shards are held. A failure (QUIRE_ENOMEM, or why the journal takes nothing) has changed nothing.
 * `entry` is what keyspace_find_to_write gave. */

/* Sets a string, whatever was there. The value is taken over, also on failure. */
int keyspace_set_string(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, struct value *value,
                        uint64_t expire_ms, struct quire_error *err);
/* n pairs (key, value), all or none, without expiry. */
int keyspace_set_strings(struct keyspace_lock *lock, const struct resp_arg *pairs, uint32_t n_pairs,
                         struct quire_error *err);
/* Sets a JSON document, packed, whatever was there; as keyspace_set_string. */
int keyspace_set_json(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, struct value *value,
                      uint64_t expire_ms, struct quire_error *err);
/* n pairs (key, packed document), no key twice, all or none. A key that expires keeps its expiry. */
int keyspace_set_jsons(struct keyspace_lock *lock, const struct resp_arg *pairs, uint32_t n_pairs,
                       struct quire_error *err);
/* Adds bytes to a string. */
int keyspace_append(struct keyspace_lock *lock, struct key_entry *entry, const void *bytes, uint32_t n,
                    struct quire_error *err);
/* Writes bytes into a string (entry NULL: a new one) from an offset on; what was shorter grows, with zeros between. */
int keyspace_write(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry, uint32_t offset,
                   struct resp_arg bytes, struct quire_error *err);
/* Sets fields; entry NULL: of a new hash. *n_new gets how many were new. */
int keyspace_hash_set(struct keyspace_lock *lock, const struct key *key, struct key_entry *entry,
                      const struct resp_arg *pairs, uint32_t n_pairs, uint32_t *n_new, struct quire_error *err);
/* Removes fields; the hash too when none is left. */
int keyspace_hash_delete(struct keyspace_lock *lock, struct key_entry *entry, const struct resp_arg *fields, uint32_t n,
                         uint32_t *n_gone, struct quire_error *err);
/* Puts a value under a key, whatever was there, in one frame with its expiry (0: never). Taken over, on failure too. */
int keyspace_put(struct keyspace_lock *lock, const struct key *key, const struct key_value *value, uint64_t expire_ms,
                 struct quire_error *err);
/* Puts a vector set under a key, whatever was there; taken over on success only. */
int keyspace_set_vectors(struct keyspace_lock *lock, const struct key *key, struct collection *set,
                         struct quire_error *err);
/* The same while a folder is read, by the collection's number. */
int keyspace_set_unbound(struct keyspace_lock *lock, const struct key *key, uint64_t uid, struct quire_error *err);
/* Removes those of n keys that exist, in one frame; *n_gone gets how many. */
int keyspace_delete(struct keyspace_lock *lock, const struct resp_arg *keys, uint32_t n, uint32_t *n_gone,
                    struct quire_error *err);
/* Removes all keys. All shards are held. */
int keyspace_clear(struct keyspace_lock *lock, struct quire_error *err);
/* 0: never. A time that is over removes the key, and entry is gone. */
int keyspace_expire(struct keyspace_lock *lock, struct key_entry *entry, uint64_t expire_ms, struct quire_error *err);
/* The entry under another key, whatever was there. No value is missing. */
int keyspace_rename(struct keyspace_lock *lock, struct key_entry *entry, const struct key *to, struct quire_error *err);
/* A copy under another key, whatever was there. Not of vector sets; no value is missing. */
int keyspace_copy(struct keyspace_lock *lock, const struct key_entry *entry, const struct key *to,
                  struct quire_error *err);
/* The value of the key changed in a way that its own part of the program logged, at this LSN (0: not logged). */
void keyspace_touch(struct keyspace_lock *lock, struct key_entry *entry, uint64_t lsn);

/* ---- values of hashes that are away (hash_value.h) --------------------------------------------------------------- */

/* The follower has the value of the field, whatever happens, and gives it back; the shard is held, or nobody else uses
 * the keyspace. */
void keyspace_send_away(struct keyspace *keyspace, struct key_entry *entry, struct resp_arg field);
/* A copy of a value that is away. QUIRE_ENOMEM. */
int keyspace_bring(struct keyspace_lock *lock, struct key_entry *entry, struct resp_arg field, struct resp_arg value,
                   struct quire_error *err);
/* The value of a field, which is not missing, is logged as the hash's own, and is that from now on, so that whoever has
 * it, too, may forget it. */
int keyspace_keep(struct keyspace_lock *lock, struct key_entry *entry, struct resp_arg field, struct quire_error *err);
/* The copy, if there is one, goes. */
void keyspace_let_go(struct keyspace *keyspace, struct key_entry *entry, struct resp_arg field);

/* The vector set of a key, with a reference; NULL where there is none. *other: the key holds something else. */
struct collection *keyspace_get_vectors(struct keyspace *keyspace, struct resp_arg key, bool *other);

/* When a folder has been read: gives each such key its collection, as find(context, uid) answers with a reference. A
 * key whose collection is gone goes, too: the log has ended between the two. */
void keyspace_bind(struct keyspace *keyspace, struct collection *(*find)(void *context, uint64_t uid), void *context);

/* ---- over all keys ----------------------------------------------------------------------------------------------- */

/* The version of a key for WATCH: 0 where there is none. *vectors (may be NULL): whether it holds a vector set. */
uint64_t keyspace_version(struct keyspace *keyspace, struct resp_arg key, bool *vectors);
size_t keyspace_count(const struct keyspace *keyspace);
/* Visits entries, expired ones too, shard by shard under its lock: no other call of the keyspace. At least `count` from
 * the cursor on, if there are so many; returns the next cursor, 0 at the end. An entry that is there throughout a scan
 * is visited. */
typedef void keyspace_visit(void *context, const struct key_entry *entry);
uint64_t keyspace_scan(struct keyspace *keyspace, uint64_t cursor, uint64_t count, keyspace_visit *visit,
                       void *context);
/* Each entry of a shard (of all: keyspace_each). */
void keyspace_each_of(struct keyspace *keyspace, unsigned shard, keyspace_visit *visit, void *context);
void keyspace_each(struct keyspace *keyspace, keyspace_visit *visit, void *context);
/* Visits nothing and returns false where the shard is held just now. */
bool keyspace_try_each_of(struct keyspace *keyspace, unsigned shard, keyspace_visit *visit, void *context);
/* Bytes of memory that an entry takes, with its value, but not what a vector set keeps. */
uint64_t keyspace_entry_bytes(const struct key_entry *entry);
/* Whether its time was over at now_ms. */
bool keyspace_entry_is_over(const struct key_entry *entry, uint64_t now_ms);
/* A key at random, held; NULL (and nothing held) where there is none. */
struct key_entry *keyspace_random(struct keyspace_lock *lock, struct keyspace *keyspace, uint64_t random);

struct keyspace_expiries {
    uint64_t keys;    /* that expire */
    uint64_t mean_ms; /* from now on, on average */
};
void keyspace_get_expiries(struct keyspace *keyspace, struct keyspace_expiries *out);
/* Removes keys whose time is over, in the shards `first`, first + step, ..., for at most about budget_us; *next (of the
 * caller, 0 at first) remembers where it stopped. A shard where nothing is due is not locked. */
void keyspace_expire_due(struct keyspace *keyspace, unsigned first, unsigned step, unsigned *next, uint64_t budget_us);

#endif
