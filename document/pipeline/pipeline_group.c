/*
 * pipeline_group.c - GROUPBY: rows with the same values become one, with what REDUCE makes of them.
 *
 * Groups are found by a hash of their values, and compared value by value. They are given in the order in which their
 * first rows came; each is freed when it has been given. A row whose field holds an array belongs to a group of each
 * item; with several such fields, to one of each combination. These are walked one after the other within the row,
 * and their number is bounded by that of groups.
 */
#include "document/pipeline/pipeline_priv.h"
#include "io/array.h"
#include "io/error.h"
#include "io/hash.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct group {
    uint64_t hash;
    struct datum **values;          /* of the fields; a share each, NULL: null */
    struct reducer_tally **tallies; /* one for each REDUCE */
};

/* An item of the table; `group` is set where there is one. While looking, `values` are those looked for. */
struct group_entry {
    struct group *group;
    uint64_t hash;
    struct datum *const *values;
    uint32_t n;
};
static inline bool entry_is_set(const struct group_entry *entry)
{
    return entry->values != NULL;
}
static inline uint64_t entry_hash(const struct group_entry *entry)
{
    return entry->hash;
}
static inline bool entry_is_same(const struct group_entry *a, const struct group_entry *b)
{
    if (a->hash != b->hash || a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!datum_is_same(a->values[i], b->values[i]))
            return false;
    return true;
}
HASH_DEFINE(entries, struct group_entry, entry_is_set, entry_hash, entry_is_same)

struct pipeline_groups {
    struct entries table;
    struct group **order;
    size_t n, order_capacity, given;
    size_t counted; /* bytes of table and order that the pool knows of */
    bool full_in;
    struct datum **values; /* of the row at hand: one for each field */
    uint32_t *items;       /* which item of an array it is */
};

static size_t group_bytes(const struct pipeline_step *step)
{
    return sizeof(struct group) + step->n_fields * sizeof(struct datum *) +
           step->n_reduces * sizeof(struct reducer_tally *);
}

static void free_group(struct pipeline_run *run, const struct pipeline_step *step, struct group *group)
{
    for (uint32_t i = 0; i < step->n_fields; i++)
        datum_release(&run->pool, group->values[i]);
    for (uint32_t i = 0; i < step->n_reduces; i++)
        reducer_end(&step->reduces[i].reducer, group->tallies[i], &run->pool);
    datum_pool_give(&run->pool, group_bytes(step));
    free(group);
}

/* A group of these values without rows. NULL: no memory, or the pool is full. */
static struct group *make_group(struct pipeline_run *run, const struct pipeline_step *step, uint64_t hash,
                                struct datum *const *values)
{
    size_t bytes = group_bytes(step);
    if (!datum_pool_take(&run->pool, bytes))
        return NULL;
    struct group *group = calloc(1, bytes);
    if (!group) {
        datum_pool_give(&run->pool, bytes);
        return NULL;
    }
    group->hash = hash;
    group->values = (struct datum **)(group + 1);
    group->tallies = (struct reducer_tally **)(group->values + step->n_fields);
    for (uint32_t i = 0; i < step->n_fields; i++)
        group->values[i] = values[i] ? datum_share(values[i]) : NULL;
    for (uint32_t i = 0; i < step->n_reduces; i++) {
        group->tallies[i] = reducer_begin(&step->reduces[i].reducer, run->seed ^ hash, &run->pool);
        if (!group->tallies[i]) {
            free_group(run, step, group);
            return NULL;
        }
    }
    return group;
}

/* Counts what the table and the order have grown to. */
static bool count_growth(struct pipeline_run *run, struct pipeline_groups *groups)
{
    size_t bytes =
        (size_t)groups->table.capacity * sizeof *groups->table.places + groups->order_capacity * sizeof *groups->order;
    assert(bytes >= groups->counted);
    if (!datum_pool_take(&run->pool, bytes - groups->counted))
        return false;
    groups->counted = bytes;
    return true;
}

