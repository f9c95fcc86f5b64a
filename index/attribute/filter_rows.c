/*
 * filter_rows.c - a program of FILTER over a chunk of rows.
 *
 * The same stack machine as in filter_run.c, with a column of doubles where that has a value: an operator's result is
 * always a number, so only what comes straight from a field, a constant or a name can be anything else. Arithmetic and
 * < <= > >= take the numbers of those, whatever they are, and so does == where both sides are numbers. What remains
 * (in, prefix, == beside strings or null, the truth of a string) is asked row by row of filter_apply: there is one
 * meaning of each operator, in one place. Constants are spread over a column of their own: a store a row is cheaper
 * than a second and a third form of each loop. That numbers are whole and small, for which powers and remainders have
 * fast forms, is known of columns and constants, and followed through sums and products; of others each row is looked
 * at.
 *
 * Each place of the stack has two buffers, and a result goes to the one that its left operand is not in: then no loop
 * writes what it reads, and the compiler may use vectors. A chunk's buffers stay in the first level of the cache.
 */
#include "index/attribute/filter_rows.h"
#include "index/attribute/filter_priv.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Where a value of the stack comes from. */
enum operand_kind { OPERAND_NUMBERS, OPERAND_FIELD, OPERAND_CONSTANT, OPERAND_KEY };

struct operand {
    enum operand_kind kind;
    uint32_t index;        /* FIELD, CONSTANT: which */
    const double *numbers; /* of each row; of KEY NULL */
    const uint8_t *kinds;  /* FIELD: NULL where all are numbers */
    double whole_max;      /* the numbers are whole and of at most this magnitude; 0: that is not known */
};

struct filter_rows {
    const struct filter *filter;
    uint32_t first, end; /* of the program */
    uint64_t required;   /* fields of it */
    struct operand stack[FILTER_DEPTH_MAX];
    uint32_t depth;
    const struct filter_chunk *chunk;
    double buffers[][2][FILTER_ROWS_MAX]; /* depth */
};

double filter_number_of(const struct json_value *value)
{
    return filter_number(value);
}

/* The most values that the program has on its stack. */
static uint32_t depth_of(const struct filter *filter, uint32_t first, uint32_t end)
{
    uint32_t n = 0, most = 0;
    for (uint32_t i = first; i < end; i++) {
        n += filter->nodes[i].op < OP_NOT;
        n -= filter_op_has_two(filter->nodes[i].op);
        most = n > most ? n : most;
    }
    assert(n == 1 && most <= FILTER_DEPTH_MAX);
    return most;
}

struct filter_rows *filter_rows_create(const struct filter *filter, const struct filter_part *part)
{
    uint32_t first = part ? part->first : 0, end = part ? part->end : filter->n_nodes;
    uint32_t depth = depth_of(filter, first, end);
    struct filter_rows *rows = malloc(sizeof *rows + memory_size_mul(depth, sizeof rows->buffers[0]));
    if (!rows)
        return NULL;
    rows->filter = filter;
    rows->first = first;
    rows->end = end;
    rows->required = filter->required & filter->nodes[end - 1].fields;
    rows->depth = depth;
    return rows;
}

