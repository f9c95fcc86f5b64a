/*
 * query_vector.c - [KNN k @field $vector ...], [VECTOR_RANGE radius $vector], and the attributes =>{$name: value; ...}.
 *
 * Attributes that tune RediSearch's indexes (HYBRID_POLICY, BATCH_SIZE, SHARD_K_RATIO, RERANK and those of SVS) are
 * taken and change nothing; their values are not looked at. EF_RUNTIME is the effort; EPSILON is kept for
 * query_explain, and changes nothing either.
 */
#include "document/query/query_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool text_is(const struct query_text *text, const char *word)
{
    return text->bytes == strlen(word) && strncasecmp(text->data, word, text->bytes) == 0;
}

static bool is_tuning(const struct query_text *name)
{
    static const char *const names[] = {"HYBRID_POLICY",      "BATCH_SIZE",         "SHARD_K_RATIO",         "RERANK",
                                        "SEARCH_WINDOW_SIZE", "USE_SEARCH_HISTORY", "SEARCH_BUFFER_CAPACITY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (text_is(name, names[i]))
            return true;
    return false;
}

static int bad_value(struct parser *p, const struct token *token, const struct query_text *value,
                     const struct query_text *name)
{
    int shown = value->bytes < 40 ? (int)value->bytes : 40;
    for (int i = 0; i < shown; i++)
        if ((unsigned char)value->data[i] < ' ')
            shown = i;
    return error_set(p->err, QUIRE_EPARSE, "Invalid value (%.*s) for `%.*s` at offset %u", shown, value->data,
                     name->bytes < 40 ? (int)name->bytes : 40, name->data, token->at);
}

/* A whole number from 0 on; larger ones than `most` become that. */
static bool count_of(const struct query_text *text, uint32_t most, uint32_t *out)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < text->bytes; i++) {
        if (text->data[i] < '0' || text->data[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text->data[i] - '0');
        n = n > most ? most : n;
    }
    *out = (uint32_t)n;
    return text->bytes > 0;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static bool is_vector(const struct query_node *node)
{
    return node->kind == QUERY_KNN || node->kind == QUERY_RANGE;
}

static bool truth_of(const struct query_text *text, bool *out)
{
    *out = text_is(text, "true") || text_is(text, "1");
    return *out || text_is(text, "false") || text_is(text, "0");
}

/* EF_RUNTIME, EPSILON and the words that tune. `name` may be unknown: *known says. */
static int set_vector_attribute(struct parser *p, struct query_node *node, const struct token *token,
                                const struct query_text *name, const struct query_text *value, bool *known)
{
    double epsilon;
    *known = true;
    if (text_is(name, "EF_RUNTIME")) {
        if (!count_of(value, QUERY_KNN_MAX, &node->ef) || node->ef == 0)
            return bad_value(p, token, value, name);
    } else if (text_is(name, "EPSILON")) {
        if (!query_number(value->data, value->bytes, &epsilon) || !(epsilon >= 0))
            return bad_value(p, token, value, name);
        node->epsilon = epsilon;
    } else {
        *known = is_tuning(name);
    }
    return 0;
}

static int set_distance_name(struct parser *p, struct query_node *node, const struct token *token, bool given,
                             const struct query_text *name)
{
    if (given)
        return error_set(p->err, QUIRE_EPARSE,
                         "Distance field was specified twice for vector query: %.*s and %.*s at offset %u",
                         node->distance_as.bytes < 64 ? (int)node->distance_as.bytes : 64, node->distance_as.data,
                         name->bytes < 64 ? (int)name->bytes : 64, name->data, token->at);
    if (name->bytes == 0)
        return query_fail(p, token, "a name for the distance");
    return query_copy(p, name->data, name->bytes, &node->distance_as);
}

struct near {
    int64_t slop;
    bool in_order, given;
};

static int set_attribute(struct parser *p, struct query_node *node, struct near *near, bool named,
                         const struct token *token, const struct query_text *value)
{
    const struct query_text name = {token->text, token->bytes};
    double number = 0;
    bool truth = false, known = true;
    int rc = 0;
    if (text_is(&name, "slop")) {
        if (!query_number(value->data, value->bytes, &number) || number < -1 || number > INT32_MAX ||
            number != (double)(int64_t)number)
            return bad_value(p, token, value, &name);
        near->slop = (int64_t)number;
        near->given = true;
    } else if (text_is(&name, "inorder") || text_is(&name, "phonetic")) {
        if (!truth_of(value, &truth))
            return bad_value(p, token, value, &name);
        near->in_order = text_is(&name, "inorder") ? truth : near->in_order;
        near->given |= text_is(&name, "inorder");
    } else if (text_is(&name, "weight")) {
        if (!query_number(value->data, value->bytes, &number) || !(number >= 0))
            return bad_value(p, token, value, &name);
        node->weight = number;
    } else if (is_vector(node) && text_is(&name, "yield_distance_as")) {
        rc = set_distance_name(p, node, token, named, value);
    } else if (is_vector(node)) {
        rc = set_vector_attribute(p, node, token, &name, value, &known);
    } else {
        known = false;
    }
    if (rc == 0 && !known)
        return query_fail_as(p, token, "Invalid attribute", ": it is not one of what stands in front of =>");
    return rc;
}

/* Reads "{...}" for a node, or for what stands for nothing (NULL). `named`: the distance has a name already. */
static int parse_attributes(struct parser *p, struct query_node *node, bool named)
{
    struct query_node nothing = {.kind = QUERY_NONE};
    struct near near = {.slop = node ? node->slop : -1, .in_order = node && node->in_order};
    const struct token start = p->token;
    query_advance(p);
    for (;;) {
        while (p->token.kind == TOKEN_SEMICOLON)
            query_advance(p);
        if (p->token.kind == TOKEN_RIGHT_BRACE)
            break;
        const struct token name = p->token;
        struct query_text text;
        if (name.kind != TOKEN_PARAM)
            return query_fail(p, &name, "$name: value or }");
        query_advance(p);
        int rc = query_expect(p, TOKEN_COLON, "a colon behind the attribute's name");
        if (rc < 0)
            return rc;
        const struct token value = p->token;
        if (value.kind != TOKEN_WORD && value.kind != TOKEN_NUMBER && value.kind != TOKEN_PARAM &&
            value.kind != TOKEN_QUOTED)
            return query_fail(p, &value, "the attribute's value");
        rc = query_token_text(p, &value, &text);
        if (rc == 0)
            rc = set_attribute(p, node ? node : &nothing, &near, named, &name, &text);
        if (rc < 0)
            return rc;
        query_advance(p);
        if (p->token.kind != TOKEN_SEMICOLON && p->token.kind != TOKEN_RIGHT_BRACE)
            return query_fail(p, &p->token, "; or } behind the attribute's value");
    }
    query_advance(p);
    return node && near.given ? query_near(p, node, &start, near.slop, near.in_order) : 0;
}

int query_attributes(struct parser *p, struct query_node *node)
{
    assert(p->token.kind == TOKEN_LEFT_BRACE);
    return parse_attributes(p, node, node && node->distance_as.bytes > 0);
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

/* $vector: the bytes of a field's elements. */
static int parse_vector(struct parser *p, const struct schema_field *field, struct query_node *node)
{
    const struct query_param *param;
    if (p->token.kind != TOKEN_PARAM)
        return query_fail(p, &p->token, "$param, which holds the vector");
    int rc = query_param_find(p, &p->token, &param);
    if (rc < 0)
        return rc;
    size_t expected = field->vector.dim * schema_element_bytes(field->vector.element);
    if (param->value.bytes != expected)
        return error_set(p->err, QUIRE_EPARSE,
                         "Error parsing vector similarity query: query vector blob size (%u) does not match index's "
                         "expected size (%zu). (Parameter `%.*s` at offset %u)",
                         param->value.bytes, expected, p->token.bytes < 40 ? (int)p->token.bytes : 40, p->token.text,
                         p->token.at);
    if (!schema_elements_are_finite(field->vector.element, param->value.data, field->vector.dim))
        return error_set(p->err, QUIRE_EPARSE,
                         "Error parsing vector similarity query: the vector holds NaN or infinity (Parameter `%.*s` at "
                         "offset %u)",
                         p->token.bytes < 40 ? (int)p->token.bytes : 40, p->token.text, p->token.at);
    if ((rc = query_copy(p, p->token.text, p->token.bytes, &node->vector_name)) < 0)
        return rc;
    node->field = field;
    node->vector = param->value.data;
    node->vector_bytes = param->value.bytes;
    query_advance(p);
    return 0;
}

int query_range(struct parser *p, const struct token *name, const struct schema_field *field, struct query_node **out)
{
    struct token token;
    double radius;
    query_advance(p);
    int rc = query_field_type(p, name, field, SCHEMA_VECTOR);
    if (rc < 0 || (rc = query_value(p, &radius, &token)) < 0)
        return rc;
    if (radius < 0)
        return error_set(p->err, QUIRE_EPARSE,
                         "Error parsing vector similarity query: negative radius (%g) given in a range query at offset "
                         "%u",
                         radius, token.at);
    if ((rc = query_node_make(p, QUERY_RANGE, out)) < 0 || (rc = parse_vector(p, field, *out)) < 0)
        return rc;
    (*out)->radius = radius;
    return query_expect(p, TOKEN_RIGHT_BRACKET, "] behind VECTOR_RANGE radius $vector");
}

/* k: digits or a parameter. */
static int parse_k(struct parser *p, uint32_t *k)
{
    const struct token t = p->token;
    struct query_text text;
    if (t.kind != TOKEN_NUMBER && t.kind != TOKEN_PARAM)
        return query_fail(p, &t, "the number of neighbours behind KNN, or $param");
    int rc = query_token_text(p, &t, &text);
    if (rc < 0)
        return rc;
    if (!count_of(&text, QUERY_KNN_MAX, k)) {
        const struct query_text name = {"K", 1};
        return bad_value(p, &t, &text, &name);
    }
    query_advance(p);
    return 0;
}

/* Pairs of a name and a value, then AS name. */
static int parse_knn_options(struct parser *p, struct query_node *node, bool *named)
{
    while (p->token.kind == TOKEN_WORD || p->token.kind == TOKEN_QUOTED) {
        const struct token option = p->token;
        const struct query_text name = {option.text, option.bytes};
        struct query_text value;
        bool known = true, as = query_token_is(&option, "AS");
        query_advance(p);
        const struct token t = p->token;
        if (t.kind != TOKEN_WORD && t.kind != TOKEN_NUMBER && t.kind != TOKEN_PARAM && t.kind != TOKEN_QUOTED)
            return query_fail(p, &t, as ? "a name behind AS" : "a value behind the name of an option");
        int rc = query_token_text(p, &t, &value);
        if (rc == 0 && as)
            rc = set_distance_name(p, node, &t, *named, &value);
        else if (rc == 0)
            rc = set_vector_attribute(p, node, &option, &name, &value, &known);
        if (rc == 0 && !known)
            return query_fail_as(p, &option, "Error parsing vector similarity parameters: Invalid option", "");
        if (rc < 0)
            return rc;
        *named = *named || as;
        query_advance(p);
    }
    return 0;
}

static int default_name(struct parser *p, struct query_node *node)
{
    const struct schema_field *f = node->field;
    char *name = arena_take(&p->query->arena, f->name_bytes + sizeof "___score");
    if (!name)
        return query_fail_memory(p);
    memcpy(name, "__", 2);
    memcpy(name + 2, f->name, f->name_bytes);
    memcpy(name + 2 + f->name_bytes, "_score", 6);
    node->distance_as = (struct query_text){name, f->name_bytes + 8};
    return 0;
}

/* KNN k @field $vector */
static int parse_knn(struct parser *p, struct query_node *node)
{
    const struct schema_field *field;
    if (!query_token_is(&p->token, "KNN"))
        return query_fail(p, &p->token, "KNN (Vector Similarity command)");
    query_advance(p);
    int rc = parse_k(p, &node->k);
    if (rc < 0)
        return rc;
    if (p->token.kind != TOKEN_FIELD)
        return query_fail(p, &p->token, "@field of vectors");
    if ((rc = query_field_find(p, &p->token, &field)) < 0 ||
        (rc = query_field_type(p, &p->token, field, SCHEMA_VECTOR)) < 0)
        return rc;
    query_advance(p);
    return parse_vector(p, field, node);
}

int query_knn(struct parser *p, struct query_node *filter, struct query_node **out)
{
    struct query_node *node;
    bool named = false;
    int rc = query_expect(p, TOKEN_LEFT_BRACKET, "[KNN ...] or {attributes} behind =>");
    if (rc == 0 && !filter)
        rc = query_node_make(p, QUERY_ALL, &filter);
    if (rc < 0 || (rc = query_node_join(p, QUERY_KNN, &filter, 1, &node)) < 0 || (rc = parse_knn(p, node)) < 0 ||
        (rc = parse_knn_options(p, node, &named)) < 0 ||
        (rc = query_expect(p, TOKEN_RIGHT_BRACKET, "an option, AS name or ]")) < 0)
        return rc;
    if (p->token.kind == TOKEN_ARROW) {
        query_advance(p);
        if (p->token.kind != TOKEN_LEFT_BRACE)
            return query_fail(p, &p->token, "{attributes}");
        if ((rc = parse_attributes(p, node, named)) < 0)
            return rc;
    }
    if (p->token.kind != TOKEN_END)
        return query_fail(p, &p->token, "the end behind =>[KNN ...]");
    if (node->distance_as.bytes == 0 && (rc = default_name(p, node)) < 0)
        return rc;
    *out = node;
    return 0;
}
