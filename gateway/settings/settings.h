/*
 * settings.h - the settings of quire-gateway: one table (settings.def), a JSON file, and the command line.
 *
 *     { "listen": ["127.0.0.1:8080"], "body-max": "32mb", "answer-timeout": "600s",
 *       "upstreams": [ { "name": "vllm", "url": "http://127.0.0.1:8000" } ] }
 *
 * Every setting has a type, a range, a default and a help text. Times carry their unit ("750ms", "30s", "10m", "2h"), a
 * bare number is refused: seconds and milliseconds are too often taken for each other. Sizes are numbers of bytes or
 * "64kb", "32mb", "1gb" (powers of 1,024). An unknown name is an error, as is a name that stands twice. An error names
 * the setting, the value, what is allowed, and the file.
 *
 * A struct settings is read once and never changes; a reload makes another, which is put in its place as a whole.
 */
#ifndef QUIRE_GATEWAY_SETTINGS_H
#define QUIRE_GATEWAY_SETTINGS_H

#include "quire.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SETTINGS_LIST_MAX      64u /* entries of a list */
#define SETTINGS_UPSTREAMS_MAX 64u
#define SETTINGS_ROUTES_MAX    256u
#define SETTINGS_FIXED_BYTES   800u

/* A list of texts. */
struct settings_list {
    char **items;
    uint32_t n;
};

/* One server behind the gateway: an object of "upstreams". */
struct settings_upstream {
    char *name; /* shown in logs and metrics; part of a cache's key. Default: host and port of the URL */
    char *url;  /* "http://127.0.0.1:8000" or "https://api.openai.com/v1" */
    char *key;  /* sent as "Authorization: Bearer ..." in place of the client's; "" : the client's own */
    struct settings_list models; /* names or globs ("gpt-4*") that it takes; empty: any */
    uint32_t weight;             /* 1..1000; its share among those that fit */
    char *health;                /* path that is asked every health-interval, "" : none */
    char *proxy;                 /* "http://proxy:3128", "" : none (the environment is not read) */
    char *ca_file;               /* authorities that are trusted, "" : the system's */
};

/* A rule for a request's category: an object of "routes"; the first whose conditions all hold. Empty: holds always. */
struct settings_route {
    char *category;
    char *path;   /* glob of the path */
    char *model;  /* glob of the model's name */
    char *tenant; /* glob of the tenant's name */
    char *system; /* glob of the system text, or "sha256:" and 64 hex digits of it */
};

struct settings {
#define SETTING_TEXT(field, name, def, help)                    char *field;
#define SETTING_SECRET(field, name, help)                       char *field;
#define SETTING_LIST(field, name, def, help)                    struct settings_list field;
#define SETTING_NUMBER(field, name, def, min, max, help)        int64_t field;
#define SETTING_BYTES(field, name, def, min, max, help)         int64_t field;
#define SETTING_TIME(field, name, def_ms, min_ms, max_ms, help) int64_t field;
#define SETTING_REAL(field, name, def, min, max, help)          double field;
#define SETTING_BOOL(field, name, def, help)                    bool field;
#define SETTING_CHOICE(field, name, def, choices, help)         int field;
#include "gateway/settings/settings.def"
    struct settings_upstream *upstreams;
    uint32_t n_upstreams;
    struct settings_route *routes;
    uint32_t n_routes;
};

/* The places of the words of SETTING_CHOICE. */
enum settings_share { SETTINGS_SHARE_KEY, SETTINGS_SHARE_TENANT, SETTINGS_SHARE_ALL };
enum settings_replay_id { SETTINGS_REPLAY_NEW, SETTINGS_REPLAY_SAME };
enum settings_usage { SETTINGS_USAGE_SAME, SETTINGS_USAGE_ZERO };
enum settings_judge {
    SETTINGS_JUDGE_NONE,
    SETTINGS_JUDGE_EQUAL,
    SETTINGS_JUDGE_VECTOR,
    SETTINGS_JUDGE_MODEL,
    SETTINGS_JUDGE_HAND
};
enum settings_ui { SETTINGS_UI_NO, SETTINGS_UI_READ, SETTINGS_UI_YES };
enum settings_log_level { SETTINGS_LOG_DEBUG, SETTINGS_LOG_NOTICE, SETTINGS_LOG_WARNING, SETTINGS_LOG_ERROR };

/* Defaults, then the file (NULL: none), then `assigned`: n texts "name=value", in order; a value is taken as JSON where
 * it begins with '[' or '{', else as the text of the value; "upstream=URL" adds an upstream. Then all is checked
 * together. `out` is ended by settings_destroy. */
int settings_read(const char *file, const char *const *assigned, uint32_t n, struct settings **out,
                  struct quire_error *err);
void settings_destroy(struct settings *settings); /* NULL is fine */
/* Names of settings that differ and take effect at a start only ("listen"), comma-separated; "" where none. All of them
 * together take less than SETTINGS_FIXED_BYTES. */
void settings_fixed_differences(const struct settings *old, const struct settings *new, char *out, size_t out_bytes);

/* The table for people: name, type, range, default, help. */
void settings_print_help(FILE *out);
/* The same for programs: an array of objects; NULL without memory. */
struct json_t;
struct json_t *settings_describe(void);
/* All values as a JSON file that settings_read reads; secrets as "***" (which settings_read refuses). */
int settings_print(const struct settings *settings, FILE *out, struct quire_error *err);

#endif
