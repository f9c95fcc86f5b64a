/*
 * strict.c - one pass over the text with a stack of what is open, and a sort of the names of each object as it closes.
 *
 * Invariants
 *  1. nodes[i].next > i, and children lie between a node and its `next`: a walk always ends.
 *  2. order[object.canon .. + object.n] are the nodes of its names in strictly ascending order of their spellings. That
 *     order finds members, finds a name that is there twice, and is the order in which canonical JSON is written.
 *  3. Two strings are equal if and only if their canonical spellings are; most texts are spelled canonically already,
 *     so a spelling is mostly a piece of the text, and nothing is copied.
 *
 * A tree of a library (jansson) would lose the spelling of numbers and the places in the text, both of which are
 * needed. Numbers are only looked at where a value is asked for: vectors have thousands, and so those that follow each
 * other in a list are one node. A list of digits would otherwise take 12 times its size, and milliseconds.
 */
#include "gateway/text/strict_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEPT_NODES = 2048,    /* memory that a reader keeps between two texts: 48 KiB of nodes, ... */
    KEPT_ORDER = 4096,    /* ... 16 KiB of names, ... */
    KEPT_SPELLED = 16384, /* ... 16 KiB of spellings */
    INSERTION_MAX = 24,   /* objects with more names are merge-sorted */
};

struct reading {
    struct strict *json;
    const char *text;
    size_t at, end;
    uint32_t open[STRICT_DEPTH_MAX];
    uint32_t depth, numbers; /* in lists */
    struct quire_error *err;
};

static int no_memory(const struct reading *r)
{
    return error_set(r->err, QUIRE_ENOMEM, "no memory to read a JSON text of %zu bytes", r->end);
}

static int wrong_at(const struct reading *r, size_t at, const char *what)
{
    return error_set(r->err, QUIRE_EPARSE, "the text is no strict JSON: %s at byte %zu", what, at);
}

static void skip_space(struct reading *r)
{
    while (r->at < r->end &&
           (r->text[r->at] == ' ' || r->text[r->at] == '\n' || r->text[r->at] == '\r' || r->text[r->at] == '\t'))
        r->at++;
}

/* There is no room for a node. */
static int no_room(const struct reading *r, size_t at)
{
    const struct strict *json = r->json;
    if (json->nodes_max > 0 && json->n_nodes >= json->nodes_max)
        return error_set(r->err, QUIRE_ELIMIT, "the JSON text has more than %u values at byte %zu", json->nodes_max,
                         at);
    return no_memory(r);
}

/* NULL where there is no room (no_room). Moves all nodes. */
static struct strict_node *add_node(struct reading *r, enum strict_kind kind, size_t at, size_t bytes)
{
    struct strict *json = r->json;
    if (json->n_nodes == json->nodes_capacity &&
        ((json->nodes_max > 0 && json->n_nodes >= json->nodes_max) ||
         !array_reserve_kept(&json->nodes, &json->nodes_capacity, json->n_nodes + 1u,
                             json->nodes_max > 0 ? json->nodes_max : UINT32_MAX)))
        return NULL;
    struct strict_node *node = &json->nodes[json->n_nodes++];
    *node = (struct strict_node){
        .at = (uint32_t)at, .bytes = (uint32_t)bytes, .next = json->n_nodes, .kind = (uint8_t)kind};
    return node;
}

/* ---- names, sorted ---- */

static int compare_names(const struct strict *json, uint32_t a, uint32_t b)
{
    struct strict_text x = strict_spelling(json, a), y = strict_spelling(json, b);
    int order = memcmp(x.data, y.data, x.bytes < y.bytes ? x.bytes : y.bytes);
    return order ? order : (x.bytes > y.bytes) - (x.bytes < y.bytes);
}

static void sort_few(const struct strict *json, uint32_t *names, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t name = names[i], j = i;
        for (; j > 0 && compare_names(json, names[j - 1], name) > 0; j--)
            names[j] = names[j - 1];
        names[j] = name;
    }
}

/* `other` has room for as many. At most 32 levels deep. */
static void sort_names(const struct strict *json, uint32_t *names, uint32_t n, uint32_t *other)
{
    if (n <= INSERTION_MAX) {
        sort_few(json, names, n);
        return;
    }
    uint32_t half = n / 2, i = 0, j = half, k = 0;
    sort_names(json, names, half, other);
    sort_names(json, names + half, n - half, other);
    while (i < half && j < n)
        other[k++] = compare_names(json, names[i], names[j]) <= 0 ? names[i++] : names[j++];
    while (i < half)
        other[k++] = names[i++];
    memcpy(names, other, k * sizeof *names); /* what is left of the second half is in place */
}

