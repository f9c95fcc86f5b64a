/*
 * test_segment_damage.c - damaged indexes: refused or reported, by name and place, and never a wrong answer.
 *
 * One small index with everything in it (long keys, attributes, several blocks) is built once; each test damages a copy
 * and asks it everything it asked the sound one: opening, exact search, keys, attributes, vectors, verify. Allowed are
 * the sound answer and an error that names the damaged file. Flipped bits are drawn from a fixed seed. All of it is
 * done for a page graph and again for inverted lists.
 */
#include "index/column/columns.h"
#include "index/format/format.h"
#include "io/bytes.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define ROWS      400u
#define DIM       24u
#define K         20u
#define LONG_KEY  300u
#define LIST_ROWS 24u

/* Superblock, as docs/format.md has it. */
#define VERSION_AT        8u
#define TABLE_AT          72u
#define TABLE_ENTRY_BYTES 40u
#define CHECKSUM_AT       4088u

static const char *const names[] = {META_NAME,       BLOCKS_NAME,  CODES_NAME,   KEYS_NAME,
                                    ATTRIBUTES_NAME, COLUMNS_NAME, POSTINGS_NAME};
#define NAMES (shared.kind == QUIRE_INDEX_SPANN ? SUPPORT_COUNT(names) : SUPPORT_COUNT(names) - 1)

static struct {
    enum quire_index_kind kind;
    char *folder, *sound, *copy;
    struct support_data data;
    char key[ROWS][LONG_KEY];
    uint32_t key_bytes[ROWS];
    char attribute[ROWS][40];
    uint32_t attribute_bytes[ROWS];
    struct quire_hit hits[K];
    uint32_t row_of[ROWS]; /* of each input row */
    float *vectors;        /* rows x DIM, by row */
} shared;

static void build_sound(const char *path)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    const void *keys[ROWS];
    const char *attributes[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        bool is_long = i % 7 == 3;
        shared.key_bytes[i] = (uint32_t)snprintf(shared.key[i], LONG_KEY, "key-%u", i);
        if (is_long) {
            memset(shared.key[i] + shared.key_bytes[i], 'x', LONG_KEY - shared.key_bytes[i]);
            shared.key_bytes[i] = LONG_KEY - i % 11;
        }
        shared.attribute_bytes[i] =
            (uint32_t)snprintf(shared.attribute[i], sizeof shared.attribute[i], "{\"n\":%u}", i);
        keys[i] = shared.key[i];
        attributes[i] = i % 5 ? shared.attribute[i] : NULL;
    }
    options.index = shared.kind;
    options.list_rows = shared.kind == QUIRE_INDEX_SPANN ? LIST_ROWS : 0;
    options.block_bytes = 4096;
    options.keys = keys;
    options.key_bytes = shared.key_bytes;
    options.attributes = attributes;
    options.attribute_bytes = shared.attribute_bytes;
    support_build(path, &shared.data, &options);
}

static int set_up(enum quire_index_kind kind)
{
    shared.kind = kind;
    shared.folder = support_folder_make();
    shared.sound = support_path(shared.folder, "sound");
    shared.copy = support_path(shared.folder, "copy");
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 12, &shared.data);
    shared.vectors = malloc(sizeof(float) * ROWS * DIM);
    assert_non_null(shared.vectors);
    build_sound(shared.sound);
    struct quire_index *index = support_open(shared.sound, NULL);
    struct quire_search_options options = support_search(K, 0, 0);
    uint32_t n_hits;
    options.exact = true;
    assert_int_equal(quire_search(index, shared.data.floats, &options, shared.hits, &n_hits, NULL, NULL), 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(quire_lookup(index, shared.key[i], shared.key_bytes[i], &shared.row_of[i], NULL), 0);
        assert_int_equal(quire_vector(index, i, shared.vectors + (size_t)i * DIM, NULL), 0);
    }
    quire_close(index);
    return 0;
}

static int set_up_graph(void **state)
{
    (void)state;
    return set_up(QUIRE_INDEX_PAGEGRAPH);
}

static int set_up_lists(void **state)
{
    (void)state;
    return set_up(QUIRE_INDEX_SPANN);
}

static int tear_down(void **state)
{
    (void)state;
    support_data_free(&shared.data);
    free(shared.vectors);
    free(shared.sound);
    free(shared.copy);
    support_folder_remove(shared.folder);
    return 0;
}

