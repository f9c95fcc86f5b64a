/*
 * expression_parse.c - the text of an expression becomes a program for a stack machine.
 *
 *     or    := and { || and }              compare := sum [ (== != < <= > >=) sum ]
 *     and   := not { && not }              sum     := product { (+ -) product }
 *     not   := ! not | compare             product := power { (* / %) power }
 *                                          power   := unary [ ^ power ]
 *     unary := (- ! +) unary | value       value   := number | text | NULL | @name | name(args) | ( or )
 *
 * A program and not a tree: what is long is not deep. Chains of one operator are loops here and run without recursion
 * there, so only what is truly nested (parentheses, calls, signs, ^) counts towards the depth, and evaluation never
 * recurses. A sign before a number belongs to the number, as in RediSearch: -2 ^ 2 is 4.
 *
 * && and || jump, so that their right side is not evaluated where the left decides. A field that is the whole operand
 * of one of them, or of exists(), may have no value; anywhere else that is an error when a row comes.
 */
#include "document/pipeline/expression_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct reader {
    const char *text;
    size_t bytes, at;
    uint32_t depth, waiting; /* values on the stack at this point of the program */
    struct expression *made;
    struct quire_error *err;
};

static int parse_or(struct reader *reader);

/* ---- making steps ------------------------------------------------------------------------------------------------ */

static int no_memory(struct reader *reader)
{
    return error_set(reader->err, QUIRE_ENOMEM, "no memory for an expression of %zu bytes", reader->bytes);
}

static int emit(struct reader *reader, enum expression_code code, uint32_t at, uint32_t n)
{
    struct expression *made = reader->made;
    if (!array_reserve(&made->steps, &made->steps_capacity, made->n_steps + 1u))
        return no_memory(reader);
    made->steps[made->n_steps++] = (struct expression_step){(uint16_t)code, (uint16_t)n, at};
    return 0;
}

/* A step that takes n values and pushes one. */
static int emit_value(struct reader *reader, enum expression_code code, uint32_t at, uint32_t n)
{
    assert(reader->waiting >= n);
    if (reader->waiting - n == EXPRESSION_STACK_MAX)
        return error_set(reader->err, QUIRE_ELIMIT,
                         "at offset %zu more than %u values of the expression wait for others: split it into several "
                         "APPLY",
                         reader->at, EXPRESSION_STACK_MAX);
    reader->waiting += 1 - n;
    return emit(reader, code, at, n);
}

/* Jumps of step `from` lead behind the last step. */
static void land(struct reader *reader, uint32_t from)
{
    assert(from < reader->made->n_steps);
    reader->made->steps[from].at = reader->made->n_steps;
}

/* The operand that begins at step `from` is a field and nothing else: it may have no value. */
static void allow_missing(struct reader *reader, uint32_t from)
{
    struct expression *made = reader->made;
    if (made->n_steps == from + 1 && made->steps[from].code == CODE_NAME)
        made->steps[from].code = CODE_NAME_ANY;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int unexpected(struct reader *reader, const char *wanted)
{
    if (reader->at >= reader->bytes)
        return error_set(reader->err, QUIRE_EPARSE,
                         "Syntax error at offset %zu: the expression ends where %s should be", reader->at, wanted);
    size_t shown = reader->bytes - reader->at < 20 ? reader->bytes - reader->at : 20;
    return error_set(reader->err, QUIRE_EPARSE, "Syntax error at offset %zu near '%.*s': expected %s", reader->at,
                     (int)shown, reader->text + reader->at, wanted);
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->bytes &&
           (isspace((unsigned char)reader->text[reader->at]) || iscntrl((unsigned char)reader->text[reader->at])))
        reader->at++;
}

static char peek(const struct reader *reader, size_t ahead)
{
    return reader->at + ahead < reader->bytes ? reader->text[reader->at + ahead] : '\0';
}

/* Whether the next token is this one, which is passed then. */
static bool take(struct reader *reader, const char *token)
{
    size_t n = strlen(token);
    skip_blanks(reader);
    if (reader->bytes - reader->at < n || memcmp(reader->text + reader->at, token, n) != 0)
        return false;
    reader->at += n;
    return true;
}

