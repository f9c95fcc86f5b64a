/*
 * query_node.c - nodes of the tree, and the strings, words and numbers in them.
 *
 * All of a tree lies in one arena. While a level of the grammar collects its operands they wait on a stack (`waiting`),
 * and are copied to the arena when the level is complete; so a tree has exact arrays and no operand is copied twice.
 */
#include "document/query/query_priv.h"
#include "document/text/fold.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NUMBER_BYTES_MAX 255u

int query_node_make(struct parser *p, enum query_kind kind, struct query_node **out)
{
    if (p->query->n_nodes >= QUERY_NODES_MAX)
        return error_set(p->err, QUIRE_ELIMIT,
                         "The query has more than %u parts at offset %u: ask for less in one query, or use a prefix",
                         QUERY_NODES_MAX, p->token.at);
    struct query_node *node = arena_take(&p->query->arena, sizeof *node);
    if (!node)
        return query_fail_memory(p);
    uint64_t allowed = p->context->text_fields ? p->context->text_fields : UINT64_MAX;
    *node = (struct query_node){
        .kind = kind, .weight = 1, .slop = -1, .epsilon = -1, .text_fields = p->text_fields & allowed};
    p->query->n_nodes++;
    *out = node;
    return 0;
}

int query_node_join(struct parser *p, enum query_kind kind, struct query_node *const *children, uint32_t n,
                    struct query_node **out)
{
    assert(n > 0);
    struct query_node **copy = arena_take(&p->query->arena, n * sizeof(struct query_node *));
    if (!copy)
        return query_fail_memory(p);
    int rc = query_node_make(p, kind, out);
    if (rc < 0)
        return rc;
    memcpy(copy, children, n * sizeof(struct query_node *));
    (*out)->children = copy;
    (*out)->n_children = n;
    return 0;
}