/* A fresh copy of the sound index, and the bytes of one of its files. */
static uint8_t *take_copy(const char *name, char **file, size_t *bytes)
{
    assert_int_equal(fs_remove_folder(fs_real(), shared.copy, NULL), 0);
    support_copy_folder(shared.sound, shared.copy);
    *file = support_path(shared.copy, name);
    return support_read_file(*file, bytes);
}

static void expect_open(int code, const char *name)
{
    struct quire_index *index = NULL;
    struct quire_error err;
    char file[32];
    int rc = quire_open(shared.copy, NULL, &index, &err);
    snprintf(file, sizeof file, "copy/%s", name);
    if (rc != code || err.code != code)
        fail_msg("%s: expected %s, found %s: %s", name, quire_error_name(code), quire_error_name(rc),
                 rc < 0 ? err.message : "");
    assert_null(index);
    if (!strstr(err.message, file))
        fail_msg("%s is not named in \"%s\"", file, err.message);
    int verify = quire_verify(shared.copy, NULL, NULL, NULL, NULL, &err);
    assert_true(verify < 0);
}

/* ---- whole files ------------------------------------------------------------------------------------------------- */

static void test_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        char *file;
        size_t bytes;
        free(take_copy(names[i], &file, &bytes));
        assert_int_equal(unlink(file), 0);
        expect_open(QUIRE_ENOFILE, names[i]);
        free(file);
    }
}

static void test_no_index_there(void **state)
{
    struct quire_index *index = NULL;
    struct quire_error err;
    char *nothing = support_path(shared.folder, "nothing"), *meta = support_path(shared.sound, META_NAME);
    (void)state;
    assert_int_equal(quire_open(nothing, NULL, &index, &err), QUIRE_ENOFILE);
    assert_non_null(strstr(err.message, nothing));
    assert_int_equal(quire_open(meta, NULL, &index, &err), QUIRE_ENOFILE);
    assert_true(quire_verify(nothing, NULL, NULL, NULL, NULL, &err) == QUIRE_ENOFILE);
    assert_null(index);
    free(nothing);
    free(meta);
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        char *file;
        size_t bytes;
        uint8_t *data = take_copy(names[i], &file, &bytes), *larger = calloc(1, bytes + 8192);
        assert_non_null(larger);
        memcpy(larger, data, bytes);
        support_write_file(file, data, 0);
        expect_open(QUIRE_EFORMAT, names[i]);
        const size_t shorter[] = {1, 100, 4095, 4096, bytes / 2, bytes - 4096, bytes - 1};
        for (size_t s = 0; s < SUPPORT_COUNT(shorter); s++) {
            support_write_file(file, data, shorter[s]);
            expect_open(QUIRE_ETRUNCATED, names[i]);
        }
        support_write_file(file, larger, bytes + 1);
        expect_open(QUIRE_EOVERSIZED, names[i]);
        support_write_file(file, larger, bytes + 4096);
        expect_open(QUIRE_EOVERSIZED, names[i]);
        free(larger);
        free(data);
        free(file);
    }
}

static void test_wrong_magic_or_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        char *file, *other = support_path(shared.sound, names[(i + 1) % NAMES]);
        size_t bytes, other_bytes;
        uint8_t *data = take_copy(names[i], &file, &bytes), *wrong = support_read_file(other, &other_bytes);
        data[0] ^= 1;
        support_write_file(file, data, bytes);
        expect_open(QUIRE_EFORMAT, names[i]);
        memset(data, 0, bytes);
        support_write_file(file, data, bytes);
        expect_open(QUIRE_EFORMAT, names[i]);
        support_write_file(file, wrong, other_bytes);
        expect_open(QUIRE_EFORMAT, names[i]);
        free(wrong);
        free(other);
        free(data);
        free(file);
    }
}

static void test_file_of_another_index(void **state)
{
    char *twin = support_path(shared.folder, "twin");
    (void)state;
    build_sound(twin);
    for (size_t i = 1; i < NAMES; i++) {
        char *file, *other = support_path(twin, names[i]);
        size_t bytes, other_bytes;
        free(take_copy(names[i], &file, &bytes));
        uint8_t *data = support_read_file(other, &other_bytes);
        assert_int_equal(bytes, other_bytes);
        support_write_file(file, data, bytes);
        expect_open(QUIRE_ECORRUPT, names[i]);
        free(data);
        free(other);
        free(file);
    }
    free(twin);
}

