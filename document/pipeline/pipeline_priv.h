/*
 * pipeline_priv.h - steps, tables of columns, and the state of a run.
 *
 * A table is what rows look like between two GROUPBY: named columns. Table 0 is of documents; each GROUPBY makes a new
 * one. A step names columns of its table by their number. A hash's LOAD * may add columns while a run goes on; these
 * are the run's own, behind those of the table.
 */
#ifndef QUIRE_DOCUMENT_PIPELINE_PRIV_H
#define QUIRE_DOCUMENT_PIPELINE_PRIV_H

#include "document/pipeline/expression.h"
#include "document/pipeline/pipeline.h"
#include "document/pipeline/reducer.h"

#define PIPELINE_NO_COLUMN UINT32_MAX

enum pipeline_kind {
    STEP_LOAD,   /* columns get values of the document */
    STEP_ALL,    /* LOAD * */
    STEP_APPLY,  /* a column gets the value of an expression */
    STEP_FILTER, /* rows for which an expression holds */
    STEP_GROUP,
    STEP_ARRANGE /* SORTBY and LIMIT beside each other */
};

struct pipeline_column {
    char *name; /* owned, terminated */
    uint32_t name_bytes;
    bool filled;                   /* while binding: some step before gives it a value */
    bool folded;                   /* while binding: that value is in lower case */
    struct pipeline_wanted wanted; /* how it is loaded; table 0 only */
    char *path;                    /* owned: wanted.name, where that is not the column's */
};

struct pipeline_table {
    struct pipeline_column *columns;
    uint32_t n, capacity;
    bool open; /* LOAD * of hashes: names that it has not may come with a document */
};

/* A field as the command names it, without @; `as` is how its column is called. */
struct pipeline_field {
    struct schema_word name, as;
    uint32_t column;
};

/* A column that a step has loaded first. */
struct pipeline_load {
    uint32_t column;
    bool fold; /* a SORTABLE text that no LOAD names: in lower case, as it is sorted and grouped */
};

struct pipeline_reduce {
    struct reducer reducer;
    bool takes_field;
    struct schema_word field, by; /* without @ */
    uint32_t column, by_column;   /* of the table before */
    char *alias;                  /* owned */
    uint32_t alias_bytes, target; /* target: column of the table behind */
};

struct pipeline_step {
    enum pipeline_kind kind;
    uint32_t table;    /* of the rows that come in */
    uint32_t position; /* of its first word in the command */
    struct pipeline_load *loads;
    uint32_t n_loads, loads_capacity;
    /* LOAD; GROUPBY: what is grouped by; SORTBY: what is sorted by. Columns of the table of the rows that come in */
    struct pipeline_field *fields;
    uint32_t n_fields, fields_capacity;
    /* APPLY, FILTER */
    struct expression *expression;
    uint32_t *columns; /* of the expression's names */
    struct schema_word as;
    uint32_t target;
    /* GROUPBY */
    struct pipeline_reduce *reduces;
    uint32_t n_reduces, reduces_capacity;
    /* ARRANGE */
    bool sorts, limited;
    uint64_t descending; /* a bit for each field */
    uint64_t offset, limit;
};

struct pipeline {
    struct pipeline_options options;
    struct query_param *params;
    const struct schema *schema;
    struct pipeline_step *steps;
    uint32_t n_steps, steps_capacity;
    struct pipeline_table *tables;
    uint32_t n_tables, tables_capacity;
    uint32_t n_given; /* the first columns of table 0: what the query says of a document */
    bool bound;
};

/* pipeline_options.c: the option at words[*at], if it is one: *at is behind it then. 1: it was; 0: it was not. */
struct pipeline_words {
    const struct schema_word *words;
    uint32_t n, at, position;
    struct quire_error *err;
};
int pipeline_take_option(struct pipeline_words *words, struct pipeline *pipeline);
/* Words, in any case of letters; whether the next one is this one, which is passed then. */
bool pipeline_word_is(const struct schema_word *word, const char *name);
bool pipeline_take_word(struct pipeline_words *words, const char *name);
/* The next word as a whole number of at most `most`; `what` it is for messages. */
int pipeline_take_count(struct pipeline_words *words, const char *what, uint64_t most, uint64_t *count);
/* A count and as many words. */
int pipeline_take_list(struct pipeline_words *words, const char *what, uint32_t most, const struct schema_word **list,
                       uint32_t *n);