static int enter(struct reader *reader)
{
    if (++reader->depth <= EXPRESSION_DEPTH_MAX)
        return 0;
    return error_set(reader->err, QUIRE_ELIMIT,
                     "at offset %zu the expression is nested deeper than %u levels: split it into several APPLY",
                     reader->at, EXPRESSION_DEPTH_MAX);
}

static void leave(struct reader *reader)
{
    assert(reader->depth > 0);
    reader->depth--;
}

static int emit_number(struct reader *reader, double number)
{
    struct expression *made = reader->made;
    if (!array_reserve(&made->numbers, &made->numbers_capacity, made->n_numbers + 1u))
        return no_memory(reader);
    made->numbers[made->n_numbers++] = number;
    return emit_value(reader, CODE_NUMBER, made->n_numbers - 1, 0);
}

static bool digit_at(const struct reader *reader, size_t ahead)
{
    return isdigit((unsigned char)peek(reader, ahead)) != 0;
}

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Bytes of a number here, its sign included: digits, a point with digits, an exponent with digits; or inf. 0: none. */
static size_t number_bytes(const struct reader *reader)
{
    size_t sign = peek(reader, 0) == '-' || peek(reader, 0) == '+', n = sign;
    if (reader->bytes - reader->at >= sign + 3 && strncasecmp(reader->text + reader->at + sign, "inf", 3) == 0 &&
        !is_word_byte(peek(reader, sign + 3)) && peek(reader, sign + 3) != '(')
        return sign + 3;
    while (digit_at(reader, n))
        n++;
    if (peek(reader, n) == '.' && digit_at(reader, n + 1))
        for (n++; digit_at(reader, n);)
            n++;
    if (n == sign)
        return 0;
    if (tolower((unsigned char)peek(reader, n)) == 'e') {
        size_t exponent = n + 1 + (peek(reader, n + 1) == '-' || peek(reader, n + 1) == '+');
        if (digit_at(reader, exponent))
            for (n = exponent; digit_at(reader, n);)
                n++;
    }
    return n;
}

static int read_number(struct reader *reader, size_t n)
{
    char text[400]; /* longer than any number that means something: 309 digits and a fraction */
    if (n >= sizeof text)
        return error_set(reader->err, QUIRE_ELIMIT, "the number at offset %zu has %zu characters, at most %zu may be",
                         reader->at, n, sizeof text - 1);
    memcpy(text, reader->text + reader->at, n);
    text[n] = '\0';
    reader->at += n;
    return emit_number(reader, strtod(text, NULL));
}

/* Keeps a piece of text, from which a backslash goes that stands before punctuation or a blank. */
static struct expression_piece keep_text(struct reader *reader, size_t from, size_t to)
{
    struct expression *made = reader->made;
    size_t begin = made->text_bytes;
    for (size_t i = from; i < to; i++) {
        if (reader->text[i] == '\\' && i + 1 < to &&
            (ispunct((unsigned char)reader->text[i + 1]) || isspace((unsigned char)reader->text[i + 1])))
            i++;
        made->text[made->text_bytes++] = reader->text[i];
    }
    struct expression_piece piece = {(uint32_t)begin, (uint32_t)(made->text_bytes - begin)};
    made->text[made->text_bytes++] = '\0';
    return piece;
}

static int read_string(struct reader *reader)
{
    struct expression *made = reader->made;
    char quote = peek(reader, 0);
    size_t from = reader->at + 1, end = from;
    while (end < reader->bytes && reader->text[end] != quote)
        end += reader->text[end] == '\\' && end + 1 < reader->bytes ? 2 : 1;
    if (end >= reader->bytes)
        return error_set(reader->err, QUIRE_EPARSE, "Syntax error at offset %zu: the text in %c has no end", reader->at,
                         quote);
    if (!array_reserve(&made->strings, &made->strings_capacity, made->n_strings + 1u))
        return no_memory(reader);
    made->strings[made->n_strings++] = keep_text(reader, from, end);
    reader->at = end + 1;
    return emit_value(reader, CODE_STRING, made->n_strings - 1, 0);
}