void filter_rows_free(struct filter_rows *rows)
{
    free(rows);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool are_numbers(const struct filter_rows *rows, const struct operand *o)
{
    if (o->kind == OPERAND_CONSTANT) {
        enum value_kind kind = rows->filter->constants[o->index].json.kind;
        return kind == VALUE_NUMBER || kind == VALUE_BOOL;
    }
    return o->kind == OPERAND_NUMBERS || (o->kind == OPERAND_FIELD && !o->kinds);
}

static struct filter_value value_at(const struct filter_rows *rows, const struct operand *o, uint32_t i)
{
    const struct filter_chunk *chunk = rows->chunk;
    struct filter_value out = {.json = {.kind = VALUE_NUMBER}};
    if (o->kind == OPERAND_CONSTANT)
        return rows->filter->constants[o->index];
    if (o->kind == OPERAND_FIELD && o->kinds)
        out.json.kind = (enum value_kind)o->kinds[i];
    if (o->kind == OPERAND_KEY || out.json.kind == VALUE_STRING || out.json.kind == VALUE_LIST)
        chunk->value(chunk->context, o->kind == OPERAND_KEY ? FILTER_FIELD_KEY : o->index, i, &out.json);
    else
        out.json.number = o->numbers[i];
    return out;
}

/* A buffer of a place that the operand there is not in. */
static double *other_buffer(struct filter_rows *rows, uint32_t place)
{
    double(*buffers)[FILTER_ROWS_MAX] = rows->buffers[place];
    assert(place < rows->depth);
    return rows->stack[place].numbers == buffers[0] ? buffers[1] : buffers[0];
}

/* The names have numbers, too: the operand in this place gets them where it is one. */
static void need_numbers(struct filter_rows *rows, uint32_t place)
{
    struct operand *o = &rows->stack[place];
    if (o->kind != OPERAND_KEY)
        return;
    double *out = other_buffer(rows, place);
    for (uint32_t i = 0; i < rows->chunk->n; i++) {
        struct filter_value key = value_at(rows, o, i);
        out[i] = filter_number(&key.json);
    }
    o->numbers = out;
}

/* The operand in this place becomes numbers that are true where it is. */
static void need_truth(struct filter_rows *rows, uint32_t place)
{
    struct operand *o = &rows->stack[place];
    if (are_numbers(rows, o))
        return;
    double *out = other_buffer(rows, place);
    for (uint32_t i = 0; i < rows->chunk->n; i++) {
        struct filter_value value = value_at(rows, o, i);
        out[i] = filter_truth(&value.json);
    }
    *o = (struct operand){.kind = OPERAND_NUMBERS, .numbers = out, .whole_max = 1};
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

#define EACH_ROW(expression)                                                                                           \
    do {                                                                                                               \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            out[i] = (expression);                                                                                     \
    } while (0)

/* The nearest whole number, of one below 2^51 (Knuth): where the lowest bit of the sum stands for 1, it rounds. */
#define ROUNDER     6755399441055744.0 /* 1.5 * 2^52 */
#define NEAREST(x)  (((x) + ROUNDER) - ROUNDER)
#define IS_WHOLE(x) (NEAREST(x) == (x) ? 0.0 : 1.0) /* 0: yes; of what is not below 2^51 anything */
#define WHOLE_MAX   9007199254740992.0              /* 2^53: all whole numbers up to it are doubles */

/* Whether all are 0: of flags that a loop without branches has written, for vectors. */
static bool are_zero(const double *flags, uint32_t n)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &flags[i], sizeof bits);
        any |= bits;
    }
    return any == 0;
}

/* The magnitude of a whole number, for whole_max. */
static double whole_max_of(double number)
{
    return number == trunc(number) && fabs(number) <= WHOLE_MAX ? fmax(fabs(number), 1) : 0;
}

/* What is known of a result without a look at it: sums and products of whole numbers up to 2^53 are exact. */
static double whole_max_after(enum filter_op op, const struct operand *a, const struct operand *b)
{
    double most = 0;
    if (op >= OP_GREATER || op == OP_NOT)
        return 1; /* 0 or 1 */
    if (a->whole_max == 0 || b->whole_max == 0)
        return 0;
    if (op == OP_ADD || op == OP_SUBTRACT)
        most = a->whole_max + b->whole_max;
    else if (op == OP_MULTIPLY)
        most = a->whole_max * b->whole_max;
    return most <= WHOLE_MAX ? most : 0;
}

static bool is_whole_below(const struct operand *o, double most)
{
    return o->whole_max > 0 && o->whole_max <= most;
}

/* filter_power of whole numbers to the power of 2; false: there are others, and nothing was done. */
static bool take_squares(double *restrict out, const struct operand *left, const struct operand *right, uint32_t n)
{
    const double *restrict a = left->numbers, *restrict b = right->numbers;
    if (!is_whole_below(left, FILTER_SQUARE_MAX) || right->kind != OPERAND_CONSTANT || b[0] != 2) {
        EACH_ROW((fabs(a[i]) <= FILTER_SQUARE_MAX ? 0.0 : 1.0) + IS_WHOLE(a[i]) + (b[i] == 2 ? 0.0 : 1.0));
        if (!are_zero(out, n))
            return false;
    }
    EACH_ROW(a[i] * a[i]);
    return true;
}

/* |a| % b, by a division: the quotient of two whole numbers below 2^31 that is not whole itself is farther from the
 * next one than a double rounds. */
