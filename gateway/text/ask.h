/*
 * ask.h - what a request asks: the parts of a body that decide whether it is looked up, kept, and how it is answered.
 *
 * Reads a body that strict.h has accepted. A field that has another type than its route knows (n as text, messages as
 * an object) is `odd`: an upstream may read more into it than we do, so such a request is passed on as it is and never
 * looked up or kept.
 */
#ifndef QUIRE_GATEWAY_TEXT_ASK_H
#define QUIRE_GATEWAY_TEXT_ASK_H

#include "gateway/text/strict.h"

enum { ASK_ITEMS_MAX = 2048 }; /* of an embeddings request, as OpenAI has it; more are odd */

enum ask_kind {
    ASK_CHAT,        /* POST /v1/chat/completions */
    ASK_COMPLETIONS, /* POST /v1/completions */
    ASK_EMBEDDINGS,  /* POST /v1/embeddings */
    ASK_RESPONSES,   /* POST /v1/responses */
    ASK_MESSAGES     /* POST /v1/messages, Anthropic's */
};

/* What the gates look at, a bit each. A field that is null is not given. */
enum ask_feature {
    ASK_N = 1u << 0,               /* n > 1 */
    ASK_BEST_OF = 1u << 1,         /* best_of > 1 */
    ASK_LOGPROBS = 1u << 2,        /* logprobs (not false), top_logprobs */
    ASK_PROMPT_LOGPROBS = 1u << 3, /* prompt_logprobs */
    ASK_ECHO = 1u << 4,            /* echo: true */
    ASK_AUDIO = 1u << 5,           /* audio, or modalities other than ["text"] */
    ASK_SEED = 1u << 6,            /* seed */
    ASK_TOOLS = 1u << 7,           /* tools, functions */
    ASK_BUILT_IN = 1u << 8,        /* tools that the upstream runs: web_search_options, tools of another type than
                                      function and custom, mcp_servers */
    ASK_LAST_TOOL = 1u << 9,       /* the last message is a tool's (or a function's, or a result in a user's) */
    ASK_LAST_ASSISTANT = 1u << 10, /* the last message is the assistant's: to be continued */
    ASK_PARTS = 1u << 11,          /* an image, a file, audio: any part of any message that is not text */
    ASK_PREDICTION = 1u << 12,     /* prediction */
    ASK_FORMAT = 1u << 13,         /* response_format, or text.format, other than text; guided and structured outputs */
    ASK_BACKGROUND = 1u << 14,     /* background: true */
    ASK_PREVIOUS = 1u << 15,       /* state of the upstream: previous_response_id, conversation, container, prompt (of
                                      responses), items that are references */
    ASK_STORES = 1u << 16,         /* responses: store is not false, so the upstream keeps the answer */
    ASK_BASE64 = 1u << 17,         /* encoding_format: base64 */
    ASK_STREAM = 1u << 18,         /* stream: true */
    ASK_USAGE = 1u << 19,          /* stream_options.include_usage: true */
    ASK_TEMPERATURE = 1u << 20,    /* temperature is given */
    ASK_SUFFIX = 1u << 21          /* suffix of completions: what comes after the text */
};

/* LiteLLM's `cache` object. Times in seconds; -1: not given. */
struct ask_cache {
    bool given, no_cache, no_store;
    double ttl_s, s_maxage_s;
    struct strict_text name_space; /* `namespace` */
};

/* Zeroed before first use. Texts are valid until the next ask_read, ask_fini, or change of the body. */
struct ask {
    const struct strict *json; /* borrowed */
    enum ask_kind kind;
    uint32_t features; /* enum ask_feature */
    const char *odd;   /* not NULL: not to be looked up or kept, and why, a sentence; static storage */
    struct strict_text model;
    /* The last user's text where it alone is what nearness is about: chat whose last message is a user's, a string or
     * nothing but text parts (joined by line feeds); completions with one string as prompt. data NULL: exact only. */
    struct strict_text question;
    struct strict_text
        system; /* of all system and developer messages, `system`, `instructions`, joined by line feeds */
    struct strict_text user, safety_identifier, cache_salt;
    double temperature;  /* NAN where it is not given */
    uint32_t user_turns; /* messages of role user */
    uint32_t n;          /* choices asked for, 1 if not given */
    uint32_t items;      /* embeddings: texts, or lists of tokens */
    struct ask_cache cache;
    /* nodes of the body, 0: none */
    uint32_t node_model, node_last /* the message of `question` */, node_question /* its content, or the prompt */;
    uint32_t node_input, node_cache, node_stream_options;
    bool input_is_one; /* embeddings: `input` is one text, or one list of tokens */
    char *decoded;     /* owned */
    uint32_t decoded_bytes, decoded_capacity;
};

/* QUIRE_EINVALID: the body is no object; QUIRE_ENOMEM. An odd body is no error. */
int ask_read(struct ask *ask, enum ask_kind kind, const struct strict *json, struct quire_error *err);
void ask_fini(struct ask *ask);
/* Whether a text that the user gives fits, in the words of `fits`: of each message its texts joined by line feeds, each
 * prompt, input, or item of an embeddings request. Without memory to decode them one does. */
bool ask_user_fits(const struct ask *ask, bool (*fits)(const void *context, const char *text, size_t bytes),
                   const void *context);
/* The same of one item of an embeddings request; tokens are no text. */
bool ask_item_fits(const struct ask *ask, uint32_t item,
                   bool (*fits)(const void *context, const char *text, size_t bytes), const void *context);
/* The node of item 0 .. items - 1 of an embeddings request that is not odd. */
uint32_t ask_item(const struct ask *ask, uint32_t item);

#endif
