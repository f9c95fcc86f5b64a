/*
 * cmd_json_set.c - JSON.SET, JSON.MSET, JSON.MERGE, JSON.DEL, JSON.CLEAR: values that come and go.
 *
 * A path that leads to nothing makes a member if it is static and its holder is an object. A key keeps its expiry
 * whatever becomes of the document, as in RedisJSON.
 */
#include "io/error.h"
#include "server/json/cmd_jsons.h"
#include "server/json/json_call.h"
#include "server/keys/keyspace.h"
#include <stdlib.h>

/* ---- setting at places ------------------------------------------------------------------------------------------- */

struct setting {
    json_t *value; /* a reference */
    bool only_new, only_old, merges;
};

/* NONE: there is no place for it; FAILED: the reply says why. */
enum set_result { SET_NONE, SET_ALL, SET_FAILED };

static enum set_result failed(const struct quire_error *err, struct resp_buffer *out)
{
    resp_quire_error(out, err);
    return SET_FAILED;
}

static enum set_result set_found(struct json_call *j, const struct setting *s, struct resp_buffer *out)
{
    struct quire_error err = {0};
    if (s->merges && tree_count(s->value, TREE_VALUES_MAX) > TREE_VALUES_MAX / j->found.n) {
        error_set(&err, QUIRE_ELIMIT, "merging this into %zu values would make more than %u of them", j->found.n,
                  TREE_VALUES_MAX);
        return failed(&err, out);
    }
    int rc = edit_plan(&j->found, !s->merges, &j->plan, &err);
    for (size_t i = 0; i < j->plan.n && rc == 0; i++) {
        const struct jsonpath_match *place = &j->found.items[j->plan.items[i]];
        rc = s->merges ? edit_merge(&j->root, place, s->value, &err) : edit_set(&j->root, place, s->value, &err);
    }
    return rc < 0 ? failed(&err, out) : SET_ALL;
}

/* A member of what the path without its last step leads to. */
static enum set_result add_member(struct json_call *j, const struct setting *s, struct resp_buffer *out)
{
    struct quire_error err = {0};
    size_t bytes, n_found = j->found.n;
    const char *name = jsonpath_last_name(j->path, &bytes);
    if (!jsonpath_is_static(j->path)) {
        resp_error(out, "Err wrong static path (position %u)", j->path_position);
        return SET_FAILED;
    }
    if (!name && n_found == 0) {
        resp_error(out, "ERR array index out of range (position %u)", j->path_position);
        return SET_FAILED;
    }
    if (n_found > 0) /* NX */
        return SET_NONE;
    int rc = jsonpath_find_holders(j->path, j->root, &j->found, &err);
    if (rc == 0 && (j->found.n == 0 || !json_is_object(j->found.items[0].value)))
        return SET_NONE;
    if (rc == 0)
        rc = edit_add(j->found.items[0].value, name, bytes, s->value, &err);
    return rc < 0 ? failed(&err, out) : SET_ALL;
}

/* j->root is the document, NULL: there is none. Replies only where it fails. */
static enum set_result set_at(struct json_call *j, const struct setting *s, struct resp_buffer *out)
{
    bool is_root = jsonpath_is_root(j->path);
    if (j->root ? is_root && s->only_new : s->only_old)
        return SET_NONE;
    if (!j->root && !is_root) {
        resp_error(out, "ERR new objects must be created at the root (position %u)", j->path_position);
        return SET_FAILED;
    }
    if (!j->root || (is_root && !s->merges)) {
        json_decref(j->root);
        j->root = json_incref(s->value);
        return SET_ALL;
    }
    if (j->found.n > 0 && !s->only_new)
        return set_found(j, s, out);
    return s->only_old ? SET_NONE : add_member(j, s, out);
}

static enum json_outcome edit_set_at(struct json_call *j, void *context)
{
    enum set_result result = set_at(j, context, &j->reply);
    if (result == SET_ALL)
        resp_simple(&j->reply, "OK");
    else if (result != SET_FAILED)
        resp_null(&j->reply);
    return result == SET_ALL ? JSON_CHANGED : JSON_UNCHANGED;
}

/* ---- JSON.SET, JSON.MERGE ---------------------------------------------------------------------------------------- */

/* The whole document: what was there is not looked at. */
static void set_root(struct caller *c, struct resp_arg key, const struct setting *s)
{
    struct key_call call;
    struct quire_error err = {0};
    struct value *value = json_call_store(c, s->value, caller_reply(c));
    if (!value)
        return;
    if (!json_call_lock(&call, c, key)) {
        keyspace_value_unref(value);
        return;
    }
    bool sets = call.entry ? !s->only_new : !s->only_old;
    int rc = 0;
    if (sets)
        rc = keyspace_set_json(&call.lock, &call.key, call.entry, value, call.entry ? call.entry->expire_ms : 0, &err);
    else
        keyspace_value_unref(value);
    if (key_failed(c, &call.lock, rc, &err))
        return;
    if (sets)
        resp_simple(caller_reply(c), "OK");
    else
        resp_null(caller_reply(c));
    key_end(&call);
}

