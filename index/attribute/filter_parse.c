/*
 * filter_parse.c - the text of a FILTER expression into a program in postfix order.
 *
 * The order of operators is found with the two stacks of Dijkstra's shunting yard (1961), because that is what Redis
 * uses, and because what it takes is then the same to the last oddity: operators are stacked by precedence, each takes
 * its operands when one of no higher precedence follows (** when a lower one does; not waits for what follows it), and
 * an expression is right if one value is left. So "1 2 +" passes, as it does there. Whoever forgets an operator or a
 * value leaves a wrong number of values; the message then names the first place that is not infix notation.
 *
 * Words that Redis does not know (true, false, exists, prefix, key) and exponents with a sign are extensions: each is
 * an error there, so none changes what an expression means.
 *
 * Constants are folded as they come, so a program holds no operation on constants alone. Strings are kept without
 * their escapes, behind the text. Those compared with a declared timestamp become seconds here.
 *
 * Every array has room for one entry per byte of the text: a token has at least one byte and makes one node, != has two
 * and makes two. Nothing recurses. Operators that wait and values that wait are limited, which limits the stack of
 * filter_run.c as well.
 */
#include "index/attribute/filter_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 255u
#define FOUND_BYTES_MAX  24u
#define A_VALUE          "a value (.field, a number, \"text\", [list], true, false, null, key, exists .field)"
#define AN_OPERATOR      "an operator (and, or, ==, !=, <, <=, >, >=, in, prefix, +, -, *, /, %, **)"

struct operator
{
    char text[7];
    uint8_t bytes, op, precedence;
    bool is_word; /* ends where its letters end; Redis's own do not: "1and 2" */
};

static const struct operator operators[] = {
    {"(", 1, OP_PARENTHESIS, 7, false},
    {"!", 1, OP_NOT, 6, false},
    {"not", 3, OP_NOT, 6, false},
    {"**", 2, OP_POWER, 5, false},
    {"*", 1, OP_MULTIPLY, 4, false},
    {"/", 1, OP_DIVIDE, 4, false},
    {"%", 1, OP_REMAINDER, 4, false},
    {"+", 1, OP_ADD, 3, false},
    {"-", 1, OP_SUBTRACT, 3, false},
    {">", 1, OP_GREATER, 2, false},
    {">=", 2, OP_GREATER_EQUAL, 2, false},
    {"<", 1, OP_LESS, 2, false},
    {"<=", 2, OP_LESS_EQUAL, 2, false},
    {"==", 2, OP_EQUAL, 2, false},
    {"!=", 2, OP_UNEQUAL, 2, false},
    {"in", 2, OP_IN, 2, false},
    {"prefix", 6, OP_PREFIX, 2, true},
    {"and", 3, OP_AND, 1, false},
    {"&&", 2, OP_AND, 1, false},
    {"or", 2, OP_OR, 0, false},
    {"||", 2, OP_OR, 0, false},
};

struct waiting {
    uint8_t op, precedence;
    uint32_t at;
};

