/*
 * json_call.c - documents read from keys and put back.
 *
 * A tree is made for each command and given up behind it: what stays in memory is the packed document alone, which is
 * half as large as RedisJSON's tree or less, and is copied and logged as any string. It costs each command a parse, a
 * microsecond for about 100 bytes of text or 20 numbers of a list.
 */
#include "server/json/json_call.h"
#include "io/error.h"
#include "server/keys/keyspace.h"
#include "server/process/config.h"
#include "server/protocol/arg.h"
#include <assert.h>
#include <string.h>

enum {
    HELD_BYTES = 1024, /* longer documents are changed while their key is free */
    TRIES_MAX = 3,
    PATH_SHOWN = 512
};

/* ---- errors ------------------------------------------------------------------------------------------------------ */

void json_call_no_key(struct resp_buffer *out)
{
    resp_error(out, "ERR could not perform this operation on a key that doesn't exist");
}

void json_call_wrong_type(struct resp_buffer *out)
{
    resp_error(out, "Existing key has wrong Redis type");
}

/* What makes a legacy path one that begins with $, as RedisJSON shows it. */
static const char *path_prefix(const struct json_call *j)
{
    if (!jsonpath_is_legacy(j->path) || jsonpath_is_root(j->path))
        return jsonpath_is_legacy(j->path) ? "$" : "";
    return j->path_text.data[0] == '.' ? "$" : "$.";
}

static struct resp_arg path_shown(const struct json_call *j)
{
    bool root = jsonpath_is_legacy(j->path) && jsonpath_is_root(j->path);
    return root ? (struct resp_arg){j->path_text.data, 0} : j->path_text;
}

void json_call_no_path(const struct json_call *j, struct resp_buffer *out)
{
    resp_error(out, "ERR Path '%s%.*s' does not exist", path_prefix(j), ARG_SHOWN(path_shown(j), (uint32_t)PATH_SHOWN));
}

void json_call_no_path_or(const struct json_call *j, const char * or, struct resp_buffer *out)
{
    resp_error(out, "ERR Path '%s%.*s' does not exist or %s", path_prefix(j),
               ARG_SHOWN(path_shown(j), (uint32_t)PATH_SHOWN), or);
}

