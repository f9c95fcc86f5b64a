/*
 * pipeline_bind.c - the fields that steps name become columns of tables.
 *
 * A field may be named when a step before has loaded or made it, or the query gives it (a distance, a score). Beyond
 * that RediSearch loads some fields of the schema by itself, and so does Quire: GROUPBY, REDUCE and SORTBY any field,
 * expressions SORTABLE ones. All of it only before the first GROUPBY: behind it there are no documents. Any other name
 * is an error here, before a document is read.
 *
 * LOAD * of hashes makes every name possible. LOAD * of JSON documents loads "$" alone.
 */
#include "document/pipeline/pipeline_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct binder {
    struct pipeline *pipeline;
    struct pipeline_step *step;
    struct quire_error *err;
};

static int shown(const struct schema_word *word)
{
    return (int)(word->bytes < 128 ? word->bytes : 128);
}

static bool is_name(const struct schema_word *word, const char *name)
{
    return word->bytes == strlen(name) && memcmp(word->data, name, word->bytes) == 0;
}

static int no_memory(const struct binder *binder)
{
    return error_set(binder->err, QUIRE_ENOMEM, "no memory for the columns of FT.AGGREGATE");
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

void pipeline_table_free(struct pipeline_table *table)
{
    for (uint32_t i = 0; i < table->n; i++)
        array_free_all(table->columns[i].name, table->columns[i].path);
    free(table->columns);
    *table = (struct pipeline_table){0};
}

uint32_t pipeline_find_column(const struct pipeline_table *table, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (table->columns[i].name_bytes == bytes && memcmp(table->columns[i].name, name, bytes) == 0)
            return i;
    return PIPELINE_NO_COLUMN;
}

uint32_t pipeline_add_column(struct pipeline_table *table, const char *name, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy || !array_reserve(&table->columns, &table->capacity, table->n + 1u)) {
        free(copy);
        return PIPELINE_NO_COLUMN;
    }
    if (bytes > 0)
        memcpy(copy, name, bytes);
    copy[bytes] = '\0';
    struct pipeline_column *column = &table->columns[table->n];
    *column = (struct pipeline_column){.name = copy, .name_bytes = (uint32_t)bytes};
    column->wanted = (struct pipeline_wanted){.name = copy, .name_bytes = (uint32_t)bytes};
    return table->n++;
}

/* A column of this name, which may be there. */
static int want_column(struct binder *binder, uint32_t at, struct schema_word name, uint32_t *found)
{
    struct pipeline_table *table = &binder->pipeline->tables[at];
    *found = pipeline_find_column(table, name.data, name.bytes);
    if (*found != PIPELINE_NO_COLUMN)
        return 0;
    if (table->n == PIPELINE_FIELDS_MAX)
        return error_set(binder->err, QUIRE_ELIMIT, "a row of FT.AGGREGATE has %u fields at most: `%.*s` is one more",
                         PIPELINE_FIELDS_MAX, shown(&name), name.data);
    *found = pipeline_add_column(table, name.data, name.bytes);
    return *found == PIPELINE_NO_COLUMN ? no_memory(binder) : 0;
}

static int add_table(struct binder *binder)
{
    struct pipeline *pipeline = binder->pipeline;
    if (!array_reserve(&pipeline->tables, &pipeline->tables_capacity, pipeline->n_tables + 1u))
        return no_memory(binder);
    pipeline->tables[pipeline->n_tables++] = (struct pipeline_table){0};
    return 0;
}

/* ---- where a name leads ------------------------------------------------------------------------------------------ */

/* The step loads this column, from `path` (a field's name or identifier, a key, a JSON path). */
static int add_load(struct binder *binder, uint32_t number, struct schema_word path, bool fold)
{
    struct pipeline *pipeline = binder->pipeline;
    struct pipeline_step *step = binder->step;
    struct pipeline_column *column = &pipeline->tables[0].columns[number];
    if (!array_reserve(&step->loads, &step->loads_capacity, step->n_loads + 1u))
        return no_memory(binder);
    if (path.bytes != column->name_bytes || memcmp(path.data, column->name, path.bytes) != 0) {
        char *copy = malloc(path.bytes + 1u);
        if (!copy)
            return no_memory(binder);
        memcpy(copy, path.data, path.bytes);
        copy[path.bytes] = '\0';
        free(column->path);
        column->path = copy;
        column->wanted.name = copy;
        column->wanted.name_bytes = path.bytes;
    }
    if (is_name(&path, "__key")) {
        column->wanted.origin = PIPELINE_KEY;
    } else {
        column->wanted.origin = PIPELINE_FIELD;
        column->wanted.field = schema_find_any(pipeline->schema, path.data, path.bytes);
    }
    step->loads[step->n_loads++] = (struct pipeline_load){number, fold};
    column->filled = true;
    column->folded = fold;
    return 0;
}

