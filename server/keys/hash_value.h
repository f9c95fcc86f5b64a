/*
 * hash_value.h - the value of a hash key: fields and their values.
 *
 * Not thread-safe: its shard is locked.
 */
#ifndef QUIRE_SERVER_HASH_VALUE_H
#define QUIRE_SERVER_HASH_VALUE_H

#include "server/keys/node_table.h"
#include "server/protocol/resp.h"

/* Up to so many fields, none of them nor a value longer than so many bytes, lie in one piece of memory and are searched
 * from its beginning; beyond it is a table, and stays one. Redis's defaults. */
enum { HASH_SMALL_FIELDS_MAX = 128, HASH_SMALL_BYTES_MAX = 64 };

struct hash;
struct hash_node;

/* Memory that hash_reserve got and hash_set uses up, so that a set cannot fail. */
struct hash_spare {
    struct hash_node *first, *last;
};

struct hash *hash_create(uint64_t seed); /* NULL without memory */
void hash_destroy(struct hash *hash);
struct hash *
hash_copy(const struct hash *hash); /* no value is missing, and none of the copy's away; NULL without memory */

size_t hash_count(const struct hash *hash);
size_t hash_memory_bytes(const struct hash *hash); /* of memory, all of it */
bool hash_is_large(const struct hash *hash);
/* False where there is no such field. *value is valid until the next change; its data is NULL where it is missing. */
bool hash_get(const struct hash *hash, struct resp_arg field, struct resp_arg *value);

/* A field at random, of a hash that is not empty; valid until the next change. */
void hash_random(const struct hash *hash, uint64_t random_bucket, uint64_t random_node, struct resp_arg *field,
                 struct resp_arg *value);

/* Memory for n pairs (field, value, field, ...) to come, in this order. QUIRE_ENOMEM: nothing has changed. */
int hash_reserve(struct hash *hash, const struct resp_arg *pairs, uint32_t n_pairs, struct hash_spare *spare);
/* Gives back what was not used. */
void hash_spare_end(struct hash_spare *spare);
/* Whether the field is new. */
bool hash_set(struct hash *hash, struct resp_arg field, struct resp_arg value, struct hash_spare *spare);
bool hash_delete(struct hash *hash, struct resp_arg field);

/* value.data is NULL where it is missing. */
typedef void hash_visit(void *context, struct resp_arg field, struct resp_arg value);
void hash_each(const struct hash *hash, hash_visit *visit, void *context);
/* At least `count` fields (all of a small hash) from the cursor on; returns the next, 0 at the end.
 * See node_table_scan. */
uint64_t hash_scan(const struct hash *hash, uint64_t cursor, uint64_t count, hash_visit *visit, void *context);

/* ---- values that are away ---------------------------------------------------------------------------------------- */

/* A value that is away is kept by somebody else, who gives it back bit for bit; the hash knows its length. It is here
 * as well while a copy is, and missing otherwise. A field that is set or deleted is not away any more. */
uint32_t hash_n_away(const struct hash *hash);
uint32_t hash_n_missing(const struct hash *hash); /* of them: not here */
bool hash_is_away(const struct hash *hash, struct resp_arg field);
/* Somebody else has the value from now on. False: it stays, for it is short, or there is no memory. */
bool hash_send_away(struct hash *hash, struct resp_arg field);
/* A field whose value is away from the beginning: of a checkpoint. QUIRE_ENOMEM. */
int hash_add_away(struct hash *hash, struct resp_arg field, uint32_t value_bytes);
/* A copy of a value that is away. QUIRE_ENOMEM: nothing has changed. */
int hash_bring(struct hash *hash, struct resp_arg field, const void *value);
/* The copy of one that is here is the hash's own from now on. */
void hash_keep(struct hash *hash, struct resp_arg field);
/* The copy goes. Nothing happens where there is none. */
void hash_let_go(struct hash *hash, struct resp_arg field);
/* All values are the hash's own from now on; none is missing. */
void hash_keep_all(struct hash *hash);
/* Those that are away. */
void hash_each_away(const struct hash *hash, hash_visit *visit, void *context);

#endif
