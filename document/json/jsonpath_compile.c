/*
 * jsonpath_compile.c - the text of a path to steps, by recursive descent.
 *
 * The grammar is RedisJSON's (docs/wire.md describes it): what one of the two takes the other should, too. A name behind
 * a dot ends where none of its characters follows, so that `.a-b` and `.a:b` are names, and operators of filters need
 * no blanks around them.
 *
 * Depth is limited, as is the text, so neither stack nor memory grow beyond what 4 KiB of path can ask for.
 */
#include "document/json/jsonpath_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES_MAX = 64 };

struct parser {
    const char *text, *at, *end;
    unsigned depth;
    struct quire_error *err;
};

/* ---- free -------------------------------------------------------------------------------------------------------- */

static void free_expression(struct jsonpath_expression *e);

static void free_steps(struct jsonpath_steps *steps)
{
    for (uint32_t i = 0; i < steps->n; i++) {
        struct jsonpath_step *step = &steps->items[i];
        for (uint32_t k = 0; step->kind == STEP_NAMES && k < step->n; k++)
            free(step->names[k].text);
        if (step->kind == STEP_NAMES)
            free(step->names);
        else if (step->kind == STEP_PLACES)
            free(step->places);
        else if (step->kind == STEP_FILTER)
            free_expression(step->filter);
    }
    free(steps->items);
}

static void free_term(struct jsonpath_term *term)
{
    json_decref(term->constant);
    free_steps(&term->steps);
}

static void free_expression(struct jsonpath_expression *e)
{
    if (!e)
        return;
    free_expression(e->left);
    free_expression(e->right);
    free_term(&e->a);
    free_term(&e->b);
    pattern_free(e->pattern);
    free(e);
}