static void seal_superblock(uint8_t *data)
{
    bytes_store_u64(data + CHECKSUM_AT, XXH3_64bits(data, CHECKSUM_AT));
}

static void test_newer_container_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        char *file;
        size_t bytes;
        uint8_t *data = take_copy(names[i], &file, &bytes);
        bytes_store_u32(data + VERSION_AT, SECTION_FORMAT_VERSION + 1);
        seal_superblock(data);
        support_write_file(file, data, bytes);
        expect_open(QUIRE_EVERSION, names[i]);
        free(data);
        free(file);
    }
}

/* Changes bytes of the parameters and makes every checksum right again. */
static uint8_t *forge_params(uint32_t at, uint64_t value, size_t width, char **file, size_t *bytes)
{
    uint8_t *data = take_copy(META_NAME, file, bytes), *entry = data + TABLE_AT;
    assert_int_equal(bytes_load_u32(entry), META_PARAMS);
    uint64_t offset = bytes_load_u64(entry + 8);
    if (width == 8)
        bytes_store_u64(data + offset + at, value);
    else
        bytes_store_u32(data + offset + at, (uint32_t)value);
    bytes_store_u64(entry + 24, XXH3_64bits(data + offset, PARAMS_BYTES));
    seal_superblock(data);
    support_write_file(*file, data, *bytes);
    return data;
}

static void test_newer_segment_version(void **state)
{
    struct quire_index *index = NULL;
    struct quire_error err;
    char *file;
    size_t bytes;
    (void)state;
    free(forge_params(0, SEGMENT_FORMAT_VERSION + 1, 4, &file, &bytes));
    assert_int_equal(quire_open(shared.copy, NULL, &index, &err), QUIRE_EVERSION);
    char number[16];
    snprintf(number, sizeof number, "%u", SEGMENT_FORMAT_VERSION + 1);
    assert_non_null(strstr(err.message, number));
    if (!strstr(err.message, shared.copy))
        fail_msg("the index is not named in \"%s\"", err.message);
    free(file);
}

/* Parameters that a forger changed under right checksums: refused, or nothing worse than an error later. */
static void test_forged_parameters(void **state)
{
    static const uint32_t values[] = {0, 1, 8, 65536, 0xffffffff}; /* 8: a right size of edge codes */
    (void)state;
    for (uint32_t at = 4; at < 196; at += 4)
        for (size_t v = SANITIZED ? at / 4 % 2 : 0; v < SUPPORT_COUNT(values); v += SANITIZED_SIZE(1, 2)) {
            struct quire_index *index = NULL;
            struct quire_error err;
            char *file;
            size_t bytes;
            free(forge_params(at, values[v], 4, &file, &bytes));
            if (quire_open(shared.copy, NULL, &index, &err) == 0) {
                struct quire_search_options options = support_search(K, 0, 0);
                struct quire_hit hits[K];
                uint32_t n_hits, row;
                struct quire_info info;
                quire_get_info(index, &info);
                options.exact = true;
                /* a query has as many floats as the file says */
                float *query = calloc(info.dim, sizeof(float));
                assert_non_null(query);
                query[0] = 1;
                (void)quire_search(index, query, &options, hits, &n_hits, NULL, NULL);
                (void)quire_lookup(index, shared.key[3], shared.key_bytes[3], &row, NULL);
                free(query);
                quire_close(index);
            }
            (void)quire_verify(shared.copy, NULL, NULL, NULL, NULL, NULL);
            free(file);
        }
}

/* ---- flipped bits ------------------------------------------------------------------------------------------------ */

/* An error of a damaged index: of the right kind, with the file's name. */
static void check_error(int rc, const struct quire_error *err, const char *name, bool offset_too)
{
    char file[32];
    snprintf(file, sizeof file, "copy/%s", name);
    bool known = rc == QUIRE_ECORRUPT || rc == QUIRE_EFORMAT || rc == QUIRE_EVERSION || rc == QUIRE_ETRUNCATED ||
                 rc == QUIRE_EOVERSIZED;
    if (!known || err->code != rc)
        fail_msg("%s: %s: %s", name, quire_error_name(rc), err->message);
    if (!strstr(err->message, file) || (offset_too && !strstr(err->message, "offset")))
        fail_msg("%s or the offset is not named in \"%s\"", file, err->message);
}

