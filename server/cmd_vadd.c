/*
 * cmd_vadd.c - writing to vector sets: VADD, VREM, VSETATTR, and VCREATE for sets that are not what VADD makes.
 *
 *   VADD key [REDUCE dim] (FP32 vector | VALUES num value ...) element [CAS] [NOQUANT | Q8 | BIN] [EF effort]
 *        [SETATTR json] [M links]
 *
 * As in Redis: CAS is accepted and changes nothing (no command runs in a thread of its own). NOQUANT keeps vectors as
 * 32-bit floats, Q8 (the default) as 8-bit codes; BIN keeps 8-bit codes, too, and navigates sealed segments by one bit
 * per dimension. M and EF shape the graph of a set that is made by this VADD.
 */
#include "io/error.h"
#include "io/random.h"
#include "server/vector_call.h"
#include "server/vector_write.h"
#include <stdlib.h>
#include <string.h>

enum { LINKS_MOST = 64, BEAM_MOST = 4096 };

/* ---- VADD -------------------------------------------------------------------------------------------------------- */

static bool take_quantisation(struct client *c, struct resp_arg arg, struct vector_write *w, bool *taken)
{
    bool plain = arg_is(arg, "NOQUANT"), bin = arg_is(arg, "BIN");
    *taken = plain || bin || arg_is(arg, "Q8");
    if (!*taken)
        return true;
    if (w->slot_given) {
        client_error(c, "ERR syntax error: give one of NOQUANT, Q8 and BIN");
        return false;
    }
    w->slot_given = true;
    w->config.slot = plain ? QUIRE_SLOT_F32 : QUIRE_SLOT_Q8;
    w->config.code_bits = bin ? 1 : 0;
    return true;
}

/* One option at args[*at], moving *at to its last word. */
static bool take_option(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct vector_write *w)
{
    long long integer = 0;
    bool quantisation;
    if (!take_quantisation(c, args[*at], w, &quantisation))
        return false;
    if (quantisation || arg_is(args[*at], "CAS"))
        return true;
    if (arg_is(args[*at], "EF")) {
        if (!arg_take_integer(c, args, n, at, 1, BEAM_MOST, &integer))
            return false;
        w->config.link_beam = (unsigned)integer;
    } else if (arg_is(args[*at], "M")) {
        if (!arg_take_integer(c, args, n, at, 4, LINKS_MOST, &integer))
            return false;
        w->config.link_degree = (unsigned)integer;
        w->degree_given = true;
    } else if (arg_is(args[*at], "SETATTR") && *at + 1 < n) {
        w->attributes = args[++*at];
    } else if (arg_is(args[*at], "TENANT")) {
        client_error(c, "ERR TENANT is not supported by this version");
        return false;
    } else {
        client_error(c, "ERR syntax error at '%.*s'", ARG_SHOWN(args[*at], 64u));
        return false;
    }
    return true;
}

/* What stands before the vector and the vector itself; *at stands at the element afterwards. */
static bool take_vector(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct vector_write *w,
                        struct vector_arg *vector)
{
    long long reduce = 0;
    *at = 2;
    if (arg_is(args[2], "REDUCE")) {
        if (!arg_take_integer(c, args, n, at, 1, QUIRE_DIM_MAX, &reduce))
            return false;
        ++*at;
    }
    if (!vector_arg_take(c, args, n, at, false, vector))
        return false;
    if (*at >= n) {
        client_error(c, "ERR wrong number of arguments for 'vadd' command");
        return false;
    }
    w->n_numbers = vector_arg_dim(vector);
    w->config.dim = reduce ? (uint32_t)reduce : w->n_numbers;
    w->config.input_dim = reduce && (uint32_t)reduce != w->n_numbers ? w->n_numbers : 0;
    if (w->config.dim > w->n_numbers) {
        client_error(c, "ERR REDUCE to %u: the vector has %u numbers", w->config.dim, w->n_numbers);
        return false;
    }
    return true;
}

void cmd_vadd(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct vector_write w = {.kind = VECTOR_ADD, .key = args[1]};
    struct vector_arg vector;
    struct quire_error err = {0};
    uint32_t at;
    w.config = (struct collection_config){
        .type = QUIRE_TYPE_F32, .metric = QUIRE_METRIC_COSINE, .slot = QUIRE_SLOT_Q8, .seed = random_mix(clock_us())};
    if (!take_vector(c, args, n, &at, &w, &vector))
        return;
    w.element = args[at];
    if (w.element.bytes == 0 || w.element.bytes > QUIRE_KEY_BYTES_MAX) {
        client_error(c, "ERR an element's name has 1 to %u bytes", QUIRE_KEY_BYTES_MAX);
        return;
    }
    for (at++; at < n; at++)
        if (!take_option(c, args, n, &at, &w))
            return;
    float *numbers = malloc(sizeof(float) * w.n_numbers);
    if (!numbers) {
        client_error(c, "OOM no memory for a vector of %u numbers", w.n_numbers);
        return;
    }
    w.vector = numbers;
    if (vector_arg_numbers(&vector, numbers, &err))
        vector_write_run(c, &w);
    else
        client_error(c, "ERR %s", err.message);
    free(numbers);
}

/* ---- VREM, VSETATTR ---------------------------------------------------------------------------------------------- */

void cmd_vrem(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct vector_write w = {.kind = VECTOR_REMOVE, .key = args[1], .element = args[2]};
    vector_write_run(c, &w);
}

void cmd_vsetattr(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct vector_write w = {.kind = VECTOR_ATTRIBUTES, .key = args[1], .element = args[2], .attributes = args[3]};
    vector_write_run(c, &w);
}

