/*
 * answer_texts.h - what an answer says, as texts: escapes undone, those of a stream joined from its events.
 */
#ifndef QUIRE_GATEWAY_TEXT_ANSWER_TEXTS_H
#define QUIRE_GATEWAY_TEXT_ANSWER_TEXTS_H

#include "gateway/text/ask.h"

enum answer_voice {
    ANSWER_SAID,    /* to the user */
    ANSWER_THOUGHT, /* reasoning, thinking */
    ANSWER_CALLED   /* the arguments of a tool */
};

struct answer_text {
    enum answer_voice voice;
    struct strict_text text; /* not empty */
};

/* By choices, of each what was said, thought, called, each as one text (a text for each call). */
struct answer_texts {
    struct answer_text *items; /* n of them; owned, as is what they refer to */
    size_t n;
    char *bytes;
};

/* Of a whole answer: JSON, or all events of a stream. What cannot be read says nothing; vectors say nothing. Takes
 * twice the memory of the answer at most, beside its nodes. QUIRE_ENOMEM: there are no texts. */
int answer_texts_read(struct answer_texts *out, enum ask_kind kind, const char *answer, size_t bytes, bool events);
void answer_texts_fini(struct answer_texts *texts);

#endif