static int add_group(struct pipeline_run *run, struct pipeline_state *state, struct group_entry like,
                     struct group **out)
{
    struct pipeline_groups *groups = state->groups;
    if (groups->n >= run->rows_max)
        return error_set(run->err, QUIRE_ELIMIT,
                         "GROUPBY at position %u makes %llu groups at most: narrow the query, or group by fewer fields",
                         state->step->position, (unsigned long long)run->rows_max);
    struct group *group = make_group(run, state->step, like.hash, like.values);
    bool fine = group && array_reserve(&groups->order, &groups->order_capacity, groups->n + 1) &&
                entries_reserve(&groups->table) && count_growth(run, groups);
    if (fine) {
        like.group = group;
        like.values = group->values;
        fine = entries_add(&groups->table, like) != NULL;
    }
    if (!fine) {
        if (group)
            free_group(run, state->step, group);
        return pipeline_no_value(&run->pool, run->err);
    }
    groups->order[groups->n++] = group;
    *out = group;
    return 0;
}

/* The row belongs to the group of groups->values. */
static int add_row(struct pipeline_run *run, struct pipeline_state *state, const struct pipeline_row *row)
{
    const struct pipeline_step *step = state->step;
    struct pipeline_groups *groups = state->groups;
    struct group_entry like = {.values = groups->values, .n = step->n_fields};
    for (uint32_t i = 0; i < step->n_fields; i++)
        like.hash = datum_hash(groups->values[i], like.hash);
    struct group_entry *found = entries_find(&groups->table, &like);
    struct group *group = found ? found->group : NULL;
    int rc = group ? 0 : add_group(run, state, like, &group);
    assert(rc != 0 || group);
    for (uint32_t i = 0; i < step->n_reduces && rc == 0; i++) {
        const struct pipeline_reduce *reduce = &step->reduces[i];
        if (!reducer_add(&reduce->reducer, group->tallies[i], pipeline_value(row, reduce->column),
                         pipeline_value(row, reduce->by_column), &run->pool))
            rc = pipeline_no_value(&run->pool, run->err);
    }
    return rc;
}

/* The value of field i that groups->items says; of an empty array it is null. */
static void choose(const struct pipeline_step *step, struct pipeline_groups *groups, const struct pipeline_row *row,
                   uint32_t i)
{
    struct datum *value = pipeline_value(row, step->fields[i].column);
    if (value && value->kind == DATUM_ARRAY)
        value = value->n > 0 ? datum_items(value)[groups->items[i]] : NULL;
    groups->values[i] = value;
}

static int check_combinations(struct pipeline_run *run, const struct pipeline_step *step,
                              const struct pipeline_row *row)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < step->n_fields; i++) {
        const struct datum *value = pipeline_value(row, step->fields[i].column);
        n *= value && value->kind == DATUM_ARRAY && value->n > 0 ? value->n : 1;
        if (n > run->rows_max)
            return error_set(run->err, QUIRE_ELIMIT,
                             "GROUPBY at position %u: a row's arrays have more than %llu combinations; group by fewer "
                             "of them",
                             step->position, (unsigned long long)run->rows_max);
    }
    return 0;
}

/* The row in all of its groups: the items of its arrays are counted through like the digits of a number. */
static int take_row(struct pipeline_run *run, struct pipeline_state *state, const struct pipeline_row *row)
{
    const struct pipeline_step *step = state->step;
    struct pipeline_groups *groups = state->groups;
    int rc = check_combinations(run, step, row);
    if (step->n_fields > 0)
        memset(groups->items, 0, step->n_fields * sizeof *groups->items);
    for (uint32_t i = 0; i < step->n_fields; i++)
        choose(step, groups, row, i);
    while (rc == 0) {
        rc = add_row(run, state, row);
        uint32_t i = step->n_fields;
        for (bool carry = rc == 0; carry && i > 0;) {
            const struct datum *value = pipeline_value(row, step->fields[--i].column);
            bool array = value && value->kind == DATUM_ARRAY;
            carry = !array || ++groups->items[i] >= value->n;
            if (carry)
                groups->items[i] = 0;
            if (array)
                choose(step, groups, row, i);
            if (carry && i == 0)
                return 0;
        }
        if (step->n_fields == 0)
            return rc;
    }
    return rc;
}

