/*
 * test_lists_verify.c - what quire_verify checks of inverted lists: a sound index has no finding, and each lie that a
 * forger can tell under right checksums is one.
 *
 * Sound ones are built of every kind of slot, metric and width, because the error that a slot leaves open is another in
 * each; one has vectors so large that its blocks take several windows. A lie is told about one entry of one list.
 */
#include "index/segment/segment_view.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 700u
#define DIM  48u

static struct {
    char *folder, *path;
} shared;

struct findings {
    unsigned n;
    char first[512];
};

static void on_finding(void *context, const char *sentence)
{
    struct findings *f = context;
    if (f->n++ == 0)
        snprintf(f->first, sizeof f->first, "%s", sentence);
}

static struct quire_build_options lists_options(enum quire_metric metric, enum quire_slot slot, unsigned bits)
{
    struct quire_build_options options = support_options(metric, slot);
    options.index = QUIRE_INDEX_SPANN;
    options.list_rows = 30;
    options.code_bits = bits;
    return options;
}

static void build(const struct support_data *data, const struct quire_build_options *options)
{
    assert_int_equal(fs_remove_folder(fs_real(), shared.path, NULL), 0);
    support_build(shared.path, data, options);
}

static struct findings verify(struct quire_verify_report *report)
{
    struct findings f = {0};
    struct quire_error err = {0};
    int rc = quire_verify(shared.path, on_finding, NULL, &f, report, &err);
    assert_int_equal(rc, f.n ? QUIRE_ECORRUPT : 0);
    assert_int_equal(report->findings, f.n);
    return f;
}

static void expect_sound(const struct support_data *data, const struct quire_build_options *options)
{
    struct quire_verify_report report = {0};
    build(data, options);
    struct findings f = verify(&report);
    if (f.n)
        fail_msg("%s, slot %s, %u bits: %s", quire_metric_name(options->metric), quire_slot_name(options->slot),
                 options->code_bits, f.first);
    assert_int_equal(report.rows, data->rows);
    assert_int_equal(report.rows_reachable, data->rows);
    assert_int_equal(report.files, 5);
    assert_true(report.lists > 1 && report.list_entries >= data->rows && report.edges == 0);
    assert_true(report.code_error > 0 && report.code_error <= report.code_error_max);
}

/* ---- sound indexes ----------------------------------------------------------------------------------------------- */

static void test_slots(void **state)
{
    static const enum quire_slot slots[] = {QUIRE_SLOT_F32, QUIRE_SLOT_F16, QUIRE_SLOT_BF16, QUIRE_SLOT_Q8};
    static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};
    struct support_data data;
    (void)state;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 3, &data);
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++)
        for (size_t s = 0; s < SUPPORT_COUNT(slots); s++) {
            struct quire_build_options options = lists_options(metrics[m], slots[s], 4);
            expect_sound(&data, &options);
        }
    support_data_free(&data);
}

static void test_types_and_widths(void **state)
{
    static const enum quire_type types[] = {QUIRE_TYPE_U8, QUIRE_TYPE_I8, QUIRE_TYPE_F16, QUIRE_TYPE_BF16};
    (void)state;
    for (size_t t = 0; t < SUPPORT_COUNT(types); t++)
        for (unsigned bits = 1; bits <= 4; bits *= 2) {
            struct support_data data;
            struct quire_build_options options = lists_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, bits);
            support_clusters(ROWS, DIM, types[t], 4, &data);
            expect_sound(&data, &options);
            support_data_free(&data);
        }
}

/* Rows all alike, of zeros, far from the origin, and one that is far out. */
static void test_strange_rows(void **state)
{
    struct support_data data;
    struct quire_build_options options = lists_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, 4);
    (void)state;
    support_data_alloc(ROWS, DIM, QUIRE_TYPE_F32, &data);
    float *rows = (float *)(void *)data.vectors;
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t d = 0; d < DIM; d++)
            rows[(size_t)i * DIM + d] = i < 200 ? 0 : i < 400 ? 5.0f : 1e4f + (float)((i * 131 + d * 17) % 97) * 0.01f;
    rows[(size_t)(ROWS - 1) * DIM] = 1e8f;
    expect_sound(&data, &options);
    support_data_free(&data);
}

/* Blocks of more than one window, so that lists are read again for rows of other windows. */
static void test_windows(void **state)
{
    struct support_data data;
    struct quire_build_options options = lists_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32, 1);
    (void)state;
    support_clusters(3000, 2048, QUIRE_TYPE_F32, 5, &data);
    options.list_rows = 100;
    expect_sound(&data, &options);
    struct quire_index *index = support_open(shared.path, NULL);
    struct quire_info info;
    quire_get_info(index, &info);
    assert_true((uint64_t)info.blocks * info.block_bytes > 20u << 20);
    quire_close(index);
    support_data_free(&data);
}

static int stop(void *context, const char *phase, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    return strcmp(phase, context) == 0;
}

