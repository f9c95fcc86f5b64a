/* module_engine.c - what the engine is asked for by its own commands. */
#include "module/base/module.h"
#include <string.h>

char *module_setting_of_engine(struct rm_ctx *ctx, const char *name)
{
    struct rm_reply *reply = rm.call(ctx, "CONFIG", "cc", "GET", name);
    char *text = NULL;
    size_t n;
    if (reply && rm.reply_length(reply) == 2) {
        struct rm_reply *value = rm.reply_element(reply, 1);
        const char *bytes = value ? rm.reply_bytes(value, &n) : NULL;
        text = bytes ? strndup(bytes, n) : NULL;
    }
    if (reply)
        rm.free_reply(reply);
    return text;
}