/* The place of the word that was taken last, for messages. */
uint32_t pipeline_last_position(const struct pipeline_words *words);

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct pipeline_row {
    uint64_t id;     /* of the document; 0 behind a GROUPBY */
    uint64_t number; /* in which order it came: ties are decided by it */
    uint32_t n;
    struct datum *values[]; /* a share each, or NULL */
};

/* What a step keeps while a run goes on. */
struct pipeline_groups;
struct pipeline_ranked {
    struct pipeline_row *row;
    double first; /* its number to sort by first; NaN where that is none */
};
struct pipeline_heap {
    struct pipeline_ranked *rows;
    size_t n, capacity;
    size_t uncounted; /* of the capacity: what the pool has refused to count */
    size_t keep;      /* at most as many are kept */
    size_t ready;     /* when all are in: rows from here on have the best of those below them on top */
    uint64_t passed;  /* rows given, or left out by the offset */
    bool full_in;     /* all rows came */
};
struct pipeline_state {
    const struct pipeline_step *step;
    struct pipeline_heap heap;      /* ARRANGE with SORTBY */
    uint64_t skipped, given;        /* ARRANGE without */
    struct pipeline_groups *groups; /* GROUP */
};

struct pipeline_run {
    const struct pipeline *pipeline;
    struct pipeline_source source;
    struct datum_pool pool;
    uint64_t rows_max, seed, total, numbers;
    struct pipeline_state *states; /* one per step */
    struct pipeline_table own;     /* columns that LOAD * has added behind those of table 0 */
    uint32_t own_next;             /* where the next name is looked for first */
    bool grouped;                  /* there is a GROUPBY: total counts groups */
    struct pipeline_row *row;      /* answered last */
    struct pipeline_row *loading;  /* whose LOAD * is under way */
    struct pipeline_cell *cells;
    uint32_t n_cells, cells_capacity;
    uint32_t *budget;
    struct quire_error *err;
    bool ended;
};

/* pipeline_run.c. A row of the table, all places empty; NULL with the run's error set. */
struct pipeline_row *pipeline_row_new(struct pipeline_run *run, uint32_t n);
void pipeline_row_free(struct pipeline_run *run, struct pipeline_row *row); /* NULL is fine */
/* The next row for step `at`, with what it has loaded: PIPELINE_ROW with *row the caller's, PIPELINE_END,
 * PIPELINE_PAUSED or an error. */
int pipeline_pull_for(struct pipeline_run *run, uint32_t at, struct pipeline_row **row);
/* False: there is no budget left. */
bool pipeline_spend(struct pipeline_run *run);
static inline struct datum *pipeline_value(const struct pipeline_row *row, uint32_t column)
{
    return column < row->n ? row->values[column] : NULL;
}

/* pipeline_sort.c, pipeline_group.c: steps that take all rows in. `at`: the number of the step. */
int pipeline_pull_sorted(struct pipeline_run *run, uint32_t at, struct pipeline_row **row);
void pipeline_sort_end(struct pipeline_run *run, struct pipeline_state *state);
int pipeline_pull_group(struct pipeline_run *run, uint32_t at, struct pipeline_row **row);
void pipeline_group_end(struct pipeline_run *run, struct pipeline_state *state);

/* pipeline_bind.c */
void pipeline_table_free(struct pipeline_table *table);
uint32_t pipeline_find_column(const struct pipeline_table *table, const char *name, size_t bytes);
/* A new column; PIPELINE_NO_COLUMN: no memory. */
uint32_t pipeline_add_column(struct pipeline_table *table, const char *name, size_t bytes);

#endif
