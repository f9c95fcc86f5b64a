/*
 * jsonpath_find.c - from a tree and a path to the values that it leads to.
 *
 * The search goes step by step: all values that the steps so far lead to stand in a row of `nodes`, and the next step
 * appends to the nodes what it finds from each of them, in order. So a value is found in the order in which a walk that
 * follows the whole path from each value would find it, and every node knows the one above it, up to the root: whoever
 * changes the tree needs these places.
 *
 * `..` visits a value, then what is in it, depth first. Recursion there is bounded by the depth of trees.
 */
#include "document/json/jsonpath_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int jsonpath_work(struct jsonpath_run *run, uint64_t work)
{
    run->work += work;
    if (run->work <= JSONPATH_WORK_MAX)
        return 0;
    return error_set(run->err, QUIRE_ELIMIT,
                     "the path looks at more than %u values of the document: make it more exact", JSONPATH_WORK_MAX);
}

static int add_node(struct jsonpath_run *run, struct jsonpath_match node)
{
    if (run->n == JSONPATH_MATCHES_MAX)
        return error_set(run->err, QUIRE_ELIMIT, "the path leads to more than %u values: make it more exact",
                         JSONPATH_MATCHES_MAX);
    if (!array_reserve(&run->nodes, &run->capacity, run->n + 1))
        return error_set(run->err, QUIRE_ENOMEM, "no memory for what a path leads to");
    run->nodes[run->n++] = node;
    return jsonpath_work(run, 1);
}

static int add_element(struct jsonpath_run *run, size_t up, size_t index)
{
    json_t *array = run->nodes[up].value;
    assert(index < json_array_size(array));
    return add_node(run,
                    (struct jsonpath_match){
                        .value = json_array_get(array, index), .parent = array, .index = index, .up = (uint32_t)up});
}

static int add_member(struct jsonpath_run *run, size_t up, void *at)
{
    return add_node(run, (struct jsonpath_match){.value = json_object_iter_value(at),
                                                 .parent = run->nodes[up].value,
                                                 .key = json_object_iter_key(at),
                                                 .index = json_object_iter_key_len(at),
                                                 .up = (uint32_t)up});
}

static int find_names(struct jsonpath_run *run, const struct jsonpath_step *step, size_t up)
{
    json_t *object = run->nodes[up].value;
    int rc = jsonpath_work(run, step->n);
    if (!json_is_object(object))
        return rc;
    for (uint32_t i = 0; i < step->n && rc == 0; i++) {
        /* jansson finds the place of a member by names without a byte 0, which no name in a document has */
        void *at = strlen(step->names[i].text) == step->names[i].bytes
                       ? json_object_iter_at(object, step->names[i].text)
                       : NULL;
        rc = at ? add_member(run, up, at) : 0;
    }
    return rc;
}

/* As RedisJSON: below the first is the first. */
static size_t absolute(int64_t index, size_t n)
{
    if (index >= 0)
        return (uint64_t)index < n ? (size_t)index : n;
    return (uint64_t)0 - (uint64_t)index < n ? n - (size_t)((uint64_t)0 - (uint64_t)index) : 0;
}

static int find_places(struct jsonpath_run *run, const struct jsonpath_step *step, size_t up)
{
    size_t n = json_array_size(run->nodes[up].value);
    int rc = jsonpath_work(run, step->n);
    for (uint32_t i = 0; i < step->n && rc == 0; i++) {
        size_t index = absolute(step->places[i], n);
        rc = index < n ? add_element(run, up, index) : 0;
    }
    return rc;
}

static int find_slice(struct jsonpath_run *run, const struct jsonpath_step *step, size_t up)
{
    const struct jsonpath_slice *slice = &step->slice;
    size_t n = json_array_size(run->nodes[up].value), end = slice->has_end ? absolute(slice->end, n) : n;
    int rc = 0;
    for (size_t i = absolute(slice->start, n); i < end && rc == 0;) {
        rc = add_element(run, up, i);
        i = (uint64_t)slice->step < end - i ? i + (size_t)slice->step : end;
    }
    return rc;
}