static bool set_options(struct caller *c, const struct resp_arg *args, uint32_t n, struct setting *s)
{
    for (uint32_t i = 4; i < n; i++) {
        bool options = !s->merges && !s->only_new && !s->only_old;
        if (options && arg_is(args[i], "NX")) {
            s->only_new = true;
        } else if (options && arg_is(args[i], "XX")) {
            s->only_old = true;
        } else if (arg_is(args[i], "FORMAT") || arg_is(args[i], "FPHA")) {
            caller_error(c, "ERR %.*s is not supported: values are JSON, and numbers keep their digits (position %u)",
                         ARG_SHOWN(args[i], 16u), i);
            return false;
        } else {
            caller_error(c, "ERR syntax error ('%.*s' at position %u)", ARG_SHOWN(args[i], 64u), i);
            return false;
        }
    }
    return true;
}

static void set_or_merge(struct caller *c, const struct resp_arg *args, uint32_t n, bool merges)
{
    struct setting s = {.merges = merges};
    struct json_call j;
    if (!set_options(c, args, n, &s))
        return;
    if (json_call_begin(&j, c, args, 2) && (s.value = json_call_argument(args, 3, caller_reply(c)))) {
        if (jsonpath_is_root(j.path) && !merges)
            set_root(c, args[1], &s);
        else
            json_call_write(&j, args[1], edit_set_at, &s);
    }
    json_decref(s.value);
    json_call_end(&j);
}

/* JSON.SET key path value [NX|XX] */
void cmd_json_set(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    set_or_merge(c, args, n, false);
}

/* JSON.MERGE key path value */
void cmd_json_merge(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    set_or_merge(c, args, n, true);
}

/* ---- JSON.MSET --------------------------------------------------------------------------------------------------- */

/* The texts that documents will have: an object of strings, by key; later triplets see what earlier ones did. The
 * triplet's key is args[at]. */
static bool stage(struct json_call *j, struct keyspace_lock *lock, const struct resp_arg *args, uint32_t at,
                  json_t *texts, bool *all)
{
    const struct resp_arg name = args[at];
    struct resp_buffer *out = caller_reply(j->caller);
    struct quire_error err = {0};
    struct setting s = {.value = json_call_argument(args, at + 2, out)};
    struct key key = keyspace_key(lock->keyspace, name);
    struct key_entry *entry;
    if (!s.value)
        return false;
    const json_t *staged = json_object_getn(texts, (const char *)name.data, name.bytes);
    int rc = keyspace_find_to_write(lock, &key, &entry, &err);
    const char *from = staged ? json_string_value(staged) : NULL;
    size_t bytes = staged ? json_string_length(staged) : 0;
    if (rc == 0 && !staged && entry && entry->type == KEY_JSON) {
        from = (const char *)entry->string->data;
        bytes = entry->string->bytes;
    }
    bool fits = rc == 0 && (!entry || entry->type == KEY_JSON);
    if (rc == 0 && !fits)
        json_call_wrong_type(out);
    if (fits && from)
        rc = tree_unpack(from, bytes, &j->root, &err);
    if (fits && from && rc == 0)
        rc = jsonpath_find(j->path, j->root, &j->found, &err);
    if (rc < 0)
        resp_quire_error(out, &err);
    enum set_result result = fits && rc == 0 ? set_at(j, &s, out) : SET_FAILED;
    json_decref(s.value);
    *all = *all && result == SET_ALL;
    if (result != SET_ALL)
        return result != SET_FAILED;
    struct value *value = json_call_store(j->caller, j->root, out);
    if (!value)
        return false;
    json_t *text = json_stringn_nocheck((const char *)value->data, value->bytes);
    keyspace_value_unref(value);
    if (text && json_object_setn_new_nocheck(texts, (const char *)name.data, name.bytes, text) == 0)
        return true;
    resp_error(out, "OOM no memory for the text of a document");
    return false;
}

/* Stores the texts in one frame. Negative: err says why. */
static int store_texts(struct keyspace_lock *lock, json_t *texts, struct quire_error *err)
{
    uint32_t n = (uint32_t)json_object_size(texts), i = 0;
    struct resp_arg *pairs = malloc((2 * (size_t)n + 1) * sizeof *pairs);
    if (!pairs)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u documents", n);
    for (void *at = json_object_iter(texts); at; at = json_object_iter_next(texts, at)) {
        const json_t *text = json_object_iter_value(at);
        pairs[i++] =
            (struct resp_arg){(const uint8_t *)json_object_iter_key(at), (uint32_t)json_object_iter_key_len(at)};
        pairs[i++] = (struct resp_arg){(const uint8_t *)json_string_value(text), (uint32_t)json_string_length(text)};
    }
    int rc = n > 0 ? keyspace_set_jsons(lock, pairs, n, err) : 0;
    free(pairs);
    return rc;
}

