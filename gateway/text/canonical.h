/*
 * canonical.h - the keys of a request: what makes two requests the same, and what must be the same before nearness
 * counts.
 * The canonical form is the whole body less what cannot change the answer, so that a field that nobody here knows makes
 * a miss and never a wrong answer:
 *
 *  - left out: names at the top that steer delivery or accounting (canonical_ignores), null at the top and in messages,
 *    `n` if it is 1, `stream` if it is false, `messages[].id`;
 *  - ids of tool calls count by their order of appearance, since they are random in each run;
 *  - chat: `max_completion_tokens` is `max_tokens`, where only one of the two is given;
 *  - names sorted, escapes undone, numbers by their exact decimal value, lists in order, white space gone;
 *  - path, upstream and model (as the upstream knows it) are in, and a version of these rules.
 *
 * COMPAT is SHA-256 of the form without the text of the question (ask.h); whether it came as a string or as text parts
 * makes no difference to it. HASH is SHA-256 of COMPAT and the question as it was given, so one pass makes both.
 */
#ifndef QUIRE_GATEWAY_TEXT_CANONICAL_H
#define QUIRE_GATEWAY_TEXT_CANONICAL_H

#include "gateway/text/ask.h"

#define CANONICAL_HASH_BYTES 32
#define CANONICAL_VERSION    1 /* goes up whenever a rule changes: older entries are then not found */

struct canonical; /* a hash context and tables; one thread at a time */

int canonical_create(struct canonical **canonical, struct quire_error *err);
void canonical_destroy(struct canonical *canonical);

struct canonical_options {
    const char *path;          /* the route, the same for all spellings of it: "/v1/chat/completions" */
    const char *upstream;      /* its name */
    struct strict_text model;  /* as the upstream knows it (the alias resolved); data NULL: as the body says */
    const char *const *ignore; /* more names at the top that are left out; without characters that JSON escapes */
    size_t n_ignore;
    unsigned masks; /* enum mask: blanked in system texts, for the keys alone */
};

struct canonical_keys {
    uint8_t hash[CANONICAL_HASH_BYTES], compat[CANONICAL_HASH_BYTES];
};

/* The keys of a request that is not odd. QUIRE_EINVALID: it is; QUIRE_ENOMEM. Of embeddings: COMPAT is
 * without the items, for canonical_item. */
int canonical_keys(struct canonical *canonical, const struct ask *ask, const struct canonical_options *options,
                   struct canonical_keys *keys, struct quire_error *err);
/* The key of one item of an embeddings request: equal for the same item alone, in a list, and at another place. `keys`
 * are of canonical_keys. */
int canonical_item(struct canonical *canonical, const struct ask *ask, const struct canonical_keys *keys, uint32_t item,
                   uint8_t hash[CANONICAL_HASH_BYTES], struct quire_error *err);

/* Whether a name at the top of a body is left out of every key. */
bool canonical_ignores(const char *name);

/* Canonical JSON of any text that strict.h accepts, no rule of requests applied: for tests, and to show a difference.
 * *text is the caller's, to be freed. Reading it and writing it again gives the same bytes. */
int canonical_json(const struct strict *json, char **text, size_t *bytes, struct quire_error *err);
/* The form that COMPAT is the hash of. */
int canonical_form(struct canonical *canonical, const struct ask *ask, const struct canonical_options *options,
                   char **text, size_t *bytes, struct quire_error *err);

#endif
