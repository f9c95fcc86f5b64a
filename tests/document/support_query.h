/* support_query.h - a schema from the words of FT.CREATE, and what FT.EXPLAIN shows of a query. */
#ifndef QUIRE_TESTS_SUPPORT_QUERY_H
#define QUIRE_TESTS_SUPPORT_QUERY_H

#include "document/query/query_explain.h"
#include <stdlib.h>
#include <string.h>

/* words: with a blank between each two of them; the index's name first. NULL: refused. */
static inline struct schema *schema_of(const char *words)
{
    struct schema_word list[128];
    struct schema *schema = NULL;
    uint32_t n = 0;
    for (const char *at = words; *at && n < 128;) {
        size_t bytes = strcspn(at, " ");
        list[n++] = (struct schema_word){at, (uint32_t)bytes};
        at += bytes + (at[bytes] == ' ');
    }
    return schema_parse(list, n, &schema, NULL) == 0 ? schema : NULL;
}

/* The explanation, or the message of the error; the caller's to free. */
static inline char *explain_of(const struct query_context *context, const char *text, size_t bytes)
{
    struct quire_error err = {0};
    struct query *query = NULL;
    char *out = NULL;
    size_t n;
    if (query_parse(context, text, bytes, &query, &err) < 0 ||
        query_explain(query_root(query), context->schema, &out, &n, &err) < 0)
        out = strdup(err.message);
    query_free(query);
    return out;
}

#endif
