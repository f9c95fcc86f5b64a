/*
 * cmd_json_edit.c - changes to numbers, booleans, strings and arrays inside of documents.
 *
 * Each command changes those of the values that its path leads to which have its type, and replies with a list: what
 * came of each, null for the others. Of a legacy path it replies with what came of the last one, and with an error
 * where there is none. A command changes all or, after an error, nothing.
 */
#include "io/error.h"
#include "server/json/cmd_jsons.h"
#include "server/json/json_call.h"
#include "server/process/config.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum json_outcome failed(struct json_call *j, const struct quire_error *err)
{
    resp_buffer_fini(&j->reply);
    resp_quire_error(&j->reply, err);
    return JSON_UNCHANGED;
}

static enum json_outcome no_key(struct json_call *j)
{
    json_call_no_key(&j->reply);
    return JSON_UNCHANGED;
}

/* The fresh value, whose reference is taken over (NULL: no memory), in the place. */
static int put(struct json_call *j, size_t i, json_t *fresh, struct quire_error *err)
{
    int rc = fresh ? edit_set(&j->root, &j->found.items[i], fresh, err)
                   : error_set(err, QUIRE_ENOMEM, "no memory to change a document");
    json_decref(fresh);
    return rc;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct arithmetic {
    json_t *operand;
    bool multiplies;
};

/* Integers stay integers. A new value; NULL with *rc 0: no memory. */
static json_t *compute(const json_t *number, const struct arithmetic *a, int *rc, struct quire_error *err)
{
    json_int_t x = json_integer_value(number), y = json_integer_value(a->operand), z;
    if (json_is_integer(number) && json_is_integer(a->operand)) {
        if (a->multiplies ? __builtin_mul_overflow(x, y, &z) : __builtin_add_overflow(x, y, &z)) {
            *rc = error_set(err, QUIRE_ERANGE,
                            "numeric overflow: integers of a document have 64 bits; write 1.0 for a real number");
            return NULL;
        }
        return json_integer(z);
    }
    double u = json_number_value(number), v = json_number_value(a->operand), w = a->multiplies ? u * v : u + v;
    if (isfinite(w))
        return json_real(w);
    *rc = error_set(err, QUIRE_ERANGE, "result is not a number");
    return NULL;
}

static void put_number(const json_t *number, struct resp_buffer *out)
{
    if (!number)
        resp_null(out);
    else if (json_is_integer(number))
        resp_integer(out, json_integer_value(number));
    else
        resp_double(out, json_real_value(number));
}

/* Results: an array with null for what is no number. RESP2 has it as text. */
static void reply_numbers(struct json_call *j, json_t *results, const json_t *last)
{
    struct resp_buffer *out = &j->reply;
    if (out->protocol == 3) {
        resp_array(out, json_array_size(results));
        for (size_t i = 0; i < json_array_size(results) && !out->failed; i++) {
            json_t *result = json_array_get(results, i);
            put_number(json_is_null(result) ? NULL : result, out);
        }
    } else if (!jsonpath_is_legacy(j->path)) {
        json_call_put_tree(j->caller, results, NULL, out);
    } else if (last) {
        json_call_put_tree(j->caller, last, NULL, out);
    } else {
        json_call_no_path_or(j, "does not contains a number", out);
    }
}

static enum json_outcome edit_number(struct json_call *j, void *context)
{
    const struct arithmetic *a = context;
    struct quire_error err = {0};
    json_t *results = j->root ? json_array() : NULL, *last = NULL;
    int rc = 0;
    if (!j->root)
        return no_key(j);
    for (size_t i = 0; i < j->found.n && rc == 0; i++) {
        const json_t *number = edit_get(j->root, &j->found.items[i]);
        json_t *fresh = json_is_number(number) ? compute(number, a, &rc, &err) : json_null();
        if (rc == 0 && (!results || !fresh || json_array_append(results, fresh) < 0))
            rc = error_set(&err, QUIRE_ENOMEM, "no memory for %zu numbers", j->found.n);
        if (rc == 0 && json_is_number(fresh)) {
            last = fresh;
            rc = put(j, i, json_incref(fresh), &err);
        }
        json_decref(fresh);
    }
    enum json_outcome outcome = last ? JSON_CHANGED : JSON_UNCHANGED;
    if (rc < 0)
        outcome = failed(j, &err);
    else
        reply_numbers(j, results, last);
    json_decref(results);
    return outcome;
}

static void change_number(struct caller *c, const struct resp_arg *args, bool multiplies)
{
    struct arithmetic a = {.multiplies = multiplies};
    struct json_call j;
    if (json_call_begin(&j, c, args, 2) && (a.operand = json_call_argument(args, 3, caller_reply(c)))) {
        if (json_is_number(a.operand))
            json_call_write(&j, args[1], edit_number, &a);
        else
            caller_error(c, "ERR bad input number ('%.*s' at position 3)", ARG_SHOWN(args[3], 64u));
    }
    json_decref(a.operand);
    json_call_end(&j);
}

/* JSON.NUMINCRBY key path number */
void cmd_json_numincrby(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    change_number(c, args, false);
}

/* JSON.NUMMULTBY key path number */
void cmd_json_nummultby(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    change_number(c, args, true);
}

/* ---- JSON.TOGGLE ------------------------------------------------------------------------------------------------- */

static enum json_outcome edit_toggle(struct json_call *j, void *context)
{
    struct quire_error err = {0};
    bool legacy = jsonpath_is_legacy(j->path), any = false, last = false;
    int rc = 0;
    (void)context;
    if (!j->root)
        return no_key(j);
    if (!legacy)
        resp_array(&j->reply, j->found.n);
    for (size_t i = 0; i < j->found.n && rc == 0; i++) {
        const json_t *value = edit_get(j->root, &j->found.items[i]);
        if (!json_is_boolean(value)) {
            if (!legacy)
                resp_null(&j->reply);
            continue;
        }
        any = true;
        last = !json_is_true(value);
        if (!legacy)
            resp_integer(&j->reply, last);
        rc = put(j, i, json_boolean(last), &err);
    }
    if (rc < 0)
        return failed(j, &err);
    if (legacy && any)
        resp_text(&j->reply, last ? "true" : "false");
    else if (legacy)
        json_call_no_path_or(j, "not a bool", &j->reply);
    return any ? JSON_CHANGED : JSON_UNCHANGED;
}

/* JSON.TOGGLE key path */
void cmd_json_toggle(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct json_call j;
    (void)n;
    if (json_call_begin(&j, c, args, 2))
        json_call_write(&j, args[1], edit_toggle, NULL);
    json_call_end(&j);
}

/* ---- lengths that edits reply with ------------------------------------------------------------------------------- */

enum { NO_LENGTH = -1 };

/* The new length of each value, in the order in which they were found; NULL without memory. */
static long long *make_lengths(size_t n)
{
    long long *lengths = malloc((n + 1) * sizeof *lengths);
    for (size_t i = 0; lengths && i < n; i++)
        lengths[i] = NO_LENGTH;
    return lengths;
}

static enum json_outcome reply_lengths(struct json_call *j, const long long *lengths, size_t n, const char *what)
{
    assert(n == j->found.n);
    long long last = NO_LENGTH; /* the one that a legacy path replies with */
    for (size_t i = 0; i < n; i++)
        last = lengths[i] != NO_LENGTH ? lengths[i] : last;
    bool any = last != NO_LENGTH;
    if (!jsonpath_is_legacy(j->path)) {
        resp_array(&j->reply, n);
        for (size_t i = 0; i < n && !j->reply.failed; i++)
            if (lengths[i] == NO_LENGTH)
                resp_null(&j->reply);
            else
                resp_integer(&j->reply, lengths[i]);
    } else if (any) {
        resp_integer(&j->reply, last);
    } else {
        json_call_no_path_or(j, what, &j->reply);
    }
    return any ? JSON_CHANGED : JSON_UNCHANGED;
}

/* ---- JSON.STRAPPEND ---------------------------------------------------------------------------------------------- */

/* The string with more behind it. NULL without memory. */
static json_t *extended(const json_t *string, const json_t *more)
{
    size_t n = json_string_length(string), m = json_string_length(more);
    char *text = malloc(n + m + 1);
    if (!text)
        return NULL;
    memcpy(text, json_string_value(string), n);
    memcpy(text + n, json_string_value(more), m + 1);
    json_t *fresh = json_stringn_nocheck(text, n + m);
    free(text);
    return fresh;
}

static enum json_outcome edit_string(struct json_call *j, void *context)
{
    const json_t *more = context;
    struct quire_error err = {0};
    uint64_t most = j->caller->lane->service->config->bulk_max;
    size_t n = j->found.n;
    long long *lengths = make_lengths(n);
    int rc = lengths ? 0 : error_set(&err, QUIRE_ENOMEM, "no memory for %zu lengths", n);
    if (rc == 0 && n > 0 && json_string_length(more) > most / n)
        rc = error_set(&err, QUIRE_ELIMIT, "%zu bytes at each of %zu places are more than proto-max-bulk-len allows",
                       json_string_length(more), n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *string = edit_get(j->root, &j->found.items[i]);
        if (!json_is_string(string))
            continue;
        lengths[i] = (long long)(json_string_length(string) + json_string_length(more));
        rc = put(j, i, extended(string, more), &err);
    }
    enum json_outcome outcome = rc < 0    ? failed(j, &err)
                                : j->root ? reply_lengths(j, lengths, n, "not a string")
                                          : no_key(j);
    free(lengths);
    return outcome;
}

/* JSON.STRAPPEND key [path] string */
void cmd_json_strappend(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    json_t *more = NULL;
    struct json_call j;
    if (!json_call_fits(c, n, 4))
        return;
    if (json_call_begin(&j, c, args, n > 3 ? 2 : 0) && (more = json_call_argument(args, n - 1, caller_reply(c)))) {
        if (json_is_string(more))
            json_call_write(&j, args[1], edit_string, more);
        else
            json_call_expected("string", more, caller_reply(c));
    }
    json_decref(more);
    json_call_end(&j);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

struct array_edit {
    int (*apply)(json_t *array, const struct array_edit *e, struct quire_error *err);
    json_t **values; /* to append or insert; references */
    uint32_t n_values;
    bool at_end;
    long long index, stop;
};

/* Of all arrays that were found, the deeper and the later first. */
static enum json_outcome edit_arrays(struct json_call *j, void *context)
{
    const struct array_edit *e = context;
    struct quire_error err = {0};
    size_t n = j->found.n;
    long long *lengths = make_lengths(n);
    int rc = lengths ? 0 : error_set(&err, QUIRE_ENOMEM, "no memory for %zu lengths", n);
    if (rc == 0 && n > 0 && e->n_values > TREE_VALUES_MAX / n)
        rc = error_set(&err, QUIRE_ELIMIT, "%u values in each of %zu places are more than %u", e->n_values, n,
                       TREE_VALUES_MAX);
    if (rc == 0)
        rc = edit_plan(&j->found, false, &j->plan, &err);
    for (size_t i = 0; i < j->plan.n && rc == 0; i++) {
        size_t at = j->plan.items[i];
        json_t *array = edit_get(j->root, &j->found.items[at]);
        if (!json_is_array(array))
            continue;
        rc = e->apply(array, e, &err);
        lengths[at] = (long long)json_array_size(array);
    }
    enum json_outcome outcome = rc < 0    ? failed(j, &err)
                                : j->root ? reply_lengths(j, lengths, n, "not an array")
                                          : no_key(j);
    free(lengths);
    return outcome;
}

static int insert_values(json_t *array, const struct array_edit *e, struct quire_error *err)
{
    long long n = (long long)json_array_size(array), at = e->at_end ? n : e->index < 0 ? e->index + n : e->index;
    if (at < 0 || at > n)
        return error_set(err, QUIRE_ERANGE, "index out of bounds");
    /* one after the other from the end of an array; in its middle each insertion moves what is behind */
    json_t *tail = at < n ? json_array() : NULL;
    int rc = at < n && !tail ? -1 : 0;
    for (long long i = at; i < n && rc == 0; i++)
        rc = json_array_append(tail, json_array_get(array, (size_t)i));
    for (long long i = n; i > at && rc == 0; i--)
        rc = json_array_remove(array, (size_t)i - 1);
    for (uint32_t i = 0; i < e->n_values && rc == 0; i++)
        rc = json_array_append(array, e->values[i]);
    rc = rc == 0 && tail ? json_array_extend(array, tail) : rc;
    json_decref(tail);
    return rc == 0 ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the elements of an array");
}

static long long normalize(long long index, long long n)
{
    if (index < 0)
        return index < -n ? 0 : n + index;
    return index < n ? index : n > 0 ? n - 1 : 0;
}

static int trim(json_t *array, const struct array_edit *e, struct quire_error *err)
{
    long long n = (long long)json_array_size(array), stop = normalize(e->stop, n);
    long long start = e->index >= n ? stop + 1 : normalize(e->index, n);
    json_t *kept = json_array();
    int rc = kept ? 0 : -1;
    for (long long i = start; i <= stop && i < n && rc == 0; i++)
        rc = json_array_append(kept, json_array_get(array, (size_t)i));
    if (rc == 0)
        rc = json_array_clear(array);
    if (rc == 0)
        rc = json_array_extend(array, kept);
    json_decref(kept);
    return rc == 0 ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the elements of an array");
}

/* With values from args[first] on. */
static void change_arrays(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t first,
                          struct array_edit *e)
{
    struct json_call j;
    bool ok = json_call_begin(&j, c, args, 2);
    assert(e->n_values == 0);
    e->values = calloc(n, sizeof *e->values);
    if (ok && !e->values) {
        caller_error(c, "OOM no memory for %u values", n);
        ok = false;
    }
    for (uint32_t i = first; i < n && ok; i++) {
        ok = (e->values[e->n_values] = json_call_argument(args, i, caller_reply(c))) != NULL;
        e->n_values += ok;
    }
    if (ok)
        json_call_write(&j, args[1], edit_arrays, e);
    assert(e->values || e->n_values == 0);
    for (uint32_t i = 0; i < e->n_values; i++)
        json_decref(e->values[i]);
    free(e->values);
    json_call_end(&j);
}

/* JSON.ARRAPPEND key path value [value ...] */
void cmd_json_arrappend(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    change_arrays(c, args, n, 3, &(struct array_edit){.apply = insert_values, .at_end = true});
}

/* JSON.ARRINSERT key path index value [value ...] */
void cmd_json_arrinsert(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct array_edit e = {.apply = insert_values};
    if (json_call_integer(c, args, 3, &e.index))
        change_arrays(c, args, n, 4, &e);
}

/* JSON.ARRTRIM key path start stop */
void cmd_json_arrtrim(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct array_edit e = {.apply = trim};
    if (json_call_integer(c, args, 3, &e.index) && json_call_integer(c, args, 4, &e.stop))
        change_arrays(c, args, n, n, &e);
}

/* ---- JSON.ARRPOP ------------------------------------------------------------------------------------------------- */

struct popping {
    long long index;
    bool as_values, expand; /* FORMAT EXPAND1, EXPAND */
};

/* Takes an element out; its reference is the caller's. NULL where there is none. */
static json_t *pop(json_t *array, long long index)
{
    long long n = (long long)json_array_size(array);
    if (n == 0)
        return NULL;
    size_t at = (size_t)normalize(index, n);
    json_t *element = json_incref(json_array_get(array, at));
    json_array_remove(array, at);
    return element;
}

static void put_popped(struct json_call *j, json_t *element, const struct popping *p)
{
    if (!element)
        resp_null(&j->reply);
    else if (p->as_values)
        json_call_put_value(j->caller, element, p->expand, &j->reply);
    else
        json_call_put_tree(j->caller, element, NULL, &j->reply);
}

static enum json_outcome edit_pop(struct json_call *j, void *context)
{
    const struct popping *p = context;
    struct quire_error err = {0};
    bool any = false, legacy = jsonpath_is_legacy(j->path);
    size_t last = SIZE_MAX; /* the array that a legacy path replies with */
    json_t **popped = calloc(j->found.n + 1, sizeof(json_t *));
    int rc = popped ? 0 : error_set(&err, QUIRE_ENOMEM, "no memory for %zu elements", j->found.n);
    if (rc == 0)
        rc = edit_plan(&j->found, false, &j->plan, &err);
    for (size_t i = 0; i < j->plan.n && rc == 0; i++) {
        size_t at = j->plan.items[i];
        json_t *array = edit_get(j->root, &j->found.items[at]);
        if (!json_is_array(array))
            continue;
        last = last == SIZE_MAX || at > last ? at : last;
        popped[at] = pop(array, p->index);
        any = any || popped[at];
    }
    if (rc == 0 && j->root && !legacy)
        resp_array(&j->reply, j->found.n);
    for (size_t i = 0; i < j->found.n && rc == 0 && !legacy; i++)
        put_popped(j, popped[i], p);
    if (rc == 0 && !j->root)
        json_call_no_key(&j->reply);
    else if (rc == 0 && legacy && last != SIZE_MAX)
        put_popped(j, popped[last], p);
    else if (rc == 0 && legacy)
        json_call_no_path_or(j, "not an array", &j->reply);
    for (size_t i = 0; popped && i < j->found.n; i++)
        json_decref(popped[i]);
    free(popped);
    return rc < 0 ? failed(j, &err) : any ? JSON_CHANGED : JSON_UNCHANGED;
}

static bool take_pop_format(struct caller *c, struct resp_arg word, struct popping *p)
{
    p->expand = arg_is(word, "EXPAND");
    p->as_values = p->expand || arg_is(word, "EXPAND1");
    if (!p->as_values && !arg_is(word, "STRINGS")) {
        caller_error(c, "ERR wrong reply format ('%.*s' at position 3)", ARG_SHOWN(word, 64u));
        return false;
    }
    if (c->protocol == 3)
        return true;
    caller_error(c, "ERR FORMAT argument is not supported on RESP2 (position 2)");
    return false;
}

/* JSON.ARRPOP key [FORMAT STRINGS|EXPAND1|EXPAND] [path [index]] */
void cmd_json_arrpop(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct popping p = {.index = -1};
    struct json_call j;
    bool formatted = n > 3 && arg_is(args[2], "FORMAT");
    uint32_t at = formatted ? 4 : 2; /* of the path */
    if (formatted && !take_pop_format(c, args[3], &p))
        return;
    if (!json_call_fits(c, n, at + 2))
        return;
    if (n > at + 1 && !json_call_integer(c, args, at + 1, &p.index))
        return;
    if (json_call_begin(&j, c, args, n > at ? at : 0)) {
        if (p.as_values && jsonpath_is_legacy(j.path))
            caller_error(c, "ERR Legacy paths are supported only with FORMAT STRINGS (position 3)");
        else
            json_call_write(&j, args[1], edit_pop, &p);
    }
    json_call_end(&j);
}
