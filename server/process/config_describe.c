/*
 * config_describe.c - the table of settings as one JSON object: quire-server --help --json.
 *
 * It says what --help says and what the table knows besides: kind, range, choices, whether CONFIG SET takes it, whether
 * its value is a secret. Manual pages and shell completion are made from it (packaging/manual.py).
 */
#include "io/error.h"
#include "server/process/config_priv.h"
#include <jansson.h>
#include <string.h>

static const char *const kinds[] = {
    [KIND_STRING] = "text",   [KIND_LIST] = "texts",  [KIND_NUMBER] = "number", [KIND_INTEGER] = "number",
    [KIND_BYTES] = "size",    [KIND_SHARE] = "share", [KIND_OUTPUT] = "output", [KIND_BOOL] = "choice",
    [KIND_CHOICE] = "choice", [KIND_FIXED] = "fixed",
};

/* The words of "a|b|c". */
static json_t *words_of(const char *text)
{
    json_t *words = json_array();
    while (*text) {
        size_t bytes = strcspn(text, "|");
        json_array_append_new(words, json_stringn(text, bytes));
        text += bytes + (text[bytes] == '|');
    }
    return words;
}

static json_t *row_of(const struct config *config, const struct setting *s)
{
    char capacity[SETTING_TEXT_BYTES];
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:b}", "name", s->name, "kind", kinds[s->kind], "help", s->help,
                  "default", config_setting_text(config, s, capacity), "live", (s->change & MUTABLE) != 0, "secret",
                  (s->change & SECRET) != 0, "repeatable", s->kind == KIND_LIST);
    bool ranged = s->kind == KIND_NUMBER || s->kind == KIND_INTEGER || s->kind == KIND_BYTES || s->kind == KIND_SHARE ||
                  s->kind == KIND_OUTPUT;
    if (ranged) {
        json_object_set_new(row, "minimum", json_integer((json_int_t)s->minimum));
        json_object_set_new(row, "maximum", json_integer((json_int_t)s->maximum));
    }
    if (s->kind == KIND_CHOICE || s->kind == KIND_BOOL)
        json_object_set_new(row, "choices", words_of(s->kind == KIND_BOOL ? "yes|no" : s->text));
    return row;
}

int config_describe(const struct config *config, const struct config_page *page, FILE *out, struct quire_error *err)
{
    json_t *settings = json_array();
    for (size_t i = 0; i < N_SETTINGS; i++)
        json_array_append_new(settings, row_of(config, &config_settings[i]));
    json_t *whole = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s}", "program", "quire-server", "version",
                              QUIRE_VERSION_STRING, "summary", page->summary, "usage", page->usage, "notes",
                              page->notes, "settings", settings, "examples", page->examples);
    bool ok = whole && json_dumpf(whole, out, JSON_INDENT(2)) == 0 && fputc('\n', out) != EOF;
    json_decref(whole);
    return ok ? 0 : error_set(err, QUIRE_ENOMEM, "the settings could not be printed");
}