static void test_cancel(void **state)
{
    struct support_data data;
    struct quire_error err;
    struct quire_build_options options = lists_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, 4);
    (void)state;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 3, &data);
    build(&data, &options);
    assert_int_equal(quire_verify(shared.path, NULL, stop, "check lists", NULL, &err), QUIRE_ECANCELLED);
    support_data_free(&data);
}

/* ---- lies -------------------------------------------------------------------------------------------------------- */

/* One list of the index, open to be changed. */
struct forgery {
    struct segment *segment;
    struct list_entry entry;
    struct posting_block_shape shape;
    uint32_t list;
    char *file;
    uint8_t *bytes, *posting;
    size_t n;
};

/* A list with a replica and at least three rows of its own, and room behind its last entry. */
static uint32_t pick_list(const struct segment *s)
{
    for (uint32_t i = 0; i < s->lists->n; i++) {
        const struct list_entry *e = &s->lists->entries[i];
        if (e->own >= 3 && e->entries > e->own && e->entries % CODE_GROUP)
            return i;
    }
    fail_msg("no list has replicas");
    return 0;
}

static void forge_begin(struct forgery *f)
{
    const struct segment_options options = {.memory_bytes = UINT64_MAX, .read_lists = true};
    assert_int_equal(segment_open(shared.path, &options, &f->segment, NULL), 0);
    const struct segment_params *p = &f->segment->params;
    f->list = pick_list(f->segment);
    f->entry = f->segment->lists->entries[f->list];
    assert_true(posting_block_shape(f->entry.entries, f->entry.own, p->code_dim, p->list_bits, &f->shape));
    f->file = support_path(shared.path, POSTINGS_NAME);
    f->bytes = support_read_file(f->file, &f->n);
    f->posting = f->bytes + f->segment->postings_at + (size_t)f->entry.page * SECTION_ALIGN;
}

/* Writes it under a right checksum; what verify then finds first. */
static struct findings forge_end(struct forgery *f)
{
    struct quire_verify_report report = {0};
    const struct segment *s = f->segment;
    posting_block_seal(f->posting, f->list, &f->entry, s->params.list_bits, &f->shape, s->segment_id);
    support_write_file(f->file, f->bytes, f->n);
    segment_unref(f->segment);
    struct findings found = verify(&report);
    free(f->file);
    free(f->bytes);
    return found;
}

static void expect_lie(struct forgery *f, const char *sentence)
{
    char list[32];
    snprintf(list, sizeof list, "list %u", f->list);
    struct findings found = forge_end(f);
    if (found.n == 0)
        fail_msg("\"%s\" was not found", sentence);
    if (!strstr(found.first, sentence) || !strstr(found.first, list))
        fail_msg("\"%s\" or \"%s\" is not in \"%s\"", sentence, list, found.first);
}

/* An entry's code with one level turned to the other end. */
static void lie_code(struct forgery *f, uint32_t i)
{
    const struct segment_params *p = &f->segment->params;
    uint8_t code[1024], *group = f->posting + f->shape.groups + (size_t)(i / CODE_GROUP) * f->shape.group_bytes;
    code_group_get(group, i % CODE_GROUP, p->code_dim, p->list_bits, code);
    for (uint32_t at = 0; at < p->code_dim; at += 8 / p->list_bits)
        code[at * p->list_bits / 8] ^= (uint8_t)(1u << (p->list_bits - 1)); /* the highest bit: the sign */
    uint8_t *copy = calloc(1, f->shape.group_bytes), other[1024];
    assert_non_null(copy);
    for (uint32_t k = 0; k < CODE_GROUP; k++) {
        code_group_get(group, k, p->code_dim, p->list_bits, other);
        code_group_put(copy, k, k == i % CODE_GROUP ? code : other, p->code_dim, p->list_bits);
    }
    memcpy(group, copy, f->shape.group_bytes);
    free(copy);
}

static void lie_factor(struct forgery *f, uint32_t i, uint32_t which, uint16_t by)
{
    uint8_t *half = f->posting + f->shape.factors + 4 * (size_t)i + 2 * (size_t)which;
    bytes_store_u16(half, (uint16_t)(bytes_load_u16(half) + by));
}

static void tell_lies(enum quire_type type, enum quire_slot slot, unsigned bits, uint16_t by)
{
    struct support_data data;
    struct quire_build_options options = lists_options(QUIRE_METRIC_L2, slot, bits);
    struct forgery f;
    support_clusters(ROWS, DIM, type, 6, &data);
    build(&data, &options);
    char *kept = support_path(shared.folder, "kept");
    support_copy_folder(shared.path, kept);
    for (int lie = 0; lie < 6; lie++) {
        assert_int_equal(fs_remove_folder(fs_real(), shared.path, NULL), 0);
        support_copy_folder(kept, shared.path);
        forge_begin(&f);
        uint32_t i = lie % 2 ? f.entry.own : 1; /* a replica, or a row of its own */
        if (lie < 2)
            lie_code(&f, i);
        else
            lie_factor(&f, i, lie < 4, lie < 4 ? by : (uint16_t)(16 * by)); /* A is a difference: less precise */
        expect_lie(&f, lie < 2 ? "code is not one of row" : "factors are not those of row");
    }
    assert_int_equal(fs_remove_folder(fs_real(), kept, NULL), 0);
    free(kept);
    support_data_free(&data);
}

