/* strict_priv.h - what the files of the strict reader share. */
#ifndef QUIRE_GATEWAY_TEXT_STRICT_PRIV_H
#define QUIRE_GATEWAY_TEXT_STRICT_PRIV_H

#include "gateway/text/strict.h"

/* Flags of a node. */
enum {
    STRICT_SPELLED = 1, /* of a string: its canonical spelling is in json->spelled, not in the text */
};

/* What a scan of a string found. */
struct strict_scan {
    size_t bytes;      /* up to the closing quote */
    bool respell;      /* it has escapes that canonical JSON spells otherwise */
    const char *wrong; /* not NULL: what is wrong at byte `bytes` */
};

/* The string that begins at `text`, behind its quote; `n` bytes of text are left. */
void strict_scan_string(const char *text, size_t n, struct strict_scan *scan);
/* The canonical spelling of a scanned string into `out`, which has room for `bytes`; it is never longer. */
size_t strict_spell(const char *string, size_t bytes, char *out);
/* The number at `text`: its bytes, or 0 and *wrong. */
size_t strict_scan_number(const char *text, size_t n, const char **wrong, int *code);

#endif
