/* support_columns.c - texts of rows, kept as grants.h has them; a folder for each test. */
#include "tests/index/support_columns.h"
#include "io/bytes.h"
#include "io/sections.h"
#include "tests/index/support_index.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

void support_table_init(struct support_table *t, uint32_t n)
{
    *t = (struct support_table){n, calloc(n, sizeof *t->texts), calloc(n, sizeof *t->bytes), 0};
    assert_true(t->texts && t->bytes);
}

void support_table_fini(struct support_table *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        free(t->texts[i]);
    free(t->texts);
    free(t->bytes);
}

void support_table_put(struct support_table *t, uint32_t row, const struct grant *grants, uint32_t n, const char *json)
{
    free(t->texts[row]);
    assert_int_equal(
        grants_join(grants, n, json, json ? (uint32_t)strlen(json) : 0, &t->texts[row], &t->bytes[row], NULL), 0);
}

int support_table_give(void *context, uint32_t row, const char **text, uint32_t *bytes, struct quire_error *err)
{
    struct support_table *t = context;
    (void)err;
    t->asked += row == 0;
    *text = t->texts[row];
    *bytes = t->bytes[row];
    return 0;
}

/* Writes checksums anew, so that only what the bytes mean can tell. */
void support_reseal(uint8_t *file)
{
    uint32_t n = bytes_load_u32(file + 40);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *entry = file + 72 + 40 * (size_t)i;
        bytes_store_u64(entry + 24, XXH3_64bits(file + bytes_load_u64(entry + 8), bytes_load_u64(entry + 16)));
    }
    bytes_store_u64(file + 4088, XXH3_64bits(file, 4088));
}

int support_columns_set_up(void **state)
{
    struct support_columns *s = calloc(1, sizeof *s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "columns");
    *state = s;
    return 0;
}

int support_columns_tear_down(void **state)
{
    struct support_columns *s = *state;
    support_folder_remove(s->folder);
    free(s->path);
    free(s);
    return 0;
}
