/*
 * module_query.c - FT.*: what is the engine's about them.
 *
 * An index is of the keys of database 0, whatever database the client has selected, as in RediSearch. Who may read all
 * keys that it could have may search it; the engine's ACL is asked. Definitions are in the store, so the AOF has none
 * of these commands; replicas get them, and make indexes of the hashes that they have.
 */
#include "module/module_priv.h"
#include <string.h>

/* Of the command being run; the main thread's. */
static struct rm_ctx *running;

struct rm_ctx *module_query_context(void)
{
    return running;
}

bool module_command_is_query(unsigned row)
{
    return strcmp(commands[row].group, "search") == 0;
}

static bool is_drop(const struct command *row)
{
    return strcmp(row->name, "ft.dropindex") == 0 || strcmp(row->name, "ft.drop") == 0;
}

const char *module_query_refusal(struct rm_ctx *ctx, unsigned row)
{
    if (!module_documents_begun())
        return "ERR indexes of hashes could not be read at the start: see the engine's log";
    if (strcmp(commands[row].name, "ft.create") == 0 && rm.get_selected_db(ctx) != 0)
        return "ERR Cannot create index on db != 0";
    return NULL;
}

void module_query_enter(struct rm_ctx *ctx, struct module_call *call)
{
    running = ctx;
    call->trusted = rm.get_context_flags(ctx) & RM_FLAG_REPLICATED; /* the stream of a primary has no user */
    struct rm_string *name = call->trusted ? NULL : rm.get_current_user_name(ctx);
    call->user_acl = name ? rm.get_module_user(name) : NULL;
    if (name)
        rm.free_string(ctx, name);
    /* keys are removed in the context of the command alone */
    if (is_drop(&commands[call->row]))
        call->caller.whole = true;
}

bool module_query_may_read(const struct module_call *call, struct resp_arg key)
{
    if (call->trusted || !call->user_acl)
        return call->trusted;
    struct rm_string *name = rm.create_string(NULL, (const char *)key.data, key.bytes);
    bool may = rm.acl_check_key(call->user_acl, name, RM_SPEC_ACCESS) == RM_OK;
    rm.free_string(NULL, name);
    return may;
}

void module_query_leave(struct rm_ctx *ctx, struct module_call *call, struct rm_string **argv, int argc)
{
    const struct command *row = &commands[call->row];
    bool failed = call->out.failed || (call->out.bytes > 0 && call->out.data[0] == '-');
    running = NULL;
    if (call->user_acl)
        rm.free_module_user(call->user_acl);
    call->user_acl = NULL;
    if (!(row->flags & CMD_WRITE) || !call->done || failed)
        return;
    /* A: not to the AOF. Of DD the removals of keys were passed on, each by itself. */
    bool drop = is_drop(row);
    char name[64];
    snprintf(name, sizeof name, "%s%s", module_the.settings.prefix, drop ? "FT.DROPINDEX" : row->name);
    rm.replicate(ctx, name, "Av", argv + 1, (size_t)(drop ? 1 : argc - 1));
}