static unsigned check_search(struct quire_index *index, const char *name)
{
    struct quire_search_options options = support_search(K, 0, 0);
    struct quire_error err;
    struct quire_hit hits[K];
    uint32_t n_hits;
    options.exact = true;
    int rc = quire_search(index, shared.data.floats, &options, hits, &n_hits, NULL, &err);
    if (rc < 0) {
        check_error(rc, &err, name, true);
        assert_int_equal(rc, QUIRE_ECORRUPT);
        return 1;
    }
    assert_int_equal(n_hits, K);
    for (uint32_t i = 0; i < K; i++)
        if (hits[i].id != shared.hits[i].id || memcmp(&hits[i].distance, &shared.hits[i].distance, sizeof(float)) != 0)
            fail_msg("%s: a wrong answer without an error", name);
    return 0;
}

/* Keys, attributes and vectors of every step-th row; returns how many failed. */
static unsigned check_fetches(struct quire_index *index, const char *name, uint32_t step)
{
    unsigned failed = 0;
    for (uint32_t i = 0; i < ROWS; i += step) {
        static char key[QUIRE_KEY_BYTES_MAX];
        struct quire_error err;
        uint32_t row = UINT32_MAX;
        float vector[DIM];
        char text[64];
        size_t bytes = 0, text_bytes = sizeof text;
        int rc = quire_lookup(index, shared.key[i], shared.key_bytes[i], &row, &err);
        if (rc < 0) {
            check_error(rc, &err, name, true);
            failed++;
        } else {
            assert_int_equal(row, shared.row_of[i]);
        }
        row = shared.row_of[i];
        if ((rc = quire_key(index, row, key, &bytes, &err)) < 0) {
            check_error(rc, &err, name, true);
            failed++;
        } else {
            assert_int_equal(bytes, shared.key_bytes[i]);
            assert_memory_equal(key, shared.key[i], bytes);
        }
        if ((rc = quire_vector(index, row, vector, &err)) < 0) {
            check_error(rc, &err, name, true);
            failed++;
        } else {
            assert_memory_equal(vector, shared.vectors + (size_t)row * DIM, sizeof vector);
        }
        rc = quire_attributes(index, row, text, &text_bytes, &err);
        if (rc < 0 && (i % 5 || rc != QUIRE_ENOTFOUND)) {
            check_error(rc, &err, name, true);
            failed++;
        } else if (rc == 0) {
            assert_true(i % 5 != 0);
            assert_int_equal(text_bytes, shared.attribute_bytes[i]);
            assert_memory_equal(text, shared.attribute[i], text_bytes);
        }
    }
    return failed;
}

/* True when a byte lies in the superblock or a section, not in the zeros between them. */
static bool byte_is_used(const uint8_t *data, size_t at)
{
    if (at < SECTION_ALIGN)
        return true;
    for (uint32_t i = 0; i < bytes_load_u32(data + 40); i++) {
        const uint8_t *entry = data + TABLE_AT + (size_t)i * TABLE_ENTRY_BYTES;
        if (at >= bytes_load_u64(entry + 8) && at - bytes_load_u64(entry + 8) < bytes_load_u64(entry + 16))
            return true;
    }
    return false;
}

/* Asks a copy with one damaged byte everything; what readers notice verify must notice as well. */
static void check_damaged(const char *name, const uint8_t *sound, size_t at, uint32_t step, unsigned *missed)
{
    struct quire_index *index = NULL;
    struct quire_verify_report report = {0};
    struct quire_error err;
    bool noticed = false;
    int rc = quire_open(shared.copy, NULL, &index, &err);
    if (rc < 0) {
        check_error(rc, &err, name, false);
        noticed = true;
    } else {
        noticed = check_search(index, name) > 0;
        noticed = check_fetches(index, name, step) > 0 || noticed;
        quire_close(index);
    }
    rc = quire_verify(shared.copy, NULL, NULL, NULL, &report, &err);
    if (rc == 0 && noticed)
        fail_msg("%s: byte %zu is damaged, a reader noticed and verify did not", name, at);
    if (rc == 0 && byte_is_used(sound, at)) {
        if (++*missed <= 5)
            print_error("%s: byte %zu is damaged and verify did not notice\n", name, at);
    }
    if (rc < 0)
        assert_true(report.findings > 0 || rc == QUIRE_EVERSION);
}

