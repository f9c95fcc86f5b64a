/*
 * cli_where.c - which rows of a file of vectors a filter and tenants leave, by the files of attributes beside it.
 *
 * Every row is tested on its own text (filter_matches), not by columns: this is what answers of an index are judged by,
 * so it shares with an index as little as it can.
 */
#include "index/attribute/filter.h"
#include "io/error.h"
#include "io/memory.h"
#include "tools/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct where_files {
    struct cli_lines attributes, keys, tenants;
    struct cli_columns columns;
    struct attribute_schema *schema;
    struct filter *filter;
};

static int check_where(const struct cli_where *w, struct quire_error *err)
{
    if (w->filter && !w->attributes_path && !w->keys_path)
        return error_set(err, QUIRE_EINVALID,
                         "--filter needs --attrs, or --keys: the file that the index is built with");
    if (w->tenants.n > 0 && !w->tenants_path)
        return error_set(err, QUIRE_EINVALID, "--tenant needs --tenants: the file that the index is built with");
    return 0;
}

static int load(struct cli *cli, const struct cli_where *w, const char *base, uint64_t rows, struct where_files *f,
                struct quire_error *err)
{
    int rc = w->filter && w->attributes_path
                 ? cli_attributes_load(cli, w->attributes_path, base, rows, &f->attributes, err)
                 : 0;
    if (rc == 0 && w->filter && w->keys_path)
        rc = cli_lines_load_rows(w->keys_path, "one key", base, rows, &f->keys, err);
    if (rc == 0 && w->tenants.n > 0)
        rc = cli_tenants_load(w->tenants_path, base, rows, &f->tenants, err);
    if (rc == 0)
        rc = cli_columns_parse(&w->columns, &f->columns, err);
    if (rc == 0 && f->columns.n > 0)
        rc = attribute_schema_create(f->columns.columns, f->columns.n, &f->schema, err);
    if (rc == 0 && w->filter)
        rc = filter_compile(w->filter, strlen(w->filter), f->schema, &f->filter, err);
    return rc;
}

static void unload(struct where_files *f)
{
    filter_unref(f->filter);
    attribute_schema_destroy(f->schema);
    cli_columns_free(&f->columns);
    cli_lines_free(&f->attributes);
    cli_lines_free(&f->keys);
    cli_lines_free(&f->tenants);
}

static bool is_granted(const char *names, const struct cli_texts *tenants)
{
    for (const char *at = names; at;) {
        const char *end = strchr(at, ' ');
        size_t bytes = end ? (size_t)(end - at) : strlen(at);
        for (unsigned i = 0; i < tenants->n; i++)
            if (strlen(tenants->text[i]) == bytes && memcmp(tenants->text[i], at, bytes) == 0)
                return true;
        at = end ? end + 1 : NULL;
    }
    return false;
}

static bool row_matches(const struct cli_where *w, const struct where_files *f, uint64_t row)
{
    char number[24];
    if (w->tenants.n > 0 && !is_granted(f->tenants.start[row], &w->tenants))
        return false;
    if (!f->filter)
        return true;
    const char *json = f->attributes.start ? f->attributes.start[row] : NULL;
    const void *key = number;
    uint32_t key_bytes;
    if (f->keys.start) {
        key = f->keys.start[row];
        key_bytes = f->keys.bytes[row];
    } else {
        key_bytes = (uint32_t)snprintf(number, sizeof number, "%llu", (unsigned long long)row);
    }
    return filter_matches(f->filter, json, json ? f->attributes.bytes[row] : 0, key, key_bytes);
}

int cli_where_rows(struct cli *cli, const struct cli_where *w, const char *base, uint64_t rows, uint32_t **out,
                   uint64_t *n, struct quire_error *err)
{
    struct where_files files = {0};
    uint32_t *matches = NULL;
    uint64_t found = 0;
    *out = NULL;
    *n = rows;
    if (!w->filter && w->tenants.n == 0)
        return 0;
    int rc = check_where(w, err);
    if (rc == 0)
        rc = load(cli, w, base, rows, &files, err);
    if (rc == 0 && !(matches = malloc(memory_size_mul(rows + 1, sizeof *matches))))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %llu rows", (unsigned long long)rows);
    for (uint64_t row = 0; rc == 0 && row < rows; row++)
        if (row_matches(w, &files, row))
            matches[found++] = (uint32_t)row;
    unload(&files);
    if (rc < 0) {
        free(matches);
        return rc;
    }
    *out = matches;
    *n = found;
    return 0;
}
