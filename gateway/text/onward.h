/*
 * onward.h - the body as it goes to the upstream: the client's own bytes but for the edits that are asked for.
 *
 * No JSON is written anew. Where nothing is edited, the one piece is the client's body itself.
 */
#ifndef QUIRE_GATEWAY_TEXT_ONWARD_H
#define QUIRE_GATEWAY_TEXT_ONWARD_H

#include "gateway/text/ask.h"

enum { ONWARD_PIECES_MAX = 12, ONWARD_MODEL_BYTES_MAX = 512 };

struct onward_edits {
    bool drop_cache;          /* LiteLLM's member `cache` is taken out; where there is none, nothing is done */
    bool include_usage;       /* stream_options.include_usage becomes true, for chat and completions that stream */
    struct strict_text model; /* in place of the body's, at most ONWARD_MODEL_BYTES_MAX; data NULL: as it is */
    /* embeddings: `input` becomes a list of these of its items, in this order; NULL: as it is */
    const uint32_t *items;
    uint32_t n_items;
};

/* The pieces lie in the body, in static storage and in this struct, which must not move while they are used. */
struct onward {
    struct strict_text pieces[ONWARD_PIECES_MAX];
    uint32_t n_pieces;
    size_t bytes; /* of all */
    bool edited;
    char model[6 * ONWARD_MODEL_BYTES_MAX + 16]; /* as a member of the body */
    char *input;                                 /* owned */
};

/* Of a body that ask_read has read (odd or not). QUIRE_ELIMIT: the model's name is too long; QUIRE_EINVALID: it is no
 * UTF-8, or an item is out of range; QUIRE_ENOMEM. To be ended by onward_fini. */
int onward_plan(struct onward *onward, const struct ask *ask, const struct onward_edits *edits,
                struct quire_error *err);
/* All pieces into `out`, which has room for onward->bytes. */
void onward_copy(const struct onward *onward, char *out);
void onward_fini(struct onward *onward);

#endif