void jsonpath_free(struct jsonpath *path)
{
    if (path)
        free_steps(&path->steps);
    free(path);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int wrong(const struct parser *p, const char *expected)
{
    int at = (int)(p->at - p->text);
    if (p->at == p->end)
        return error_set(p->err, QUIRE_EPARSE, "path ends at byte %d where %s is expected", at, expected);
    return error_set(p->err, QUIRE_EPARSE, "path at byte %d ('%.*s'): %s is expected", at,
                     (int)(p->end - p->at < 16 ? p->end - p->at : 16), p->at, expected);
}

static int no_memory(const struct parser *p)
{
    return error_set(p->err, QUIRE_ENOMEM, "no memory for a path");
}

static int deeper(struct parser *p)
{
    if (++p->depth <= JSONPATH_DEPTH_MAX)
        return 0;
    return error_set(p->err, QUIRE_ELIMIT, "path at byte %d is nested more than %u levels deep: simplify the filter",
                     (int)(p->at - p->text), JSONPATH_DEPTH_MAX);
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

/* Takes the word, blanks before it too; false where another one stands. */
static bool take(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Of a name behind a dot. */
static bool is_name(char c)
{
    unsigned char u = (unsigned char)c;
    return u >= 0x80 || (u > ' ' && !memchr(".[](){}'\",*@!=<>&|?\\;", c, 21));
}

static char *copy_of(const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return NULL;
    if (n > 0)
        memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

/* Between quotes of either kind, of which the first is next: a backslash makes the character behind it one of the text,
 * or the control character that it stands for in JSON. */
static int take_quoted(struct parser *p, struct jsonpath_name *out)
{
    char quote = *p->at;
    const char *end = p->at + 1;
    while (end < p->end && *end != quote)
        end += *end == '\\' ? 2 : 1;
    if (end >= p->end) {
        p->at = p->end;
        return wrong(p, "a closing quote");
    }
    out->text = malloc((size_t)(end - p->at));
    if (!out->text)
        return no_memory(p);
    out->bytes = 0;
    for (p->at++; p->at < end; p->at++) {
        static const char shorts[] = "b\bf\fn\nr\rt\t";
        char c = *p->at;
        if (c == '\\') {
            c = *++p->at;
            const char *known = strchr(shorts, c);
            if (known && (known - shorts) % 2 == 0 && c != 0)
                c = known[1];
            else if (c != quote && c != '\\' && c != '/' && c != '"' && c != '\'')
                out->text[out->bytes++] = '\\'; /* as in the patterns of =~ */
        }
        out->text[out->bytes++] = c;
    }
    out->text[out->bytes] = 0;
    p->at = end + 1;
    return 0;
}

static int take_integer(struct parser *p, int64_t *out)
{
    char digits[NUMBER_BYTES_MAX], *end;
    size_t n = 0;
    skip_blanks(p);
    const char *from = p->at;
    while (from + n < p->end && n < sizeof digits - 1 && (is_digit(from[n]) || (n == 0 && from[n] == '-'))) {
        digits[n] = from[n];
        n++;
    }
    digits[n] = 0;
    if (n == 0 || (n == 1 && digits[0] == '-'))
        return wrong(p, "a number");
    errno = 0;
    *out = strtoll(digits, &end, 10);
    if (errno || n == sizeof digits - 1)
        return wrong(p, "a number within 64 bits");
    p->at += n;
    return 0;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int parse_filter(struct parser *p, struct jsonpath_expression **out);

static struct jsonpath_step *add_step(struct parser *p, struct jsonpath_steps *steps, enum jsonpath_step_kind kind)
{
    if (!array_reserve(&steps->items, &steps->capacity, (size_t)steps->n + 1)) {
        no_memory(p);
        return NULL;
    }
    steps->items[steps->n] = (struct jsonpath_step){.kind = kind};
    return &steps->items[steps->n++];
}

static int parse_name(struct parser *p, struct jsonpath_steps *steps)
{
    const char *from = p->at;
    while (p->at < p->end && is_name(*p->at))
        p->at++;
    if (p->at == from)
        return wrong(p, "a name, * or [");
    struct jsonpath_step *step = add_step(p, steps, STEP_NAMES);
    if (!step)
        return QUIRE_ENOMEM;
    step->names = malloc(sizeof *step->names);
    if (!step->names)
        return no_memory(p);
    *step->names = (struct jsonpath_name){copy_of(from, (size_t)(p->at - from)), (size_t)(p->at - from)};
    step->n = 1;
    return step->names->text ? 0 : no_memory(p);
}

static int parse_names(struct parser *p, struct jsonpath_steps *steps)
{
    uint32_t capacity = 0;
    struct jsonpath_step *step = add_step(p, steps, STEP_NAMES);
    if (!step)
        return QUIRE_ENOMEM;
    do {
        skip_blanks(p);
        if (p->at == p->end || (*p->at != '"' && *p->at != '\''))
            return wrong(p, "a name in quotes");
        if (!array_reserve(&step->names, &capacity, (size_t)step->n + 1))
            return no_memory(p);
        int rc = take_quoted(p, &step->names[step->n]);
        if (rc < 0)
            return rc;
        step->n++;
    } while (take(p, ","));
    return 0;
}

/* Behind the first number of a slice, if it has one. */
static int parse_slice(struct parser *p, struct jsonpath_steps *steps, int64_t start)
{
    struct jsonpath_step *step = add_step(p, steps, STEP_SLICE);
    int rc = 0;
    if (!step)
        return QUIRE_ENOMEM;
    assert(steps->n > 0 && step == &steps->items[steps->n - 1]);
    step->slice = (struct jsonpath_slice){.start = start, .step = 1};
    skip_blanks(p);
    if (p->at < p->end && *p->at != ']' && *p->at != ':') {
        step->slice.has_end = true;
        rc = take_integer(p, &step->slice.end);
    }
    if (rc < 0 || !take(p, ":"))
        return rc;
    skip_blanks(p);
    if (p->at < p->end && *p->at != ']') {
        const char *from = p->at;
        rc = take_integer(p, &step->slice.step);
        if (rc == 0 && step->slice.step < 1) {
            p->at = from;
            rc = wrong(p, "a step of 1 or more");
        }
    }
    return rc;
}

static int parse_places(struct parser *p, struct jsonpath_steps *steps)
{
    uint32_t capacity = 0;
    int64_t first = 0;
    skip_blanks(p);
    int rc = p->at < p->end && *p->at == ':' ? 0 : take_integer(p, &first);
    if (rc < 0)
        return rc;
    if (take(p, ":"))
        return parse_slice(p, steps, first);
    struct jsonpath_step *step = add_step(p, steps, STEP_PLACES);
    if (!step)
        return QUIRE_ENOMEM;
    do {
        if (!array_reserve(&step->places, &capacity, (size_t)step->n + 1))
            return no_memory(p);
        if (step->n > 0 && (rc = take_integer(p, &first)) < 0)
            return rc;
        step->places[step->n++] = first;
    } while (take(p, ","));
    return 0;
}

/* Behind an opening bracket. */
static int parse_bracket(struct parser *p, struct jsonpath_steps *steps)
{
    int rc;
    skip_blanks(p);
    if (take(p, "*")) {
        rc = add_step(p, steps, STEP_ALL) ? 0 : QUIRE_ENOMEM;
    } else if (take(p, "?")) {
        struct jsonpath_step *step = add_step(p, steps, STEP_FILTER);
        rc = step ? parse_filter(p, &step->filter) : QUIRE_ENOMEM;
    } else if (p->at < p->end && (*p->at == '"' || *p->at == '\'')) {
        rc = parse_names(p, steps);
    } else if (p->at < p->end && (is_digit(*p->at) || *p->at == '-' || *p->at == ':')) {
        rc = parse_places(p, steps);
    } else {
        return wrong(p, "a name in quotes, a number, *, : or ?");
    }
    if (rc == 0 && !take(p, "]"))
        rc = wrong(p, "]");
    return rc;
}

/* As many steps as there are. */
static int parse_steps(struct parser *p, struct jsonpath_steps *steps)
{
    int rc = 0;
    while (rc == 0 && p->at < p->end) {
        bool dots = p->end - p->at >= 2 && p->at[0] == '.' && p->at[1] == '.';
        bool dot = !dots && *p->at == '.';
        if (!dots && !dot && *p->at != '[')
            break;
        p->at += dots ? 2 : dot;
        if (dots && !add_step(p, steps, STEP_DESCEND))
            return QUIRE_ENOMEM;
        if (take(p, "["))
            rc = parse_bracket(p, steps);
        else if (take(p, "*"))
            rc = add_step(p, steps, STEP_ALL) ? 0 : QUIRE_ENOMEM;
        else
            rc = parse_name(p, steps);
    }
    return rc;
}

/* ---- filters ----------------------------------------------------------------------------------------------------- */

static int take_number(struct parser *p, json_t **out)
{
    size_t n = 0;
    while (p->at + n < p->end && (is_digit(p->at[n]) || memchr("+-.eE", p->at[n], 5)))
        n++;
    int rc = n < NUMBER_BYTES_MAX ? tree_parse(p->at, n, out, p->err) : QUIRE_EPARSE;
    if (rc == QUIRE_EPARSE)
        return wrong(p, "a number");
    p->at += n;
    return rc;
}

static int parse_constant(struct parser *p, json_t **out)
{
    struct jsonpath_name string = {NULL, 0};
    if (*p->at == '"' || *p->at == '\'') {
        int rc = take_quoted(p, &string);
        if (rc < 0)
            return rc;
        *out = json_stringn_nocheck(string.text, string.bytes);
        free(string.text);
    } else if (is_digit(*p->at) || *p->at == '-') {
        return take_number(p, out);
    } else if (take(p, "true")) {
        *out = json_true();
    } else if (take(p, "false")) {
        *out = json_false();
    } else if (take(p, "null")) {
        *out = json_null();
    } else {
        return wrong(p, "@, $, a string, a number, true, false or null");
    }
    return *out ? 0 : no_memory(p);
}

static int parse_term(struct parser *p, struct jsonpath_term *term)
{
    skip_blanks(p);
    if (p->at == p->end)
        return wrong(p, "@, $, a string, a number, true, false or null");
    if (*p->at != '@' && *p->at != '$')
        return parse_constant(p, &term->constant);
    term->from_root = *p->at++ == '$';
    return parse_steps(p, &term->steps);
}

static bool take_operator(struct parser *p, enum jsonpath_operator *out)
{
    static const struct {
        const char *text;
        enum jsonpath_operator operator;
    } known[] = {{"==", EXPRESSION_EQ}, {"!=", EXPRESSION_NE}, {"=~", EXPRESSION_MATCHES}, {"<=", EXPRESSION_LE},
                 {">=", EXPRESSION_GE}, {"<", EXPRESSION_LT},  {">", EXPRESSION_GT}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (take(p, known[i].text)) {
            *out = known[i].operator;
            return true;
        }
    return false;
}

static struct jsonpath_expression *make_expression(struct parser *p, enum jsonpath_operator operator)
{
    struct jsonpath_expression *e = calloc(1, sizeof *e);
    if (e)
        e->operator= operator;
    else
        no_memory(p);
    return e;
}

/* A comparison, or a term alone. */
static int parse_comparison(struct parser *p, struct jsonpath_expression **out)
{
    struct jsonpath_expression *e = make_expression(p, EXPRESSION_TEST);
    if (!e)
        return QUIRE_ENOMEM;
    *out = e; /* freed with the path, whatever comes */
    int rc = parse_term(p, &e->a);
    if (rc < 0 || !take_operator(p, &e->operator))
        return rc;
    rc = parse_term(p, &e->b);
    if (rc == 0 && e->operator== EXPRESSION_MATCHES && e->b.constant) {
        if (!json_is_string(e->b.constant))
            return wrong(p, "a pattern in quotes before this place");
        rc = pattern_compile(json_string_value(e->b.constant), json_string_length(e->b.constant), &e->pattern, p->err);
    }
    return rc;
}

static int parse_or(struct parser *p, struct jsonpath_expression **out);

static int parse_operand(struct parser *p, struct jsonpath_expression **out)
{
    int rc = deeper(p);
    if (rc < 0)
        return rc;
    if (take(p, "!")) {
        *out = make_expression(p, EXPRESSION_NOT);
        rc = *out ? parse_operand(p, &(*out)->left) : QUIRE_ENOMEM;
    } else if (take(p, "(")) {
        rc = parse_or(p, out);
        if (rc == 0 && !take(p, ")"))
            rc = wrong(p, ")");
    } else {
        rc = parse_comparison(p, out);
    }
    p->depth--;
    return rc;
}

/* Operands of one operator, to the left: (a && b) && c. The tree is as deep as there are operands, which the length of
 * the path bounds. */
static int parse_chain(struct parser *p, enum jsonpath_operator operator, const char * word,
                       int (*parse)(struct parser *p, struct jsonpath_expression **out),
                       struct jsonpath_expression **out)
{
    int rc = parse(p, out);
    while (rc == 0 && take(p, word)) {
        struct jsonpath_expression *e = make_expression(p, operator);
        if (!e)
            return QUIRE_ENOMEM;
        e->left = *out;
        *out = e;
        rc = parse(p, &e->right);
    }
    return rc;
}

static int parse_and(struct parser *p, struct jsonpath_expression **out)
{
    return parse_chain(p, EXPRESSION_AND, "&&", parse_operand, out);
}

static int parse_or(struct parser *p, struct jsonpath_expression **out)
{
    return parse_chain(p, EXPRESSION_OR, "||", parse_and, out);
}

static int parse_filter(struct parser *p, struct jsonpath_expression **out)
{
    int rc = deeper(p);
    if (rc == 0)
        rc = parse_or(p, out);
    p->depth--;
    return rc;
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

static bool begins_as_path(const char *text, size_t bytes)
{
    return bytes > 0 && text[0] == '$' && (bytes == 1 || text[1] == '.' || text[1] == '[');
}

static int parse_path(struct parser *p, struct jsonpath *path)
{
    size_t bytes = (size_t)(p->end - p->at);
    path->legacy = !begins_as_path(p->at, bytes);
    if (!path->legacy)
        p->at++;
    else if (bytes == 1 && *p->at == '.')
        return 0;
    int rc = 0;
    if (path->legacy && p->at < p->end && take(p, "*"))
        rc = add_step(p, &path->steps, STEP_ALL) ? 0 : QUIRE_ENOMEM;
    else if (path->legacy && (p->at == p->end || (*p->at != '.' && *p->at != '[')))
        rc = parse_name(p, &path->steps);
    if (rc == 0)
        rc = parse_steps(p, &path->steps);
    if (rc == 0)
        skip_blanks(p);
    if (rc == 0 && p->at < p->end)
        rc = wrong(p, "., [ or the end");
    return rc;
}

int jsonpath_compile(const char *text, size_t bytes, struct jsonpath **out, struct quire_error *err)
{
    struct parser p = {.text = text, .at = text, .end = text + bytes, .err = err};
    if (bytes > JSONPATH_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a path has at most %u bytes, this one has %zu", JSONPATH_BYTES_MAX, bytes);
    struct jsonpath *path = calloc(1, sizeof *path);
    if (!path)
        return no_memory(&p);
    int rc = parse_path(&p, path);
    if (rc < 0) {
        jsonpath_free(path);
        return rc;
    }
    assert(p.at <= p.end && p.depth == 0);
    *out = path;
    return 0;
}

bool jsonpath_is_legacy(const struct jsonpath *path)
{
    return path->legacy;
}

bool jsonpath_is_root(const struct jsonpath *path)
{
    return path->steps.n == 0;
}

bool jsonpath_is_static(const struct jsonpath *path)
{
    for (uint32_t i = 0; i < path->steps.n; i++) {
        const struct jsonpath_step *step = &path->steps.items[i];
        if ((step->kind != STEP_NAMES && step->kind != STEP_PLACES) || step->n != 1)
            return false;
    }
    return true;
}

const char *jsonpath_last_name(const struct jsonpath *path, size_t *bytes)
{
    if (path->steps.n == 0 || path->steps.items[path->steps.n - 1].kind != STEP_NAMES)
        return NULL;
    const struct jsonpath_name *name = path->steps.items[path->steps.n - 1].names;
    *bytes = name->bytes;
    return name->text;
}
