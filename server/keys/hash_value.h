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
struct hash *hash_copy(const struct hash *hash); /* NULL without memory */

size_t hash_count(const struct hash *hash);
size_t hash_memory_bytes(const struct hash *hash); /* of memory, all of it */
bool hash_is_large(const struct hash *hash);
/* False where there is no such field. *value is valid until the next change. */
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

typedef void hash_visit(void *context, struct resp_arg field, struct resp_arg value);
void hash_each(const struct hash *hash, hash_visit *visit, void *context);
/* At least `count` fields (all of a small hash) from the cursor on; returns the next, 0 at the end.
 * See node_table_scan. */
uint64_t hash_scan(const struct hash *hash, uint64_t cursor, uint64_t count, hash_visit *visit, void *context);

#endif
