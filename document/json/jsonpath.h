/*
 * jsonpath.h - paths into JSON documents: compiled once, looked up in any number of trees.
 *
 *     $.a.b  $['a']  $["a","b"]  $[0]  $[-1]  $[1,2]  $[1:5:2]  $.*  $[*]  $..a  $..[0]  $[?(@.price<10 && @.x=="y")]
 *
 * A filter compares (== != < <= > >=), matches a regular expression (=~, found anywhere in the string), asks whether a
 * path leads anywhere (@.a, !@.a), with && || ! and parentheses; @ is the member or element that is looked at, $ the
 * document. The comparison of several values holds if it holds for one of them.
 *
 * Legacy paths (RedisJSON 1) do not begin with `$.` or `$[`: `.`, `.a.b`, `a.b`, `a[0]`, `["a"]`. They are the same
 * paths without `$`; who replies to one gives the first value found instead of a list.
 *
 * A compiled path is immutable: threads may share it.
 */
#ifndef QUIRE_DOCUMENT_JSONPATH_H
#define QUIRE_DOCUMENT_JSONPATH_H

#include "document/json/tree.h"

#define JSONPATH_BYTES_MAX   4096u
#define JSONPATH_DEPTH_MAX   32u        /* of parentheses, negations and filters in filters */
#define JSONPATH_MATCHES_MAX (1u << 22) /* values on the way to what is found, those too */
#define JSONPATH_WORK_MAX    (1u << 24) /* values looked at, about */

struct jsonpath;

/* QUIRE_EPARSE names the byte and what is wrong there; QUIRE_ELIMIT the limit; QUIRE_ENOMEM. */
int jsonpath_compile(const char *text, size_t bytes, struct jsonpath **out, struct quire_error *err);
void jsonpath_free(struct jsonpath *path); /* NULL is fine */

bool jsonpath_is_legacy(const struct jsonpath *path);
bool jsonpath_is_root(const struct jsonpath *path);   /* `$`, `.`: the document itself */
bool jsonpath_is_static(const struct jsonpath *path); /* leads to one value at most: names and places alone */
/* The name at the end of a static path; NULL where it ends with a place, or is the root. Lives as long as the path. */
const char *jsonpath_last_name(const struct jsonpath *path, size_t *bytes);

enum { JSONPATH_NONE = UINT32_MAX };

/* A value that was found, and where: the member `key` of `parent`, or its element `index`. All is borrowed from the
 * tree. */
struct jsonpath_match {
    json_t *value, *parent; /* parent NULL: the root */
    const char *key;        /* NULL: an element, or the root */
    size_t index;           /* of an element; of a member: bytes of the key */
    uint32_t up;            /* matches.nodes[up] is the parent, with its own place; JSONPATH_NONE: the root */
};

/* Zeroed before first use; memory is kept from one search to the next. */
struct jsonpath_matches {
    const struct jsonpath_match *items; /* in the document's order, or as the path lists them; a value may come twice */
    size_t n;
    struct jsonpath_match *nodes; /* owned: items and what lies on the way to them */
    size_t capacity;
};
void jsonpath_matches_fini(struct jsonpath_matches *matches);

/* All values that the path leads to. QUIRE_ELIMIT where that is too much work or too many; QUIRE_ENOMEM. After an error
 * there are no items. */
int jsonpath_find(const struct jsonpath *path, json_t *root, struct jsonpath_matches *out, struct quire_error *err);
/* The same without the path's last step: what holds the values, or would. Not of the root path. */
int jsonpath_find_holders(const struct jsonpath *path, json_t *root, struct jsonpath_matches *out,
                          struct quire_error *err);

#endif
