/*
 * fetch.c - what is known of one row: found by key or number; its vector, key, attributes and links.
 *
 *   by key, keys of the user's   hash -> one page of the key table -> block of each entry with that hash, until one
 *                                holds this very key (a long key is compared with its record in the heap)
 *   by key, keys are numbers     decimal -> one page of places -> block
 *   by row                       block
 *   then, as asked               attribute index page -> record; links: the rows of its block and the out-edges of its
 *                                run, scored against the row, the nearest links_max of them looked up in their blocks
 *                                for id and key
 *
 * One read at a time but for the blocks of links, of which BEAM_MAX are read together. Links are chosen by code and
 * answered in the order of their exact distances.
 */
#include "index/search/task.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX       256u
#define LINK_CANDIDATES 2048u

/* The links of a row: those that may be among the nearest, then what is answered of these. */
struct link_set {
    struct candidate candidates[LINK_CANDIDATES];
    uint32_t n_candidates;
    struct search_hit hits[LINKS_MAX];
    uint64_t key_at[LINKS_MAX]; /* the heap offset of a key that does not stand in the block */
    uint8_t keys[LINKS_MAX][BLOCK_KEY_INLINE_MAX];
};

static enum step read_row_block(struct task *t);
static enum step after_block(struct task *t);
static enum step next_entry(struct task *t);

static enum step damaged(struct task *t, const char *what, const struct io_file *file, uint64_t offset)
{
    return task_fail(t, QUIRE_ECORRUPT, "%s of %s at offset %llu is damaged: wrong checksum or contents", what,
                     file->path, (unsigned long long)offset);
}

static enum step read_page(struct task *t, struct section_file *file, uint64_t at, enum step (*then)(struct task *))
{
    t->fetch.request->rounds++;
    return task_read_at(t, section_file_io(file), at, PAGE_BYTES, t->fetch.page, then);
}

/* ---- the key ----------------------------------------------------------------------------------------------------- */

static enum step on_rows_page(struct task *t)
{
    const struct segment *s = t->segment;
    struct fetch *f = &t->fetch;
    uint64_t page = f->entry / ROWS_PER_PAGE;
    if (task_check_read(t, 0, "read of a key page") < 0)
        return STEP_DONE;
    uint32_t row = bytes_load_u32(f->page + 4 * (f->entry % ROWS_PER_PAGE));
    if (!format_page_is_valid(f->page, page, s->segment_id) || row >= s->params.rows)
        return damaged(t, "page", section_file_io(s->keys), s->rows_at + page * PAGE_BYTES);
    f->request->row = row;
    return read_row_block(t);
}

