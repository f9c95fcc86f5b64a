/*
 * expression_functions.c - the table of functions, and those about numbers, values and places.
 *
 * One row per function: name, how many arguments, what runs. A function that is about numbers and gets something else
 * answers NaN; one about text refuses it, so that a forgotten to_str() is seen.
 */
#include "document/pipeline/expression_priv.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int expression_give(struct expression_call *call, struct datum *datum, struct datum **out)
{
    if (datum) {
        *out = datum;
        return 0;
    }
    if (call->pool->full)
        return error_set(
            call->err, QUIRE_ELIMIT,
            "the values of FT.AGGREGATE take more than %zu bytes: narrow the query, group or LIMIT earlier",
            call->pool->bytes_max);
    return error_set(call->err, QUIRE_ENOMEM, "no memory for a value of FT.AGGREGATE");
}

int expression_give_number(struct expression_call *call, double number, struct datum **out)
{
    return expression_give(call, datum_number(call->pool, number), out);
}

int expression_give_null(struct expression_call *call, struct datum **out)
{
    return expression_give(call, datum_null(call->pool), out);
}

const char *expression_kind_name(const struct datum *datum)
{
    static const char *const names[] = {
        [DATUM_NULL] = "null", [DATUM_NUMBER] = "a number", [DATUM_STRING] = "a string", [DATUM_ARRAY] = "an array"};
    return names[datum->kind];
}

int expression_want_string(struct expression_call *call, struct datum *const *args, uint32_t i)
{
    if (args[i]->kind == DATUM_STRING)
        return 0;
    return error_set(call->err, QUIRE_EINVALID,
                     "Invalid type for argument %u in function '%s': it is %s, a string is needed", i, call->name,
                     expression_kind_name(args[i]));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

#define NUMERIC(name, f)                                                                                               \
    static int name(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)           \
    {                                                                                                                  \
        double x;                                                                                                      \
        (void)n;                                                                                                       \
        return expression_give_number(call, datum_to_number(args[0], &x) ? f(x) : (double)NAN, out);                   \
    }
NUMERIC(call_abs, fabs)
NUMERIC(call_ceil, ceil)
NUMERIC(call_exp, exp)
NUMERIC(call_floor, floor)
NUMERIC(call_log, log)
NUMERIC(call_log2, log2)
NUMERIC(call_sqrt, sqrt)

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int call_to_number(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    double x;
    (void)n;
    if (datum_to_number(args[0], &x))
        return expression_give_number(call, x, out);
    return error_set(call->err, QUIRE_EINVALID, "to_number: cannot convert %s '%.100s'", expression_kind_name(args[0]),
                     args[0]->kind == DATUM_STRING ? datum_text(args[0]) : "");
}

static int call_to_str(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    char text[DATUM_PRINT_MAX];
    size_t bytes = 0;
    (void)n;
    if (args[0]->kind == DATUM_STRING)
        return expression_give(call, datum_share(args[0]), out);
    if (args[0]->kind == DATUM_NUMBER)
        bytes = datum_print(args[0]->number, text);
    return expression_give(call, datum_string(call->pool, text, bytes), out);
}

static int call_exists(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return expression_give_number(call, args[0] && args[0]->kind != DATUM_NULL, out);
}

static int call_matched_terms(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    double most = 100;
    struct datum *terms = NULL;
    if (n == 1 && !(datum_to_number(args[0], &most) && most >= 1 && most <= 100))
        most = 100;
    if (call->row->terms) {
        int rc = call->row->terms(call->row->context, (uint32_t)most, call->pool, &terms, call->err);
        if (rc)
            return rc;
    }
    return terms ? expression_give(call, terms, out) : expression_give_null(call, out);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

#define EARTH_RADIUS_M 6372797.560856 /* the sphere of GEODIST and of GEO fields */

/* "longitude,latitude" or "longitude latitude" */
static bool read_place(const struct datum *datum, double place[2])
{
    char *end;
    if (datum->kind != DATUM_STRING)
        return false;
    const char *text = datum_text(datum), *between = strpbrk(text, ", ");
    if (!between)
        return false;
    place[0] = strtod(text, &end);
    if (end == text || end != between)
        return false;
    place[1] = strtod(between + 1, &end);
    return end != between + 1 && end == text + datum->n;
}

/* The haversine formula. */
static double distance_m(const double a[2], const double b[2])
{
    const double radian = M_PI / 180;
    double u = sin((b[1] - a[1]) * radian / 2), v = sin((b[0] - a[0]) * radian / 2);
    return 2 * EARTH_RADIUS_M * asin(sqrt(u * u + cos(a[1] * radian) * cos(b[1] * radian) * v * v));
}

/* Two places, each a text or two numbers. */
static int call_geodistance(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    double places[2][2];
    uint32_t at = 0;
    bool fine = true;
    for (uint32_t i = 0; i < 2 && fine; i++) {
        double ignored;
        bool pair = n == 4 || (n == 3 && i == (datum_to_number(args[0], &ignored) ? 0u : 1u));
        if (pair)
            fine = datum_to_number(args[at], &places[i][0]) && datum_to_number(args[at + 1], &places[i][1]);
        else
            fine = read_place(args[at], places[i]);
        at += pair ? 2 : 1;
    }
    assert(!fine || at == n);
    return expression_give_number(call, fine ? round(distance_m(places[0], places[1]) * 100) / 100 : (double)NAN, out);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct expression_entry entries[] = {
    {"abs", 1, 1, call_abs},
    {"case", 3, 3, NULL},
    {"ceil", 1, 1, call_ceil},
    {"contains", 2, 2, expression_contains},
    {"day", 1, 1, expression_day},
    {"dayofmonth", 1, 1, expression_dayofmonth},
    {"dayofweek", 1, 1, expression_dayofweek},
    {"dayofyear", 1, 1, expression_dayofyear},
    {"exists", 1, 1, call_exists},
    {"exp", 1, 1, call_exp},
    {"floor", 1, 1, call_floor},
    {"format", 1, EXPRESSION_ARGS_MAX, expression_format},
    {"geodistance", 2, 4, call_geodistance},
    {"hour", 1, 1, expression_hour},
    {"log", 1, 1, call_log},
    {"log2", 1, 1, call_log2},
    {"lower", 1, 1, expression_lower},
    {"matched_terms", 0, 1, call_matched_terms},
    {"minute", 1, 1, expression_minute},
    {"month", 1, 1, expression_month},
    {"monthofyear", 1, 1, expression_monthofyear},
    {"parsetime", 2, 2, expression_parsetime},
    {"split", 1, 3, expression_split},
    {"sqrt", 1, 1, call_sqrt},
    {"startswith", 2, 2, expression_startswith},
    {"strlen", 1, 1, expression_strlen},
    {"substr", 3, 3, expression_substr},
    {"timefmt", 1, 2, expression_timefmt},
    {"to_number", 1, 1, call_to_number},
    {"to_str", 1, 1, call_to_str},
    {"upper", 1, 1, expression_upper},
    {"year", 1, 1, expression_year},
};

const struct expression_entry *expression_find(const char *name, size_t bytes, uint32_t *at)
{
    for (uint32_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strlen(entries[i].name) == bytes && strncasecmp(entries[i].name, name, bytes) == 0) {
            *at = i;
            return &entries[i];
        }
    return NULL;
}

const struct expression_entry *expression_at(uint32_t at)
{
    assert(at < sizeof entries / sizeof entries[0]);
    return &entries[at];
}
