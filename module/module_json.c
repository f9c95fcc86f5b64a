/*
 * module_json.c - JSON documents as values of the engine, and JSON.* on them.
 *
 * A value is the packed document (document/json/tree.h), counted by references. It is in the engine's files as it is,
 * so an RDB alone is all of it, and COPY, DUMP, RESTORE and replicas are the engine's own.
 *
 * The handlers of JSON.* know the keyspace of quire-server. They get one that has the keys of their command and no
 * others: before a handler runs, the values of its keys are lent to it there; what it leaves is what the engine's keys
 * become. So the commands are the same, and each changes all of its keys or none.
 */
#include "document/json/tree.h"
#include "io/error.h"
#include "module/module_priv.h"
#include "server/keys/keyspace.h"
#include "server/process/log.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_ENCVER = 1000 /* RedisJSON, which has the type of this name, counts from 0 */, N_LANES = 1 };

/* Under a key. */
struct module_json {
    struct value *value; /* a reference */
};

/* The main thread's. */
static struct {
    struct rm_type *type;
    struct service service; /* a keyspace without journal, empty between two commands */
    struct lane lane;
    bool open;
} json;

/* ---- values ------------------------------------------------------------------------------------------------------ */

static struct module_json *make(struct value *value)
{
    struct module_json *made = malloc(sizeof *made);
    if (made)
        made->value = keyspace_value_ref(value);
    return made;
}

/* On any thread. */
static void free_json(void *value)
{
    struct module_json *gone = value;
    keyspace_value_unref(gone->value);
    free(gone);
}

/* ---- the type ---------------------------------------------------------------------------------------------------- */

/* In a child of the engine's, too. */
static void rdb_save(struct rm_io *io, void *value)
{
    const struct module_json *document = value;
    rm.save_bytes(io, (const char *)document->value->data, document->value->bytes);
}

/* Bytes are not believed: they may be of a RESTORE. */
static struct module_json *read_packed(const char *bytes, size_t n, struct quire_error *err)
{
    json_t *root = NULL;
    int rc = n <= UINT32_MAX ? tree_unpack(bytes, n, &root, err) : error_set(err, QUIRE_ELIMIT, "it is too long");
    json_decref(root);
    struct value *value = rc == 0 ? keyspace_value_create(bytes, (uint32_t)n, (uint32_t)n) : NULL;
    struct module_json *made = value ? make(value) : NULL;
    if (rc == 0 && !made)
        error_set(err, QUIRE_ENOMEM, "no memory for a document");
    keyspace_value_unref(value);
    return made;
}

static void *rdb_load(struct rm_io *io, int encver)
{
    struct quire_error err = {0};
    size_t n = 0;
    if (encver != JSON_ENCVER) {
        log_line(&module_the.log, LOG_LEVEL_WARNING,
                 "a JSON document was saved in another form (%d; this version reads %d)", encver, JSON_ENCVER);
        return NULL;
    }
    char *bytes = rm.load_bytes(io, &n);
    if (rm.is_io_error(io) || !bytes)
        return NULL;
    struct module_json *made = read_packed(bytes, n, &err);
    rm.free_bytes(bytes);
    if (!made)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "a JSON document cannot be read: %s", err.message);
    return made;
}

/* In a child. */
static void aof_rewrite(struct rm_io *io, struct rm_string *key, void *value)
{
    const struct value *packed = ((const struct module_json *)value)->value;
    struct tree_text text = {.data = NULL};
    char name[64];
    snprintf(name, sizeof name, "%sJSON.SET", module_the.settings.prefix);
    if (tree_unpack_text(packed->data, packed->bytes, &text, NULL) == 0 && !text.failed)
        rm.emit_aof(io, name, "scb", key, "$", text.data, text.bytes);
    else
        abort(); /* no memory: the child has failed, and the files that are there stay */
    tree_text_fini(&text);
}

static size_t mem_usage2(struct rm_key_opt *ctx, const void *value, size_t sample)
{
    const struct module_json *document = value;
    (void)ctx;
    (void)sample;
    return sizeof *document + sizeof *document->value + document->value->capacity;
}