static inline double rest_of(double a, double b)
{
    double by = b == 0 ? 1 : b, quotient = a / by, whole = NEAREST(quotient);
    whole = whole > quotient ? whole - 1 : whole;
    return b == 0 ? NAN : a - whole * by;
}

/* |a| % b of whole numbers below 2^31, by a multiplication: what is near the quotient rounds to one of its two
 * neighbours, and the rest that is left of the upper one is negative. b is at least 1. */
static inline double rest_by(double a, double b, double inverse)
{
    double rest = a - NEAREST(a * inverse) * b;
    return rest < 0 ? rest + b : rest;
}

/* filter_remainder of whole numbers; false as above. */
static bool take_remainders(double *restrict out, const struct operand *left, const struct operand *right, uint32_t n)
{
    const double *restrict a = left->numbers, *restrict b = right->numbers;
    if (!is_whole_below(left, INT32_MAX) || !is_whole_below(right, INT32_MAX)) {
        EACH_ROW((fabs(a[i]) <= INT32_MAX ? 0.0 : 1.0) + (fabs(b[i]) <= INT32_MAX ? 0.0 : 1.0) + IS_WHOLE(a[i]) +
                 IS_WHOLE(b[i]));
        if (!are_zero(out, n))
            return false;
    }
    double by = right->kind == OPERAND_CONSTANT ? fabs(b[0]) : 0, inverse = 1 / by;
    if (by > 0)
        EACH_ROW(copysign(rest_by(fabs(a[i]), by, inverse), a[i]));
    else
        EACH_ROW(copysign(rest_of(fabs(a[i]), fabs(b[i])), a[i]));
    return true;
}

static void apply_to_numbers(enum filter_op op, double *restrict out, const struct operand *left,
                             const struct operand *right, uint32_t n)
{
    const double *restrict a = left->numbers, *restrict b = right->numbers;
    switch (op) {
    case OP_POWER:
        if (!take_squares(out, left, right, n))
            EACH_ROW(filter_power(a[i], b[i]));
        break;
    case OP_MULTIPLY:
        EACH_ROW(a[i] * b[i]);
        break;
    case OP_DIVIDE:
        EACH_ROW(a[i] / b[i]);
        break;
    case OP_REMAINDER:
        if (!take_remainders(out, left, right, n))
            EACH_ROW(filter_remainder(a[i], b[i]));
        break;
    case OP_ADD:
        EACH_ROW(a[i] + b[i]);
        break;
    case OP_SUBTRACT:
        EACH_ROW(a[i] - b[i]);
        break;
    case OP_GREATER:
        EACH_ROW(a[i] > b[i]);
        break;
    case OP_GREATER_EQUAL:
        EACH_ROW(a[i] >= b[i]);
        break;
    case OP_LESS:
        EACH_ROW(a[i] < b[i]);
        break;
    case OP_LESS_EQUAL:
        EACH_ROW(a[i] <= b[i]);
        break;
    case OP_EQUAL:
        EACH_ROW(a[i] == b[i]);
        break;
    case OP_AND:
        EACH_ROW((a[i] != 0 ? 1.0 : 0.0) * (b[i] != 0 ? 1.0 : 0.0));
        break;
    case OP_OR:
        EACH_ROW((a[i] != 0 ? 1.0 : 0.0) + (b[i] != 0 ? 1.0 : 0.0) != 0);
        break;
    default:
        assert(op == OP_NOT);
        EACH_ROW(a[i] == 0);
    }
}

static void apply_to_values(struct filter_rows *rows, enum filter_op op, double *out, const struct operand *a,
                            const struct operand *b)
{
    for (uint32_t i = 0; i < rows->chunk->n; i++) {
        struct filter_value x = value_at(rows, a, i), y = value_at(rows, b, i);
        out[i] = filter_apply(op, &x, &y);
    }
}