static void flip_bits(const char *name, unsigned rounds, uint32_t step)
{
    char *file;
    size_t bytes;
    unsigned missed = 0;
    struct random random;
    uint8_t *data = take_copy(name, &file, &bytes), *sound = support_read_file(file, &bytes);
    random_init(&random, bytes);
    rounds /= SANITIZED_SIZE(1, 3);
    for (unsigned round = 0; round < rounds; round++) {
        /* every fourth in the superblock's fields, which are few next to the rest */
        size_t at = (size_t)random_below(&random, round % 4 ? bytes : 200);
        data[at] ^= (uint8_t)(1u << random_below(&random, 8));
        support_write_file(file, data, bytes);
        check_damaged(name, sound, at, step, &missed);
        data[at] = sound[at];
    }
    support_write_file(file, sound, bytes);
    struct quire_index *index = support_open(shared.copy, NULL);
    assert_int_equal(check_search(index, name) + check_fetches(index, name, 1), 0);
    quire_close(index);
    free(data);
    free(sound);
    free(file);
    if (missed)
        fail_msg("%s: verify missed %u of %u flipped bits", name, missed, rounds);
}

static void test_flips_in_meta(void **state)
{
    (void)state;
    flip_bits(META_NAME, 200, 97);
}

static void test_flips_in_blocks(void **state)
{
    (void)state;
    flip_bits(BLOCKS_NAME, 150, 23);
}

static void test_flips_in_codes(void **state)
{
    (void)state;
    flip_bits(CODES_NAME, 150, 97);
}

static void test_flips_in_keys(void **state)
{
    (void)state;
    flip_bits(KEYS_NAME, 80, 3);
}

static void test_flips_in_attributes(void **state)
{
    (void)state;
    flip_bits(ATTRIBUTES_NAME, 80, 3);
}

static void test_flips_in_columns(void **state)
{
    (void)state;
    flip_bits(COLUMNS_NAME, 150, 97);
}

static void test_flips_in_postings(void **state)
{
    (void)state;
    flip_bits(POSTINGS_NAME, 150, 97);
}

/* A search that reads the lists itself fails at the one that is damaged and names it; the others go on. */
static void test_search_over_damaged_list(void **state)
{
    char *file;
    size_t bytes;
    struct quire_open_options narrow;
    struct quire_search_options options = support_search(3, 0, 2);
    unsigned failed = 0, answered = 0;
    (void)state;
    uint8_t *data = take_copy(POSTINGS_NAME, &file, &bytes);
    quire_open_options_init(&narrow);
    struct quire_info info;
    struct quire_index *sound = support_open(shared.copy, NULL);
    quire_get_info(sound, &info);
    quire_close(sound);
    narrow.memory_bytes = info.resident_bytes - 1; /* no room for the codes of the rows */
    data[SECTION_ALIGN + 200] ^= 1;                /* of the first list */
    support_write_file(file, data, bytes);
    struct quire_index *index = support_open(shared.copy, &narrow);
    for (uint32_t i = 0; i < ROWS; i++) {
        struct quire_hit hits[3];
        struct quire_error err;
        uint32_t n_hits;
        int rc = quire_search(index, shared.data.floats + (size_t)i * DIM, &options, hits, &n_hits, NULL, &err);
        if (rc < 0) {
            check_error(rc, &err, POSTINGS_NAME, true);
            assert_non_null(strstr(err.message, "list 0 "));
            failed++;
        } else {
            assert_int_equal(n_hits, 3);
            answered++;
        }
    }
    assert_true(failed > 0 && answered > ROWS / 2);
    quire_close(index);
    free(data);
    free(file);
}

