/*
 * text_words.c - a text into words: separators, escapes, lower case, stop words, stems.
 *
 * The separators are RediSearch's, with two differences. Line ends and other control characters separate words here;
 * there they vanish, so that "one\ntwo" is the word "onetwo". And an ideograph of a text in Chinese is a word; there a
 * dictionary finds longer ones. A query for several ideographs becomes a phrase, which finds the same documents.
 *
 * Stop words take no position, so "king of spain" is found by the phrase "king spain", and the other way around.
 *
 * A stemmer (libstemmer, the Snowball stemmers) holds state while it works. Each reader of words makes its own when it
 * meets the first word that needs one; that costs a microsecond, and no lock.
 */
#include "document/text/text_words.h"
#include "document/text/fold.h"
#include "document/text/text_priv.h"
#include <assert.h>
#include <libstemmer.h>
#include <string.h>

static const char *const stopwords[TEXT_STOPWORDS_COUNT] = {
    "a",   "an",    "and",  "are",   "as",    "at",   "be",   "but", "by",  "for",  "if",
    "in",  "into",  "is",   "it",    "no",    "not",  "of",   "on",  "or",  "such", "that",
    "the", "their", "then", "there", "these", "they", "this", "to",  "was", "will", "with",
};

const char *text_stopword(uint32_t i)
{
    assert(i < TEXT_STOPWORDS_COUNT);
    return stopwords[i];
}

static bool is_default_stopword(const char *word, size_t bytes)
{
    size_t low = 0, high = TEXT_STOPWORDS_COUNT;
    while (low < high) {
        size_t middle = (low + high) / 2;
        size_t length = strlen(stopwords[middle]);
        int order = memcmp(stopwords[middle], word, length < bytes ? length : bytes);
        if (order == 0 && length == bytes)
            return true;
        if (order == 0)
            order = length < bytes ? -1 : 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool text_is_stopword(const struct schema *schema, const char *word, size_t bytes)
{
    if (bytes == 0)
        return false;
    if (!schema || !schema->stopwords_given)
        return is_default_stopword(word, bytes);
    for (uint32_t i = 0; i < schema->n_stopwords; i++)
        if (schema->stopwords[i].bytes == bytes && memcmp(schema->stopwords[i].data, word, bytes) == 0)
            return true;
    return false;
}

bool text_is_separator(unsigned char c)
{
    return c <= ' ' || c == 0x7f || (c < 0x7f && strchr(",./(){}[]:;~!@#$%^&*-=+|'`\"<>?", c) != NULL);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

void text_words_init(struct text_words *w, const struct text_rules *rules, const char *value, size_t bytes)
{
    w->rules = rules;
    w->value = value;
    w->bytes = bytes;
    w->at = 0;
    w->position = rules->position;
    w->stemmer = NULL;
}

void text_words_fini(struct text_words *w)
{
    if (w->stemmer)
        sb_stemmer_delete(w->stemmer);
    w->stemmer = NULL;
}

static bool is_ideograph(uint32_t letter)
{
    return (letter >= 0x3400 && letter < 0xa000) || (letter >= 0xf900 && letter < 0xfb00) ||
           (letter >= 0x20000 && letter < 0x40000);
}

/* The bytes of an ideograph at w->at, where each is a word; 0: there is none. */
static uint32_t ideograph_bytes(const struct text_words *w)
{
    uint32_t letter = 0;
    if (!w->rules->language || !text_language_parts(w->rules->language) || (unsigned char)w->value[w->at] < 0x80)
        return 0;
    uint32_t n = fold_decode(w->value + w->at, w->bytes - w->at, &letter);
    return n > 0 && is_ideograph(letter) ? n : 0;
}

/* A character that is cut in two at the end is left out. */
static uint32_t whole_characters(const char *text, uint32_t bytes)
{
    uint32_t n = bytes, letter;
    for (uint32_t back = 1; back <= 3 && back <= bytes; back++) {
        unsigned char c = (unsigned char)text[bytes - back];
        if (c < 0x80)
            break;
        if (c >= 0xc0) {
            n = fold_decode(text + bytes - back, back, &letter) > 0 ? bytes : bytes - back;
            break;
        }
    }
    return n;
}

/* The next run of characters between separators, without escapes, into w->raw; its bytes, 0 at the end. */
static uint32_t take_raw(struct text_words *w)
{
    uint32_t n = 0;
    bool cut = false;
    for (; w->at < w->bytes; w->at++) {
        unsigned char c = (unsigned char)w->value[w->at];
        uint32_t whole = ideograph_bytes(w);
        if (whole > 0) {
            if (n > 0)
                break;
            memcpy(w->raw, w->value + w->at, whole);
            w->at += whole;
            return whole;
        }
        if (c == '\\') {
            if (++w->at == w->bytes)
                break;
            c = (unsigned char)w->value[w->at];
        } else if (text_is_separator(c)) {
            if (n > 0)
                break;
            continue;
        }
        if (n < TEXT_WORD_BYTES_MAX)
            w->raw[n++] = (char)c;
        else
            cut = true;
    }
    return cut ? whole_characters(w->raw, n) : n;
}

/* The stem, valid until the next one is asked for. */
static int add_stem(struct text_words *w, struct text_word *word)
{
    const char *algorithm = w->rules->language ? text_language_algorithm(w->rules->language) : NULL;
    if (!algorithm || w->rules->no_stems || (!w->rules->query && word->bytes < TEXT_STEM_BYTES_MIN))
        return 0;
    if (!w->stemmer)
        w->stemmer = sb_stemmer_new(algorithm, NULL);
    const sb_symbol *stem =
        w->stemmer ? sb_stemmer_stem(w->stemmer, (const sb_symbol *)word->text, (int)word->bytes) : NULL;
    if (!stem)
        return QUIRE_ENOMEM;
    int bytes = sb_stemmer_length(w->stemmer);
    assert(bytes >= 0);
    bool same = (uint32_t)bytes == word->bytes && memcmp(stem, word->text, word->bytes) == 0;
    if (bytes > 0 && (w->rules->query || !same)) {
        word->stem = (const char *)stem;
        word->stem_bytes = (uint32_t)bytes;
    }
    return 0;
}

int text_words_next(struct text_words *w, struct text_word *out)
{
    uint32_t n;
    while ((n = take_raw(w)) > 0) {
        struct text_word word = {.text = w->word};
        word.bytes = fold_text(w->raw, n, w->word);
        assert(word.bytes > 0 && word.bytes <= sizeof w->word);
        if (!w->rules->keep_stopwords && text_is_stopword(w->rules->schema, word.text, word.bytes))
            continue;
        int rc = add_stem(w, &word);
        if (rc < 0)
            return rc;
        word.position = ++w->position;
        *out = word;
        return 1;
    }
    return 0;
}
