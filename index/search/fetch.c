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
#include "index/search/search_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 256u

static void read_row_block(struct task *t);
static void after_block(struct task *t);
static void next_entry(struct task *t);

static void fail(struct task *t, int code)
{
    task_finish(t, code);
}

static void damaged(struct task *t, const char *what, const struct io_file *file, uint64_t offset)
{
    task_fail(t, QUIRE_ECORRUPT, "%s of %s at offset %llu is damaged: wrong checksum or contents", what, file->path,
              (unsigned long long)offset);
    task_finish(t, t->code);
}

static void read_page(struct task *t, struct section_file *file, uint64_t at, void (*then)(struct task *))
{
    t->fetch->rounds++;
    task_read_at(t, section_file_io(file), at, PAGE_BYTES, t->page, then);
}

/* ---- the key ----------------------------------------------------------------------------------------------------- */

static void on_rows_page(struct task *t)
{
    const struct segment *s = t->segment;
    uint32_t input = t->bucket_at;
    uint64_t page = input / ROWS_PER_PAGE;
    if (task_check_read(t, 0, "read of a key page") < 0) {
        fail(t, t->code);
        return;
    }
    uint32_t row = load_u32(t->page + 4 * (input % ROWS_PER_PAGE));
    if (!format_page_is_valid(t->page, page, s->segment_id) || row >= s->params.rows) {
        damaged(t, "page", section_file_io(s->keys), s->rows_at + page * PAGE_BYTES);
        return;
    }
    t->fetch->row = row;
    read_row_block(t);
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

static void not_found(struct task *t)
{
    task_fail(t, QUIRE_ENOTFOUND, "there is no such key");
    task_finish(t, QUIRE_ENOTFOUND);
}

static void on_bucket(struct task *t)
{
    const struct segment *s = t->segment;
    uint32_t page = format_key_bucket(t->hash, s->params.key_buckets);
    if (task_check_read(t, 0, "read of a key page") < 0) {
        fail(t, t->code);
        return;
    }
    if (!format_page_is_valid(t->page, page, s->segment_id) || load_u32(t->page) > BUCKET_ENTRIES_MAX) {
        damaged(t, "page", section_file_io(s->keys), s->buckets_at + (uint64_t)page * PAGE_BYTES);
        return;
    }
    t->bucket_at = 0;
    next_entry(t);
}

/* The next entry of the key page with the sought hash; its row's block proves or refutes the key. */
static void next_entry(struct task *t)
{
    uint32_t n = load_u32(t->page);
    for (; t->bucket_at < n; t->bucket_at++)
        if (load_u64(t->page + 8 + 8 * (size_t)t->bucket_at) == t->hash) {
            uint32_t row = load_u32(t->page + 8 + 8 * (size_t)n + 4 * (size_t)t->bucket_at++);
            if (row >= t->segment->params.rows) {
                damaged(t, "page", section_file_io(t->segment->keys), t->segment->buckets_at);
                return;
            }
            t->fetch->row = row;
            read_row_block(t);
            return;
        }
    not_found(t);
}

static void find_key(struct task *t)
{
    const struct segment *s = t->segment;
    const struct fetch_request *r = t->fetch;
    if (s->params.user_keys) {
        t->hash = format_key_hash(r->key, r->key_bytes);
        read_page(t, s->keys, s->buckets_at + (uint64_t)format_key_bucket(t->hash, s->params.key_buckets) * PAGE_BYTES,
                  on_bucket);
    } else if (parse_number(r->key, r->key_bytes, s->params.rows, &t->bucket_at)) {
        read_page(t, s->keys, s->rows_at + t->bucket_at / ROWS_PER_PAGE * (uint64_t)PAGE_BYTES, on_rows_page);
    } else {
        not_found(t);
    }
}

/* ---- the block of the row ---------------------------------------------------------------------------------------- */

static int choose_links(struct task *t, const struct block_view *view);

/* Takes what is asked for out of the block, before its buffer is used again. */
static int take_from_block(struct task *t, const struct block_view *view)
{
    const struct segment *s = t->segment;
    const struct segment_params *p = &s->params;
    struct fetch_request *r = t->fetch;
    r->id = load_u32(view->ids + 4 * (size_t)t->slot);
    if (r->want_vector || r->want_links) {
        const uint8_t *slot = view->slots + (size_t)t->slot * p->slot_bytes;
        const uint8_t *factor = view->factors ? view->factors + (size_t)t->slot * p->factor_bytes : NULL;
        segment_slot_vector(s, view->number, slot, factor, t->centre, t->query);
        r->vector = t->query;
    }
    if (!r->want_links)
        return 0;
    return choose_links(t, view);
}

static void take_number_key(struct task *t)
{
    t->fetch->found_key_bytes = search_number_key((uint32_t)t->fetch->id, t->key);
    t->fetch->found_key = t->key;
}

static void on_key_record(struct task *t)
{
    struct fetch_request *r = t->fetch;
    const uint8_t *key;
    if (task_take_key(t, t->attribute_at, r->found_key_bytes, &key) < 0) {
        fail(t, t->code);
        return;
    }
    memcpy(t->key, key, r->found_key_bytes);
    r->found_key = t->key;
    if (r->key && (r->key_bytes != r->found_key_bytes || memcmp(r->key, t->key, r->key_bytes) != 0)) {
        next_entry(t);
        return;
    }
    after_block(t);
}

static void on_row_block(struct task *t)
{
    const struct segment *s = t->segment;
    struct fetch_request *r = t->fetch;
    struct block_view view;
    struct block_key key = {.bytes = NULL};
    if (task_open_block(t, 0, &view) < 0) {
        fail(t, t->code);
        return;
    }
    t->slot = r->row - view.first_row;
    int rc = view.keys ? block_key(&view, t->slot, &key) : 0;
    bool other = rc == 0 && r->key && view.keys && key.bytes &&
                 (key.length != r->key_bytes || memcmp(key.bytes, r->key, key.length) != 0);
    if (other || (rc == 0 && r->key && view.keys && key.length != r->key_bytes)) {
        next_entry(t);
        return;
    }
    if (rc == 0)
        rc = take_from_block(t, &view);
    if (rc < 0) {
        damaged(t, "block", section_file_io(s->blocks), segment_block_offset(s, view.number));
        return;
    }
    if (!view.keys) {
        take_number_key(t);
    } else if (key.bytes) {
        memcpy(t->key, key.bytes, key.length);
        r->found_key = t->key;
        r->found_key_bytes = key.length;
    } else {
        /* a long key: needed to prove the look-up, or asked for */
        r->found_key_bytes = key.length;
        if (r->key || r->want_key) {
            t->attribute_at = key.external_at;
            t->fetch->rounds++;
            if (task_read_key(t, key.external_at, key.length, on_key_record) < 0)
                fail(t, t->code);
            return;
        }
    }
    after_block(t);
}

static void read_row_block(struct task *t)
{
    uint32_t block = t->fetch->row / t->segment->params.slots_per_block;
    t->fetch->rounds++;
    task_read_blocks(t, &block, 1, NULL, on_row_block);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static void read_links(struct task *t);

static void on_attribute_record(struct task *t)
{
    const struct segment *s = t->segment;
    uint64_t at = s->attribute_heap_at + t->attribute_at;
    const uint8_t *record = t->wide + at % 4096;
    if (task_check_read(t, 0, "read of attributes") < 0) {
        fail(t, t->code);
        return;
    }
    if (load_u64(record) != format_record_checksum(record + RECORD_HEADER_BYTES, t->attribute_bytes, s->segment_id)) {
        damaged(t, "attribute record", section_file_io(s->attributes), at);
        return;
    }
    t->fetch->attributes = (const char *)record + RECORD_HEADER_BYTES;
    t->fetch->attributes_bytes = t->attribute_bytes;
    read_links(t);
}

static void on_attribute_page(struct task *t)
{
    const struct segment *s = t->segment;
    uint32_t row = t->fetch->row;
    uint64_t page = row / ATTRIBUTES_PER_PAGE;
    if (task_check_read(t, 0, "read of an attribute page") < 0) {
        fail(t, t->code);
        return;
    }
    if (!format_page_is_valid(t->page, page, s->segment_id)) {
        damaged(t, "page", section_file_io(s->attributes), s->attribute_index_at + page * PAGE_BYTES);
        return;
    }
    uint64_t entry = load_u64(t->page + 8 * (size_t)(row % ATTRIBUTES_PER_PAGE));
    if (entry == 0) {
        read_links(t);
        return;
    }
    t->attribute_at = (entry >> 24) - 1;
    t->attribute_bytes = (uint32_t)(entry & 0xffffff);
    t->fetch->rounds++;
    if (task_read_record(t, section_file_io(s->attributes), s->attribute_heap_at + t->attribute_at,
                         RECORD_HEADER_BYTES + (uint64_t)t->attribute_bytes,
                         s->attribute_heap_at + s->attribute_heap_bytes, on_attribute_record) < 0)
        fail(t, t->code);
}

static void after_block(struct task *t)
{
    const struct segment *s = t->segment;
    if (t->fetch->want_attributes && s->attributes)
        read_page(t, s->attributes, s->attribute_index_at + t->fetch->row / ATTRIBUTES_PER_PAGE * (uint64_t)PAGE_BYTES,
                  on_attribute_page);
    else
        read_links(t);
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

static int by_estimate(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->distance < y->distance ? -1 : x->distance > y->distance ? 1 : x->row < y->row ? -1 : x->row > y->row;
}

/* Adds a row to the candidates, of which the nearest `want` stay when there is no more room. */
static void take_link_candidate(struct task *t, uint32_t row, float distance, uint32_t want)
{
    t->candidates[t->n_candidates++] = (struct candidate){row, distance, 0, 1};
    if (t->n_candidates == t->candidates_capacity) {
        qsort(t->candidates, t->n_candidates, sizeof *t->candidates, by_estimate);
        t->n_candidates = want;
    }
}

static void take_neighbours(struct task *t, const struct block_view *view, uint32_t want)
{
    struct searcher *s = t->searcher;
    task_score_slots(t, view, s->slot_distances);
    for (uint32_t i = 0; i < view->n_slots; i++)
        if (i != t->slot)
            take_link_candidate(t, view->first_row + i, s->slot_distances[i], want);
}

/* The nearest of the rows of its own block and, by code, of the edges of the slot's list, as candidates 0..n_links. The
 * row's own vector is the query. */
static int choose_links(struct task *t, const struct block_view *view)
{
    struct searcher *s = t->searcher;
    uint32_t want = t->fetch->links_max < LINKS_MAX ? t->fetch->links_max : LINKS_MAX, first;
    if (search_reserve_edges(t, view->n_edges) < 0)
        return QUIRE_ENOMEM;
    t->n_candidates = 0;
    task_set_query(t, t->fetch->vector);
    take_neighbours(t, view, want);
    int edges = view->n_edges ? block_edges(view, t->slot / view->list_slots, s->edges, &first) : 0;
    for (int at = 0; at < edges;) {
        uint32_t n = 0;
        for (; at < edges && n < STEP_ROWS; at++) {
            if (s->edges[at] >= t->segment->params.rows)
                return QUIRE_ECORRUPT;
            s->picks[n] = first + (uint32_t)at;
            s->ids[n++] = s->edges[at];
        }
        task_score_edges(t, view, n);
        for (uint32_t i = 0; i < n; i++)
            take_link_candidate(t, s->ids[i], s->estimates[i], want);
    }
    qsort(t->candidates, t->n_candidates, sizeof *t->candidates, by_estimate);
    t->n_links = t->n_candidates < want ? t->n_candidates : want;
    return edges < 0 ? edges : 0;
}

/* Where link i keeps its key, or the heap offset of a key that does not stand in the block. */
static uint8_t *link_copy(const struct task *t, uint32_t i)
{
    return t->copies + (size_t)i * (BLOCK_KEY_INLINE_MAX + 16);
}

/* Fills link `i` from its row's block. */
static int take_link(struct task *t, uint32_t i, const struct block_view *view)
{
    const struct segment *s = t->segment;
    uint32_t row = t->candidates[i].row, slot = row - view->first_row;
    struct search_hit *hit = &t->hits[i];
    struct block_key key = {.bytes = NULL};
    task_score_slots(t, view, t->searcher->slot_distances);
    *hit = (struct search_hit){.id = load_u32(view->ids + 4 * (size_t)slot), .row = row};
    hit->distance = space_distance(&s->space, t->searcher->slot_distances[slot], t->query_norm2);
    uint8_t *copy = link_copy(t, i);
    if (!view->keys) {
        hit->key_bytes = search_number_key((uint32_t)hit->id, copy);
        hit->key = copy;
        return 0;
    }
    int rc = block_key(view, slot, &key);
    if (rc < 0)
        return rc;
    hit->key_bytes = key.length;
    if (key.bytes) {
        memcpy(copy, key.bytes, key.length);
        hit->key = copy;
    } else {
        store_u64(copy, key.external_at);
    }
    return 0;
}

static void on_link_blocks(struct task *t)
{
    for (uint32_t i = 0; i < t->n_reads; i++) {
        struct block_view view;
        if (task_open_block(t, i, &view) < 0) {
            fail(t, t->code);
            return;
        }
        if (take_link(t, t->step + i, &view) < 0) {
            damaged(t, "block", section_file_io(t->segment->blocks), segment_block_offset(t->segment, view.number));
            return;
        }
    }
    t->step += t->n_reads;
    read_links(t);
}

static int by_distance(const void *a, const void *b)
{
    const struct search_hit *x = a, *y = b;
    return x->distance < y->distance ? -1 : x->distance > y->distance ? 1 : x->row < y->row ? -1 : x->row > y->row;
}

static void read_link_keys(struct task *t);

static void on_link_key(struct task *t)
{
    struct search_hit *hit = &t->hits[t->next_key];
    const uint8_t *key;
    uint8_t *kept = NULL;
    if (task_take_key(t, load_u64(link_copy(t, t->next_key)), hit->key_bytes, &key) < 0) {
        fail(t, t->code);
        return;
    }
    kept = malloc(hit->key_bytes);
    if (!kept) {
        task_fail(t, QUIRE_ENOMEM, "no memory for a key of %u bytes", hit->key_bytes);
        fail(t, t->code);
        return;
    }
    memcpy(kept, key, hit->key_bytes);
    hit->key = kept;
    t->next_key++;
    read_link_keys(t);
}

static void read_link_keys(struct task *t)
{
    while (t->next_key < t->n_links && t->hits[t->next_key].key)
        t->next_key++;
    if (t->next_key == t->n_links) {
        if (t->n_links > 0)
            qsort(t->hits, t->n_links, sizeof *t->hits, by_distance);
        t->fetch->links = t->hits;
        t->fetch->n_links = t->n_links;
        task_finish(t, 0);
        return;
    }
    t->fetch->rounds++;
    if (task_read_key(t, load_u64(link_copy(t, t->next_key)), t->hits[t->next_key].key_bytes, on_link_key) < 0)
        fail(t, t->code);
}

static void read_links(struct task *t)
{
    uint32_t n = t->n_links - t->step < BEAM_MAX ? t->n_links - t->step : BEAM_MAX;
    if (n == 0) {
        read_link_keys(t);
        return;
    }
    uint32_t blocks[BEAM_MAX];
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = t->candidates[t->step + i].row / t->segment->params.slots_per_block;
    t->fetch->rounds++;
    task_read_blocks(t, blocks, n, NULL, on_link_blocks);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static void clear_answer(struct fetch_request *r)
{
    r->code = 0;
    r->id = 0;
    r->vector = NULL;
    r->found_key = NULL;
    r->found_key_bytes = 0;
    r->attributes = NULL;
    r->attributes_bytes = 0;
    r->links = NULL;
    r->n_links = 0;
    r->reads = r->rounds = 0;
    r->bytes = 0;
}

void fetch_begin(struct task *t)
{
    clear_answer(t->fetch);
    t->step = t->n_links = t->n_candidates = t->next_key = 0;
    int rc = task_reserve(t, t->segment);
    if (rc == 0 && !t->key)
        rc = (t->key = malloc(QUIRE_KEY_BYTES_MAX)) ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && t->fetch->want_links)
        rc = search_reserve_links(t, LINKS_MAX);
    if (rc < 0) {
        task_fail(t, QUIRE_ENOMEM, "no memory for a look-up");
        task_finish(t, QUIRE_ENOMEM);
        return;
    }
    if (t->fetch->key)
        find_key(t);
    else if (t->fetch->want_attributes && !t->fetch->want_vector && !t->fetch->want_key && !t->fetch->want_links)
        after_block(t);
    else
        read_row_block(t);
}

void fetch_end(struct task *t, int code)
{
    t->fetch->code = code;
    t->fetch->error = t->error;
    t->fetch->done(t->fetch);
    /* keys read from the heap are the task's to free */
    for (uint32_t i = 0; i < t->next_key; i++) {
        const uint8_t *key = t->hits[i].key;
        if (key < t->copies || key >= t->copies + t->copies_capacity)
            free((void *)(uintptr_t)key);
    }
}
