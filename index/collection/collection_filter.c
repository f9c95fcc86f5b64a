/*
 * collection_filter.c - filters and scopes in a search over a collection.
 *
 *   1. the elements that the filter lists by name are looked up in the segments whose key filters may have them
 *   2. each segment gets the selection of its rows that filter and scope leave (selection.h), made from its columns
 *   3. where columns cannot decide all of a filter, the selection is a superset. Then more hits are asked for than are
 *      wanted, their attributes read, and the filter asked about each. Where too few match, the search goes on among
 *      the rows that it has not seen, for twice as many, until there are enough or none is left: since a segment
 *      answers in the order of distance, what has been seen is nearer than what comes.
 *   4. rows of memtables are asked about one by one (memtable.h)
 *
 * Or the caller names the elements by their numbers (number_set.h): then there is neither filter nor scope, the parts'
 * tables of numbers give the rows, and nothing is left over.
 *
 * The scope is never left over: columns know it exactly. All of it runs on the lane, some reads at a time; nothing
 * waits.
 */
#include "index/collection/collection_search_priv.h"
#include "index/collection/part_numbers.h"
#include "index/column/row_set.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX    10000u
#define RECHECK_MORE 2u /* times k hits are asked for where each must be rechecked */

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

/* The only part of the filter that lists names; NULL where there is none, or several: then names are compared. */
static const struct filter_part *find_names(const struct filter_part *part, uint32_t *n)
{
    const struct filter_part *found = NULL, *other = NULL;
    if (!part)
        return NULL;
    if (part->kind == FILTER_KEYS) {
        *n += 1;
        return part;
    }
    if (part->kind == FILTER_AND || part->kind == FILTER_OR || part->kind == FILTER_NOT)
        found = find_names(part->left, n);
    if (part->kind == FILTER_AND || part->kind == FILTER_OR)
        other = find_names(part->right, n);
    return found ? found : other;
}

static const struct filter_part *names_of(const struct search_work *w)
{
    uint32_t n = 0;
    const struct filter_part *part = w->filter ? find_names(filter_root(w->filter), &n) : NULL;
    return n == 1 ? part : NULL;
}

int collection_filter_begin(struct search_work *w, struct quire_error *err)
{
    const struct collection_search *search = w->search;
    w->is_filtered = search->filter || search->scope || search->numbers;
    if (!w->is_filtered)
        return 0;
    if (search->numbers && (!search->collection->config.numbered || search->filter || search->scope)) {
        w->is_filtered = false;
        return error_set(err, QUIRE_EINVALID, "numbers are of numbered collections, and without filter and scope");
    }
    int rc = collection_scope_resolve(search->collection, search->scope, &w->scope, err);
    if (rc < 0)
        return rc;
    w->filter = search->filter ? filter_ref(search->filter) : NULL;
    const struct filter_part *names = names_of(w);
    if (names && names->n_keys > NAMES_MAX) {
        collection_filter_end(w);
        return error_set(err, QUIRE_ELIMIT, "a filter lists %u elements by name: at most %u", names->n_keys, NAMES_MAX);
    }
    return 0;
}

void collection_filter_reset(struct search_work *w)
{
    for (uint32_t i = 0; i < w->n_subs; i++) {
        selection_unref(w->subs[i].selection);
        part_rows_free(w->subs[i].keys);
        free(w->subs[i].by_name);
        w->subs[i].selection = NULL;
        w->subs[i].keys = NULL;
        w->subs[i].by_name = NULL;
    }
    w->n_subs = 0;
    w->next_recheck = w->key_part = w->key_next = 0;
}

void collection_filter_end(struct search_work *w)
{
    collection_filter_reset(w);
    filter_unref(w->filter);
    free(w->scope);
    w->filter = NULL;
    w->scope = NULL;
    w->is_filtered = false;
}

/* ---- memtables --------------------------------------------------------------------------------------------------- */

