/*
 * strict.h - a strict reader of JSON (RFC 8259): a text becomes an array of nodes that refer to it.
 *
 *     struct strict json = {0};
 *     if (strict_read(&json, body, bytes, &err) == 0) {
 *         uint32_t model = strict_member(&json, STRICT_ROOT, "model");
 *         if (model && strict_is(&json, model, "gpt-4o"))
 *             ...
 *     }
 *     strict_fini(&json);
 *
 * What other readers forgive is an error here, because a text that two readers understand differently poisons a cache:
 * a name twice in one object (escapes undone: "a" and "\u0061" are one name), broken UTF-8, a byte-order mark, half a
 * surrogate pair, more than STRICT_DEPTH_MAX levels, a number whose exponent has more than 15 digits, also in its
 * canonical spelling.
 *
 * A reader is used for one text after the other and keeps a little memory between them. Memory is bounded by the text:
 * 24 bytes for each value (twice that while the array grows), 4 for each name, and the strings that are spelled anew;
 * a chat takes a tenth of its size. Numbers that follow each other in a list are one node, so that lists of tokens and
 * vectors take none that counts; of the rest an owner may allow `nodes_max`. One thread at a time.
 */
#ifndef QUIRE_GATEWAY_TEXT_STRICT_H
#define QUIRE_GATEWAY_TEXT_STRICT_H

#include "quire.h"

#define STRICT_DEPTH_MAX 64
#define STRICT_BYTES_MAX (64u << 20)
#define STRICT_ROOT      0u /* the node of the whole text; as a result of strict_member: there is none */

enum strict_kind {
    STRICT_NULL,
    STRICT_FALSE,
    STRICT_TRUE,
    STRICT_NUMBER, /* not in a list */
    STRICT_STRING,
    STRICT_LIST,
    STRICT_OBJECT,
    STRICT_NUMBERS, /* in a list: one or more that follow each other, see strict_numbers */
};

/* Bytes that belong to somebody else; data NULL: there are none. */
struct strict_text {
    const char *data;
    size_t bytes;
};

/* Children follow their parent: of a list one node after the other, of an object name, value, name, value. Walk them by
 * strict_begin, strict_next and strict_end. */
struct strict_node {
    uint32_t at, bytes; /* where it stands in the text: strings without their quotes, all else whole */
    uint32_t canon;     /* of a string: its canonical spelling, see strict_spelling; of an object: see `order` */
    uint32_t n;         /* of a string: bytes of that spelling; of a list or an object: elements or members; of numbers:
                         * how many, each an element */
    uint32_t next;      /* the node after this one and all that is in it */
    uint8_t kind;       /* enum strict_kind */
    uint8_t flags;      /* strict.c's */
};

/* Zeroed before first use. What strict_read fills refers to its text, which must stay as it is. */
struct strict {
    const char *text; /* borrowed */
    size_t text_bytes;
    struct strict_node *nodes;
    uint32_t n_nodes, nodes_capacity;
    /* The owner's: texts with more, or thrice as many numbers in lists, are refused (QUIRE_ELIMIT); 0: none are. */
    uint32_t nodes_max;
    uint32_t *order; /* of each object the nodes of its names, sorted by their canonical spelling */
    uint32_t n_order, order_capacity;
    char *spelled; /* canonical spellings of strings that the text spells differently */
    uint32_t n_spelled, spelled_capacity;
};

/* QUIRE_EPARSE: no JSON, or a name twice; QUIRE_ELIMIT: too long, too deep, or an exponent too large; QUIRE_ENOMEM. The
 * message says what is wrong at which byte, and quotes nothing of the text. After a failure nothing is to be asked. */
int strict_read(struct strict *json, const char *text, size_t bytes, struct quire_error *err);
void strict_fini(struct strict *json);

/* The value of this name in an object; 0 if the node is no object or has none. `name` holds no character that JSON
 * escapes. Looks at log2(members) names. */
uint32_t strict_member(const struct strict *json, uint32_t object, const char *name);
/* The same; 0 also for null. */
uint32_t strict_given(const struct strict *json, uint32_t object, const char *name);
/* Whether a node is a string and says `plain`, which holds no character that JSON escapes. */
bool strict_is(const struct strict *json, uint32_t node, const char *plain);
/* The string of a node, escapes undone, into `out`, which has room for nodes[node].bytes. Returns its bytes. */
size_t strict_decode(const struct strict *json, uint32_t node, char *out);
/* A string as canonical JSON spells it, without quotes: only `"`, `\` and what is below U+0020 is escaped, by two
 * characters where JSON has them, else as \u00xx in lower case. Equal strings, and no others, have equal spellings. */
struct strict_text strict_spelling(const struct strict *json, uint32_t node);
/* Any UTF-8 as a JSON string with its quotes, into `out`, which has room for 6 * bytes + 2. Returns its bytes; 0: that
 * is no UTF-8. */
size_t strict_quote(const char *text, size_t bytes, char *out);
/* A number as a double, rounded; NAN of other nodes, also of STRICT_NUMBERS. Too large: infinity. */
double strict_double(const struct strict *json, uint32_t node);
/* A whole number of 0..max in any spelling (1, 1.0, 10e-1); false of all others. */
bool strict_whole(const struct strict *json, uint32_t node, uint64_t max, uint64_t *value);

/* A value with all that belongs to it, as it stands in the text: strings with their quotes. */
static inline struct strict_text strict_raw(const struct strict *json, uint32_t node)
{
    uint32_t quote = json->nodes[node].kind == STRICT_STRING;
    return (struct strict_text){json->text + json->nodes[node].at - quote, json->nodes[node].bytes + 2u * quote};
}

static inline enum strict_kind strict_kind(const struct strict *json, uint32_t node)
{
    return (enum strict_kind)json->nodes[node].kind;
}

/* for (uint32_t i = strict_begin(node); i < strict_end(json, node); i = strict_next(json, i)): elements of a list. Of
 * an object i is the name, i + 1 the value, and the step is strict_next(json, i + 1). Scalars have none. */
static inline uint32_t strict_begin(uint32_t node)
{
    return node + 1;
}
static inline uint32_t strict_next(const struct strict *json, uint32_t node)
{
    return json->nodes[node].next;
}
static inline uint32_t strict_end(const struct strict *json, uint32_t node)
{
    return json->nodes[node].next;
}

/* ---- spellings of numbers ---- */

/* A number as canonical JSON spells it, digits without zeros at either end and an exponent: -12.50 is -125e-1, 0 and
 * -0.0e7 are 0. Both parts lie in the caller's text or in `tail`. */
struct strict_number {
    bool negative;
    const char *first, *second; /* the digits, in two pieces where a point is between them */
    size_t first_bytes, second_bytes;
    char tail[24]; /* "", or "e" and the exponent */
    size_t tail_bytes;
};

/* Of a number that strict_read has accepted. */
void strict_number(const char *text, size_t bytes, struct strict_number *out);
double strict_number_double(const char *text, size_t bytes);

/* Whether a byte within a node STRICT_NUMBERS is a comma or white space, and no number's. */
static inline bool strict_parts_numbers(char c)
{
    return c == ',' || (unsigned char)c <= ' ';
}

/* The numbers of a node STRICT_NUMBERS, one after the other: *at is 0 before the first; data NULL: none is left. */
struct strict_text strict_numbers(const struct strict *json, uint32_t node, uint32_t *at);

#endif
