/*
 * filter_by_parts.h - an element against the parts of a filter, as who decides by columns would do it.
 *
 * Tests and the fuzzer compare it with filter_matches. A MIXED part is unknown, and so is what depends on one; every
 * shortcut of a TEST (intervals, texts, alike lists, members) is held against filter_test on the value at hand.
 */
#ifndef QUIRE_TESTS_FILTER_BY_PARTS_H
#define QUIRE_TESTS_FILTER_BY_PARTS_H

#include "index/attribute/filter.h"
#include "tests/json_one.h"
#include <stdlib.h>
#include <string.h>

enum verdict { PARTS_NO, PARTS_YES, PARTS_UNKNOWN, PARTS_LIE };

struct parts_row {
    const struct filter *filter;
    const struct attribute_schema *schema;
    const char *json;
    uint32_t json_bytes;
    const void *key;
    uint32_t key_bytes;
};

static inline struct json_value parts_value(const struct parts_row *row, uint32_t field)
{
    uint32_t bytes;
    bool required;
    const char *name = filter_field(row->filter, field, &bytes, &required);
    return attribute_typed(attribute_schema_find(row->schema, name, bytes),
                           json_one(row->json, row->json_bytes, name, bytes));
}

static inline bool parts_in_intervals(const struct filter *filter, const struct filter_part *part, double x)
{
    for (uint32_t i = 0; i < part->n_intervals; i++) {
        const struct filter_interval *in = filter_interval_of(filter, part->first_interval + i);
        if ((x > in->low || (x == in->low && !in->low_open)) && (x < in->high || (x == in->high && !in->high_open)))
            return true;
    }
    return false;
}

static inline bool parts_has_text(const struct filter *filter, uint32_t first, uint32_t n, const char *text,
                                  uint32_t bytes)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other_bytes;
        const char *other = filter_text_of(filter, first + i, &other_bytes);
        if (other_bytes == bytes && (bytes == 0 || memcmp(other, text, bytes) == 0))
            return true;
    }
    return false;
}

/* Of members that are strings the one text alone, or any for a number; of members that are numbers the one number. */
static inline bool parts_member_matches(const struct filter *filter, const struct filter_part *part,
                                        const struct json_value *member)
{
    bool test = filter_test_member(filter, part, member), expected = test;
    char *plain = malloc(member->bytes + 1u);
    if (!plain)
        abort();
    if (member->kind == VALUE_NUMBER || member->kind == VALUE_BOOL)
        expected = member->number == part->member;
    else if (member->kind == VALUE_STRING && !part->member_is_number)
        expected = parts_has_text(filter, part->first_text, 1, plain, json_unescape(member, plain));
    free(plain);
    if (test != expected)
        abort();
    return test;
}

static inline bool parts_any_member(const struct filter *filter, const struct filter_part *part,
                                    const struct json_value *list)
{
    struct json_walk walk;
    struct json_value member;
    bool any = false;
    json_walk_list(&walk, list);
    while (json_next(&walk, NULL, &member))
        any |= parts_member_matches(filter, part, &member);
    return any;
}

static inline enum verdict parts_test(const struct parts_row *row, const struct filter_part *part)
{
    struct json_value value = parts_value(row, part->field), empty = {.kind = VALUE_LIST, .text = ""};
    bool test = filter_test(row->filter, part, &value), expected = test;
    if (value.kind == VALUE_NONE || value.kind == VALUE_OBJECT)
        return test ? PARTS_LIE : PARTS_NO;
    if ((value.kind == VALUE_NUMBER || value.kind == VALUE_BOOL) && part->numbers_known)
        expected = parts_in_intervals(row->filter, part, value.number);
    if (value.kind == VALUE_STRING && part->strings_listed) {
        char *plain = malloc(value.bytes + 1u);
        if (!plain)
            abort();
        expected = parts_has_text(row->filter, part->first_text, part->n_texts, plain, json_unescape(&value, plain));
        free(plain);
    }
    if (value.kind == VALUE_LIST && part->lists_alike)
        expected = filter_test(row->filter, part, &empty);
    if (value.kind == VALUE_LIST && part->is_member)
        expected = parts_any_member(row->filter, part, &value);
    return test != expected ? PARTS_LIE : test ? PARTS_YES : PARTS_NO;
}

static inline enum verdict parts_join(enum filter_part_kind kind, enum verdict a, enum verdict b)
{
    enum verdict decisive = kind == FILTER_AND ? PARTS_NO : PARTS_YES;
    if (a == PARTS_LIE || b == PARTS_LIE)
        return PARTS_LIE;
    if (a == decisive || b == decisive)
        return decisive;
    return a == PARTS_UNKNOWN ? a : b;
}

static inline enum verdict parts_verdict(const struct parts_row *row, const struct filter_part *part)
{
    struct json_value value;
    enum verdict left;
    switch (part->kind) {
    case FILTER_AND:
    case FILTER_OR:
        return parts_join(part->kind, parts_verdict(row, part->left), parts_verdict(row, part->right));
    case FILTER_NOT:
        left = parts_verdict(row, part->left);
        return left == PARTS_NO ? PARTS_YES : left == PARTS_YES ? PARTS_NO : left;
    case FILTER_ALWAYS:
        return PARTS_YES;
    case FILTER_NEVER:
        return PARTS_NO;
    case FILTER_TEST:
        return parts_test(row, part);
    case FILTER_EXISTS:
        value = parts_value(row, part->field);
        return value.kind != VALUE_NONE && value.kind != VALUE_NULL ? PARTS_YES : PARTS_NO;
    case FILTER_NULL:
        value = parts_value(row, part->field);
        return value.kind == VALUE_NULL ? PARTS_YES : PARTS_NO;
    case FILTER_KEYS:
        return parts_has_text(row->filter, part->first_key, part->n_keys, row->key, row->key_bytes) ? PARTS_YES
                                                                                                    : PARTS_NO;
    case FILTER_MIXED:
        return PARTS_UNKNOWN;
    }
    return PARTS_LIE;
}

/* With the fields that are required, whatever the parts say. */
static inline enum verdict parts_decide(const struct parts_row *row)
{
    enum verdict verdict = parts_verdict(row, filter_root(row->filter));
    for (uint32_t i = 0; i < filter_n_fields(row->filter); i++) {
        uint32_t bytes;
        bool required;
        struct json_value value = parts_value(row, i);
        filter_field(row->filter, i, &bytes, &required);
        if (required && (value.kind == VALUE_NONE || value.kind == VALUE_OBJECT) && verdict != PARTS_LIE)
            return PARTS_NO;
    }
    return verdict;
}

#endif
