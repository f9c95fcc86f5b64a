/*
 * digest.c - sums of hashes. What has no order (fields, elements, keys) is added up, three numbers that are hashed with
 * different seeds, so that it does not matter which comes first; then the sums are mixed with what they are of.
 */
#include "server/dump/digest.h"
#include "document/json/tree.h"
#include "index/collection/collection_digest.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "server/call/key_values.h"
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct sum {
    uint64_t words[3], n;
};

/* A thing that is hashed piece by piece, each with its length. */
struct item {
    XXH3_state_t *state; /* owned by the caller */
};

static void begin_item(const struct item *item)
{
    XXH3_128bits_reset(item->state);
}

static void add_piece(const struct item *item, const void *bytes, size_t n)
{
    uint8_t length[8];
    bytes_store_u64(length, n);
    XXH3_128bits_update(item->state, length, sizeof length);
    if (n > 0)
        XXH3_128bits_update(item->state, bytes, n);
}

static void add_hash(struct sum *sum, XXH128_hash_t hash)
{
    sum->words[0] += hash.low64;
    sum->words[1] += hash.high64;
    sum->words[2] += XXH3_64bits_withSeed(&hash, sizeof hash, 1);
    sum->n++;
}

static void end_item(const struct item *item, struct sum *sum)
{
    add_hash(sum, XXH3_128bits_digest(item->state));
}

