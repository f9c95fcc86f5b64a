/*
 * query_field.c - what a query says of one field: @name:word, @a|b:(words), {tags}, [low high], [lon lat radius unit],
 * *, comparisons (@name>=5), ismissing(@name).
 *
 * A name ends where a word ends. Clients send names with dots as they are ("@metadata.genre:{x}"), although RediSearch
 * wants the dot escaped; where the schema has such a field the dots belong to the name, otherwise they are skipped as
 * everywhere else, which leaves a syntax error.
 *
 * @name:* and -@name:* are not in RediSearch. Bifrost sends them for "has the field" and "has it not".
 */
#include "document/query/query_priv.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NAME_DOTS_MAX 16u

static const char *const type_names[] = {
    [SCHEMA_TEXT] = "TEXT", [SCHEMA_TAG] = "TAG",       [SCHEMA_NUMERIC] = "NUMERIC",
    [SCHEMA_GEO] = "GEO",   [SCHEMA_VECTOR] = "VECTOR",
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* The field of this name, escaped as in the query. */
static int find_name(struct parser *p, const char *name, uint32_t bytes, const struct schema_field **out)
{
    struct query_text plain;
    int rc = query_unescape(p, name, bytes, &plain);
    if (rc == 0)
        *out = schema_find(p->context->schema, plain.data, plain.bytes);
    return rc;
}

int query_field_find(struct parser *p, struct token *token, const struct schema_field **out)
{
    const struct schema_field *found = NULL;
    int rc = find_name(p, token->text, token->bytes, &found);
    uint32_t start = (uint32_t)(token->text - p->text), end = token->end, dots = 0;
    for (; rc == 0 && end < p->bytes && p->text[end] == '.' && dots < NAME_DOTS_MAX; dots++) {
        const struct schema_field *longer = NULL;
        uint32_t next = query_word_end(p->text, p->bytes, end + 1);
        if (next == end + 1)
            break;
        end = next;
        rc = find_name(p, token->text, end - start, &longer);
        if (rc < 0 || !longer)
            continue;
        found = longer;
        token->end = end;
        token->bytes = end - start;
    }
    if (rc < 0)
        return rc;
    if (!found)
        return query_fail_as(p, token, "Unknown field", "");
    if (found->no_index)
        return query_fail_as(p, token, "Field is declared NOINDEX and cannot be searched", "");
    *out = found;
    return 0;
}

int query_field_type(struct parser *p, const struct token *token, const struct schema_field *field,
                     enum schema_type type)
{
    char expected[32];
    if (field->type == type)
        return 0;
    snprintf(expected, sizeof expected, "Expected a %s field", type_names[type]);
    return query_fail_as(p, token, expected, "");
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static int param_value(struct parser *p, const struct token *token, double *out)
{
    const struct query_param *param;
    int rc = query_param_find(p, token, &param);
    if (rc < 0)
        return rc;
    if (query_number(param->value.data, param->value.bytes, out))
        return 0;
    int shown = param->value.bytes < 40 ? (int)param->value.bytes : 40;
    for (int i = 0; i < shown; i++)
        if ((unsigned char)param->value.data[i] < ' ')
            shown = i;
    return error_set(p->err, QUIRE_EPARSE, "Invalid numeric value (%.*s) for parameter `%.*s` at offset %u", shown,
                     param->value.data, token->bytes < 40 ? (int)token->bytes : 40, token->text, token->at);
}

int query_value(struct parser *p, double *out, struct token *first)
{
    bool negative = false;
    double value;
    *first = p->token;
    for (; p->token.kind == TOKEN_MINUS; negative = !negative)
        query_advance(p);
    int rc = 0;
    if (p->token.kind == TOKEN_PARAM)
        rc = param_value(p, &p->token, &value);
    else if (p->token.kind != TOKEN_NUMBER || !query_number(p->token.text, p->token.bytes, &value))
        return query_fail(p, &p->token, "a number, inf, -inf or $param");
    if (rc < 0)
        return rc;
    *out = negative ? -value : value;
    query_advance(p);
    return 0;
}

struct bound {
    double value;
    bool open;
    struct token token;
};

/* [(]value; a parameter may bring the parenthesis along. */
static int parse_bound(struct parser *p, struct bound *out)
{
    out->open = p->token.kind == TOKEN_LEFT_PARENTHESIS;
    if (out->open)
        query_advance(p);
    out->token = p->token;
    if (p->token.kind == TOKEN_PARAM) {
        const struct query_param *param;
        int rc = query_param_find(p, &p->token, &param);
        if (rc < 0)
            return rc;
        const char *text = param->value.data;
        if (param->value.bytes > 1 && text[0] == '(' && query_number(text + 1, param->value.bytes - 1, &out->value)) {
            out->open = true;
            query_advance(p);
            return 0;
        }
    }
    return query_value(p, &out->value, &out->token);
}

static int make_numeric(struct parser *p, const struct schema_field *field, double low, double high,
                        struct query_node **out)
{
    int rc = query_node_make(p, QUERY_NUMERIC, out);
    if (rc < 0)
        return rc;
    (*out)->field = field;
    (*out)->low = low;
    (*out)->high = high;
    return 0;
}

static int parse_unit(struct parser *p, double *metres)
{
    static const struct {
        const char *name;
        double metres;
    } units[] = {{"m", 1}, {"km", 1000}, {"mi", 1609.34}, {"ft", .3048}};
    const struct token t = p->token;
    struct query_text text;
    if (t.kind != TOKEN_WORD && t.kind != TOKEN_PARAM)
        return query_fail(p, &t, "a unit: m, km, mi or ft");
    int rc = query_token_text(p, &t, &text);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == text.bytes && strncasecmp(units[i].name, text.data, text.bytes) == 0) {
            *metres = units[i].metres;
            query_advance(p);
            return 0;
        }
    return query_fail_as(p, &t, "Invalid GeoFilter unit", ": expected m, km, mi or ft");
}

/* Behind [longitude latitude. */
static int parse_geo(struct parser *p, const struct token *name, const struct schema_field *field,
                     const struct bound bounds[2], struct query_node **out)
{
    double radius = 0, metres = 1;
    struct token token;
    int rc = query_field_type(p, name, field, SCHEMA_GEO);
    if (rc < 0 || (rc = query_value(p, &radius, &token)) < 0 || (rc = parse_unit(p, &metres)) < 0)
        return rc;
    if (bounds[0].open || bounds[1].open)
        return query_fail(p, &bounds[0].token, "no ( inside [longitude latitude radius unit]");
    if (!(bounds[0].value >= -180 && bounds[0].value <= 180 && bounds[1].value >= -90 && bounds[1].value <= 90))
        return query_fail_as(p, &bounds[0].token, "Invalid GeoFilter lat/lon",
                             ": a longitude is from -180 to 180, a latitude from -90 to 90, in this order");
    if (!(radius > 0) || radius > DBL_MAX)
        return query_fail_as(p, &token, "Invalid GeoFilter radius", ": expected a number above 0");
    if ((rc = query_node_make(p, QUERY_GEO, out)) < 0)
        return rc;
    (*out)->field = field;
    (*out)->longitude = bounds[0].value;
    (*out)->latitude = bounds[1].value;
    (*out)->radius_m = radius * metres;
    return query_expect(p, TOKEN_RIGHT_BRACKET, "] behind the unit");
}

static int parse_interval(struct parser *p, const struct token *name, const struct schema_field *field,
                          const struct bound bounds[2], struct query_node **out)
{
    int rc = query_field_type(p, name, field, SCHEMA_NUMERIC);
    if (rc < 0)
        return rc;
    if (bounds[0].value > bounds[1].value)
        return error_set(p->err, QUIRE_EPARSE, "Invalid numeric range (min > max): @%.64s:[%f %f] at offset %u",
                         field->name, bounds[0].value, bounds[1].value, bounds[0].token.at);
    if ((rc = make_numeric(p, field, bounds[0].value, bounds[1].value, out)) < 0)
        return rc;
    (*out)->low_open = bounds[0].open;
    (*out)->high_open = bounds[1].open;
    assert(p->token.kind == TOKEN_RIGHT_BRACKET);
    query_advance(p);
    return 0;
}

/* Behind @name: at [. */
static int parse_brackets(struct parser *p, const struct token *name, const struct schema_field *field,
                          struct query_node **out)
{
    struct bound bounds[2] = {{.value = 0}};
    query_advance(p);
    if (query_token_is(&p->token, "VECTOR_RANGE"))
        return query_range(p, name, field, out);
    if (p->token.kind == TOKEN_WORD)
        return query_fail(p, &p->token, "numbers or VECTOR_RANGE (there are no geometric shapes)");
    int rc = parse_bound(p, &bounds[0]);
    if (rc < 0)
        return rc;
    if (p->token.kind == TOKEN_RIGHT_BRACKET && !bounds[0].open) {
        bounds[1] = bounds[0];
        return parse_interval(p, name, field, bounds, out);
    }
    if ((rc = parse_bound(p, &bounds[1])) < 0)
        return rc;
    if (p->token.kind == TOKEN_NUMBER || p->token.kind == TOKEN_MINUS || p->token.kind == TOKEN_PARAM)
        return parse_geo(p, name, field, bounds, out);
    if (p->token.kind != TOKEN_RIGHT_BRACKET)
        return query_fail(p, &p->token, "] behind two numbers, or a radius and a unit");
    return parse_interval(p, name, field, bounds, out);
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

enum comparison { NO_COMPARISON, EQUAL, UNEQUAL, GREATER_EQUAL, LESS_EQUAL, GREATER, LESS };

/* The operator behind a name, which are no tokens; *at becomes where it ends. */
static enum comparison find_comparison(const struct parser *p, uint32_t *at)
{
    static const char signs[][3] = {
        [EQUAL] = "==", [UNEQUAL] = "!=", [GREATER_EQUAL] = ">=", [LESS_EQUAL] = "<=", [GREATER] = ">", [LESS] = "<"};
    uint32_t i = *at;
    while (i < p->bytes && isspace((unsigned char)p->text[i]))
        i++;
    for (enum comparison c = EQUAL; c <= LESS; c++) {
        uint32_t n = (uint32_t)strlen(signs[c]);
        if (p->bytes - i >= n && memcmp(p->text + i, signs[c], n) == 0) {
            *at = i + n;
            return c;
        }
    }
    return NO_COMPARISON;
}

static int parse_comparison(struct parser *p, const struct token *name, const struct schema_field *field,
                            enum comparison comparison, uint32_t end, struct query_node **out)
{
    struct token first;
    struct query_node *node = NULL;
    double value = 0;
    int rc = query_field_type(p, name, field, SCHEMA_NUMERIC);
    if (rc < 0)
        return rc;
    p->token = query_token(p->text, p->bytes, end);
    if ((rc = query_value(p, &value, &first)) < 0)
        return rc;
    bool above = comparison == GREATER || comparison == GREATER_EQUAL;
    bool below = comparison == LESS || comparison == LESS_EQUAL;
    if ((rc = make_numeric(p, field, below ? -INFINITY : value, above ? INFINITY : value, &node)) < 0)
        return rc;
    node->low_open = comparison == GREATER;
    node->high_open = comparison == LESS;
    *out = node;
    return comparison == UNEQUAL ? query_node_join(p, QUERY_NOT, &node, 1, out) : 0;
}

/* ---- tags -------------------------------------------------------------------------------------------------------- */

static bool is_tag_word(const struct token *t)
{
    return t->kind == TOKEN_WORD || t->kind == TOKEN_NUMBER || t->kind == TOKEN_PARAM || t->kind == TOKEN_QUOTED;
}

/* One value: its words with a blank between them; a number that follows without a blank ("2024-05-01") goes on. */
static int parse_tag_words(struct parser *p, struct query_node **out)
{
    struct query_text all = {0};
    uint32_t end = p->token.at;
    for (bool first = true; is_tag_word(&p->token); first = false) {
        struct query_text piece, joined;
        bool glued = p->token.kind == TOKEN_NUMBER && p->token.at == end;
        int rc = query_token_text(p, &p->token, &piece);
        if (rc == 0)
            rc = query_unescape(p, piece.data, piece.bytes, &piece);
        if (rc < 0)
            return rc;
        uint64_t bytes = (uint64_t)all.bytes + piece.bytes + 1;
        if (bytes > QUERY_BYTES_MAX && !first)
            return error_set(p->err, QUIRE_ELIMIT, "The tag at offset %u has more than %u bytes", p->token.at,
                             QUERY_BYTES_MAX);
        if (!first) {
            char *data = arena_take(&p->query->arena, bytes);
            if (!data)
                return query_fail_memory(p);
            memcpy(data, all.data, all.bytes);
            data[all.bytes] = ' ';
            memcpy(data + all.bytes + !glued, piece.data, piece.bytes);
            joined = (struct query_text){data, all.bytes + !glued + piece.bytes};
        }
        all = first ? piece : joined;
        end = p->token.end;
        query_advance(p);
    }
    int rc = query_node_make(p, QUERY_TERM, out);
    if (rc == 0)
        (*out)->text = all;
    return rc;
}

static int parse_tag(struct parser *p, const struct schema_field *field, struct query_node **out)
{
    const struct token t = p->token;
    int rc;
    if (t.kind >= TOKEN_PREFIX && t.kind <= TOKEN_WILDCARD) {
        rc = query_affix(p, &t, false, out);
        query_advance(p);
    } else if (is_tag_word(&t)) {
        rc = parse_tag_words(p, out);
    } else {
        return query_fail(p, &t, "a tag; a backslash goes in front of punctuation in it");
    }
    assert(rc < 0 || *out);
    if (rc == 0 && (*out)->text.bytes == 0 && !field->index_empty)
        return query_fail_as(p, &t, "Use `INDEXEMPTY` in field creation in order to index and query for empty strings",
                             "");
    return rc;
}

/* At {. */
static int parse_tags(struct parser *p, const struct token *name, const struct schema_field *field,
                      struct query_node **out)
{
    uint32_t base = p->n_waiting;
    int rc = query_field_type(p, name, field, SCHEMA_TAG);
    if (rc < 0)
        return rc;
    do {
        struct query_node *node = NULL;
        query_advance(p);
        rc = parse_tag(p, field, &node);
        if (rc == 0)
            rc = query_node_wait(p, node);
        if (rc < 0)
            return rc;
    } while (p->token.kind == TOKEN_OR);
    rc = query_node_join(p, QUERY_TAG, p->waiting + base, p->n_waiting - base, out);
    if (rc < 0)
        return rc;
    (*out)->field = field;
    p->n_waiting = base;
    return query_expect(p, TOKEN_RIGHT_BRACE, "| or }; a backslash goes in front of punctuation in a tag");
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* The fields of "@a|b|c" behind the first one. */
static int parse_more_names(struct parser *p, uint64_t *fields)
{
    while (p->token.kind == TOKEN_OR) {
        const struct schema_field *field;
        query_advance(p);
        if (p->token.kind != TOKEN_WORD && p->token.kind != TOKEN_NUMBER)
            return query_fail(p, &p->token, "another field's name, without @");
        int rc = query_field_find(p, &p->token, &field);
        if (rc < 0 || (rc = query_field_type(p, &p->token, field, SCHEMA_TEXT)) < 0)
            return rc;
        *fields |= 1ull << field->text_bit;
        query_advance(p);
    }
    return 0;
}

/* What is to be found in these TEXT fields. */
static int parse_text(struct parser *p, uint64_t fields, struct query_node **out)
{
    int rc = query_enter(p);
    if (rc < 0)
        return rc;
    p->text_fields = fields;
    p->in_field = true;
    rc = query_term(p, out);
    p->in_field = false;
    p->text_fields = p->all_fields;
    p->depth--;
    return rc;
}

/* @name:* */
static int make_present(struct parser *p, const struct schema_field *field, struct query_node **out)
{
    struct query_node *missing;
    int rc = query_node_make(p, QUERY_MISSING, &missing);
    if (rc < 0)
        return rc;
    missing->field = field;
    return query_node_join(p, QUERY_NOT, &missing, 1, out);
}

int query_field(struct parser *p, struct query_node **out)
{
    const struct schema_field *field;
    int rc = query_field_find(p, &p->token, &field);
    if (rc < 0)
        return rc;
    const struct token name = p->token;
    uint32_t end = name.end;
    enum comparison comparison = find_comparison(p, &end);
    if (comparison != NO_COMPARISON)
        return parse_comparison(p, &name, field, comparison, end, out);
    query_advance(p);
    uint64_t fields = field->type == SCHEMA_TEXT ? 1ull << field->text_bit : 0;
    bool several = p->token.kind == TOKEN_OR;
    if (several && (rc = query_field_type(p, &name, field, SCHEMA_TEXT)) < 0)
        return rc;
    if ((rc = parse_more_names(p, &fields)) < 0 ||
        (rc = query_expect(p, TOKEN_COLON, "a colon or a comparison (==, !=, <, <=, >, >=) behind the field")) < 0)
        return rc;
    if (!several && p->token.kind == TOKEN_LEFT_BRACE)
        return parse_tags(p, &name, field, out);
    if (!several && p->token.kind == TOKEN_LEFT_BRACKET)
        return parse_brackets(p, &name, field, out);
    if (!several && p->token.kind == TOKEN_STAR) {
        query_advance(p);
        return make_present(p, field, out);
    }
    rc = query_field_type(p, &name, field, SCHEMA_TEXT);
    return rc < 0 ? rc : parse_text(p, fields, out);
}

int query_missing(struct parser *p, struct query_node **out)
{
    const struct schema_field *field = NULL;
    query_advance(p);
    query_advance(p);
    if (p->token.kind != TOKEN_FIELD)
        return query_fail(p, &p->token, "ismissing(@field)");
    int rc = query_field_find(p, &p->token, &field);
    if (rc < 0)
        return rc;
    assert(field);
    if (!field->index_missing)
        return query_fail_as(p, &p->token, "'ismissing' requires defining the field with 'INDEXMISSING'", "");
    if ((rc = query_node_make(p, QUERY_MISSING, out)) < 0)
        return rc;
    (*out)->field = field;
    query_advance(p);
    return query_expect(p, TOKEN_RIGHT_PARENTHESIS, ") behind ismissing(@field");
}
