/*
 * edit.c - changes at places of a tree.
 *
 * A place is a parent and a key of it or an index. Its key lies in the parent's own memory and is gone with the member,
 * so no change may remove a member whose place is still to be visited. Since places that lie deeper come first, and a
 * change reaches only what lies below its place, none does.
 */
#include "document/json/edit.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct ranked {
    const struct jsonpath_match *place;
    size_t at;
    unsigned depth;
};

static unsigned depth_of(const struct jsonpath_matches *m, const struct jsonpath_match *place)
{
    unsigned depth = 0;
    for (uint32_t up = place->up; up != JSONPATH_NONE; up = m->nodes[up].up)
        depth++;
    return depth;
}

static int compare_places(const struct jsonpath_match *a, const struct jsonpath_match *b)
{
    if (a->parent != b->parent)
        return (uintptr_t)a->parent < (uintptr_t)b->parent ? -1 : 1;
    if (a->key && b->key)
        return (uintptr_t)a->key == (uintptr_t)b->key ? 0 : (uintptr_t)a->key < (uintptr_t)b->key ? -1 : 1;
    return a->index == b->index ? 0 : a->index > b->index ? -1 : 1;
}

static int compare_ranked(const void *x, const void *y)
{
    const struct ranked *a = x, *b = y;
    if (a->depth != b->depth)
        return a->depth > b->depth ? -1 : 1;
    int order = compare_places(a->place, b->place);
    return order != 0 ? order : a->at < b->at ? -1 : a->at > b->at;
}

/* Whether another of the places, given by their values in `sorted`, lies above. */
static bool has_above(const struct jsonpath_matches *m, const struct jsonpath_match *place, const uint64_t *sorted)
{
    for (uint32_t up = place->up; up != JSONPATH_NONE; up = m->nodes[up].up)
        if (array_has_u64(sorted, m->n, (uintptr_t)m->nodes[up].value))
            return true;
    return false;
}

/* Leaves out of the ranked what is no top, or comes twice; returns how many stay. */
static size_t keep_tops(const struct jsonpath_matches *m, struct ranked *ranked, const uint64_t *sorted)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        bool twice = n > 0 && ranked[n - 1].depth == ranked[i].depth &&
                     compare_places(ranked[n - 1].place, ranked[i].place) == 0;
        if (!twice && !has_above(m, ranked[i].place, sorted))
            ranked[n++] = ranked[i];
    }
    return n;
}

int edit_plan(const struct jsonpath_matches *m, bool tops, struct edit_plan *out, struct quire_error *err)
{
    struct ranked *ranked = malloc((m->n + 1) * sizeof *ranked);
    uint64_t *values = tops ? malloc((m->n + 1) * sizeof *values) : NULL;
    out->items = malloc((m->n + 1) * sizeof *out->items);
    out->n = 0;
    if (!ranked || !out->items || (tops && !values)) {
        array_free_all(ranked, values, out->items);
        out->items = NULL;
        return error_set(err, QUIRE_ENOMEM, "no memory for %zu places of a document", m->n);
    }
    for (size_t i = 0; i < m->n; i++) {
        ranked[i] = (struct ranked){&m->items[i], i, depth_of(m, &m->items[i])};
        if (values) /* only what holds others is found above a place: such a value is at one place alone */
            values[i] = (uintptr_t)m->items[i].value;
    }
    qsort(ranked, m->n, sizeof *ranked, compare_ranked);
    if (values)
        array_sort_u64(values, m->n);
    out->n = values ? keep_tops(m, ranked, values) : m->n;
    assert(out->n <= m->n && (out->n > 0) == (m->n > 0));
    for (size_t i = 0; i < out->n; i++)
        out->items[i] = ranked[i].at;
    array_free_all(ranked, values);
    return 0;
}

void edit_plan_fini(struct edit_plan *plan)
{
    free(plan->items);
    *plan = (struct edit_plan){.items = NULL};
}

static int no_memory(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory to change a document");
}

json_t *edit_get(json_t *root, const struct jsonpath_match *place)
{
    if (!place->parent)
        return root;
    return place->key ? json_object_get(place->parent, place->key) : json_array_get(place->parent, place->index);
}

int edit_set(json_t **root, const struct jsonpath_match *place, json_t *value, struct quire_error *err)
{
    assert(value && (place->parent || *root));
    if (!place->parent) {
        json_incref(value);
        json_decref(*root);
        *root = value;
        return 0;
    }
    if (place->key)
        return json_object_set_nocheck(place->parent, place->key, value) == 0 ? 0 : no_memory(err);
    return json_array_set(place->parent, place->index, value) == 0 ? 0 : no_memory(err);
}

int edit_add(json_t *object, const char *key, size_t key_bytes, json_t *value, struct quire_error *err)
{
    assert(json_is_object(object) && value);
    if (memchr(key, 0, key_bytes))
        return error_set(err, QUIRE_EUNSUPPORTED, "the name of a member has no byte 0");
    return json_object_setn_nocheck(object, key, key_bytes, value) == 0 ? 0 : no_memory(err);
}

bool edit_remove(const struct jsonpath_match *place)
{
    assert(place->parent);
    return place->key ? json_object_del(place->parent, place->key) == 0
                      : json_array_remove(place->parent, place->index) == 0;
}

/* The members of the patch into an object, which is its own. */
static int merge_members(json_t *object, json_t *patch, struct quire_error *err)
{
    int rc = 0;
    assert(json_is_object(object) && json_is_object(patch));
    for (void *at = json_object_iter(patch); at && rc == 0; at = json_object_iter_next(patch, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at), *there = json_object_get(object, key);
        if (json_is_null(value)) {
            json_object_del(object, key);
        } else if (!json_is_object(value)) {
            rc = json_object_set_nocheck(object, key, value) == 0 ? 0 : no_memory(err);
        } else if (json_is_object(there)) {
            rc = merge_members(there, value, err);
        } else {
            json_t *fresh = json_object();
            rc = fresh && json_object_set_new_nocheck(object, key, fresh) == 0 ? merge_members(fresh, value, err)
                                                                               : no_memory(err);
        }
    }
    return rc;
}

int edit_merge(json_t **root, const struct jsonpath_match *place, json_t *patch, struct quire_error *err)
{
    json_t *there = edit_get(*root, place);
    if (!json_is_object(patch))
        return edit_set(root, place, patch, err);
    if (json_is_object(there))
        return merge_members(there, patch, err);
    json_t *fresh = json_object();
    int rc = fresh ? edit_set(root, place, fresh, err) : no_memory(err);
    if (rc == 0)
        rc = merge_members(fresh, patch, err);
    json_decref(fresh);
    return rc;
}
