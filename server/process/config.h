/*
 * config.h - the settings of quire-server: a file in the manner of redis.conf, then options of the command line, then
 * what CONFIG SET changes while the server runs.
 *
 * Threads: any may read a field at any time without a lock; each read may see a new value of a MUTABLE one, so what
 * must agree is read once. A text that was read stays valid until config_fini: replaced ones are kept, each content
 * once. Changes take turns inside config_change. Everything else is for the thread that starts and ends the server.
 */
#ifndef QUIRE_SERVER_CONFIG_H
#define QUIRE_SERVER_CONFIG_H

#include "quire.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct config_text;

struct config {
#define STRING(field, ...)  _Atomic(char *) field;
#define LIST(field, ...)    _Atomic(char *) field;
#define NUMBER(field, ...)  _Atomic uint64_t field;
#define INTEGER(field, ...) _Atomic int64_t field;
#define BYTES(field, ...)   _Atomic uint64_t field;
#define SHARE(field, ...)   _Atomic uint64_t field;
#define OUTPUT(field, ...)  _Atomic uint64_t field;
#define BOOL(field, ...)    atomic_bool field;
#define CHOICE(field, ...)  _Atomic uint64_t field;
#define FIXED(...)
#include "server/process/config.def"
    char *file;                /* real path of the file it was read from; NULL: none. Owned */
    bool port_found;           /* `port` was 0 and is what the system chose: CONFIG REWRITE leaves the 0 alone */
    bool refused;              /* the start has failed over a setting, before anything was made */
    char *ignored;             /* what the file has that means nothing here, ", " between; "" or names. Of texts */
    struct config_text *texts; /* every text that a field has held; owned */
    pthread_mutex_t lock;      /* of changes */
};

int config_init(struct config *config, struct quire_error *err); /* defaults */
void config_fini(struct config *config);

/* Arguments as main has them, without the program's name: "[FILE] [--name value]...". "--help" and "--version" are the
 * caller's. Errors name file, line and setting, the value, and what would be right. */
int config_parse(struct config *config, int n_arguments, char *const *arguments, struct quire_error *err);

/* One setting by name, before the server starts. QUIRE_ENOTFOUND, QUIRE_EINVALID, QUIRE_ERANGE. */
int config_set(struct config *config, const char *name, const char *value, struct quire_error *err);

/* Calls visit for each setting: its name, its value as text (valid during the call), and help. */
void config_each(const struct config *config,
                 void (*visit)(void *context, const char *name, const char *value, const char *help), void *context);

/* What --help says besides the settings. */
struct config_page {
    const char *summary, *usage, *notes, *examples;
};

/* --help for programs: a JSON object of the page's texts and the settings, whose values are the defaults where `config`
 * is as config_init has it. QUIRE_ENOMEM: also where `out` takes no more. */
int config_describe(const struct config *config, const struct config_page *page, FILE *out, struct quire_error *err);

/* ---- while the server runs --------------------------------------------------------------------------------------- */

struct config_change {
    const char *name, *value;
};

/* Why nothing was changed: which of the changes (their number: none of them), and the reason as clients of Redis know
 * it. */
struct config_refusal {
    size_t index;
    char reason[400];
};

/* Who has more to say to changes than the table. Each may be NULL. */
struct config_host {
    /* May refuse a value that is well-formed, such as more clients than files: 0, or an error with its reason. `text`
     * is the value as it was given; number: that of settings that are numbers. */
    int (*allow)(void *context, const char *name, const char *text, uint64_t number, struct quire_error *err);
    /* Makes the changes felt, when they are in force; changes[*index] is to blame for an error, which puts the old
     * values back. */
    int (*apply)(void *context, const struct config_change *changes, size_t n, size_t *index, struct quire_error *err);
    void *context;
};

/* All of the changes, or none. QUIRE_ENOTFOUND: no such setting; QUIRE_EPERM: it cannot be changed; QUIRE_EEXISTS: it
 * is named twice; QUIRE_EINVALID, QUIRE_ERANGE: its value; or what the host (NULL: none) gave. Thread-safe; changes
 * take turns, so the host is asked by one at a time. */
int config_change(struct config *config, const struct config_change *changes, size_t n, const struct config_host *host,
                  struct config_refusal *refusal);

/* The bytes that a setting of the kind SHARE means, where the whole is `of` bytes. */
uint64_t config_share(uint64_t value, uint64_t of);
/* Whether a setting's value is a secret, such as a password. */
bool config_is_secret(const char *name, size_t bytes);

/* Writes what is in force to the file that the settings were read from: lines that say it already, comments and order
 * stay; a line that says otherwise gets the value; what differs from the default and stands nowhere is added behind a
 * line that says so. Indexes of `load` are not settings of this kind and stay as they are. Written to a temporary
 * file, synced and renamed: a crash leaves the old file or the new. Blocks. QUIRE_ENOTFOUND: there is no file. */
int config_rewrite(struct config *config, struct quire_error *err);

#endif
