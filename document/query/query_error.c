/*
 * query_error.c - what is said of a query that cannot be read.
 *
 * Clients and their tests look for RediSearch's words ("Syntax error at offset 4 near foo", "Unknown field at offset 0
 * near bar", "No such parameter `x`"), so messages begin with these; what was expected instead comes behind them. The
 * offset counts bytes from 0.
 */
#include "document/query/query_priv.h"
#include "io/error.h"
#include <assert.h>
#include <string.h>

#define NEAR_BYTES_MAX 40u

/* The token for people: its part that counts, without control characters, cut where it is long. */
static void near_text(const struct token *token, char out[NEAR_BYTES_MAX + 1])
{
    uint32_t n = token->bytes;
    if (n > NEAR_BYTES_MAX) {
        n = NEAR_BYTES_MAX;
        while (n > 0 && ((unsigned char)token->text[n] & 0xc0) == 0x80)
            n--;
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = (unsigned char)token->text[i] < ' ' || token->text[i] == 0x7f ? '?' : token->text[i];
    out[n] = 0;
}

int query_fail_as(struct parser *p, const struct token *token, const char *what, const char *more)
{
    char near[NEAR_BYTES_MAX + 1];
    assert(token->at <= p->bytes);
    if (token->kind == TOKEN_END)
        return error_set(p->err, QUIRE_EPARSE, "%s at offset %u near the end%s", what, token->at, more);
    near_text(token, near);
    return error_set(p->err, QUIRE_EPARSE, "%s at offset %u near %s%s", what, token->at, near, more);
}

int query_fail(struct parser *p, const struct token *token, const char *expected)
{
    char near[NEAR_BYTES_MAX + 1];
    assert(token->at <= p->bytes);
    if (token->kind == TOKEN_END)
        return error_set(p->err, QUIRE_EPARSE, "Syntax error at offset %u near the end: expected %s", token->at,
                         expected);
    near_text(token, near);
    return error_set(p->err, QUIRE_EPARSE, "Syntax error at offset %u near %s: expected %s", token->at, near, expected);
}

int query_fail_memory(struct parser *p)
{
    return error_set(p->err, QUIRE_ENOMEM, "no memory for the query's tree");
}

int query_enter(struct parser *p)
{
    if (p->depth >= QUERY_DEPTH_MAX)
        return error_set(
            p->err, QUIRE_ELIMIT,
            "The query is nested more than %u levels deep at offset %u: take out parentheses; a | b | c and "
            "a b c need none",
            QUERY_DEPTH_MAX, p->token.at);
    p->depth++;
    return 0;
}
