/*
 * module_config.c - settings: those of quire-server that mean something here, as quire.NAME, and those of the module's
 * own.
 *
 * Values, bounds and messages are those of server/process/config.def, which checks what it is given. Every setting is a
 * text to the engine. What is not MUTABLE there can be given in the engine's file and with MODULE LOADEX only.
 */
#include "index/store/store.h"
#include "io/journal.h"
#include "module/module_priv.h"
#include "server/call/fair.h"
#include "server/process/config.h"
#include "server/process/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 400, PREFIX_BYTES_MAX = 15 };

/* Which of quire-server's, and whether they may change while the engine runs. */
static const struct shared {
    const char *name;
    bool is_mutable;
} shared[] = {
    {"lanes", false},           {"engine", false},       {"reads-in-flight", false}, {"searches-in-flight", false},
    {"tenant-limits", true},    {"import-dir", false},   {"index-memory", true},     {"dir", false},
    {"cache-seal-rows", false}, {"cache-guards", false}, {"appendfsync", true},      {"memtable-memory", false},
    {"maxdisk", true},          {"build-memory", false}, {"checkpoint-log", false},  {"segments-max", false},
    {"build-threads", false},   {"maxmemory", true},     {"loglevel", true}};
enum { N_SHARED = sizeof shared / sizeof *shared, N_WORDS = 3, N_NUMBERS_MAX = 4 };

/* The text that the engine was given last; kept for it. */
static struct rm_string *texts[N_SHARED + N_WORDS + N_NUMBERS_MAX];

static struct rm_string *keep(size_t at, const char *text)
{
    if (texts[at])
        rm.free_string(NULL, texts[at]);
    texts[at] = rm.create_string(NULL, text, strlen(text));
    return texts[at];
}

static int refuse(struct rm_string **error, const char *text)
{
    *error = rm.create_string(NULL, text, strlen(text));
    return RM_ERR;
}

/* ---- of quire-server --------------------------------------------------------------------------------------------- */

struct looking {
    const char *name;
    char value[1024];
};

static void look(void *context, const char *name, const char *value, const char *help)
{
    struct looking *l = context;
    (void)help;
    if (strcmp(name, l->name) == 0)
        snprintf(l->value, sizeof l->value, "%s", value);
}

static void value_of(const char *name, struct looking *l)
{
    *l = (struct looking){.name = name};
    config_each(&module_the.config, look, l);
}

static struct rm_string *get_shared(const char *name, void *data)
{
    const struct shared *setting = data;
    struct looking l;
    (void)name;
    value_of(setting->name, &l);
    return keep((size_t)(setting - shared), l.value);
}

/* What else follows from new values, as in quire-server. */
static int apply(void *context, const struct config_change *changes, size_t n, size_t *index, struct quire_error *err)
{
    struct service *s = &module_the.service;
    (void)context;
    *index = 0;
    if (!module_the.open)
        return 0;
    if (n > 0 && strcmp(changes[0].name, "tenant-limits") == 0)
        return fair_set_limits(s, s->config->tenant_limits, err);
    log_set_level(s->log, (enum log_level)s->config->loglevel);
    journal_set_sync(s->journal, (enum journal_sync)s->config->appendfsync);
    store_set_limits(s->store, s->config->maxmemory, s->config->disk_max);
    return 0;
}

static int set_shared(const char *name, struct rm_string *value, void *data, struct rm_string **error)
{
    const struct shared *setting = data;
    struct quire_error err = {0};
    size_t n;
    const char *text = rm.string_bytes(value, &n);
    (void)name;
    if (strlen(text) != n)
        return refuse(error, "a setting is a text without zero bytes");
    if (!module_the.open) {
        if (config_set(&module_the.config, setting->name, text, &err) == 0)
            return RM_OK;
        return refuse(error, err.message);
    }
    const struct config_change change = {setting->name, text};
    const struct config_host host = {.apply = apply};
    struct config_refusal refusal = {0};
    if (config_change(&module_the.config, &change, 1, &host, &refusal) == 0)
        return RM_OK;
    return refuse(error, refusal.reason[0] ? refusal.reason : "cannot be changed");
}

/* ---- the module's own -------------------------------------------------------------------------------------------- */

static const char *yes_or_no(bool value)
{
    return value ? "yes" : "no";
}

static bool take_bool(const char *text, bool *out)
{
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        return false;
    *out = text[0] == 'y';
    return true;
}

static struct rm_string *get_prefix(const char *name, void *data)
{
    (void)name;
    (void)data;
    return keep(N_SHARED, module_the.settings.prefix);
}