bool collection_filter_accepts(void *context, const struct memtable_row *row)
{
    const struct search_work *w = context;
    if (w->search->numbers)
        return number_set_has(w->search->numbers, number_of_name(row->key));
    return grants_allow(row->attributes, row->attribute_bytes, w->scope) &&
           collection_text_matches(w->filter, row->attributes, row->attribute_bytes, row->key, row->key_bytes);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void look_up(struct search_work *w);

static void on_name(struct fetch_request *fetch)
{
    struct attribute_fetch *a = fetch->owner;
    struct search_work *w = a->work;
    struct sub_search *sub = &w->subs[a->hit];
    w->search->stats.reads += fetch->reads;
    w->search->stats.bytes += fetch->bytes;
    if (fetch->code == 0 && array_reserve(&sub->by_name, &sub->by_name_capacity, sub->n_by_name + 1))
        sub->by_name[sub->n_by_name++] = fetch->row;
    else if (fetch->code == 0)
        collection_search_fail(w, QUIRE_ENOMEM, NULL);
    else if (fetch->code != QUIRE_ENOTFOUND)
        collection_search_fail(w, fetch->code, &fetch->error);
    assert(a->busy && w->n_pending > 0);
    a->busy = false;
    w->n_pending--;
    look_up(w);
}

/* The next name and a part that may have it. */
static bool start_name(struct search_work *w, struct attribute_fetch *a)
{
    const struct filter_part *names = names_of(w);
    for (; w->key_part < w->view->n_parts; w->key_part++, w->key_next = 0)
        while (w->key_next < names->n_keys) {
            const struct part *part = w->view->parts[w->key_part];
            uint32_t key_bytes;
            const char *key = filter_key(w->filter, names->first_key + w->key_next++, &key_bytes);
            if (key_bytes == 0 || key_bytes > QUIRE_KEY_BYTES_MAX || !part_may_have(part, key, key_bytes))
                continue;
            a->hit = w->key_part;
            w->n_pending++;
            a->request =
                (struct fetch_request){.segment = part->segment, .key = key, .key_bytes = key_bytes, .done = on_name};
            if (!collection_search_fetch(w, a))
                w->n_pending--;
            return true;
        }
    return false;
}

/* What was found becomes sets. */
static void take_by_name(struct search_work *w)
{
    for (uint32_t i = 0; i < w->n_subs; i++) {
        struct sub_search *sub = &w->subs[i];
        struct row_view view = {.rows = sub->by_name, .n = row_set_order(sub->by_name, sub->n_by_name)};
        if (w->search->code == 0 && row_view_roaring(&view, &sub->keys) < 0)
            collection_search_fail(w, QUIRE_ENOMEM, NULL);
        free(sub->by_name);
        sub->by_name = NULL;
    }
}

static void look_up(struct search_work *w)
{
    if (!collection_search_fill(w, start_name) || w->n_pending > 0)
        return;
    take_by_name(w);
    collection_search_start_segments(w);
}

bool collection_filter_find_names(struct search_work *w)
{
    if (!names_of(w))
        return false;
    for (uint32_t i = 0; i < w->view->n_parts; i++)
        w->subs[i] = (struct sub_search){.work = w};
    w->n_subs = w->view->n_parts;
    look_up(w);
    return true;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* The rows of a part whose numbers the search names. */
static int select_numbers(const struct part *part, const struct number_set *numbers, struct selection **out,
                          struct quire_error *err)
{
    int rc = part_select_numbers(part, numbers, out);
    return rc < 0 ? error_set(err, rc, "no memory to select rows") : 0;
}

int collection_filter_select(struct search_work *w, struct sub_search *sub, struct quire_error *err)
{
    struct part *part = w->view->parts[sub->part];
    int rc = w->search->numbers ? select_numbers(part, w->search->numbers, &sub->selection, err)
                                : selection_of(part->segment, w->filter, w->scope, sub->keys, &sub->selection, err);
    if (rc < 0)
        return rc;
    uint64_t asked = w->k;
    assert(w->is_filtered && sub->part < w->n_subs);
    if (sub->selection->residual)
        asked = (uint64_t)RECHECK_MORE * w->k < QUIRE_K_MAX ? (uint64_t)RECHECK_MORE * w->k : QUIRE_K_MAX;
    asked = asked < sub->selection->n ? asked : sub->selection->n;
    sub->asked = asked ? (uint32_t)asked : 1;
    return 0;
}

/* Without the rows that have been seen: those of the last answer. */
static int exclude_seen(struct search_work *w, struct sub_search *sub)
{
    struct selection *rest = NULL;
    uint32_t n = 0, *rows = malloc(w->n_found * sizeof *rows + 1);
    if (!rows)
        return QUIRE_ENOMEM;
    assert(sub->selection->residual);
    for (uint32_t i = 0; i < w->n_found; i++)
        if (w->found[i].part == sub->part)
            rows[n++] = w->found[i].row;
    uint64_t n_rows = row_set_order(rows, n);
    int rc = selection_without(w->view->parts[sub->part]->segment, sub->selection, rows, n_rows, &rest);
    free(rows);
    if (rc < 0)
        return rc;
    selection_unref(sub->selection);
    sub->selection = rest;
    return 0;
}

/* Its hits have been rechecked: on, if there are too few and rows that have not been seen. */
static void ask_more(struct search_work *w, struct sub_search *sub)
{
    bool enough = w->search->code < 0 || sub->n_matched >= w->k || sub->request.n_hits < sub->asked ||
                  sub->selection->n <= sub->asked;
    int rc = enough ? 0 : exclude_seen(w, sub);
    if (rc < 0)
        collection_search_fail(w, rc, NULL);
    if (enough || rc < 0) {
        w->n_pending--;
        return;
    }
    uint64_t more = 2 * (uint64_t)sub->asked < QUIRE_K_MAX ? 2 * (uint64_t)sub->asked : QUIRE_K_MAX;
    sub->asked = (uint32_t)(more < sub->selection->n ? more : sub->selection->n);
    collection_search_start_segment(w, sub);
}

static void recheck(struct search_work *w);

static void settle(struct search_work *w, struct found *f, bool is_match)
{
    struct sub_search *sub = &w->subs[f->part];
    assert(f->recheck == RECHECK_ASKED || (f->recheck == RECHECK_DUE && w->search->code < 0));
    assert(sub->n_unchecked > 0);
    f->recheck = is_match ? RECHECK_NONE : RECHECK_REFUSED;
    sub->n_matched += is_match;
    if (--sub->n_unchecked == 0)
        ask_more(w, sub);
}

static void on_recheck(struct fetch_request *fetch)
{
    struct attribute_fetch *a = fetch->owner;
    struct search_work *w = a->work;
    struct found *f = &w->found[a->hit];
    bool is_match = false;
    assert(a->busy && f->recheck == RECHECK_ASKED);
    collection_search_pin(w);
    w->search->stats.reads += fetch->reads;
    w->search->stats.bytes += fetch->bytes;
    a->rounds += fetch->rounds;
    if (fetch->code < 0)
        collection_search_fail(w, fetch->code, &fetch->error);
    else
        is_match = collection_text_matches(w->filter, fetch->attributes, fetch->attributes_bytes, f->key, f->key_bytes);
    if (is_match && w->search->want_attributes)
        collection_search_keep_json(w, f, fetch->attributes, fetch->attributes_bytes);
    a->busy = false;
    settle(w, f, is_match);
    recheck(w);
    collection_search_release(w);
}

/* The next hit to be rechecked; false: none. */
static bool next_recheck(struct search_work *w)
{
    while (w->next_recheck < w->n_found && w->found[w->next_recheck].recheck != RECHECK_DUE)
        w->next_recheck++;
    return w->next_recheck < w->n_found;
}

static bool start_recheck(struct search_work *w, struct attribute_fetch *a)
{
    if (!next_recheck(w))
        return false;
    struct found *f = &w->found[w->next_recheck];
    a->hit = w->next_recheck;
    f->recheck = RECHECK_ASKED;
    a->request = (struct fetch_request){
        .segment = w->view->parts[f->part]->segment, .row = f->row, .want_attributes = true, .done = on_recheck};
    if (!collection_search_fetch(w, a))
        settle(w, &w->found[a->hit], false);
    return true;
}

/* After a failure none is asked for any more. */
static void recheck(struct search_work *w)
{
    if (!collection_search_fill(w, start_recheck))
        return;
    while (w->search->code < 0 && next_recheck(w))
        settle(w, &w->found[w->next_recheck], false);
}

void collection_filter_take(struct search_work *w, struct sub_search *sub, uint32_t n)
{
    if (!sub->selection->residual || w->search->code < 0) {
        w->n_pending--;
        return;
    }
    assert(sub->n_unchecked == 0 && n <= w->n_found);
    sub->n_unchecked = n;
    for (uint32_t i = w->n_found - n; i < w->n_found; i++)
        w->found[i].recheck = RECHECK_DUE;
    if (n == 0)
        ask_more(w, sub);
    else
        recheck(w);
}

void collection_filter_drop_refused(struct search_work *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_found; i++) {
        assert(w->found[i].recheck == RECHECK_NONE || w->found[i].recheck == RECHECK_REFUSED);
        if (w->found[i].recheck != RECHECK_REFUSED)
            w->found[n++] = w->found[i];
    }
    w->n_found = n;
}
