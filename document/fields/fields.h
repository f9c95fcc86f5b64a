/*
 * fields.h - the documents of one schema by what their fields hold: inverted indexes in memory, and queries over them.
 *
 * A document has an id, a number that the caller gives and that only ascends; a document that changes gets a new id.
 * What is kept, per field: of a TAG the documents of each value, of NUMERIC and GEO the documents in the order of their
 * numbers and the number of each document, of all TEXT fields together the documents of each word and of each stem with
 * the places, of every field the documents without it. Not kept: values of VECTOR fields, and fields with NOINDEX.
 *
 * Removal is a bit: the id leaves the set of the living, and everything that is answered is cut down to that set.
 * fields_purge takes dead ids out of the rest, a slice at a time, when they are many.
 *
 * Threads: fields_add, _remove, _purge and _alter want the fields alone (the caller's write lock); everything that
 * takes them const may run in several threads at a time.
 */
#ifndef QUIRE_DOCUMENT_FIELDS_H
#define QUIRE_DOCUMENT_FIELDS_H

#include "document/query/query.h"
#include "document/schema/record.h"

typedef struct roaring_bitmap_s roaring_bitmap_t; /* roaring/roaring.h takes .4 s to compile */

#define FIELDS_ID_MAX        (UINT32_MAX - 1u)
#define FIELDS_PREFIX_MIN    2u  /* letters of a prefix, RediSearch's MINPREFIX: a shorter one finds nothing */
#define FIELDS_VALUE_GAP     99u /* places between the words of two values of one TEXT field */
#define FIELDS_TOO_LATE      "Timeout limit was reached: the query took longer than it was given"
#define FIELDS_LATITUDE_MAX  85.05112878 /* of a GEO point, as Redis has it */
#define FIELDS_LONGITUDE_MAX 180.0

struct fields;

/* The schema is the caller's and must live until fields_free or the fields_alter that replaces it. QUIRE_ENOMEM. */
int fields_create(const struct schema *schema, struct fields **out, struct quire_error *err);
void fields_free(struct fields *fields); /* NULL is fine */
/* The same fields and new ones behind them. Documents that are there lack the new ones: whoever wants them to have
 * them adds these documents again. QUIRE_ENOMEM: nothing has changed. Cost: a bit a document and new field. */
int fields_alter(struct fields *fields, const struct schema *schema, struct quire_error *err);

/* id: above all that were added before, at most FIELDS_ID_MAX (otherwise QUIRE_EINVALID; see fields_renumber). All or
 * nothing: QUIRE_ENOMEM; QUIRE_EINVALID (a number that is NaN, a language that is not known), QUIRE_ERANGE (a point
 * outside of the limits above). Cost: per word and tag about a microsecond. */
int fields_add(struct fields *fields, uint32_t id, const struct record *record, struct quire_error *err);
bool fields_remove(struct fields *fields, uint32_t id); /* whether it was there */
bool fields_has(const struct fields *fields, uint32_t id);
uint32_t fields_next_id(const struct fields *fields);   /* above all that were added; the least that fields_add takes */
uint64_t fields_documents(const struct fields *fields); /* the living */

/* Dead ids leave all indexes if they are as many as a quarter of the living, and a thousand, or if such a purge is
 * under way: a slice of it, below a millisecond or so. True: there is more to do. A purge that finds no memory for its
 * list of the living (a bit a document) is tried again by the next call. */
bool fields_purge(struct fields *fields);
/* Whether ids have become so sparse, or so large, that fields_renumber is worth its time. */
bool fields_want_renumber(const struct fields *fields);
/* The living documents under the ids 0 .. n - 1, in the same order. (*old_ids)[new id] is the id in `fields`, and the
 * caller's to free(). Cost: of all that is kept, some microseconds a document. QUIRE_ENOMEM. */
int fields_renumber(const struct fields *fields, struct fields **out, uint32_t **old_ids, struct quire_error *err);

/* A query. All but the root may be zero. */
struct fields_request {
    const struct query_node *root;
    /* The documents of a QUERY_RANGE, or of a QUERY_KNN: found elsewhere, and *out is whoever's that is, until the call
     * ends; asked for more than once. Without it, such a node is QUIRE_EINVALID. */
    int (*given)(void *context, const struct query_node *node, const roaring_bitmap_t **out, struct quire_error *err);
    /* Asked about every millisecond; true: the call ends with QUIRE_ETIMEOUT. */
    bool (*cancelled)(void *context);
    void *context;
    /* Words that a pattern in a text may stand for, the first in order; 0: all (RediSearch: MAXEXPANSIONS, 200). */
    uint32_t expansions_max;
};
/* The living documents for which the query holds. *out is the caller's. QUIRE_ENOMEM, QUIRE_ETIMEOUT, QUIRE_EINVALID
 * (a field that is not indexed, or not of the node's type), and what `given` answers.
 * Cost: of a tag or word its documents, of a range a fraction of a nanosecond per id in it; of a suffix, infix, fuzzy
 * part or wildcard some tens of nanoseconds per value of the field or word of all texts. */
int fields_eval(const struct fields *fields, const struct fields_request *request, roaring_bitmap_t **out,
                struct quire_error *err);

enum fields_scorer {
    FIELDS_BM25STD, /* RediSearch's default */
    FIELDS_BM25STD_TANH,
    FIELDS_BM25,
    FIELDS_TFIDF,
    FIELDS_TFIDF_DOCNORM,
    FIELDS_DISMAX,
    FIELDS_DOCSCORE
};
/* By the name of SCORER, in any case. False: there is none. */
bool fields_scorer_find(const char *name, size_t bytes, enum fields_scorer *out);
/* The scores of n documents, ids ascending, all of which the query finds. tanh_factor: of BM25STD.TANH (RediSearch's
 * default: 4). Errors as fields_eval. Cost: per document and word of the query some ten nanoseconds. */
int fields_score(const struct fields *fields, const struct fields_request *request, enum fields_scorer scorer,
                 double tanh_factor, const uint32_t *ids, size_t n, double *scores, struct quire_error *err);

/* The number of a document in a NUMERIC field, of several the first; false: it has none. */
bool fields_number(const struct fields *fields, uint32_t id, uint32_t field, double *number);
/* Every value that a living document has in a TAG field, in order, as it is compared. QUIRE_EINVALID where the field is
 * no indexed TAG. The text is valid during the call of `value`, which may not call back. */
int fields_tag_values(const struct fields *fields, uint32_t field,
                      bool (*value)(void *context, const char *text, uint32_t bytes, uint64_t documents), void *context,
                      struct quire_error *err);

struct fields_stats {
    uint64_t n_documents, n_dead; /* dead: not purged yet */
    uint64_t n_words;             /* different ones, without stems */
    uint64_t n_stems, n_tags, n_numbers;
    uint64_t n_records;   /* (document, word or stem) */
    uint64_t n_positions; /* of words and stems */
    uint64_t n_blocks;    /* of postings */
    uint64_t text_bytes, tag_bytes, number_bytes, geo_bytes, missing_bytes, document_bytes; /* memory */
};
void fields_get_stats(const struct fields *fields, struct fields_stats *out);
uint64_t fields_bytes(const struct fields *fields); /* memory, of all */

#endif
