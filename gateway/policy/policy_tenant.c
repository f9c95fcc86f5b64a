/*
 * policy_tenant.c - credentials and what becomes of them.
 *
 * The input of the HMAC is each field's number, its length and its bytes, so that "a" + "bc" and "ab" + "c" differ.
 * Scopes have a prefix by their kind ("t:" a tenant of the key file, "k:" a credential's hash), so that no tenant's
 * name can be somebody's hash, nor the words for nobody and for everybody.
 *
 * Accepted credentials are a table of bounded size, by the order in which they were last accepted; the oldest is
 * forgotten. To be forgotten costs a miss, nothing else.
 */
#include "gateway/policy/policy_tenant.h"
#include "io/error.h"
#include "io/hash.h"
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIELDS             5u
#define KEY_FILE_BYTES_MAX (16u << 20)
#define KEYS_MAX           1000000u

/* ---- credentials ------------------------------------------------------------------------------------------------- */

bool policy_credential_is_empty(const struct policy_credential *credential)
{
    return !credential->authorization.data && !credential->api_key.data && !credential->x_api_key.data;
}

bool policy_credential_hash(const struct policy_credential *credential, const uint8_t *secret, size_t secret_bytes,
                            uint8_t out[POLICY_HASH_BYTES])
{
    const struct policy_field fields[FIELDS] = {credential->authorization, credential->api_key, credential->x_api_key,
                                                credential->organization, credential->project};
    uint8_t digests[FIELDS][1 + SHA256_DIGEST_LENGTH];
    unsigned bytes = 0;
    /* of each field its SHA-256, so that the input has one length and no field can reach into the next */
    for (unsigned i = 0; i < FIELDS; i++) {
        digests[i][0] = fields[i].data != NULL;
        if (!SHA256((const uint8_t *)(fields[i].data ? fields[i].data : ""), fields[i].data ? fields[i].bytes : 0,
                    digests[i] + 1))
            return false;
    }
    return HMAC(EVP_sha256(), secret, (int)secret_bytes, digests[0], sizeof digests, out, &bytes) &&
           bytes == POLICY_HASH_BYTES;
}

struct policy_field policy_credential_key(const struct policy_credential *credential)
{
    struct policy_field field = credential->authorization;
    if (field.data && field.bytes > 7 && strncasecmp(field.data, "Bearer ", 7) == 0) {
        field.data += 7;
        field.bytes -= 7;
        while (field.bytes > 0 && *field.data == ' ')
            field.data++, field.bytes--;
        return field;
    }
    if (field.data)
        return field;
    return credential->api_key.data ? credential->api_key : credential->x_api_key;
}

/* ---- the key file ------------------------------------------------------------------------------------------------ */

struct key_entry {
    uint8_t sha256[SHA256_DIGEST_LENGTH];
    struct policy_key key;
};

struct policy_keys {
    struct key_entry *entries; /* by sha256 */
    unsigned n;
};

void policy_keys_free(struct policy_keys *keys)
{
    if (!keys)
        return;
    for (unsigned i = 0; i < keys->n; i++) {
        free((char *)keys->entries[i].key.tenant);
        free((char *)keys->entries[i].key.upstream_key);
        free((char *)keys->entries[i].key.categories);
    }
    free(keys->entries);
    free(keys);
}

static int by_hash(const void *a, const void *b)
{
    return memcmp(a, b, SHA256_DIGEST_LENGTH); /* the hash is the first member */
}

