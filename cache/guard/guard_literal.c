/*
 * guard_literal.c - names, and words that are meant letter by letter.
 *
 * A literal is what guard_text.c found (quoted, addresses, codes), a name of the tables, or a word with a capital where
 * the grammar asks for none. Capitals say nothing in a text that is all capitals or Nearly All Capitals, and little in
 * German, whose nouns have them; there only the tables count. At the begin of a sentence a capital says nothing either,
 * but a word there that behaves as a name ("Mozart was born ...", "Jupiter's moons", "Mount Everest") is one.
 *
 * Two texts agree if each has the codes and quoted words of the other. Names are optional: one may be missing ("sort a
 * list in sql" and "sort a list"), but not when the other text has one of its own that is missing here. In pairs of
 * real questions a paraphrase leaves names out as often as a look-alike does (docs/guards.md).
 *
 * Units and currencies without a number ("in miles") are optional literals too.
 *
 * The order of two names decides as well: "from Berlin to Madrid", "json to xml", "8 divided by 2". Where a word of
 * directions.txt stands between two names or numbers, or after a verb that turns one thing into another, the two make
 * a record of their own, which disagrees with its reverse and with nothing else.
 */
#include "cache/guard/guard_priv.h"
#include <stdio.h>

static void emit(struct guard_reader *r, char how, struct quire_bytes text)
{
    char payload[GUARD_KEY_BYTES + 512];
    size_t bytes = text.n_bytes < sizeof payload - 1 ? text.n_bytes : sizeof payload - 1;
    payload[0] = how;
    memcpy(payload + 1, text.data, bytes);
    guard_emit(r, RECORD_LITERAL, payload, bytes + 1);
}

/* A name or unit of the tables at token i. The tokens taken. */
static uint32_t known_name(struct guard_reader *r, uint32_t i)
{
    uint32_t n = 0, optional_n = 0, unit_n = 0;
    const struct guard_meaning *name = guard_match(r, i, MEANS_NAME, &n);
    const struct guard_meaning *optional = guard_match(r, i, MEANS_OPTIONAL, &optional_n);
    if (name && n >= optional_n) {
        emit(r, 'o', guard_meaning_text(r->tables, name));
        return n;
    }
    if (optional) {
        emit(r, 'o', guard_meaning_text(r->tables, optional));
        return optional_n;
    }
    const struct guard_meaning *unit = guard_unit_at(r, i, &unit_n);
    if (!unit || r->tokens[i].bytes < 2 || guard_is(r, i, "second") || unit->kind == MEANS_DEGREE)
        return 0;
    emit(r, 'o', guard_meaning_text(r->tables, unit));
    return unit_n;
}

/* "neck/back", "these meds.about two": two words with a sign between, each of three letters or more. As a code it may
 * still differ from another one, but a text without it does not. "km/h" and "node.js" are codes. */
static bool is_two_words(struct quire_bytes text)
{
    const char *bytes = text.data;
    size_t part = 0, signs = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        bool letter = (bytes[i] >= 'a' && bytes[i] <= 'z') || (bytes[i] >= 'A' && bytes[i] <= 'Z');
        bool sign = (bytes[i] == '/' || bytes[i] == '.') && part >= 3;
        if (!letter && !sign)
            return false;
        signs += sign;
        part = letter ? part + 1 : 0;
    }
    return signs > 0 && part >= 3;
}

static bool is_ordinary(const struct guard_reader *r, uint32_t i)
{
    return guard_token_means(r, i, MEANS_ORDINARY) || guard_token_means(r, i, MEANS_STOPWORD);
}

/* Whether the word is a name by its capital. */
static bool by_capital(const struct guard_reader *r, uint32_t i)
{
    static const char *const verbs[] = {"is", "was", "has", "are", "were", "had", "invented", "wrote", "died", NULL};
    const struct guard_token *token = &r->tokens[i];
    if (r->shouting || !token->capital || is_ordinary(r, i))
        return false;
    if (token->all_caps)
        return true;
    if (r->titled || strcmp(r->language, "de") == 0 || token->bytes < 2 || token->joint != ' ')
        return false;
    if (!token->opens)
        return true;
    bool like_name = token->possessive ||
                     (i + 1 < r->n_tokens && r->tokens[i + 1].capital && !token->closes && !is_ordinary(r, i + 1));
    for (unsigned v = 0; verbs[v]; v++)
        like_name |= guard_is(r, i + 1, verbs[v]);
    return like_name;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static bool is_article(const struct guard_reader *r, uint32_t i)
{
    return guard_is(r, i, "a") || guard_is(r, i, "an") || guard_is(r, i, "the") || guard_is(r, i, "my");
}

/* The canonical name of token i if the tables have one. */
static struct quire_bytes canonical(const struct guard_reader *r, uint32_t i)
{
    static const enum guard_meaning_kind kinds[] = {MEANS_NAME, MEANS_OPTIONAL, MEANS_UNIT, MEANS_CURRENCY};
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const struct guard_meaning *means = guard_token_means(r, i, kinds[k]);
        if (means)
            return guard_meaning_text(r->tables, means);
    }
    return guard_token_text(r, i);
}

void guard_read_literals(struct guard_reader *r)
{
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        const struct guard_token *token = &r->tokens[i];
        uint32_t n = 1;
        if (token->used)
            continue;
        if (token->kind == TOKEN_LITERAL)
            emit(r, is_two_words(guard_token_text(r, i)) ? 'o' : 's', guard_token_text(r, i));
        else if (i > 0 && r->tokens[i].closes &&
                 (guard_is(r, i - 1, "hi") || guard_is(r, i - 1, "hello") || guard_is(r, i - 1, "hey") ||
                  guard_is(r, i - 1, "dear") || guard_is(r, i - 1, "thanks")))
            continue;
        else if ((n = known_name(r, i)) > 0)
            ;
        else if (by_capital(r, i)) {
            emit(r, 'o', guard_token_text(r, i));
            n = 1;
        } else {
            continue;
        }
        for (uint32_t t = i; t < i + n; t++)
            r->tokens[t].used = r->tokens[t].named = true;
        i += n - 1;
    }
    bool turns = false;
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        turns |= guard_token_means(r, i, MEANS_TURNS) != NULL;
        uint32_t order_n = 0;
        if (i == 0 || r->tokens[i].used || !guard_match(r, i, MEANS_BETWEEN, &order_n))
            continue;
        uint32_t left = i - 1, right = i + order_n;
        while (right < r->n_tokens && is_article(r, right))
            right++;
        if (right >= r->n_tokens || is_article(r, left))
            continue;
        bool named = r->tokens[left].named && r->tokens[right].named;
        if (!named && !turns)
            continue;
        bool backwards = guard_is(r, i, "from");
        char payload[GUARD_PAYLOAD];
        struct quire_bytes a = canonical(r, backwards ? right : left), b = canonical(r, backwards ? left : right);
        int bytes = snprintf(payload, sizeof payload, "%.*s>%.*s", (int)(a.n_bytes < 22 ? a.n_bytes : 22),
                             (const char *)a.data, (int)(b.n_bytes < 22 ? b.n_bytes : 22), (const char *)b.data);
        if (!text_equal(a, b))
            guard_emit(r, RECORD_ORDER, payload, (size_t)bytes);
    }
}