static void test_lies_about_codes(void **state)
{
    (void)state;
    tell_lies(QUIRE_TYPE_U8, QUIRE_SLOT_AUTO, 4, 3); /* units in the last place of a half float */
    tell_lies(QUIRE_TYPE_F32, QUIRE_SLOT_F32, 4, 3);
    tell_lies(QUIRE_TYPE_F32, QUIRE_SLOT_F32, 2, 3);
    tell_lies(QUIRE_TYPE_F32, QUIRE_SLOT_F16, 4, 64); /* an eighth at most; the slot knows the row to 1 % */
    tell_lies(QUIRE_TYPE_F32, QUIRE_SLOT_Q8, 4, 512); /* by a half: blocks are wider than lists */
    tell_lies(QUIRE_TYPE_F32, QUIRE_SLOT_Q8, 1, 512);
}

static void with_forgery(void (*lie)(struct forgery *), const char *sentence)
{
    struct support_data data;
    struct quire_build_options options = lists_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, 4);
    struct forgery f;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 6, &data);
    build(&data, &options);
    forge_begin(&f);
    lie(&f);
    expect_lie(&f, sentence);
    support_data_free(&data);
}

static void lie_tail(struct forgery *f)
{
    f->posting[f->shape.bytes - 1] = 1;
}
static void lie_spare_factor(struct forgery *f)
{
    bytes_store_u32(f->posting + f->shape.factors + 4 * f->entry.entries, 1);
}
static void lie_spare_code(struct forgery *f)
{
    uint32_t last = f->entry.entries % CODE_GROUP;
    uint8_t code[1024] = {1};
    code_group_put(f->posting + f->shape.groups + (size_t)(f->shape.n_groups - 1) * f->shape.group_bytes, last, code,
                   f->segment->params.code_dim, f->segment->params.list_bits);
}
static void lie_replica(struct forgery *f)
{
    bytes_store_u32(f->posting + f->shape.ids, f->entry.first);
}
static void lie_whole(struct forgery *f)
{
    f->entry.own--; /* the header, which posting_block_seal writes from it, and not the directory */
}

static void test_lies_about_lists(void **state)
{
    (void)state;
    with_forgery(lie_tail, "not zero");
    with_forgery(lie_spare_factor, "not zero");
    with_forgery(lie_spare_code, "not zero");
    with_forgery(lie_replica, "is damaged: replica 0");
    with_forgery(lie_whole, "is damaged: it says");
}

/* A row of another place in the list's stead: whatever the codes, they are not those of that row. */
static void lie_other_row(struct forgery *f)
{
    uint32_t row = bytes_load_u32(f->posting + f->shape.ids);
    do
        row = row + 1 == f->entry.first ? f->entry.first + f->entry.own : row + 1;
    while (f->entry.entries - f->entry.own > 1 && row == bytes_load_u32(f->posting + f->shape.ids + 4));
    bytes_store_u32(f->posting + f->shape.ids, row);
}

static void test_lie_about_a_row(void **state)
{
    (void)state;
    with_forgery(lie_other_row, "of row");
}

/* Damage of some lists is told of each, and costs no other. */
static void test_damaged_lists(void **state)
{
    struct support_data data;
    struct quire_build_options options = lists_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, 4);
    struct quire_verify_report report = {0};
    struct segment *segment = NULL;
    size_t bytes;
    uint32_t own = 0;
    (void)state;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 6, &data);
    build(&data, &options);
    assert_int_equal(segment_open(shared.path, NULL, &segment, NULL), 0);
    char *file = support_path(shared.path, POSTINGS_NAME);
    uint8_t *postings = support_read_file(file, &bytes);
    for (uint32_t i = 1; i < 6; i += 2) {
        postings[segment->postings_at + (size_t)segment->lists->entries[i].page * SECTION_ALIGN + 100] ^= 4;
        own += segment->lists->entries[i].own;
    }
    segment_unref(segment);
    support_write_file(file, postings, bytes);
    struct findings f = verify(&report);
    assert_int_equal(f.n, 3);
    assert_non_null(strstr(f.first, "list 1 of "));
    assert_non_null(strstr(f.first, "offset"));
    assert_int_equal(report.rows_reachable, ROWS - own);
    free(postings);
    free(file);
    support_data_free(&data);
}

static int set_up(void **state)
{
    (void)state;
    shared.folder = support_folder_make();
    shared.path = support_path(shared.folder, "index");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(shared.path);
    support_folder_remove(shared.folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_types_and_widths),
        cmocka_unit_test(test_strange_rows),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_lies_about_codes),
        cmocka_unit_test(test_lies_about_lists),
        cmocka_unit_test(test_lie_about_a_row),
        cmocka_unit_test(test_damaged_lists),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
