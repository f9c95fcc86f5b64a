/*
 * query_explain.c - the tree, a node per line or block of lines: INTERSECT { ... }, UNION { ... }, NUMERIC {...}.
 *
 * A word that is searched with its stem is shown as the UNION that RediSearch makes of it: the word, the stem's entry
 * (+stem) and the stem itself where that is another word. The functions recurse; a tree's depth is bounded (query.h).
 */
#include "document/query/query_explain.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct explain {
    const struct schema *schema;
    uint64_t all_fields;
    char *text;
    size_t bytes, capacity;
    int rc; /* the first that went wrong; nothing is written after it */
};

static void add_bytes(struct explain *e, const char *text, size_t bytes)
{
    if (e->rc < 0)
        return;
    if (e->bytes + bytes > QUERY_EXPLAIN_BYTES_MAX)
        e->rc = QUIRE_ELIMIT;
    else if (!array_reserve(&e->text, &e->capacity, e->bytes + bytes + 1))
        e->rc = QUIRE_ENOMEM;
    if (e->rc < 0)
        return;
    memcpy(e->text + e->bytes, text, bytes);
    e->bytes += bytes;
    e->text[e->bytes] = 0;
}

__attribute__((format(printf, 2, 3))) static void add(struct explain *e, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0);
    add_bytes(e, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void add_text(struct explain *e, const struct query_text *text)
{
    add_bytes(e, text->data, text->bytes);
}

static void pad(struct explain *e, uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++)
        add_bytes(e, "  ", 2);
}

/* "@a|b:" where not all TEXT fields are meant. */
static void add_fields(struct explain *e, uint64_t fields)
{
    const char *separator = "@";
    if (fields == e->all_fields)
        return;
    for (uint32_t i = 0; i < e->schema->n_fields; i++) {
        const struct schema_field *f = &e->schema->fields[i];
        if (f->type != SCHEMA_TEXT || !(fields >> f->text_bit & 1))
            continue;
        add_bytes(e, separator, 1);
        add_bytes(e, f->name, f->name_bytes);
        separator = "|";
    }
    add(e, "%s", fields ? ":" : "@NULL:");
}

static void add_attributes(struct explain *e, const struct query_node *node)
{
    bool exact = node->kind == QUERY_PHRASE && node->slop == 0 && node->in_order;
    bool near = !exact && (node->slop != -1 || node->in_order);
    if (node->weight == 1 && !near)
        return;
    add(e, " => {");
    if (node->weight != 1)
        add(e, " $weight: %g;", node->weight);
    if (near && node->slop != -1)
        add(e, " $slop: %lld;", (long long)node->slop);
    if (near)
        add(e, " $inorder: %s;", node->in_order ? "true" : "false");
    add(e, " }");
}

static void add_node(struct explain *e, const struct query_node *node, uint32_t depth, bool is_tag);

static void add_block(struct explain *e, const struct query_node *node, uint32_t depth, const char *opening)
{
    add(e, "%s\n", opening);
    for (uint32_t i = 0; i < node->n_children; i++)
        add_node(e, node->children[i], depth + 1, node->kind == QUERY_TAG);
    pad(e, depth);
    add(e, "}");
}

static void add_word(struct explain *e, const struct query_node *node)
{
    if (node->text.bytes > 0)
        add_text(e, &node->text);
    else
        add(e, "\"\"");
    if (node->weight != 1)
        add(e, " => {$weight: %g;}", node->weight);
    add(e, "\n");
}

/* Indented already, and with the fields in front. */
static void add_term(struct explain *e, const struct query_node *node, uint32_t depth, bool is_tag)
{
    if (node->stem.bytes == 0) {
        add_word(e, node);
        return;
    }
    add(e, "UNION {\n");
    for (uint32_t line = 0; line < 3; line++) {
        bool same =
            node->stem.bytes == node->text.bytes && memcmp(node->stem.data, node->text.data, node->stem.bytes) == 0;
        if (line == 2 && same)
            continue;
        pad(e, depth + 1);
        if (!is_tag)
            add_fields(e, node->text_fields);
        if (line == 0) {
            add_word(e, node);
            continue;
        }
        add_bytes(e, "+", line == 1);
        add_text(e, &node->stem);
        add(e, "(expanded)\n");
    }
    pad(e, depth);
    add(e, "}\n");
}

static void add_affix(struct explain *e, const struct query_node *node, const char *name, const char *before,
                      const char *behind)
{
    add(e, "%s{%s", name, before);
    add_text(e, &node->text);
    add(e, "%s}", behind);
}