static int take_in(struct pipeline_run *run, uint32_t at)
{
    struct pipeline_state *state = &run->states[at];
    while (!state->groups->full_in) {
        struct pipeline_row *row = NULL;
        int rc = pipeline_pull_for(run, at, &row);
        if (rc == PIPELINE_ROW) {
            rc = take_row(run, state, row);
            pipeline_row_free(run, row);
        } else if (rc == PIPELINE_END) {
            state->groups->full_in = true;
            run->total = state->groups->n;
        }
        if (rc)
            return rc;
    }
    return 0;
}

static int begin(struct pipeline_run *run, struct pipeline_state *state)
{
    uint32_t n = state->step->n_fields > 0 ? state->step->n_fields : 1;
    struct pipeline_groups *groups = calloc(1, sizeof *groups);
    if (groups) {
        groups->values = calloc(n, sizeof *groups->values);
        groups->items = calloc(n, sizeof *groups->items);
    }
    if (!groups || !groups->values || !groups->items) {
        if (groups)
            array_free_all(groups->values, groups->items);
        free(groups);
        return pipeline_no_value(&run->pool, run->err);
    }
    state->groups = groups;
    return 0;
}

/* The row of a group; the group's shares of values become the row's. */
static int make_row(struct pipeline_run *run, const struct pipeline_step *step, struct group *group,
                    struct pipeline_row **out)
{
    struct pipeline_row *row = pipeline_row_new(run, run->pipeline->tables[step->table + 1].n);
    if (!row)
        return run->err->code;
    for (uint32_t i = 0; i < step->n_fields; i++) {
        row->values[i] = group->values[i] ? group->values[i] : datum_null(&run->pool);
        group->values[i] = NULL;
        if (!row->values[i])
            goto no_value;
    }
    for (uint32_t i = 0; i < step->n_reduces; i++) {
        const struct pipeline_reduce *reduce = &step->reduces[i];
        row->values[reduce->target] = reducer_result(&reduce->reducer, group->tallies[i], &run->pool);
        if (!row->values[reduce->target])
            goto no_value;
    }
    *out = row;
    return PIPELINE_ROW;
no_value:
    pipeline_row_free(run, row);
    return pipeline_no_value(&run->pool, run->err);
}

int pipeline_pull_group(struct pipeline_run *run, uint32_t at, struct pipeline_row **row)
{
    struct pipeline_state *state = &run->states[at];
    int rc = state->groups ? 0 : begin(run, state);
    assert(rc != 0 || state->groups);
    if (rc == 0)
        rc = take_in(run, at);
    if (rc)
        return rc;
    struct pipeline_groups *groups = state->groups;
    if (groups->given == groups->n)
        return PIPELINE_END;
    if (!pipeline_spend(run))
        return PIPELINE_PAUSED;
    struct group *group = groups->order[groups->given++];
    rc = make_row(run, state->step, group, row);
    free_group(run, state->step, group);
    return rc;
}

void pipeline_group_end(struct pipeline_run *run, struct pipeline_state *state)
{
    struct pipeline_groups *groups = state->groups;
    if (!groups)
        return;
    for (size_t i = groups->given; i < groups->n; i++)
        free_group(run, state->step, groups->order[i]);
    datum_pool_give(&run->pool, groups->counted);
    array_free_all(groups->table.places, groups->order, groups->values, groups->items);
    free(groups);
    state->groups = NULL;
}
