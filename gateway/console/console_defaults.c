/* console_defaults.c - the defaults of quire-server's settings, of its own table, as CONFIG GET shows them. */
#include "gateway/console/console_priv.h"
#include <stdio.h>
#include <string.h>

enum { IMMUTABLE = 0, MUTABLE = 1, SECRET = 2 };
enum kind { TEXT, NUMBERS, WORD };

static const struct row {
    const char *name;
    enum kind kind;
    int change;
    const char *text; /* a text, or the words of a choice */
    long long number; /* a number, or the word's place */
} rows[] = {
#define STRING(field, name, change, def, help)            {name, TEXT, change, def, 0},
#define LIST(field, name, change, help)                   {name, TEXT, change, "", 0},
#define NUMBER(field, name, change, def, min, max, help)  {name, NUMBERS, change, NULL, (long long)(def)},
#define INTEGER(field, name, change, def, min, max, help) {name, NUMBERS, change, NULL, (long long)(def)},
#define BYTES(field, name, change, def, min, max, help)   {name, NUMBERS, change, NULL, (long long)(def)},
#define SHARE(field, name, change, def, min, max, help)   {name, NUMBERS, change, NULL, (long long)(def)},
#define OUTPUT(field, name, change, def, min, max, help)  {name, NUMBERS, change, NULL, (long long)(def)},
#define BOOL(field, name, change, def, help)              {name, WORD, change, "no|yes", def},
#define CHOICE(field, name, change, def, choices, help)   {name, WORD, change, choices, def},
#define FIXED(name, value, help)                          {name, TEXT, IMMUTABLE, value, 0},
#include "server/process/config.def"
};

bool console_default_of(const char *name, char *out, size_t room, bool *secret)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        const char *text = row->text;
        if (strcmp(row->name, name) != 0)
            continue;
        *secret = row->change & SECRET;
        for (long long k = 0; row->kind == WORD && k < row->number; k++)
            text = strchr(text, '|') + 1;
        if (row->kind == NUMBERS)
            snprintf(out, room, "%lld", row->number);
        else
            snprintf(out, room, "%.*s", row->kind == WORD ? (int)strcspn(text, "|") : (int)strlen(text), text);
        return true;
    }
    *secret = false;
    return false;
}
