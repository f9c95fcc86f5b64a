/* query_priv.h - inside of the parser: tokens, the state of parsing, and what its files call of each other. */
#ifndef QUIRE_DOCUMENT_QUERY_PRIV_H
#define QUIRE_DOCUMENT_QUERY_PRIV_H

#include "document/query/query.h"
#include "document/text/text_words.h"
#include "io/arena.h"

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,     /* a word; escapes are still in it */
    TOKEN_NUMBER,   /* 5, -1.5, 1e3, inf */
    TOKEN_PARAM,    /* $name, without the $ */
    TOKEN_FIELD,    /* @name, without the @ */
    TOKEN_QUOTED,   /* "text" or 'text', without the quotes */
    TOKEN_PREFIX,   /* text* */
    TOKEN_SUFFIX,   /* *text */
    TOKEN_INFIX,    /* *text* */
    TOKEN_WILDCARD, /* w'text' */
    TOKEN_ARROW,    /* => */
    TOKEN_OR,
    TOKEN_LEFT_PARENTHESIS,
    TOKEN_RIGHT_PARENTHESIS,
    TOKEN_LEFT_BRACE,
    TOKEN_RIGHT_BRACE,
    TOKEN_LEFT_BRACKET,
    TOKEN_RIGHT_BRACKET,
    TOKEN_COLON,
    TOKEN_SEMICOLON,
    TOKEN_MINUS,
    TOKEN_TILDE,
    TOKEN_STAR,
    TOKEN_PERCENT,
    TOKEN_QUOTE,     /* one that nothing closes */
    TOKEN_APOSTROPHE /* one inside a word, with a second one further on */
};

struct token {
    enum token_kind kind;
    bool is_param;    /* PREFIX, SUFFIX, INFIX, WILDCARD: text is a parameter's name */
    uint32_t at, end; /* the token is [at, end) of the query */
    const char *text; /* the part that counts; in the query */
    uint32_t bytes;
};

/* The token that begins at `at` or behind what is skipped there. */
struct token query_token(const char *text, uint32_t bytes, uint32_t at);
/* Where the characters end that a word may have, from `at`; `at` itself: there is none. */
uint32_t query_word_end(const char *text, uint32_t bytes, uint32_t at);
/* Where the number at `at` ends; `at` itself: there is none. */
uint32_t query_number_end(const char *text, uint32_t bytes, uint32_t at);
bool query_token_is(const struct token *token, const char *word); /* in any case */

struct query {
    struct arena arena;
    struct query_node *root;
    uint32_t n_nodes;
};

struct parser {
    const struct query_context *context;
    const struct text_language *language;
    const char *text;
    uint32_t bytes;
    struct token token; /* the next one */
    struct query *query;
    struct quire_error *err;
    /* nodes that wait for the one that joins them; what a level of the grammar has pushed lies behind all others */
    struct query_node **waiting;
    uint32_t n_waiting, waiting_capacity;
    uint32_t depth;
    uint64_t all_fields;  /* a bit for each TEXT field */
    uint64_t stem_fields; /* those without NOSTEM */
    uint64_t text_fields; /* those that words are looked for in at this place */
    bool in_field;        /* inside @f:(...): no other field may be named */
};

void query_advance(struct parser *p);
struct token query_peek(const struct parser *p); /* the token behind the next one */
int query_expect(struct parser *p, enum token_kind kind, const char *what);

/* ---- query_error.c: messages; each answers its number ---- */
int query_fail(struct parser *p, const struct token *token, const char *expected);
/* "<what> at offset N near X<more>" */
int query_fail_as(struct parser *p, const struct token *token, const char *what, const char *more);
int query_fail_memory(struct parser *p);
int query_enter(struct parser *p); /* one level deeper; QUIRE_ELIMIT */

/* ---- query_node.c: nodes, strings, values ---- */
int query_node_make(struct parser *p, enum query_kind kind, struct query_node **out);
/* A node with these children, which are copied from the array. */
int query_node_join(struct parser *p, enum query_kind kind, struct query_node *const *children, uint32_t n,
                    struct query_node **out);
int query_node_wait(struct parser *p, struct query_node *node);
int query_copy(struct parser *p, const char *text, uint32_t bytes, struct query_text *out);
/* Without the backslash in front of punctuation and blanks. */
int query_unescape(struct parser *p, const char *text, uint32_t bytes, struct query_text *out);
/* The same, in lower case. */
int query_unescape_fold(struct parser *p, const char *text, uint32_t bytes, struct query_text *out);
/* The words of text: *out is NULL without any, a TERM of one, a PHRASE of more. */
int query_words(struct parser *p, const char *text, size_t bytes, bool stems, struct query_node **out);
/* The parameter that the token names. */
int query_param_find(struct parser *p, const struct token *token, const struct query_param **out);
/* What the token says: its text, or its parameter's value. */
int query_token_text(struct parser *p, const struct token *token, struct query_text *out);
/* PREFIX, SUFFIX, INFIX, WILDCARD. */
int query_affix(struct parser *p, const struct token *token, bool fold, struct query_node **out);
/* All of text as a number. False: it is none. */
bool query_number(const char *text, uint32_t bytes, double *out);
/* Words near each other instead of words that are all there. */
int query_near(struct parser *p, struct query_node *node, const struct token *token, int64_t slop, bool in_order);

/* ---- query_parse.c: expressions ---- */
int query_term(struct parser *p, struct query_node **out); /* one operand, with its signs and attributes */

/* ---- query_field.c: what follows @name ---- */
int query_field(struct parser *p, struct query_node **out);
int query_missing(struct parser *p, struct query_node **out); /* ismissing(@name) */
int query_field_find(struct parser *p, struct token *token, const struct schema_field **out);
int query_field_type(struct parser *p, const struct token *token, const struct schema_field *field,
                     enum schema_type type);
/* A number, with signs, or a parameter's value. */
int query_value(struct parser *p, double *out, struct token *first);

/* ---- query_vector.c: vectors, and attributes of any node ---- */
int query_range(struct parser *p, const struct token *name, const struct schema_field *field, struct query_node **out);
int query_knn(struct parser *p, struct query_node *filter, struct query_node **out); /* behind =>[ up to ] */
int query_attributes(struct parser *p, struct query_node *node); /* behind => from { to }; node may be NULL */

#endif
