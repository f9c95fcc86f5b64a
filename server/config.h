/*
 * config.h - the settings of quire-server: a file in the manner of redis.conf, then options of the command line.
 *
 * Read at start, constant afterwards: lanes read it without a lock.
 */
#ifndef QUIRE_SERVER_CONFIG_H
#define QUIRE_SERVER_CONFIG_H

#include "quire.h"

struct config {
#define STRING(field, ...) char *field;
#define LIST(field, ...)   char *field;
#define NUMBER(field, ...) uint64_t field;
#define BYTES(field, ...)  uint64_t field;
#define BOOL(field, ...)   bool field;
#define CHOICE(field, ...) uint64_t field;
#define FIXED(...)
#include "server/config.def"
#undef STRING
#undef LIST
#undef NUMBER
#undef BYTES
#undef BOOL
#undef CHOICE
#undef FIXED
};

int config_init(struct config *config, struct quire_error *err); /* defaults */
void config_fini(struct config *config);

/* Arguments as main has them, without the program's name: "[FILE] [--name value]...". "--help" and "--version" are the
 * caller's. Errors name file, line and setting, the value, and what would be right. */
int config_parse(struct config *config, int n_arguments, char *const *arguments, struct quire_error *err);

/* One setting by name. QUIRE_ENOTFOUND, QUIRE_EINVALID, QUIRE_ERANGE. */
int config_set(struct config *config, const char *name, const char *value, struct quire_error *err);

/* Calls visit for each setting: its name, its value as text (valid during the call), and help. */
void config_each(const struct config *config,
                 void (*visit)(void *context, const char *name, const char *value, const char *help), void *context);

#endif
