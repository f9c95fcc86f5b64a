/*
 * jsonpath_filter.c - whether a filter holds for a value.
 *
 * Numbers compare by value, whatever their type; strings by bytes; what has no order among each other is neither equal
 * nor less. Arrays and objects equal what is the same in all. A path that leads to several values compares as any of
 * them; one that leads nowhere equals nothing, so that `!=` holds for it, as in RedisJSON.
 *
 * What a path inside of a filter finds stands behind the nodes of the search under way and is taken away again.
 */
#include "document/json/jsonpath_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { WORK_PER_PATTERN = 1024, STEPS_PER_WORK = 4, BYTES_PER_WORK = 64 };

/* The values of a term: the constant, or nodes [from, from + n) of the run. */
struct values {
    json_t *constant;
    size_t from, n;
};

static json_t *value_of(const struct jsonpath_run *run, const struct values *values, size_t i)
{
    return values->constant ? values->constant : run->nodes[values->from + i].value;
}

static int evaluate(struct jsonpath_run *run, const struct jsonpath_term *term, json_t *value, struct values *out)
{
    *out = (struct values){.constant = term->constant, .n = 1};
    if (term->constant)
        return jsonpath_work(run, 1);
    if (!array_reserve(&run->nodes, &run->capacity, run->n + 1))
        return error_set(run->err, QUIRE_ENOMEM, "no memory for what a path leads to");
    run->nodes[run->n] = (struct jsonpath_match){.value = term->from_root ? run->root : value, .up = JSONPATH_NONE};
    run->n++;
    int rc = jsonpath_work(run, 1);
    if (rc == 0)
        rc = jsonpath_walk(run, &term->steps, term->steps.n, run->n - 1, &out->from);
    out->n = rc == 0 ? run->n - out->from : 0;
    return rc;
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

enum order { ORDER_NONE, ORDER_LESS, ORDER_EQUAL, ORDER_MORE };

static enum order order_of(int sign)
{
    return sign < 0 ? ORDER_LESS : sign > 0 ? ORDER_MORE : ORDER_EQUAL;
}

static enum order compare_numbers(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        json_int_t x = json_integer_value(a), y = json_integer_value(b);
        return order_of((x > y) - (x < y));
    }
    double x = json_number_value(a), y = json_number_value(b);
    return order_of((x > y) - (x < y));
}

static enum order compare_strings(const json_t *a, const json_t *b)
{
    size_t x = json_string_length(a), y = json_string_length(b);
    int sign = memcmp(json_string_value(a), json_string_value(b), x < y ? x : y);
    return order_of(sign != 0 ? sign : (x > y) - (x < y));
}

static enum order compare(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return compare_numbers(a, b);
    if (json_is_string(a) && json_is_string(b))
        return compare_strings(a, b);
    if (json_is_boolean(a) && json_is_boolean(b))
        return order_of(json_is_true(a) - json_is_true(b));
    return json_is_null(a) && json_is_null(b) ? ORDER_EQUAL : ORDER_NONE;
}

/* 1: they are equal in all; 0: they are not. Counts what it looks at. */
static int equal(struct jsonpath_run *run, json_t *a, json_t *b)
{
    size_t n = json_is_array(a) ? json_array_size(a) : json_object_size(a);
    int rc = jsonpath_work(run, 1 + json_string_length(a) / BYTES_PER_WORK);
    if (rc < 0)
        return rc;
    if (!json_is_array(a) && !json_is_object(a))
        return compare(a, b) == ORDER_EQUAL;
    if (json_typeof(a) != json_typeof(b) || n != (json_is_array(b) ? json_array_size(b) : json_object_size(b)))
        return 0;
    rc = 1;
    for (size_t i = 0; i < json_array_size(a) && rc == 1; i++)
        rc = equal(run, json_array_get(a, i), json_array_get(b, i));
    for (void *at = json_object_iter(a); at && rc == 1; at = json_object_iter_next(a, at)) {
        json_t *other = json_object_get(b, json_object_iter_key(at));
        rc = other ? equal(run, json_object_iter_value(at), other) : 0;
    }
    return rc;
}

