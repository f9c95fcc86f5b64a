/*
 * tree.h - a JSON document in memory: from text and to text.
 *
 * The tree is jansson's (json_t, jansson.h): walked and changed with its functions, counted references, members of an
 * object in the order in which they came. What is here is what jansson leaves open: limits before anything is
 * allocated, numbers beyond 64 bits, and the text of RedisJSON.
 *
 * A document is parsed once, and as many paths as are needed are looked up in it (jsonpath.h):
 *
 *     json_t *root;
 *     struct jsonpath_matches found = {0};
 *     if (tree_parse(text, bytes, &root, &err) == 0 && jsonpath_find(path, root, &found, &err) == 0)
 *         for (size_t i = 0; i < found.n; i++)
 *             use(found.items[i].value); // json_typeof, json_string_value, json_number_value, ...
 *     jsonpath_matches_fini(&found);
 *     json_decref(root);
 *
 * One thread at a time may use a tree.
 */
#ifndef QUIRE_DOCUMENT_TREE_H
#define QUIRE_DOCUMENT_TREE_H

#include "quire.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREE_DEPTH_MAX    128u       /* levels of arrays and objects */
#define TREE_VALUES_MAX   (1u << 22) /* of a document: it takes about 60 bytes of memory for each while it is open */
#define TREE_NUMBER_BYTES 32u        /* of a number as text, with its end */

/* The value that `text` holds, and nothing behind it; *out gets a reference. An integer outside of 64 bits becomes a
 * real number, as does -0. QUIRE_EPARSE names the byte, QUIRE_ELIMIT the limit, QUIRE_ENOMEM. */
int tree_parse(const void *text, size_t bytes, json_t **out, struct quire_error *err);

/* Text under construction: zeroed before first use, freed by tree_text_fini. */
struct tree_text {
    char *data; /* not terminated; NULL: empty */
    size_t bytes, capacity;
    size_t most;     /* bytes that it may have; 0: any number */
    bool failed;     /* nothing is added any more: no memory, */
    bool too_long;   /* or more than the most */
    bool packs;      /* tree_pack's: lists of numbers are packed; */
    size_t n_packed; /* so many numbers were */
};
void tree_text_fini(struct tree_text *text);
void tree_text_add(struct tree_text *text, const void *bytes, size_t n);
void tree_text_fail(struct tree_text *text); /* no memory for what was to be added */
void tree_text_add_quoted(struct tree_text *text, const char *string, size_t n); /* as a JSON string */

/* A packed document: its text, as tree_print writes it, in which long lists of numbers are binary, in as few bytes as
 * give back the same text (tree_priv.h). The text itself is one, too.
 *
 * The value, packed, in *out, which is zeroed; too long where the text would have more than text_most bytes (0:
 * any). */
void tree_pack(const json_t *value, size_t text_most, struct tree_text *out);
/* The value again; as tree_parse. */
int tree_unpack(const void *document, size_t bytes, json_t **out, struct quire_error *err);
/* Adds the text of a packed document. QUIRE_ECORRUPT: it is none; out may have failed. */
int tree_unpack_text(const void *document, size_t bytes, struct tree_text *out, struct quire_error *err);

/* What stands between the values of JSON.GET with INDENT, NEWLINE and SPACE. */
struct tree_style {
    const char *indent, *newline, *space;
    size_t indent_bytes, newline_bytes, space_bytes;
};
/* Adds the value: without any blanks where style is NULL. Integers without a point; reals with as few digits as give
 * the same number back, and with a point or an exponent. `level`: of the value's indentation, 0 at first. */
void tree_print(const json_t *value, const struct tree_style *style, unsigned level, struct tree_text *out);
/* The line break and indentation before a value at this level; for lists that are no tree. */
void tree_print_break(const struct tree_style *style, unsigned level, struct tree_text *out);

/* The text of a finite number in `out`, as tree_print writes reals; returns its length. */
unsigned tree_print_real(double number, char out[TREE_NUMBER_BYTES]);

/* Whether it is within the limits that tree_parse has: QUIRE_ELIMIT after an edit that made too much of it. */
int tree_check(const json_t *value, struct quire_error *err);
/* Values in it, itself too; no further than the first `most`. A value that stands twice counts twice. */
size_t tree_count(const json_t *value, size_t most);
/* What a value takes in memory while it is open, about. */
size_t tree_memory_bytes(const json_t *value);
/* Its name as JSON.TYPE gives it: "object", "integer", "number", ... */
const char *tree_type_name(const json_t *value);

#endif