static void *copy2(struct rm_key_opt *ctx, const void *value)
{
    (void)ctx;
    return make(((const struct module_json *)value)->value);
}

bool module_json_view(struct rm_key *key, struct document_view *view)
{
    if (rm.key_type(key) != RM_KEY_MODULE || rm.get_type(key) != json.type)
        return false;
    const struct value *value = ((const struct module_json *)rm.get_value(key))->value;
    *view =
        (struct document_view){.source = SCHEMA_JSON, .json = (const char *)value->data, .json_bytes = value->bytes};
    return true;
}

/* ---- keys lent to a handler -------------------------------------------------------------------------------------- */

enum staged { STAGED_NOTHING, STAGED_DOCUMENT, STAGED_OTHER };

/* A key of the command that is run. */
struct stage {
    struct resp_arg name;
    enum staged what;
    struct module_json *document; /* under the key; NULL: none */
};

/* Puts what the engine has under the key into the keyspace of handlers. */
static int lend(struct stage *stage, struct rm_ctx *ctx, struct rm_string *name, struct quire_error *err)
{
    struct keyspace *keyspace = &json.service.keyspace;
    struct keyspace_lock lock;
    struct key_entry *entry;
    struct rm_key *key = rm.open_key(ctx, name, RM_READ);
    stage->what = STAGED_NOTHING;
    stage->document = NULL;
    if (key && rm.key_type(key) == RM_KEY_MODULE && rm.get_type(key) == json.type) {
        stage->what = STAGED_DOCUMENT;
        stage->document = rm.get_value(key);
    } else if (key && rm.key_type(key) != RM_KEY_EMPTY) {
        stage->what = STAGED_OTHER;
    }
    rm.close_key(key);
    if (stage->what == STAGED_NOTHING || stage->name.bytes > QUIRE_KEY_BYTES_MAX)
        return 0;
    struct value *value =
        stage->document ? keyspace_value_ref(stage->document->value) : keyspace_value_create("", 0, 0);
    if (!value)
        return error_set(err, QUIRE_ENOMEM, "no memory for a key");
    struct key there = keyspace_key(keyspace, stage->name);
    keyspace_lock_key(&lock, keyspace, &there);
    int rc = keyspace_find_to_write(&lock, &there, &entry, err);
    if (rc < 0)
        keyspace_value_unref(value);
    else if (stage->document)
        rc = keyspace_set_json(&lock, &there, entry, value, 0, err);
    else
        rc = keyspace_set_string(&lock, &there, entry, value, 0, err);
    keyspace_unlock(&lock);
    return rc;
}

/* What the handler has left under the key: a reference; NULL: nothing. */
static struct value *take_back(const struct stage *stage)
{
    struct keyspace *keyspace = &json.service.keyspace;
    struct keyspace_lock lock;
    struct value *value = NULL;
    uint32_t n_gone;
    struct key there = keyspace_key(keyspace, stage->name);
    keyspace_lock_key(&lock, keyspace, &there);
    const struct key_entry *entry = keyspace_find(&lock, &there);
    if (entry && entry->type == KEY_JSON)
        value = keyspace_value_ref(entry->string);
    if (entry)
        keyspace_delete(&lock, &stage->name, 1, &n_gone, NULL); /* which nothing logs, and takes no memory */
    keyspace_unlock(&lock);
    return value;
}

/* Makes the engine's key what the handler has left. Whether it is another than before. *failed: no memory. */
static bool apply(const struct stage *stage, struct rm_ctx *ctx, struct rm_string *name, struct value *left,
                  const char *event, bool *failed)
{
    struct module_json *document = stage->document, *made = NULL;
    if (stage->what == STAGED_OTHER || (document ? document->value : NULL) == left)
        return false;
    if (left && !document && !(made = make(left))) {
        *failed = true;
        return false;
    }
    struct rm_key *key = rm.open_key(ctx, name, RM_READ | RM_WRITE);
    if (made) {
        rm.set_value(key, json.type, made);
    } else if (left) { /* in place, so that its expiry stays */
        struct value *before = document->value;
        document->value = keyspace_value_ref(left);
        keyspace_value_unref(before);
    } else {
        rm.delete_key(key);
    }
    rm.close_key(key);
    rm.notify_keyspace_event(ctx, left ? RM_NOTIFY_MODULE : RM_NOTIFY_GENERIC, left ? event : "del", name);
    return true;
}

