/*
 * jsonpath_priv.h - a compiled path: steps, and the expressions of its filters.
 */
#ifndef QUIRE_DOCUMENT_JSONPATH_PRIV_H
#define QUIRE_DOCUMENT_JSONPATH_PRIV_H

#include "document/json/jsonpath.h"
#include "document/json/pattern.h"

struct jsonpath_name {
    char *text; /* owned, terminated */
    size_t bytes;
};

enum jsonpath_step_kind { STEP_NAMES, STEP_PLACES, STEP_SLICE, STEP_ALL, STEP_DESCEND, STEP_FILTER };

struct jsonpath_slice {
    bool has_end;
    int64_t start, end, step; /* step >= 1 */
};

struct jsonpath_step {
    enum jsonpath_step_kind kind;
    uint32_t n; /* of names or places */
    union {
        struct jsonpath_name *names;
        int64_t *places;
        struct jsonpath_slice slice;
        struct jsonpath_expression *filter;
    };
};

struct jsonpath_steps {
    struct jsonpath_step *items;
    uint32_t n, capacity;
};

enum jsonpath_operator {
    /* of expressions */
    EXPRESSION_OR,
    EXPRESSION_AND,
    EXPRESSION_NOT, /* of left */
    EXPRESSION_TEST,
    /* comparisons */
    EXPRESSION_EQ,
    EXPRESSION_NE,
    EXPRESSION_LT,
    EXPRESSION_LE,
    EXPRESSION_GT,
    EXPRESSION_GE,
    EXPRESSION_MATCHES
};

struct jsonpath_term {
    json_t *constant; /* owned; NULL: a path */
    bool from_root;   /* $ instead of @ */
    struct jsonpath_steps steps;
};

struct jsonpath_expression {
    enum jsonpath_operator operator;
    struct jsonpath_expression *left, *right; /* of OR, AND, NOT */
    struct jsonpath_term a, b;                /* of comparisons; TEST has a alone */
    struct pattern *pattern;                  /* MATCHES, where b is a constant */
};

struct jsonpath {
    struct jsonpath_steps steps;
    bool legacy;
};

/* A search under way. */
struct jsonpath_run {
    json_t *root;
    struct jsonpath_match *nodes;
    size_t n, capacity;
    uint64_t work;
    struct quire_error *err;
};
/* Follows steps from node `start`; the found are nodes [*from, run->n). */
int jsonpath_walk(struct jsonpath_run *run, const struct jsonpath_steps *steps, uint32_t n_steps, size_t start,
                  size_t *from);
/* 1: the expression holds for the value; 0: it does not. */
int jsonpath_filter(struct jsonpath_run *run, const struct jsonpath_expression *e, json_t *value);
/* Counts work; QUIRE_ELIMIT. */
int jsonpath_work(struct jsonpath_run *run, uint64_t work);

#endif
