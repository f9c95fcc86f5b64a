/* settings_priv.h - the rows of settings.def as data. */
#ifndef QUIRE_GATEWAY_SETTINGS_PRIV_H
#define QUIRE_GATEWAY_SETTINGS_PRIV_H

#include "gateway/settings/settings.h"
#include <jansson.h>
#include <stddef.h>

enum settings_kind {
    SETTINGS_PART,
    SETTINGS_TEXT,
    SETTINGS_SECRET,
    SETTINGS_LIST,
    SETTINGS_NUMBER,
    SETTINGS_BYTES,
    SETTINGS_TIME,
    SETTINGS_REAL,
    SETTINGS_BOOL,
    SETTINGS_CHOICE,
};

struct settings_row {
    enum settings_kind kind;
    const char *name, *help;
    size_t offset;     /* of the field in struct settings */
    const char *words; /* the default of texts and lists; the words of a choice */
    int64_t number, min, max;
    double real, real_min, real_max;
};

extern const struct settings_row settings_rows[];
extern const uint32_t settings_rows_n;

#define SETTINGS_MASK "***" /* what is shown in place of a secret */

/* The field of a row, as what its kind has there. */
static inline void *settings_field(const struct settings *settings, const struct settings_row *row)
{
    return (char *)settings + row->offset;
}

/* ---- settings_value.c ---- */
/* Sets a field from a text, or from JSON; *err names the setting. */
int settings_set_text(struct settings *settings, const struct settings_row *row, const char *text,
                      struct quire_error *err);
int settings_set_json(struct settings *settings, const struct settings_row *row, const json_t *value,
                      struct quire_error *err);
int settings_set_default(struct settings *settings, const struct settings_row *row, struct quire_error *err);
/* "from 1 to 10", "a text", for messages and help. */
void settings_allowed(const struct settings_row *row, char *out, size_t out_bytes);
/* A value as people write it: "30s", "32mb", "true". Lists are not among them. */
void settings_show(const struct settings_row *row, const struct settings *settings, char *out, size_t out_bytes);
int settings_list_add(struct settings_list *list, const char *name, const char *item, size_t bytes,
                      struct quire_error *err);
void settings_list_clear(struct settings_list *list);

/* ---- settings_object.c ---- */
int settings_set_upstreams(struct settings *settings, const json_t *value, struct quire_error *err);
int settings_set_routes(struct settings *settings, const json_t *value, struct quire_error *err);
/* One of which only the URL is known. */
int settings_add_upstream(struct settings *settings, const char *url, struct quire_error *err);
void settings_objects_clear(struct settings *settings);
void settings_upstreams_clear(struct settings *settings);
int settings_check_url(const char *setting, const char *url, struct quire_error *err);

#endif
