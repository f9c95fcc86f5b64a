/*
 * text_words.h - the words of a text: for the fields that keep them and for the queries that look for them, so that
 * both agree.
 *
 *     struct text_words words;
 *     struct text_word word;
 *     text_words_init(&words, &rules, value, bytes);
 *     while ((rc = text_words_next(&words, &word)) > 0)
 *         add(word.text, word.bytes, word.stem, word.stem_bytes, word.position);
 *     text_words_fini(&words);
 *
 * A word is a run of characters that are neither blanks, nor control characters, nor any of
 *     , . / ( ) { } [ ] : ; ~ ! @ # $ % ^ & * - = + | ' ` " < > ?
 * in lower case (fold.h). The underscore and everything beyond ASCII belong to words. A backslash makes the character
 * behind it a part of the word and is dropped. In Chinese each ideograph is a word.
 *
 * No function keeps anything between calls: any thread may call any of them.
 */
#ifndef QUIRE_DOCUMENT_TEXT_WORDS_H
#define QUIRE_DOCUMENT_TEXT_WORDS_H

#include "document/schema/schema.h"

#define TEXT_WORD_BYTES_MAX  1024u /* of a word; the rest of a longer one is cut off */
#define TEXT_STEM_BYTES_MIN  4u    /* shorter words of documents have no stem */
#define TEXT_STOPWORDS_COUNT 33u

/* A language whose stems are known; static. */
struct text_language;
/* By RediSearch's names ("english", "german", ...), in any case. NULL: there is none. */
const struct text_language *text_language_find(const char *name, size_t bytes);
const char *text_language_name(const struct text_language *language);

/* The schema's own stop words, otherwise the 33 English ones. word: in lower case. */
bool text_is_stopword(const struct schema *schema, const char *word, size_t bytes);
/* The i-th of the 33, i < TEXT_STOPWORDS_COUNT. */
const char *text_stopword(uint32_t i);

/* What is to be made of a text. */
struct text_rules {
    const struct schema *schema;          /* its stop words; NULL: the 33 */
    const struct text_language *language; /* NULL: no stems */
    bool keep_stopwords;
    bool no_stems;
    /* Of a query: every word has its stem, also a short one, and one that is its own stem. */
    bool query;
    uint32_t position; /* of the first word, minus one: where the value before this one has ended */
};

struct text_word {
    const char *text;
    uint32_t bytes;
    const char *stem; /* NULL: none, or the word itself */
    uint32_t stem_bytes;
    uint32_t position; /* counts the words that are no stop words, from 1 */
};

/* Being read. Owned by the caller, used through the functions below. */
struct text_words {
    const struct text_rules *rules;
    const char *value;
    size_t bytes, at;
    uint32_t position;
    void *stemmer;
    char raw[TEXT_WORD_BYTES_MAX], word[TEXT_WORD_BYTES_MAX + TEXT_WORD_BYTES_MAX / 2];
};
/* rules and value must live as long as words does. */
void text_words_init(struct text_words *words, const struct text_rules *rules, const char *value, size_t bytes);
/* 1: *word is the next one, valid until the next call; 0: there is none; QUIRE_ENOMEM. */
int text_words_next(struct text_words *words, struct text_word *word);
void text_words_fini(struct text_words *words);

/* Whether a character ends a word where no backslash stands before it. */
bool text_is_separator(unsigned char character);

#endif
