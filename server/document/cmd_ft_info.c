/*
 * cmd_ft_info.c - FT.INFO, FT.EXPLAIN and FT.EXPLAINCLI: what an index is, and what a query means to it.
 *
 * FT.INFO's fields come in the order of RediSearch's: clients read them by their places (docs/search.md). Numbers that
 * are fractions are strings in RESP2 and doubles in RESP3.
 */
#include "document/query/query_explain.h"
#include "server/document/cmd_documents.h"
#include "server/document/cursors.h"
#include "server/document/document_call.h"
#include "server/document/search_options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

static void put_pair_text(struct resp_buffer *out, const char *name, const char *value)
{
    resp_text(out, name);
    resp_text(out, value);
}

static void put_pair_number(struct resp_buffer *out, const char *name, double value)
{
    resp_text(out, name);
    resp_double(out, value);
}

static double share(uint64_t part, uint64_t of)
{
    return of > 0 ? (double)part / (double)of : 0;
}

/* ---- the schema -------------------------------------------------------------------------------------------------- */

static void put_definition(struct resp_buffer *out, const struct schema *s)
{
    resp_text(out, "index_definition");
    bool language = strcmp(s->language, "english") != 0;
    resp_map(out, 4 + (size_t)language + (s->language_field != NULL) + (s->score_field != NULL));
    put_pair_text(out, "key_type", s->source == SCHEMA_HASH ? "HASH" : "JSON");
    resp_text(out, "prefixes");
    resp_array(out, s->n_prefixes);
    for (uint32_t i = 0; i < s->n_prefixes; i++)
        resp_bulk(out, s->prefixes[i].data, s->prefixes[i].bytes);
    if (language)
        put_pair_text(out, "default_language", s->language);
    if (s->language_field)
        put_pair_text(out, "language_field", s->language_field);
    put_pair_number(out, "default_score", s->score);
    if (s->score_field)
        put_pair_text(out, "score_field", s->score_field);
    put_pair_text(out, "indexes_all", "false");
}

static void put_vector(struct resp_buffer *out, const struct schema_vector *v)
{
    static const char *const types[] = {"FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16", "INT8", "UINT8"};
    static const char *const metrics[] = {"L2", "IP", "COSINE"};
    put_pair_text(out, "algorithm", schema_algorithm_name(v->algorithm));
    put_pair_text(out, "data_type", types[v->element]);
    resp_field(out, "dim", v->dim);
    put_pair_text(out, "distance_metric", metrics[v->metric]);
    if (v->algorithm != SCHEMA_HNSW)
        return;
    resp_field(out, "M", v->m);
    resp_field(out, "ef_construction", v->ef_construction);
    resp_field(out, "ef_runtime", v->ef_runtime);
}

static size_t pairs_of(const struct schema_field *f)
{
    switch (f->type) {
    case SCHEMA_TEXT:
    case SCHEMA_TAG:
        return 1;
    case SCHEMA_VECTOR:
        return f->vector.algorithm == SCHEMA_HNSW ? 7 : 4;
    case SCHEMA_NUMERIC:
    case SCHEMA_GEO:
        break;
    }
    return 0;
}

static size_t flags_of(const struct schema_field *f, const char *flags[8])
{
    size_t n = 0;
    if (f->case_sensitive)
        flags[n++] = "CASESENSITIVE";
    if (f->sortable)
        flags[n++] = "SORTABLE";
    /* a number has no other form to be sorted by */
    if (f->unf || (f->sortable && f->type == SCHEMA_NUMERIC))
        flags[n++] = "UNF";
    if (f->no_stem)
        flags[n++] = "NOSTEM";
    if (f->no_index)
        flags[n++] = "NOINDEX";
    if (f->index_empty)
        flags[n++] = "INDEXEMPTY";
    if (f->index_missing)
        flags[n++] = "INDEXMISSING";
    return n;
}

static void put_attribute(struct resp_buffer *out, const struct schema_field *f)
{
    static const char *const types[] = {"TEXT", "TAG", "NUMERIC", "GEO", "VECTOR"};
    const char *flags[8];
    size_t n_flags = flags_of(f, flags), n_pairs = 3 + pairs_of(f);
    if (out->protocol == 3)
        resp_map(out, n_pairs + 1);
    else
        resp_array(out, 2 * n_pairs + n_flags);
    put_pair_text(out, "identifier", f->identifier);
    put_pair_text(out, "attribute", f->name);
    put_pair_text(out, "type", types[f->type]);
    if (f->type == SCHEMA_TEXT)
        put_pair_number(out, "WEIGHT", f->weight);
    if (f->type == SCHEMA_TAG) {
        resp_text(out, "SEPARATOR");
        resp_bulk(out, &f->separator, f->separator != 0);
    }
    if (f->type == SCHEMA_VECTOR)
        put_vector(out, &f->vector);
    if (out->protocol == 3) {
        resp_text(out, "flags");
        resp_array(out, n_flags);
    }
    for (size_t i = 0; i < n_flags; i++)
        resp_text(out, flags[i]);
}