void json_call_expected(const char *expected, const json_t *found, struct resp_buffer *out)
{
    resp_error(out, "WRONGTYPE wrong type of path value - expected %s but found %s", expected, tree_type_name(found));
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

bool json_call_fits(struct caller *c, uint32_t n, uint32_t most)
{
    if (n > most)
        caller_error(c, "ERR wrong number of arguments for '%s' command", c->command);
    return n <= most;
}

/* What is wrong with args[at]. */
static void bad_argument(struct resp_buffer *out, const struct quire_error *why, uint32_t at)
{
    struct quire_error err = *why;
    if (why->code != QUIRE_ENOMEM)
        error_set(&err, why->code, "%.360s (position %u)", why->message, at);
    resp_quire_error(out, &err);
}

bool json_call_begin(struct json_call *j, struct caller *c, const struct resp_arg *args, uint32_t at)
{
    struct quire_error err = {0};
    *j = (struct json_call){
        .caller = c, .path_text = at > 0 ? args[at] : (struct resp_arg){(const uint8_t *)".", 1}, .path_position = at};
    if (jsonpath_compile((const char *)j->path_text.data, j->path_text.bytes, &j->path, &err) == 0)
        return true;
    bad_argument(caller_reply(c), &err, at);
    return false;
}

bool json_call_integer(struct caller *c, const struct resp_arg *args, uint32_t at, long long *out)
{
    if (arg_integer(args[at], out))
        return true;
    caller_error(c, "ERR value is not an integer or out of range ('%.*s' at position %u)", ARG_SHOWN(args[at], 64u),
                 at);
    return false;
}

/* What belongs to one attempt. */
static void forget(struct json_call *j)
{
    json_decref(j->root);
    j->root = NULL;
    j->found.n = 0;
    edit_plan_fini(&j->plan);
    resp_buffer_fini(&j->reply);
}

void json_call_end(struct json_call *j)
{
    forget(j);
    jsonpath_matches_fini(&j->found);
    jsonpath_free(j->path);
    j->path = NULL;
}

void json_call_put_text(struct tree_text *text, struct resp_buffer *out)
{
    if (text->too_long)
        resp_error(out,
                   "ERR the reply would have more than %zu bytes, which is what proto-max-bulk-len allows: ask for "
                   "less, or raise it",
                   text->most);
    else if (text->failed)
        resp_error(out, "OOM no memory for the text of a reply");
    else
        resp_bulk(out, text->data, text->bytes);
    tree_text_fini(text);
}

void json_call_put_tree(struct caller *c, const json_t *value, const struct tree_style *style, struct resp_buffer *out)
{
    struct tree_text text = {.most = c->lane->service->config->bulk_max};
    tree_print(value, style, 0, &text);
    json_call_put_text(&text, out);
}

void json_call_put_value(struct caller *c, json_t *value, bool expand, struct resp_buffer *out)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        resp_null(out);
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        resp_bool(out, json_is_true(value));
        return;
    case JSON_INTEGER:
        resp_integer(out, json_integer_value(value));
        return;
    case JSON_REAL:
        resp_double(out, json_real_value(value));
        return;
    case JSON_STRING:
        if (expand)
            resp_bulk(out, json_string_value(value), json_string_length(value));
        else
            json_call_put_tree(c, value, NULL, out);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    if (!expand) {
        json_call_put_tree(c, value, NULL, out);
        return;
    }
    if (json_is_array(value))
        resp_array(out, json_array_size(value));
    else
        resp_map(out, json_object_size(value));
    for (size_t i = 0; i < json_array_size(value) && !out->failed; i++)
        json_call_put_value(c, json_array_get(value, i), expand, out);
    for (void *at = json_object_iter(value); at && !out->failed; at = json_object_iter_next(value, at)) {
        resp_bulk(out, json_object_iter_key(at), json_object_iter_key_len(at));
        json_call_put_value(c, json_object_iter_value(at), expand, out);
    }
}

