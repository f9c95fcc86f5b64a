/*
 * answer.h - judges an answer while it comes: whether it may be kept, and what it cost.
 *
 *     struct answer answer;
 *     answer_begin(&answer, &(struct answer_options){.kind = ask.kind, .n = ask.n}, &strict);
 *     for each event of sse.h:
 *         unsigned seen = answer_event(&answer, &event);
 *     enum answer_verdict verdict = answer_end(&answer);
 *
 * Kept only if the answer is whole: every choice ended with `stop` (`end_turn`, `completed`), the stream with its last
 * event ([DONE], message_stop, response.completed), each choice has some content, and there is no error anywhere. A
 * status other than 200, and a broken connection, are the caller's to see.
 */
#ifndef QUIRE_GATEWAY_TEXT_ANSWER_H
#define QUIRE_GATEWAY_TEXT_ANSWER_H

#include "gateway/text/ask.h"
#include "gateway/text/sse.h"

enum { ANSWER_CHOICES_MAX = 128 };

enum answer_verdict {
    ANSWER_KEEP,
    ANSWER_NOT,     /* for whoever asked, and nobody else */
    ANSWER_NEGATIVE /* the same, and it would be so again: content_filter, refusal */
};

/* Why an answer is not kept, in a word (answer_reason_name): a closed set, for metrics and logs. */
enum answer_reason {
    ANSWER_CUT,        /* finish_reason length, max_tokens */
    ANSWER_TOOL_CALL,  /* it calls a tool, or the upstream ran one for it */
    ANSWER_FILTERED,   /* content_filter, refusal */
    ANSWER_ERROR,      /* an error in it */
    ANSWER_EMPTY,      /* nothing was said */
    ANSWER_UNFINISHED, /* it ended otherwise than it must */
    ANSWER_MALFORMED,  /* it is not what its route answers */
};

/* What an event was, bits of answer_event. */
enum answer_seen {
    ANSWER_SEEN_COMMENT = 1u << 0, /* a comment or a keep-alive: not to be kept */
    ANSWER_SEEN_USAGE = 1u << 1,   /* `choices: []` and usage alone: not for clients that did not ask for it */
    ANSWER_SEEN_ERROR = 1u << 2,   /* an error; if it is the first event, error_status is what to answer */
    ANSWER_SEEN_LAST = 1u << 3     /* the event that ends the stream: [DONE], message_stop, response.completed, ... */
};

struct answer_options {
    enum ask_kind kind;
    uint32_t n;     /* choices asked for; 0: any number from 1 */
    bool tools;     /* answers that end in calls of tools are kept, too */
    uint32_t items; /* embeddings: how many vectors there must be; 0: any number from 1 */
};

/* Small, without memory of its own. */
struct answer {
    struct answer_options options;
    struct strict *json; /* borrowed, for one event at a time: may be shared by all answers of a thread */
    uint32_t n_events;   /* with data */
    uint64_t seen[ANSWER_CHOICES_MAX / 64], stopped[ANSWER_CHOICES_MAX / 64], spoke[ANSWER_CHOICES_MAX / 64];
    bool ended, first_is_error, negative;
    const char *refused; /* why it is not kept: a sentence, static storage; NULL: nothing speaks against it so far */
    enum answer_reason reason; /* the same in a word, where refused is not NULL */
    int error_status;          /* 400..599 of the first error, 500 where it names none; 0: no error */
    bool has_usage;
    uint64_t prompt_tokens, completion_tokens;
};

void answer_begin(struct answer *answer, const struct answer_options *options, struct strict *json);
/* Bits of enum answer_seen. */
unsigned answer_event(struct answer *answer, const struct sse_event *event);
/* A part (SSE_PART) of an event that is too long to be kept, or that never ended. */
void answer_part(struct answer *answer);
/* The stream has ended. answer->refused says why it is not kept; then it is not NULL. */
enum answer_verdict answer_end(struct answer *answer);
/* A whole answer as JSON, in place of events. Leaves answer->json at it. */
enum answer_verdict answer_json(struct answer *answer, const char *body, size_t bytes);

/* "cut", "tool_call", "filtered", "error", "empty", "unfinished", "malformed". */
const char *answer_reason_name(enum answer_reason reason);

/* Where a walk through the vectors of an answer is; zeroed before the first. */
struct answer_place {
    uint32_t node, index;
};

/* The next vector of an embeddings answer that answer_json keeps, in the order of the items, as it stands there: a
 * list, or a string with its quotes. data NULL: there is none left. */
struct strict_text answer_vector(const struct answer *answer, struct answer_place *place);

#endif
