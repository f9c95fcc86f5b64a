/*
 * guard_priv.h - what the files of the guards share: tables, tokens, records.
 *
 * The way of a text: guard_text.c splits it into tokens and looks each up once; guard_language.c names the language;
 * then one reader per kind (guard_date.c, guard_number.c, guard_literal.c, guard_negation.c) goes over the tokens,
 * marks those it has used, so that no later reader takes them again, and emits records; guard.c sorts these into the
 * features. guard_compare.c reads features and nothing else.
 */
#ifndef QUIRE_CACHE_GUARD_PRIV_H
#define QUIRE_CACHE_GUARD_PRIV_H

#include "cache/guard/guard.h"

#define GUARD_TEXT_BYTES   8192u /* longer texts are features of their own */
#define GUARD_TOKENS       1024u
#define GUARD_RECORDS      64u
#define GUARD_PAYLOAD      48u /* bytes of one record; a longer literal ends in a hash */
#define GUARD_PHRASE_WORDS 4u
#define GUARD_KEY_BYTES    48u /* of a word or phrase in a table */

/* ---- tables ------------------------------------------------------------------------------------------------------ */

enum guard_meaning_kind {
    MEANS_PAIR,     /* a side of a pair of opposites; text "on/off", value 0 or 1 */
    MEANS_NOT,      /* a negation; text: the language it is of, "not" for all */
    MEANS_EXCEPT,   /* a phrase that only looks like one */
    MEANS_UNIT,     /* text: the canonical name */
    MEANS_CURRENCY, /* a unit that may stand before its number */
    MEANS_DEGREE,   /* a unit that says nothing: degrees */
    MEANS_CARDINAL, /* two */
    MEANS_ORDINAL,  /* second */
    MEANS_SCALE,    /* hundred */
    MEANS_FRACTION, /* half, twice: a number of its own */
    MEANS_MONTH,
    MEANS_MONTH_LIKE, /* may, march: a month only in company */
    MEANS_WEEKDAY,
    MEANS_DAY,    /* tomorrow, christmas: themselves */
    MEANS_PART,   /* morning, evening */
    MEANS_PERIOD, /* week, summer: with next and last */
    MEANS_SEASON, /* summer */
    MEANS_SEASON_LIKE,
    MEANS_CLOCK,    /* noon; value in minutes */
    MEANS_NAME,     /* text: the canonical name */
    MEANS_OPTIONAL, /* a name that a paraphrase may leave out */
    MEANS_ORDINARY, /* a word that is no name, however it is written */
    MEANS_STOPWORD, /* text: the language */
    MEANS_BETWEEN,  /* json *to* xml */
    MEANS_TURNS     /* convert, translate: what they turn has a direction */
};

struct guard_meaning {
    double value;
    uint32_t next; /* of the same word; 0: none */
    uint32_t text; /* offset in tables->bytes */
    uint8_t text_bytes, kind;
};

struct guard_word {
    uint32_t key, hash;   /* offset in tables->bytes */
    uint32_t meanings;    /* 0: only the begin of phrases */
    uint32_t kinds;       /* bits of its meanings, ... */
    uint32_t begins;      /* ... and of those of phrases that begin so: most tokens need not be looked at again */
    uint8_t key_bytes;    /* 0: a free slot */
    uint8_t phrase_words; /* of the longest phrase that begins so; 0: none */
    uint8_t gap;          /* "turn ~ on" begins so */
};

struct guard_tables {
    struct guard_word *slots; /* power of two, owned */
    uint32_t n_slots, n_words;
    struct guard_meaning *meanings; /* from 1, owned */
    uint32_t n_meanings, meanings_capacity;
    char *bytes; /* owned */
    uint32_t n_bytes, bytes_capacity;
};

/* A word or phrase as the tables keep it. NULL: unknown. */
const struct guard_word *guard_lookup(const struct guard_tables *tables, const void *key, size_t bytes);
/* A meaning of a word (NULL is fine) of one kind, or NULL. */
const struct guard_meaning *guard_means(const struct guard_tables *tables, const struct guard_word *word,
                                        enum guard_meaning_kind kind);
static inline struct quire_bytes guard_meaning_text(const struct guard_tables *tables,
                                                    const struct guard_meaning *means)
{
    return (struct quire_bytes){tables->bytes + means->text, means->text_bytes};
}

/* Whether a word (NULL is fine) has, or begins a phrase that has, a meaning of one of the kinds (bits). */
static inline bool guard_may_mean(const struct guard_word *word, uint32_t kinds)
{
    return word && ((word->kinds | word->begins) & kinds) != 0;
}

