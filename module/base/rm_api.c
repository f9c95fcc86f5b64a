/* rm_api.c - the engine's functions, looked up by name when the module is loaded. */
#include "module/base/rm_api.h"

struct rm_api rm;

const char *rm_api_init(struct rm_ctx *ctx)
{
    /* the one thing that is agreed on without a name */
    int (*get)(const char *name, void *function) = *(int (**)(const char *, void *))(void *)ctx;
#define LOOK_UP(result, member, name, arguments)                                                                       \
    if (get("RedisModule_" #name, (void *)&rm.member) != RM_OK)                                                        \
        return #name;
    RM_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(result, member, name, arguments)                                                                       \
    if (get("RedisModule_" #name, (void *)&rm.member) != RM_OK)                                                        \
        rm.member = NULL;
    RM_FUNCTIONS_LATER(LOOK_UP)
#undef LOOK_UP
    return NULL;
}