/* JSON.MSET key path value [key path value ...]: all or nothing, also where a path leads nowhere */
void cmd_json_mset(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct keyspace_lock lock;
    struct quire_error err = {0};
    bool ok = true, all = true;
    if (n % 3 != 1) {
        caller_error(c, "ERR wrong number of arguments for 'json.mset' command");
        return;
    }
    for (uint32_t i = 1; i < n; i += 3)
        if (!key_fits(c, args[i]))
            return;
    json_t *texts = json_object();
    if (!texts) {
        caller_error(c, "OOM no memory for %u documents", n / 3);
        return;
    }
    keyspace_lock_args(&lock, &c->lane->service->keyspace, args + 1, n - 1, 3);
    for (uint32_t i = 1; i < n && ok; i += 3) {
        struct json_call j;
        ok = json_call_begin(&j, c, args, i + 1) && stage(&j, &lock, args, i, texts, &all);
        json_call_end(&j);
    }
    int rc = ok && all ? store_texts(&lock, texts, &err) : 0;
    json_decref(texts);
    if (key_failed(c, &lock, rc, &err))
        return;
    keyspace_unlock(&lock);
    if (ok && all)
        resp_simple(caller_reply(c), "OK");
    else if (ok)
        resp_null(caller_reply(c));
    key_wrote(c, &lock);
}

/* ---- JSON.DEL, JSON.CLEAR ---------------------------------------------------------------------------------------- */

static enum json_outcome edit_delete(struct json_call *j, void *context)
{
    struct quire_error err = {0};
    long long n_gone = 0;
    (void)context;
    if (!j->root) {
        resp_integer(&j->reply, 0);
        return JSON_UNCHANGED;
    }
    if (edit_plan(&j->found, true, &j->plan, &err) < 0) {
        resp_quire_error(&j->reply, &err);
        return JSON_UNCHANGED;
    }
    for (size_t i = 0; i < j->plan.n; i++)
        n_gone += edit_remove(&j->found.items[j->plan.items[i]]);
    resp_integer(&j->reply, n_gone);
    if (n_gone == 0)
        return JSON_UNCHANGED;
    return json_object_size(j->root) == 0 && json_array_size(j->root) == 0 ? JSON_REMOVED : JSON_CHANGED;
}

static void delete_root(struct caller *c, struct resp_arg key)
{
    struct key_call call;
    struct quire_error err = {0};
    uint32_t n_gone = 0;
    if (!json_call_lock(&call, c, key))
        return;
    int rc = call.entry ? keyspace_delete(&call.lock, &key, 1, &n_gone, &err) : 0;
    if (key_failed(c, &call.lock, rc, &err))
        return;
    resp_integer(caller_reply(c), n_gone);
    key_end(&call);
}

/* JSON.DEL key [path] */
void cmd_json_del(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0)) {
        if (jsonpath_is_root(j.path))
            delete_root(c, args[1]);
        else
            json_call_write(&j, args[1], edit_delete, NULL);
    }
    json_call_end(&j);
}

/* Whether there was something to clear; *rc: QUIRE_ENOMEM. */
static bool clear(struct json_call *j, const struct jsonpath_match *place, int *rc, struct quire_error *err)
{
    json_t *value = edit_get(j->root, place);
    if (json_is_array(value) && json_array_size(value) > 0)
        return json_array_clear(value) == 0;
    if (json_is_object(value) && json_object_size(value) > 0)
        return json_object_clear(value) == 0;
    if (!json_is_number(value) || (json_number_value(value) >= 0 && json_number_value(value) <= 0))
        return false;
    json_t *zero = json_integer(0);
    *rc = zero ? edit_set(&j->root, place, zero, err) : error_set(err, QUIRE_ENOMEM, "no memory for a number");
    json_decref(zero);
    return *rc == 0;
}

static enum json_outcome edit_clear(struct json_call *j, void *context)
{
    struct quire_error err = {0};
    long long n_cleared = 0;
    (void)context;
    if (!j->root) {
        json_call_no_key(&j->reply);
        return JSON_UNCHANGED;
    }
    int rc = edit_plan(&j->found, false, &j->plan, &err);
    for (size_t i = 0; i < j->plan.n && rc == 0; i++)
        n_cleared += clear(j, &j->found.items[j->plan.items[i]], &rc, &err);
    if (rc < 0) {
        resp_quire_error(&j->reply, &err);
        return JSON_UNCHANGED;
    }
    resp_integer(&j->reply, n_cleared);
    return n_cleared > 0 ? JSON_CHANGED : JSON_UNCHANGED;
}

/* JSON.CLEAR key [path] */
void cmd_json_clear(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0))
        json_call_write(&j, args[1], edit_clear, NULL);
    json_call_end(&j);
}
