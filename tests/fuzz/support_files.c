/* support_files.c - see support_files.h. */
#include "tests/fuzz/support_files.h"
#include "index/attribute/grants.h"
#include "index/build/merge.h"
#include "io/random.h"
#include "tests/support/fault.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_require(bool right)
{
    if (!right)
        abort();
}

struct tiny_row {
    char key[128], attributes[128];
};

/* A third of the rows has attributes, half of those a tenant, too. */
static uint32_t tiny_attributes(uint32_t i, char *out, size_t room)
{
    const struct grant acme = {"acme", 4, i % 4};
    char json[64], *text = NULL;
    uint32_t bytes = 0;
    if (i % 3)
        return 0;
    int n = snprintf(json, sizeof json, "{\"n\":%u,\"s\":\"s%u\",\"l\":[\"a\",%u]}", i, i % 5, i % 7);
    fuzz_require(grants_join(&acme, i % 6 == 0, json, (uint32_t)n, &text, &bytes, NULL) == 0 && bytes <= room);
    memcpy(out, text, bytes);
    free(text);
    return bytes;
}

static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    struct tiny_row *row = (struct tiny_row *)context + i;
    struct random random;
    float *numbers = vector;
    random_init(&random, i);
    for (unsigned d = 0; d < TINY_DIM; d++)
        numbers[d] = (float)random_below(&random, 1000) - 500;
    *key = row->key;
    *key_bytes = (uint32_t)snprintf(row->key, sizeof row->key, i % 9 == 8 ? "key-%u%0100u" : "key-%u", i, 0u);
    *attributes = row->attributes;
    *attribute_bytes = tiny_attributes(i, row->attributes, sizeof row->attributes);
}

static int keep_file(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    struct kept_files *files = context;
    struct kept_file *file = &files->items[files->n++];
    fuzz_require(files->n <= KEPT_MAX);
    snprintf(file->name, sizeof file->name, "%s", strrchr(path, '/') + 1);
    file->n = bytes;
    file->bytes = malloc(bytes + 1);
    fuzz_require(file->bytes != NULL);
    memcpy(file->bytes, data, bytes);
    return 0;
}

void support_tiny_segment(enum tiny_kind kind, struct kept_files *out)
{
    struct io_fs *fs = fault_fs_create();
    struct tiny_row *texts = calloc(TINY_ROWS, sizeof *texts);
    struct merge_rows rows = {.n = TINY_ROWS, .type = QUIRE_TYPE_F32, .row = give_row, .context = texts};
    struct merge_options options = {.fs = fs, .type = QUIRE_TYPE_F32, .dim = TINY_DIM};
    struct merge_result result = {.rows = 0};
    quire_build_options_init(&options.build);
    options.build.block_bytes = TINY_BLOCK_BYTES;
    options.build.threads = 1;
    options.build.edge_codes = kind == TINY_EDGE_CODES ? QUIRE_EDGE_CODES_YES : QUIRE_EDGE_CODES_NO;
    options.build.index = kind == TINY_LISTS ? QUIRE_INDEX_SPANN : QUIRE_INDEX_PAGEGRAPH;
    options.build.list_rows = kind == TINY_LISTS ? TINY_LIST_ROWS : 0;
    fuzz_require(fs && texts && merge_build("/s", NULL, 0, &rows, &options, &result, NULL) == 0);
    merge_result_fini(&result);
    out->n = 0;
    fuzz_require(fault_each_file(fs, keep_file, out) == 0 && out->n == (kind == TINY_LISTS ? 7 : 6));
    free(texts);
    fault_fs_destroy(fs);
}

struct kept_file *support_find(struct kept_files *files, const char *name)
{
    for (unsigned i = 0; i < files->n; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return &files->items[i];
    abort();
}

void support_put_file(struct io_fs *fs, const char *path, const uint8_t *bytes, size_t n)
{
    struct io_file *file;
    fuzz_require(fs_open(fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, NULL) == 0);
    fuzz_require(fs_write_exact(file, bytes, n, 0, NULL) == 0);
    fs_close(file);
}

void support_put_files(struct io_fs *fs, const char *folder, const struct kept_files *files)
{
    fuzz_require(fs->ops->mkdir(fs, folder) == 0);
    for (unsigned i = 0; i < files->n; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, files->items[i].name);
        support_put_file(fs, path, files->items[i].bytes, files->items[i].n);
    }
}
