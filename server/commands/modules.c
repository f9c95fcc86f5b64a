/*
 * modules.c - what a Redis 8 lists as modules: vector sets, searches and JSON documents.
 */
#include "server/commands/modules.h"
#include "io/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What clients ask for by name and number: the numbers are those of a Redis 8, whose commands these are. */
static const struct {
    const char *name;
    int version;
    bool always; /* also where the server says that it is an older Redis, for which these were loaded */
} modules[] = {{"vectorset", 1, false}, {"search", 80200, true}, {"ReJSON", 80200, true}};

enum { MODULES = sizeof modules / sizeof *modules };

static bool is_there(const struct config *config, unsigned i)
{
    return modules[i].always || strtoul(config->redis_version, NULL, 10) >= 8;
}

/* Behind one to three digits; NULL: there are none, or more. */
static const char *number_end(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits >= 1 && digits <= 3 ? text + digits : NULL;
}

int modules_check_version(const struct config *config, struct quire_error *err)
{
    const char *text = config->redis_version, *at = number_end(text);
    for (int i = 0; i < 2 && at; i++)
        at = *at == '.' ? number_end(at + 1) : NULL;
    return at && *at == 0
               ? 0
               : error_set(err, QUIRE_EINVALID, "redis-version: '%.64s' is not three numbers, such as 8.0.0", text);
}

void modules_put(const struct config *config, struct resp_buffer *out)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MODULES; i++)
        n += is_there(config, i);
    resp_array(out, n);
    for (unsigned i = 0; i < MODULES; i++) {
        if (!is_there(config, i))
            continue;
        resp_map(out, 4);
        resp_text(out, "name");
        resp_text(out, modules[i].name);
        resp_field(out, "ver", modules[i].version);
        resp_text(out, "path");
        resp_text(out, "");
        resp_text(out, "args");
        resp_array(out, 0);
    }
}

void modules_put_info(const struct config *config, struct resp_buffer *text)
{
    for (unsigned i = 0; i < MODULES; i++) {
        char line[128];
        if (!is_there(config, i))
            continue;
        int n = snprintf(line, sizeof line, "module:name=%s,ver=%d,api=1,filters=0,usedby=[],using=[],options=[]\r\n",
                         modules[i].name, modules[i].version);
        resp_raw(text, line, (size_t)n);
    }
}
