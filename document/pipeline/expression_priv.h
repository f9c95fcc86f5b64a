/*
 * expression_priv.h - the compiled form: a program for a stack machine, and the table of functions.
 */
#ifndef QUIRE_DOCUMENT_EXPRESSION_PRIV_H
#define QUIRE_DOCUMENT_EXPRESSION_PRIV_H

#include "document/pipeline/expression.h"

enum expression_code {
    CODE_NUMBER,   /* push numbers[at] */
    CODE_STRING,   /* push strings[at] */
    CODE_NULL,     /* push null */
    CODE_NAME,     /* push the value of names[at]; none is an error */
    CODE_NAME_ANY, /* the same; none is pushed as "no value" */
    CODE_ADD,      /* a b -> a + b, and so on */
    CODE_SUBTRACT,
    CODE_MULTIPLY,
    CODE_DIVIDE,
    CODE_MODULO,
    CODE_POWER,
    CODE_EQUAL,
    CODE_UNEQUAL,
    CODE_LESS,
    CODE_AT_MOST,
    CODE_GREATER,
    CODE_AT_LEAST,
    CODE_NEGATE,
    CODE_NOT,
    CODE_TRUTH,      /* a -> 1 or 0 */
    CODE_AND,        /* a -> : where a is false, push 0 and go on at `at` */
    CODE_OR,         /* a -> : where a is true, push 1 and go on at `at` */
    CODE_JUMP,       /* go on at `at` */
    CODE_JUMP_FALSE, /* a -> : where a is false, go on at `at` */
    CODE_CALL        /* n arguments -> the value of functions[at] */
};

struct expression_step {
    uint16_t code, n;
    uint32_t at;
};

/* A piece of `text`. */
struct expression_piece {
    uint32_t from, bytes;
};

struct expression {
    struct expression_step *steps;
    uint32_t n_steps, steps_capacity;
    double *numbers;
    uint32_t n_numbers, numbers_capacity;
    struct expression_piece *strings;
    uint32_t n_strings, strings_capacity;
    struct expression_piece *names;
    uint32_t n_names, names_capacity;
    char *text; /* strings and names without their escapes, a NUL behind each */
    size_t text_bytes;
    bool uses_terms;
};

/* What a function works with. */
struct expression_call {
    const char *name;
    const struct expression_row *row;
    struct datum_pool *pool;
    struct quire_error *err;
};

/* Arguments are never NULL but for exists(). *out is set on success only. */
typedef int expression_function(struct expression_call *call, struct datum *const *args, uint32_t n,
                                struct datum **out);

struct expression_entry {
    const char *name;
    uint32_t args_min, args_max;
    expression_function *function; /* NULL: `case`, which is compiled to jumps */
};

#define EXPRESSION_ARGS_MAX 128u

/* By name in any case; NULL: there is none. `at` is its number for expression_at. */
const struct expression_entry *expression_find(const char *name, size_t bytes, uint32_t *at);
const struct expression_entry *expression_at(uint32_t at);

/* Results; QUIRE_ENOMEM or QUIRE_ELIMIT where the pool gave none. */
int expression_give(struct expression_call *call, struct datum *datum, struct datum **out);
int expression_give_number(struct expression_call *call, double number, struct datum **out);
int expression_give_null(struct expression_call *call, struct datum **out);
/* QUIRE_EINVALID unless argument i is a string. */
int expression_want_string(struct expression_call *call, struct datum *const *args, uint32_t i);
const char *expression_kind_name(const struct datum *datum); /* "a number" and so on */

/* expression_time.c */
expression_function expression_timefmt, expression_parsetime, expression_hour, expression_minute, expression_day,
    expression_month, expression_monthofyear, expression_year, expression_dayofmonth, expression_dayofweek,
    expression_dayofyear;
/* expression_text.c */
expression_function expression_lower, expression_upper, expression_substr, expression_format, expression_split,
    expression_startswith, expression_contains, expression_strlen;

#endif
