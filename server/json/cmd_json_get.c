/*
 * cmd_json_get.c - JSON.GET, JSON.MGET, JSON.RESP: values of documents, as text or as values of the protocol.
 *
 * A whole document without formatting is sent as it lies there; all else is parsed, looked up and printed.
 */
#include "server/json/cmd_jsons.h"
#include "server/json/json_call.h"
#include <stdlib.h>

/* ---- JSON.GET ---------------------------------------------------------------------------------------------------- */

enum get_format { FORMAT_STRING, FORMAT_EXPAND1, FORMAT_EXPAND };

struct get_options {
    struct tree_style style;
    bool styled;
    enum get_format format;
    uint32_t n_paths; /* moved to the front of the arguments' copy */
};

/* In RESP2 it changes nothing, and stands behind a path at most: so RedisJSON has it. */
static bool take_format(struct caller *c, const struct resp_arg *args, uint32_t at, struct get_options *o)
{
    const struct resp_arg word = args[at];
    if (c->protocol != 3 && o->n_paths == 0) {
        caller_error(c, "ERR FORMAT argument is not supported on RESP2 (position %u)", at - 1);
        return false;
    }
    o->format = arg_is(word, "EXPAND1") ? FORMAT_EXPAND1 : arg_is(word, "EXPAND") ? FORMAT_EXPAND : FORMAT_STRING;
    bool known = o->format != FORMAT_STRING || arg_is(word, "STRING");
    o->format = c->protocol == 3 ? o->format : FORMAT_STRING;
    if (known)
        return true;
    caller_error(c, "ERR wrong reply format ('%.*s' at position %u)", ARG_SHOWN(word, 64u), at);
    return false;
}

/* Takes options out of the arguments behind the key; paths[] gets the positions of the rest. */
static bool take_get_options(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *paths,
                             struct get_options *o)
{
    static const char *const words[] = {"INDENT", "NEWLINE", "SPACE", "FORMAT"};
    const char **texts[] = {&o->style.indent, &o->style.newline, &o->style.space};
    size_t *bytes[] = {&o->style.indent_bytes, &o->style.newline_bytes, &o->style.space_bytes};
    *o = (struct get_options){.format = FORMAT_STRING};
    for (uint32_t i = 2; i < n; i++) {
        size_t word = 0;
        while (word < sizeof words / sizeof *words && !arg_is(args[i], words[word]))
            word++;
        if (word == sizeof words / sizeof *words) {
            if (!arg_is(args[i], "NOESCAPE")) /* of version 1 of RedisJSON, without a meaning since */
                paths[o->n_paths++] = i;
            continue;
        }
        if (++i == n) {
            caller_error(c, "ERR wrong number of arguments for 'json.get' command");
            return false;
        }
        if (word == 3) {
            if (!take_format(c, args, i, o))
                return false;
            continue;
        }
        *texts[word] = (const char *)args[i].data;
        *bytes[word] = args[i].bytes;
        o->styled = true;
    }
    return true;
}