static bool in_order(enum jsonpath_operator operator, const json_t * a, const json_t *b)
{
    enum order order = compare(a, b);
    switch (operator) {
    case EXPRESSION_LT:
        return order == ORDER_LESS;
    case EXPRESSION_LE:
        return order == ORDER_LESS || order == ORDER_EQUAL;
    case EXPRESSION_GT:
        return order == ORDER_MORE;
    case EXPRESSION_GE:
        return order == ORDER_MORE || order == ORDER_EQUAL;
    default:
        return false;
    }
}

/* The pattern is the filter's own, or a string of the document. What is no pattern matches nothing. */
static int matches(struct jsonpath_run *run, const struct pattern *pattern, const json_t *text, const json_t *source)
{
    struct pattern *own = NULL;
    int rc = jsonpath_work(run, pattern ? 1 : WORK_PER_PATTERN);
    if (rc < 0 || !json_is_string(text) || !json_is_string(source))
        return rc;
    if (!pattern && pattern_compile(json_string_value(source), json_string_length(source), &own, NULL) < 0)
        return 0;
    pattern = pattern ? pattern : own;
    rc = jsonpath_work(run, json_string_length(text) * pattern_steps(pattern) / STEPS_PER_WORK);
    if (rc == 0)
        rc = pattern_matches(pattern, json_string_value(text), json_string_length(text));
    pattern_free(own);
    return rc;
}

/* != holds where == does not hold for any: that is the caller's to turn around. */
static int holds_for(struct jsonpath_run *run, const struct jsonpath_expression *e, json_t *a, json_t *b)
{
    if (e->operator== EXPRESSION_MATCHES)
        return matches(run, e->pattern, a, b);
    if (e->operator== EXPRESSION_EQ || e->operator== EXPRESSION_NE)
        return equal(run, a, b);
    int rc = jsonpath_work(run, 1);
    return rc < 0 ? rc : in_order(e->operator, a, b);
}

static int compare_terms(struct jsonpath_run *run, const struct jsonpath_expression *e, json_t *value)
{
    struct values a, b;
    int rc = evaluate(run, &e->a, value, &a), holds = 0;
    if (rc == 0)
        rc = evaluate(run, &e->b, value, &b);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < a.n && holds == 0; i++)
        for (size_t k = 0; k < b.n && holds == 0; k++)
            holds = holds_for(run, e, value_of(run, &a, i), value_of(run, &b, k));
    return holds < 0 || e->operator!= EXPRESSION_NE ? holds : !holds;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static int test(struct jsonpath_run *run, const struct jsonpath_expression *e, json_t *value)
{
    struct values values;
    if (e->a.constant)
        return !json_is_false(e->a.constant);
    int rc = evaluate(run, &e->a, value, &values);
    return rc < 0 ? rc : values.n > 0;
}

static int holds(struct jsonpath_run *run, const struct jsonpath_expression *e, json_t *value)
{
    int rc;
    switch (e->operator) {
    case EXPRESSION_OR:
        rc = holds(run, e->left, value);
        return rc != 0 ? rc : holds(run, e->right, value);
    case EXPRESSION_AND:
        rc = holds(run, e->left, value);
        return rc <= 0 ? rc : holds(run, e->right, value);
    case EXPRESSION_NOT:
        rc = holds(run, e->left, value);
        return rc < 0 ? rc : !rc;
    case EXPRESSION_TEST:
        return test(run, e, value);
    default:
        return compare_terms(run, e, value);
    }
}

int jsonpath_filter(struct jsonpath_run *run, const struct jsonpath_expression *e, json_t *value)
{
    size_t n = run->n;
    int rc = holds(run, e, value);
    assert(run->n >= n);
    run->n = n;
    return rc;
}
