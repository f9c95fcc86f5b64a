/*
 * filter_run.c - what the operators of FILTER do, and running a program of them over an element.
 *
 * The meaning is that of Redis's vector sets, facts that its code shows (modules/vector-sets/expr.c, 2026):
 *
 *   - A value is a number, a string, null or a list; true and false are 1 and 0. Every value has a number: a string
 *     that strtod takes as a whole has that ("0x10", " 7", "inf"; up to 255 bytes), all others are 0, and so are null
 *     and lists. Arithmetic and < <= > >= are of those numbers, in doubles: 1/0 is infinite, 0/0 and 1 % 0 are NaN.
 *   - a == b: two strings by bytes, two numbers by value, null only with null, all else by number: "abc" == 0.
 *   - False are 0, the empty string and null; NaN is true.
 *   - a in b: a == some member of a list b; or a is a part of b, both strings; else false.
 *   - A field that is missing, or is an object, makes the whole expression false wherever it stands.
 *
 * There is no short circuit: nothing has an effect, and a missing field has already decided. A program is run over a
 * stack of fixed size, which the parser has checked; nothing is allocated, and strings with escapes are compared
 * without making a copy, which is linear, too, for a part of a string: by the rolling hash of Karp and Rabin (1987),
 * modulo the prime 2^61 - 1, with a comparison of bytes at each hit.
 */