static int set_prefix(const char *name, struct rm_string *value, void *data, struct rm_string **error)
{
    size_t n;
    const char *text = rm.string_bytes(value, &n);
    (void)name;
    (void)data;
    if (n > PREFIX_BYTES_MAX || strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != n)
        return refuse(error, "a prefix has at most 15 letters, digits and '.', '_', '-', such as Q.");
    memcpy(module_the.settings.prefix, text, n + 1);
    return RM_OK;
}

static struct rm_string *get_recover(const char *name, void *data)
{
    (void)name;
    (void)data;
    return keep(N_SHARED + 1, yes_or_no(module_the.settings.recover_keys));
}

static int set_recover(const char *name, struct rm_string *value, void *data, struct rm_string **error)
{
    size_t n;
    (void)name;
    (void)data;
    return take_bool(rm.string_bytes(value, &n), &module_the.settings.recover_keys) ? RM_OK
                                                                                    : refuse(error, "yes or no");
}

/* A whole number of the module's own. */
static const struct number {
    const char *name, *value;
    unsigned flags;
    unsigned long long most;
} numbers[] = {{"copy-elements-max", "10000", RM_CONFIG_DEFAULT, 1000000000},
               {"ship-rate", "0", RM_CONFIG_DEFAULT, 1000000000000},
               {"ship-keep", "300", RM_CONFIG_IMMUTABLE, 86400},
               {"divergent-keep", "3600", RM_CONFIG_DEFAULT, 31536000}};
enum { NUMBER_COPY, NUMBER_RATE, NUMBER_KEEP, NUMBER_DIVERGENT, N_NUMBERS };
_Static_assert((int)N_NUMBERS == (int)N_NUMBERS_MAX, "each has a text");

static struct rm_string *get_number(const char *name, void *data)
{
    char text[24];
    size_t i = (size_t)((const struct number *)data - numbers);
    const struct module_settings *s = &module_the.settings;
    const uint64_t values[N_NUMBERS] = {s->copy_elements_max, atomic_load(&s->ship_rate), s->ship_keep_s,
                                        s->divergent_keep_s};
    (void)name;
    snprintf(text, sizeof text, "%llu", (unsigned long long)values[i]);
    return keep(N_SHARED + N_WORDS + i, text);
}

static int set_number(const char *name, struct rm_string *value, void *data, struct rm_string **error)
{
    const struct number *number = data;
    char *end, why[64];
    size_t n;
    const char *text = rm.string_bytes(value, &n);
    (void)name;
    unsigned long long given = strtoull(text, &end, 10);
    if (n == 0 || *end || text[0] == '-' || given > number->most) {
        snprintf(why, sizeof why, "a whole number of 0..%llu", number->most);
        return refuse(error, why);
    }
    switch (number - numbers) {
    case NUMBER_COPY:
        module_the.settings.copy_elements_max = given;
        break;
    case NUMBER_RATE:
        atomic_store(&module_the.settings.ship_rate, given);
        break;
    case NUMBER_KEEP:
        module_the.settings.ship_keep_s = given;
        break;
    default:
        module_the.settings.divergent_keep_s = given;
    }
    return RM_OK;
}

static const struct own {
    const char *name, *value;
    unsigned flags;
    rm_config_get_fn *get;
    rm_config_set_fn *set;
} own[] = {{"prefix", "", RM_CONFIG_IMMUTABLE, get_prefix, set_prefix},
           {"recover-keys", "yes", RM_CONFIG_IMMUTABLE, get_recover, set_recover}};

int module_config_register(struct rm_ctx *ctx)
{
    struct looking l;
    for (size_t i = 0; i < N_SHARED; i++) {
        value_of(shared[i].name, &l);
        /* dir: beside the engine's files, which is known when settings have been read */
        const char *value = strcmp(shared[i].name, "dir") == 0 ? "" : l.value;
        if (rm.register_string_config(ctx, shared[i].name, value,
                                      shared[i].is_mutable ? RM_CONFIG_DEFAULT : RM_CONFIG_IMMUTABLE, get_shared,
                                      set_shared, NULL, (void *)(uintptr_t)&shared[i]) != RM_OK)
            return RM_ERR;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (rm.register_string_config(ctx, own[i].name, own[i].value, own[i].flags, own[i].get, own[i].set, NULL,
                                      NULL) != RM_OK)
            return RM_ERR;
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (rm.register_string_config(ctx, numbers[i].name, numbers[i].value, numbers[i].flags, get_number, set_number,
                                      NULL, (void *)(uintptr_t)&numbers[i]) != RM_OK)
            return RM_ERR;
    return RM_OK;
}