/* The files as they were when the program was built. */
struct guard_file {
    const char *name;
    const unsigned char *data;
    size_t n_bytes;
};
extern const struct guard_file guard_files[];
extern const unsigned guard_files_n;

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

enum guard_token_kind { TOKEN_WORD, TOKEN_NUMBER, TOKEN_LITERAL };

struct guard_token {
    const struct guard_word *word; /* NULL: not in the tables */
    uint16_t at, bytes;            /* in the reader's lower-case text; without a final 's */
    uint8_t kind;
    char joint;                     /* what stands before it: ' ', a sign (12-24, 7:30), or 0: nothing (5km) */
    bool capital : 1, all_caps : 1; /* the first letter, every letter of at least two */
    bool opens : 1;                 /* the first of a sentence */
    bool closes : 1;                /* punctuation follows */
    bool possessive : 1;            /* 's was cut off */
    bool used : 1;                  /* some reader has made a record of it */
    bool named : 1;                 /* a name, number or currency: what may have a direction */
};

struct guard_record {
    uint8_t tag, bytes;
    uint16_t at; /* of the payload */
};

struct guard_reader {
    const struct guard_tables *tables;
    struct quire_bytes text;
    uint32_t n_tokens, n_records, n_payload;
    bool overflow;    /* more than fits somewhere */
    bool shouting;    /* no lower-case letter at all */
    bool titled;      /* Nearly Every Word Has A Capital */
    char language[3]; /* "": none is known */
    struct guard_token tokens[GUARD_TOKENS];
    struct guard_record records[GUARD_RECORDS];
    uint8_t payload[GUARD_BYTES];
    char lower[GUARD_TEXT_BYTES];
};

/* Records, and the guard that compares each. */
#define RECORD_NUMBER   '#' /* 's' or 'w' (weak: one), digits, ' ', unit */
#define RECORD_NOT      '!' /* the first negation */
#define RECORD_PAIR     '|' /* '0' or '1', "on/off" */
#define RECORD_LITERAL  '"' /* 's' or 'o' (optional), the word */
#define RECORD_ORDER    '>' /* "json>xml" */
#define RECORD_DATE     '@' /* a word: "0704", "1998", "monday", "t0730", "t0730?", "next week" */
#define RECORD_LANGUAGE 'L' /* two letters: ISO 639-1, or "xx": some language in Latin letters */
#define RECORD_WHOLE    '=' /* a hash of the text: it had more than fits */

void guard_split(struct guard_reader *r);
void guard_emit(struct guard_reader *r, uint8_t tag, const void *payload, size_t bytes);
void guard_read_language(struct guard_reader *r);
void guard_read_dates(struct guard_reader *r);
void guard_read_numbers(struct guard_reader *r);
void guard_read_literals(struct guard_reader *r);
void guard_read_negations(struct guard_reader *r);

/* The longest word or phrase with a meaning of a kind that begins at token i, of tokens that it may take. *n_words: its
 * length. NULL: none, and *n_words stays. */
const struct guard_word *guard_longest(const struct guard_reader *r, uint32_t i, enum guard_meaning_kind kind,
                                       bool (*may_take)(const struct guard_token *token), uint32_t *n_words);
/* The meaning of the longest that has no used token and no literal. */
const struct guard_meaning *guard_match(const struct guard_reader *r, uint32_t i, enum guard_meaning_kind kind,
                                        uint32_t *n_words);
static inline struct quire_bytes guard_token_text(const struct guard_reader *r, uint32_t i)
{
    return (struct quire_bytes){r->lower + r->tokens[i].at, r->tokens[i].bytes};
}
/* Whether token i exists and is this lower-case word. */
static inline bool guard_is(const struct guard_reader *r, uint32_t i, const char *word)
{
    return i < r->n_tokens && text_equal(guard_token_text(r, i), text_of(word));
}
static inline const struct guard_meaning *guard_token_means(const struct guard_reader *r, uint32_t i,
                                                            enum guard_meaning_kind kind)
{
    return i < r->n_tokens ? guard_means(r->tables, r->tokens[i].word, kind) : NULL;
}

/* A number that begins at token i (digits or words), its tokens in *n_words; digits, '.', '-' in text. false: none.
 * Units are not part of it. */
struct guard_number {
    char text[28];
    double value;
    bool weak, ordinal; /* weak: "one", "first" */
};
bool guard_number_at(const struct guard_reader *r, uint32_t i, struct guard_number *out, uint32_t *n_words);
/* Whether a unit stands at token i (kilometres, %). NULL: none. */
const struct guard_meaning *guard_unit_at(const struct guard_reader *r, uint32_t i, uint32_t *n_words);

#endif