#include "index/attribute/filter_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_TEXT_MAX 255u /* bytes of a string that can be a number; Redis's */
#define HASH_PRIME      ((1ull << 61) - 1)
#define HASH_BASE       0x1234567890abcdull

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool is_number(const struct json_value *value)
{
    return value->kind == VALUE_NUMBER || value->kind == VALUE_BOOL;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* What strtod makes of a string, if it takes all of it, else 0. Decimal numbers do not go through it (json_value.c). */
static double text_number(char *text, uint32_t bytes)
{
    double value = 0;
    char *at = text, *behind;
    text[bytes] = 0;
    while (is_blank(*at))
        at++;
    size_t left = strlen(at);
    if (json_number(at, left, &value))
        return value;
    at += *at == '-' || *at == '+';
    bool hexadecimal = at[0] == '0' && (at[1] | 0x20) == 'x';
    if (!hexadecimal && (at[0] | 0x20) != 'i' && (at[0] | 0x20) != 'n')
        return 0;
    value = strtod(text, &behind);
    return *behind == 0 ? value : 0;
}

double filter_number(const struct json_value *value)
{
    char text[NUMBER_TEXT_MAX * 6 + 1]; /* no escape is longer than six bytes for one */
    if (is_number(value))
        return value->number;
    if (value->kind != VALUE_STRING || value->bytes >= sizeof text)
        return 0;
    uint32_t bytes = json_unescape(value, text);
    return bytes <= NUMBER_TEXT_MAX ? text_number(text, bytes) : 0;
}

bool filter_truth(const struct json_value *value)
{
    if (is_number(value))
        return value->number != 0;
    if (value->kind == VALUE_STRING)
        return value->bytes != 0;
    return value->kind != VALUE_NULL;
}

/* == of two values. */
static bool values_equal(const struct json_value *a, const struct json_value *b)
{
    if (a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        return json_same_text(a, b);
    if (a->kind == VALUE_NULL || b->kind == VALUE_NULL)
        return a->kind == b->kind;
    return filter_number(a) == filter_number(b);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* Whether the string goes on with `part`. */
static bool follows(struct json_bytes from, const struct json_value *part)
{
    struct json_bytes wanted;
    int c;
    json_bytes_init(&wanted, part);
    while ((c = json_byte(&wanted)) >= 0)
        if (json_byte(&from) != c)
            return false;
    return true;
}

static uint64_t hash_multiply(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t sum = (uint64_t)(product & HASH_PRIME) + (uint64_t)(product >> 61);
    return sum >= HASH_PRIME ? sum - HASH_PRIME : sum;
}

static uint64_t hash_add(uint64_t hash, int c)
{
    uint64_t sum = hash_multiply(hash, HASH_BASE) + (uint64_t)c + 1;
    return sum >= HASH_PRIME ? sum - HASH_PRIME : sum;
}

/* Strings of which one has escapes, so that neither memmem nor an index into them is possible. */
static bool has_part_escaped(const struct json_value *text, const struct json_value *part)
{
    struct json_bytes wanted, front, back;
    uint64_t want = 0, have = 0, drop = 1; /* drop: the weight of the byte that leaves */
    int c;
    json_bytes_init(&wanted, part);
    json_bytes_init(&front, text);
    json_bytes_init(&back, text);
    while ((c = json_byte(&wanted)) >= 0) {
        int mine = json_byte(&front);
        if (mine < 0)
            return false;
        want = hash_add(want, c);
        have = hash_add(have, mine);
        drop = hash_multiply(drop, HASH_BASE);
    }
    for (;;) {
        if (have == want && follows(back, part))
            return true;
        if ((c = json_byte(&front)) < 0)
            return false;
        have = hash_add(have, c) + HASH_PRIME - hash_multiply(drop, (uint64_t)json_byte(&back) + 1);
        have = have >= HASH_PRIME ? have - HASH_PRIME : have;
    }
}

static bool has_part(const struct json_value *text, const struct json_value *part)
{
    if (text->escaped || part->escaped)
        return has_part_escaped(text, part);
    return part->bytes == 0 || (text->bytes && memmem(text->text, text->bytes, part->text, part->bytes));
}

static bool is_in(const struct filter_value *a, const struct filter_value *b)
{
    struct json_walk walk;
    struct json_value member;
    if (b->json.kind != VALUE_LIST)
        return a->json.kind == VALUE_STRING && b->json.kind == VALUE_STRING && has_part(&b->json, &a->json);
    for (uint32_t i = 0; i < b->n_members; i++)
        if (values_equal(&a->json, &b->members[i]))
            return true;
    json_walk_list(&walk, &b->json);
    while (json_next(&walk, NULL, &member))
        if (values_equal(&a->json, &member))
            return true;
    return false;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static double arithmetic(enum filter_op op, double a, double b)
{
    switch (op) {
    case OP_POWER:
        return filter_power(a, b);
    case OP_MULTIPLY:
        return a * b;
    case OP_DIVIDE:
        return a / b;
    case OP_REMAINDER:
        return filter_remainder(a, b);
    case OP_ADD:
        return a + b;
    case OP_SUBTRACT:
        return a - b;
    case OP_GREATER:
        return a > b;
    case OP_GREATER_EQUAL:
        return a >= b;
    case OP_LESS:
        return a < b;
    default:
        assert(op == OP_LESS_EQUAL);
        return a <= b;
    }
}

double filter_apply(enum filter_op op, const struct filter_value *a, const struct filter_value *b)
{
    struct json_bytes from;
    switch (op) {
    case OP_NOT:
        return !filter_truth(&a->json);
    case OP_EQUAL:
        return values_equal(&a->json, &b->json);
    case OP_IN:
        return is_in(a, b);
    case OP_PREFIX:
        json_bytes_init(&from, &a->json);
        return a->json.kind == VALUE_STRING && b->json.kind == VALUE_STRING && follows(from, &b->json);
    case OP_AND:
        return filter_truth(&a->json) && filter_truth(&b->json);
    case OP_OR:
        return filter_truth(&a->json) || filter_truth(&b->json);
    default:
        return arithmetic(op, filter_number(&a->json), filter_number(&b->json));
    }
}

static struct filter_value of_number(double number)
{
    return (struct filter_value){.json = {.kind = VALUE_NUMBER, .number = number}};
}

static struct filter_value load(const struct filter *filter, const struct filter_node *node,
                                const struct filter_row *row)
{
    if (node->op == OP_CONSTANT)
        return filter->constants[node->operand];
    if (node->op == OP_KEY)
        return (struct filter_value){.json = {.kind = VALUE_STRING, .text = row->key, .bytes = row->key_bytes}};
    const struct json_value *value = row->single ? row->single : &row->values[node->operand];
    assert(node->op == OP_FIELD || node->op == OP_EXISTS);
    if (node->op == OP_EXISTS)
        return of_number(value->kind != VALUE_NONE && value->kind != VALUE_NULL);
    return (struct filter_value){.json = *value};
}

/* The value of nodes first .. end - 1. */
static struct filter_value run_nodes(const struct filter *filter, uint32_t first, uint32_t end,
                                     const struct filter_row *row)
{
    struct filter_value stack[FILTER_DEPTH_MAX];
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct filter_node *node = &filter->nodes[i];
        if (node->op < OP_NOT) {
            assert(n < FILTER_DEPTH_MAX);
            stack[n++] = load(filter, node, row);
            continue;
        }
        assert(n > filter_op_has_two(node->op)); /* the parser counts */
        n -= filter_op_has_two(node->op);
        stack[n - 1] = of_number(filter_apply(node->op, &stack[n - 1], &stack[n]));
    }
    assert(n == 1);
    return stack[0];
}

/* ---- elements and values ----------------------------------------------------------------------------------------- */

bool filter_matches(const struct filter *filter, const char *json, uint32_t json_bytes, const void *key,
                    uint32_t key_bytes)
{
    struct json_value values[FILTER_FIELDS_MAX];
    struct filter_row row = {.values = values, .key = key, .key_bytes = key_bytes};
    json_fields(json, json ? json_bytes : 0, filter->fields, filter->n_fields, values);
    for (uint32_t i = 0; i < filter->n_fields; i++) {
        values[i] = attribute_typed(filter->columns[i], values[i]);
        bool fits = values[i].kind != VALUE_NONE && values[i].kind != VALUE_OBJECT;
        if ((filter->required >> i & 1) && !fits)
            return false;
    }
    struct filter_value value = run_nodes(filter, 0, filter->n_nodes, &row);
    return filter_truth(&value.json);
}

bool filter_test(const struct filter *filter, const struct filter_part *part, const struct json_value *value)
{
    struct filter_row row = {.single = value};
    if (value->kind == VALUE_NONE || value->kind == VALUE_OBJECT)
        return false;
    struct filter_value result = run_nodes(filter, part->first, part->end, &row);
    return filter_truth(&result.json);
}

bool filter_test_member(const struct filter *filter, const struct filter_part *part, const struct json_value *member)
{
    return values_equal(&filter->constants[filter->nodes[part->first].operand].json, member);
}

uint32_t filter_part_fields(const struct filter *filter, const struct filter_part *part, uint32_t *fields)
{
    const struct filter_node *last = &filter->nodes[part->end - 1];
    uint32_t n = 0;
    for (uint64_t left = last->names_key ? 0 : last->fields; left; left &= left - 1)
        fields[n++] = (uint32_t)__builtin_ctzll(left);
    assert(last->names_key || n > 0);
    return n;
}