int query_node_wait(struct parser *p, struct query_node *node)
{
    if (!array_reserve(&p->waiting, &p->waiting_capacity, p->n_waiting + 1))
        return query_fail_memory(p);
    p->waiting[p->n_waiting++] = node;
    return 0;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static char *take_bytes(struct parser *p, uint64_t bytes)
{
    return arena_take(&p->query->arena, bytes > 0 ? bytes : 1);
}

int query_copy(struct parser *p, const char *text, uint32_t bytes, struct query_text *out)
{
    char *copy = take_bytes(p, bytes);
    if (!copy)
        return query_fail_memory(p);
    if (bytes > 0)
        memcpy(copy, text, bytes);
    *out = (struct query_text){copy, bytes};
    return 0;
}

static bool is_escapable(unsigned char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~') ||
           c == ' ' || (c >= '\t' && c <= '\r');
}

int query_unescape(struct parser *p, const char *text, uint32_t bytes, struct query_text *out)
{
    char *copy = take_bytes(p, bytes);
    uint32_t n = 0;
    if (!copy)
        return query_fail_memory(p);
    for (uint32_t i = 0; i < bytes; i++) {
        if (text[i] == '\\' && i + 1 < bytes && is_escapable((unsigned char)text[i + 1]))
            i++;
        copy[n++] = text[i];
    }
    *out = (struct query_text){copy, n};
    return 0;
}

static int fold(struct parser *p, struct query_text *text)
{
    char *folded = take_bytes(p, FOLD_ROOM(text->bytes));
    if (!folded)
        return query_fail_memory(p);
    text->bytes = fold_text(text->data, text->bytes, folded);
    text->data = folded;
    return 0;
}

int query_unescape_fold(struct parser *p, const char *text, uint32_t bytes, struct query_text *out)
{
    struct query_text plain;
    int rc = query_unescape(p, text, bytes, &plain);
    if (rc < 0 || (rc = fold(p, &plain)) < 0)
        return rc;
    *out = plain;
    return 0;
}

/* Of a wildcard pattern: every backslash goes, as in RediSearch, so a star or a question mark is always a wildcard. */
static int unescape_pattern(struct parser *p, const char *text, uint32_t bytes, struct query_text *out)
{
    char *copy = take_bytes(p, bytes);
    uint32_t n = 0;
    if (!copy)
        return query_fail_memory(p);
    for (uint32_t i = 0; i < bytes; i++) {
        if (text[i] == '\\' && i + 1 < bytes)
            i++;
        copy[n++] = text[i];
    }
    *out = (struct query_text){copy, n};
    return 0;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

int query_param_find(struct parser *p, const struct token *token, const struct query_param **out)
{
    const struct query_context *c = p->context;
    for (uint32_t i = 0; i < c->n_params; i++) {
        const struct query_param *param = &c->params[i];
        if (param->name.bytes == token->bytes && memcmp(param->name.data, token->text, token->bytes) == 0) {
            *out = param;
            return 0;
        }
    }
    int shown = token->bytes < 64 ? (int)token->bytes : 64;
    return error_set(p->err, QUIRE_EPARSE, "No such parameter `%.*s` (at offset %u): PARAMS must name it", shown,
                     token->text, token->at);
}

int query_token_text(struct parser *p, const struct token *token, struct query_text *out)
{
    const struct query_param *param = NULL;
    *out = (struct query_text){token->text, token->bytes};
    if (token->kind != TOKEN_PARAM && !token->is_param)
        return 0;
    int rc = query_param_find(p, token, &param);
    if (rc == 0)
        *out = param->value;
    return rc;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int make_word(struct parser *p, const struct text_word *word, struct query_node **out)
{
    int rc = query_node_make(p, QUERY_TERM, out);
    assert(rc < 0 || *out);
    if (rc < 0 || (rc = query_copy(p, word->text, word->bytes, &(*out)->text)) < 0)
        return rc;
    return word->stem ? query_copy(p, word->stem, word->stem_bytes, &(*out)->stem) : 0;
}

/* The words that wait from `base` on. */
static int join_words(struct parser *p, uint32_t base, struct query_node **out)
{
    uint32_t n = p->n_waiting - base;
    *out = n > 0 ? p->waiting[base] : NULL;
    if (n < 2)
        return 0;
    for (uint32_t i = base; i < p->n_waiting; i++)
        p->waiting[i]->stem = (struct query_text){0};
    int rc = query_node_join(p, QUERY_PHRASE, p->waiting + base, n, out);
    if (rc < 0)
        return rc;
    (*out)->slop = 0;
    (*out)->in_order = true;
    return 0;
}

int query_words(struct parser *p, const char *text, size_t bytes, bool stems, struct query_node **out)
{
    const struct text_rules rules = {.schema = p->context->schema,
                                     .language = p->language,
                                     .keep_stopwords = p->context->no_stopwords,
                                     .no_stems = !stems || p->context->verbatim || !(p->text_fields & p->stem_fields),
                                     .query = true};
    uint32_t base = p->n_waiting;
    struct text_words words;
    struct text_word word;
    struct query_node *node = NULL;
    int more, rc = 0;
    text_words_init(&words, &rules, text, bytes);
    while (rc == 0 && (more = text_words_next(&words, &word)) != 0) {
        rc = more < 0 ? query_fail_memory(p) : make_word(p, &word, &node);
        rc = rc < 0 ? rc : query_node_wait(p, node);
    }
    text_words_fini(&words);
    if (rc == 0)
        rc = join_words(p, base, out);
    p->n_waiting = base;
    return rc;
}

int query_affix(struct parser *p, const struct token *token, bool folded, struct query_node **out)
{
    static const enum query_kind kinds[] = {
        [TOKEN_PREFIX] = QUERY_PREFIX,
        [TOKEN_SUFFIX] = QUERY_SUFFIX,
        [TOKEN_INFIX] = QUERY_INFIX,
        [TOKEN_WILDCARD] = QUERY_WILDCARD,
    };
    struct query_text text;
    assert(token->kind >= TOKEN_PREFIX && token->kind <= TOKEN_WILDCARD);
    int rc = query_token_text(p, token, &text);
    if (rc == 0 && token->kind == TOKEN_WILDCARD)
        rc = unescape_pattern(p, text.data, text.bytes, &text);
    else if (rc == 0)
        rc = query_unescape(p, text.data, text.bytes, &text);
    if (rc == 0 && folded)
        rc = fold(p, &text);
    if (rc < 0)
        return rc;
    if (text.bytes == 0)
        return query_fail(p, token, "at least one character beside the star");
    rc = query_node_make(p, kinds[token->kind], out);
    if (rc == 0)
        (*out)->text = text;
    return rc;
}

bool query_number(const char *text, uint32_t bytes, double *out)
{
    char copy[NUMBER_BYTES_MAX + 1];
    uint32_t start = bytes > 0 && (text[0] == '+' || text[0] == '-') ? 1 : 0;
    if (bytes == start || bytes > NUMBER_BYTES_MAX)
        return false;
    bool infinite = (bytes - start == 3 && strncasecmp(text + start, "inf", 3) == 0) ||
                    (bytes - start == 8 && strncasecmp(text + start, "infinity", 8) == 0);
    if (infinite) {
        *out = text[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    for (uint32_t i = start; i < bytes; i++)
        if (!strchr("0123456789.eE+-", text[i]) || text[i] == 0)
            return false;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    char *end;
    double value = strtod(copy, &end);
    if (*end)
        return false;
    *out = value;
    return true;
}

/* ---- words near each other --------------------------------------------------------------------------------------- */

/* Whether a node stands for words at places; a word itself does, too. */
static bool has_places(const struct query_node *node)
{
    if (node->kind == QUERY_AND || node->kind == QUERY_OR)
        for (uint32_t i = 0; i < node->n_children; i++)
            if (has_places(node->children[i]))
                return true;
    return node->kind >= QUERY_TERM && node->kind <= QUERY_FUZZY;
}

/* Puts the words of an AND in front; their number, and that of the other nodes with places. */
static uint32_t sort_words(struct query_node *node, uint32_t *n_others)
{
    uint32_t n_words = 0;
    *n_others = 0;
    for (uint32_t i = 0; i < node->n_children; i++) {
        struct query_node *child = node->children[i];
        if (child->kind == QUERY_TERM) {
            memmove(node->children + n_words + 1, node->children + n_words,
                    (i - n_words) * sizeof(struct query_node *));
            node->children[n_words++] = child;
        } else if (has_places(child)) {
            (*n_others)++;
        }
    }
    return n_words;
}

int query_near(struct parser *p, struct query_node *node, const struct token *token, int64_t slop, bool in_order)
{
    uint32_t n_others;
    if (node->kind == QUERY_PHRASE) {
        node->slop = slop;
        node->in_order = in_order;
        return 0;
    }
    if (node->kind != QUERY_AND || (slop < 0 && !in_order))
        return 0;
    uint32_t n_words = sort_words(node, &n_others);
    if (n_others > 0 && n_words + n_others > 1)
        return query_fail_as(p, token, "Slop and order hold for single words only",
                             ": leave out alternatives, prefixes and phrases, or slop and inorder");
    if (n_words < 2)
        return 0;
    struct query_node *phrase = node;
    if (n_words < node->n_children) {
        int rc = query_node_join(p, QUERY_PHRASE, node->children, n_words, &phrase);
        if (rc < 0)
            return rc;
        node->children[0] = phrase;
        memmove(node->children + 1, node->children + n_words,
                (node->n_children - n_words) * sizeof(struct query_node *));
        node->n_children -= n_words - 1;
        phrase->text_fields = node->text_fields;
    }
    phrase->kind = QUERY_PHRASE;
    phrase->slop = slop;
    phrase->in_order = in_order;
    return 0;
}
