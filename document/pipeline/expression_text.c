/*
 * expression_text.c - functions about text. Positions and lengths count bytes, and case is that of ASCII letters.
 */
#include "document/pipeline/expression_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define SPLIT_MAX 1024u /* parts that split() gives at most */

static int change_case(struct expression_call *call, struct datum *const *args, bool upper, struct datum **out)
{
    if (args[0]->kind != DATUM_STRING)
        return expression_give_null(call, out);
    struct datum *changed = datum_string(call->pool, datum_text(args[0]), args[0]->n);
    for (uint32_t i = 0; changed && i < changed->n; i++) {
        unsigned char c = (unsigned char)datum_bytes(changed)[i];
        if (c < 0x80)
            datum_bytes(changed)[i] = (char)(upper ? toupper(c) : tolower(c));
    }
    return expression_give(call, changed, out);
}

int expression_lower(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return change_case(call, args, false, out);
}

int expression_upper(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return change_case(call, args, true, out);
}

/* A position or a length, cut to what no text exceeds. */
static int64_t whole(double number)
{
    const double most = DATUM_STRING_MAX;
    return number >= most ? (int64_t)most : number <= -most ? -(int64_t)most : number != number ? 0 : (int64_t)number;
}

/* substr(text, offset, length): a negative offset counts from the end, a negative length leaves as many bytes off. */
int expression_substr(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    assert(n == 3);
    int rc = expression_want_string(call, args, 0);
    for (uint32_t i = 1; rc == 0 && i < n; i++)
        if (args[i]->kind != DATUM_NUMBER)
            rc = error_set(call->err, QUIRE_EINVALID,
                           "Invalid type for argument %u in function 'substr': it is %s, a number is needed", i,
                           expression_kind_name(args[i]));
    if (rc)
        return rc;
    int64_t bytes = args[0]->n, from = whole(args[1]->number), length = whole(args[2]->number);
    if (from < 0)
        from += bytes;
    if (from < 0 || from > bytes) /* before the text: nothing, as RediSearch answers */
        from = bytes;
    if (length < 0)
        length += bytes - from;
    length = length < 0 ? 0 : length > bytes - from ? bytes - from : length;
    return expression_give(call, datum_string(call->pool, datum_text(args[0]) + from, (size_t)length), out);
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

struct text_out {
    char *bytes;
    size_t n, capacity;
};

static bool append(struct text_out *text, const char *bytes, size_t n)
{
    if (n > DATUM_STRING_MAX - text->n || !array_reserve(&text->bytes, &text->capacity, text->n + n))
        return false;
    if (n > 0)
        memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    return true;
}

static bool append_datum(struct text_out *text, const struct datum *datum)
{
    char number[DATUM_PRINT_MAX];
    switch (datum->kind) {
    case DATUM_NULL:
        return append(text, "(null)", 6);
    case DATUM_NUMBER:
        return append(text, number, datum_print(datum->number, number));
    case DATUM_STRING:
        return append(text, datum_text(datum), datum->n);
    case DATUM_ARRAY:
        break;
    }
    return true; /* nothing, as RediSearch */
}

static int format_text(struct expression_call *call, struct datum *const *args, uint32_t n, struct text_out *text)
{
    const char *format = datum_text(args[0]);
    uint32_t bytes = args[0]->n, used = 1;
    bool fine = append(text, "", 0);
    for (uint32_t i = 0; i < bytes && fine; i++) {
        if (format[i] != '%') {
            const char *next = memchr(format + i, '%', bytes - i);
            uint32_t plain = next ? (uint32_t)(next - format) - i : bytes - i;
            fine = append(text, format + i, plain);
            i += plain - 1;
            continue;
        }
        if (++i == bytes)
            return error_set(call->err, QUIRE_EINVALID, "Bad format string! '%%' at its end: a percent sign is %%%%");
        if (format[i] == '%') {
            fine = append(text, "%", 1);
        } else if (format[i] != 's') {
            return error_set(call->err, QUIRE_EINVALID,
                             "Unknown format specifier passed: '%%%c' at byte %u; %%s and %%%% there are", format[i],
                             i - 1);
        } else if (used == n) {
            return error_set(call->err, QUIRE_EINVALID,
                             "Not enough arguments for format: it has %u, and %%s at byte %u", n - 1, i - 1);
        } else {
            fine = append_datum(text, args[used++]);
        }
    }
    return fine ? 0
                : error_set(call->err, QUIRE_ENOMEM, "no memory for a text of format(), or it exceeds %u bytes",
                            DATUM_STRING_MAX);
}

/* format(format, value, ...): %s and %%. */
int expression_format(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    struct text_out text = {0};
    int rc = expression_want_string(call, args, 0);
    if (rc)
        return rc;
    rc = format_text(call, args, n, &text);
    if (rc == 0)
        rc = expression_give(call, datum_string(call->pool, text.bytes, text.n), out);
    free(text.bytes);
    return rc;
}

/* ---- split ------------------------------------------------------------------------------------------------------- */

static bool is_among(char c, const char *set, size_t n)
{
    return n > 0 && memchr(set, c, n) != NULL;
}

/* Parts of text between separators, without `strip` at both ends; empty ones are left out. Returns how many; with
 * `places`, they are put there. False where one could not be made. */
static bool split_into(struct expression_call *call, const struct datum *text, const struct datum *separators,
                       const struct datum *strip, struct datum **places, uint32_t *n)
{
    const char *bytes = datum_text(text), *separator = separators ? datum_text(separators) : ",";
    const char *blank = strip ? datum_text(strip) : " ";
    size_t n_separator = separators ? separators->n : 1, n_blank = strip ? strip->n : 1;
    *n = 0;
    for (size_t from = 0, to; from < text->n && *n < SPLIT_MAX; from = to + 1) {
        for (to = from; to < text->n && !is_among(bytes[to], separator, n_separator);)
            to++;
        size_t begin = from, end = to;
        while (begin < end && is_among(bytes[begin], blank, n_blank))
            begin++;
        while (end > begin && is_among(bytes[end - 1], blank, n_blank))
            end--;
        if (begin == end)
            continue;
        if (places && !(places[*n] = datum_string(call->pool, bytes + begin, end - begin)))
            return false;
        ++*n;
    }
    return true;
}

/* split(text[, separators[, strip]]) */
int expression_split(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    uint32_t parts, again;
    for (uint32_t i = 0; i < n; i++) {
        int rc = expression_want_string(call, args, i);
        if (rc)
            return rc;
    }
    const struct datum *separators = n >= 2 ? args[1] : NULL, *strip = n == 3 ? args[2] : NULL;
    split_into(call, args[0], separators, strip, NULL, &parts);
    struct datum *array = datum_array(call->pool, parts);
    if (array && !split_into(call, args[0], separators, strip, datum_items(array), &again)) {
        datum_release(call->pool, array);
        array = NULL;
    }
    assert(!array || again == parts);
    return expression_give(call, array, out);
}

/* ---- looking into texts ------------------------------------------------------------------------------------------ */

static int want_two_strings(struct expression_call *call, struct datum *const *args)
{
    int rc = expression_want_string(call, args, 0);
    return rc ? rc : expression_want_string(call, args, 1);
}

int expression_startswith(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    int rc = want_two_strings(call, args);
    if (rc)
        return rc;
    bool starts = args[0]->n >= args[1]->n && memcmp(datum_text(args[0]), datum_text(args[1]), args[1]->n) == 0;
    return expression_give_number(call, starts, out);
}

/* How often `part` is in the text, overlapping ones included (Knuth, Morris and Pratt 1977: the time is that of the two
 * texts, whatever is in them). `borders` has a place for each byte of `part`. */
static uint32_t count_parts(const struct datum *text, const struct datum *part, uint32_t *borders)
{
    const char *t = datum_text(text), *p = datum_text(part);
    uint32_t found = 0, matched = 0;
    borders[0] = 0;
    for (uint32_t i = 1; i < part->n; i++) {
        while (matched > 0 && p[i] != p[matched])
            matched = borders[matched - 1];
        matched += p[i] == p[matched];
        borders[i] = matched;
    }
    matched = 0;
    for (uint32_t i = 0; i < text->n; i++) {
        while (matched > 0 && (matched == part->n || t[i] != p[matched]))
            matched = borders[matched - 1];
        matched += t[i] == p[matched];
        found += matched == part->n;
    }
    return found;
}

/* contains(text, part): how often; the empty text is at every place. */
int expression_contains(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    uint32_t few[64], *borders = few;
    (void)n;
    int rc = want_two_strings(call, args);
    if (rc)
        return rc;
    if (args[1]->n == 0)
        return expression_give_number(call, args[0]->n + 1.0, out);
    if (args[1]->n > args[0]->n)
        return expression_give_number(call, 0, out);
    if (args[1]->n > sizeof few / sizeof few[0] && !(borders = malloc(args[1]->n * sizeof *borders)))
        return error_set(call->err, QUIRE_ENOMEM, "no memory to look for a text of %u bytes", args[1]->n);
    uint32_t found = count_parts(args[0], args[1], borders);
    if (borders != few)
        free(borders);
    return expression_give_number(call, found, out);
}

int expression_strlen(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    int rc = expression_want_string(call, args, 0);
    return rc ? rc : expression_give_number(call, args[0]->n, out);
}