/* The values found as an array; NULL without memory. */
static json_t *array_of(const struct jsonpath_matches *found)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < found->n; i++)
        if (json_array_append(array, found->items[i].value) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static void put_tree(struct caller *c, const json_t *value, const struct get_options *o, struct resp_buffer *out)
{
    if (value)
        json_call_put_tree(c, value, o && o->styled ? &o->style : NULL, out);
    else
        resp_error(out, "OOM no memory for the values of paths");
}

/* The values found as one text: an array, or the first one of a legacy path. */
static void put_found(const struct json_call *j, const struct get_options *o, struct resp_buffer *out)
{
    if (!jsonpath_is_legacy(j->path)) {
        json_t *array = array_of(&j->found);
        put_tree(j->caller, array, o, out);
        json_decref(array);
    } else if (j->found.n > 0) {
        put_tree(j->caller, j->found.items[0].value, o, out);
    } else {
        json_call_no_path(j, out);
    }
}

/* A whole document, without a tree. */
static void put_text(const struct json_call *j, const struct value *document, struct resp_buffer *out)
{
    bool legacy = jsonpath_is_legacy(j->path);
    struct quire_error err = {0};
    struct tree_text text = {.data = NULL};
    tree_text_add(&text, "[", legacy ? 0 : 1);
    int rc = tree_unpack_text(document->data, document->bytes, &text, &err);
    tree_text_add(&text, "]", legacy ? 0 : 1);
    if (rc == 0) {
        json_call_put_text(&text, out);
        return;
    }
    resp_quire_error(out, &err);
    tree_text_fini(&text);
}

/* path: its position; 0: none was given. */
static void get_one(struct caller *c, const struct value *text, const struct resp_arg *args, uint32_t path,
                    const struct get_options *o)
{
    struct json_call j;
    struct resp_buffer *out = caller_reply(c);
    if (!json_call_begin(&j, c, args, path))
        return;
    if (jsonpath_is_root(j.path) && !o->styled)
        put_text(&j, text, out);
    else if (json_call_look(&j, text, out))
        put_found(&j, o, out);
    json_call_end(&j);
}

/* Adds what one of several paths leads to. Paths that are all legacy give the first value of each. */
static bool add_found(struct json_call *j, bool legacy, json_t *object, struct resp_buffer *out)
{
    json_t *value;
    if (legacy && j->found.n == 0) {
        json_call_no_path(j, out);
        return false;
    }
    value = legacy ? json_incref(j->found.items[0].value) : array_of(&j->found);
    if (value && json_object_setn_new_nocheck(object, (const char *)j->path_text.data, j->path_text.bytes, value) == 0)
        return true;
    resp_error(out, "OOM no memory for the values of paths");
    return false;
}

static bool are_legacy(struct json_call *j, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!jsonpath_is_legacy(j[i].path))
            return false;
    return true;
}

/* Looks all paths up in one tree; with `object` adds what they lead to, otherwise replies with each. */
static bool find_all(struct json_call *j, uint32_t n, json_t *root, json_t *object, const struct get_options *o,
                     struct resp_buffer *out)
{
    bool legacy = are_legacy(j, n);
    for (uint32_t i = 0; i < n; i++) {
        struct quire_error err = {0};
        if (jsonpath_find(j[i].path, root, &j[i].found, &err) < 0) {
            resp_quire_error(out, &err);
            return false;
        }
        if (object && !add_found(&j[i], legacy, object, out))
            return false;
    }
    if (object)
        return true;
    resp_array(out, n);
    for (uint32_t i = 0; i < n; i++) {
        resp_array(out, j[i].found.n);
        for (size_t k = 0; k < j[i].found.n && !out->failed; k++)
            json_call_put_value(j[i].caller, j[i].found.items[k].value, o->format == FORMAT_EXPAND, out);
    }
    return true;
}

/* Several paths as an object, or values of the protocol. */
static void get_several(struct caller *c, const struct value *text, const struct resp_arg *args, const uint32_t *paths,
                        uint32_t n, const struct get_options *o)
{
    struct resp_buffer *out = caller_reply(c);
    uint32_t n_paths = n > 0 ? n : 1, begun = 0;
    struct json_call *j = calloc(n_paths, sizeof *j);
    json_t *object = o->format == FORMAT_STRING ? json_object() : NULL, *root = NULL;
    bool ok = j && (object || o->format != FORMAT_STRING);
    if (!ok)
        resp_error(out, "OOM no memory for %u paths", n_paths);
    while (ok && begun < n_paths) {
        ok = json_call_begin(&j[begun], c, args, n > 0 ? paths[begun] : 0);
        begun++;
    }
    if (ok) {
        struct quire_error err = {0};
        ok = tree_unpack(text->data, text->bytes, &root, &err) == 0;
        if (!ok)
            resp_quire_error(out, &err);
        ok = ok && find_all(j, n_paths, root, object, o, out);
    }
    if (ok && object)
        put_tree(c, object, o, out);
    json_decref(object);
    json_decref(root);
    for (uint32_t i = 0; i < begun; i++)
        json_call_end(&j[i]);
    free(j);
}

