/*
 * query_parse.c - expressions: alternatives of sequences of operands.
 *
 *     query    = [ "*" | either ] [ "=>" "[" knn "]" [ "=>" "{" attributes "}" ] ]
 *     either   = all { "|" all }
 *     all      = operand { operand }
 *     operand  = ( "-" | "~" ) operand | primary { "=>" "{" attributes "}" }
 *     primary  = "(" either ")" | "@" field ... | "ismissing" "(" "@" field ")" | word | "text" | $param | wo* | *rd |
 *                *or* | w'w?rd' | %wrod%
 *
 * This is what RediSearch's LALR grammar (DIALECT 2) accepts, read by descent: a function for each line. Descent is
 * bounded by QUERY_DEPTH_MAX; a row of equal signs ("---a") takes no level. What stands in front of
 * =>[KNN ...], all of it, is its filter, with parentheses or without: @langchain/redis sends none.
 *
 * What stands for nothing (a stop word, a word of punctuation) is a NULL node, which AND, OR, NOT and OPTIONAL leave
 * out; a query of nothing else finds nothing.
 *
 * AND in AND and OR in OR are made flat, so the depth of a tree is bounded by the signs and parentheses of its text:
 * per level at most an OR, an AND and a NOT.
 */
#include "document/query/query_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define AN_OPERAND                                                                                                     \
    "a word, \"text\", (, -, ~, @field:, %word% or $param; a backslash in front of punctuation makes it a part of a "  \
    "word"

static int parse_either(struct parser *p, struct query_node **out);

void query_advance(struct parser *p)
{
    p->token = query_token(p->text, p->bytes, p->token.end);
}

struct token query_peek(const struct parser *p)
{
    return query_token(p->text, p->bytes, p->token.end);
}

