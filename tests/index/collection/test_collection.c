/*
 * test_collection.c - what lies below the public calls of a live collection: places that go stale, the filter and the
 * tombstones of a part, keys in order, and the records from which a collection is made again.
 *
 * Records are taken as the journal gives them back. Each is then given to a new collection cut short at every byte and
 * with every bit of its lengths flipped: it must be refused with a sentence, without reading a byte that is not there.
 */
#include "index/collection/collection_export.h"
#include "index/collection/collection_priv.h"
#include "index/collection/collection_range.h"
#include "index/store/store_priv.h"
#include "io/bytes.h"
#include "io/fs.h"
#include "io/random.h"
#include "tests/index/support_parts.h"
#include "tests/index/support_store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 1200, CHANGED_KEYS = 300, SEALED_KEYS = 100 };

struct state {
    char *folder, *path;
    struct store *store;
    struct collection *c;
    struct support_lane lane;
    struct support_model model;
};

static int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    struct store_options options = support_store_options(NULL);
    assert_non_null(s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "data");
    support_lane_open(&s->lane, NULL);
    support_model_init(&s->model, KEYS);
    s->store = support_store_open(s->path, &options);
    s->c = support_create(s->store);
    *out = s;
    return 0;
}

static void close_store(struct state *s)
{
    collection_unref(s->c);
    s->c = NULL;
    if (s->store)
        support_store_close(s->store);
    s->store = NULL;
}

