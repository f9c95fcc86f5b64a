/*
 * cmd_vcreate.c - VCREATE: an empty vector set that is not what VADD would make.
 *
 *   VCREATE key DIM dim [TYPE type] [METRIC metric] [SLOT slot] [INDEX kind] [MEMORY bytes] [BITS bits] [M links]
 *           [TENANTS] [ATTR name type [INDEXED]] ...
 *
 * ATTR declares a field of the elements' attributes, which is then read as that type (attribute_schema.h); a field that
 * nobody declares is learnt when segments are made. TENANTS: every element must be granted to somebody.
 */
#include "index/store/store.h"
#include "io/error.h"
#include "server/keys/keyspace.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_args.h"
#include "server/vector/vector_call.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M_MOST = LINK_DEGREE_MAX };

struct settings {
    struct collection_config config;
    struct quire_column *columns; /* owned, and their names */
    uint32_t n_columns;
};

/* The word behind args[*at], which is moved to it; of: what it is of, for the error reply. */
static bool take_kind(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, const char *const *names,
                      int n_names, const char *of, int *out)
{
    struct resp_arg option = args[*at];
    ++*at;
    for (int i = 0; i < n_names && *at < n; i++)
        if (names[i] && arg_is(args[*at], names[i])) {
            *out = i;
            return true;
        }
    char list[128] = "";
    size_t used = 0;
    for (int i = 0; i < n_names && used < sizeof list; i++)
        if (names[i])
            used += (size_t)snprintf(list + used, sizeof list - used, " %s", names[i]);
    caller_error(c, "ERR %s%.*s is one of%s", of, ARG_SHOWN(option, 64u), list);
    return false;
}

/* ATTR name type [INDEXED] */
static bool take_column(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct settings *s)
{
    static const char *const types[] = {
        [QUIRE_COLUMN_INTEGER] = "integer", [QUIRE_COLUMN_FLOAT] = "float", [QUIRE_COLUMN_STRING] = "string",
        [QUIRE_COLUMN_BOOL] = "bool",       [QUIRE_COLUMN_LIST] = "list",   [QUIRE_COLUMN_TIMESTAMP] = "timestamp"};
    struct quire_column column = {0};
    int type = 0;
    if (++*at >= n) {
        caller_error(c, "ERR syntax error: ATTR needs a name and a type");
        return false;
    }
    if (s->n_columns == ATTRIBUTE_COLUMNS_MAX) {
        caller_error(c, "ERR a set declares at most %u attributes", ATTRIBUTE_COLUMNS_MAX);
        return false;
    }
    struct resp_arg name = args[*at];
    if (!take_kind(c, args, n, at, types, sizeof types / sizeof *types, "the type of attribute ", &type))
        return false;
    column.type = (enum quire_column_type)type;
    column.indexed = *at + 1 < n && arg_is(args[*at + 1], "INDEXED");
    *at += column.indexed;
    if (!s->columns)
        s->columns = calloc(ATTRIBUTE_COLUMNS_MAX, sizeof *s->columns);
    column.name = s->columns ? arg_text(name) : NULL;
    if (column.name)
        s->columns[s->n_columns++] = column;
    else if (memchr(name.data, 0, name.bytes))
        caller_error(c, "ERR the name of an attribute holds a byte 0");
    else
        caller_error(c, "OOM no memory for the attributes of a set");
    return column.name != NULL;
}