static void add_vector(struct explain *e, const struct query_node *node, uint32_t depth)
{
    bool filtered = node->kind == QUERY_KNN && node->children[0]->kind != QUERY_ALL;
    add(e, "VECTOR {");
    if (filtered) {
        add(e, "\n");
        add_node(e, node->children[0], depth + 1, false);
        pad(e, depth);
        add(e, "} => {");
    }
    if (node->kind == QUERY_KNN)
        add(e, "K=%u nearest vectors to `$", node->k);
    else
        add(e, "Vectors that are within %g distance radius from `$", node->radius);
    add_text(e, &node->vector_name);
    add(e, "` in vector index associated with field @%s", node->field->name);
    if (node->ef > 0)
        add(e, ", EF_RUNTIME = %u", node->ef);
    if (node->epsilon >= 0)
        add(e, ", EPSILON = %g", node->epsilon);
    if (node->distance_as.bytes > 0) {
        add(e, ", yields distance as `");
        add_text(e, &node->distance_as);
        add(e, "`");
    }
    add(e, "}");
}

static void add_tag(struct explain *e, const struct query_node *node, uint32_t depth)
{
    add(e, "TAG:@%s ", node->field->name);
    add_block(e, node, depth, "{");
}

static bool has_text_fields(enum query_kind kind)
{
    return kind >= QUERY_AND && kind <= QUERY_FUZZY;
}

static void add_node(struct explain *e, const struct query_node *node, uint32_t depth, bool is_tag)
{
    pad(e, depth);
    if (!is_tag && has_text_fields(node->kind))
        add_fields(e, node->text_fields);
    switch (node->kind) {
    case QUERY_TERM:
        add_term(e, node, depth, is_tag);
        return;
    case QUERY_ALL:
        add(e, "<WILDCARD>");
        break;
    case QUERY_NONE:
        add(e, "<empty>");
        break;
    case QUERY_AND:
        add_block(e, node, depth, "INTERSECT {");
        break;
    case QUERY_OR:
        add_block(e, node, depth, "UNION {");
        break;
    case QUERY_NOT:
        add_block(e, node, depth, "NOT{");
        break;
    case QUERY_OPTIONAL:
        add_block(e, node, depth, "OPTIONAL{");
        break;
    case QUERY_PHRASE:
        add_block(e, node, depth, node->slop == 0 && node->in_order ? "EXACT {" : "INTERSECT {");
        break;
    case QUERY_PREFIX:
        add_affix(e, node, "PREFIX", "", "*");
        break;
    case QUERY_SUFFIX:
        add_affix(e, node, "SUFFIX", "*", "");
        break;
    case QUERY_INFIX:
        add_affix(e, node, "INFIX", "*", "*");
        break;
    case QUERY_WILDCARD:
        add_affix(e, node, "WILDCARD", "", "");
        break;
    case QUERY_FUZZY:
        add_affix(e, node, "FUZZY", "", "");
        break;
    case QUERY_TAG:
        add_tag(e, node, depth);
        break;
    case QUERY_NUMERIC:
        add(e, "NUMERIC {%f %s @%s %s %f}", node->low, node->low_open ? "<" : "<=", node->field->name,
            node->high_open ? "<" : "<=", node->high);
        break;
    case QUERY_GEO:
        add(e, "GEO %s:{%f,%f --> %f m}", node->field->name, node->longitude, node->latitude, node->radius_m);
        break;
    case QUERY_MISSING:
        add(e, "ISMISSING{%s}", node->field->name);
        break;
    case QUERY_RANGE:
    case QUERY_KNN:
        add_vector(e, node, depth);
        break;
    }
    add_attributes(e, node);
    add(e, "\n");
}

int query_explain(const struct query_node *root, const struct schema *schema, char **out, size_t *bytes,
                  struct quire_error *err)
{
    struct explain e = {.schema = schema};
    for (uint32_t i = 0; i < schema->n_fields; i++)
        if (schema->fields[i].type == SCHEMA_TEXT)
            e.all_fields |= 1ull << schema->fields[i].text_bit;
    add_node(&e, root, 0, false);
    if (e.rc < 0) {
        free(e.text);
        return e.rc == QUIRE_ELIMIT
                   ? error_set(err, QUIRE_ELIMIT, "The explanation has more than %u bytes: explain a part of the query",
                               QUERY_EXPLAIN_BYTES_MAX)
                   : error_set(err, QUIRE_ENOMEM, "no memory for the explanation of a query");
    }
    *out = e.text;
    *bytes = e.bytes;
    return 0;
}