/* @name: letters, digits, _, any byte above ASCII, what is escaped, and points between such. */
static int read_name(struct reader *reader)
{
    struct expression *made = reader->made;
    size_t from = reader->at + 1, end = from;
    while (end < reader->bytes) {
        char c = reader->text[end], next = end + 1 < reader->bytes ? reader->text[end + 1] : '\0';
        bool escaped = c == '\\' && next && (ispunct((unsigned char)next) || isspace((unsigned char)next));
        if (!escaped && !is_word_byte(c) && !(c == '.' && end > from && is_word_byte(next)))
            break;
        end += escaped ? 2 : 1;
    }
    if (end == from)
        return unexpected(reader, "the name of a field behind @");
    struct expression_piece piece = keep_text(reader, from, end);
    reader->at = end;
    uint32_t i = 0;
    while (i < made->n_names && (made->names[i].bytes != piece.bytes ||
                                 memcmp(made->text + made->names[i].from, made->text + piece.from, piece.bytes) != 0))
        i++;
    if (i < made->n_names)
        return emit_value(reader, CODE_NAME, i, 0);
    if (made->n_names == EXPRESSION_NAMES_MAX)
        return error_set(reader->err, QUIRE_ELIMIT, "at offset %zu: an expression names %u different fields at most",
                         reader->at, EXPRESSION_NAMES_MAX);
    if (!array_reserve(&made->names, &made->names_capacity, made->n_names + 1u))
        return no_memory(reader);
    made->names[made->n_names++] = piece;
    return emit_value(reader, CODE_NAME, i, 0);
}

/* case(condition, then, else): only the part that is wanted runs. Behind the parenthesis. */
static int read_case(struct reader *reader, uint32_t *n)
{
    int rc = parse_or(reader);
    if (rc)
        return rc;
    *n = 1;
    if (!take(reader, ","))
        return 0;
    uint32_t on_false = reader->made->n_steps;
    rc = emit(reader, CODE_JUMP_FALSE, 0, 0);
    reader->waiting--;
    if (rc == 0)
        rc = parse_or(reader);
    if (rc)
        return rc;
    *n = 2;
    uint32_t to_end = reader->made->n_steps;
    rc = emit(reader, CODE_JUMP, 0, 0);
    if (rc || !take(reader, ","))
        return rc;
    land(reader, on_false);
    reader->waiting--; /* one of the two values is pushed */
    rc = parse_or(reader);
    if (rc)
        return rc;
    *n = 3;
    land(reader, to_end);
    return 0;
}

static int read_args(struct reader *reader, uint32_t *n)
{
    *n = 0;
    if (peek(reader, 0) == ')')
        return 0;
    do {
        if (*n == EXPRESSION_ARGS_MAX)
            return error_set(reader->err, QUIRE_ELIMIT, "at offset %zu: a function takes %u arguments at most",
                             reader->at, EXPRESSION_ARGS_MAX);
        int rc = parse_or(reader);
        if (rc)
            return rc;
        ++*n;
    } while (take(reader, ","));
    return 0;
}

static int check_arity(struct reader *reader, const struct expression_entry *entry, uint32_t n, size_t at)
{
    if (n >= entry->args_min && n <= entry->args_max)
        return 0;
    if (entry->args_min == entry->args_max)
        return error_set(reader->err, QUIRE_EPARSE, "Function '%s' at offset %zu expects %u arguments, but got %u",
                         entry->name, at, entry->args_min, n);
    return error_set(reader->err, QUIRE_EPARSE,
                     "Function '%s' at offset %zu expects between %u and %u arguments, but got %u", entry->name, at,
                     entry->args_min, entry->args_max, n);
}

static int read_call(struct reader *reader, size_t from, size_t bytes)
{
    uint32_t n = 0, number = 0, first = reader->made->n_steps;
    const struct expression_entry *entry = expression_find(reader->text + from, bytes, &number);
    if (!entry)
        return error_set(reader->err, QUIRE_EPARSE, "Unknown function name '%.*s' at offset %zu",
                         (int)(bytes < 64 ? bytes : 64), reader->text + from, from);
    int rc = enter(reader);
    skip_blanks(reader);
    if (rc == 0)
        rc = !entry->function && peek(reader, 0) != ')' ? read_case(reader, &n) : read_args(reader, &n);
    if (rc)
        return rc;
    if (!take(reader, ")"))
        return unexpected(reader, entry->args_max > n ? "',' or ')'" : "')'");
    leave(reader);
    rc = check_arity(reader, entry, n, from);
    if (rc || !entry->function)
        return rc;
    if (strcmp(entry->name, "exists") == 0)
        allow_missing(reader, first);
    reader->made->uses_terms = reader->made->uses_terms || strcmp(entry->name, "matched_terms") == 0;
    return emit_value(reader, CODE_CALL, number, n);
}

