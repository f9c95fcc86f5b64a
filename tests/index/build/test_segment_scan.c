/*
 * test_segment_scan.c - a scan gives every living row once, in order, as it was built; damage costs what it hit.
 */
#include "index/segment/segment_view.h"
#include "tests/index/support_parts.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SENTENCES_MAX 8u
#define STOPPED       (-12345)

struct watch {
    const struct support_part *part;
    struct segment *segment;
    const uint8_t *dead;
    bool with_keys;
    double error_max;
    uint8_t *seen; /* by id */
    uint32_t n, last, stop_at, without_attributes;
    char sentences[SENTENCES_MAX][400];
    uint32_t n_sentences;
};

static void check_texts(const struct watch *w, const struct scanned_row *row)
{
    const struct support_part *part = w->part;
    uint32_t id = (uint32_t)row->id;
    char number[16];
    const char *key = w->with_keys ? part->keys[id] : number;
    snprintf(number, sizeof number, "%u", id);
    assert_int_equal(row->key_bytes, strlen(key));
    assert_memory_equal(row->key, key, row->key_bytes);
    if (!row->attributes)
        return;
    assert_true(w->with_keys && part->attributes[id]);
    assert_int_equal(row->attribute_bytes, part->attribute_bytes[id]);
    assert_memory_equal(row->attributes, part->attributes[id], row->attribute_bytes);
}

static int on_row(void *context, const struct scanned_row *row)
{
    struct watch *w = context;
    const struct support_data *data = &w->part->data;
    const struct segment_params *p = &w->segment->params;
    if (w->n == w->stop_at)
        return STOPPED;
    assert_true(row->row < data->rows && row->id < data->rows);
    assert_true(w->n == 0 || row->row > w->last);
    assert_false(w->dead && bitmap_has(w->dead, row->row));
    assert_false(bitmap_has(w->seen, (uint32_t)row->id));
    bitmap_add(w->seen, (uint32_t)row->id);
    check_texts(w, row);
    bool expected = w->with_keys && w->part->attributes && w->part->attributes[row->id];
    w->without_attributes += expected && !row->attributes;
    size_t row_bytes = data->dim * quire_type_bytes(data->type);
    if (p->slot != QUIRE_SLOT_Q8 && format_slot_type(p->slot) == data->type)
        assert_memory_equal(row->slot, data->vectors + row->id * row_bytes, row_bytes);
    double error = support_stored_error(row->vector, data->floats + row->id * data->dim, data->dim,
                                        p->metric == QUIRE_METRIC_COSINE);
    w->error_max = fmax(w->error_max, error);
    w->last = row->row;
    w->n++;
    return 0;
}

static void on_damage(void *context, const char *sentence)
{
    struct watch *w = context;
    assert_true(w->n_sentences < SENTENCES_MAX);
    snprintf(w->sentences[w->n_sentences++], sizeof w->sentences[0], "%s", sentence);
}

static struct watch watch_of(const struct support_part *part, struct segment *segment, bool with_keys)
{
    struct watch w = {.part = part, .segment = segment, .with_keys = with_keys, .stop_at = UINT32_MAX};
    w.seen = calloc(part->data.rows / 8 + 1, 1);
    assert_non_null(w.seen);
    return w;
}

/* ---- all kinds --------------------------------------------------------------------------------------------------- */

static void scan_kind(const char *folder, enum quire_type type, enum quire_metric metric, enum quire_slot slot,
                      double error)
{
    struct support_part part;
    struct quire_build_options options = support_options(metric, slot);
    struct quire_error err;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%d-%d-%d", folder, (int)type, (int)metric, (int)slot) > 0);
    support_part_make(&part, "p", 700, 24, type, 3, false, false);
    struct segment *segment = support_part_segment(&part, path, &options, false);
    struct watch w = watch_of(&part, segment, false);
    assert_int_equal(segment_scan(segment, NULL, on_row, NULL, &w, &err), 0);
    assert_int_equal(w.n, 700);
    assert_true(w.error_max <= error);
    free(w.seen);
    segment_unref(segment);
    support_part_free(&part);
    free(path);
}

static void scans_every_type_metric_and_slot(void **state)
{
    (void)state;
    char *folder = support_folder_make();
    for (int metric = QUIRE_METRIC_L2; metric <= QUIRE_METRIC_IP; metric++) {
        for (int type = QUIRE_TYPE_F32; type <= QUIRE_TYPE_BF16; type++)
            scan_kind(folder, (enum quire_type)type, (enum quire_metric)metric, QUIRE_SLOT_AUTO, 0.02);
        scan_kind(folder, QUIRE_TYPE_F32, (enum quire_metric)metric, QUIRE_SLOT_F32, 1e-6);
        scan_kind(folder, QUIRE_TYPE_F32, (enum quire_metric)metric, QUIRE_SLOT_F16, 1e-3);
        scan_kind(folder, QUIRE_TYPE_F32, (enum quire_metric)metric, QUIRE_SLOT_BF16, 1e-2);
        scan_kind(folder, QUIRE_TYPE_U8, (enum quire_metric)metric, QUIRE_SLOT_Q8, 0.02);
    }
    support_folder_remove(folder);
}

