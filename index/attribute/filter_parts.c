/*
 * filter_parts.c - a program as a tree of parts that sets of rows can be made for.
 *
 * and, or and not of values that are no more than true or false are set operations; everything below them is a leaf:
 * one field is a TEST, several are MIXED. A chain of one operator becomes a balanced tree, so that whoever walks it may
 * recurse. Constants disappear.
 *
 * Which values make a TEST true is found in advance where it can be: of numbers as intervals, of strings as a list
 * (filter.h says why these two are apart). Tests of one field that are joined become one TEST if nothing of that is
 * lost: .x > 1 and .x < 5 is one interval, .x == "a" or .x == "b" one list; .x > 1 and .x % 2 == 0 stays two, because
 * the first half is known and the second is not. The texts and intervals of a subtree lie side by side, hence a join
 * works in place, on what was added since the subtree began.
 *
 * Not of a test is the other rows, among those that have the field: a field of a TEST is always required.
 */
#include "index/attribute/filter_priv.h"
#include "index/format/format.h"
#include "io/array.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct maker {
    struct filter *filter;
    uint32_t *chain; /* operands of the chains that are being joined, one chain behind the other */
    uint32_t n_chain;
    bool no_memory;
};

/* How much there is, so that what a subtree added can be joined or dropped. */
struct mark {
    uint32_t parts, texts, intervals;
};

static struct mark mark_here(const struct filter *f)
{
    return (struct mark){.parts = f->n_parts, .texts = f->n_texts, .intervals = f->n_intervals};
}

static void go_back(struct filter *f, struct mark mark)
{
    f->n_parts = mark.parts;
    f->n_texts = mark.texts;
    f->n_intervals = mark.intervals;
}

static struct filter_part *add_part(struct filter *f, enum filter_part_kind kind)
{
    assert(f->n_parts < 2 * f->n_nodes);
    struct filter_part *part = &f->parts[f->n_parts++];
    *part = (struct filter_part){.kind = kind, .first_text = f->n_texts, .first_interval = f->n_intervals};
    return part;
}

/* ---- intervals --------------------------------------------------------------------------------------------------- */

static void add_interval(struct maker *m, struct filter_interval interval)
{
    struct filter *f = m->filter;
    if (array_reserve(&f->intervals, &f->intervals_capacity, f->n_intervals + 1u))
        f->intervals[f->n_intervals++] = interval;
    else
        m->no_memory = true;
}

static void add_point(struct maker *m, double x)
{
    if (!isnan(x))
        add_interval(m, (struct filter_interval){.low = x, .high = x});
}

static int compare_intervals(const void *a, const void *b)
{
    const struct filter_interval *x = a, *y = b;
    if (x->low != y->low)
        return x->low < y->low ? -1 : 1;
    return (int)x->low_open - (int)y->low_open;
}

/* The union of the intervals from `first` on, in place. */
static void unite(struct filter *f, uint32_t first)
{
    uint32_t n = f->n_intervals - first, kept = 0;
    struct filter_interval *all;
    if (n == 0)
        return;
    all = f->intervals + first;
    qsort(all, n, sizeof *all, compare_intervals);
    for (uint32_t i = 1; i < n; i++) {
        struct filter_interval *last = &all[kept], *next = &all[i];
        bool apart = next->low > last->high || (next->low == last->high && next->low_open && last->high_open);
        if (apart) {
            all[++kept] = *next;
        } else if (next->high > last->high || (next->high == last->high && last->high_open)) {
            last->high = next->high;
            last->high_open = next->high_open;
        }
    }
    assert(kept < n);
    f->n_intervals = first + kept + 1;
}

/* What two intervals share; false: nothing. */
static bool share(const struct filter_interval *a, const struct filter_interval *b, struct filter_interval *out)
{
    const struct filter_interval *low = compare_intervals(a, b) < 0 ? b : a;
    bool a_ends = a->high < b->high || (a->high == b->high && a->high_open);
    *out = *low;
    out->high = a_ends ? a->high : b->high;
    out->high_open = a_ends ? a->high_open : b->high_open;
    return out->low < out->high || (out->low == out->high && !out->low_open && !out->high_open);
}