/* One damaged block: searches that read it fail, the others answer as before, on the same handle. */
static void test_other_queries_go_on(void **state)
{
    char *file;
    size_t bytes;
    unsigned failed = 0, answered = 0;
    struct quire_hit expected[K], hits[K];
    uint32_t n_expected, n_hits;
    struct quire_error err;
    struct quire_search_options options = support_search(3, 0, 1);
    (void)state;
    uint8_t *data = take_copy(BLOCKS_NAME, &file, &bytes);
    struct quire_index *sound = support_open(shared.sound, NULL), *index = support_open(shared.copy, NULL);
    for (int damaged = 1; damaged >= 0; damaged--) {
        FILE *stream = fopen(file, "r+b"); /* in place: the handle has the file open */
        assert_non_null(stream);
        data[4096 + 2 * 4096 + 777] ^= 8;
        assert_int_equal(fwrite(data, 1, bytes, stream), bytes);
        assert_int_equal(fclose(stream), 0);
        for (uint32_t i = 0; i < ROWS; i++) {
            const float *query = shared.data.floats + (size_t)i * DIM;
            assert_int_equal(quire_search(sound, query, &options, expected, &n_expected, NULL, NULL), 0);
            int rc = quire_search(index, query, &options, hits, &n_hits, NULL, &err);
            if (rc < 0) {
                assert_true(damaged);
                check_error(rc, &err, BLOCKS_NAME, true);
                failed++;
                continue;
            }
            answered++;
            assert_int_equal(n_hits, n_expected);
            for (uint32_t h = 0; h < n_hits; h++)
                assert_int_equal(hits[h].id, expected[h].id);
        }
        assert_true(failed > 0 && answered > ROWS / 4);
    }
    assert_true(answered >= ROWS);
    quire_close(sound);
    quire_close(index);
    free(data);
    free(file);
}

/* A batch ends with the damage's own error, not with a crash or a half-filled answer that looks whole. */
static void test_batch_over_damage(void **state)
{
    char *file;
    size_t bytes;
    struct quire_error err;
    struct quire_search_options options = support_search(5, 0.9f, 0);
    struct quire_hit *hits = malloc(sizeof *hits * ROWS * 5);
    uint32_t *n_hits = malloc(sizeof *n_hits * ROWS);
    (void)state;
    assert_true(hits && n_hits);
    uint8_t *data = take_copy(BLOCKS_NAME, &file, &bytes);
    for (size_t at = 4096 + 99; at < bytes; at += 4096)
        data[at] ^= 1;
    support_write_file(file, data, bytes);
    struct quire_index *index = support_open(shared.copy, NULL);
    int rc = quire_search_batch(index, shared.data.floats, ROWS, &options, 3, 8, hits, n_hits, NULL, &err);
    check_error(rc, &err, BLOCKS_NAME, true);
    assert_true(check_search(index, BLOCKS_NAME) == 1);
    quire_close(index);
    free(hits);
    free(n_hits);
    free(data);
    free(file);
}

/* The file shrinks under an open handle. */
static void test_truncated_while_open(void **state)
{
    char *file;
    size_t bytes;
    struct quire_error err;
    struct quire_search_options options = support_search(5, 0, 0);
    struct quire_hit hits[5];
    uint32_t n_hits;
    (void)state;
    free(take_copy(BLOCKS_NAME, &file, &bytes));
    struct quire_index *index = support_open(shared.copy, NULL);
    assert_int_equal(truncate(file, (off_t)bytes - 2048), 0);
    options.exact = true;
    int rc = quire_search(index, shared.data.floats, &options, hits, &n_hits, NULL, &err);
    assert_true(rc == QUIRE_ESHORTREAD || rc == QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "copy/" BLOCKS_NAME));
    quire_close(index);
    free(file);
}

/* Of each kind of index the same. */
#define TESTS_OF_BOTH                                                                                                  \
    cmocka_unit_test(test_missing), cmocka_unit_test(test_no_index_there), cmocka_unit_test(test_wrong_sizes),         \
        cmocka_unit_test(test_wrong_magic_or_kind), cmocka_unit_test(test_file_of_another_index),                      \
        cmocka_unit_test(test_newer_container_version), cmocka_unit_test(test_newer_segment_version),                  \
        cmocka_unit_test(test_forged_parameters), cmocka_unit_test(test_flips_in_meta),                                \
        cmocka_unit_test(test_flips_in_blocks), cmocka_unit_test(test_flips_in_codes),                                 \
        cmocka_unit_test(test_flips_in_keys), cmocka_unit_test(test_flips_in_attributes),                              \
        cmocka_unit_test(test_flips_in_columns), cmocka_unit_test(test_other_queries_go_on),                           \
        cmocka_unit_test(test_batch_over_damage), cmocka_unit_test(test_truncated_while_open)

int main(void)
{
    const struct CMUnitTest graph[] = {TESTS_OF_BOTH};
    const struct CMUnitTest lists[] = {TESTS_OF_BOTH, cmocka_unit_test(test_flips_in_postings),
                                       cmocka_unit_test(test_search_over_damaged_list)};
    support_folder_in_memory();
    int failed = cmocka_run_group_tests(graph, set_up_graph, tear_down);
    return failed + cmocka_run_group_tests(lists, set_up_lists, tear_down);
}
