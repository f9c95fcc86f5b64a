/*
 * pipeline.h - what FT.AGGREGATE does with the documents that its query found.
 *
 *     pipeline_parse(words, n, 3, &pipeline, &err);          the words behind the query: options and steps
 *     ... pipeline_options(pipeline) has PARAMS and so on: parse the query ...
 *     pipeline_bind(pipeline, &binding, &err);               the fields that the steps name, in the schema
 *     pipeline_run_create(pipeline, &source, &limits, &run, &err);
 *     while ((rc = pipeline_run_next(run, &budget, &err)) == PIPELINE_ROW)
 *         ... pipeline_run_cells(run, &cells) ...
 *     pipeline_run_destroy(run); pipeline_free(pipeline);
 *
 * Rows are pulled one by one: a step asks the one before it, the first one asks the source. SORTBY and GROUPBY take in
 * all rows before they give one. A call works for as many rows as its budget says and then answers PIPELINE_PAUSED, so
 * that a lane can serve others; the next call goes on where it stopped. A run that is kept is a cursor.
 *
 * Steps, expressions and limits: docs/aggregate.md.
 */
#ifndef QUIRE_DOCUMENT_PIPELINE_H
#define QUIRE_DOCUMENT_PIPELINE_H

#include "document/pipeline/datum.h"
#include "document/query/query.h"
#include "document/schema/schema.h"

#define PIPELINE_STEPS_MAX   64u   /* LOAD, APPLY, FILTER, GROUPBY, SORTBY with its LIMIT */
#define PIPELINE_FIELDS_MAX  1024u /* names in one LOAD, and columns of a row */
#define PIPELINE_SORT_MAX    8u    /* fields of a SORTBY */
#define PIPELINE_PARAMS_MAX  1024u
#define PIPELINE_ROWS_MAX    1000000u     /* default: rows that SORTBY keeps, groups of GROUPBY */
#define PIPELINE_IDLE_MAX_MS 300000u      /* of a cursor: CURSOR_MAX_IDLE of FT.CONFIG */
#define PIPELINE_BYTES_MAX   (512u << 20) /* default: what the values of a run take */

struct pipeline;
struct pipeline_run;

/* What the command says beside the steps. Words point into the command. */
struct pipeline_options {
    bool verbatim, no_stopwords, in_order;
    bool add_scores; /* __score is a field of every row */
    bool with_count; /* WITHCOUNT */
    bool with_cursor;
    uint32_t cursor_rows;    /* COUNT; 1,000 */
    uint64_t cursor_idle_ms; /* MAXIDLE; 300,000 */
    unsigned dialect;        /* 0: none was given */
    bool timeout_given;
    uint64_t timeout_ms;                           /* 0: none */
    int64_t slop;                                  /* -1: none was given */
    struct schema_word scorer, language, expander; /* bytes 0: none was given */
    const struct query_param *params;
    uint32_t n_params;
    const struct schema_word *in_fields; /* INFIELDS */
    uint32_t n_in_fields;
    const struct schema_word *in_keys; /* INKEYS */
    uint32_t n_in_keys;
    bool in_keys_given;
};

/* Words of FT.AGGREGATE behind the query; they must live as long as the pipeline. `position`: how many words of the
 * command stand before them, for messages. QUIRE_EPARSE: err->message names the word and its position, or the offset in
 * an expression; QUIRE_EUNSUPPORTED: what Quire has not, by name; QUIRE_ELIMIT: with the limit; QUIRE_ENOMEM. */
int pipeline_parse(const struct schema_word *words, uint32_t n, uint32_t position, struct pipeline **out,
                   struct quire_error *err);
void pipeline_free(struct pipeline *pipeline); /* NULL is fine; its runs are destroyed before */
const struct pipeline_options *pipeline_options(const struct pipeline *pipeline);
/* Whether an expression calls matched_terms(): the source is asked for PIPELINE_TERMS then. */
bool pipeline_uses_terms(const struct pipeline *pipeline);

/* Where the fields are. */
struct pipeline_binding {
    const struct schema *schema;      /* must live as long as the pipeline */
    const struct schema_word *yields; /* of the query's distances, by document_search_yields; copied */
    uint32_t n_yields;
};
/* QUIRE_EINVALID: a field that no step before loads or makes, named; ELIMIT, ENOMEM. Once per pipeline. */
int pipeline_bind(struct pipeline *pipeline, const struct pipeline_binding *binding, struct quire_error *err);