static size_t options_of(const struct schema *s, const char *options[8])
{
    size_t n = 0;
    if (s->no_offsets)
        options[n++] = "NOOFFSETS";
    if (s->no_highlight)
        options[n++] = "NOHL";
    if (s->no_fields)
        options[n++] = "NOFIELDS";
    if (s->no_freqs)
        options[n++] = "NOFREQS";
    if (s->max_text_fields)
        options[n++] = "MAXTEXTFIELDS";
    return n;
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void put_figures(struct resp_buffer *out, const struct document_index_stats *s)
{
    const struct fields_stats *f = &s->fields;
    double inverted = (double)(f->text_bytes + f->number_bytes + f->geo_bytes + f->missing_bytes) / MIB;
    double all = inverted + (double)(f->tag_bytes + f->document_bytes + s->bytes + s->vectors.memory_bytes) / MIB;
    resp_field(out, "num_docs", (long long)s->documents);
    resp_field(out, "max_doc_id", (long long)s->max_id);
    resp_field(out, "num_terms", (long long)f->n_words);
    resp_field(out, "num_records", (long long)f->n_records);
    put_pair_number(out, "inverted_sz_mb", inverted);
    put_pair_number(out, "vector_index_sz_mb", (double)s->vectors.memory_bytes / MIB);
    resp_field(out, "total_inverted_index_blocks", (long long)f->n_blocks);
    put_pair_number(out, "offset_vectors_sz_mb", 0);
    put_pair_number(out, "doc_table_size_mb", (double)f->document_bytes / MIB);
    put_pair_number(out, "sortable_values_size_mb", 0);
    put_pair_number(out, "key_table_size_mb", (double)s->bytes / MIB);
    put_pair_number(out, "tag_overhead_sz_mb", (double)f->tag_bytes / MIB);
    put_pair_number(out, "text_overhead_sz_mb", 0);
    put_pair_number(out, "total_index_memory_sz_mb", all);
    put_pair_number(out, "geoshapes_sz_mb", 0);
    put_pair_number(out, "records_per_doc_avg", share(f->n_records, s->documents));
    put_pair_number(out, "bytes_per_record_avg", share(f->text_bytes, f->n_records));
    put_pair_number(out, "offsets_per_term_avg", share(f->n_positions, f->n_records));
    put_pair_number(out, "offset_bits_per_record_avg", 8);
    resp_field(out, "hash_indexing_failures", (long long)s->failures);
    put_pair_number(out, "total_indexing_time", (double)s->indexing_us / 1000);
    resp_field(out, "indexing", s->filling);
    put_pair_number(out, "percent_indexed", s->filled);
    resp_field(out, "number_of_uses", (long long)s->uses);
    resp_field(out, "cleaning", 0);
}

static void put_errors(struct resp_buffer *out, const struct document_index_stats *s)
{
    resp_map(out, 3);
    resp_field(out, "indexing failures", (long long)s->failures);
    put_pair_text(out, "last indexing error", s->failures ? s->error : "N/A");
    put_pair_text(out, "last indexing error key", s->failures ? s->error_key : "N/A");
}

static void put_rest(struct caller *c, struct resp_buffer *out, const struct document_index *index,
                     const struct document_index_stats *s)
{
    struct cursors *cursors = c->lane->service->cursors;
    uint32_t idle, all_idle, n = cursors_count(cursors, index, &idle);
    cursors_count(cursors, NULL, &all_idle);
    resp_text(out, "gc_stats");
    resp_map(out, 0);
    resp_text(out, "cursor_stats");
    resp_map(out, 4);
    resp_field(out, "global_idle", all_idle);
    resp_field(out, "global_total", cursors_count(cursors, NULL, &all_idle));
    resp_field(out, "index_capacity", CURSORS_PER_INDEX_MAX);
    resp_field(out, "index_total", n);
    resp_text(out, "dialect_stats");
    resp_map(out, 4);
    resp_field(out, "dialect_1", 0);
    resp_field(out, "dialect_2", s->uses > 0);
    resp_field(out, "dialect_3", 0);
    resp_field(out, "dialect_4", 0);
    resp_text(out, "Index Errors");
    put_errors(out, s);
    resp_text(out, "field statistics");
}

static void put_field_statistics(struct resp_buffer *out, const struct schema *schema)
{
    struct document_index_stats none = {0};
    resp_array(out, schema->n_fields);
    for (uint32_t i = 0; i < schema->n_fields; i++) {
        resp_map(out, 3);
        put_pair_text(out, "identifier", schema->fields[i].identifier);
        put_pair_text(out, "attribute", schema->fields[i].name);
        resp_text(out, "Index Errors");
        put_errors(out, &none); /* failures count for the whole index here */
    }
}

void cmd_ft_info(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    enum { FIGURES = 25, REST = 5 };
    struct document_index *index = document_index_of(c, args[1]);
    struct document_index_stats stats;
    const char *options[8];
    (void)n;
    if (!index)
        return;
    const struct schema *schema = document_index_schema(index);
    struct resp_buffer *out = caller_reply(c);
    int protocol = out->protocol;
    if (c->reads_arrays)
        out->protocol = 2;
    document_index_get_stats(index, &stats);
    size_t n_options = options_of(schema, options);
    resp_map(out, 4 + FIGURES + REST + (size_t)schema->stopwords_given);
    put_pair_text(out, "index_name", document_index_name(index));
    resp_text(out, "index_options");
    resp_array(out, n_options);
    for (size_t i = 0; i < n_options; i++)
        resp_text(out, options[i]);
    put_definition(out, schema);
    resp_text(out, "attributes");
    resp_array(out, schema->n_fields);
    for (uint32_t i = 0; i < schema->n_fields; i++)
        put_attribute(out, &schema->fields[i]);
    put_figures(out, &stats);
    put_rest(c, out, index, &stats);
    put_field_statistics(out, schema);
    if (schema->stopwords_given) {
        resp_text(out, "stopwords_list");
        resp_array(out, schema->n_stopwords);
        for (uint32_t i = 0; i < schema->n_stopwords; i++)
            resp_bulk(out, schema->stopwords[i].data, schema->stopwords[i].bytes);
    }
    out->protocol = protocol;
    document_index_unref(index);
}

/* ---- FT.EXPLAIN -------------------------------------------------------------------------------------------------- */

static int explain(const struct schema *schema, const struct schema_word *words, uint32_t n, char **text, size_t *bytes,
                   struct quire_error *err)
{
    struct search_options o;
    struct query *query = NULL;
    uint64_t text_fields = 0;
    int rc = search_options_parse(words, n, &o, err);
    if (rc < 0)
        return rc;
    rc = document_text_fields(schema, words, n, o.in_fields, o.n_in_fields, &text_fields, err);
    struct query_context context = {.schema = schema,
                                    .params = o.params,
                                    .n_params = o.n_params,
                                    .text_fields = text_fields,
                                    .verbatim = o.verbatim,
                                    .no_stopwords = o.no_stopwords,
                                    .language = o.language,
                                    .language_position = o.language_position,
                                    .slop = o.slop,
                                    .in_order = o.in_order,
                                    .dialect = o.dialect};
    if (rc == 0)
        rc = query_parse(&context, o.text.data, o.text.bytes, &query, err);
    if (rc == 0)
        rc = query_explain(query_root(query), schema, text, bytes, err);
    query_free(query);
    search_options_fini(&o);
    return rc;
}

static void put_lines(struct resp_buffer *out, const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == '\n';
    resp_array(out, n);
    for (const char *at = text; n > 0; n--) {
        size_t line = strcspn(at, "\n");
        resp_bulk(out, at, line);
        at += line + 1;
    }
}

/* FT.EXPLAIN, FT.EXPLAINCLI */
void cmd_ft_explain(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct document_index *index = document_index_of(c, args[1]);
    struct quire_error err = {0};
    char *text = NULL;
    size_t bytes = 0;
    if (!index)
        return;
    struct schema_word *words = document_words(c, args + 2, n - 2);
    if (words) {
        struct resp_buffer *out = caller_reply(c);
        if (explain(document_index_schema(index), words, n - 2, &text, &bytes, &err) < 0)
            document_error(out, &err);
        else if (strcmp(c->command, "ft.explaincli") == 0)
            put_lines(out, text, bytes);
        else
            resp_bulk(out, text, bytes);
    }
    free(text);
    free(words);
    document_index_unref(index);
}
