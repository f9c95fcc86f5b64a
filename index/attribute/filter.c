/*
 * filter.c - a compiled filter: making and freeing it, and what others may read of it.
 *
 * A filter is made once per query or command and then only read; the last of its users frees it. It keeps the text it
 * was made of, into which field names point.
 */
#include "index/attribute/filter_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

static void destroy(struct filter *filter)
{
    free(filter->intervals);
    free(filter->texts);
    free(filter->parts);
    free(filter->members);
    free(filter->constants);
    free(filter->nodes);
    free(filter->text);
    free(filter);
}

int filter_compile(const char *text, size_t bytes, const struct attribute_schema *schema, struct filter **out,
                   struct quire_error *err)
{
    if (bytes > FILTER_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT,
                         "FILTER has %zu bytes, the limit is %u: write .field in [...] instead of many comparisons, or "
                         "ask in several requests",
                         bytes, FILTER_BYTES_MAX);
    struct filter *filter = calloc(1, sizeof *filter);
    if (!filter)
        return error_set(err, QUIRE_ENOMEM, "no memory for a filter of %zu bytes", bytes);
    atomic_init(&filter->references, 1);
    filter->memory_bytes = sizeof *filter;
    int rc = filter_parse(filter, text, bytes, schema, err);
    if (rc == 0 && filter_make_parts(filter))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the parts of a filter of %zu bytes", bytes);
    if (rc)
        destroy(filter);
    else
        *out = filter;
    assert(rc || (filter->root && filter->n_nodes > 0));
    return rc;
}

struct filter *filter_ref(struct filter *filter)
{
    unsigned before = atomic_fetch_add_explicit(&filter->references, 1, memory_order_relaxed);
    assert(before > 0);
    return filter;
}

void filter_unref(struct filter *filter)
{
    if (filter && atomic_fetch_sub_explicit(&filter->references, 1, memory_order_acq_rel) == 1)
        destroy(filter);
}

size_t filter_memory_bytes(const struct filter *filter)
{
    return filter->memory_bytes + filter->intervals_capacity * sizeof *filter->intervals;
}

const char *filter_text(const struct filter *filter, uint32_t *n_bytes)
{
    *n_bytes = filter->text_bytes;
    return filter->text;
}

const struct filter_part *filter_root(const struct filter *filter)
{
    return filter->root;
}

uint32_t filter_n_fields(const struct filter *filter)
{
    return filter->n_fields;
}

const char *filter_field(const struct filter *filter, uint32_t i, uint32_t *n_bytes, bool *required)
{
    *n_bytes = filter->fields[i].bytes;
    assert(i < filter->n_fields);
    *required = filter->required >> i & 1;
    return filter->fields[i].text;
}

const struct filter_interval *filter_interval_of(const struct filter *filter, uint32_t i)
{
    assert(i < filter->n_intervals);
    return &filter->intervals[i];
}

const char *filter_text_of(const struct filter *filter, uint32_t i, uint32_t *n_bytes)
{
    assert(i < filter->n_texts);
    *n_bytes = filter->texts[i].bytes;
    return filter->texts[i].text;
}

const char *filter_key(const struct filter *filter, uint32_t i, uint32_t *n_bytes)
{
    return filter_text_of(filter, i, n_bytes);
}

bool filter_asks_names(const struct filter *filter)
{
    return filter->nodes[filter->n_nodes - 1].names_key;
}