/* The operands are in `place` and, of two, the one behind it; the result takes `place`. */
static void apply(struct filter_rows *rows, enum filter_op op, uint32_t place)
{
    uint32_t right = place + filter_op_has_two(op);
    struct operand *a = &rows->stack[place], *b = &rows->stack[right];
    bool by_value =
        op == OP_IN || op == OP_PREFIX || (op == OP_EQUAL && !(are_numbers(rows, a) && are_numbers(rows, b)));
    for (uint32_t i = place; !by_value && i <= right; i++) {
        if (op == OP_AND || op == OP_OR || op == OP_NOT)
            need_truth(rows, i);
        else
            need_numbers(rows, i);
    }
    double *out = other_buffer(rows, place);
    double whole_max = whole_max_after(op, a, b);
    if (by_value)
        apply_to_values(rows, op, out, a, b);
    else
        apply_to_numbers(op, out, a, b, rows->chunk->n);
    *a = (struct operand){.kind = OPERAND_NUMBERS, .numbers = out, .whole_max = whole_max};
}

static void load(struct filter_rows *rows, const struct filter_node *node, uint32_t place)
{
    uint32_t n = rows->chunk->n;
    double *out = rows->buffers[place][0], number;
    const struct filter_values *field;
    switch (node->op) {
    case OP_CONSTANT:
        number = filter_number(&rows->filter->constants[node->operand].json);
        rows->stack[place] = (struct operand){
            .kind = OPERAND_CONSTANT, .index = node->operand, .numbers = out, .whole_max = whole_max_of(number)};
        EACH_ROW(number);
        break;
    case OP_KEY:
        rows->stack[place] = (struct operand){.kind = OPERAND_KEY};
        break;
    case OP_EXISTS:
        field = &rows->chunk->fields[node->operand];
        rows->stack[place] = (struct operand){.kind = OPERAND_NUMBERS, .numbers = out, .whole_max = 1};
        EACH_ROW(!field->kinds || (field->kinds[i] != VALUE_NONE && field->kinds[i] != VALUE_NULL));
        break;
    default:
        assert(node->op == OP_FIELD);
        field = &rows->chunk->fields[node->operand];
        rows->stack[place] = (struct operand){.kind = OPERAND_FIELD,
                                              .index = node->operand,
                                              .numbers = field->numbers,
                                              .kinds = field->kinds,
                                              .whole_max = field->kinds ? 0 : field->whole_max};
    }
}

/* ---- a chunk ----------------------------------------------------------------------------------------------------- */

/* A bit for each of 64 bytes that are 0 or 1: of eight bytes at a time, of whose products no two meet. */
static uint64_t bytes_to_bits(const uint8_t is[64])
{
    uint64_t word = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t eight;
        memcpy(&eight, is + 8 * i, sizeof eight);
        word |= (eight * 0x0102040810204080ull >> 56) << 8 * i;
    }
    return word;
}

/* A bit for each that is not 0. */
static void to_bits(const double *numbers, uint32_t n, uint64_t *bits)
{
    for (uint32_t from = 0; from < n; from += 64) {
        uint8_t is[64] = {0};
        for (uint32_t i = 0; n - from >= 64 && i < 64; i++)
            is[i] = numbers[from + i] != 0;
        for (uint32_t i = 0; n - from < 64 && i < n - from; i++)
            is[i] = numbers[from + i] != 0;
        bits[from / 64] = bytes_to_bits(is);
    }
}

static void remove_lacking(const struct filter_rows *rows, uint64_t *bits)
{
    for (uint64_t left = rows->required; left; left &= left - 1) {
        const uint8_t *kinds = rows->chunk->fields[__builtin_ctzll(left)].kinds;
        for (uint32_t i = 0; kinds && i < rows->chunk->n; i++)
            if (kinds[i] == VALUE_NONE || kinds[i] == VALUE_OBJECT)
                bits[i / 64] &= ~(1ull << i % 64);
    }
}

void filter_rows_match(struct filter_rows *rows, const struct filter_chunk *chunk, uint64_t *bits)
{
    uint32_t n = 0;
    assert(chunk->n <= FILTER_ROWS_MAX);
    rows->chunk = chunk;
    for (uint32_t i = rows->first; i < rows->end; i++) {
        const struct filter_node *node = &rows->filter->nodes[i];
        if (node->op < OP_NOT) {
            load(rows, node, n++);
            continue;
        }
        assert(n > filter_op_has_two(node->op)); /* the parser counts */
        n -= filter_op_has_two(node->op);
        apply(rows, node->op, n - 1);
    }
    assert(n == 1);
    need_truth(rows, 0);
    to_bits(rows->stack[0].numbers, chunk->n, bits);
    remove_lacking(rows, bits);
}