static int order_names(struct reading *r, struct strict_node *object)
{
    struct strict *json = r->json;
    uint32_t n = object->n, node = (uint32_t)(object - json->nodes);
    object->canon = json->n_order;
    if (n == 0)
        return 0;
    if (!array_reserve(&json->order, &json->order_capacity, (size_t)json->n_order + 2 * (size_t)n))
        return no_memory(r);
    uint32_t *names = json->order + json->n_order, k = 0;
    for (uint32_t i = strict_begin(node); i < json->n_nodes; i = json->nodes[i + 1].next)
        names[k++] = i;
    assert(k == n);
    sort_names(json, names, n, names + n);
    json->n_order += n;
    for (uint32_t i = 1; i < n; i++)
        if (compare_names(json, names[i - 1], names[i]) == 0)
            return wrong_at(r, json->nodes[names[i] > names[i - 1] ? names[i] : names[i - 1]].at,
                            "a name for the second time in one object");
    return 0;
}

/* ---- values ---- */

static int read_string(struct reading *r)
{
    struct strict *json = r->json;
    struct strict_scan scan;
    size_t at = r->at + 1;
    strict_scan_string(r->text + at, r->end - at, &scan);
    if (scan.wrong)
        return wrong_at(r, at + scan.bytes, scan.wrong);
    struct strict_node *node = add_node(r, STRICT_STRING, at, scan.bytes);
    if (!node)
        return no_room(r, at);
    r->at = at + scan.bytes + 1;
    node->canon = node->at;
    node->n = node->bytes;
    if (!scan.respell)
        return 0;
    if (!array_reserve(&json->spelled, &json->spelled_capacity, (size_t)json->n_spelled + scan.bytes))
        return no_memory(r);
    node->flags = STRICT_SPELLED;
    node->canon = json->n_spelled;
    node->n = (uint32_t)strict_spell(r->text + at, scan.bytes, json->spelled + json->n_spelled);
    json->n_spelled += node->n;
    return 0;
}

/* The number that begins here: its bytes; 0 and *rc: it is none. */
static size_t scan_number(const struct reading *r, int *rc)
{
    const char *wrong = NULL;
    int code = 0;
    size_t bytes = strict_scan_number(r->text + r->at, r->end - r->at, &wrong, &code);
    if (bytes == 0)
        *rc = code == QUIRE_ELIMIT ? error_set(r->err, QUIRE_ELIMIT, "%s at byte %zu", wrong, r->at)
                                   : wrong_at(r, r->at, wrong);
    return bytes;
}

static int read_number(struct reading *r)
{
    int rc = 0;
    size_t bytes = scan_number(r, &rc);
    if (bytes == 0)
        return rc;
    if (!add_node(r, STRICT_NUMBER, r->at, bytes))
        return no_room(r, r->at);
    r->at += bytes;
    return 0;
}

static bool begins_number(const struct reading *r)
{
    return r->at < r->end && (r->text[r->at] == '-' || (r->text[r->at] >= '0' && r->text[r->at] <= '9'));
}

/* Numbers in a list, up to where something else follows. */
static int read_numbers(struct reading *r)
{
    size_t from = r->at, end = from;
    uint32_t n = 0, list = r->open[r->depth - 1], most = 3 * r->json->nodes_max;
    int rc = 0;
    for (bool more = true; more;) {
        size_t bytes = scan_number(r, &rc);
        if (bytes == 0)
            return rc;
        if (++r->numbers > most && most > 0)
            return error_set(r->err, QUIRE_ELIMIT, "the JSON text has more than %u numbers in lists at byte %zu", most,
                             r->at);
        n++;
        end = r->at += bytes;
        skip_space(r);
        more = r->at < r->end && r->text[r->at] == ',';
        r->at += more;
        skip_space(r);
        more = more && begins_number(r);
    }
    struct strict_node *node = add_node(r, STRICT_NUMBERS, from, end - from);
    if (!node)
        return no_room(r, from);
    node->n = n;
    r->json->nodes[list].n += n - 1; /* and one as for every element */
    r->at = end;
    return 0;
}

static int read_word(struct reading *r, const char *word, size_t bytes, enum strict_kind kind)
{
    if (r->end - r->at < bytes || memcmp(r->text + r->at, word, bytes) != 0)
        return wrong_at(r, r->at, "a value is missing");
    if (!add_node(r, kind, r->at, bytes))
        return no_room(r, r->at);
    r->at += bytes;
    return 0;
}