json_t *json_call_argument(const struct resp_arg *args, uint32_t at, struct resp_buffer *out)
{
    struct quire_error err = {0};
    json_t *value;
    if (tree_parse(args[at].data, args[at].bytes, &value, &err) == 0)
        return value;
    bad_argument(out, &err, at);
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool json_call_text(struct caller *c, struct resp_arg key, struct value **out)
{
    struct key_call call;
    *out = NULL;
    if (!key_read(&call, c, key, KEY_ANY))
        return false;
    bool fits = !call.entry || call.entry->type == KEY_JSON;
    if (fits && call.entry)
        *out = keyspace_value_ref(call.entry->string);
    key_end(&call);
    if (!fits)
        json_call_wrong_type(caller_reply(c));
    return fits;
}

bool json_call_look(struct json_call *j, const struct value *text, struct resp_buffer *out)
{
    struct quire_error err = {0};
    assert(!j->root);
    int rc = tree_unpack(text->data, text->bytes, &j->root, &err);
    if (rc == 0)
        rc = jsonpath_find(j->path, j->root, &j->found, &err);
    if (rc < 0)
        resp_quire_error(out, &err);
    return rc == 0;
}

bool json_call_read(struct json_call *j, struct resp_arg key)
{
    struct value *text;
    if (!json_call_text(j->caller, key, &text))
        return false;
    bool ok = !text || json_call_look(j, text, caller_reply(j->caller));
    keyspace_value_unref(text);
    return ok;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

bool json_call_lock(struct key_call *call, struct caller *c, struct resp_arg key)
{
    if (!key_write(call, c, key, KEY_ANY))
        return false;
    if (!call->entry || call->entry->type == KEY_JSON)
        return true;
    keyspace_unlock(&call->lock);
    json_call_wrong_type(caller_reply(c));
    return false;
}

struct value *json_call_store(struct caller *c, const json_t *root, struct resp_buffer *out)
{
    uint64_t most = c->lane->service->config->bulk_max;
    struct quire_error err = {0};
    struct tree_text text = {.data = NULL};
    struct value *value = NULL;
    int rc = tree_check(root, &err);
    if (rc == 0)
        tree_pack(root, most, &text);
    if (text.too_long)
        rc = error_set(&err, QUIRE_ELIMIT,
                       "the document would have more than the %llu bytes that proto-max-bulk-len allows: split it or "
                       "raise that",
                       (unsigned long long)most);
    if (rc == 0 && !text.failed)
        value = keyspace_value_create(text.data, (uint32_t)text.bytes, (uint32_t)text.bytes);
    if (rc == 0 && !value)
        rc = error_set(&err, QUIRE_ENOMEM, "no memory for a document");
    if (rc < 0)
        resp_quire_error(out, &err);
    tree_text_fini(&text);
    return value;
}

/* The edit of one attempt: reads nothing but the text. *value: what to store, where that is CHANGED. */
static enum json_outcome attempt(struct json_call *j, const struct value *text, json_edit *edit, void *context,
                                 struct value **value)
{
    j->reply = resp_buffer_beside(caller_reply(j->caller));
    *value = NULL;
    if (text && !json_call_look(j, text, &j->reply))
        return JSON_UNCHANGED;
    enum json_outcome outcome = edit(j, context);
    if (outcome != JSON_CHANGED)
        return outcome;
    struct resp_buffer why = resp_buffer_beside(&j->reply);
    *value = json_call_store(j->caller, j->root, &why);
    if (!*value) { /* instead of what the edit has said */
        resp_buffer_fini(&j->reply);
        j->reply = why;
        return JSON_UNCHANGED;
    }
    resp_buffer_fini(&why);
    return outcome;
}

/* The change, of a key that is held. True after an error reply, with the key released. */
static bool make_change(struct json_call *j, struct key_call *call, enum json_outcome outcome, struct value *value)
{
    struct resp_arg name = {call->key.data, call->key.bytes};
    struct quire_error err = {0};
    uint32_t n_gone;
    int rc = 0;
    if (outcome == JSON_CHANGED)
        rc = keyspace_set_json(&call->lock, &call->key, call->entry, value, call->entry ? call->entry->expire_ms : 0,
                               &err);
    else if (outcome == JSON_REMOVED)
        rc = keyspace_delete(&call->lock, &name, 1, &n_gone, &err);
    return key_failed(j->caller, &call->lock, rc, &err);
}

/* Whether the key, locked again, is what it was. False after an error reply, too: *failed. */
static bool lock_again(struct json_call *j, struct key_call *call, struct resp_arg key, uint64_t version, bool *failed)
{
    *failed = !json_call_lock(call, j->caller, key);
    if (*failed || (call->entry && call->entry->version == version))
        return !*failed;
    keyspace_unlock(&call->lock);
    return false;
}

void json_call_write(struct json_call *j, struct resp_arg key, json_edit *edit, void *context)
{
    for (unsigned tries = 1;; tries++) {
        struct key_call call;
        bool failed = false;
        if (!json_call_lock(&call, j->caller, key))
            return;
        struct value *text = call.entry ? keyspace_value_ref(call.entry->string) : NULL, *value;
        uint64_t version = call.entry ? call.entry->version : 0;
        bool held = !text || text->bytes <= HELD_BYTES || tries == TRIES_MAX;
        if (!held)
            keyspace_unlock(&call.lock);
        enum json_outcome outcome = attempt(j, text, edit, context, &value);
        keyspace_value_unref(text);
        bool ready = held || outcome == JSON_UNCHANGED || lock_again(j, &call, key, version, &failed);
        if (!ready) {
            keyspace_value_unref(value);
            forget(j);
            if (failed)
                return;
            continue;
        }
        bool locked = held || outcome != JSON_UNCHANGED;
        if (locked && make_change(j, &call, outcome, value))
            return;
        resp_take(caller_reply(j->caller), &j->reply);
        if (locked)
            key_end(&call);
        return;
    }
}
