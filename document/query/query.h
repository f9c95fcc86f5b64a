/*
 * query.h - the query language of FT.SEARCH and FT.AGGREGATE (DIALECT 2): text in, a tree out.
 *
 * The grammar is in docs/search.md. A tree is made for one schema, because the same letters mean different things for
 * a tag, a number and a text. Parameters ($name) are replaced while the text is read, so a tree holds values only.
 * The parser keeps no state; a tree is immutable and may be read by several threads.
 */
#ifndef QUIRE_DOCUMENT_QUERY_H
#define QUIRE_DOCUMENT_QUERY_H

#include "document/schema/schema.h"

#define QUERY_BYTES_MAX 65536u   /* of a query's text */
#define QUERY_DEPTH_MAX 250u     /* of nesting; a tree is at most three times as deep */
#define QUERY_NODES_MAX 65536u   /* of a tree */
#define QUERY_KNN_MAX   1000000u /* neighbours */

enum query_kind {
    QUERY_ALL,      /* * */
    QUERY_NONE,     /* nothing: an empty query */
    QUERY_AND,      /* all children */
    QUERY_OR,       /* any child */
    QUERY_NOT,      /* child 0 does not hold */
    QUERY_OPTIONAL, /* child 0 may hold: changes no set, only scores */
    QUERY_TERM,     /* a word: `text` itself; where `stem` is set also each word that is it or has it as its stem */
    QUERY_PHRASE,   /* children (TERMs, two or more) in one field, with at most `slop` words between them (-1: any
                       number), and in order if `in_order`: "two words" has slop 0, in order */
    QUERY_PREFIX,   /* text* */
    QUERY_SUFFIX,   /* *text */
    QUERY_INFIX,    /* *text* */
    QUERY_WILDCARD, /* w'te?t*' */
    QUERY_FUZZY,    /* %text%: Levenshtein distance up to `distance` */
    QUERY_TAG,      /* field: any child (TERM, PREFIX, SUFFIX, INFIX, WILDCARD) is among its tags */
    QUERY_NUMERIC,  /* field: low..high */
    QUERY_GEO,      /* field: within radius_m of a point */
    QUERY_MISSING,  /* field (of any type) is not in the document */
    QUERY_RANGE,    /* field: vector within radius */
    QUERY_KNN       /* field: the k nearest of those for which child 0 holds (always there); only at the root */
};

/* A string in the tree; not terminated. */
struct query_text {
    const char *data;
    uint32_t bytes;
};

struct query_node {
    enum query_kind kind;
    uint32_t n_children;
    struct query_node **children;
    /* TERM, PREFIX, SUFFIX, INFIX, WILDCARD, FUZZY: unescaped. In a TAG as it was written (the field says whether
     * case counts); otherwise in lower case (document/text/fold.h), and `stem` set where the word's stem is searched
     * for, too. A TERM of 0 bytes looks for the empty value. */
    struct query_text text, stem;
    /* Text: the fields it is searched in, a bit for each of the schema's TEXT fields (schema_field.text_bit). What
     * joins others has the fields that were written in front of it; those of its children count. */
    uint64_t text_fields;
    const struct schema_field *field; /* TAG, NUMERIC, GEO, MISSING, RANGE, KNN */
    uint32_t distance;                /* FUZZY: 1 to 3 */
    double weight;                    /* =>{$weight: w}; 1 */
    int64_t slop;                     /* -1: none was given */
    bool in_order;
    double low, high; /* NUMERIC */
    bool low_open, high_open;
    double longitude, latitude, radius_m; /* GEO */
    const void *vector;                   /* RANGE, KNN: field->vector.dim elements of its type; the caller's bytes */
    uint32_t vector_bytes;
    double radius;                 /* RANGE */
    double epsilon;                /* RANGE, KNN: for query_explain alone; < 0: none was given */
    uint32_t k;                    /* KNN */
    uint32_t ef;                   /* RANGE, KNN: EF_RUNTIME; 0: none was given */
    struct query_text distance_as; /* RANGE, KNN: name of the distance in the answer; RANGE: empty: none */
    struct query_text vector_name; /* RANGE, KNN: the parameter's, for query_explain */
};

struct query_param {
    struct query_text name, value;
};

/* What FT.SEARCH says beside the text. */
struct query_context {
    const struct schema *schema;
    const struct query_param *params;
    uint32_t n_params;
    uint64_t text_fields;       /* INFIELDS; 0: all */
    bool verbatim;              /* no stems */
    bool no_stopwords;          /* stop words are words */
    const char *language;       /* NULL: the schema's */
    uint32_t language_position; /* in the command: of what `language` is, for errors */
    int64_t slop;               /* SLOP; -1: none */
    bool in_order;
    unsigned dialect; /* 1 to 4; all are read as 2 but where docs/search.md says otherwise */
};

struct query; /* a tree and its memory */

/* QUIRE_EPARSE: err->message names what was met at which offset; QUIRE_ELIMIT: with the limit; QUIRE_ENOMEM. What
 * params hold and the schema must live as long as the query; text need not. */
int query_parse(const struct query_context *context, const char *text, size_t bytes, struct query **out,
                struct quire_error *err);
void query_free(struct query *query); /* NULL is fine */
const struct query_node *query_root(const struct query *query);

#endif