/* All that is directly in a value; with a filter what it holds for. */
static int find_inside(struct jsonpath_run *run, const struct jsonpath_expression *filter, size_t up)
{
    json_t *value = run->nodes[up].value;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(value) && rc >= 0; i++) {
        rc = filter ? jsonpath_filter(run, filter, json_array_get(value, i)) : 1;
        rc = rc > 0 ? add_element(run, up, i) : rc;
    }
    for (void *at = json_object_iter(value); at && rc >= 0; at = json_object_iter_next(value, at)) {
        rc = filter ? jsonpath_filter(run, filter, json_object_iter_value(at)) : 1;
        rc = rc > 0 ? add_member(run, up, at) : rc;
    }
    return rc < 0 ? rc : 0;
}

static int find_below(struct jsonpath_run *run, size_t up, unsigned depth)
{
    json_t *value = run->nodes[up].value;
    int rc = 0;
    if (depth > TREE_DEPTH_MAX)
        return 0;
    for (size_t i = 0; i < json_array_size(value) && rc == 0; i++) {
        rc = add_element(run, up, i);
        rc = rc == 0 ? find_below(run, run->n - 1, depth + 1) : rc;
    }
    for (void *at = json_object_iter(value); at && rc == 0; at = json_object_iter_next(value, at)) {
        rc = add_member(run, up, at);
        rc = rc == 0 ? find_below(run, run->n - 1, depth + 1) : rc;
    }
    return rc;
}

static int find_all_below(struct jsonpath_run *run, size_t from)
{
    int rc = add_node(run, run->nodes[from]);
    return rc == 0 ? find_below(run, run->n - 1, 0) : rc;
}

static int find_from(struct jsonpath_run *run, const struct jsonpath_step *step, size_t up)
{
    switch (step->kind) {
    case STEP_NAMES:
        return find_names(run, step, up);
    case STEP_PLACES:
        return find_places(run, step, up);
    case STEP_SLICE:
        return find_slice(run, step, up);
    case STEP_ALL:
        return find_inside(run, NULL, up);
    case STEP_FILTER:
        return find_inside(run, step->filter, up);
    case STEP_DESCEND:
        break;
    }
    return find_all_below(run, up);
}

int jsonpath_walk(struct jsonpath_run *run, const struct jsonpath_steps *steps, uint32_t n_steps, size_t start,
                  size_t *from)
{
    size_t first = start, end = start + 1;
    assert(end == run->n && n_steps <= steps->n); /* it begins at the last node */
    for (uint32_t i = 0; i < n_steps; i++) {
        int rc = 0;
        for (size_t node = first; node < end && rc == 0; node++)
            rc = find_from(run, &steps->items[i], node);
        if (rc < 0)
            return rc;
        first = end;
        end = run->n;
    }
    *from = first;
    return 0;
}

void jsonpath_matches_fini(struct jsonpath_matches *matches)
{
    free(matches->nodes);
    *matches = (struct jsonpath_matches){.items = NULL};
}

static int find(const struct jsonpath *path, uint32_t n_steps, json_t *root, struct jsonpath_matches *out,
                struct quire_error *err)
{
    struct jsonpath_run run = {.root = root, .nodes = out->nodes, .capacity = out->capacity, .err = err};
    size_t from = 0;
    int rc = add_node(&run, (struct jsonpath_match){.value = root, .up = JSONPATH_NONE});
    if (rc == 0)
        rc = jsonpath_walk(&run, &path->steps, n_steps, 0, &from);
    out->nodes = run.nodes;
    out->capacity = run.capacity;
    assert(rc < 0 || from <= run.n);
    out->items = rc == 0 ? run.nodes + from : NULL;
    out->n = rc == 0 ? run.n - from : 0;
    return rc;
}

int jsonpath_find(const struct jsonpath *path, json_t *root, struct jsonpath_matches *out, struct quire_error *err)
{
    return find(path, path->steps.n, root, out, err);
}

int jsonpath_find_holders(const struct jsonpath *path, json_t *root, struct jsonpath_matches *out,
                          struct quire_error *err)
{
    assert(path->steps.n > 0);
    return find(path, path->steps.n - 1, root, out, err);
}