static int nibble(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool hash_from_hex(const char *hex, uint8_t out[SHA256_DIGEST_LENGTH])
{
    if (strlen(hex) != 2 * SHA256_DIGEST_LENGTH)
        return false;
    for (unsigned i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        int high = nibble(hex[2 * i]), low = nibble(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* A copy of a member's text in *out; NULL where it is absent. */
static int text_member(const json_t *object, const char *name, size_t bytes_max, const char **out, unsigned entry,
                       struct quire_error *err)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    if (!value || json_is_null(value))
        return 0;
    if (!text || !*text || json_string_length(value) > bytes_max || strlen(text) != json_string_length(value))
        return error_set(err, QUIRE_EPARSE, "key file, entry %u: %s must be a text of 1 to %zu bytes", entry, name,
                         bytes_max);
    for (const char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            return error_set(err, QUIRE_EPARSE, "key file, entry %u: %s has a byte %u: use printable ASCII", entry,
                             name, (unsigned)(uint8_t)*p);
    *out = strdup(text);
    return *out ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the key file");
}

static int categories_member(const json_t *object, const char **out, unsigned entry, struct quire_error *err)
{
    const json_t *list = json_object_get(object, "categories");
    size_t bytes = 0;
    char *text;
    if (!list || json_is_null(list))
        return 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || !*name || strchr(name, ' '))
            return error_set(err, QUIRE_EPARSE, "key file, entry %u: categories has a member %zu that is no name",
                             entry, i + 1);
        bytes += strlen(name) + 1;
    }
    if (bytes == 0)
        return error_set(err, QUIRE_EPARSE,
                         "key file, entry %u: categories must be a list of names; leave it out for all", entry);
    if (!(text = malloc(bytes)))
        return error_set(err, QUIRE_ENOMEM, "no memory for the key file");
    *out = text;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t n = strlen(name);
        memcpy(text, name, n);
        text[n] = ' ';
        text += n + 1;
    }
    text[-1] = 0;
    return 0;
}

static int numbers(const json_t *object, struct policy_key *key, unsigned entry, struct quire_error *err)
{
    const json_t *rate = json_object_get(object, "rate"), *concurrent = json_object_get(object, "concurrent"),
                 *admin = json_object_get(object, "admin");
    if (rate && (!json_is_number(rate) || json_number_value(rate) < 0 || json_number_value(rate) > 1e6))
        return error_set(err, QUIRE_EPARSE,
                         "key file, entry %u: rate must be requests a second, 0 (no limit) to 1000000", entry);
    if (concurrent && (!json_is_integer(concurrent) || json_integer_value(concurrent) < 0 ||
                       json_integer_value(concurrent) > 1000000))
        return error_set(err, QUIRE_EPARSE, "key file, entry %u: concurrent must be whole, 0 (no limit) to 1000000",
                         entry);
    if (admin && !json_is_boolean(admin))
        return error_set(err, QUIRE_EPARSE, "key file, entry %u: admin must be true or false", entry);
    key->rate = json_number_value(rate);
    key->concurrent = (unsigned)json_integer_value(concurrent);
    key->admin = json_is_true(admin);
    return 0;
}

static int read_entry(const json_t *object, struct key_entry *entry, unsigned number, struct quire_error *err)
{
    static const char *const known[] = {"sha256", "tenant",     "upstream_key", "categories",
                                        "rate",   "concurrent", "admin"};
    const char *name, *hash = json_string_value(json_object_get(object, "sha256"));
    json_t *value;
    int rc;
    if (!json_is_object(object))
        return error_set(err, QUIRE_EPARSE, "key file, entry %u: it must be an object with sha256 and tenant", number);
    json_object_foreach((json_t *)object, name, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || strcmp(known[i], name) == 0;
        if (!is_known)
            return error_set(err, QUIRE_EPARSE,
                             "key file, entry %u: unknown member '%.40s': there are sha256, tenant, upstream_key, "
                             "categories, rate, concurrent, admin",
                             number, name);
    }
    if (!hash || !hash_from_hex(hash, entry->sha256))
        return error_set(err, QUIRE_EPARSE,
                         "key file, entry %u: sha256 must be 64 hexadecimal digits: printf %%s KEY | sha256sum",
                         number);
    if ((rc = text_member(object, "tenant", POLICY_TENANT_BYTES_MAX, &entry->key.tenant, number, err)) ||
        (rc = text_member(object, "upstream_key", 4096, &entry->key.upstream_key, number, err)) ||
        (rc = categories_member(object, &entry->key.categories, number, err)) ||
        (rc = numbers(object, &entry->key, number, err)))
        return rc;
    return entry->key.tenant ? 0 : error_set(err, QUIRE_EPARSE, "key file, entry %u: tenant is missing", number);
}

int policy_keys_parse(const char *text, size_t bytes, struct policy_keys **out, struct quire_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where), *list = json_object_get(root, "keys");
    struct policy_keys *keys = NULL;
    size_t n = json_array_size(list);
    int rc = 0;
    if (!root)
        rc = error_set(err, QUIRE_EPARSE, "key file, line %d: %s", where.line, where.text);
    else if (!json_is_array(list) || n > KEYS_MAX)
        rc = error_set(err, QUIRE_EPARSE, "key file: it must be {\"keys\": [...]} with at most %u entries", KEYS_MAX);
    else if (!(keys = calloc(1, sizeof *keys)) || !(keys->entries = calloc(n ? n : 1, sizeof *keys->entries)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a key file of %zu entries", n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = read_entry(json_array_get(list, i), &keys->entries[i], (unsigned)i + 1, err);
        keys->n = (unsigned)i + 1;
    }
    if (rc == 0)
        qsort(keys->entries, keys->n, sizeof *keys->entries, by_hash);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (by_hash(&keys->entries[i - 1], &keys->entries[i]) == 0)
            rc = error_set(err, QUIRE_EPARSE, "key file: one key is there twice, for tenants '%s' and '%s'",
                           keys->entries[i - 1].key.tenant, keys->entries[i].key.tenant);
    json_decref(root);
    if (rc) {
        policy_keys_free(keys);
        return rc;
    }
    *out = keys;
    return 0;
}

int policy_keys_open(const char *path, struct policy_keys **out, struct quire_error *err)
{
    FILE *file = fopen(path, "rbe");
    char *text = NULL;
    size_t bytes = 0;
    int rc;
    if (!file)
        return error_set_errno(err, errno, "cannot open key file", path);
    if (!(text = malloc(KEY_FILE_BYTES_MAX + 1)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for key file %s", path);
    else if ((bytes = fread(text, 1, KEY_FILE_BYTES_MAX + 1, file)) > KEY_FILE_BYTES_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "key file %s has more than %u bytes", path, KEY_FILE_BYTES_MAX);
    else if (ferror(file))
        rc = error_set_errno(err, EIO, "cannot read key file", path);
    else
        rc = policy_keys_parse(text, bytes, out, err);
    if (text)
        explicit_bzero(text, bytes); /* upstream keys are in it */
    free(text);
    fclose(file);
    return rc;
}

unsigned policy_keys_n(const struct policy_keys *keys)
{
    return keys->n;
}

const struct policy_key *policy_keys_find(const struct policy_keys *keys, struct policy_field key)
{
    struct key_entry like, *found;
    if (!key.data || !SHA256((const uint8_t *)key.data, key.bytes, like.sha256))
        return NULL;
    found = bsearch(&like, keys->entries, keys->n, sizeof *keys->entries, by_hash);
    return found ? &found->key : NULL;
}

void policy_tenant_scope(enum policy_share share, const struct policy_key *entry, bool anonymous,
                         const uint8_t hash[POLICY_HASH_BYTES], char out[POLICY_TENANT_BYTES_MAX + 8])
{
    size_t room = POLICY_TENANT_BYTES_MAX + 8;
    if (anonymous && !entry) {
        snprintf(out, room, "anonymous");
    } else if (share == POLICY_SHARE_ALL) {
        snprintf(out, room, "all");
    } else if (entry && share == POLICY_SHARE_TENANT) {
        snprintf(out, room, "t:%s", entry->tenant);
    } else {
        out[0] = 'k';
        out[1] = ':';
        for (unsigned i = 0; i < 16; i++)
            snprintf(out + 2 + 2 * i, 3, "%02x", hash[i]);
    }
}

/* ---- credentials that the upstream accepted lately --------------------------------------------------------------- */

struct accepted_place {
    uint8_t hash[POLICY_HASH_BYTES];
    uint64_t until_ms;
    uint32_t slot; /* in the ring; a later acceptance has another */
    bool set;
};

static inline bool accepted_is_set(const struct accepted_place *place)
{
    return place->set;
}

static inline uint64_t accepted_hash(const struct accepted_place *place)
{
    uint64_t hash;
    memcpy(&hash, place->hash, sizeof hash);
    return hash;
}

static inline bool accepted_is_same(const struct accepted_place *a, const struct accepted_place *b)
{
    return memcmp(a->hash, b->hash, POLICY_HASH_BYTES) == 0;
}
HASH_DEFINE(accepted_table, struct accepted_place, accepted_is_set, accepted_hash, accepted_is_same)

struct accepted_slot {
    uint8_t hash[POLICY_HASH_BYTES];
    bool set;
};

struct policy_accepted {
    struct accepted_table table;
    struct accepted_slot *ring; /* in the order of acceptance; a credential is in the slot that its place names */
    uint32_t n_max, next;
};

struct policy_accepted *policy_accepted_create(unsigned n_max)
{
    struct policy_accepted *accepted = calloc(1, sizeof *accepted);
    if (!accepted)
        return NULL;
    accepted->n_max = n_max > 0 ? n_max : 1;
    accepted->ring = calloc(accepted->n_max, sizeof *accepted->ring);
    if (!accepted->ring) {
        free(accepted);
        return NULL;
    }
    return accepted;
}

void policy_accepted_destroy(struct policy_accepted *accepted)
{
    if (!accepted)
        return;
    free(accepted->table.places);
    free(accepted->ring);
    free(accepted);
}

static struct accepted_place *find(const struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES])
{
    struct accepted_place like = {0};
    memcpy(like.hash, hash, POLICY_HASH_BYTES);
    return accepted_table_find(&accepted->table, &like);
}

void policy_accepted_forget(struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES])
{
    struct accepted_place *place = find(accepted, hash);
    if (!place)
        return;
    accepted->ring[place->slot].set = false;
    accepted_table_remove(&accepted->table, place);
}

void policy_accepted_add(struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES], uint64_t now_ms,
                         uint64_t ttl_ms)
{
    struct accepted_slot *slot = &accepted->ring[accepted->next];
    struct accepted_place *place = find(accepted, hash), item = {.slot = accepted->next, .set = true};
    /* the ring turns only for those that are new or in its older half, so that one busy key does not push out the
     * rest */
    if (place && (accepted->next + accepted->n_max - place->slot) % accepted->n_max <= accepted->n_max / 2 &&
        place->slot != accepted->next) {
        place->until_ms = now_ms + ttl_ms;
        return;
    }
    policy_accepted_forget(accepted, hash);
    if (slot->set)
        policy_accepted_forget(accepted, slot->hash);
    assert(!slot->set);
    memcpy(item.hash, hash, POLICY_HASH_BYTES);
    item.until_ms = now_ms + ttl_ms;
    if (!accepted_table_add(&accepted->table, item))
        return;
    memcpy(slot->hash, hash, POLICY_HASH_BYTES);
    slot->set = true;
    accepted->next = (accepted->next + 1) % accepted->n_max;
}

bool policy_accepted_has(const struct policy_accepted *accepted, const uint8_t hash[POLICY_HASH_BYTES], uint64_t now_ms)
{
    const struct accepted_place *place = find(accepted, hash);
    return place && now_ms < place->until_ms;
}
