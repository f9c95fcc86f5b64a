/* filter_priv.h - inside of a filter: what filter_parse.c makes, filter_parts.c reads and filter_run.c runs. */
#ifndef QUIRE_INDEX_FILTER_PRIV_H
#define QUIRE_INDEX_FILTER_PRIV_H

#include "index/attribute/filter.h"
#include <math.h>
#include <stdatomic.h>

enum filter_op {
    /* values */
    OP_CONSTANT, /* constants[operand] */
    OP_FIELD,    /* fields[operand] */
    OP_EXISTS,   /* of fields[operand]: 1 or 0 */
    OP_KEY,      /* the element's name */
    /* of one operand */
    OP_NOT,
    /* of two */
    OP_POWER,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_REMAINDER,
    OP_ADD,
    OP_SUBTRACT,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_EQUAL,
    OP_IN,
    OP_PREFIX,
    OP_AND,
    OP_OR,
    /* while parsing: becomes EQUAL and NOT; a parenthesis that waits for its other half */
    OP_UNEQUAL,
    OP_PARENTHESIS
};

/* The program is the expression in postfix order: a node's operands are the nodes right before it, so that a node and
 * what lies under it are one range, `first` .. its own place. */
struct filter_node {
    uint8_t op;
    bool names_key;   /* in the range: the element's name */
    bool reads_lists; /* in the range: an `in` with a field at its right, which asks what is in a list */
    uint32_t operand, first;
    uint32_t at;     /* byte of the expression */
    uint64_t fields; /* in the range: a bit for each */
};

/* A value while a program runs. A list is JSON's (members NULL), or one that the expression wrote. */
struct filter_value {
    struct json_value json;
    const struct json_value *members;
    uint32_t n_members;
};

struct filter_text {
    const char *text;
    uint32_t bytes;
};

struct filter {
    atomic_uint references;
    uint32_t text_bytes;
    char *text; /* the expression, then its strings without escapes */
    uint32_t n_nodes, n_constants, n_members, n_fields;
    struct filter_node *nodes;
    struct filter_value *constants;
    struct json_value *members; /* of lists that the expression wrote */
    struct json_name fields[FILTER_FIELDS_MAX];
    const struct quire_column *columns[FILTER_FIELDS_MAX]; /* declared, or NULL */
    uint64_t required;                                     /* fields, a bit for each */
    /* filter_parts.c */
    const struct filter_part *root;
    struct filter_part *parts;
    struct filter_text *texts; /* of TESTs and of KEYS */
    struct filter_interval *intervals;
    uint32_t n_parts, n_texts, n_intervals, intervals_capacity;
    size_t memory_bytes; /* of all that it owns but the intervals */
};

/* Fills text, nodes, constants, members, fields. */
int filter_parse(struct filter *filter, const char *text, size_t bytes, const struct attribute_schema *schema,
                 struct quire_error *err);
/* Fills root, parts, texts, intervals; 0 or QUIRE_ENOMEM. */
int filter_make_parts(struct filter *filter);

/* What a program is run on: values of all fields by their index, or of one field alone (`single`). */
struct filter_row {
    const struct json_value *values, *single;
    const void *key;
    uint32_t key_bytes;
};
/* One operation on values; a and b are equal for OP_NOT. */
double filter_apply(enum filter_op op, const struct filter_value *a, const struct filter_value *b);
bool filter_truth(const struct json_value *value);
double filter_number(const struct json_value *value);

/* a ** b and a % b are pow and fmod, which take tens of nanoseconds; what these are exact for without them is done
 * so. */
#define FILTER_SQUARE_MAX 67108864 /* 2^26 */
static inline double filter_power(double a, double b)
{
    /* the square has no more than 53 bits: pow, which is wrong by less than a unit of the last place, is exact, too */
    return b == 2 && fabs(a) <= FILTER_SQUARE_MAX && a == (int32_t)a ? a * a : pow(a, b);
}

static inline double filter_remainder(double a, double b)
{
    bool small = fabs(a) <= INT32_MAX && fabs(b) <= INT32_MAX && b != 0;
    if (!small || a != (int32_t)a || b != (int32_t)b)
        return fmod(a, b);
    return copysign((int32_t)a % (int32_t)b, a); /* -4 % 2 is -0 */
}

static inline bool filter_op_has_two(enum filter_op op)
{
    return op >= OP_POWER;
}

/* Of a node of two operands: where the left one is; the right one is at i - 1. */
static inline uint32_t filter_left(const struct filter *filter, uint32_t i)
{
    return filter->nodes[i - 1].first - 1;
}

#endif