/* The digest of a sum and of what it is of. */
static void finish(const struct sum *sum, const char *what, uint8_t out[DIGEST_BYTES])
{
    uint8_t bytes[32];
    for (unsigned i = 0; i < 3; i++)
        bytes_store_u64(bytes + 8 * (size_t)i, sum->words[i]);
    bytes_store_u64(bytes + 24, sum->n);
    XXH128_hash_t low = XXH3_128bits_withSeed(bytes, sizeof bytes, XXH3_64bits(what, strlen(what)));
    uint64_t high = XXH3_64bits_withSeed(bytes, sizeof bytes, low.low64);
    bytes_store_u64(out, low.low64);
    bytes_store_u64(out + 8, low.high64);
    bytes_store_u32(out + 16, (uint32_t)high);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

struct adding {
    struct item item;
    struct sum sum;
};

static void add_field(void *context, struct resp_arg field, struct resp_arg value)
{
    struct adding *a = context;
    begin_item(&a->item);
    add_piece(&a->item, field.data, field.bytes);
    add_piece(&a->item, value.data, value.bytes);
    end_item(&a->item, &a->sum);
}

static int add_element(void *context, const struct exported_element *element)
{
    struct adding *a = context;
    add_hash(&a->sum, collection_digest_element(a->item.state, element));
    return 0;
}

static int digest_of_set(struct collection *set, struct adding *a, uint8_t out[DIGEST_BYTES], struct quire_error *err)
{
    const struct collection_config *config = collection_config(set);
    char what[160];
    int rc = collection_available(set, err);
    if (rc == 0)
        rc = collection_export_all(set, add_element, a, err);
    if (rc < 0)
        return rc;
    snprintf(what, sizeof what, "vectors %u %u %s %s %s %d %d", config->dim, config->input_dim,
             quire_type_name(config->type), quire_metric_name(config->metric), quire_slot_name(config->slot),
             config->code_bits == 1, config->tenants);
    finish(&a->sum, what, out);
    return 0;
}

/* Of a document its text, however it is kept. */
static int add_bytes(struct adding *a, const struct key_entry *entry, struct quire_error *err)
{
    const struct value *value = entry->string;
    struct tree_text text = {.data = NULL};
    int rc = entry->type == KEY_JSON ? tree_unpack_text(value->data, value->bytes, &text, err) : 0;
    if (rc == 0 && text.failed)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the text of a document");
    if (rc == 0) {
        begin_item(&a->item);
        add_piece(&a->item, text.data ? text.data : (const char *)value->data, text.data ? text.bytes : value->bytes);
        end_item(&a->item, &a->sum);
    }
    tree_text_fini(&text);
    return rc;
}

static int digest_with(struct values_reader *reader, struct resp_arg name, struct adding *a, uint8_t out[DIGEST_BYTES],
                       struct quire_error *err)
{
    struct collection *set = NULL;
    int rc = key_values_lock(reader, name, err);
    if (rc < 0)
        return rc;
    const struct key_entry *entry = reader->entry;
    a->sum = (struct sum){.n = 0};
    memset(out, 0, DIGEST_BYTES);
    if (entry && keyspace_has_bytes(entry->type)) {
        rc = add_bytes(a, entry, err);
        finish(&a->sum, entry->type == KEY_JSON ? "json" : "string", out);
    } else if (entry && entry->type == KEY_HASH) {
        hash_each(entry->hash, add_field, a);
        finish(&a->sum, "hash", out);
    } else if (entry) {
        set = collection_ref(entry->set);
    }
    key_values_unlock(reader, NULL);
    rc = set ? digest_of_set(set, a, out, err) : rc;
    collection_unref(set);
    return rc;
}

int digest_of_key(struct service *service, struct resp_arg key, uint8_t out[DIGEST_BYTES], struct quire_error *err)
{
    struct adding a = {.item.state = XXH3_createState()};
    struct values_reader reader = {.service = service};
    int rc = a.item.state ? digest_with(&reader, key, &a, out, err) : error_set(err, QUIRE_ENOMEM, "no memory to hash");
    key_values_reader_fini(&reader);
    XXH3_freeState(a.item.state);
    return rc;
}

void digest_text(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT_BYTES])
{
    for (unsigned i = 0; i < DIGEST_BYTES; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
}

/* ---- all keys ---------------------------------------------------------------------------------------------------- */

/* Names of a shard: u16 bytes and the bytes, one after the other. */
struct names {
    uint8_t *bytes;
    size_t n, capacity;
    bool failed;
};

static void take_name(void *context, const struct key_entry *entry)
{
    struct names *names = context;
    uint32_t bytes = entry->node.key_bytes;
    if (names->failed || !array_reserve(&names->bytes, &names->capacity, names->n + 2 + bytes)) {
        names->failed = true;
        return;
    }
    bytes_store_u16(names->bytes + names->n, (uint16_t)bytes);
    memcpy(names->bytes + names->n + 2, entry->key, bytes);
    names->n += 2 + bytes;
}

static int add_keys(struct values_reader *reader, const struct names *names, struct adding *value, struct adding *all,
                    struct quire_error *err)
{
    static const uint8_t none[DIGEST_BYTES];
    uint8_t digest[DIGEST_BYTES];
    int rc = 0;
    for (size_t at = 0; at < names->n && rc == 0;) {
        struct resp_arg name = {names->bytes + at + 2, bytes_load_u16(names->bytes + at)};
        at += 2 + name.bytes;
        rc = digest_with(reader, name, value, digest, err);
        if (rc < 0 || memcmp(digest, none, DIGEST_BYTES) == 0) /* gone by now */
            continue;
        begin_item(&all->item);
        add_piece(&all->item, name.data, name.bytes);
        add_piece(&all->item, digest, DIGEST_BYTES);
        end_item(&all->item, &all->sum);
    }
    return rc;
}

int digest_of_all(struct service *service, uint8_t out[DIGEST_BYTES], struct quire_error *err)
{
    struct adding value = {.item.state = XXH3_createState()}, all = {.item.state = XXH3_createState()};
    struct names names = {.bytes = NULL};
    struct values_reader reader = {.service = service};
    int rc = value.item.state && all.item.state ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to hash");
    for (unsigned shard = 0; shard < KEYSPACE_SHARDS && rc == 0; shard++) {
        names.n = 0;
        keyspace_each_of(&service->keyspace, shard, take_name, &names);
        rc = names.failed ? error_set(err, QUIRE_ENOMEM, "no memory for the names of keys")
                          : add_keys(&reader, &names, &value, &all, err);
    }
    key_values_reader_fini(&reader);
    memset(out, 0, DIGEST_BYTES);
    if (rc == 0 && all.sum.n > 0)
        finish(&all.sum, "keys", out);
    free(names.bytes);
    XXH3_freeState(value.item.state);
    XXH3_freeState(all.item.state);
    return rc;
}