static bool take_setting(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct settings *s)
{
    static const char *const types[] = {"f32", "f16", "i8", "u8", "bf16"}, *const metrics[] = {"l2", "cosine", "ip"};
    static const char *const indexes[] = {"auto", "pagegraph", "spann"};
    static const char *const slots[] = {"auto", "f32", "f16", "i8", "u8", "q8", "bf16"};
    struct collection_config *config = &s->config;
    long long integer = 0;
    int kind = 0;
    bool right = true;
    if (arg_is(args[*at], "ATTR")) {
        right = take_column(c, args, n, at, s);
    } else if (arg_is(args[*at], "TENANTS")) {
        config->tenants = true;
    } else if (arg_is(args[*at], "DIM")) {
        right = vector_arg_take_integer(c, args, n, at, 1, QUIRE_DIM_MAX, &integer);
        config->dim = (uint32_t)integer;
    } else if (arg_is(args[*at], "TYPE")) {
        right = take_kind(c, args, n, at, types, 5, "", &kind);
        config->type = (enum quire_type)kind;
    } else if (arg_is(args[*at], "METRIC")) {
        right = take_kind(c, args, n, at, metrics, 3, "", &kind);
        config->metric = (enum quire_metric)kind;
    } else if (arg_is(args[*at], "SLOT")) {
        right = take_kind(c, args, n, at, slots, 7, "", &kind);
        config->slot = (enum quire_slot)kind;
    } else if (arg_is(args[*at], "INDEX")) {
        right = take_kind(c, args, n, at, indexes, 3, "", &kind);
        config->index = (enum quire_index_kind)kind;
    } else if (arg_is(args[*at], "MEMORY")) {
        right = vector_arg_take_integer(c, args, n, at, 1, 1ll << 46, &integer);
        config->memory_bytes = (uint64_t)integer;
    } else if (arg_is(args[*at], "BITS")) {
        right = vector_arg_take_integer(c, args, n, at, 1, 8, &integer);
        config->code_bits = (unsigned)integer;
    } else if (arg_is(args[*at], "M")) {
        right = vector_arg_take_integer(c, args, n, at, 4, M_MOST, &integer);
        config->link_degree = (unsigned)integer;
    } else {
        caller_error(c, "ERR syntax error at '%.*s'", ARG_SHOWN(args[*at], 64u));
        right = false;
    }
    return right;
}

/* The set is made under its key, in one frame. The key is locked before the batch is begun, as every write
 * does: who waits for open batches must not wait for one that waits for a key. */
static int create(struct caller *c, struct resp_arg name, const struct collection_config *config,
                  const struct attribute_schema *schema, uint64_t *lsn, struct quire_error *err)
{
    struct service *service = c->lane->service;
    struct keyspace_lock lock;
    struct key_entry *entry;
    struct key key = keyspace_key(&service->keyspace, name);
    struct collection *collection;
    bool begun = false;
    keyspace_lock_key(&lock, &service->keyspace, &key);
    int rc = keyspace_find_to_write(&lock, &key, &entry, err);
    if (rc == 0 && entry)
        rc = error_set(err, QUIRE_EEXISTS, "Target key name already exists");
    if (rc == 0 && !journal_in_batch(service->journal)) {
        rc = journal_batch_begin(service->journal, err);
        begun = rc == 0;
    }
    if (rc == 0)
        rc = store_create_collection(service->store, config, schema, &collection, lsn, err);
    if (rc == 0 && (rc = keyspace_set_vectors(&lock, &key, collection, err)) < 0) { /* takes the reference over */
        store_drop_collection(service->store, collection, lsn, NULL);
        collection_unref(collection);
    }
    *lsn = lock.lsn;
    int end = begun ? journal_batch_end(service->journal, lsn, rc == 0 ? err : NULL) : 0;
    keyspace_unlock(&lock);
    return rc < 0 ? rc : end;
}

static void create_set(struct caller *c, struct resp_arg name, struct settings *s)
{
    struct quire_error err = {0};
    struct attribute_schema *schema = NULL;
    uint64_t lsn = 0;
    if (!c->lane->service->store) {
        caller_error(c, "ERR vector sets need a data folder: start the server with --dir FOLDER");
        return;
    }
    if (s->config.dim == 0) {
        caller_error(c, "ERR VCREATE needs DIM and the number of dimensions");
        return;
    }
    int rc = attribute_schema_create(s->columns, s->n_columns, &schema, &err);
    if (rc < 0 && rc != QUIRE_ENOMEM) {
        caller_error(c, "ERR %s", err.message);
        return;
    }
    if (rc == 0)
        rc = collection_config_begin(&s->config, &err);
    if (rc == 0)
        rc = create(c, name, &s->config, schema, &lsn, &err);
    attribute_schema_destroy(schema);
    if (rc < 0) {
        resp_quire_error(caller_reply(c), &err);
        return;
    }
    resp_simple(caller_reply(c), "OK");
    caller_wait_lsn(c, lsn);
}

void cmd_vcreate(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct settings s = {.config = {.metric = QUIRE_METRIC_COSINE}};
    bool right = true;
    for (uint32_t at = 2; at < n && right; at++)
        right = take_setting(c, args, n, &at, &s);
    if (right)
        create_set(c, args[1], &s);
    for (uint32_t i = 0; i < s.n_columns; i++)
        free((void *)(uintptr_t)s.columns[i].name);
    free(s.columns);
}