static int read_symbol(struct reader *reader)
{
    size_t from = reader->at, end = from;
    while (end < reader->bytes && is_word_byte(reader->text[end]))
        end++;
    size_t bytes = end - from;
    reader->at = end;
    if (take(reader, "("))
        return read_call(reader, from, bytes);
    if (bytes == 4 && strncasecmp(reader->text + from, "NULL", 4) == 0)
        return emit_value(reader, CODE_NULL, 0, 0);
    return error_set(reader->err, QUIRE_EPARSE,
                     "Unknown symbol '%.*s' at offset %zu: text stands in quotes, fields begin with @",
                     (int)(bytes < 64 ? bytes : 64), reader->text + from, from);
}

static int parse_value(struct reader *reader)
{
    skip_blanks(reader);
    size_t n = number_bytes(reader);
    if (n > 0)
        return read_number(reader, n);
    char c = peek(reader, 0);
    if (c == '(') {
        reader->at++;
        int rc = enter(reader);
        if (rc == 0)
            rc = parse_or(reader);
        if (rc == 0 && !take(reader, ")"))
            rc = unexpected(reader, "an operator or ')'");
        leave(reader);
        return rc;
    }
    if (c == '"' || c == '\'')
        return read_string(reader);
    if (c == '@')
        return read_name(reader);
    if (isalpha((unsigned char)c) || c == '_')
        return read_symbol(reader);
    return unexpected(reader, "a value");
}

/* Signs, and ! before a part of a comparison: !a + 1 is !(a + 1) by parse_not, 1 + !a comes here. */
static int parse_unary(struct reader *reader)
{
    skip_blanks(reader);
    char c = peek(reader, 0);
    if ((c != '-' && c != '+' && c != '!') || number_bytes(reader) > 0)
        return parse_value(reader);
    reader->at++;
    int rc = enter(reader);
    if (rc == 0)
        rc = parse_unary(reader);
    leave(reader);
    if (rc || c == '+')
        return rc;
    return emit_value(reader, c == '-' ? CODE_NEGATE : CODE_NOT, 0, 1);
}

static int parse_power(struct reader *reader)
{
    int rc = parse_unary(reader);
    if (rc || !take(reader, "^"))
        return rc;
    rc = enter(reader); /* to the right: the one chain that is deep */
    if (rc == 0)
        rc = parse_power(reader);
    leave(reader);
    return rc ? rc : emit_value(reader, CODE_POWER, 0, 2);
}

static int parse_product(struct reader *reader)
{
    int rc = parse_power(reader);
    while (rc == 0) {
        enum expression_code code = take(reader, "*")   ? CODE_MULTIPLY
                                    : take(reader, "/") ? CODE_DIVIDE
                                    : take(reader, "%") ? CODE_MODULO
                                                        : CODE_NUMBER;
        if (code == CODE_NUMBER)
            return 0;
        rc = parse_power(reader);
        if (rc == 0)
            rc = emit_value(reader, code, 0, 2);
    }
    return rc;
}

static int parse_sum(struct reader *reader)
{
    int rc = parse_product(reader);
    while (rc == 0) {
        enum expression_code code = take(reader, "+") ? CODE_ADD : take(reader, "-") ? CODE_SUBTRACT : CODE_NUMBER;
        if (code == CODE_NUMBER)
            return 0;
        rc = parse_product(reader);
        if (rc == 0)
            rc = emit_value(reader, code, 0, 2);
    }
    return rc;
}

