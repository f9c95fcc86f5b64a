/*
 * cmd_json_look.c - what a document says of itself: types, lengths, names, places, memory.
 *
 * Each command replies with a list, an item for each value that its path leads to, null where the value has not the
 * type that it is about; of a legacy path with the item of the first value, or an error.
 */
#include "server/json/cmd_jsons.h"
#include "server/json/json_call.h"

/* Writes the item of a value; false where it has not the type. */
typedef bool put_item(json_t *value, void *context, struct resp_buffer *out);

static void put_items(const struct json_call *j, put_item *put, void *context, struct resp_buffer *out)
{
    resp_array(out, j->found.n);
    for (size_t i = 0; i < j->found.n && !out->failed; i++)
        if (!put(j->found.items[i].value, context, out))
            resp_null(out);
}

/* Reads the document and finds; false after an error reply, and where there is no such key: null for a legacy path, an
 * error otherwise. */
static bool find(struct json_call *j, struct caller *c, struct resp_arg key)
{
    if (!json_call_read(j, key))
        return false;
    if (j->root)
        return true;
    if (jsonpath_is_legacy(j->path))
        resp_null(caller_reply(c));
    else
        json_call_no_key(caller_reply(c));
    return false;
}

/* ---- JSON.TYPE --------------------------------------------------------------------------------------------------- */

static bool put_type(json_t *value, void *context, struct resp_buffer *out)
{
    (void)context;
    resp_text(out, tree_type_name(value));
    return true;
}

void cmd_json_type(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0) && json_call_read(&j, args[1])) {
        if (c->protocol == 3)
            resp_array(out, 1);
        if (!j.root || (jsonpath_is_legacy(j.path) && j.found.n == 0))
            resp_null(out);
        else if (jsonpath_is_legacy(j.path))
            put_type(j.found.items[0].value, NULL, out);
        else
            put_items(&j, put_type, NULL, out);
    }
    json_call_end(&j);
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

static bool put_string_length(json_t *value, void *context, struct resp_buffer *out)
{
    (void)context;
    if (json_is_string(value))
        resp_integer(out, (long long)json_string_length(value));
    return json_is_string(value);
}

void cmd_json_strlen(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0) && find(&j, c, args[1])) {
        if (!jsonpath_is_legacy(j.path))
            put_items(&j, put_string_length, NULL, out);
        else if (j.found.n == 0)
            json_call_no_path(&j, out);
        else if (!put_string_length(j.found.items[0].value, NULL, out))
            json_call_expected("string", j.found.items[0].value, out);
    }
    json_call_end(&j);
}

static bool put_array_length(json_t *value, void *context, struct resp_buffer *out)
{
    (void)context;
    if (json_is_array(value))
        resp_integer(out, (long long)json_array_size(value));
    return json_is_array(value);
}

void cmd_json_arrlen(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0) && find(&j, c, args[1])) {
        if (!jsonpath_is_legacy(j.path))
            put_items(&j, put_array_length, NULL, out);
        else if (j.found.n == 0)
            json_call_no_path(&j, out);
        else if (!put_array_length(j.found.items[0].value, NULL, out))
            json_call_no_path_or(&j, "not an array", out);
    }
    json_call_end(&j);
}

static bool put_object_length(json_t *value, void *context, struct resp_buffer *out)
{
    (void)context;
    if (json_is_object(value))
        resp_integer(out, (long long)json_object_size(value));
    return json_is_object(value);
}

void cmd_json_objlen(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0) && json_call_read(&j, args[1])) {
        if (!j.root && !jsonpath_is_legacy(j.path))
            json_call_no_path_or(&j, "not an object", out);
        else if (!jsonpath_is_legacy(j.path))
            put_items(&j, put_object_length, NULL, out);
        else if (!j.root || j.found.n == 0)
            resp_null(out);
        else if (!put_object_length(j.found.items[0].value, NULL, out))
            json_call_expected("object", j.found.items[0].value, out);
    }
    json_call_end(&j);
}

static bool put_names(json_t *value, void *context, struct resp_buffer *out)
{
    (void)context;
    if (!json_is_object(value))
        return false;
    resp_array(out, json_object_size(value));
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
        resp_bulk(out, json_object_iter_key(at), json_object_iter_key_len(at));
    return true;
}

void cmd_json_objkeys(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 3))
        return;
    if (json_call_begin(&j, c, args, n > 2 ? 2 : 0) && find(&j, c, args[1])) {
        if (!jsonpath_is_legacy(j.path))
            put_items(&j, put_names, NULL, out);
        else if (j.found.n == 0)
            resp_null(out);
        else if (!put_names(j.found.items[0].value, NULL, out))
            json_call_no_path_or(&j, "not an object", out);
    }
    json_call_end(&j);
}

/* ---- JSON.ARRINDEX ----------------------------------------------------------------------------------------------- */

struct wanted {
    json_t *value;
    long long start, stop; /* stop 0: the end */
};

static long long clamp(long long x, long long least, long long most)
{
    return x < least ? least : x > most ? most : x;
}

static bool put_index(json_t *array, void *context, struct resp_buffer *out)
{
    const struct wanted *w = context;
    long long n = (long long)json_array_size(array), start, stop;
    if (!json_is_array(array))
        return false;
    start = clamp(w->start < 0 ? w->start + n : w->start, 0, n > 0 ? n - 1 : 0);
    stop = w->stop == 0 ? n : clamp(w->stop < 0 ? w->stop + n : w->stop, 0, n);
    while (start < stop && !json_equal(json_array_get(array, (size_t)start), w->value))
        start++;
    resp_integer(out, start < stop ? start : -1);
    return true;
}

/* JSON.ARRINDEX key path value [start [stop]] */
void cmd_json_arrindex(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct wanted w = {.value = NULL};
    struct json_call j;
    if (!json_call_fits(c, n, 6))
        return;
    if ((n > 4 && !json_call_integer(c, args, 4, &w.start)) || (n > 5 && !json_call_integer(c, args, 5, &w.stop)))
        return;
    if (json_call_begin(&j, c, args, 2) && (w.value = json_call_argument(args, 3, out)) &&
        json_call_read(&j, args[1])) {
        if (!j.root)
            json_call_no_path(&j, out);
        else if (!jsonpath_is_legacy(j.path))
            put_items(&j, put_index, &w, out);
        else if (j.found.n == 0)
            json_call_no_path(&j, out);
        else if (!put_index(j.found.items[0].value, &w, out))
            json_call_expected("array", j.found.items[0].value, out);
    }
    json_decref(w.value);
    json_call_end(&j);
}

/* ---- JSON.DEBUG MEMORY ------------------------------------------------------------------------------------------- */

static bool put_memory(json_t *value, void *context, struct resp_buffer *out)
{
    (void)context;
    resp_integer(out, (long long)tree_memory_bytes(value));
    return true;
}

void cmd_json_debug_memory(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer *out = caller_reply(c);
    struct json_call j;
    if (!json_call_fits(c, n, 4))
        return;
    if (json_call_begin(&j, c, args, n > 3 ? 3 : 0) && json_call_read(&j, args[2])) {
        if (!j.root && jsonpath_is_legacy(j.path))
            resp_integer(out, 0);
        else if (!jsonpath_is_legacy(j.path))
            put_items(&j, put_memory, NULL, out);
        else if (j.found.n == 0)
            json_call_no_path(&j, out);
        else
            put_memory(j.found.items[0].value, NULL, out);
    }
    json_call_end(&j);
}