/* SORTABLE texts are kept in lower case, unless they are UNF. */
static bool is_folded(const struct schema_field *field)
{
    return field->sortable && !field->unf && (field->type == SCHEMA_TEXT || field->type == SCHEMA_TAG);
}

/* The column that a step reads a name from. `any_field`: any field of the schema is loaded, and not only SORTABLE
 * ones. *column stays PIPELINE_NO_COLUMN where there is none. */
static int read_column(struct binder *binder, struct schema_word name, bool any_field, uint32_t *found)
{
    struct pipeline *pipeline = binder->pipeline;
    struct pipeline_table *table = &pipeline->tables[binder->step->table];
    *found = pipeline_find_column(table, name.data, name.bytes);
    if (*found != PIPELINE_NO_COLUMN && table->columns[*found].filled)
        return 0;
    const struct schema_field *field =
        binder->step->table == 0 ? schema_find(pipeline->schema, name.data, name.bytes) : NULL;
    *found = PIPELINE_NO_COLUMN;
    if (table->open) {
        int rc = want_column(binder, binder->step->table, name, found);
        if (rc == 0)
            table->columns[*found].filled = true;
        if (rc == 0 && field) /* by its alias: the document has it by its identifier */
            table->columns[*found].wanted.field = field;
        return rc;
    }
    if (!field || !(any_field || field->sortable))
        return 0;
    int rc = want_column(binder, 0, name, found);
    return rc ? rc : add_load(binder, *found, name, is_folded(field));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int bind_load(struct binder *binder)
{
    struct pipeline_step *step = binder->step;
    if (step->table != 0)
        return error_set(binder->err, QUIRE_EINVALID,
                         "LOAD cannot be applied after projectors or reducers: behind GROUPBY there are no documents "
                         "(position %u)",
                         step->position);
    if (step->kind == STEP_ALL) {
        binder->pipeline->tables[0].open = binder->pipeline->schema->source == SCHEMA_HASH;
        return 0;
    }
    for (uint32_t i = 0; i < step->n_fields; i++) {
        struct pipeline_field *field = &step->fields[i];
        int rc = want_column(binder, 0, field->as, &field->column);
        if (rc)
            return rc;
        const struct pipeline_column *column = &binder->pipeline->tables[0].columns[field->column];
        if (column->filled && !column->folded) /* the query or a step before gives it */
            continue;
        rc = add_load(binder, field->column, field->name, false);
        if (rc)
            return rc;
    }
    return 0;
}

static int bind_expression(struct binder *binder)
{
    struct pipeline_step *step = binder->step;
    uint32_t n = expression_n_names(step->expression);
    step->columns = malloc((n ? n : 1) * sizeof *step->columns);
    if (!step->columns)
        return no_memory(binder);
    for (uint32_t i = 0; i < n; i++) {
        struct schema_word name;
        name.data = expression_name(step->expression, i, &name.bytes);
        int rc = read_column(binder, name, false, &step->columns[i]);
        if (rc == 0 && step->columns[i] == PIPELINE_NO_COLUMN)
            rc = error_set(binder->err, QUIRE_EINVALID,
                           "Property `%.*s` not loaded nor in pipeline (%s at position %u): LOAD it before",
                           shown(&name), name.data, step->kind == STEP_APPLY ? "APPLY" : "FILTER", step->position);
        if (rc)
            return rc;
    }
    if (step->kind != STEP_APPLY)
        return 0;
    int rc = want_column(binder, step->table, step->as, &step->target);
    if (rc == 0) {
        binder->pipeline->tables[step->table].columns[step->target].filled = true;
        binder->pipeline->tables[step->table].columns[step->target].folded = false;
    }
    return rc;
}

/* A column of the table that a GROUPBY makes, which must be new. */
static int add_result(struct binder *binder, struct schema_word name, uint32_t *column)
{
    uint32_t behind = binder->step->table + 1;
    if (pipeline_find_column(&binder->pipeline->tables[behind], name.data, name.bytes) != PIPELINE_NO_COLUMN)
        return error_set(binder->err, QUIRE_EINVALID,
                         "Property `%.*s` specified more than once (GROUPBY at position %u)", shown(&name), name.data,
                         binder->step->position);
    int rc = want_column(binder, behind, name, column);
    if (rc == 0)
        binder->pipeline->tables[behind].columns[*column].filled = true;
    return rc;
}

static int read_for_reduce(struct binder *binder, struct schema_word name, uint32_t *column)
{
    int rc = read_column(binder, name, true, column);
    if (rc == 0 && *column == PIPELINE_NO_COLUMN)
        rc = error_set(binder->err, QUIRE_EINVALID,
                       "Property `%.*s` not loaded nor in pipeline (REDUCE of GROUPBY at position %u): LOAD it before",
                       shown(&name), name.data, binder->step->position);
    return rc;
}

static int bind_group(struct binder *binder)
{
    struct pipeline_step *step = binder->step;
    int rc = add_table(binder);
    for (uint32_t i = 0; rc == 0 && i < step->n_fields; i++) {
        uint32_t ignored;
        rc = read_column(binder, step->fields[i].name, true, &step->fields[i].column);
        if (rc == 0 && step->fields[i].column == PIPELINE_NO_COLUMN)
            rc = error_set(binder->err, QUIRE_EINVALID,
                           "No such property `%.*s` (GROUPBY at position %u): LOAD it before",
                           shown(&step->fields[i].name), step->fields[i].name.data, step->position);
        if (rc == 0)
            rc = add_result(binder, step->fields[i].as, &ignored);
        assert(rc || ignored == i);
    }
    for (uint32_t i = 0; rc == 0 && i < step->n_reduces; i++) {
        struct pipeline_reduce *reduce = &step->reduces[i];
        struct schema_word alias = {reduce->alias, reduce->alias_bytes};
        if (reduce->takes_field)
            rc = read_for_reduce(binder, reduce->field, &reduce->column);
        if (rc == 0 && reduce->reducer.by)
            rc = read_for_reduce(binder, reduce->by, &reduce->by_column);
        if (rc == 0)
            rc = add_result(binder, alias, &reduce->target);
    }
    return rc;
}

static int bind_sort(struct binder *binder)
{
    struct pipeline_step *step = binder->step;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < step->n_fields; i++) {
        struct schema_word name = step->fields[i].name;
        rc = read_column(binder, name, true, &step->fields[i].column);
        if (rc == 0 && step->fields[i].column == PIPELINE_NO_COLUMN)
            rc = error_set(binder->err, QUIRE_EINVALID,
                           "Property `%.*s` not loaded nor in schema (SORTBY at position %u): LOAD it before",
                           shown(&name), name.data, step->position);
    }
    return rc;
}

