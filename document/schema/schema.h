/*
 * schema.h - what an index of documents is made of: which keys, which fields, of which types.
 *
 * Made from the words of FT.CREATE and FT.ALTER, written to the journal as these words, and read again from there.
 * Immutable but for schema_alter, which makes a new one; readers hold a reference.
 */
#ifndef QUIRE_DOCUMENT_SCHEMA_H
#define QUIRE_DOCUMENT_SCHEMA_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEMA_FIELDS_MAX      1024u
#define SCHEMA_TEXT_FIELDS_MAX 64u
#define SCHEMA_PREFIXES_MAX    1024u
#define SCHEMA_DIM_MAX         65536u

enum schema_type { SCHEMA_TEXT, SCHEMA_TAG, SCHEMA_NUMERIC, SCHEMA_GEO, SCHEMA_VECTOR };
enum schema_source { SCHEMA_HASH, SCHEMA_JSON };
enum schema_algorithm { SCHEMA_FLAT, SCHEMA_HNSW, SCHEMA_SVS };
enum schema_element { SCHEMA_FLOAT32, SCHEMA_FLOAT64, SCHEMA_FLOAT16, SCHEMA_BFLOAT16, SCHEMA_INT8, SCHEMA_UINT8 };
enum schema_metric { SCHEMA_L2, SCHEMA_IP, SCHEMA_COSINE };

/* A word of a command, as it came; not terminated. */
struct schema_word {
    const char *data;
    uint32_t bytes;
};

struct schema_vector {
    enum schema_algorithm algorithm;
    enum schema_element element;
    enum schema_metric metric;
    uint32_t dim;
    uint32_t m, ef_construction, ef_runtime; /* as given, or RediSearch's defaults: 16, 200, 10 */
    double epsilon;                          /* .01 */
};

struct schema_field {
    char *identifier; /* name of the hash field, or JSON path; terminated */
    char *name;       /* AS, or the identifier */
    uint32_t identifier_bytes, name_bytes;
    uint32_t position; /* of the identifier in the command that made the field; for errors */
    uint32_t index;    /* of this field in the schema */
    enum schema_type type;
    bool sortable, unf, no_index, index_missing, index_empty, suffix_trie;
    double weight;       /* TEXT */
    bool no_stem;        /* TEXT */
    char phonetic[8];    /* TEXT: "dm:en" as given; empty: none */
    uint32_t text_bit;   /* TEXT: its number among the TEXT fields */
    char separator;      /* TAG; 0: none */
    bool case_sensitive; /* TAG */
    struct schema_vector vector;
};

struct schema {
    char *name; /* of the index; terminated, without NUL inside */
    uint32_t name_bytes;
    enum schema_source source;
    uint32_t n_prefixes; /* at least one, "" where none was given */
    struct schema_word *prefixes;
    bool prefixes_given;
    uint32_t n_fields;
    struct schema_field *fields;
    char *language;                                                            /* "english" where none was given */
    char *language_field;                                                      /* NULL: none */
    char *score_field;                                                         /* NULL: none */
    uint32_t language_position, language_field_position, score_field_position; /* in FT.CREATE; for errors */
    double score;                                                              /* 1 */
    bool stopwords_given;
    uint32_t n_stopwords;
    struct schema_word *stopwords; /* in lower case */
    bool skip_initial_scan;
    bool no_offsets, no_fields, no_freqs, no_highlight, max_text_fields; /* as given: shown by FT.INFO */
};

/* words: of FT.CREATE, behind the command's name (the index's name first). QUIRE_EINVAL with RediSearch's text where
 * clients match it (docs/search.md), otherwise the word, the limit and the remedy; behind it the position of the word
 * in the command, and the field. */
int schema_parse(const struct schema_word *words, uint32_t n_words, struct schema **out, struct quire_error *err);
/* A schema with the fields of `words` (behind FT.ALTER idx SCHEMA ADD) as well. position: of the first word in the
 * command, for errors. */
int schema_alter(const struct schema *schema, const struct schema_word *words, uint32_t n_words, uint32_t position,
                 struct schema **out, struct quire_error *err);
void schema_free(struct schema *schema); /* NULL is fine */

/* By name (the AS of a field), exactly; NULL: none. */
const struct schema_field *schema_find(const struct schema *schema, const char *name, size_t bytes);
/* By name, otherwise by identifier. */
const struct schema_field *schema_find_any(const struct schema *schema, const char *name, size_t bytes);
bool schema_follows(const struct schema *schema, const void *key, size_t bytes); /* whether a prefix fits */
const char *schema_algorithm_name(enum schema_algorithm algorithm);              /* "HNSW" */
size_t schema_element_bytes(enum schema_element element);
/* Whether neither NaN nor infinity is among n elements, which may lie anywhere. */
bool schema_elements_are_finite(enum schema_element element, const void *elements, size_t n);

#endif
