/*
 * filter.h - FILTER expressions: the grammar of Redis's vector sets, compiled once, tested on an element or decided by
 * columns.
 *
 *   .field  12  -3.5e2  "text"  'text'  true  false  null  [1, "a"]      parentheses
 *   **  |  * / %  |  + -  |  > >= < <= == != in  |  ! not  |  && and  |  || or       (Redis's precedence, exactly)
 *
 * An element that lacks a field which the expression names, or has an object there, does not match, whatever else the
 * expression says; that is never an error. Extensions, none of which Redis would take:
 *
 *   exists .field          the field is there and not null; does not make the element fail where it is not
 *   .field prefix "ab"     a string that begins so
 *   key                    the element's name: key in ["a", "b"], key == "a", key prefix "user:"
 *   true  false  1e-5      as numbers
 *
 * Without those, an expression means what it means in Redis (docs/filters.md). Compiled filters are immutable and
 * shared by threads.
 */
#ifndef QUIRE_INDEX_FILTER_H
#define QUIRE_INDEX_FILTER_H

#include "index/attribute/attribute_schema.h"

#define FILTER_BYTES_MAX  16384u /* of an expression */
#define FILTER_DEPTH_MAX  200u   /* of nesting */
#define FILTER_FIELDS_MAX 64u    /* different ones in an expression */

struct filter;

/* QUIRE_EPARSE with what was expected at which byte; QUIRE_ELIMIT for length, nesting and fields, with the limits. The
 * schema (NULL: none) must live as long as the filter. */
int filter_compile(const char *text, size_t bytes, const struct attribute_schema *schema, struct filter **out,
                   struct quire_error *err);
struct filter *filter_ref(struct filter *filter); /* thread-safe */
void filter_unref(struct filter *filter);         /* thread-safe; NULL is fine */
/* Memory that it takes: some hundred times its text. */
size_t filter_memory_bytes(const struct filter *filter);
/* The expression as it was given: what tells filters of one schema apart. */
const char *filter_text(const struct filter *filter, uint32_t *n_bytes);

/* Whether an element matches. json: its attributes, NULL: none. key: its name. Cost: about a nanosecond per byte of
 * JSON and field. Nothing is allocated. */
bool filter_matches(const struct filter *filter, const char *json, uint32_t json_bytes, const void *key,
                    uint32_t key_bytes);

/* Whether the element's name is asked for anywhere. */
bool filter_asks_names(const struct filter *filter);

/* ---- for who decides by columns (columns.h) ---------------------------------------------------------------------- */

/* A tree of the parts that sets of rows can be made for. What an expression says of one field alone is one TEST,
 * however long: it is decided for each value that the field has. The tree is balanced: its depth is below 1,000 even
 * for the longest chain of `or`. */
enum filter_part_kind {
    FILTER_AND,    /* left and right */
    FILTER_OR,     /* left or right */
    FILTER_NOT,    /* left */
    FILTER_ALWAYS, /* a constant: true */
    FILTER_NEVER,  /* a constant: false */
    FILTER_TEST,   /* of one field, which is required */
    FILTER_EXISTS, /* field is there and not null */
    FILTER_NULL,   /* field is there and null */
    FILTER_KEYS,   /* the element's name is one of filter_key first_key .. + n_keys */
    FILTER_MIXED   /* of several fields at once (.a > .b): filter_rows.h */
};
/* In Redis every value has a number: strings are read as one ("7" > 5), and what is none, lists and null are 0. So a
 * test that looks like one of numbers may match strings, and the other way round; the shortcuts below each speak of one
 * kind of value, the others are still to be tested. Booleans are the numbers 0 and 1. */
struct filter_part {
    enum filter_part_kind kind;
    const struct filter_part *left, *right;
    uint32_t field;      /* TEST, EXISTS, NULL: index of filter_field */
    uint32_t first, end; /* of the compiled program: the filter's own */
    /* TEST: the NUMBERS that match are those of filter_interval_of first_interval .. + n_intervals (strings, lists,
     * null are to be tested); 0 intervals: none */
    bool numbers_known;
    uint32_t n_intervals, first_interval;
    /* TEST: the STRINGS that match are exactly filter_text_of first_text .. + n_texts (numbers, lists, null are to be
     * tested) */
    bool strings_listed;
    uint32_t n_texts, first_text;
    /* TEST, MIXED: all lists are alike to it, whatever is in them: test an empty one */
    bool lists_alike;
    /* TEST: it is `constant in .field`: a list matches if a member of it does (filter_test_member). Of members that are
     * strings that is filter_text_of first_text alone, unless member_is_number; of members that are numbers, the number
     * `member`. */
    bool is_member, member_is_number;
    double member;
    uint32_t n_keys, first_key; /* KEYS */
};
/* In ascending order, without overlap. Infinite where there is no bound. */
struct filter_interval {
    double low, high;
    bool low_open, high_open;
};
const struct filter_part *filter_root(const struct filter *filter);
uint32_t filter_n_fields(const struct filter *filter);
/* `required`: an element does not match, whatever else holds, where it lacks the field or has an OBJECT there. */
const char *filter_field(const struct filter *filter, uint32_t i, uint32_t *n_bytes, bool *required);
const struct filter_interval *filter_interval_of(const struct filter *filter, uint32_t i);
const char *filter_text_of(const struct filter *filter, uint32_t i, uint32_t *n_bytes);
const char *filter_key(const struct filter *filter, uint32_t i, uint32_t *n_bytes);
/* Whether a value of the field of a TEST makes it true; the value is typed (attribute_typed). An OBJECT never does. */
bool filter_test(const struct filter *filter, const struct filter_part *part, const struct json_value *value);
/* is_member: whether a list with this member matches. */
bool filter_test_member(const struct filter *filter, const struct filter_part *part, const struct json_value *member);

/* The fields of a TEST or a MIXED: into fields[FILTER_FIELDS_MAX]; how many. 0: it asks for the element's name as
 * well, which columns do not know. */
uint32_t filter_part_fields(const struct filter *filter, const struct filter_part *part, uint32_t *fields);

/* Whether a MIXED compares sums: two sides of fields, each of which stands once, and constants of at most
 * FILTER_SUM_MAX, with + and -, by < <= > or >=. */
#define FILTER_SUM_MAX 1e200 /* so that no sum of such numbers is infinite */
bool filter_compares_sums(const struct filter *filter, const struct filter_part *part);
/* Of such a one: false where no numbers from low[i] to high[i] of field i, none beyond FILTER_SUM_MAX, make it true.
 * With all but one field fixed it changes once at most along that field's numbers. */
bool filter_sums_may_match(const struct filter *filter, const struct filter_part *part, const double *low,
                           const double *high);

#endif