/* Canonical decimal only: "07" and "+7" are other keys, which this index does not have. */
static bool parse_number(const uint8_t *key, uint32_t n, uint64_t rows, uint32_t *out)
{
    uint64_t value = 0;
    if (n == 0 || n > 10 || (n > 1 && key[0] == '0'))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (key[i] < '0' || key[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(key[i] - '0');
    }
    *out = (uint32_t)value;
    return value < rows;
}

static enum step not_found(struct task *t)
{
    return task_fail(t, QUIRE_ENOTFOUND, "there is no such key");
}

static enum step on_bucket(struct task *t)
{
    const struct segment *s = t->segment;
    uint32_t page = format_key_bucket(t->fetch.hash, s->params.key_buckets);
    if (task_check_read(t, 0, "read of a key page") < 0)
        return STEP_DONE;
    if (!format_page_is_valid(t->fetch.page, page, s->segment_id) || bytes_load_u32(t->fetch.page) > BUCKET_ENTRIES_MAX)
        return damaged(t, "page", section_file_io(s->keys), s->buckets_at + (uint64_t)page * PAGE_BYTES);
    t->fetch.entry = 0;
    return next_entry(t);
}

/* The next entry of the key page with the sought hash; its row's block has the key itself, which may be another. */
static enum step next_entry(struct task *t)
{
    struct fetch *f = &t->fetch;
    uint32_t n = bytes_load_u32(f->page);
    assert(f->request->key && n <= BUCKET_ENTRIES_MAX);
    while (f->entry < n && bytes_load_u64(f->page + 8 + 8 * (size_t)f->entry) != f->hash)
        f->entry++;
    if (f->entry == n)
        return not_found(t);
    uint32_t row = bytes_load_u32(f->page + 8 + 8 * (size_t)n + 4 * (size_t)f->entry++);
    if (row >= t->segment->params.rows)
        return damaged(t, "page", section_file_io(t->segment->keys), t->segment->buckets_at);
    f->request->row = row;
    return read_row_block(t);
}

static enum step find_key(struct task *t)
{
    const struct segment *s = t->segment;
    struct fetch *f = &t->fetch;
    const struct fetch_request *r = f->request;
    if (s->params.user_keys) {
        f->hash = format_key_hash(r->key, r->key_bytes);
        return read_page(t, s->keys,
                         s->buckets_at + (uint64_t)format_key_bucket(f->hash, s->params.key_buckets) * PAGE_BYTES,
                         on_bucket);
    }
    if (!parse_number(r->key, r->key_bytes, s->params.rows, &f->entry))
        return not_found(t);
    return read_page(t, s->keys, s->rows_at + f->entry / ROWS_PER_PAGE * (uint64_t)PAGE_BYTES, on_rows_page);
}

/* ---- the block of the row ---------------------------------------------------------------------------------------- */

static int choose_links(struct task *t, const struct block_view *view);

/* Takes what is asked for out of the block, before its buffer is used again. */
static int take_from_block(struct task *t, const struct block_view *view)
{
    const struct segment_params *p = &t->segment->params;
    struct fetch_request *r = t->fetch.request;
    uint32_t slot = t->fetch.slot;
    assert(slot < view->n_slots);
    r->id = bytes_load_u32(view->ids + 4 * (size_t)slot);
    if (r->want_vector || r->want_links) {
        const uint8_t *factor = view->factors ? view->factors + (size_t)slot * p->factor_bytes : NULL;
        segment_slot_vector(t->segment, view->number, view->slots + (size_t)slot * p->slot_bytes, factor,
                            t->query.centre, t->query.user);
        r->vector = t->query.user;
    }
    return r->want_links ? choose_links(t, view) : 0;
}

static bool is_other_key(const struct fetch_request *r, const void *key, uint32_t key_bytes)
{
    return r->key && (r->key_bytes != key_bytes || (key && memcmp(r->key, key, key_bytes) != 0));
}

static enum step on_key_record(struct task *t)
{
    struct fetch_request *r = t->fetch.request;
    const uint8_t *key = task_take_key(t, t->fetch.record_at, r->found_key_bytes);
    if (!key)
        return STEP_DONE;
    memcpy(t->fetch.key, key, r->found_key_bytes);
    r->found_key = t->fetch.key;
    return is_other_key(r, key, r->found_key_bytes) ? next_entry(t) : after_block(t);
}

static enum step on_row_block(struct task *t)
{
    const struct segment *s = t->segment;
    struct fetch *f = &t->fetch;
    struct fetch_request *r = f->request;
    struct block_view view;
    struct block_key key = {.bytes = NULL};
    if (task_open_block(t, 0, &view) < 0)
        return STEP_DONE;
    f->slot = r->row - view.first_row;
    int rc = view.keys ? block_key(&view, f->slot, &key) : 0;
    if (rc == 0 && view.keys && is_other_key(r, key.bytes, key.length))
        return next_entry(t);
    if (rc == 0)
        rc = take_from_block(t, &view);
    if (rc < 0)
        return damaged(t, "block", section_file_io(s->blocks), segment_block_offset(s, view.number));
    r->found_key = f->key;
    if (!view.keys) {
        r->found_key_bytes = search_number_key((uint32_t)r->id, f->key);
        return after_block(t);
    }
    r->found_key_bytes = key.length;
    if (key.bytes) {
        memcpy(f->key, key.bytes, key.length);
        return after_block(t);
    }
    r->found_key = NULL;
    if (!r->key && !r->want_key)
        return after_block(t);
    /* a long key: needed to be compared with the one that is looked up, or asked for */
    f->record_at = key.external_at;
    r->rounds++;
    return task_read_key(t, key.external_at, key.length, on_key_record);
}

static enum step read_row_block(struct task *t)
{
    uint32_t block = t->fetch.request->row / t->segment->params.slots_per_block;
    t->fetch.request->rounds++;
    return task_read_blocks(t, &block, 1, NULL, on_row_block);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static enum step read_links(struct task *t);

static enum step on_attribute_record(struct task *t)
{
    const struct segment *s = t->segment;
    struct fetch *f = &t->fetch;
    uint64_t at = s->attribute_heap_at + f->record_at;
    const uint8_t *record = t->wide + at % 4096;
    if (task_check_read(t, 0, "read of attributes") < 0)
        return STEP_DONE;
    if (bytes_load_u64(record) !=
        format_record_checksum(record + RECORD_HEADER_BYTES, f->attribute_bytes, s->segment_id))
        return damaged(t, "attribute record", section_file_io(s->attributes), at);
    f->request->attributes = (const char *)record + RECORD_HEADER_BYTES;
    f->request->attributes_bytes = f->attribute_bytes;
    return read_links(t);
}

static enum step on_attribute_page(struct task *t)
{
    const struct segment *s = t->segment;
    struct fetch *f = &t->fetch;
    uint32_t row = f->request->row;
    uint64_t page = row / ATTRIBUTES_PER_PAGE;
    if (task_check_read(t, 0, "read of an attribute page") < 0)
        return STEP_DONE;
    if (!format_page_is_valid(f->page, page, s->segment_id))
        return damaged(t, "page", section_file_io(s->attributes), s->attribute_index_at + page * PAGE_BYTES);
    uint64_t entry = bytes_load_u64(f->page + 8 * (size_t)(row % ATTRIBUTES_PER_PAGE));
    if (entry == 0)
        return read_links(t);
    f->record_at = (entry >> 24) - 1;
    f->attribute_bytes = (uint32_t)(entry & 0xffffff);
    f->request->rounds++;
    return task_read_record(t, section_file_io(s->attributes), s->attribute_heap_at + f->record_at,
                            RECORD_HEADER_BYTES + (uint64_t)f->attribute_bytes,
                            s->attribute_heap_at + s->attribute_heap_bytes, on_attribute_record);
}

static enum step after_block(struct task *t)
{
    const struct segment *s = t->segment;
    const struct fetch_request *r = t->fetch.request;
    if (!r->want_attributes || !s->attributes)
        return read_links(t);
    return read_page(t, s->attributes, s->attribute_index_at + r->row / ATTRIBUTES_PER_PAGE * (uint64_t)PAGE_BYTES,
                     on_attribute_page);
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

static int by_estimate(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->distance < y->distance ? -1 : x->distance > y->distance ? 1 : x->row < y->row ? -1 : x->row > y->row;
}

static void sort_candidates(struct link_set *links)
{
    qsort(links->candidates, links->n_candidates, sizeof *links->candidates, by_estimate);
}

/* Adds a row to the candidates, of which the nearest `want` stay when there is no more space. */
static void take_candidate(struct link_set *links, uint32_t row, float distance, uint32_t want)
{
    links->candidates[links->n_candidates++] = (struct candidate){row, distance, 0, 1};
    if (links->n_candidates == LINK_CANDIDATES) {
        sort_candidates(links);
        links->n_candidates = want;
    }
}

/* The nearest of the rows of its own block and, by code, of the edges of the slot's list, as candidates 0..n_links. The
 * row's own vector is the query. */
static int choose_links(struct task *t, const struct block_view *view)
{
    struct scratch *s = &t->searcher->scratch;
    struct fetch *f = &t->fetch;
    uint32_t want = f->request->links_max < LINKS_MAX ? f->request->links_max : LINKS_MAX, first;
    if (search_reserve_edges(t, view->n_edges) < 0)
        return QUIRE_ENOMEM;
    f->links->n_candidates = 0;
    score_set_query(t, f->request->vector);
    score_slots(t, view);
    for (uint32_t i = 0; i < view->n_slots; i++)
        if (i != f->slot)
            take_candidate(f->links, view->first_row + i, s->slot_distances[i], want);
    const uint32_t *rows = t->searcher->found.edges;
    int edges = view->n_edges ? block_edges(view, f->slot / view->list_slots, t->searcher->found.edges, &first) : 0;
    for (int at = 0; at < edges;) {
        uint32_t n = 0;
        for (; at < edges && n < STEP_ROWS; at++) {
            if (rows[at] >= t->segment->params.rows)
                return QUIRE_ECORRUPT;
            s->picks[n] = first + (uint32_t)at;
            s->ids[n++] = rows[at];
        }
        score_edges(t, view, n);
        for (uint32_t i = 0; i < n; i++)
            take_candidate(f->links, s->ids[i], s->estimates[i], want);
    }
    sort_candidates(f->links);
    f->n_links = f->links->n_candidates < want ? f->links->n_candidates : want;
    return edges < 0 ? edges : 0;
}

/* Fills link `i` from its row's block. */
static int take_link(struct task *t, uint32_t i, const struct block_view *view)
{
    struct link_set *links = t->fetch.links;
    uint32_t row = links->candidates[i].row, slot = row - view->first_row;
    struct search_hit *hit = &links->hits[i];
    struct block_key key = {.bytes = NULL};
    assert(slot < view->n_slots && i < t->fetch.n_links);
    score_slots(t, view);
    *hit = (struct search_hit){.id = bytes_load_u32(view->ids + 4 * (size_t)slot), .row = row};
    hit->distance = space_distance(&t->segment->space, t->searcher->scratch.slot_distances[slot], t->query.norm2);
    if (!view->keys) {
        hit->key_bytes = search_number_key((uint32_t)hit->id, links->keys[i]);
        hit->key = links->keys[i];
        return 0;
    }
    int rc = block_key(view, slot, &key);
    if (rc < 0)
        return rc;
    hit->key_bytes = key.length;
    links->key_at[i] = key.external_at;
    if (key.bytes)
        hit->key = memcpy(links->keys[i], key.bytes, key.length);
    return 0;
}

static enum step on_link_blocks(struct task *t)
{
    for (uint32_t i = 0; i < t->n_reads; i++) {
        struct block_view view;
        if (task_open_block(t, i, &view) < 0)
            return STEP_DONE;
        if (take_link(t, t->fetch.n_taken++, &view) < 0)
            return damaged(t, "block", section_file_io(t->segment->blocks),
                           segment_block_offset(t->segment, view.number));
    }
    return read_links(t);
}

static int by_distance(const void *a, const void *b)
{
    const struct search_hit *x = a, *y = b;
    return x->distance < y->distance ? -1 : x->distance > y->distance ? 1 : x->row < y->row ? -1 : x->row > y->row;
}

static enum step read_link_keys(struct task *t);

static enum step on_link_key(struct task *t)
{
    struct fetch *f = &t->fetch;
    struct search_hit *hit = &f->links->hits[f->next_key];
    const uint8_t *key = task_take_key(t, f->links->key_at[f->next_key], hit->key_bytes);
    if (!key)
        return STEP_DONE;
    uint8_t *kept = malloc(hit->key_bytes);
    if (!kept)
        return task_fail(t, QUIRE_ENOMEM, "no memory for a key of %u bytes", hit->key_bytes);
    hit->key = memcpy(kept, key, hit->key_bytes);
    f->next_key++;
    return read_link_keys(t);
}

/* Keys that do not stand in the blocks, one after the other; then the answer. */
static enum step read_link_keys(struct task *t)
{
    struct fetch *f = &t->fetch;
    while (f->next_key < f->n_links && f->links->hits[f->next_key].key)
        f->next_key++;
    if (f->next_key < f->n_links) {
        f->request->rounds++;
        return task_read_key(t, f->links->key_at[f->next_key], f->links->hits[f->next_key].key_bytes, on_link_key);
    }
    if (f->n_links > 0)
        qsort(f->links->hits, f->n_links, sizeof *f->links->hits, by_distance);
    f->request->links = f->links ? f->links->hits : NULL;
    f->request->n_links = f->n_links;
    return STEP_DONE;
}

static enum step read_links(struct task *t)
{
    struct fetch *f = &t->fetch;
    uint32_t n = f->n_links - f->n_taken < BEAM_MAX ? f->n_links - f->n_taken : BEAM_MAX;
    if (n == 0)
        return read_link_keys(t);
    uint32_t blocks[BEAM_MAX];
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = f->links->candidates[f->n_taken + i].row / t->segment->params.slots_per_block;
    f->request->rounds++;
    return task_read_blocks(t, blocks, n, NULL, on_link_blocks);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static struct fetch_request *request_of(struct task_ticket *ticket)
{
    return (struct fetch_request *)(void *)((char *)ticket - offsetof(struct fetch_request, ticket));
}

static int reserve(struct task *t)
{
    struct fetch *f = &t->fetch;
    if (!f->page)
        f->page = memory_map_alone(PAGE_BYTES, 0);
    if (!f->key)
        f->key = malloc(QUIRE_KEY_BYTES_MAX);
    if (!f->links && f->request->want_links)
        f->links = malloc(sizeof *f->links);
    if (!f->page || !f->key || (!f->links && f->request->want_links))
        return QUIRE_ENOMEM;
    return task_reserve(t);
}

static enum step begin(struct task *t, struct task_ticket *ticket)
{
    struct fetch *f = &t->fetch;
    struct fetch_request *r = f->request = request_of(ticket);
    f->n_links = f->n_taken = f->next_key = 0;
    r->code = 0;
    r->id = 0;
    r->vector = NULL;
    r->found_key = NULL;
    r->found_key_bytes = 0;
    r->attributes = NULL;
    r->attributes_bytes = 0;
    r->links = NULL;
    r->n_links = 0;
    r->rounds = 0;
    if (reserve(t) < 0)
        return task_fail(t, QUIRE_ENOMEM, "no memory for a look-up");
    if (r->key)
        return find_key(t);
    if (r->want_attributes && !r->want_vector && !r->want_key && !r->want_links)
        return after_block(t);
    return read_row_block(t);
}

static void end(struct task *t)
{
    struct fetch *f = &t->fetch;
    struct fetch_request *r = f->request;
    uint32_t n_keys = f->next_key;
    r->code = t->code;
    r->error = t->error;
    r->reads = t->cost.reads;
    r->bytes = t->cost.bytes;
    r->done(r);
    /* keys read from the heap are the task's to free */
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint8_t *key = f->links->hits[i].key, *kept = f->links->keys[0];
        if (key < kept || key >= kept + sizeof f->links->keys)
            free((void *)(uintptr_t)key);
    }
}

static void cancel(struct task_ticket *ticket)
{
    struct fetch_request *r = request_of(ticket);
    r->code = error_set(&r->error, QUIRE_ECANCELLED, "the look-up was cancelled before it began");
    r->done(r);
}

int fetch_start(struct searcher *s, struct fetch_request *r, struct quire_error *err)
{
    static const struct task_kind kind = {LINE_FETCHES, begin, end, cancel};
    if (r->key && (r->key_bytes == 0 || r->key_bytes > QUIRE_KEY_BYTES_MAX))
        return error_set(err, QUIRE_ERANGE, "a key has 1..%u bytes, not %u", QUIRE_KEY_BYTES_MAX, r->key_bytes);
    if (!r->key && r->row >= r->segment->params.rows)
        return error_set(err, QUIRE_ERANGE, "row %u: there are %llu", r->row,
                         (unsigned long long)r->segment->params.rows);
    int rc = searcher_attach(s, r->segment, err);
    if (rc < 0)
        return rc;
    r->ticket = (struct task_ticket){.kind = &kind, .segment = r->segment};
    task_start(s, &r->ticket);
    return 0;
}