struct parser {
    struct filter *filter;
    const struct attribute_schema *schema;
    struct quire_error *err;
    const char *text;
    uint32_t bytes, at;
    char *strings; /* where the next one goes */
    struct waiting waiting[FILTER_DEPTH_MAX];
    uint32_t n_waiting;
    uint32_t n_values; /* that the program would leave so far */
    bool want_value;   /* in infix notation */
    const char *odd;   /* what was expected where infix notation was left first; NULL: nowhere */
    uint32_t odd_at;
};

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_word_char(char c)
{
    return is_letter(c) || is_digit(c) || c == '_';
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static char byte_at(const struct parser *p, uint32_t at)
{
    return at < p->bytes ? p->text[at] : 0;
}

/* Where a remedy is plain from what was found. */
static const char *remedy(const struct parser *p, uint32_t at)
{
    char c = byte_at(p, at);
    if (at >= p->bytes)
        return "";
    if (is_letter(c))
        return ": a field is written with a dot before it, a text in quotes";
    if (c == '=')
        return ": equality is ==";
    if (c == '&' || c == '|')
        return ": write it twice, or as a word: and, or";
    if (c == ']' || c == ',')
        return ": a list begins with [";
    return "";
}

/* The word or character at `at`, for people. */
static const char *found(const struct parser *p, uint32_t at, char out[FOUND_BYTES_MAX + 8])
{
    uint32_t n = 0;
    if (at >= p->bytes)
        return "the end";
    out[n++] = '\'';
    do {
        char c = p->text[at++];
        out[n++] = c >= ' ' && c < 127 ? c : '?';
    } while (n < FOUND_BYTES_MAX && at < p->bytes && is_word_char(p->text[at - 1]) && is_word_char(p->text[at]));
    out[n++] = '\'';
    out[n] = 0;
    return out;
}

static int fail(const struct parser *p, uint32_t at, const char *expected)
{
    char text[FOUND_BYTES_MAX + 8];
    return error_set(p->err, QUIRE_EPARSE, "FILTER, byte %u: expected %s, found %s%s", at, expected, found(p, at, text),
                     remedy(p, at));
}

static void note(struct parser *p, uint32_t at, const char *expected)
{
    if (p->odd)
        return;
    p->odd = expected;
    p->odd_at = at;
}

/* The number of values is wrong: where it went wrong is where infix notation was left. */
static int fail_odd(const struct parser *p)
{
    return p->odd ? fail(p, p->odd_at, p->odd) : fail(p, p->bytes, A_VALUE);
}

static int fail_deep(const struct parser *p, uint32_t at)
{
    return error_set(p->err, QUIRE_ELIMIT,
                     "FILTER, byte %u: %u operators and parentheses wait for their end, the limit is %u: nest less, a "
                     "chain of 'or' needs no parentheses, and many values of one field fit into .field in [...]",
                     at, FILTER_DEPTH_MAX + 1, FILTER_DEPTH_MAX);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void append(struct parser *p, enum filter_op op, uint32_t operand, uint32_t at)
{
    struct filter *f = p->filter;
    uint32_t i = f->n_nodes++;
    assert(i <= p->bytes); /* a node per byte is the space there is */
    struct filter_node *node = &f->nodes[i];
    *node = (struct filter_node){.op = (uint8_t)op, .operand = operand, .first = i, .at = at};
    node->names_key = op == OP_KEY;
    if (op == OP_FIELD || op == OP_EXISTS)
        node->fields = 1ull << operand;
    if (op < OP_NOT)
        return;
    for (uint32_t child = i - 1;; child = filter_left(f, i)) {
        const struct filter_node *under = &f->nodes[child];
        node->first = under->first;
        node->names_key |= under->names_key;
        node->reads_lists |= under->reads_lists;
        node->fields |= under->fields;
        if (!filter_op_has_two(op) || child != i - 1)
            break;
    }
    node->reads_lists |= op == OP_IN && f->nodes[i - 1].op == OP_FIELD;
}

static int append_value(struct parser *p, enum filter_op op, uint32_t operand, uint32_t at)
{
    if (!p->want_value)
        note(p, at, AN_OPERATOR);
    if (p->n_values == FILTER_DEPTH_MAX)
        return fail_deep(p, at);
    p->n_values++;
    p->want_value = false;
    append(p, op, operand, at);
    return 0;
}

static uint32_t add_constant(struct parser *p, struct filter_value value)
{
    assert(p->filter->n_constants <= p->bytes);
    p->filter->constants[p->filter->n_constants] = value;
    return p->filter->n_constants++;
}

static int append_constant(struct parser *p, struct json_value value, uint32_t at)
{
    return append_value(p, OP_CONSTANT, add_constant(p, (struct filter_value){.json = value}), at);
}

/* A string that is compared with a timestamp becomes a number. */
static int make_time(const struct parser *p, struct json_value *value, uint32_t at, const char *field)
{
    double seconds;
    if (value->kind != VALUE_STRING)
        return 0;
    if (!attribute_time(value->text, value->bytes, &seconds))
        return error_set(p->err, QUIRE_EPARSE,
                         "FILTER, byte %u: .%s is declared a timestamp, and this is no time: '%.*s'; write it as "
                         "\"2026-11-22T10:00:00Z\", \"2026-11-22\" or seconds since 1970",
                         at, field, value->bytes < 40 ? (int)value->bytes : 40, value->text);
    *value = (struct json_value){.kind = VALUE_NUMBER, .number = seconds};
    return 0;
}

/* Of the two operands of a comparison, the last nodes: a constant beside a field that is a declared timestamp. */
static int make_times(struct parser *p, enum filter_op op)
{
    struct filter *f = p->filter;
    uint32_t right = f->n_nodes - 1, left = f->nodes[right].first - 1, field = f->nodes[left].operand;
    bool swapped = f->nodes[right].op == OP_FIELD && op != OP_IN;
    if (op < OP_GREATER || op > OP_IN)
        return 0;
    if (swapped) {
        field = f->nodes[right].operand;
        right = left;
    }
    const struct filter_node *constant = &f->nodes[right];
    bool is_field = swapped || f->nodes[left].op == OP_FIELD;
    if (!is_field || constant->op != OP_CONSTANT || !f->columns[field] ||
        f->columns[field]->type != QUIRE_COLUMN_TIMESTAMP)
        return 0;
    struct filter_value *value = &f->constants[constant->operand];
    int rc = op == OP_IN ? 0 : make_time(p, &value->json, constant->at, f->columns[field]->name);
    struct json_value *members = value->n_members ? f->members + (value->members - f->members) : NULL;
    for (uint32_t i = 0; rc == 0 && op == OP_IN && i < value->n_members; i++)
        rc = make_time(p, &members[i], constant->at, f->columns[field]->name);
    return rc;
}

/* An operation on constants alone, the last nodes, becomes their result. */
static bool fold(struct parser *p, enum filter_op op)
{
    struct filter *f = p->filter;
    uint32_t right = f->n_nodes - 1, left = filter_op_has_two(op) ? f->nodes[right].first - 1 : right;
    if (f->nodes[left].op != OP_CONSTANT || f->nodes[right].op != OP_CONSTANT)
        return false;
    double result = filter_apply(op, &f->constants[f->nodes[left].operand], &f->constants[f->nodes[right].operand]);
    struct filter_value value = {.json = {.kind = VALUE_NUMBER, .number = result}};
    f->n_nodes = left;
    append(p, OP_CONSTANT, add_constant(p, value), f->nodes[left].at);
    return true;
}

/* The operator that waits longest gets its operands. */
static int close_operator(struct parser *p)
{
    assert(p->n_waiting > 0);
    struct waiting top = p->waiting[--p->n_waiting];
    assert(top.op >= OP_NOT && top.op != OP_PARENTHESIS);
    enum filter_op op = top.op == OP_UNEQUAL ? OP_EQUAL : (enum filter_op)top.op;
    uint32_t arity = filter_op_has_two(op) ? 2 : 1;
    if (p->n_values < arity)
        return fail_odd(p);
    int rc = arity == 2 ? make_times(p, op) : 0;
    if (rc)
        return rc;
    p->n_values -= arity - 1;
    if (!fold(p, op))
        append(p, op, 0, top.at);
    if (top.op == OP_UNEQUAL && !fold(p, OP_NOT))
        append(p, OP_NOT, 0, top.at);
    return 0;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static int take_close(struct parser *p)
{
    int rc = 0;
    if (p->want_value)
        note(p, p->at, A_VALUE);
    while (rc == 0 && p->n_waiting && p->waiting[p->n_waiting - 1].op != OP_PARENTHESIS)
        rc = close_operator(p);
    if (rc)
        return rc;
    if (p->n_waiting == 0)
        return error_set(p->err, QUIRE_EPARSE, "FILTER, byte %u: expected %s or the end, found ')': it has no '('",
                         p->at, AN_OPERATOR);
    p->n_waiting--;
    p->at++;
    p->want_value = false;
    return 0;
}

static int take_operator(struct parser *p, const struct operator* operator)
{
    enum filter_op op = operator->op;
    bool has_two = filter_op_has_two(op) && op != OP_PARENTHESIS;
    int rc = 0;
    if (p->want_value == has_two)
        note(p, p->at, has_two ? A_VALUE : AN_OPERATOR);
    while (rc == 0 && has_two && p->n_waiting) {
        struct waiting top = p->waiting[p->n_waiting - 1];
        if (top.op == OP_PARENTHESIS || top.precedence < operator->precedence +(op == OP_POWER))
            break;
        rc = close_operator(p);
    }
    if (rc == 0 && p->n_waiting == FILTER_DEPTH_MAX)
        rc = fail_deep(p, p->at);
    if (rc)
        return rc;
    p->waiting[p->n_waiting++] = (struct waiting){.op = (uint8_t)op, .precedence = operator->precedence, .at = p->at};
    p->at += operator->bytes;
    p->want_value = true;
    return 0;
}

/* The longest that stands here, or NULL. */
static const struct operator* find_operator(const struct parser *p)
{
    const struct operator* best = NULL;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const struct operator* one = & operators[i];
        if (one->bytes > p->bytes - p->at || memcmp(one->text, p->text + p->at, one->bytes) != 0)
            continue;
        if (one->is_word && is_word_char(byte_at(p, p->at + one->bytes)))
            continue;
        if (!best || one->bytes > best->bytes)
            best = one;
    }
    return best;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int read_number(struct parser *p, struct json_value *out)
{
    uint32_t from = p->at;
    for (char c; (c = byte_at(p, p->at)); p->at++) {
        char before = p->at > from ? p->text[p->at - 1] : 0;
        bool sign = c == '-' || c == '+';
        bool exponent_sign = (before == 'e' || before == 'E') && is_digit(byte_at(p, p->at + 1));
        if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !(sign && (exponent_sign || p->at == from)))
            break;
    }
    *out = (struct json_value){.kind = VALUE_NUMBER};
    if (p->at - from > NUMBER_BYTES_MAX)
        return error_set(p->err, QUIRE_EPARSE, "FILTER, byte %u: a number has %u characters, and may have %u", from,
                         p->at - from, NUMBER_BYTES_MAX);
    if (!json_number(p->text + from, p->at - from, &out->number))
        return fail(p, from, "a number (12, -3.5, 1e-5)");
    return 0;
}

static int read_string(struct parser *p, struct json_value *out)
{
    uint32_t from = p->at;
    char quote = p->text[p->at++];
    struct json_value raw = {.kind = VALUE_STRING, .text = p->text + p->at};
    while (byte_at(p, p->at) && p->text[p->at] != quote) {
        bool escape = p->text[p->at] == '\\' && byte_at(p, p->at + 1);
        raw.escaped |= escape;
        p->at += 1u + escape;
    }
    if (byte_at(p, p->at) != quote)
        return error_set(p->err, QUIRE_EPARSE,
                         "FILTER, byte %u: expected %c as the end of the text from byte %u, found %s", p->at, quote,
                         from, p->at < p->bytes ? "a zero byte" : "the end");
    raw.bytes = (uint32_t)(p->text + p->at - raw.text);
    *out = (struct json_value){.kind = VALUE_STRING, .text = p->strings, .bytes = json_unescape(&raw, p->strings)};
    p->strings += out->bytes;
    assert(p->strings <= p->text + 2 * ((size_t)p->bytes + 1));
    p->at++;
    return 0;
}

static void skip_blanks(struct parser *p)
{
    while (is_blank(byte_at(p, p->at)))
        p->at++;
}

static int take_list(struct parser *p)
{
    struct filter *f = p->filter;
    struct filter_value list = {.json = {.kind = VALUE_LIST}, .members = f->members + f->n_members};
    uint32_t from = p->at;
    int rc = 0;
    do {
        p->at++;
        skip_blanks(p);
        char c = byte_at(p, p->at);
        if (c == ']')
            break; /* empty, or a comma behind the last */
        if (c == '"' || c == '\'')
            rc = read_string(p, &f->members[f->n_members]);
        else if (is_digit(c) || c == '-')
            rc = read_number(p, &f->members[f->n_members]);
        else
            rc = fail(p, p->at, "a number, a \"text\" or ] in a list");
        if (rc)
            return rc;
        assert(f->n_members <= p->bytes);
        f->n_members++;
        list.n_members++;
        skip_blanks(p);
    } while (byte_at(p, p->at) == ',');
    if (byte_at(p, p->at) != ']')
        return fail(p, p->at, "a comma or ] in a list");
    p->at++;
    return append_value(p, OP_CONSTANT, add_constant(p, list), from);
}

static bool is_name_char(char c)
{
    return is_word_char(c) || c == '-';
}

/* The field whose dot stands at p->at, as node `op`. */
static int take_field(struct parser *p, enum filter_op op, uint32_t at)
{
    struct filter *f = p->filter;
    struct json_name name = {.text = p->text + ++p->at};
    uint32_t i = 0;
    while (is_name_char(byte_at(p, p->at)))
        p->at++;
    name.bytes = (uint32_t)(p->text + p->at - name.text);
    while (i < f->n_fields &&
           (f->fields[i].bytes != name.bytes || memcmp(f->fields[i].text, name.text, name.bytes) != 0))
        i++;
    if (i == FILTER_FIELDS_MAX)
        return error_set(p->err, QUIRE_ELIMIT,
                         "FILTER, byte %u: field number %u, the limit is %u different ones: ask about fewer", at, i + 1,
                         FILTER_FIELDS_MAX);
    if (i == f->n_fields) {
        f->fields[i] = name;
        f->columns[i] = attribute_schema_find(p->schema, name.text, name.bytes);
        f->n_fields++;
    }
    if (op == OP_FIELD)
        f->required |= 1ull << i;
    return append_value(p, op, i, at);
}

static int take_exists(struct parser *p, uint32_t at)
{
    skip_blanks(p);
    if (byte_at(p, p->at) != '.' || !is_name_char(byte_at(p, p->at + 1)))
        return fail(p, p->at, "a field behind exists (exists .field)");
    return take_field(p, OP_EXISTS, at);
}

static bool take_word(struct parser *p, const char *word)
{
    uint32_t n = (uint32_t)strlen(word);
    if (n > p->bytes - p->at || memcmp(p->text + p->at, word, n) != 0 || is_word_char(byte_at(p, p->at + n)))
        return false;
    p->at += n;
    return true;
}

/* What begins with a letter or a sign. */
static int take_rest(struct parser *p)
{
    uint32_t at = p->at;
    if (take_word(p, "null"))
        return append_constant(p, (struct json_value){.kind = VALUE_NULL}, at);
    if (take_word(p, "true"))
        return append_constant(p, (struct json_value){.kind = VALUE_NUMBER, .number = 1}, at);
    if (take_word(p, "false"))
        return append_constant(p, (struct json_value){.kind = VALUE_NUMBER}, at);
    if (take_word(p, "key"))
        return append_value(p, OP_KEY, 0, at);
    if (take_word(p, "exists"))
        return take_exists(p, at);
    const struct operator* operator= find_operator(p);
    if (operator)
        return take_operator(p, operator);
    while (at > 0 && is_word_char(p->text[at - 1]) && is_word_char(p->text[at]))
        at--;
    return fail(p, at, p->want_value ? A_VALUE : AN_OPERATOR);
}

static int take_token(struct parser *p)
{
    struct json_value value;
    char c = p->text[p->at], next = byte_at(p, p->at + 1);
    uint32_t at = p->at;
    int rc;
    if (is_digit(c) || (p->want_value && c == '-' && is_digit(next))) {
        rc = read_number(p, &value);
        return rc ? rc : append_constant(p, value, at);
    }
    if (c == '"' || c == '\'') {
        rc = read_string(p, &value);
        return rc ? rc : append_constant(p, value, at);
    }
    if (c == '.' && is_name_char(next))
        return take_field(p, OP_FIELD, at);
    if (c == '[')
        return take_list(p);
    if (c == ')')
        return take_close(p);
    return take_rest(p);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int make_room(struct filter *f, const char *text, size_t bytes)
{
    size_t n = bytes + 1;
    f->text = malloc(2 * n);
    f->nodes = malloc(memory_size_mul(n, sizeof *f->nodes));
    f->constants = malloc(memory_size_mul(n, sizeof *f->constants));
    f->members = malloc(memory_size_mul(n, sizeof *f->members));
    if (!f->text || !f->nodes || !f->constants || !f->members)
        return QUIRE_ENOMEM;
    if (bytes)
        memcpy(f->text, text, bytes);
    f->memory_bytes += n * (2 + sizeof *f->nodes + sizeof *f->constants + sizeof *f->members);
    f->text[bytes] = 0;
    f->text_bytes = (uint32_t)bytes;
    return 0;
}

int filter_parse(struct filter *filter, const char *text, size_t bytes, const struct attribute_schema *schema,
                 struct quire_error *err)
{
    struct parser p = {.filter = filter, .schema = schema, .err = err, .want_value = true};
    if (make_room(filter, text, bytes))
        return error_set(err, QUIRE_ENOMEM, "no memory for a filter of %zu bytes", bytes);
    p.text = filter->text;
    p.bytes = filter->text_bytes;
    p.strings = filter->text + bytes + 1;
    int rc = 0;
    for (skip_blanks(&p); rc == 0 && p.at < p.bytes; skip_blanks(&p))
        rc = take_token(&p);
    if (rc == 0 && p.want_value)
        note(&p, p.bytes, A_VALUE);
    while (rc == 0 && p.n_waiting) {
        struct waiting top = p.waiting[p.n_waiting - 1];
        rc = top.op != OP_PARENTHESIS
                 ? close_operator(&p)
                 : error_set(err, QUIRE_EPARSE, "FILTER, byte %u: expected ')' for the '(' at byte %u, found the end",
                             p.bytes, top.at);
    }
    if (rc == 0 && p.n_values != 1)
        rc = fail_odd(&p);
    return rc;
}
