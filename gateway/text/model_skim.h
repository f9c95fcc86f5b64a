/*
 * model_skim.h - the name of the model in a body that is not read: found while its bytes come, nothing else is
 * looked at.
 *
 * For bodies that are too large or odd to have a key, and still go to the upstream that takes their model. It is the
 * first "model" at the first level of a JSON object; what stands around it need not be right. Bounded memory, linear
 * time, and how the bytes were cut makes no difference.
 */
#ifndef QUIRE_GATEWAY_TEXT_MODEL_SKIM_H
#define QUIRE_GATEWAY_TEXT_MODEL_SKIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_SKIM_BYTES_MAX = 768 }; /* of a name as it is spelled; a longer one is none */

enum model_skim_status {
    MODEL_SKIM_MORE,  /* not yet */
    MODEL_SKIM_FOUND, /* it stands in value */
    MODEL_SKIM_NONE   /* there is none, or no JSON object */
};

/* Zeroed before the first byte. */
struct model_skim {
    unsigned state;
    bool escaped, is_model;
    uint32_t depth;                 /* of a value that is skipped */
    uint64_t at;                    /* bytes that were looked at */
    uint64_t value_at, value_bytes; /* found: where the value stands in the body, with its quotes */
    size_t value_used;
    char value[MODEL_SKIM_BYTES_MAX]; /* a string with its quotes, of a name or of the model */
};

/* The next bytes; after FOUND or NONE the answer stays the same. */
enum model_skim_status model_skim_add(struct model_skim *skim, const char *bytes, size_t n);

#endif
