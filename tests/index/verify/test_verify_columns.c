/*
 * test_verify_columns.c - columns that are right by all checksums, but not those of the attributes, are found out.
 */
#include "index/column/columns.h"
#include "index/format/format.h"
#include "io/bytes.h"
#include "io/sections.h"
#include "tests/index/support_columns.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define VERIFY_ROWS 400u

/* The folder's list of files says what its columns are now. */
static void list_columns(const char *folder)
{
    size_t bytes, meta_bytes;
    char *path = support_path(folder, COLUMNS_NAME), *meta_path = support_path(folder, META_NAME);
    uint8_t *file = support_read_file(path, &bytes), *meta = support_read_file(meta_path, &meta_bytes);
    for (uint32_t i = 0; i < bytes_load_u32(meta + 40); i++) {
        const uint8_t *entry = meta + 72 + 40 * (size_t)i;
        uint8_t *line = meta + bytes_load_u64(entry + 8), *end = line + bytes_load_u64(entry + 16);
        for (; bytes_load_u32(entry) == META_FILES && line < end; line += FILE_ENTRY_BYTES)
            if (strcmp((const char *)line, COLUMNS_NAME) == 0) {
                bytes_store_u64(line + 16, bytes);
                bytes_store_u64(line + 24, XXH3_64bits(file, 4096));
            }
    }
    support_reseal(meta);
    support_write_file(meta_path, meta, meta_bytes);
    free(file);
    free(meta);
    free(path);
    free(meta_path);
}

struct findings {
    unsigned n;
    char last[512];
};

static void on_finding(void *context, const char *sentence)
{
    struct findings *findings = context;
    findings->n++;
    snprintf(findings->last, sizeof findings->last, "%s", sentence);
}

/* An index whose input row i has the text of row i: JSON and at most one tenant, acme; *segment: its id. */
static void build_index(const char *path, const struct support_table *t, uint8_t segment[16])
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct support_data data;
    size_t bytes;
    support_clusters(t->n, 8, QUIRE_TYPE_F32, 3, &data);
    const char *json[VERIFY_ROWS], *tenants[VERIFY_ROWS];
    uint32_t json_bytes[VERIFY_ROWS], n_grants;
    for (uint32_t row = 0; row < t->n; row++) {
        assert_int_equal(grants_split(t->texts[row], t->bytes[row], &json[row], &json_bytes[row], &n_grants), 0);
        tenants[row] = n_grants ? "acme" : NULL;
    }
    options.attributes = json;
    options.attribute_bytes = json_bytes;
    options.tenants = tenants;
    support_build(path, &data, &options);
    support_data_free(&data);
    char *meta = support_path(path, META_NAME);
    uint8_t *file = support_read_file(meta, &bytes);
    memcpy(segment, file + 16, 16);
    free(file);
    free(meta);
}

static void verify_table(struct support_table *t)
{
    support_table_init(t, VERIFY_ROWS);
    for (uint32_t row = 0; row < t->n; row++) {
        const struct grant acme = {"acme", 4, 0};
        char json[120];
        snprintf(json, sizeof json, "{\"n\":%u,\"s\":\"s%u\",\"l\":[1,\"a\",%u,1]%s}", row, row % 3, row % 5,
                 row % 7 ? "" : ",\"z\":null,\"o\":{}");
        support_table_put(t, row, &acme, row % 2, row % 10 ? json : NULL);
    }
}