/* Which fields of documents a bound pipeline may load: the identifier of each in the schema, or its name. A LOAD of all
 * fields sets *all. */
void pipeline_each_field(const struct pipeline *pipeline, void (*visit)(void *context, struct schema_word field),
                         void *context, bool *all);

/* ---- where rows come from ---------------------------------------------------------------------------------------- */

enum pipeline_origin {
    PIPELINE_FIELD, /* `field`, or where it is NULL what `name` says: a hash's field, a JSON path */
    PIPELINE_KEY,
    PIPELINE_SCORE,
    PIPELINE_YIELD, /* distance number `yield` of the binding */
    PIPELINE_TERMS  /* words of the query in the document, an array of at most `most` */
};
struct pipeline_wanted {
    enum pipeline_origin origin;
    const struct schema_field *field;
    const char *name; /* terminated */
    uint32_t name_bytes;
    uint32_t yield, most;
};

struct pipeline_source {
    void *context;
    /* The next document: its id in *id. 1, or 0 when there are no more, or an error. */
    int (*next)(void *context, uint64_t *id, struct quire_error *err);
    /* A value of a document that `next` has given: *value a share from the pool, or NULL: it has none. Of any of them,
     * in any order: a LOAD behind a SORTBY asks when all were given. `wanted` is the same address for the same field
     * throughout a run (but for PIPELINE_TERMS). QUIRE_ENOTFOUND: the document is gone, the row is left out. Texts are
     * given as strings: those of NUMERIC fields become numbers here. Without space in the pool: pipeline_no_value. */
    int (*load)(void *context, uint64_t id, const struct pipeline_wanted *wanted, struct datum_pool *pool,
                struct datum **value, struct quire_error *err);
    /* LOAD *: every field of a document by pipeline_run_put, in its order; of a JSON document the whole text as "$". */
    int (*load_all)(void *context, uint64_t id, struct pipeline_run *run, struct quire_error *err);
};
/* For load_all, which returns what it answers. Takes the caller's share of `value`; NULL: the pool gave none. */
int pipeline_run_put(struct pipeline_run *run, const char *name, size_t bytes, struct datum *value);
struct datum_pool *pipeline_run_pool(struct pipeline_run *run);
/* Why datum_...() gave NULL: QUIRE_ELIMIT or QUIRE_ENOMEM. */
int pipeline_no_value(const struct datum_pool *pool, struct quire_error *err);

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct pipeline_limits {
    uint64_t rows_max;  /* 0: PIPELINE_ROWS_MAX */
    uint64_t bytes_max; /* 0: PIPELINE_BYTES_MAX */
    uint64_t seed;      /* of RANDOM_SAMPLE: the same seed, the same samples */
};

enum { PIPELINE_END = 0, PIPELINE_ROW = 1, PIPELINE_PAUSED = 2 };

/* The pipeline and what the source's context points to must outlive the run. One thread at a time. */
int pipeline_run_create(const struct pipeline *pipeline, const struct pipeline_source *source,
                        const struct pipeline_limits *limits, struct pipeline_run **out, struct quire_error *err);
void pipeline_run_destroy(struct pipeline_run *run); /* NULL is fine */
/* The next row. *budget: how many rows may still be worked on; each row that comes from the source or out of a group
 * costs one. PIPELINE_ROW, PIPELINE_END, PIPELINE_PAUSED (the budget is 0), or an error (of an expression, of a limit,
 * of the source), after which there are no more rows. */
int pipeline_run_next(struct pipeline_run *run, uint32_t *budget, struct quire_error *err);

struct pipeline_cell {
    const char *name; /* terminated */
    uint32_t name_bytes;
    const struct datum *value;
};
/* The row that pipeline_run_next has answered, what it has no value for left out; valid until the next call. */
uint32_t pipeline_run_cells(const struct pipeline_run *run, const struct pipeline_cell **cells);
/* Rows so far of the last step that took all of them in (documents, groups): RediSearch's total_results. */
uint64_t pipeline_run_total(const struct pipeline_run *run);

#endif
