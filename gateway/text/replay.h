/*
 * replay.h - a kept answer becomes the answer to another request: a new id and time, everything else as it was.
 *
 * All is replaced in place by as many bytes, so borders of events and lengths stay. Ids keep their first word
 * ("chatcmpl-"), hyphens and alphabet. Ids that were equal stay equal. Ids of /v1/responses are never changed, because
 * a client may ask for them.
 */
#ifndef QUIRE_GATEWAY_TEXT_REPLAY_H
#define QUIRE_GATEWAY_TEXT_REPLAY_H

#include "gateway/text/ask.h"
#include "gateway/text/sse.h"

struct replay_options {
    enum ask_kind kind;
    bool same;        /* id and created stay */
    bool zero_usage;  /* tokens of `usage` become 0; those in its details are the provider's own and stay */
    bool drop_usage;  /* the event that holds nothing but usage is left out: for clients that did not ask */
    uint64_t now_s;   /* since 1970 */
    uint8_t seed[32]; /* random, another one for each answer that is given */
};

/* Memory that is used for one event after the other, of all answers of a thread. Zeroed before first use. */
struct replay {
    struct strict json;
    struct sse sse;
};

void replay_fini(struct replay *replay);

/* A kept event, changed in place. False: it is to be left out. What cannot be read stays as it is. */
bool replay_event(struct replay *replay, const struct replay_options *options, char *event, size_t bytes);
/* A kept body, changed in place. */
void replay_json(struct replay *replay, const struct replay_options *options, char *body, size_t bytes);

/* An embeddings answer from vectors (answer_vector) in the order of the request's items. *body is the caller's, to be
 * freed; QUIRE_ENOMEM. */
int replay_vectors(const struct strict_text *vectors, uint32_t n, struct strict_text model, uint64_t prompt_tokens,
                   char **body, size_t *bytes, struct quire_error *err);

#endif
