/*
 * encode.h - from a text to its vector: by an upstream's /v1/embeddings, or by a file of `quire embed`.
 *
 * A vector comes within the deadline or not at all: one try, no retry. Texts that wait at the same moment go out in one
 * request. Vectors are remembered by the hash of their text. After several failures in a row the breaker opens, and
 * texts fail at once until one attempt succeeds. A text that is longer than the window is refused, never cut.
 *
 * Thread-safety: all on the thread of the event base. A callback is never called from within encode_text.
 */
#ifndef QUIRE_GATEWAY_ENCODE_H
#define QUIRE_GATEWAY_ENCODE_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct upstream_set;
struct encode;
struct encode_call;

#define ENCODE_DIM_MAX        65536u
#define ENCODE_BATCH_MAX      64u
#define ENCODE_TEXT_BYTES_MAX 65536u /* what SC.GET takes as TEXT */

struct encode_options {
    const char *url;    /* of the API with /v1 (".../v1/embeddings" is asked); NULL: none; copied */
    const char *model;  /* name in the request; copied */
    const char *key;    /* Bearer; NULL: none; copied */
    const char *file;   /* of `quire embed fit`; NULL: none. Not together with url; copied */
    const char *prefix; /* put in front of each text ("query: "); NULL: none; copied */
    const char *name;   /* name@rev for SC.CREATE's ENCODER; NULL: made of model, prefix; copied */
    uint32_t dim;       /* 0: from the first vector. Another dimension that comes later is an error */
    unsigned deadline_ms;
    size_t text_bytes_max; /* the window of the encoder, <= ENCODE_TEXT_BYTES_MAX */
    unsigned remembered;   /* vectors that are kept in memory; 0: none */
    unsigned breaker_failures, breaker_ms;
};

enum encode_outcome {
    ENCODE_VECTOR,
    ENCODE_TOO_LONG, /* longer than the window */
    ENCODE_NOTHING,  /* the encoder knows nothing of this text */
    ENCODE_TIMEOUT,
    ENCODE_FAILED, /* refused, gone, of a wrong dimension; or the breaker is open */
};

/* vector: dim floats, valid during the call; NULL but with ENCODE_VECTOR. why: a sentence, NULL with ENCODE_VECTOR. */
typedef void encode_done(void *context, enum encode_outcome outcome, const float *vector, uint32_t dim,
                         const char *why);

/* upstreams: for url; borrowed, lives longer. QUIRE_EINVALID, QUIRE_EIO and what embed_model_open says of a file,
 * QUIRE_ENOMEM. */
int encode_create(struct event_base *base, struct upstream_set *upstreams, const struct encode_options *options,
                  struct encode **out, struct quire_error *err);
void encode_destroy(struct encode *encode); /* no callbacks any more; NULL is fine */

/* The text is copied. NULL without memory: no callback. */
struct encode_call *encode_text(struct encode *encode, const char *text, size_t bytes, encode_done *done,
                                void *context);
void encode_cancel(struct encode_call *call);

struct encode_state {
    bool breaker_open;
    uint32_t dim; /* 0: not known yet */
    uint64_t asked, remembered, requests, failures, timeouts, too_long;
    char why[160]; /* the last failure; "" where there was none */
};
void encode_state(const struct encode *encode, struct encode_state *out);
/* name@rev for ENCODER. */
const char *encode_name(const struct encode *encode);

#endif
