/*
 * json_value.h - single values out of an element's attributes, without building a tree of them.
 *
 * Attributes are JSON text that users gave; nothing has checked that it is well-formed, so every function takes any
 * bytes: what is no object has no fields, and where the end of a value cannot be told the object ends. Only top-level
 * fields are looked at. What is taken and what is not is the same as in Redis's vector sets (docs/filters.md). Nothing
 * is allocated, nothing recurses. Thread-safe.
 */
#ifndef QUIRE_INDEX_JSON_VALUE_H
#define QUIRE_INDEX_JSON_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum value_kind {
    VALUE_NONE, /* not there, or not well-formed */
    VALUE_NULL,
    VALUE_BOOL,
    VALUE_NUMBER,
    VALUE_STRING,
    VALUE_LIST,  /* of anything but objects, at any depth */
    VALUE_OBJECT /* an object, or a list with one inside: it is there, but no expression can look at it */
};

struct json_value {
    enum value_kind kind;
    double number;    /* of NUMBER; of BOOL 1 or 0 */
    const char *text; /* STRING: what stands between the quotes, escapes and all; LIST: between the brackets */
    uint32_t bytes;   /* of text */
    bool escaped;     /* STRING: it has escapes, which json_unescape takes out */
};

/* The fields of these names, the first of each; VALUE_NONE where there is none, or it is not well-formed. A name with
 * escapes is compared without them. One pass; no name twice, n <= JSON_FIELDS_MAX. */
#define JSON_FIELDS_MAX 64u
struct json_name {
    const char *text;
    uint32_t bytes;
};
void json_fields(const char *json, size_t bytes, const struct json_name *names, uint32_t n, struct json_value *values);

/* Walks the fields of an object, or the members of a list. */
struct json_walk {
    const char *at, *end;
};
void json_walk_object(struct json_walk *walk, const char *json, size_t bytes);
void json_walk_list(struct json_walk *walk, const struct json_value *list);
/* The next one; false at the end, or where what follows cannot be told. A value whose end is plain but which is not
 * well-formed (1-2) is VALUE_NONE: of a field of this name nothing is there. name: a STRING, of fields only (NULL for
 * lists). */
bool json_next(struct json_walk *walk, struct json_value *name, struct json_value *value);

/* The string without its escapes, as UTF-8, into out (room for value->bytes); returns its bytes. A \u that is no
 * character becomes U+FFFD; any other escape that JSON does not know stands for its character. */
uint32_t json_unescape(const struct json_value *value, char *out);
/* Goes through a string byte by byte, escapes taken out on the way. */
struct json_bytes {
    const char *at, *end;
    bool escaped;
    char out[4];
    uint8_t n, i;
};
void json_bytes_init(struct json_bytes *bytes, const struct json_value *value);
int json_byte(struct json_bytes *bytes); /* 0 .. 255; -1: the end */
/* Whether two strings are the same, whatever escapes they have. */
bool json_same_text(const struct json_value *a, const struct json_value *b);
/* All of the text as a number as JSON and FILTER write it: sign, digits, fraction, exponent; in every locale. */
bool json_number(const char *text, size_t bytes, double *out);

#endif