/* The intersection of the n lists of parts, which begin at `first` one behind the other, to take their place. */
static void intersect(struct maker *m, const uint32_t *parts, uint32_t n, uint32_t first)
{
    struct filter *f = m->filter;
    uint32_t from = f->parts[parts[0]].first_interval, n_from = f->parts[parts[0]].n_intervals;
    for (uint32_t i = 1; i < n; i++) {
        const struct filter_part *other = &f->parts[parts[i]];
        uint32_t to = f->n_intervals, a = 0, b = 0;
        while (a < n_from && b < other->n_intervals) {
            struct filter_interval x = f->intervals[from + a], y = f->intervals[other->first_interval + b], both;
            bool x_ends = x.high < y.high || (x.high == y.high && x.high_open);
            if (share(&x, &y, &both))
                add_interval(m, both);
            a += x_ends;
            b += !x_ends;
        }
        from = to;
        n_from = f->n_intervals - to;
    }
    if (n_from)
        memmove(f->intervals + first, f->intervals + from, n_from * sizeof *f->intervals);
    assert(first + n_from <= f->n_intervals);
    f->n_intervals = first + n_from;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void add_text(struct filter *f, const struct json_value *value)
{
    assert(f->n_texts < f->n_constants + f->n_members + 1);
    f->texts[f->n_texts++] = (struct filter_text){.text = value->text, .bytes = value->bytes};
}

static int compare_texts(const void *a, const void *b)
{
    const struct filter_text *x = a, *y = b;
    return format_compare_bytes(x->text, x->bytes, y->text, y->bytes);
}

/* Those from `first` on, each once; those that the test refuses go, too (part NULL: none). */
static void settle_texts(struct filter *f, uint32_t first, const struct filter_part *part)
{
    uint32_t n = f->n_texts - first, kept = 0;
    struct filter_text *all = f->texts + first;
    qsort(all, n, sizeof *all, compare_texts);
    for (uint32_t i = 0; i < n; i++) {
        struct json_value value = {.kind = VALUE_STRING, .text = all[i].text, .bytes = all[i].bytes};
        bool again = kept > 0 && compare_texts(&all[kept - 1], &all[i]) == 0;
        if (!again && (!part || filter_test(f, part, &value)))
            all[kept++] = all[i];
    }
    f->n_texts = first + kept;
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

static void know_comparison(struct maker *m, enum filter_op op, bool field_left, double c)
{
    bool greater = op == OP_GREATER || op == OP_GREATER_EQUAL;
    bool open = op == OP_GREATER || op == OP_LESS;
    struct filter_interval interval = {.low = -INFINITY, .high = INFINITY};
    if (isnan(c))
        return;
    if (greater == field_left) {
        interval.low = c;
        interval.low_open = open;
    } else {
        interval.high = c;
        interval.high_open = open;
    }
    if (!open || interval.low < interval.high)
        add_interval(m, interval);
}

/* .field in constant: strings_listed where that can be said. */
static bool know_field_in(struct maker *m, const struct filter_value *constant)
{
    bool listed = true;
    if (constant->json.kind == VALUE_STRING)
        return false; /* any part of it */
    for (uint32_t i = 0; i < constant->n_members; i++) {
        const struct json_value *member = &constant->members[i];
        add_point(m, filter_number(member));
        listed &= member->kind == VALUE_STRING;
    }
    for (uint32_t i = 0; listed && i < constant->n_members; i++)
        add_text(m->filter, &constant->members[i]);
    return listed;
}

/* constant in .field: numbers have nothing in them; of strings, parts. */
static bool know_member(struct filter *f, struct filter_part *part, const struct filter_value *constant)
{
    bool is_text = constant->json.kind == VALUE_STRING;
    part->is_member = is_text || constant->json.kind == VALUE_NUMBER;
    part->member_is_number = part->is_member && !is_text;
    part->member = filter_number(&constant->json);
    if (is_text)
        add_text(f, &constant->json);
    return !is_text;
}

/* A field beside a constant. */
static void know_pair(struct maker *m, struct filter_part *part, enum filter_op op, bool field_left,
                      const struct filter_value *constant)
{
    struct filter *f = m->filter;
    double c = filter_number(&constant->json);
    bool is_text = constant->json.kind == VALUE_STRING;
    part->numbers_known = op >= OP_GREATER && op <= OP_PREFIX;
    if (op >= OP_GREATER && op <= OP_LESS_EQUAL)
        know_comparison(m, op, field_left, c);
    if (op == OP_EQUAL) {
        add_point(m, c);
        part->strings_listed = is_text;
        if (is_text)
            add_text(f, &constant->json);
    }
    if (op == OP_IN)
        part->strings_listed = field_left ? know_field_in(m, constant) : know_member(f, part, constant);
    if (op == OP_PREFIX)
        part->strings_listed = !is_text;
    unite(f, part->first_interval);
    part->n_intervals = f->n_intervals - part->first_interval;
    if (part->strings_listed) {
        settle_texts(f, part->first_text, NULL);
        part->n_texts = f->n_texts - part->first_text;
    }
}

/* Says of a TEST what can be said without a value. */
static void know(struct maker *m, struct filter_part *part)
{
    struct filter *f = m->filter;
    uint32_t i = part->end - 1;
    const struct filter_node *node = &f->nodes[i];
    if (node->op == OP_FIELD) { /* true: all numbers but 0 */
        part->numbers_known = true;
        add_interval(m, (struct filter_interval){.low = -INFINITY, .high_open = true});
        add_interval(m, (struct filter_interval){.low_open = true, .high = INFINITY});
        part->n_intervals = f->n_intervals - part->first_interval;
    }
    if (!filter_op_has_two(node->op))
        return;
    const struct filter_node *left = &f->nodes[filter_left(f, i)], *right = &f->nodes[i - 1];
    if (left->op == OP_FIELD && right->op == OP_CONSTANT)
        know_pair(m, part, node->op, true, &f->constants[right->operand]);
    else if (left->op == OP_CONSTANT && right->op == OP_FIELD)
        know_pair(m, part, node->op, false, &f->constants[left->operand]);
}

/* key == "a", "a" == key, key in ["a", "b"]: the constant, or NULL. */
static const struct filter_value *keys_of(const struct filter *f, uint32_t i)
{
    const struct filter_node *node = &f->nodes[i], *left, *right;
    if (node->op != OP_EQUAL && node->op != OP_IN)
        return NULL;
    left = &f->nodes[filter_left(f, i)];
    right = &f->nodes[i - 1];
    if (node->op == OP_EQUAL && left->op == OP_CONSTANT) {
        const struct filter_node *other = left;
        left = right;
        right = other;
    }
    if (left->op != OP_KEY || right->op != OP_CONSTANT)
        return NULL;
    const struct filter_value *constant = &f->constants[right->operand];
    bool fits = constant->json.kind == (node->op == OP_IN ? VALUE_LIST : VALUE_STRING);
    for (uint32_t j = 0; j < constant->n_members; j++)
        fits &= constant->members[j].kind == VALUE_STRING;
    return fits ? constant : NULL;
}

static struct filter_part *make_keys(struct filter *f, const struct filter_value *constant)
{
    struct filter_part *part = add_part(f, FILTER_KEYS);
    part->first_key = f->n_texts;
    for (uint32_t i = 0; i < constant->n_members; i++)
        add_text(f, &constant->members[i]);
    if (constant->json.kind == VALUE_STRING)
        add_text(f, &constant->json);
    settle_texts(f, part->first_key, NULL);
    part->n_keys = f->n_texts - part->first_key;
    part->kind = part->n_keys ? FILTER_KEYS : FILTER_NEVER;
    return part;
}

/* .field == null, null == .field */
static bool is_null_test(const struct filter *f, uint32_t i)
{
    if (f->nodes[i].op != OP_EQUAL)
        return false;
    for (uint32_t side = 0; side < 2; side++) {
        const struct filter_node *a = &f->nodes[side ? i - 1 : filter_left(f, i)];
        const struct filter_node *b = &f->nodes[side ? filter_left(f, i) : i - 1];
        if (a->op == OP_FIELD && b->op == OP_CONSTANT && f->constants[b->operand].json.kind == VALUE_NULL)
            return true;
    }
    return false;
}

static struct filter_part *make_leaf(struct maker *m, uint32_t i)
{
    struct filter *f = m->filter;
    const struct filter_node *node = &f->nodes[i];
    const struct filter_value *keys = keys_of(f, i);
    bool one_field = node->fields && !(node->fields & (node->fields - 1)) && !node->names_key;
    if (keys)
        return make_keys(f, keys);
    struct filter_part *part = add_part(f, FILTER_MIXED);
    part->first = node->first;
    part->end = i + 1;
    part->lists_alike = !node->reads_lists;
    if (one_field)
        part->field = (uint32_t)__builtin_ctzll(node->fields);
    if (node->op == OP_EXISTS) {
        part->kind = FILTER_EXISTS;
    } else if (is_null_test(f, i)) {
        part->kind = FILTER_NULL;
    } else if (one_field && (f->required >> part->field & 1)) {
        part->kind = FILTER_TEST;
        know(m, part);
    }
    return part;
}

/* ---- and, or, not ------------------------------------------------------------------------------------------------ */

static struct filter_part *negate(struct filter *f, struct filter_part *part)
{
    if (part->kind == FILTER_NOT)
        return &f->parts[part->left - f->parts];
    if (part->kind == FILTER_NULL) {
        part->kind = FILTER_EXISTS; /* the field is required */
        return part;
    }
    if (part->kind == FILTER_ALWAYS || part->kind == FILTER_NEVER) {
        part->kind = part->kind == FILTER_ALWAYS ? FILTER_NEVER : FILTER_ALWAYS;
        return part;
    }
    struct filter_part *whole = add_part(f, FILTER_NOT);
    whole->left = part;
    return whole;
}

static struct filter_part *make_balanced(struct filter *f, enum filter_part_kind kind, const uint32_t *parts,
                                         uint32_t n)
{
    if (n == 1)
        return &f->parts[parts[0]];
    struct filter_part *part = add_part(f, kind);
    part->left = make_balanced(f, kind, parts, n / 2);
    part->right = make_balanced(f, kind, parts + n / 2, n - n / 2);
    return part;
}

/* Whether one TEST in place of n parts says as much of the values as they do. */
static bool can_join(const struct filter *f, enum filter_part_kind kind, const uint32_t *parts, uint32_t n)
{
    uint32_t known = 0, listed = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct filter_part *part = &f->parts[parts[i]];
        if (part->kind != FILTER_TEST || part->field != f->parts[parts[0]].field || !part->lists_alike)
            return false;
        known += part->numbers_known;
        listed += part->strings_listed;
    }
    return (known == 0 || known == n) && (kind == FILTER_AND || listed == 0 || listed == n);
}

/* The n TESTs as one, of the program of node i. What they added begins at `mark`. */
static struct filter_part *join(struct maker *m, enum filter_part_kind kind, uint32_t i, const uint32_t *parts,
                                uint32_t n, struct mark mark)
{
    struct filter *f = m->filter;
    struct filter_part joined = f->parts[parts[0]];
    joined.first = f->nodes[i].first;
    joined.end = i + 1;
    for (uint32_t j = 1; j < n; j++)
        joined.strings_listed |= f->parts[parts[j]].strings_listed;
    if (joined.numbers_known && kind == FILTER_AND)
        intersect(m, parts, n, mark.intervals);
    else if (joined.numbers_known)
        unite(f, mark.intervals);
    if (joined.strings_listed)
        settle_texts(f, mark.texts, &joined);
    joined.first_interval = mark.intervals;
    joined.n_intervals = f->n_intervals - mark.intervals;
    joined.first_text = mark.texts;
    joined.n_texts = joined.strings_listed ? f->n_texts - mark.texts : 0;
    f->n_parts = mark.parts;
    struct filter_part *part = add_part(f, FILTER_TEST);
    *part = joined;
    return part;
}

static struct filter_part *make(struct maker *m, uint32_t i);

/* The operands of a chain of `and`, or of `or`, whose last is node i, in the order of the expression; how many. */
static uint32_t list_operands(struct maker *m, uint32_t i)
{
    const struct filter *f = m->filter;
    enum filter_op op = f->nodes[i].op;
    uint32_t from = m->n_chain, at = i;
    for (; f->nodes[at].op == op; at = filter_left(f, at))
        m->chain[m->n_chain++] = at - 1;
    m->chain[m->n_chain++] = at;
    for (uint32_t a = from, b = m->n_chain - 1; a < b; a++, b--) {
        uint32_t moved = m->chain[a];
        m->chain[a] = m->chain[b];
        m->chain[b] = moved;
    }
    return m->n_chain - from;
}

/* A chain of `and`, or of `or`, whose last is node i. */
static struct filter_part *make_chain(struct maker *m, uint32_t i)
{
    struct filter *f = m->filter;
    enum filter_op op = f->nodes[i].op;
    enum filter_part_kind kind = op == OP_AND ? FILTER_AND : FILTER_OR;
    enum filter_part_kind neutral = op == OP_AND ? FILTER_ALWAYS : FILTER_NEVER;
    enum filter_part_kind decisive = op == OP_AND ? FILTER_NEVER : FILTER_ALWAYS;
    struct mark mark = mark_here(f);
    uint32_t from = m->n_chain, n = 0, n_operands = list_operands(m, i);
    uint32_t *operands = m->chain + from;
    for (uint32_t j = 0; j < n_operands; j++) {
        struct filter_part *part = make(m, operands[j]);
        if (part->kind == decisive) {
            go_back(f, mark);
            m->n_chain = from;
            return add_part(f, decisive);
        }
        if (part->kind != neutral)
            operands[n++] = (uint32_t)(part - f->parts);
    }
    assert(n <= n_operands && m->n_chain == from + n_operands);
    m->n_chain = from;
    if (n == 0)
        return add_part(f, neutral);
    return n > 1 && can_join(f, kind, operands, n) ? join(m, kind, i, operands, n, mark)
                                                   : make_balanced(f, kind, operands, n);
}

/* Recurses once for a parenthesis, a not, or a change from `or` to `and`: less than FILTER_DEPTH_MAX * 2. */
static struct filter_part *make(struct maker *m, uint32_t i)
{
    struct filter *f = m->filter;
    const struct filter_node *node = &f->nodes[i];
    if (node->op == OP_CONSTANT)
        return add_part(f, filter_truth(&f->constants[node->operand].json) ? FILTER_ALWAYS : FILTER_NEVER);
    if (node->op == OP_NOT)
        return negate(f, make(m, i - 1));
    if (node->op == OP_AND || node->op == OP_OR)
        return make_chain(m, i);
    return make_leaf(m, i);
}

int filter_make_parts(struct filter *filter)
{
    struct maker m = {.filter = filter};
    uint32_t n = filter->n_nodes;
    size_t n_texts = (size_t)filter->n_constants + filter->n_members + 1;
    m.chain = malloc(memory_size_mul(n, sizeof *m.chain));
    filter->parts = malloc(memory_size_mul(2 * (size_t)n, sizeof *filter->parts));
    filter->texts = malloc(memory_size_mul(n_texts, sizeof *filter->texts));
    filter->memory_bytes += 2 * (size_t)n * sizeof *filter->parts + n_texts * sizeof *filter->texts;
    if (m.chain && filter->parts && filter->texts)
        filter->root = make(&m, n - 1);
    else
        m.no_memory = true;
    free(m.chain);
    return m.no_memory ? QUIRE_ENOMEM : 0;
}