/* ---- VCREATE ----------------------------------------------------------------------------------------------------- */

/* The place of a word in a list of names, or -1. */
static int choose(struct resp_arg arg, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (names[i] && arg_is(arg, names[i]))
            return i;
    return -1;
}

static bool take_kind(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, const char *const *names,
                      int n_names, int *out)
{
    struct resp_arg option = args[*at];
    if (++*at < n && (*out = choose(args[*at], names, n_names)) >= 0)
        return true;
    char list[128] = "";
    for (int i = 0; i < n_names; i++)
        if (names[i]) {
            strcat(list, " ");
            strcat(list, names[i]);
        }
    client_error(c, "ERR %.*s is one of%s", ARG_SHOWN(option, 64u), list);
    return false;
}

static bool take_setting(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at,
                         struct collection_config *config)
{
    static const char *const types[] = {"f32", "f16", "i8", "u8", "bf16"}, *const metrics[] = {"l2", "cosine", "ip"};
    static const char *const indexes[] = {"auto", "pagegraph", "spann"};
    static const char *const slots[] = {"auto", "f32", "f16", "i8", "u8", "q8", "bf16"};
    long long integer = 0;
    int kind = 0;
    bool right = true;
    if (arg_is(args[*at], "DIM")) {
        right = arg_take_integer(c, args, n, at, 1, QUIRE_DIM_MAX, &integer);
        config->dim = (uint32_t)integer;
    } else if (arg_is(args[*at], "TYPE")) {
        right = take_kind(c, args, n, at, types, 5, &kind);
        config->type = (enum quire_type)kind;
    } else if (arg_is(args[*at], "METRIC")) {
        right = take_kind(c, args, n, at, metrics, 3, &kind);
        config->metric = (enum quire_metric)kind;
    } else if (arg_is(args[*at], "SLOT")) {
        right = take_kind(c, args, n, at, slots, 7, &kind);
        config->slot = (enum quire_slot)kind;
    } else if (arg_is(args[*at], "INDEX")) {
        right = take_kind(c, args, n, at, indexes, 3, &kind);
        config->index = (enum quire_index_kind)kind;
    } else if (arg_is(args[*at], "MEMORY")) {
        right = arg_take_integer(c, args, n, at, 1, 1ll << 46, &integer);
        config->memory_bytes = (uint64_t)integer;
    } else if (arg_is(args[*at], "BITS")) {
        right = arg_take_integer(c, args, n, at, 1, 8, &integer);
        config->code_bits = (unsigned)integer;
    } else if (arg_is(args[*at], "M")) {
        right = arg_take_integer(c, args, n, at, 4, LINKS_MOST, &integer);
        config->link_degree = (unsigned)integer;
    } else {
        client_error(c, "ERR syntax error at '%.*s'", ARG_SHOWN(args[*at], 64u));
        right = false;
    }
    return right;
}

/* The set is made under its key, in one frame. */
static int create(struct server *server, struct keyspace_hold *hold, const struct key *key,
                  const struct collection_config *config, struct quire_error *err)
{
    struct collection *collection;
    uint64_t lsn;
    int rc = store_create_collection(server->store, config, &collection, &lsn, err);
    if (rc < 0)
        return rc;
    rc = keyspace_set_vectors(hold, key, collection, err); /* takes the reference over */
    if (rc < 0) {
        store_drop_collection(server->store, collection, &lsn, NULL);
        collection_unref(collection);
    }
    return rc;
}

/* The key is held before the batch is begun, as every write does: who waits for open batches must not wait for one
 * that waits for a key. */
static int create_in_batch(struct client *c, struct resp_arg name, const struct collection_config *config,
                           uint64_t *lsn, struct quire_error *err)
{
    struct server *server = c->lane->server;
    struct keyspace_hold hold;
    struct key_entry *entry;
    struct key key = keyspace_key(&server->keyspace, name);
    bool begun = false;
    keyspace_hold_key(&hold, &server->keyspace, &key);
    int rc = keyspace_find_to_write(&hold, &key, &entry, err);
    if (rc == 0 && entry)
        rc = error_set(err, QUIRE_EEXISTS, "Target key name already exists");
    if (rc == 0 && !journal_in_batch(server->journal)) {
        rc = journal_batch_begin(server->journal, err);
        begun = rc == 0;
    }
    if (rc == 0)
        rc = create(server, &hold, &key, config, err);
    *lsn = hold.lsn;
    int end = begun ? journal_batch_end(server->journal, lsn, rc == 0 ? err : NULL) : 0;
    keyspace_let_go(&hold);
    return rc < 0 ? rc : end;
}

void cmd_vcreate(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct collection_config config = {.metric = QUIRE_METRIC_COSINE, .seed = random_mix(clock_us())};
    uint64_t lsn;
    for (uint32_t at = 2; at < n; at++)
        if (!take_setting(c, args, n, &at, &config))
            return;
    if (!c->lane->server->store) {
        client_error(c, "ERR vector sets need a data folder: start the server with --dir FOLDER");
        return;
    }
    if (config.dim == 0) {
        client_error(c, "ERR VCREATE needs DIM and the number of dimensions");
        return;
    }
    int rc = collection_config_check(&config, &err);
    if (rc == 0)
        rc = create_in_batch(c, args[1], &config, &lsn, &err);
    if (rc < 0) {
        reply_quire_error(client_reply(c), &err);
        return;
    }
    resp_simple(client_reply(c), "OK");
    client_wait_lsn(c, lsn);
}
