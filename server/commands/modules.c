/*
 * modules.c - vector sets as the one module, for those who ask a Redis 8.
 */
#include "server/commands/modules.h"
#include "io/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE_NAME    "vectorset"
#define MODULE_VERSION 1 /* as Redis 8 says */

static bool has_module(const struct config *config)
{
    return strtoul(config->redis_version, NULL, 10) >= 8;
}

int modules_check_version(const struct config *config, struct quire_error *err)
{
    unsigned number[3];
    int end = 0;
    const char *text = config->redis_version;
    bool right = strspn(text, "0123456789.") == strlen(text) &&
                 sscanf(text, "%3u.%3u.%3u%n", &number[0], &number[1], &number[2], &end) == 3 && text[end] == 0;
    return right ? 0
                 : error_set(err, QUIRE_EINVALID, "redis-version: '%.64s' is not three numbers, such as 8.0.0", text);
}

void modules_put(const struct config *config, struct resp_buffer *out)
{
    bool there = has_module(config);
    resp_array(out, there);
    if (!there)
        return;
    resp_map(out, 4);
    resp_text(out, "name");
    resp_text(out, MODULE_NAME);
    resp_field(out, "ver", MODULE_VERSION);
    resp_text(out, "path");
    resp_text(out, "");
    resp_text(out, "args");
    resp_array(out, 0);
}

void modules_put_info(const struct config *config, struct resp_buffer *text)
{
    static const char line[] = "module:name=" MODULE_NAME ",ver=1,api=1,filters=0,usedby=[],using=[],options=[]\r\n";
    _Static_assert(MODULE_VERSION == 1, "the line says so");
    if (has_module(config))
        resp_raw(text, line, sizeof line - 1);
}