static void gives_keys_and_attributes_of_living_rows(void **state)
{
    (void)state;
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct support_part part;
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct quire_error err;
    support_part_make(&part, "key", 3000, 32, QUIRE_TYPE_F32, 5, true, true);
    struct segment *segment = support_part_segment(&part, path, &options, true);
    struct watch w = watch_of(&part, segment, true);
    assert_int_equal(segment_scan(segment, NULL, on_row, NULL, &w, &err), 0);
    assert_int_equal(w.n, 3000);
    assert_int_equal(w.without_attributes, 0);
    free(w.seen);

    uint8_t *dead = support_dead(3000, 3, 9);
    uint32_t n_dead = 0;
    for (uint32_t i = 0; i < 3000; i++)
        n_dead += bitmap_has(dead, i);
    w = watch_of(&part, segment, true);
    w.dead = dead;
    assert_int_equal(segment_scan(segment, dead, on_row, NULL, &w, &err), 0);
    assert_true(n_dead > 0);
    assert_int_equal(w.n, 3000 - n_dead);
    free(w.seen);
    free(dead);

    w = watch_of(&part, segment, true);
    w.stop_at = 1234;
    assert_int_equal(segment_scan(segment, NULL, on_row, NULL, &w, &err), STOPPED);
    assert_int_equal(w.n, 1234);
    free(w.seen);
    segment_unref(segment);
    support_part_free(&part);
    free(path);
    support_folder_remove(folder);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void flip(const char *folder, const char *name, uint64_t at)
{
    char *path = support_path(folder, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x40, file), byte ^ 0x40);
    assert_int_equal(fclose(file), 0);
    free(path);
}

struct damage {
    const char *file;
    uint64_t at;
    uint32_t rows_lost, attributes_lost;
    const char *words;
};

static void check_damage(const char *folder, const char *whole, const struct support_part *part,
                         const struct damage *damage, int number)
{
    char *path = NULL;
    struct quire_error err;
    assert_true(asprintf(&path, "%s/damaged-%d", folder, number) > 0);
    support_copy_folder(whole, path);
    flip(path, damage->file, damage->at);
    struct segment *segment = support_segment(path);
    struct watch w = watch_of(part, segment, true);
    assert_int_equal(segment_scan(segment, NULL, on_row, on_damage, &w, &err), 0);
    assert_int_equal(w.n, part->data.rows - damage->rows_lost);
    assert_int_equal(w.without_attributes, damage->attributes_lost);
    assert_int_equal(w.n_sentences, 1);
    assert_non_null(strstr(w.sentences[0], damage->words));
    assert_non_null(strstr(w.sentences[0], path));
    free(w.seen);
    w = watch_of(part, segment, true);
    assert_int_equal(segment_scan(segment, NULL, on_row, NULL, &w, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, damage->words));
    free(w.seen);
    segment_unref(segment);
    free(path);
}

struct page_count {
    uint64_t page;
    uint32_t n;
};

static int count_attributes(void *context, const struct scanned_row *row)
{
    struct page_count *count = context;
    count->n += row->row / ATTRIBUTES_PER_PAGE == count->page && row->attributes;
    return 0;
}

static uint32_t attributes_of_page(struct segment *segment, uint64_t page)
{
    struct page_count count = {.page = page};
    struct quire_error err;
    assert_int_equal(segment_scan(segment, NULL, count_attributes, NULL, &count, &err), 0);
    assert_true(count.n > 0);
    return count.n;
}

static void damage_costs_what_it_hit(void **state)
{
    (void)state;
    char *folder = support_folder_make(), *path = support_path(folder, "whole");
    struct support_part part;
    struct quire_build_options options = support_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO);
    support_part_make(&part, "key", 2000, 32, QUIRE_TYPE_F32, 5, true, true);
    struct segment *s = support_part_segment(&part, path, &options, true);
    uint64_t heap_at = s->heap_at;
    for (uint32_t i = 0; i < 10; i++) /* the tenth key is a long one */
        heap_at += RECORD_HEADER_BYTES + part.key_bytes[i];
    const struct damage damages[] = {
        {BLOCKS_NAME, segment_block_offset(s, 2) + 1000, s->params.slots_per_block, 0, "block 2 of"},
        {KEYS_NAME, heap_at + RECORD_HEADER_BYTES + 3, 1, 0, "the key of row"},
        {ATTRIBUTES_NAME, s->attribute_heap_at + RECORD_HEADER_BYTES + 2, 0, 1, "the attributes of row"},
        {ATTRIBUTES_NAME, s->attribute_index_at + PAGE_BYTES + 8, 0, attributes_of_page(s, 1), "page of"},
    };
    segment_unref(s);
    for (size_t i = 0; i < SUPPORT_COUNT(damages); i++)
        check_damage(folder, path, &part, &damages[i], (int)i);
    support_part_free(&part);
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_every_type_metric_and_slot),
        cmocka_unit_test(gives_keys_and_attributes_of_living_rows),
        cmocka_unit_test(damage_costs_what_it_hit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