/* Columns of other attributes, right by all checksums, are found out by what they say of one row. */
static void test_verify(void **state)
{
    struct support_columns *s = *state;
    const struct grant acme = {"acme", 4, 0}, globex = {"globex", 6, 0}, later = {"acme", 4, 1};
    const struct {
        const struct grant *grant;
        const char *json, *finding;
    } changes[] = {{NULL, NULL, NULL},
                   {&acme, "{\"n\":4,\"s\":\"s0\",\"l\":[1,\"a\",3,1]}", "n "},
                   {&acme, "{\"n\":3,\"s\":\"s1\",\"l\":[1,\"a\",3,1]}", "s "},
                   {&acme, "{\"n\":3,\"s\":\"s0\",\"l\":[1,\"a\",4,1]}", "l "},
                   {&acme, "{\"n\":3,\"s\":\"s0\",\"l\":[1,\"a\",3,1,2]}", "l "},
                   {&acme, "{\"n\":3,\"s\":\"s0\",\"l\":[1,\"a\",3,1],\"z\":null}", "z "},
                   {&acme, "{\"n\":null,\"s\":\"s0\",\"l\":[1,\"a\",3,1]}", "n "},
                   {&acme, "{\"n\":3,\"s\":\"s0\",\"l\":[1,\"a\",3,{}]}", "l "},
                   {&acme, "{\"n\":3,\"s\":\"s0\"}", "l "},
                   {&globex, "{\"n\":3,\"s\":\"s0\",\"l\":[1,\"a\",3,1]}", "acme"},
                   {&later, "{\"n\":3,\"s\":\"s0\",\"l\":[1,\"a\",3,1]}", "acme"}};
    struct support_table t;
    uint8_t segment[16];
    char *index = support_path(s->folder, "index"), *path = support_path(index, COLUMNS_NAME);
    verify_table(&t);
    build_index(index, &t, segment);
    struct quire_index *open = support_open(index, NULL);
    uint32_t order[VERIFY_ROWS];
    for (uint32_t i = 0; i < t.n; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%u", i);
        assert_int_equal(quire_lookup(open, key, (size_t)n, &order[i], NULL), 0);
    }
    quire_close(open);
    struct support_table sorted;
    support_table_init(&sorted, t.n);
    for (uint32_t i = 0; i < t.n; i++) {
        sorted.texts[order[i]] = t.texts[i];
        sorted.bytes[order[i]] = t.bytes[i];
    }
    for (size_t i = 0; i < SUPPORT_COUNT(changes); i++) {
        struct findings findings = {0};
        struct quire_error err = {0};
        bool written = false;
        uint32_t row = order[3];
        char *text = sorted.texts[row];
        uint32_t bytes = sorted.bytes[row];
        if (changes[i].json)
            assert_int_equal(grants_join(changes[i].grant, 1, changes[i].json, (uint32_t)strlen(changes[i].json),
                                         &sorted.texts[row], &sorted.bytes[row], NULL),
                             0);
        unlink(path);
        assert_int_equal(
            columns_write(fs_real(), path, segment, t.n, NULL, UINT64_MAX, support_table_give, &sorted, &written, &err),
            0);
        list_columns(index);
        int rc = quire_verify(index, on_finding, NULL, &findings, NULL, &err);
        if (!changes[i].json && (rc || findings.n))
            fail_msg("nothing is wrong, but: %s %s", findings.last, err.message);
        if (changes[i].json && (rc != QUIRE_ECORRUPT || !strstr(findings.last, changes[i].finding)))
            fail_msg("change %zu: %u findings, the last: %s", i, findings.n, findings.last);
        if (changes[i].json)
            free(sorted.texts[row]);
        sorted.texts[row] = text;
        sorted.bytes[row] = bytes;
    }
    free(sorted.texts);
    free(sorted.bytes);
    support_table_fini(&t);
    free(index);
    free(path);
}

/* A declared column whose field is never of its type, and a field that stands first where it is no value: no row has
 * them, and that is no damage. */
static void test_verify_of_another_type(void **state)
{
    struct support_columns *s = *state;
    const struct quire_column declared[] = {{.name = "age", .type = QUIRE_COLUMN_INTEGER, .indexed = true},
                                            {.name = "born", .type = QUIRE_COLUMN_TIMESTAMP, .indexed = true}};
    static const char json[] = "{\"age\":\"seven\",\"born\":[1],\"twice\":[tru],\"twice\":5}";
    const char *texts[VERIFY_ROWS];
    uint32_t bytes[VERIFY_ROWS];
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct findings findings = {0};
    struct support_data data;
    struct quire_error err = {0};
    char *index = support_path(s->folder, "index");
    support_clusters(VERIFY_ROWS, 8, QUIRE_TYPE_F32, 3, &data);
    for (uint32_t row = 0; row < VERIFY_ROWS; row++) {
        texts[row] = json;
        bytes[row] = sizeof json - 1;
    }
    options.attributes = texts;
    options.attribute_bytes = bytes;
    options.columns = declared;
    options.n_columns = SUPPORT_COUNT(declared);
    support_build(index, &data, &options);
    if (quire_verify(index, on_finding, NULL, &findings, NULL, &err) != 0)
        fail_msg("nothing is wrong, but: %s %s", findings.last, err.message);
    support_data_free(&data);
    free(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verify, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_verify_of_another_type, support_columns_set_up, support_columns_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
