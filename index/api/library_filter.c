/*
 * library_filter.c - filter and tenants of a search of one index: compiled, and made a selection of its rows.
 *
 * An index says itself which columns were declared when it was built, so a time is read as one here as it was there.
 * Its grants are of generation 0: only a live collection drops tenants.
 *
 * A filter that names elements by their keys needs the rows of those: they are looked up here, one after the other, so
 * that such a filter is as exact and as cheap as one by columns.
 */
#include "index/api/library_priv.h"
#include "index/column/columns.h"
#include "index/column/row_set.h"
#include "index/search/search_lane.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include "io/error.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

int library_scope_of(const struct quire_bytes *tenants, uint32_t n, struct tenant_scope *out, struct quire_error *err)
{
    struct grant *names = calloc((size_t)n + 1, sizeof *names);
    if (!names)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u tenants", n);
    for (uint32_t i = 0; i < n; i++) {
        int rc = grants_check_tenant(tenants[i].data, tenants[i].n_bytes, err);
        if (rc < 0) {
            free(names);
            return rc;
        }
        names[i] = (struct grant){.name = tenants[i].data, .bytes = (uint32_t)tenants[i].n_bytes};
    }
    *out = (struct tenant_scope){.tenants = names, .n = n};
    return 0;
}

/* ---- the declared columns ---------------------------------------------------------------------------------------- */

static int schema_of(const struct segment *segment, struct attribute_schema **out, struct quire_error *err)
{
    struct quire_column declared[ATTRIBUTE_COLUMNS_MAX];
    struct column_info info;
    uint32_t n = 0;
    int rc = 0;
    for (uint32_t i = 0; segment->columns && n < ATTRIBUTE_COLUMNS_MAX && columns_info(segment->columns, i, &info); i++)
        if (info.type != QUIRE_COLUMN_LEARNT) {
            char *name = strndup(info.name, info.name_bytes);
            if (!name) {
                rc = error_set(err, QUIRE_ENOMEM, "no memory for the columns of an index");
                break;
            }
            declared[n++] = (struct quire_column){.name = name, .type = info.type, .indexed = true};
        }
    if (rc == 0 && n > 0)
        rc = attribute_schema_create(declared, n, out, err);
    for (uint32_t i = 0; i < n; i++)
        free((void *)(uintptr_t)declared[i].name);
    return rc;
}

/* ---- elements named by their keys -------------------------------------------------------------------------------- */

static uint32_t count_keys(const struct filter_part *part)
{
    if (!part)
        return 0;
    uint32_t left = count_keys(part->left), right = count_keys(part->right);
    uint32_t n = part->kind == FILTER_KEYS ? part->first_key + part->n_keys : 0;
    left = left > right ? left : right;
    return n > left ? n : left;
}

static void on_found(struct fetch_request *request)
{
    *(bool *)request->owner = true;
}

static int find_keys(struct segment *segment, struct search_lane_pool *lanes, const struct filter *filter,
                     roaring_bitmap_t **out, struct quire_error *err)
{
    uint32_t n = count_keys(filter_root(filter));
    struct search_lane *lane;
    int rc = n > 0 ? search_lane_pool_take(lanes, 1, &lane, err) : 0;
    if (rc < 0 || n == 0)
        return rc;
    struct row_view found = {.n = 0};
    uint32_t *rows = malloc(n * sizeof *rows);
    if (!rows)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the rows of %u keys", n);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        bool done = false;
        struct fetch_request request = {.segment = segment, .done = on_found, .owner = &done};
        request.key = filter_key(filter, i, &request.key_bytes);
        if (request.key_bytes == 0 || request.key_bytes > QUIRE_KEY_BYTES_MAX)
            continue;
        rc = fetch_start(lane->searcher, &request, err);
        if (rc < 0)
            break;
        search_lane_run(lane, &done);
        assert(done);
        if (request.code == 0)
            rows[found.n++] = request.row;
        else if (request.code != QUIRE_ENOTFOUND)
            rc = error_set(err, request.code, "%s", request.error.message);
    }
    search_lane_pool_put(lanes, lane);
    found.rows = rows;
    if (rc == 0) {
        found.n = row_set_order(rows, found.n);
        rc = row_view_roaring(&found, out);
        if (rc < 0)
            error_set(err, rc, "no memory for the rows of %u keys", n);
    }
    free(rows);
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

int library_restriction_make(struct segment *segment, struct search_lane_pool *lanes,
                             const struct quire_search_options *o, struct restriction *out, struct quire_error *err)
{
    struct restriction made = {0};
    struct tenant_scope scope = {0};
    roaring_bitmap_t *keys = NULL;
    int rc = 0;
    *out = made;
    if (!o->filter && !o->tenants)
        return 0;
    if (o->filter)
        rc = schema_of(segment, &made.schema, err);
    if (rc == 0 && o->filter)
        rc = filter_compile(o->filter, o->filter_bytes, made.schema, &made.filter, err);
    if (rc == 0 && o->filter)
        rc = find_keys(segment, lanes, made.filter, &keys, err);
    if (rc == 0 && o->tenants)
        rc = library_scope_of(o->tenants, o->n_tenants, &scope, err);
    if (rc == 0)
        rc = selection_of(segment, made.filter, o->tenants ? &scope : NULL, keys, &made.selection, err);
    if (keys)
        roaring_bitmap_free(keys);
    free(scope.tenants);
    assert(rc < 0 || made.selection);
    if (rc < 0)
        library_restriction_end(&made);
    else
        *out = made;
    return rc;
}

void library_restriction_end(struct restriction *r)
{
    selection_unref(r->selection);
    filter_unref(r->filter);
    attribute_schema_destroy(r->schema);
    *r = (struct restriction){0};
}