/* What the query gives of each document: distances, and its score. */
static int bind_query(struct binder *binder, const struct pipeline_binding *binding)
{
    struct pipeline_table *first = &binder->pipeline->tables[0];
    static const struct schema_word score = {"__score", 7};
    for (uint32_t i = 0; i < binding->n_yields; i++) {
        uint32_t column;
        struct schema_word name = binding->yields[i];
        assert(!schema_find(binding->schema, name.data, name.bytes));
        int rc = want_column(binder, 0, name, &column);
        if (rc)
            return rc;
        assert(column == i);
        first->columns[column].wanted.origin = PIPELINE_YIELD;
        first->columns[column].wanted.yield = i;
        first->columns[column].filled = true;
    }
    if (binder->pipeline->options.add_scores) {
        uint32_t column;
        int rc = want_column(binder, 0, score, &column);
        if (rc)
            return rc;
        first->columns[column].wanted.origin = PIPELINE_SCORE;
        first->columns[column].filled = true;
    }
    binder->pipeline->n_given = first->n;
    return 0;
}

int pipeline_bind(struct pipeline *pipeline, const struct pipeline_binding *binding, struct quire_error *err)
{
    struct binder binder = {.pipeline = pipeline, .err = err};
    uint32_t table = 0;
    assert(!pipeline->bound && pipeline->n_tables == 0);
    pipeline->schema = binding->schema;
    int rc = add_table(&binder);
    if (rc == 0)
        rc = bind_query(&binder, binding);
    for (uint32_t i = 0; rc == 0 && i < pipeline->n_steps; i++) {
        binder.step = &pipeline->steps[i];
        binder.step->table = table;
        if (binder.step->kind == STEP_LOAD || binder.step->kind == STEP_ALL)
            rc = bind_load(&binder);
        else if (binder.step->kind == STEP_GROUP)
            rc = bind_group(&binder);
        else if (binder.step->kind == STEP_ARRANGE)
            rc = bind_sort(&binder);
        else
            rc = bind_expression(&binder);
        table += binder.step->kind == STEP_GROUP;
    }
    pipeline->bound = rc == 0;
    return rc;
}

void pipeline_each_field(const struct pipeline *pipeline, void (*visit)(void *context, struct schema_word field),
                         void *context, bool *all)
{
    const struct pipeline_table *table = &pipeline->tables[0];
    assert(pipeline->bound);
    *all = false;
    for (uint32_t i = 0; i < pipeline->n_steps; i++)
        *all = *all || pipeline->steps[i].kind == STEP_ALL;
    for (uint32_t i = 0; i < table->n; i++) {
        const struct pipeline_wanted *wanted = &table->columns[i].wanted;
        if (wanted->origin != PIPELINE_FIELD)
            continue;
        visit(context, wanted->field ? (struct schema_word){wanted->field->identifier, wanted->field->identifier_bytes}
                                     : (struct schema_word){wanted->name, wanted->name_bytes});
    }
}