static int tear_down(void **in)
{
    struct state *s = *in;
    close_store(s);
    support_lane_close(&s->lane);
    support_model_free(&s->model);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

static void put_keys(struct state *s, uint32_t first, uint32_t n, uint32_t version)
{
    for (uint32_t key = first; key < first + n; key++)
        assert_int_equal(support_put(&s->lane, s->c, &s->model, key, version, key % 3, NULL), 0);
}

static void remove_keys(struct state *s, uint32_t first, uint32_t n)
{
    for (uint32_t key = first; key < first + n; key++)
        assert_int_equal(support_remove(&s->lane, s->c, &s->model, key, NULL), 0);
}

static void seal(struct state *s)
{
    struct quire_error err = {0};
    if (store_seal(s->store, s->c, &err) < 0)
        fail_msg("seal: %s", err.message);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

struct asked {
    struct located located;
    int code;
    bool done, in_memory;
};

static void on_answer(struct collection_fetch *fetch)
{
    struct asked *asked = fetch->owner;
    *asked = (struct asked){fetch->located, fetch->code, true, fetch->in_memory};
}

static struct asked ask(struct state *s, const char *key)
{
    struct asked asked = {.done = false};
    struct collection_fetch fetch = {
        .collection = s->c, .key = key, .key_bytes = (uint32_t)strlen(key), .done = on_answer, .owner = &asked};
    assert_int_equal(collection_fetch_start(s->lane.searcher, &fetch, NULL), 0);
    while (!asked.done)
        engine_poll(s->lane.engine, 1, 10000000);
    return asked;
}

static int put_at(struct state *s, const char *key, struct located located, enum put_condition condition,
                  struct collection_put *put)
{
    float vector[SUPPORT_DIM];
    support_vector(1, 2, vector);
    *put = (struct collection_put){
        .key = key, .key_bytes = (uint32_t)strlen(key), .vector = vector, .condition = condition, .located = located};
    return collection_put(s->c, put, NULL);
}

/* A place holds until segments change; a memtable that is frozen or written to changes nothing. */
static void places_go_stale_with_segments(void **in)
{
    struct state *s = *in;
    struct collection_put put;
    struct quire_error err = {0};
    bool removed;
    uint64_t lsn;
    put_keys(s, 0, 50, 1);
    seal(s);
    for (unsigned change = 0; change < 2; change++) {
        struct asked there = ask(s, "key-7"), nowhere = ask(s, "key-none");
        assert_int_equal(there.code, 0);
        assert_false(there.in_memory);
        assert_true(there.located.segment_uid > 0);
        assert_int_equal(nowhere.code, QUIRE_ENOTFOUND);
        assert_int_equal(nowhere.located.segment_uid, 0);
        assert_int_equal(nowhere.located.generation, there.located.generation);
        put_keys(s, 60, 50, 1);
        assert_int_equal(ask(s, "key-7").located.generation, there.located.generation);
        if (change == 0)
            seal(s);
        else
            assert_int_equal(store_compact(s->store, s->c, &err), 0);
        assert_int_equal(put_at(s, "key-7", there.located, PUT_ALWAYS, &put), QUIRE_ESTALE);
        assert_int_equal(put_at(s, "key-none", nowhere.located, PUT_ALWAYS, &put), QUIRE_ESTALE);
        assert_int_equal(collection_remove(s->c, "key-7", 5, &there.located, NULL, &removed, &lsn, &err), QUIRE_ESTALE);
        assert_false(removed);
        assert_true(support_equal(&s->lane, s->c, &s->model));
        assert_int_equal(put_at(s, "key-none", ask(s, "key-none").located, PUT_ONLY_OLD, &put), 0);
        assert_int_equal(put.lsn, 0); /* there is none: the condition does not hold */
    }
}

static void conditions_of_puts(void **in)
{
    struct state *s = *in;
    struct collection_put put;
    put_keys(s, 0, 30, 1);
    struct asked in_memory = ask(s, "key-3");
    assert_true(in_memory.in_memory);
    assert_int_equal(put_at(s, "key-3", in_memory.located, PUT_ONLY_SEALED, &put), QUIRE_ESTALE);
    assert_int_equal(put_at(s, "key-3", in_memory.located, PUT_ONLY_NEW, &put), 0);
    assert_true(put.lsn == 0 && !put.was_new);
    seal(s);
    struct asked sealed = ask(s, "key-3");
    assert_int_equal(put_at(s, "key-3", sealed.located, PUT_ONLY_NEW, &put), 0);
    assert_true(put.lsn == 0 && !put.was_new);
    assert_true(support_equal(&s->lane, s->c, &s->model));
    assert_int_equal(put_at(s, "key-3", sealed.located, PUT_ONLY_SEALED, &put), 0);
    assert_true(put.lsn > 0 && !put.was_new);
    /* the row that was named is dead now: the segment has not changed, but the put came too late */
    assert_int_equal(put_at(s, "key-3", sealed.located, PUT_ONLY_SEALED, &put), QUIRE_ESTALE);
    assert_int_equal(put_at(s, "key-3", sealed.located, PUT_ONLY_OLD, &put), 0);
    assert_true(put.lsn > 0 && !put.was_new);
    assert_int_equal(collection_count(s->c), 30);
}

static void on_attributes(struct collection_fetch *fetch)
{
    bool *done = fetch->owner;
    *done = true;
    assert_int_equal(fetch->code, 0);
    assert_null(fetch->attributes);
}

/* Attributes are kept of what is replaced: an element that was removed meanwhile takes none to the new one. */
static void kept_attributes_are_of_the_row_replaced(void **in)
{
    struct state *s = *in;
    float vector[SUPPORT_DIM];
    bool done = false;
    put_keys(s, 0, 30, 1);
    seal(s);
    struct located old = ask(s, "key-4").located;
    remove_keys(s, 4, 1);
    support_vector(4, 2, vector);
    struct collection_put put = {.key = "key-4",
                                 .key_bytes = 5,
                                 .vector = vector,
                                 .attributes = "{\"old\":1}",
                                 .attribute_bytes = 9,
                                 .keep_attributes = true,
                                 .located = old};
    assert_int_equal(collection_put(s->c, &put, NULL), 0);
    assert_true(put.was_new);
    struct collection_fetch fetch = {.collection = s->c,
                                     .key = "key-4",
                                     .key_bytes = 5,
                                     .want_attributes = true,
                                     .done = on_attributes,
                                     .owner = &done};
    assert_int_equal(collection_fetch_start(s->lane.searcher, &fetch, NULL), 0);
    assert_true(done);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static struct part *open_part(const char *path)
{
    struct segment_options options = {.memory_bytes = 0};
    struct quire_error err = {0};
    struct part *part = NULL;
    assert_int_equal(part_create(9, &part, &err), 0);
    if (part_open(part, path, &options, &err) < 0)
        fail_msg("part: %s", err.message);
    return part;
}

static void a_filter_is_never_wrongly_negative(void **in)
{
    enum { ROWS = 3000, STRANGERS = 100000 };
    struct state *s = *in;
    struct support_part rows;
    char *path = support_path(s->folder, "part");
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    uint32_t wrong = 0;
    support_part_make(&rows, "row", ROWS, 8, QUIRE_TYPE_F32, 3, true, false);
    segment_unref(support_part_segment(&rows, path, &options, true));
    struct part *part = open_part(path);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_true(part_may_have(part, rows.keys[i], rows.key_bytes[i]));
    for (uint32_t i = 0; i < STRANGERS; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "stranger:%u", i);
        wrong += part_may_have(part, text, (uint32_t)n);
    }
    if (wrong < STRANGERS / 1000 || wrong > STRANGERS / 40)
        fail_msg("%u of %u strangers pass the filter", wrong, STRANGERS);
    assert_true(part_bytes(part) >= ROWS * 10 / 8 + ROWS / 8);
    part_unref(part);
    support_part_free(&rows);
    free(path);
}

static void tombstones_before_and_after_opening(void **in)
{
    enum { ROWS = 3000 };
    struct state *s = *in;
    struct support_part rows;
    char *path = support_path(s->folder, "part");
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct segment_options opening = {.memory_bytes = 0};
    struct quire_error err = {0};
    struct part *part = NULL;
    support_part_make(&rows, "row", ROWS, 8, QUIRE_TYPE_F32, 3, false, false);
    segment_unref(support_part_segment(&rows, path, &options, false));
    assert_int_equal(part_create(4, &part, &err), 0);
    for (uint32_t row = 1; row < ROWS; row *= 2) { /* the bitmap grows */
        assert_int_equal(part_kill(part, row), 1);
        assert_int_equal(part_kill(part, row), 0);
    }
    assert_int_equal(part_open(part, path, &opening, &err), 0);
    assert_true(part_may_have(part, "anything", 8)); /* keys are numbers: no filter */
    for (uint32_t row = 0; row < ROWS; row++)
        assert_int_equal(part_is_dead(part, row), row > 0 && (row & (row - 1)) == 0);
    assert_int_equal(part_living(part), ROWS - 12);
    assert_int_equal(part_kill(part, ROWS - 1), 1);
    assert_int_equal(part_kill(part, ROWS - 1), 0);
    assert_int_equal(part_living(part), ROWS - 13);
    assert_int_equal(part_kill(part, 1u << 20), QUIRE_ERANGE);
    assert_false(part_is_dead(part, 1u << 20));
    part_unref(part);
    static const uint32_t beyond[] = {ROWS, ROWS + 1, 100000, UINT32_MAX};
    for (size_t i = 0; i < SUPPORT_COUNT(beyond); i++) { /* a row that there is not */
        assert_int_equal(part_create(4, &part, &err), 0);
        assert_int_equal(part_kill(part, beyond[i]), 1);
        assert_int_equal(part_open(part, path, &opening, &err), QUIRE_ECORRUPT);
        assert_non_null(strstr(err.message, "3000 rows"));
        part_unref(part);
    }
    support_part_free(&rows);
    free(path);
}

/* ---- keys in order ----------------------------------------------------------------------------------------------- */

static int by_text(const void *left, const void *right)
{
    return strcmp(left, right);
}

static bool bound_holds(const struct range_bound *bound, const char *key, bool is_first)
{
    if (bound->least || bound->greatest)
        return bound->least == is_first;
    char text[32] = "";
    memcpy(text, bound->bytes, bound->n_bytes);
    int order = strcmp(key, text);
    return order == 0 ? !bound->open : (order > 0) == is_first;
}

static void keys_come_in_the_order_of_their_bytes(void **in)
{
    struct state *s = *in;
    char(*keys)[16] = calloc(KEYS, sizeof *keys);
    uint32_t n_keys = 0;
    assert_non_null(keys);
    put_keys(s, 0, 500, 1);
    seal(s);
    put_keys(s, 250, 500, 2);
    remove_keys(s, 100, 300);
    seal(s);
    put_keys(s, 700, 100, 3);
    for (uint32_t i = 0; i < KEYS; i++)
        if (s->model.elements[i].version)
            snprintf(keys[n_keys++], sizeof *keys, "key-%u", i);
    qsort(keys, n_keys, sizeof *keys, by_text);
#define BOUND(text, is_open)                                                                                           \
    {                                                                                                                  \
        .bytes = (const uint8_t *)(text), .n_bytes = sizeof(text) - 1, .open = is_open                                 \
    }
    static const struct range_bound bounds[] = {
        {.least = true},        {.greatest = true},     BOUND("key-5", false),   BOUND("key-5", true),
        BOUND("key-50", false), BOUND("key-500", true), BOUND("key-450", false), BOUND("a", false),
        BOUND("z", true),       BOUND("key-", false),
    };
    static const uint64_t counts[] = {0, 1, 7, 64, 65, KEYS, UINT64_MAX};
    for (size_t b = 0; b < SUPPORT_COUNT(bounds) * SUPPORT_COUNT(bounds) * SUPPORT_COUNT(counts); b++) {
        struct collection_range range = {.first = bounds[b % SUPPORT_COUNT(bounds)],
                                         .last = bounds[b / SUPPORT_COUNT(bounds) % SUPPORT_COUNT(bounds)],
                                         .count = counts[b / SUPPORT_COUNT(bounds) / SUPPORT_COUNT(bounds)]};
        uint64_t found = 0;
        assert_int_equal(collection_range_read(s->c, &range, NULL), 0);
        for (uint32_t i = 0; i < n_keys && found < range.count; i++) {
            if (!bound_holds(&range.first, keys[i], true) || !bound_holds(&range.last, keys[i], false))
                continue;
            assert_true(found < range.n);
            assert_int_equal(range.keys[found].n_bytes, strlen(keys[i]));
            assert_memory_equal(range.keys[found].bytes, keys[i], strlen(keys[i]));
            found++;
        }
        assert_int_equal(range.n, found);
        collection_range_fini(&range);
    }
    free(keys);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

struct record {
    uint8_t kind;
    bool restored;
    uint64_t lsn;
    uint32_t n;
    uint8_t *bytes; /* owned; of just that size, so that a sanitizer sees one read too many */
};

struct records {
    struct record *items;
    uint32_t n;
};

static uint8_t *exact_copy(const uint8_t *bytes, uint32_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static int keep(void *context, bool restored, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n)
{
    struct records *records = context;
    records->items = realloc(records->items, (records->n + 1) * sizeof *records->items);
    assert_non_null(records->items);
    records->items[records->n++] = (struct record){kind, restored, lsn, n, exact_copy(bytes, n)};
    return 0;
}

static int on_restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                      struct quire_error *err)
{
    (void)err;
    return keep(context, true, kind, lsn, bytes, n);
}

static int on_replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                     struct quire_error *err)
{
    (void)err;
    return keep(context, false, kind, lsn, bytes, n);
}

static struct records read_records(const char *path)
{
    struct records records = {.n = 0};
    struct journal_reader reader = {.restore = on_restore, .replay = on_replay, .context = &records};
    struct journal_report report;
    struct quire_error err = {0};
    if (journal_read(fs_real(), path, &reader, false, NULL, NULL, &report, &err) < 0)
        fail_msg("%s", err.message);
    return records;
}

static void records_free(struct records *records)
{
    for (uint32_t i = 0; i < records->n; i++)
        free(records->items[i].bytes);
    free(records->items);
}

static bool is_of_a_collection(const struct record *record)
{
    return record->kind >= RECORD_PUT && record->kind < RECORD_KINDS_END && record->kind != (int)RECORD_COUNTERS;
}

static struct collection *new_collection(struct store *store)
{
    struct collection_config config = support_config();
    struct collection *c = NULL;
    assert_int_equal(collection_config_validate(&config, NULL), 0);
    struct attribute_schema *schema = NULL;
    assert_int_equal(attribute_schema_create(NULL, 0, &schema, NULL), 0);
    assert_int_equal(collection_create(&store->as_host, sizeof(struct upkeep), 77, &config, schema, 0, &c, NULL), 0);
    return c;
}

/* A collection to which the first n records were given. */
static struct collection *replayed(struct store *store, const struct records *records, uint32_t n)
{
    struct collection *c = new_collection(store);
    for (uint32_t i = 0; i < n; i++) {
        const struct record *r = &records->items[i];
        struct quire_error err = {0};
        if (is_of_a_collection(r) && collection_replay(c, r->kind, r->restored, r->lsn, r->bytes, r->n, &err) < 0)
            fail_msg("record %u of kind %u: %s", i, r->kind, err.message);
    }
    return c;
}

/* Where a record's lengths and numbers of things are, each an u32; returns how many. */
static uint32_t lengths_of(const struct record *r, uint32_t at[64])
{
    uint32_t n = 0;
    if (r->kind == RECORD_EDIT) {
        at[n++] = 24;
        at[n++] = 28;
    } else if (r->kind == RECORD_STATE) {
        at[n++] = 8 + COLLECTION_CONFIG_BYTES;
        at[n++] = 12 + COLLECTION_CONFIG_BYTES;
        for (uint32_t p = 16 + COLLECTION_CONFIG_BYTES + bytes_load_u32(r->bytes + 12 + COLLECTION_CONFIG_BYTES);
             p < r->n; p += 16 + bytes_load_u32(r->bytes + p + 12))
            at[n++] = p + 12;
    } else if (r->kind == RECORD_ROWS) {
        at[n++] = 8;
        for (uint32_t p = 16; p < r->n && n < 60; p += 24 + bytes_load_u32(r->bytes + p + 8) +
                                                       bytes_load_u32(r->bytes + p + 12) +
                                                       bytes_load_u32(r->bytes + p + 16))
            for (uint32_t k = 8; k <= 16; k += 4)
                at[n++] = p + k;
    } else if (r->kind == RECORD_DROP_TENANT) {
        at[n++] = 12;
    } else if (r->kind == RECORD_VOID_ROWS) {
        at[n++] = 16;
    } else {
        for (uint32_t k = 20; k <= 28; k += 4)
            at[n++] = k;
    }
    return n;
}

static void assert_refused(struct store *store, const struct records *before, uint32_t n_before, const struct record *r,
                           uint8_t *bytes, uint32_t n, uint32_t where)
{
    struct collection *c = replayed(store, before, n_before);
    struct quire_error err = {0};
    int rc = collection_replay(c, r->kind, r->restored, r->lsn, bytes, n, &err);
    if (rc != QUIRE_ECORRUPT || err.code != rc || err.message[0] == 0)
        fail_msg("kind %u with %u of %u bytes, changed at %u: %s", r->kind, n, r->n, where, quire_error_name(rc));
    collection_unref(c);
}

/* Damages record i after those before it, in every way. */
static void damage(struct store *store, const struct records *records, uint32_t i)
{
    const struct record *r = &records->items[i];
    uint32_t at[64], n_lengths = lengths_of(r, at);
    assert_true(n_lengths >= 1);
    for (uint32_t n = 0; n < r->n; n++) {
        uint8_t *cut = exact_copy(r->bytes, n);
        assert_refused(store, records, i, r, cut, n, n);
        free(cut);
    }
    for (uint32_t k = 0; k < 32 * n_lengths; k++) {
        uint8_t *flipped = exact_copy(r->bytes, r->n);
        flipped[at[k / 32] + k % 32 / 8] ^= (uint8_t)(1u << k % 8);
        assert_refused(store, records, i, r, flipped, r->n, at[k / 32]);
        free(flipped);
    }
}

static void put_granted(struct state *s, const char *key)
{
    struct grant grant = {.name = "tenant", .bytes = 6};
    float vector[SUPPORT_DIM];
    support_vector(1, 3, vector);
    struct collection_put put = {
        .key = key, .key_bytes = (uint32_t)strlen(key), .vector = vector, .grants = &grant, .n_grants = 1};
    assert_int_equal(collection_locate_now(s->c, key, put.key_bytes, &put.located), 1);
    assert_int_equal(collection_put(s->c, &put, NULL), 0);
}

/* And buries what it had. */
static void drop_tenant(struct state *s)
{
    uint64_t elements, lsn;
    assert_int_equal(collection_drop_tenant(s->c, "tenant", 6, &elements, &lsn, NULL), 0);
    assert_int_equal(elements, 1);
    assert_int_equal(collection_remove_void(s->c, NULL), 0);
}

/* One record of each kind that the log has. */
static void damaged_records_of_the_log_are_refused(void **in)
{
    struct state *s = *in;
    bool seen[RECORD_KINDS_END] = {false};
    struct store_options options = support_store_options(NULL);
    put_keys(s, 0, 5, 1);
    put_granted(s, "granted");
    seal(s);
    drop_tenant(s);
    put_keys(s, 1, 3, 2);
    remove_keys(s, 2, 1);
    remove_keys(s, 4, 1);
    assert_int_equal(support_set_attributes(s->c, &s->model, 3, 7, NULL), 0);
    seal(s);
    assert_int_equal(store_compact(s->store, s->c, NULL), 0); /* parts that go, and the one that comes */
    close_store(s);
    struct records records = read_records(s->path);
    s->store = support_store_open(s->path, &options);
    for (uint32_t i = 0; i < records.n; i++) {
        const struct record *r = &records.items[i];
        if (!is_of_a_collection(r) || (seen[r->kind] && r->kind != RECORD_EDIT))
            continue;
        seen[r->kind] = true;
        damage(s->store, &records, i);
    }
    assert_true(seen[RECORD_PUT] && seen[RECORD_REMOVE] && seen[RECORD_ATTRIBUTES] && seen[RECORD_EDIT]);
    assert_true(seen[RECORD_DROP_TENANT] && seen[RECORD_VOID_ROWS]);
    records_free(&records);
}

/* A checkpoint's records: with both forms of tombstones, keys with and without attributes. */
static struct records checkpoint_records(struct state *s)
{
    struct quire_error err = {0};
    struct store_options options = support_store_options(NULL);
    if (!s->store)
        s->store = support_store_open(s->path, &options);
    if (store_checkpoint(s->store, &err) < 0)
        fail_msg("checkpoint: %s", err.message);
    close_store(s);
    return read_records(s->path);
}

static void fill_for_checkpoint(struct state *s)
{
    put_keys(s, 0, 40, 1);
    put_granted(s, "granted");
    seal(s);
    drop_tenant(s);
    put_keys(s, 40, 1100, 1);
    seal(s);
    put_keys(s, 10, 2, 2);   /* a list of two rows in the first segment, */
    remove_keys(s, 60, 100); /* a bitmap in the second */
    put_keys(s, 1150, 12, 3);
    assert_int_equal(support_set_attributes(s->c, &s->model, 1151, 9, NULL), 0);
}

static void damaged_records_of_a_checkpoint_are_refused(void **in)
{
    struct state *s = *in;
    struct store_options options = support_store_options(NULL);
    uint32_t seen = 0;
    fill_for_checkpoint(s);
    struct records records = checkpoint_records(s);
    s->store = support_store_open(s->path, &options);
    for (uint32_t i = 0; i < records.n; i++)
        if (records.items[i].kind == RECORD_STATE || records.items[i].kind == RECORD_ROWS) {
            damage(s->store, &records, i);
            seen++;
        }
    assert_int_equal(seen, 2);
    records_free(&records);
}

/* What was saved, restored and saved again is the same, byte for byte. */
static void saved_and_restored_it_is_the_same(void **in)
{
    struct state *s = *in;
    fill_for_checkpoint(s);
    struct records first = checkpoint_records(s), second = checkpoint_records(s);
    assert_int_equal(first.n, second.n);
    for (uint32_t i = 0; i < first.n; i++) {
        assert_true(first.items[i].restored && second.items[i].restored);
        assert_int_equal(first.items[i].kind, second.items[i].kind);
        assert_int_equal(first.items[i].lsn, second.items[i].lsn);
        assert_int_equal(first.items[i].n, second.items[i].n);
        assert_memory_equal(first.items[i].bytes, second.items[i].bytes, first.items[i].n);
    }
    struct store_options options = support_store_options(NULL);
    s->store = support_store_open(s->path, &options);
    s->c = store_find(s->store, 1);
    assert_non_null(s->c);
    assert_true(support_equal(&s->lane, s->c, &s->model));
    records_free(&first);
    records_free(&second);
}

/* ---- exports ----------------------------------------------------------------------------------------------------- */

struct export_walk {
    struct state *s;
    uint32_t n;
};

/* The first visit changes all that is still to come. */
static int on_exported(void *context, const struct exported_element *element)
{
    struct export_walk *walk = context;
    struct state *s = walk->s;
    for (uint32_t key = 0; walk->n == 0 && key < CHANGED_KEYS; key++)
        assert_int_equal(support_set_attributes(s->c, &s->model, key, 1000 + key % 2, NULL),
                         key < SEALED_KEYS ? QUIRE_ENOTFOUND : 0);
    if (element->attribute_bytes != 7 || memcmp(element->attributes, "{\"n\":7}", 7) != 0)
        fail_msg("element %u has %.*s", walk->n, (int)element->attribute_bytes, (const char *)element->attributes);
    walk->n++;
    return 0;
}

static void an_export_is_of_one_moment(void **in)
{
    struct state *s = *in;
    struct quire_error err = {0};
    struct export_walk walk = {.s = s};
    for (uint32_t key = 0; key < CHANGED_KEYS; key++) {
        assert_int_equal(support_put(&s->lane, s->c, &s->model, key, 1, 7, NULL), 0);
        if (key + 1 == SEALED_KEYS)
            seal(s);
    }
    assert_int_equal(collection_export_all(s->c, on_exported, &walk, &err), 0);
    assert_int_equal(walk.n, CHANGED_KEYS);
    assert_true(support_equal(&s->lane, s->c, &s->model));
    close_store(s);
    struct store_options options = support_store_options(NULL);
    s->store = support_store_open(s->path, &options);
    s->c = store_find(s->store, 1);
    assert_true(support_equal(&s->lane, s->c, &s->model));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(places_go_stale_with_segments),           TEST(conditions_of_puts),
        TEST(kept_attributes_are_of_the_row_replaced), TEST(a_filter_is_never_wrongly_negative),
        TEST(tombstones_before_and_after_opening),     TEST(keys_come_in_the_order_of_their_bytes),
        TEST(damaged_records_of_the_log_are_refused),  TEST(damaged_records_of_a_checkpoint_are_refused),
        TEST(saved_and_restored_it_is_the_same),       TEST(an_export_is_of_one_moment),
    };
    int failed = cmocka_run_group_tests_name("collections", tests, NULL, NULL);
    support_kind = QUIRE_INDEX_SPANN;
    return failed + cmocka_run_group_tests_name("collections of inverted lists", tests, NULL, NULL);
}
