/* json_one.h - the value of one field, by asking json_fields for it alone. */
#ifndef QUIRE_TESTS_JSON_ONE_H
#define QUIRE_TESTS_JSON_ONE_H

#include "index/attribute/json_value.h"

static inline struct json_value json_one(const char *json, size_t bytes, const char *name, size_t name_bytes)
{
    struct json_value value;
    struct json_name one = {.text = name, .bytes = (uint32_t)name_bytes};
    json_fields(json, bytes, &one, 1, &value);
    return value;
}

#endif