int query_expect(struct parser *p, enum token_kind kind, const char *what)
{
    if (p->token.kind != kind)
        return query_fail(p, &p->token, what);
    query_advance(p);
    return 0;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

static bool is_plain(const struct query_node *node)
{
    return node->weight == 1 && node->slop == -1 && !node->in_order;
}

/* The children of the node at waiting[i] take its place. */
static int unfold(struct parser *p, uint32_t i)
{
    const struct query_node *node = p->waiting[i];
    uint32_t behind = p->n_waiting - i - 1;
    for (uint32_t c = 1; c < node->n_children; c++) {
        int rc = query_node_wait(p, NULL);
        if (rc < 0)
            return rc;
    }
    memmove(p->waiting + i + node->n_children, p->waiting + i + 1, behind * sizeof p->waiting[0]);
    memcpy(p->waiting + i, node->children, node->n_children * sizeof p->waiting[0]);
    return 0;
}

/* One node for those that wait from `base` on; NULL for none. */
static int join(struct parser *p, enum query_kind kind, uint32_t base, struct query_node **out)
{
    *out = p->n_waiting > base ? p->waiting[base] : NULL;
    if (p->n_waiting - base > 1) {
        for (uint32_t i = base; i < p->n_waiting; i++) {
            const struct query_node *node = p->waiting[i];
            bool same = node->kind == kind && is_plain(node) && node->text_fields == p->text_fields;
            int rc = same ? unfold(p, i) : 0;
            if (rc < 0)
                return rc;
            i += same ? node->n_children - 1 : 0;
        }
        int rc = query_node_join(p, kind, p->waiting + base, p->n_waiting - base, out);
        if (rc < 0)
            return rc;
    }
    p->n_waiting = base;
    return 0;
}

static int make_not(struct parser *p, struct query_node *node, struct query_node **out)
{
    if (!node || node->kind != QUERY_NOT)
        return node ? query_node_join(p, QUERY_NOT, &node, 1, out) : 0;
    *out = node->children[0];
    return 0;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static bool begins_operand(enum token_kind kind)
{
    switch (kind) {
    case TOKEN_WORD:
    case TOKEN_NUMBER:
    case TOKEN_PARAM:
    case TOKEN_FIELD:
    case TOKEN_QUOTED:
    case TOKEN_PREFIX:
    case TOKEN_SUFFIX:
    case TOKEN_INFIX:
    case TOKEN_WILDCARD:
    case TOKEN_LEFT_PARENTHESIS:
    case TOKEN_MINUS:
    case TOKEN_TILDE:
    case TOKEN_PERCENT:
        return true;
    default:
        return false;
    }
}

/* The empty text, "", which only fields with INDEXEMPTY have. */
static int parse_empty(struct parser *p, struct query_node **out)
{
    const struct schema *s = p->context->schema;
    bool any = p->text_fields == p->all_fields;
    for (uint32_t i = 0; i < s->n_fields && !any; i++)
        any = s->fields[i].type == SCHEMA_TEXT && s->fields[i].index_empty &&
              (p->text_fields >> s->fields[i].text_bit & 1);
    if (!any)
        return query_fail_as(p, &p->token,
                             "Use `INDEXEMPTY` in field creation in order to index and query for empty strings", "");
    int rc = query_node_make(p, QUERY_TERM, out);
    if (rc == 0)
        rc = query_copy(p, "", 0, &(*out)->text);
    query_advance(p);
    return rc;
}

static int parse_words(struct parser *p, struct query_node **out)
{
    const struct token t = p->token;
    struct query_text text;
    int rc = query_token_text(p, &t, &text);
    bool negative = t.kind == TOKEN_NUMBER && t.text[0] == '-';
    bool stems = t.kind == TOKEN_WORD || t.kind == TOKEN_PARAM;
    if (rc == 0)
        rc = query_words(p, text.data, text.bytes, stems, out);
    query_advance(p);
    return rc == 0 && negative ? make_not(p, *out, out) : rc;
}

static int parse_fuzzy(struct parser *p, struct query_node **out)
{
    uint32_t distance = 0, closed = 0;
    struct query_text text;
    for (; p->token.kind == TOKEN_PERCENT && distance < 3; distance++)
        query_advance(p);
    const struct token t = p->token;
    bool named = t.kind == TOKEN_WORD || t.kind == TOKEN_NUMBER || t.kind == TOKEN_PARAM || t.kind == TOKEN_QUOTED;
    if (!named || t.bytes == 0)
        return query_fail(p, &t, "a word behind one, two or three percent signs");
    query_advance(p);
    for (; p->token.kind == TOKEN_PERCENT && closed < distance; closed++)
        query_advance(p);
    if (closed < distance)
        return query_fail(p, &p->token, "as many percent signs behind the word as in front of it");
    int rc = query_token_text(p, &t, &text);
    if (rc < 0 || (rc = query_node_make(p, QUERY_FUZZY, out)) < 0)
        return rc;
    (*out)->distance = distance;
    return query_unescape_fold(p, text.data, text.bytes, &(*out)->text);
}

static int parse_parentheses(struct parser *p, struct query_node **out)
{
    int rc = query_enter(p);
    if (rc < 0)
        return rc;
    query_advance(p);
    rc = parse_either(p, out);
    p->depth--;
    return rc < 0 ? rc : query_expect(p, TOKEN_RIGHT_PARENTHESIS, "an operand or )");
}

static int parse_primary(struct parser *p, struct query_node **out)
{
    *out = NULL;
    switch (p->token.kind) {
    case TOKEN_LEFT_PARENTHESIS:
        return parse_parentheses(p, out);
    case TOKEN_FIELD:
        if (p->in_field)
            return query_fail(p, &p->token, "no other field inside @field:(...)");
        return query_field(p, out);
    case TOKEN_WORD:
        if (p->token.bytes == 0)
            return parse_empty(p, out);
        if (!p->in_field && query_token_is(&p->token, "ismissing") && query_peek(p).kind == TOKEN_LEFT_PARENTHESIS)
            return query_missing(p, out);
        return parse_words(p, out);
    case TOKEN_NUMBER:
    case TOKEN_PARAM:
    case TOKEN_QUOTED:
        return parse_words(p, out);
    case TOKEN_PREFIX:
    case TOKEN_SUFFIX:
    case TOKEN_INFIX:
    case TOKEN_WILDCARD: {
        int rc = query_affix(p, &p->token, true, out);
        query_advance(p);
        return rc;
    }
    case TOKEN_PERCENT:
        return parse_fuzzy(p, out);
    case TOKEN_APOSTROPHE:
        return query_fail(p, &p->token, "no second apostrophe: write a backslash in front of an apostrophe in a word");
    case TOKEN_STAR:
        return query_fail(p, &p->token,
                          "an operand: a * that stands alone is a whole query, or the filter of =>[KNN ...]");
    default:
        return query_fail(p, &p->token, AN_OPERAND);
    }
}

/* -operand and ~operand. Equal signs in a row are counted, so that they take one level. */
static int parse_signed(struct parser *p, struct query_node **out)
{
    const enum token_kind sign = p->token.kind;
    struct query_node *node = NULL;
    uint32_t n = 0;
    int rc = query_enter(p);
    if (rc < 0)
        return rc;
    for (; p->token.kind == sign; n++)
        query_advance(p);
    rc = query_term(p, &node);
    p->depth--;
    *out = node;
    if (rc < 0 || !node)
        return rc;
    if (sign == TOKEN_MINUS)
        return n % 2 == 1 ? make_not(p, node, out) : 0;
    return node->kind == QUERY_OPTIONAL ? 0 : query_node_join(p, QUERY_OPTIONAL, &node, 1, out);
}

int query_term(struct parser *p, struct query_node **out)
{
    bool is_signed = p->token.kind == TOKEN_MINUS || p->token.kind == TOKEN_TILDE;
    *out = NULL;
    if (is_signed)
        return parse_signed(p, out);
    int rc = parse_primary(p, out);
    while (rc == 0 && p->token.kind == TOKEN_ARROW && query_peek(p).kind == TOKEN_LEFT_BRACE) {
        query_advance(p);
        rc = query_attributes(p, *out);
    }
    return rc;
}

static int parse_all(struct parser *p, struct query_node **out)
{
    uint32_t base = p->n_waiting;
    do {
        struct query_node *node;
        int rc = query_term(p, &node);
        if (rc == 0 && node)
            rc = query_node_wait(p, node);
        if (rc < 0)
            return rc;
    } while (begins_operand(p->token.kind));
    return join(p, QUERY_AND, base, out);
}

static int parse_either(struct parser *p, struct query_node **out)
{
    uint32_t base = p->n_waiting;
    struct query_node *node;
    int rc = parse_all(p, &node);
    if (rc == 0 && node)
        rc = query_node_wait(p, node);
    while (rc == 0 && p->token.kind == TOKEN_OR) {
        query_advance(p);
        rc = parse_all(p, &node);
        if (rc == 0 && node)
            rc = query_node_wait(p, node);
    }
    return rc < 0 ? rc : join(p, QUERY_OR, base, out);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* "*", "(*)", "((*))" at the beginning: takes it. */
static bool take_star(struct parser *p)
{
    struct token t = p->token;
    uint32_t open = 0;
    for (; t.kind == TOKEN_LEFT_PARENTHESIS; open++)
        t = query_token(p->text, p->bytes, t.end);
    if (t.kind != TOKEN_STAR)
        return false;
    t = query_token(p->text, p->bytes, t.end);
    for (; open > 0 && t.kind == TOKEN_RIGHT_PARENTHESIS; open--)
        t = query_token(p->text, p->bytes, t.end);
    if (open > 0 || (t.kind != TOKEN_END && t.kind != TOKEN_ARROW))
        return false;
    p->token = t;
    return true;
}

static int parse_query(struct parser *p, struct query_node **out)
{
    struct query_node *filter = NULL;
    if (p->token.kind == TOKEN_END)
        return query_node_make(p, QUERY_NONE, out);
    bool star = take_star(p);
    int rc = star ? query_node_make(p, QUERY_ALL, &filter) : parse_either(p, &filter);
    if (rc == 0 && p->token.kind == TOKEN_ARROW) {
        query_advance(p);
        return query_knn(p, filter, out);
    }
    if (rc == 0 && p->token.kind != TOKEN_END)
        return query_fail(p, &p->token, AN_OPERAND);
    if (rc == 0 && !filter)
        return query_node_make(p, QUERY_NONE, out);
    *out = filter;
    return rc;
}

/* SLOP and INORDER of the command: for every AND that says nothing itself. */
static int apply_near(struct parser *p, struct query_node *root)
{
    const struct token start = query_token(p->text, p->bytes, 0);
    int rc = query_node_wait(p, root);
    while (rc == 0 && p->n_waiting > 0) {
        struct query_node *node = p->waiting[--p->n_waiting];
        if (node->kind == QUERY_AND && is_plain(node))
            rc = query_near(p, node, &start, p->context->slop, p->context->in_order);
        for (uint32_t i = 0; rc == 0 && node->kind != QUERY_PHRASE && i < node->n_children; i++)
            rc = query_node_wait(p, node->children[i]);
    }
    return rc;
}

static int find_language(struct parser *p)
{
    const char *name = p->context->language ? p->context->language : p->context->schema->language;
    if (!name)
        return 0;
    p->language = text_language_find(name, strlen(name));
    if (p->language)
        return 0;
    return error_set(p->err, QUIRE_EPARSE, "No such language: %.40s (position %u); see LANGUAGE in docs/search.md",
                     name,
                     p->context->language ? p->context->language_position : p->context->schema->language_position);
}

static int parse_all_of(struct parser *p)
{
    const struct schema *s = p->context->schema;
    for (uint32_t i = 0; i < s->n_fields; i++)
        if (s->fields[i].type == SCHEMA_TEXT) {
            p->all_fields |= 1ull << s->fields[i].text_bit;
            p->stem_fields |= (uint64_t)!s->fields[i].no_stem << s->fields[i].text_bit;
        }
    p->text_fields = p->all_fields;
    p->token = query_token(p->text, p->bytes, 0);
    int rc = find_language(p);
    if (rc < 0 || (rc = parse_query(p, &p->query->root)) < 0)
        return rc;
    assert(p->query->root && p->n_waiting == 0 && p->depth == 0);
    return p->context->slop >= 0 || p->context->in_order ? apply_near(p, p->query->root) : 0;
}

int query_parse(const struct query_context *context, const char *text, size_t bytes, struct query **out,
                struct quire_error *err)
{
    if (bytes > QUERY_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "The query has %zu bytes, the limit is %u: pass long values as PARAMS",
                         bytes, QUERY_BYTES_MAX);
    struct query *query = calloc(1, sizeof *query);
    if (!query)
        return error_set(err, QUIRE_ENOMEM, "no memory for the query's tree");
    struct parser p = {.context = context, .text = text, .bytes = (uint32_t)bytes, .query = query, .err = err};
    int rc = parse_all_of(&p);
    free(p.waiting);
    if (rc < 0) {
        query_free(query);
        return rc;
    }
    *out = query;
    return 0;
}

void query_free(struct query *query)
{
    if (!query)
        return;
    arena_fini(&query->arena);
    free(query);
}

const struct query_node *query_root(const struct query *query)
{
    return query->root;
}