static int read_scalar(struct reading *r)
{
    switch (r->text[r->at]) {
    case '"':
        return read_string(r);
    case 't':
        return read_word(r, "true", 4, STRICT_TRUE);
    case 'f':
        return read_word(r, "false", 5, STRICT_FALSE);
    case 'n':
        return read_word(r, "null", 4, STRICT_NULL);
    default:
        return r->depth > 0 && begins_number(r) && r->json->nodes[r->open[r->depth - 1]].kind == STRICT_LIST
                   ? read_numbers(r)
                   : read_number(r);
    }
}

/* ---- lists and objects ---- */

static int open_node(struct reading *r, enum strict_kind kind)
{
    if (r->depth == STRICT_DEPTH_MAX)
        return error_set(r->err, QUIRE_ELIMIT, "the JSON text has more than %d levels at byte %zu", STRICT_DEPTH_MAX,
                         r->at);
    if (!add_node(r, kind, r->at, 0))
        return no_room(r, r->at);
    r->open[r->depth++] = r->json->n_nodes - 1;
    r->at++;
    return 0;
}

static int close_node(struct reading *r)
{
    struct strict_node *node = &r->json->nodes[r->open[--r->depth]];
    r->at++;
    node->bytes = (uint32_t)r->at - node->at;
    node->next = r->json->n_nodes;
    return node->kind == STRICT_OBJECT ? order_names(r, node) : 0;
}

static int read_name(struct reading *r)
{
    skip_space(r);
    if (r->at == r->end || r->text[r->at] != '"')
        return wrong_at(r, r->at, "a name is missing");
    int rc = read_string(r);
    if (rc < 0)
        return rc;
    skip_space(r);
    if (r->at == r->end || r->text[r->at] != ':')
        return wrong_at(r, r->at, "a colon is missing");
    r->at++;
    return 0;
}