void cmd_json_get(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct get_options o;
    struct value *text;
    uint32_t *paths = malloc(n * sizeof *paths);
    if (!paths) {
        caller_error(c, "OOM no memory for %u paths", n);
        return;
    }
    paths[0] = 0; /* none */
    if (take_get_options(c, args, n, paths, &o) && json_call_text(c, args[1], &text)) {
        if (!text)
            resp_null(caller_reply(c));
        else if (o.n_paths > 1 || o.format != FORMAT_STRING)
            get_several(c, text, args, paths, o.n_paths, &o);
        else
            get_one(c, text, args, paths[0], &o);
        keyspace_value_unref(text);
    }
    free(paths);
}

/* ---- JSON.MGET --------------------------------------------------------------------------------------------------- */

/* References to the documents of keys, all of one moment; NULL: there is none under the key. */
static struct value **take_texts(struct caller *c, const struct resp_arg *keys, uint32_t n)
{
    struct value **texts = calloc(n, sizeof(struct value *));
    struct keyspace_lock lock;
    if (!texts)
        return NULL;
    keyspace_lock_args(&lock, &c->lane->service->keyspace, keys, n, 1);
    for (uint32_t i = 0; i < n; i++) {
        struct key key = keyspace_key(lock.keyspace, keys[i]);
        struct key_entry *entry = keyspace_find(&lock, &key);
        key_count_look_up(c, entry);
        if (entry)
            keyspace_used(&lock, entry);
        if (entry && entry->type == KEY_JSON)
            texts[i] = keyspace_value_ref(entry->string);
    }
    keyspace_unlock(&lock);
    return texts;
}

/* JSON.MGET key [key ...] path */
void cmd_json_mget(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    uint32_t n_keys = n - 2;
    if (!json_call_begin(&j, c, args, n - 1))
        return;
    struct value **texts = take_texts(c, args + 1, n_keys);
    if (texts)
        resp_array(out, n_keys);
    else
        resp_error(out, "OOM no memory for %u keys", n_keys);
    for (uint32_t i = 0; texts && i < n_keys; i++) {
        if (!texts[i]) {
            resp_null(out);
            continue;
        }
        if (jsonpath_is_root(j.path))
            put_text(&j, texts[i], out);
        else if (json_call_look(&j, texts[i], out) && jsonpath_is_legacy(j.path) && j.found.n == 0)
            resp_null(out);
        else if (j.root && j.found.items)
            put_found(&j, NULL, out);
        json_decref(j.root);
        j.root = NULL;
        keyspace_value_unref(texts[i]);
    }
    free(texts);
    json_call_end(&j);
}

/* ---- JSON.RESP --------------------------------------------------------------------------------------------------- */

static void put_resp(json_t *value, struct resp_buffer *out)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        resp_null(out);
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        resp_simple(out, json_is_true(value) ? "true" : "false");
        return;
    case JSON_INTEGER:
        resp_integer(out, json_integer_value(value));
        return;
    case JSON_REAL:
        resp_double(out, json_real_value(value));
        return;
    case JSON_STRING:
        resp_bulk(out, json_string_value(value), json_string_length(value));
        return;
    case JSON_ARRAY:
        resp_array(out, 1 + json_array_size(value));
        resp_simple(out, "[");
        break;
    case JSON_OBJECT:
        resp_array(out, 1 + 2 * json_object_size(value));
        resp_simple(out, "{");
        break;
    }
    for (size_t i = 0; i < json_array_size(value) && !out->failed; i++)
        put_resp(json_array_get(value, i), out);
    for (void *at = json_object_iter(value); at && !out->failed; at = json_object_iter_next(value, at)) {
        resp_bulk(out, json_object_iter_key(at), json_object_iter_key_len(at));
        put_resp(json_object_iter_value(at), out);
    }
}

void cmd_json_resp(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0) && json_call_read(&j, args[1])) {
        bool legacy = jsonpath_is_legacy(j.path);
        if (!j.root)
            resp_null(out);
        else if (legacy && j.found.n == 0)
            json_call_no_path(&j, out);
        else if (legacy)
            put_resp(j.found.items[0].value, out);
        else
            resp_array(out, j.found.n);
        for (size_t i = 0; j.root && !legacy && i < j.found.n && !out->failed; i++)
            put_resp(j.found.items[i].value, out);
    }
    json_call_end(&j);
}
