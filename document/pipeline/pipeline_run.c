/*
 * pipeline_run.c - a run: rows are pulled through the steps, one at a time.
 *
 * pipeline_pull_for(at) asks step at - 1 for a row, and step 0 asks the source; as many calls stand in one another as
 * there are steps. Everything that lasts is in the run's states, so a call may end anywhere with PIPELINE_PAUSED when
 * its budget is spent, and the next one begins again at the last step and finds each step where it was.
 *
 * A row belongs to one step at a time: who takes it from the step before frees it or hands it on.
 */
#include "document/pipeline/pipeline_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int pull(struct pipeline_run *run, uint32_t n_steps, struct pipeline_row **row);

int pipeline_no_value(const struct datum_pool *pool, struct quire_error *err)
{
    if (pool->full)
        return error_set(
            err, QUIRE_ELIMIT,
            "FT.AGGREGATE takes more than %zu bytes for its rows: narrow the query, LOAD less, or group or "
            "LIMIT earlier",
            pool->bytes_max);
    return error_set(err, QUIRE_ENOMEM, "no memory for a row of FT.AGGREGATE");
}

struct datum_pool *pipeline_run_pool(struct pipeline_run *run)
{
    return &run->pool;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static size_t row_bytes(uint32_t n)
{
    return sizeof(struct pipeline_row) + n * sizeof(struct datum *);
}

struct pipeline_row *pipeline_row_new(struct pipeline_run *run, uint32_t n)
{
    struct pipeline_row *row = NULL;
    if (datum_pool_take(&run->pool, row_bytes(n))) {
        row = calloc(1, row_bytes(n));
        if (!row)
            datum_pool_give(&run->pool, row_bytes(n));
    }
    if (!row) {
        pipeline_no_value(&run->pool, run->err);
        return NULL;
    }
    row->n = n;
    row->number = run->numbers++;
    return row;
}

void pipeline_row_free(struct pipeline_run *run, struct pipeline_row *row)
{
    if (!row)
        return;
    for (uint32_t i = 0; i < row->n; i++)
        datum_release(&run->pool, row->values[i]);
    datum_pool_give(&run->pool, row_bytes(row->n));
    free(row);
}

/* The row with space for n values; NULL without, and the row is as it was. */
static struct pipeline_row *widen(struct pipeline_run *run, struct pipeline_row *row, uint32_t n)
{
    assert(n > row->n);
    size_t more = (n - row->n) * sizeof *row->values;
    if (!datum_pool_take(&run->pool, more))
        return NULL;
    struct pipeline_row *wider = realloc(row, row_bytes(n));
    if (!wider) {
        datum_pool_give(&run->pool, more);
        return NULL;
    }
    memset(wider->values + wider->n, 0, more);
    wider->n = n;
    return wider;
}

/* Takes the share of `value`. */
static void set_value(struct pipeline_run *run, struct pipeline_row *row, uint32_t column, struct datum *value)
{
    assert(column < row->n);
    datum_release(&run->pool, row->values[column]);
    row->values[column] = value;
}

bool pipeline_spend(struct pipeline_run *run)
{
    if (*run->budget == 0)
        return false;
    --*run->budget;
    return true;
}

/* ---- values of documents ----------------------------------------------------------------------------------------- */

/* The text of a NUMERIC field as the number that it is. Takes the share of `value` and gives one. */
static int as_number(struct pipeline_run *run, const struct schema_field *field, struct datum *value,
                     struct datum **out)
{
    double number;
    *out = value;
    if (!field || field->type != SCHEMA_NUMERIC || value->kind != DATUM_STRING || value->n == 0 ||
        !datum_to_number(value, &number))
        return 0;
    *out = datum_number(&run->pool, number);
    datum_release(&run->pool, value);
    return *out ? 0 : pipeline_no_value(&run->pool, run->err);
}

/* QUIRE_ENOTFOUND: there is no such document any more. */
static int load_value(struct pipeline_run *run, struct pipeline_row *row, uint32_t number, bool fold)
{
    const struct pipeline_wanted *wanted = &run->pipeline->tables[0].columns[number].wanted;
    struct datum *value = NULL;
    int rc = run->source.load(run->source.context, row->id, wanted, &run->pool, &value, run->err);
    if (rc == 0 && value)
        rc = as_number(run, wanted->field, value, &value);
    if (rc == 0 && value && fold) {
        value = datum_fold(&run->pool, value);
        rc = value ? 0 : pipeline_no_value(&run->pool, run->err);
    }
    if (rc == 0)
        set_value(run, row, number, value);
    return rc;
}

/* The column of a name that LOAD * has met, looked for first behind the one before it: documents mostly have their
 * fields in one order. */
static uint32_t find_own(const struct pipeline_run *run, const char *name, size_t bytes)
{
    const struct pipeline_table *own = &run->own;
    for (uint32_t i = 0; i < own->n; i++) {
        uint32_t at = run->own_next + i < own->n ? run->own_next + i : run->own_next + i - own->n;
        if (own->columns[at].name_bytes == bytes && memcmp(own->columns[at].name, name, bytes) == 0)
            return at;
    }
    return PIPELINE_NO_COLUMN;
}

static int add_own(struct pipeline_run *run, const char *name, size_t bytes, uint32_t *at)
{
    uint32_t before = run->pipeline->tables[0].n;
    if (before + run->own.n >= PIPELINE_FIELDS_MAX)
        return error_set(run->err, QUIRE_ELIMIT,
                         "the documents have more than %u different fields: name those that are wanted in LOAD",
                         PIPELINE_FIELDS_MAX);
    *at = pipeline_add_column(&run->own, name, bytes);
    if (*at == PIPELINE_NO_COLUMN)
        return pipeline_no_value(&run->pool, run->err);
    run->own.columns[*at].wanted.field = schema_find_any(run->pipeline->schema, name, bytes);
    return 0;
}

/* Columns that the command names by an alias of this field. */
static void put_aliases(struct pipeline_run *run, const struct schema_field *field, struct datum *value)
{
    const struct pipeline_table *table = &run->pipeline->tables[0];
    for (uint32_t i = 0; field && i < table->n; i++)
        if (table->columns[i].wanted.field == field && table->columns[i].name_bytes == field->name_bytes &&
            memcmp(table->columns[i].name, field->name, field->name_bytes) == 0 && !run->loading->values[i])
            set_value(run, run->loading, i, datum_share(value));
}

int pipeline_run_put(struct pipeline_run *run, const char *name, size_t bytes, struct datum *value)
{
    const struct pipeline_table *table = &run->pipeline->tables[0];
    assert(run->loading);
    if (!value)
        return pipeline_no_value(&run->pool, run->err);
    uint32_t number = pipeline_find_column(table, name, bytes), at = PIPELINE_NO_COLUMN;
    int rc = 0;
    if (number == PIPELINE_NO_COLUMN) {
        at = find_own(run, name, bytes);
        if (at == PIPELINE_NO_COLUMN)
            rc = add_own(run, name, bytes, &at);
        number = table->n + at;
        run->own_next = at + 1;
    }
    const struct schema_field *field = rc                         ? NULL
                                       : at == PIPELINE_NO_COLUMN ? schema_find_any(run->pipeline->schema, name, bytes)
                                                                  : run->own.columns[at].wanted.field;
    if (rc == 0)
        rc = as_number(run, field, value, &value);
    else
        datum_release(&run->pool, value);
    if (rc)
        return rc;
    if (number >= run->loading->n) {
        struct pipeline_row *wider = widen(run, run->loading, table->n + run->own.n);
        if (!wider) {
            datum_release(&run->pool, value);
            return pipeline_no_value(&run->pool, run->err);
        }
        run->loading = wider;
    }
    put_aliases(run, field, value);
    set_value(run, run->loading, number, value);
    return 0;
}

/* LOAD *. The row may move. */
static int load_all(struct pipeline_run *run, struct pipeline_row **row)
{
    run->loading = *row;
    run->own_next = 0;
    int rc = run->source.load_all(run->source.context, (*row)->id, run, run->err);
    *row = run->loading;
    run->loading = NULL;
    return rc;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A row for the next document, with what the query says of it. */
static int pull_document(struct pipeline_run *run, struct pipeline_row **row)
{
    const struct pipeline *pipeline = run->pipeline;
    for (;;) {
        uint64_t id;
        if (!pipeline_spend(run))
            return PIPELINE_PAUSED;
        int rc = run->source.next(run->source.context, &id, run->err);
        if (rc <= 0)
            return rc < 0 ? rc : PIPELINE_END;
        struct pipeline_row *made = pipeline_row_new(run, pipeline->tables[0].n + run->own.n);
        if (!made)
            return run->err->code;
        made->id = id;
        rc = 0;
        for (uint32_t i = 0; i < pipeline->n_given && rc == 0; i++)
            rc = load_value(run, made, i, false);
        if (rc == 0) {
            *row = made;
            run->total += !run->grouped;
            return PIPELINE_ROW;
        }
        pipeline_row_free(run, made);
        if (rc != QUIRE_ENOTFOUND)
            return rc;
    }
}

int pipeline_pull_for(struct pipeline_run *run, uint32_t at, struct pipeline_row **row)
{
    const struct pipeline_step *step = &run->pipeline->steps[at];
    for (;;) {
        int rc = pull(run, at, row);
        if (rc != PIPELINE_ROW)
            return rc;
        assert(*row);
        rc = step->kind == STEP_ALL ? load_all(run, row) : 0;
        for (uint32_t i = 0; i < step->n_loads && rc == 0; i++)
            rc = load_value(run, *row, step->loads[i].column, step->loads[i].fold);
        if (rc == 0)
            return PIPELINE_ROW;
        pipeline_row_free(run, *row);
        *row = NULL;
        if (rc != QUIRE_ENOTFOUND)
            return rc;
        assert(run->total > 0 || run->grouped);
        run->total -= run->total > 0 && !run->grouped;
    }
}

struct terms_of {
    struct pipeline_run *run;
    uint64_t id;
};

static int matched_terms(void *context, uint32_t most, struct datum_pool *pool, struct datum **terms,
                         struct quire_error *err)
{
    const struct terms_of *of = context;
    const struct pipeline_wanted wanted = {.origin = PIPELINE_TERMS, .name = "", .most = most};
    return of->run->source.load(of->run->source.context, of->id, &wanted, pool, terms, err);
}

static int evaluate(struct pipeline_run *run, const struct pipeline_step *step, const struct pipeline_row *row,
                    struct datum **value)
{
    struct terms_of of = {run, row->id};
    const struct expression_row input = {.values = row->values,
                                         .n_values = row->n,
                                         .columns = step->columns,
                                         .terms = step->table == 0 ? matched_terms : NULL,
                                         .context = &of};
    struct quire_error wrong = {0};
    int rc = expression_evaluate(step->expression, &input, &run->pool, value, &wrong);
    if (rc == QUIRE_EINVALID)
        return error_set(run->err, rc, "%.330s (%s at position %u)", wrong.message,
                         step->kind == STEP_APPLY ? "APPLY" : "FILTER", step->position);
    if (rc != 0)
        *run->err = wrong;
    return rc;
}

/* APPLY and FILTER. */
static int pull_evaluated(struct pipeline_run *run, uint32_t at, struct pipeline_row **row)
{
    const struct pipeline_step *step = &run->pipeline->steps[at];
    for (;;) {
        struct datum *value = NULL;
        int rc = pipeline_pull_for(run, at, row);
        if (rc != PIPELINE_ROW)
            return rc;
        assert(*row);
        rc = evaluate(run, step, *row, &value);
        bool keep = rc == 0 && (step->kind == STEP_APPLY || datum_is_true(value));
        if (keep && step->kind == STEP_APPLY) {
            set_value(run, *row, step->target, value);
            return PIPELINE_ROW;
        }
        datum_release(&run->pool, value);
        if (keep)
            return PIPELINE_ROW;
        pipeline_row_free(run, *row);
        *row = NULL;
        if (rc)
            return rc;
    }
}

/* LIMIT without SORTBY. LIMIT 0 0 gives no row and goes through all, for the total. */
static int pull_limited(struct pipeline_run *run, uint32_t at, struct pipeline_row **row)
{
    struct pipeline_state *state = &run->states[at];
    bool counts = state->step->limit == 0;
    while (counts || state->given < state->step->limit) {
        int rc = pipeline_pull_for(run, at, row);
        if (rc != PIPELINE_ROW)
            return rc;
        if (!counts && state->skipped == state->step->offset) {
            state->given++;
            return PIPELINE_ROW;
        }
        state->skipped++;
        pipeline_row_free(run, *row);
        *row = NULL;
    }
    return PIPELINE_END;
}

/* The next row behind the first n_steps steps. */
static int pull(struct pipeline_run *run, uint32_t n_steps, struct pipeline_row **row)
{
    if (n_steps == 0)
        return pull_document(run, row);
    uint32_t at = n_steps - 1;
    switch (run->pipeline->steps[at].kind) {
    case STEP_LOAD:
    case STEP_ALL:
        return pipeline_pull_for(run, at, row);
    case STEP_APPLY:
    case STEP_FILTER:
        return pull_evaluated(run, at, row);
    case STEP_GROUP:
        return pipeline_pull_group(run, at, row);
    case STEP_ARRANGE:
        return run->pipeline->steps[at].sorts ? pipeline_pull_sorted(run, at, row) : pull_limited(run, at, row);
    }
    return error_set(run->err, QUIRE_EINTERNAL, "a step of kind %d", (int)run->pipeline->steps[at].kind);
}

/* ---- a run's life ------------------------------------------------------------------------------------------------ */

int pipeline_run_create(const struct pipeline *pipeline, const struct pipeline_source *source,
                        const struct pipeline_limits *limits, struct pipeline_run **out, struct quire_error *err)
{
    assert(pipeline->bound);
    struct pipeline_run *run = calloc(1, sizeof *run);
    if (run)
        run->states = calloc(pipeline->n_steps + 1u, sizeof *run->states);
    if (!run || !run->states) {
        free(run);
        return error_set(err, QUIRE_ENOMEM, "no memory for a run of FT.AGGREGATE");
    }
    run->pipeline = pipeline;
    run->source = *source;
    run->rows_max = limits && limits->rows_max ? limits->rows_max : PIPELINE_ROWS_MAX;
    run->seed = limits ? limits->seed : 0;
    run->pool.bytes_max = limits && limits->bytes_max ? (size_t)limits->bytes_max : PIPELINE_BYTES_MAX;
    for (uint32_t i = 0; i < pipeline->n_steps; i++) {
        run->states[i].step = &pipeline->steps[i];
        run->grouped = run->grouped || pipeline->steps[i].kind == STEP_GROUP;
    }
    *out = run;
    return 0;
}

void pipeline_run_destroy(struct pipeline_run *run)
{
    if (!run)
        return;
    for (uint32_t i = 0; i < run->pipeline->n_steps; i++) {
        pipeline_sort_end(run, &run->states[i]);
        pipeline_group_end(run, &run->states[i]);
    }
    pipeline_row_free(run, run->row);
    pipeline_table_free(&run->own);
    assert(run->pool.bytes == 0); /* each share was given back */
    array_free_all(run->states, run->cells);
    free(run);
}

static bool show(struct pipeline_run *run, const struct pipeline_table *table, uint32_t first,
                 const struct pipeline_row *row)
{
    for (uint32_t i = 0; i < table->n; i++) {
        const struct datum *value = pipeline_value(row, first + i);
        if (!value)
            continue;
        if (!array_reserve(&run->cells, &run->cells_capacity, run->n_cells + 1u))
            return false;
        run->cells[run->n_cells++] =
            (struct pipeline_cell){table->columns[i].name, table->columns[i].name_bytes, value};
    }
    return true;
}

int pipeline_run_next(struct pipeline_run *run, uint32_t *budget, struct quire_error *err)
{
    struct quire_error ignored;
    const struct pipeline *pipeline = run->pipeline;
    struct pipeline_row *row = NULL;
    pipeline_row_free(run, run->row);
    run->row = NULL;
    run->n_cells = 0;
    if (run->ended)
        return PIPELINE_END;
    run->budget = budget;
    run->err = err ? err : &ignored;
    int rc = pull(run, pipeline->n_steps, &row);
    assert((rc == PIPELINE_ROW) == (row != NULL));
    run->row = row;
    if (rc == PIPELINE_ROW) {
        uint32_t table = pipeline->n_tables - 1;
        bool shown = show(run, &pipeline->tables[table], 0, row) &&
                     (table > 0 || show(run, &run->own, pipeline->tables[0].n, row));
        if (!shown)
            rc = pipeline_no_value(&run->pool, run->err);
    }
    run->ended = rc != PIPELINE_ROW && rc != PIPELINE_PAUSED;
    run->budget = NULL;
    run->err = NULL;
    return rc;
}

uint32_t pipeline_run_cells(const struct pipeline_run *run, const struct pipeline_cell **cells)
{
    assert(run->row);
    *cells = run->cells;
    return run->n_cells;
}

uint64_t pipeline_run_total(const struct pipeline_run *run)
{
    return run->total;
}
