/*
 * guard_negation.c - negations, and pairs of opposites: on and off, ascending and descending.
 *
 * A negation is a word of negations.txt (not, never, without) or ends in "n't". The file also lists phrases that only
 * look like one ("why not", "can't you", "not only", "don't forget"), which are left out. Texts disagree if one has a
 * negation and the other has none; how many there are is not compared, since "my code is not working, why" and "why
 * doesn't my code work" hold what "neither ... nor" holds twice.
 *
 * Of a pair of antonyms.txt both texts may have either side. They disagree if one has only the left side and the other
 * only the right; a text that names both ("is tea better or worse") or none says nothing. Words are found in simple
 * inflections too: enabled, enabling, enables.
 */
#include "cache/guard/guard_priv.h"

static bool ends_in(struct quire_bytes word, const char *end)
{
    size_t bytes = strlen(end);
    return word.n_bytes > bytes && memcmp((const char *)word.data + word.n_bytes - bytes, end, bytes) == 0;
}

static bool is_negation(const struct guard_reader *r, uint32_t i)
{
    const struct guard_word *word = r->tokens[i].word;
    for (uint32_t m = guard_may_mean(word, 1u << MEANS_NOT) ? word->meanings : 0; m != 0;
         m = r->tables->meanings[m].next) {
        const struct guard_meaning *means = &r->tables->meanings[m];
        struct quire_bytes language = guard_meaning_text(r->tables, means);
        if (means->kind == MEANS_NOT &&
            (text_equal(language, text_of("not")) || text_equal(language, text_of(r->language))))
            return true;
    }
    return r->tokens[i].kind == TOKEN_WORD && ends_in(guard_token_text(r, i), "n't");
}

/* Every pair that a word or phrase is of. */
static bool emit_pairs(struct guard_reader *r, const struct guard_word *word)
{
    bool any = false;
    for (uint32_t m = guard_may_mean(word, 1u << MEANS_PAIR) ? word->meanings : 0; m != 0;
         m = r->tables->meanings[m].next)
        if (r->tables->meanings[m].kind == MEANS_PAIR) {
            char payload[GUARD_PAYLOAD];
            struct quire_bytes name = guard_meaning_text(r->tables, &r->tables->meanings[m]);
            payload[0] = r->tables->meanings[m].value == 0 ? '0' : '1';
            memcpy(payload + 1, name.data, name.n_bytes);
            guard_emit(r, RECORD_PAIR, payload, name.n_bytes + 1);
            any = true;
        }
    return any;
}

/* "turn ~ on" where `on` stands at most five words behind `turn`. */
static void read_gap(struct guard_reader *r, uint32_t i)
{
    char key[GUARD_KEY_BYTES + 8];
    const struct guard_token *head = &r->tokens[i];
    if (head->bytes > GUARD_KEY_BYTES)
        return;
    memcpy(key, r->lower + head->at, head->bytes);
    memcpy(key + head->bytes, " ~ ", 3);
    for (uint32_t j = i + 2; j < r->n_tokens && j <= i + 6 && !r->tokens[j - 1].closes; j++) {
        uint32_t bytes = head->bytes + 3u + r->tokens[j].bytes;
        if (bytes > GUARD_KEY_BYTES || r->tokens[j].kind != TOKEN_WORD)
            continue;
        memcpy(key + head->bytes + 3, r->lower + r->tokens[j].at, r->tokens[j].bytes);
        if (emit_pairs(r, guard_lookup(r->tables, key, bytes)))
            return;
    }
}

/* The pairs of a word's stem: enabled, enabling, stops, darker. */
static void read_stem(struct guard_reader *r, uint32_t i)
{
    static const char *const endings[] = {"ing", "ed", "es", "er", "est", "ly", "s", "d", "r", "st"};
    struct quire_bytes word = guard_token_text(r, i);
    char stem[GUARD_KEY_BYTES + 1];
    for (unsigned e = 0; e < sizeof endings / sizeof *endings; e++) {
        size_t bytes = word.n_bytes - strlen(endings[e]);
        if (!ends_in(word, endings[e]) || bytes < 3 || bytes + 1 > sizeof stem)
            continue;
        memcpy(stem, word.data, bytes);
        if (emit_pairs(r, guard_lookup(r->tables, stem, bytes)))
            return;
        stem[bytes] = 'e';
        if (e == 0 && emit_pairs(r, guard_lookup(r->tables, stem, bytes + 1)))
            return;
        if (stem[bytes - 1] == stem[bytes - 2] && emit_pairs(r, guard_lookup(r->tables, stem, bytes - 1)))
            return;
    }
}

static bool is_word(const struct guard_token *token)
{
    return token->kind == TOKEN_WORD;
}

void guard_read_negations(struct guard_reader *r)
{
    bool found = false;
    for (uint32_t i = 0; i < r->n_tokens && !found; i++) {
        uint32_t n = 0;
        if (r->tokens[i].kind != TOKEN_WORD)
            continue;
        if (guard_match(r, i, MEANS_EXCEPT, &n)) {
            i += n - 1;
            continue;
        }
        if (!is_negation(r, i))
            continue;
        struct quire_bytes word = guard_token_text(r, i);
        guard_emit(r, RECORD_NOT, word.data, word.n_bytes);
        found = true;
    }
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        const struct guard_token *token = &r->tokens[i];
        uint32_t except_n = 0;
        if (token->kind != TOKEN_WORD)
            continue;
        if (guard_match(r, i, MEANS_EXCEPT, &except_n)) {
            i += except_n - 1;
            continue;
        }
        if (token->word && token->word->gap)
            read_gap(r, i);
        /* the longest phrase of opposites; single words that are none have their stems looked at */
        uint32_t pair_n = 0;
        emit_pairs(r, guard_longest(r, i, MEANS_PAIR, is_word, &pair_n));
        if (pair_n == 0 && token->bytes > 4)
            read_stem(r, i);
        i += pair_n > 1 ? pair_n - 1 : 0;
    }
}
