/* config_priv.h - what config.c and config_rewrite.c share: a row of config.def, and values on their way to a field. */
#ifndef QUIRE_SERVER_CONFIG_PRIV_H
#define QUIRE_SERVER_CONFIG_PRIV_H

#include "server/process/config.h"

enum setting_kind {
    KIND_STRING,
    KIND_LIST,
    KIND_NUMBER,
    KIND_INTEGER,
    KIND_BYTES,
    KIND_SHARE,
    KIND_OUTPUT,
    KIND_BOOL,
    KIND_CHOICE,
    KIND_FIXED
};

enum setting_change { IMMUTABLE = 0, MUTABLE = 1, SECRET = 2 };

struct setting {
    enum setting_kind kind;
    const char *name;
    unsigned change;                   /* setting_change */
    size_t place;                      /* in struct config */
    uint64_t number, minimum, maximum; /* of INTEGER: the bits of an int64_t */
    const char *text;                  /* default, choices or fixed value */
    const char *help;
};

enum {
    N_SETTINGS = 0
#define STRING(...)  +1
#define LIST(...)    +1
#define NUMBER(...)  +1
#define INTEGER(...) +1
#define BYTES(...)   +1
#define SHARE(...)   +1
#define OUTPUT(...)  +1
#define BOOL(...)    +1
#define CHOICE(...)  +1
#define FIXED(...)   +1
#include "server/process/config.def"
};

extern const struct setting config_settings[N_SETTINGS];

/* A value that was understood and is not yet in force. */
struct setting_value {
    uint64_t number;
    const char *text; /* the caller's */
};

enum { SETTING_TEXT_BYTES = 64 };

const struct setting *config_setting_find(const char *name);
int config_setting_parse(const struct config *config, const struct setting *s, const char *text,
                         struct setting_value *out, struct quire_error *err);
/* Whether the value is the one in force. */
bool config_setting_holds(const struct config *config, const struct setting *s, const struct setting_value *value);
/* The value in force as text, perhaps in `capacity`. */
const char *config_setting_text(const struct config *config, const struct setting *s,
                                char capacity[SETTING_TEXT_BYTES]);
/* Cuts a line of a file, in place: its name ("": a comment or nothing) and value. */
void config_setting_split(char *line, char **name, char **value);

#endif