static bool take_comparison(struct reader *reader, enum expression_code *code)
{
    static const struct {
        const char *token;
        enum expression_code code;
    } comparisons[] = {{"==", CODE_EQUAL},    {"!=", CODE_UNEQUAL}, {"<=", CODE_AT_MOST},
                       {">=", CODE_AT_LEAST}, {"<", CODE_LESS},     {">", CODE_GREATER}};
    for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++)
        if (take(reader, comparisons[i].token)) {
            *code = comparisons[i].code;
            return true;
        }
    return false;
}

static int parse_comparison(struct reader *reader)
{
    enum expression_code code;
    int rc = parse_sum(reader);
    if (rc || !take_comparison(reader, &code))
        return rc;
    rc = parse_sum(reader);
    if (rc == 0)
        rc = emit_value(reader, code, 0, 2);
    size_t at = reader->at;
    if (rc == 0 && take_comparison(reader, &code)) {
        reader->at = at;
        return unexpected(reader, "&&, || or the end: comparisons do not chain, put one of them in parentheses");
    }
    return rc;
}

static int parse_not(struct reader *reader)
{
    uint32_t n = 0;
    for (skip_blanks(reader); peek(reader, 0) == '!' && peek(reader, 1) != '='; skip_blanks(reader)) {
        reader->at++;
        n++;
    }
    int rc = parse_comparison(reader);
    return rc || n == 0 ? rc : emit_value(reader, n % 2 ? CODE_NOT : CODE_TRUTH, 0, 1);
}

/* Operands with && or || between them: each but the last jumps to the end where it decides. */
static int parse_logical(struct reader *reader, const char *token, enum expression_code code,
                         int (*operand)(struct reader *))
{
    struct expression *made = reader->made;
    uint32_t from = made->n_steps, chain = UINT32_MAX;
    int rc = operand(reader);
    while (rc == 0 && take(reader, token)) {
        allow_missing(reader, from);
        uint32_t jump = made->n_steps;
        rc = emit(reader, code, chain, 0); /* until the end is known, a jump names the one before it */
        chain = jump;
        reader->waiting--;
        from = made->n_steps;
        if (rc == 0)
            rc = operand(reader);
    }
    if (rc || chain == UINT32_MAX)
        return rc;
    allow_missing(reader, from);
    rc = emit_value(reader, CODE_TRUTH, 0, 1);
    while (rc == 0 && chain != UINT32_MAX) {
        uint32_t before = made->steps[chain].at;
        land(reader, chain);
        chain = before;
    }
    return rc;
}

static int parse_and(struct reader *reader)
{
    return parse_logical(reader, "&&", CODE_AND, parse_not);
}

static int parse_or(struct reader *reader)
{
    return parse_logical(reader, "||", CODE_OR, parse_and);
}

int expression_parse(const char *text, size_t bytes, struct expression **out, struct quire_error *err)
{
    if (bytes > EXPRESSION_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "an expression has %u bytes at most, not %zu: split it into several APPLY",
                         EXPRESSION_BYTES_MAX, bytes);
    struct expression *made = calloc(1, sizeof *made);
    if (made)
        made->text = malloc(2 * bytes + 1); /* each piece is as long as what it was read from at most, and a NUL */
    if (!made || !made->text) {
        free(made);
        return error_set(err, QUIRE_ENOMEM, "no memory for an expression of %zu bytes", bytes);
    }
    struct reader reader = {.text = text, .bytes = bytes, .made = made, .err = err};
    int rc = parse_or(&reader);
    skip_blanks(&reader);
    if (rc == 0 && reader.at < bytes)
        rc = unexpected(&reader, "an operator or the end");
    if (rc) {
        expression_free(made);
        return rc;
    }
    assert(reader.waiting == 1 && reader.depth == 0 && made->text_bytes <= 2 * bytes);
    *out = made;
    return 0;
}

void expression_free(struct expression *expression)
{
    if (!expression)
        return;
    array_free_all(expression->steps, expression->numbers, expression->strings, expression->names, expression->text);
    free(expression);
}

uint32_t expression_n_names(const struct expression *expression)
{
    return expression->n_names;
}

const char *expression_name(const struct expression *expression, uint32_t i, uint32_t *bytes)
{
    assert(i < expression->n_names);
    *bytes = expression->names[i].bytes;
    return expression->text + expression->names[i].from;
}

bool expression_uses_terms(const struct expression *expression)
{
    return expression->uses_terms;
}