/* Behind a value: closes what ends here, up to where the next value begins (*more), or the whole text is read. */
static int go_on(struct reading *r, bool *more)
{
    *more = false;
    while (r->depth > 0) {
        struct strict_node *in = &r->json->nodes[r->open[r->depth - 1]];
        bool object = in->kind == STRICT_OBJECT;
        in->n++;
        skip_space(r);
        char c = r->at < r->end ? r->text[r->at] : 0;
        if (c == ',') {
            r->at++;
            *more = true;
            return object ? read_name(r) : 0;
        }
        if (c != (object ? '}' : ']'))
            return wrong_at(r, r->at, object ? "a comma or } is missing" : "a comma or ] is missing");
        int rc = close_node(r);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One value, or the beginning of one that holds others. *whole: it is complete. */
static int read_value(struct reading *r, bool *whole)
{
    skip_space(r);
    *whole = true;
    if (r->at == r->end)
        return wrong_at(r, r->at, "a value is missing");
    bool object = r->text[r->at] == '{';
    if (!object && r->text[r->at] != '[')
        return read_scalar(r);
    int rc = open_node(r, object ? STRICT_OBJECT : STRICT_LIST);
    if (rc < 0)
        return rc;
    skip_space(r);
    if (r->at < r->end && r->text[r->at] == (object ? '}' : ']'))
        return close_node(r);
    *whole = false;
    return object ? read_name(r) : 0;
}

static int read_all(struct reading *r)
{
    bool whole = false, more = true;
    int rc = 0;
    while (rc == 0 && more) {
        rc = read_value(r, &whole);
        if (rc == 0 && whole)
            rc = go_on(r, &more);
    }
    if (rc < 0)
        return rc;
    assert(r->depth == 0 && r->json->nodes[STRICT_ROOT].next == r->json->n_nodes);
    skip_space(r);
    return r->at == r->end ? 0 : wrong_at(r, r->at, "something follows the value");
}

/* Memory that one large text has taken is not kept for the small ones that follow. */
static void give_back(struct strict *json)
{
    if (json->nodes_capacity > KEPT_NODES) {
        free(json->nodes);
        json->nodes = NULL;
        json->nodes_capacity = 0;
    }
    if (json->order_capacity > KEPT_ORDER) {
        free(json->order);
        json->order = NULL;
        json->order_capacity = 0;
    }
    if (json->spelled_capacity > KEPT_SPELLED) {
        free(json->spelled);
        json->spelled = NULL;
        json->spelled_capacity = 0;
    }
}

int strict_read(struct strict *json, const char *text, size_t bytes, struct quire_error *err)
{
    struct reading r = {.json = json, .text = text, .end = bytes, .err = err};
    if (bytes > STRICT_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "the JSON text has %zu bytes, at most %u are read", bytes,
                         STRICT_BYTES_MAX);
    give_back(json);
    json->text = text;
    json->text_bytes = bytes;
    json->n_nodes = json->n_order = json->n_spelled = 0;
    return read_all(&r);
}

void strict_fini(struct strict *json)
{
    free(json->nodes);
    free(json->order);
    free(json->spelled);
    *json = (struct strict){0};
}

/* ---- questions ---- */

struct strict_text strict_spelling(const struct strict *json, uint32_t node)
{
    const struct strict_node *s = &json->nodes[node];
    assert(s->kind == STRICT_STRING);
    return (struct strict_text){(s->flags & STRICT_SPELLED ? json->spelled : json->text) + s->canon, s->n};
}

uint32_t strict_member(const struct strict *json, uint32_t object, const char *name)
{
    const struct strict_node *in = &json->nodes[object];
    size_t bytes = strlen(name);
    uint32_t low = 0, high = in->kind == STRICT_OBJECT ? in->n : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, node = json->order[in->canon + middle];
        struct strict_text spelling = strict_spelling(json, node);
        int order = memcmp(spelling.data, name, spelling.bytes < bytes ? spelling.bytes : bytes);
        if (order == 0)
            order = (spelling.bytes > bytes) - (spelling.bytes < bytes);
        if (order == 0)
            return node + 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

uint32_t strict_given(const struct strict *json, uint32_t object, const char *name)
{
    uint32_t node = strict_member(json, object, name);
    return node && json->nodes[node].kind != STRICT_NULL ? node : 0;
}

bool strict_is(const struct strict *json, uint32_t node, const char *plain)
{
    if (json->nodes[node].kind != STRICT_STRING)
        return false;
    struct strict_text spelling = strict_spelling(json, node);
    return spelling.bytes == strlen(plain) && memcmp(spelling.data, plain, spelling.bytes) == 0;
}

double strict_number_double(const char *spelled, size_t bytes)
{
    enum { DIGITS_MAX = 40 }; /* more than a double tells apart by what is asked of it */
    char text[DIGITS_MAX + 40];
    struct strict_number number;
    strict_number(spelled, bytes, &number);
    size_t n = 0, digits = number.first_bytes + number.second_bytes, used = digits < DIGITS_MAX ? digits : DIGITS_MAX;
    long long exponent = number.tail_bytes ? strtoll(number.tail + 1, NULL, 10) : 0;
    text[n++] = number.negative ? '-' : '+';
    for (size_t i = 0; i < used; i++)
        text[n++] = i < number.first_bytes ? number.first[i] : number.second[i - number.first_bytes];
    snprintf(text + n, sizeof text - n, "e%lld", exponent + (long long)(digits - used));
    return strtod(text, NULL);
}

double strict_double(const struct strict *json, uint32_t node)
{
    const struct strict_node *s = &json->nodes[node];
    return s->kind == STRICT_NUMBER ? strict_number_double(json->text + s->at, s->bytes) : NAN;
}

struct strict_text strict_numbers(const struct strict *json, uint32_t node, uint32_t *at)
{
    const struct strict_node *numbers = &json->nodes[node];
    const char *text = json->text + numbers->at;
    uint32_t begin = *at, end = numbers->bytes;
    assert(numbers->kind == STRICT_NUMBERS);
    while (begin < end && strict_parts_numbers(text[begin]))
        begin++;
    uint32_t behind = begin;
    while (behind < end && !strict_parts_numbers(text[behind]))
        behind++;
    *at = behind;
    return (struct strict_text){begin < end ? text + begin : NULL, behind - begin};
}

bool strict_whole(const struct strict *json, uint32_t node, uint64_t max, uint64_t *value)
{
    const struct strict_node *s = &json->nodes[node];
    struct strict_number number;
    uint64_t x = 0;
    if (s->kind != STRICT_NUMBER)
        return false;
    strict_number(json->text + s->at, s->bytes, &number);
    long long exponent = number.tail_bytes ? strtoll(number.tail + 1, NULL, 10) : 0;
    size_t digits = number.first_bytes + number.second_bytes;
    if (number.negative || exponent < 0 || exponent > 19 || digits > 20)
        return false;
    for (size_t i = 0; i < digits + (size_t)exponent; i++) {
        char c = i < number.first_bytes ? number.first[i] : i < digits ? number.second[i - number.first_bytes] : '0';
        if (__builtin_mul_overflow(x, 10u, &x) || __builtin_add_overflow(x, (uint64_t)(c - '0'), &x))
            return false;
    }
    if (x > max)
        return false;
    *value = x;
    return true;
}
