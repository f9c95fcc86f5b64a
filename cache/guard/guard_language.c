/*
 * guard_language.c - which language a text is in, by its script and its most frequent words.
 *
 * A script other than the Latin one decides by itself where it belongs to one language or few (Greek, Hebrew, Thai,
 * Hangul; kana for Japanese; Cyrillic and Arabic count as one language each). Latin text is told by the frequent words
 * of stopwords.txt: a word that one language alone has counts twice, letters like those of "über", "año" and "não"
 * count as well. A language is named if it has at least 4 points and twice those of the next; below that it is "xx",
 * which agrees with every language in Latin letters and with no other script. So short texts are not told apart, rather
 * than wrongly.
 *
 * Literals are left out: "how do you say 'bonjour'" is English.
 */
#include "cache/guard/guard_priv.h"

#define LANGUAGES  24u
#define POINTS_MIN 4u

struct script {
    uint32_t first, last;
    char language[3];
};

static const struct script scripts[] = {
    {0x0370, 0x03ff, "el"}, {0x0400, 0x052f, "ru"}, {0x0590, 0x05ff, "he"}, {0x0600, 0x06ff, "ar"},
    {0x0900, 0x097f, "hi"}, {0x0980, 0x09ff, "bn"}, {0x0b80, 0x0bff, "ta"}, {0x0e00, 0x0e7f, "th"},
    {0x1100, 0x11ff, "ko"}, {0x3040, 0x30ff, "ja"}, {0x4e00, 0x9fff, "zh"}, {0xac00, 0xd7af, "ko"},
};
#define SCRIPTS (sizeof scripts / sizeof *scripts)

/* The code point at text[*i], which moves on; malformed bytes are 0. */
static uint32_t next_code(struct quire_bytes text, size_t *i)
{
    const unsigned char *at = (const unsigned char *)text.data + *i;
    size_t left = text.n_bytes - *i, more = at[0] >= 0xf0 ? 3 : at[0] >= 0xe0 ? 2 : at[0] >= 0xc2 ? 1 : 0;
    uint32_t code = at[0] < 0x80 ? at[0] : at[0] & (0x3fu >> more);
    ++*i;
    if (at[0] < 0x80)
        return code;
    if (more == 0 || more >= left)
        return 0;
    for (size_t b = 1; b <= more; b++) {
        if ((at[b] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[b] & 0x3fu);
    }
    *i += more;
    return code;
}

/* The language of the script that most letters are of: NULL where that is the Latin one or there are no letters. */
static const char *by_script(const struct guard_reader *r, uint32_t *latin)
{
    uint32_t counts[SCRIPTS] = {0}, best = 0;
    bool kana = false;
    *latin = 0;
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        struct quire_bytes text = guard_token_text(r, t);
        if (r->tokens[t].kind != TOKEN_WORD)
            continue;
        for (size_t i = 0; i < text.n_bytes;) {
            uint32_t code = next_code(text, &i);
            *latin += (code >= 'a' && code <= 'z') || (code >= 0xc0 && code < 0x250);
            for (uint32_t s = 0; code >= 0x370 && s < SCRIPTS; s++)
                counts[s] += code >= scripts[s].first && code <= scripts[s].last;
        }
    }
    for (uint32_t s = 0; s < SCRIPTS; s++) {
        best = counts[s] > counts[best] ? s : best;
        kana |= counts[s] && strcmp(scripts[s].language, "ja") == 0;
    }
    if (counts[best] == 0 || counts[best] * 2 < *latin)
        return NULL;
    return kana && strcmp(scripts[best].language, "zh") == 0 ? "ja" : scripts[best].language;
}

struct tally {
    char language[LANGUAGES][3];
    uint32_t points[LANGUAGES], n;
};

static void count(struct tally *tally, const char *language, uint32_t points)
{
    uint32_t i = 0;
    while (i < tally->n && memcmp(tally->language[i], language, 2) != 0)
        i++;
    if (i == LANGUAGES)
        return;
    if (i == tally->n) {
        memcpy(tally->language[i], language, 2);
        tally->n++;
    }
    tally->points[i] += points;
}

static void count_stopword(const struct guard_reader *r, const struct guard_word *word, struct tally *tally)
{
    uint32_t n = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t m = word->meanings; m != 0; m = r->tables->meanings[m].next) {
            const struct guard_meaning *means = &r->tables->meanings[m];
            if (means->kind != MEANS_STOPWORD)
                continue;
            if (pass == 0)
                n++;
            else
                count(tally, guard_meaning_text(r->tables, means).data, n == 1 ? 2 : 1);
        }
}

/* Letters that one language has, or nearly. */
static void count_letters(const struct guard_reader *r, struct tally *tally)
{
    static const struct {
        char letter[3], language[3];
    } letters[] = {{"\xc3\x9f", "de"}, {"\xc3\xa4", "de"}, {"\xc3\xb6", "de"}, {"\xc3\xbc", "de"}, {"\xc3\xb1", "es"},
                   {"\xc2\xbf", "es"}, {"\xc2\xa1", "es"}, {"\xc3\xa3", "pt"}, {"\xc3\xb5", "pt"}, {"\xc3\xaa", "fr"},
                   {"\xc5\x93", "fr"}, {"\xc3\xa8", "fr"}, {"\xc3\xac", "it"}, {"\xc3\xb2", "it"}};
    const char *text = r->text.data;
    for (size_t i = 0; i + 1 < r->text.n_bytes; i++)
        for (unsigned l = 0; (unsigned char)text[i] >= 0xc2 && l < sizeof letters / sizeof *letters; l++)
            if (memcmp(text + i, letters[l].letter, 2) == 0)
                count(tally, letters[l].language, 1);
}

void guard_read_language(struct guard_reader *r)
{
    struct tally tally = {.n = 0};
    uint32_t latin, best = 0, second = 0;
    const char *language = by_script(r, &latin);
    if (!language && latin >= 3) {
        for (uint32_t t = 0; t < r->n_tokens; t++)
            if (r->tokens[t].kind == TOKEN_WORD && r->tokens[t].word)
                count_stopword(r, r->tokens[t].word, &tally);
        count_letters(r, &tally);
        for (uint32_t i = 0; i < tally.n; i++)
            if (tally.points[i] > tally.points[best])
                best = i;
        for (uint32_t i = 0; i < tally.n; i++)
            if (i != best && tally.points[i] > second)
                second = tally.points[i];
        language = tally.n && tally.points[best] >= POINTS_MIN && tally.points[best] >= 2 * second
                       ? tally.language[best]
                       : "xx";
    }
    if (!language)
        return;
    memcpy(r->language, language, 2);
    guard_emit(r, RECORD_LANGUAGE, language, 2);
}
