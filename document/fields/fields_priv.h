/* fields_priv.h - inside of the room: what the indexes of a schema are made of. */
#ifndef QUIRE_DOCUMENT_FIELDS_PRIV_H
#define QUIRE_DOCUMENT_FIELDS_PRIV_H

#include "document/fields/doc_pages.h"
#include "document/fields/fields.h"
#include "document/fields/number_tree.h"
#include "document/fields/words.h"
#include "io/error.h"

/* A value of a TAG field. */
struct tag {
    struct vocabulary_entry entry;
    struct doc_set documents; /* dead ones as well */
};
/* One field of the schema. */
struct field {
    enum schema_type type;
    bool indexed;               /* false: VECTOR, NOINDEX */
    struct vocabulary tags;     /* TAG: of struct tag */
    uint64_t tag_set_bytes;     /* memory of their sets */
    struct number_tree numbers; /* NUMERIC; GEO: points as numbers (geo.h) */
    struct doc_set missing;     /* documents without the field; not with NOINDEX */
};
/* What scores need of a document. Zeroed: no words, and the score 1. */
struct document_info {
    uint32_t length;     /* words, each as often as its field's weight says */
    uint32_t most;       /* of its most frequent word or stem */
    uint32_t score_bits; /* of a float, exclusive or those of 1 */
};
#define DOCUMENT_SCORE_ONE 0x3F800000u
static inline float fields_info_score(const struct document_info *info)
{
    uint32_t bits = info->score_bits ^ DOCUMENT_SCORE_ONE;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}
struct field_mention {
    struct word *word;
    struct words_place place;
};
struct field_tagging {
    struct field *field;
    struct tag *tag;
};
enum purge_stage { PURGE_NONE, PURGE_WORDS, PURGE_STEMS, PURGE_FIELDS, PURGE_INFO };
/* A purge under way. Ids from `end` on came after it began and are not looked at. */
struct purge {
    enum purge_stage stage;
    struct doc_set living; /* owned: those when it began */
    uint32_t end, field;
    uint64_t n_dead;
    /* where it is: entry of a vocabulary and block of its word, in number_purge, or page of infos */
    struct sorted_place place;
    uint32_t block;
    uint64_t at;
};
struct fields {
    const struct schema *schema; /* the caller's */
    uint32_t n_fields, n_text;
    struct field *fields; /* owned */
    uint32_t *weights;    /* owned: of a place in each TEXT field, by its bit; at least 1 */
    uint32_t *stem_weights;
    struct vocabulary words, stems; /* of struct word */
    struct doc_set living;
    uint32_t next_id;
    uint64_t n_dead, length_total; /* length_total: of the living */
    uint64_t n_records, n_positions, n_blocks, posting_bytes;
    struct doc_pages info; /* of struct document_info; not made where nothing is said by it */
    struct purge purge;
    /* the document that is being added */
    struct field_mention *mentions; /* owned, as the others */
    struct field_tagging *taggings;
    struct words_posting *postings;
    struct words_place *places;
    uint8_t *payloads;
    char *folded;
    double *numbers;
    size_t n_mentions, mentions_capacity, n_taggings, taggings_capacity, postings_capacity, places_capacity,
        payloads_capacity, folded_capacity, numbers_capacity;
};

/* fields.c: empty indexes for fields first .. of the schema. */
int fields_make(struct fields *fields, const struct schema *schema, struct quire_error *err);

/* fields_eval.c: what the evaluation of a request shares with phrases and scores. */
struct fields_task {
    const struct fields *fields;
    const struct fields_request *request;
    struct quire_error *err;
    uint32_t ticks;
};
/* QUIRE_ETIMEOUT if the request has been cancelled; asks once in a while. `work`: since the last call, in steps of
 * some nanoseconds. */
int fields_tick(struct fields_task *task, uint32_t work);
/* The documents of a node, dead ones among them; those outside of `within` (not NULL) may be left out. *out is empty
 * after an error. */
int fields_node(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                struct doc_set *out);
/* The words that a node stands for: of a TERM itself, its stem, and what has that stem; of a pattern those it matches.
 * Appends to *words. Others have none. */
struct fields_words {
    const struct word **at; /* owned */
    uint32_t n, capacity;
};
int fields_words_of(struct fields_task *task, const struct query_node *node, struct fields_words *words);
/* The tags that a child of a TAG node stands for, each given to `take`. */
int fields_tags_of(struct fields_task *task, const struct field *field, const struct query_node *child,
                   int (*take)(void *context, const struct tag *tag), void *context);
/* The field of a node; QUIRE_EINVALID where it is not indexed as `type`. */
int fields_field_of(const struct fields_task *task, const struct query_node *node, enum schema_type type,
                    const struct field **out);

/* fields_phrase.c: how far the parts of a node lie apart in n documents (ids ascending): the root of the sum of the
 * squares of the least distances from each part to the next; at least 1. */
int fields_apart(struct fields_task *task, const struct query_node *node, const uint32_t *ids, size_t n,
                 uint32_t *apart);
/* The documents of a PHRASE, or of an AND with slop or order. */
int fields_phrase(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                  struct doc_set *out);

#endif
