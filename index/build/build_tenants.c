/*
 * build_tenants.c - whose the rows are: grants become part of each row's text.
 *
 * A build is told of tenants in one of two ways. quire_build gets their names beside the JSON, and both become one text
 * here (grants.h), so that everything behind sees texts only. Seals and merges have such texts already. No other JSON
 * may begin with the byte that grants begin with: it would be read as grants that nobody made.
 */
#include "index/attribute/grants.h"
#include "index/build/build_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

/* The names of a row, separated by single spaces, as grants; returns how many, or QUIRE_ELIMIT. */
static int split_names(const char *names, struct grant *out)
{
    int n = 0;
    for (const char *at = names;;) {
        size_t length = strcspn(at, " ");
        if ((uint32_t)n == GRANTS_MAX)
            return QUIRE_ELIMIT;
        out[n++] = (struct grant){.name = at, .bytes = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length};
        if (!at[length])
            return n;
        at += length + 1;
    }
}

static int join_row(struct build *b, uint32_t row, struct grant *grants)
{
    const struct quire_build_options *o = &b->options;
    const char *names = o->tenants ? o->tenants[row] : NULL, *json = o->attributes ? o->attributes[row] : NULL;
    uint32_t json_bytes = json ? o->attribute_bytes[row] : 0;
    struct quire_error reason = {0};
    int n = names ? split_names(names, grants) : 0;
    if (n < 0)
        return error_set(b->err, n, "row %u has more than %u tenants: grant it to a common one instead", row,
                         GRANTS_MAX);
    int rc = grants_join(grants, (uint32_t)n, json, json_bytes, &b->texts[row], &b->text_bytes[row], &reason);
    return rc == 0 ? 0
                   : error_set(b->err, rc, "row %u: %s; names of tenants are separated by single spaces", row,
                               reason.message);
}

int build_take_tenants(struct build *b)
{
    const struct quire_build_options *o = &b->options;
    for (uint32_t row = 0; !b->merge && o->attributes && row < b->n; row++)
        if (o->attributes[row] && o->attribute_bytes[row] && o->attributes[row][0] == 1)
            return error_set(b->err, QUIRE_EINVALID, "attributes of row %u begin with a byte 1: they are not JSON",
                             row);
    b->has_tenants = b->merge ? b->merge->tenant_runs : o->tenants != NULL;
    if (!o->tenants)
        return 0;
    struct grant *grants = malloc(sizeof *grants * GRANTS_MAX);
    bool any = false;
    b->texts = calloc(b->n, sizeof *b->texts);
    b->text_bytes = calloc(b->n, sizeof *b->text_bytes);
    int rc = grants && b->texts && b->text_bytes ? 0 : QUIRE_ENOMEM;
    for (uint32_t row = 0; rc == 0 && row < b->n; row++) {
        rc = join_row(b, row, grants);
        any |= rc == 0 && b->texts[row];
    }
    free(grants);
    b->options.attributes = any ? (const char *const *)b->texts : NULL;
    b->options.attribute_bytes = any ? b->text_bytes : NULL;
    return rc;
}

void build_forget_tenants(struct build *b)
{
    for (uint32_t row = 0; b->texts && row < b->n; row++)
        free(b->texts[row]);
    array_free_all(b->texts, b->text_bytes, b->runs.of);
}