static bool is_same(struct resp_arg a, struct resp_arg b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

/* Places of keys in a request: first, then each step behind, up to the last. */
struct places {
    int first, last, step;
};

static struct places places_of(unsigned row, int argc)
{
    const struct command *command = &commands[row];
    int last = command->last_key < 0 ? argc + command->last_key : command->last_key;
    return (struct places){command->first_key, command->first_key > 0 ? last : -1,
                           command->key_step > 0 ? command->key_step : 1};
}

void module_json_run(struct rm_ctx *ctx, struct module_call *call, struct rm_string **argv, int argc)
{
    const struct command *row = &commands[call->row];
    struct places places = places_of(call->row, argc);
    struct quire_error err = {0};
    uint32_t n = 0;
    int rc = 0;
    bool changed = false, failed = false;
    struct stage *stages = calloc((size_t)argc + 1, sizeof *stages);
    if (!stages)
        rc = error_set(&err, QUIRE_ENOMEM, "no memory for a command");
    for (int i = places.first; rc == 0 && i <= places.last && i < argc; i += places.step) {
        stages[n].name = call->args[i];
        rc = lend(&stages[n++], ctx, argv[i], &err);
    }
    call->caller.lane = &json.lane;
    call->out.protocol = call->caller.protocol;
    if (rc == 0) {
        lane_enter(&json.lane);
        row->run(&call->caller, call->args, call->n_args);
        lane_leave(&json.lane);
    } else {
        resp_error(&call->out, "OOM %s", err.message);
    }
    assert(!call->waits);
    call->done = true;
    for (uint32_t i = 0; i < n; i++) {
        bool again = false; /* a key that the command names twice was looked at */
        for (uint32_t j = 0; j < i && !again; j++)
            again = is_same(stages[i].name, stages[j].name);
        struct value *left = again ? NULL : take_back(&stages[i]);
        if (!again && rc == 0 && (row->flags & CMD_WRITE))
            changed =
                apply(&stages[i], ctx, argv[places.first + (int)i * places.step], left, row->name, &failed) || changed;
        keyspace_value_unref(left);
    }
    free(stages);
    if (changed)
        rm.replicate_verbatim(ctx);
    if (failed) {
        resp_buffer_fini(&call->out);
        call->out = (struct resp_buffer){.protocol = call->caller.protocol};
        resp_error(&call->out, "OOM no memory for a document");
    }
    call->caller.lane = &call->lane->lane;
}

bool module_command_is_json(unsigned row)
{
    return strcmp(commands[row].group, "json") == 0;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

int module_json_create(struct rm_ctx *ctx)
{
    static const struct rm_type_methods methods = {.version = RM_TYPE_METHODS_VERSION,
                                                   .rdb_load = rdb_load,
                                                   .rdb_save = rdb_save,
                                                   .aof_rewrite = aof_rewrite,
                                                   .free = free_json,
                                                   .mem_usage2 = mem_usage2,
                                                   .copy2 = copy2};
    /* TYPE shows it, and clients look for RedisJSON's */
    json.type = rm.create_data_type(ctx, "ReJSON-RL", JSON_ENCVER, &methods);
    return json.type ? RM_OK : RM_ERR;
}

int module_json_open(struct quire_error *err)
{
    struct service *s = &json.service;
    *s = (struct service){.config = &module_the.config, .log = &module_the.log, .n_lanes = N_LANES};
    json.lane = (struct lane){.service = s, .host = &module_host};
    int rc = keyspace_init(&s->keyspace, err);
    if (rc == 0)
        rc = gate_init(&s->gate, N_LANES + 1, err);
    if (rc == 0)
        rc = lane_stats_init(&json.lane, err);
    json.open = true;
    return rc;
}

void module_json_close(void)
{
    if (!json.open)
        return;
    keyspace_fini(&json.service.keyspace);
    gate_fini(&json.service.gate);
    lane_stats_fini(&json.lane);
    json.open = false;
}
