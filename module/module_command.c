/*
 * module_command.c - which commands the engine gets, and what it is told of each: the rows of vector sets, semantic
 * caches, indexes (FT.*) and JSON documents of server/commands.def.
 *
 * A prefix (quire.prefix) stands before every name where the engine has some of them itself. Handlers never see it.
 */
#include "module/module_priv.h"
#include "server/command_rows.h"
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, FLAGS_BYTES = 80 };

enum module_kind module_command_kind(unsigned row)
{
    return strcmp(commands[row].group, "cache") == 0 ? MODULE_CACHE : MODULE_SET;
}

static bool is_one_of(unsigned row, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(commands[row].name, names[i]) == 0)
            return true;
    return false;
}

bool module_command_makes(unsigned row)
{
    static const char *const names[] = {"vadd", "vcreate", "vload", "sc.create"};
    return is_one_of(row, names, sizeof names / sizeof *names);
}

bool module_command_may_end(unsigned row)
{
    static const char *const names[] = {"vrem", "vdelwhere", "vdroptenant", "vrevoke", "sc.drop"};
    return is_one_of(row, names, sizeof names / sizeof *names);
}

/* What computes for more than some microseconds and changes no key. A question by its hash alone is a look-up. */
bool module_command_is_search(unsigned row, const struct resp_arg *args, uint32_t n)
{
    static const char *const names[] = {"vsim", "vmsim", "vlinks", "vrandmember"};
    bool asks = strcmp(commands[row].name, "sc.get") == 0;
    for (uint32_t i = 2; asks && i < n; i++)
        if (arg_is(args[i], "VEC") || arg_is(args[i], "WAIT"))
            return true;
    return !asks && is_one_of(row, names, sizeof names / sizeof *names);
}

int module_command_find(struct resp_arg *args, uint32_t n)
{
    uint32_t prefix = (uint32_t)strlen(module_the.settings.prefix);
    if (args[0].bytes > prefix && prefix > 0) {
        args[0].data += prefix;
        args[0].bytes -= prefix;
    }
    return command_find_request(args, n);
}

/* ---- SC.LIST ----------------------------------------------------------------------------------------------------- */

struct listing {
    struct rm_ctx *ctx;
    struct rm_user *user;
    int db;
    struct resp_buffer names;
    size_t n;
};

/* ACLCheckKeyPermissions: what the user may do with the key. */
static void list_cache(void *context, struct module_item *item)
{
    struct listing *l = context;
    bool other;
    if (item->kind != MODULE_CACHE || item->state != MODULE_LIVE || item->attached == 0 || item->db != l->db)
        return;
    struct rm_string *key = rm.create_string(l->ctx, item->key ? item->key : "", item->key_bytes);
    bool may = !l->user || rm.acl_check_key(l->user, key, RM_SPEC_ACCESS) == RM_OK;
    if (may && module_item_of_key(l->ctx, key, &other) == item) {
        resp_bulk(&l->names, item->key, item->key_bytes);
        l->n++;
    }
    rm.free_string(l->ctx, key);
}

static int run_list(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct listing l = {.ctx = ctx, .db = rm.get_selected_db(ctx), .names.protocol = 2};
    struct resp_buffer reply = {.protocol = 2};
    struct rm_string *name = rm.get_current_user_name(ctx);
    (void)argv;
    if (argc != 1)
        return rm.wrong_arity(ctx);
    l.user = name ? rm.get_module_user(name) : NULL;
    module_items_each(list_cache, &l);
    resp_array(&reply, l.n);
    resp_raw(&reply, l.names.data, l.names.bytes);
    if (l.names.failed || reply.failed || !module_reply_send(ctx, &reply, NULL, NULL, 0))
        rm.reply_error(ctx, "OOM no memory for the names of all caches");
    resp_buffer_fini(&reply);
    resp_buffer_fini(&l.names);
    if (l.user)
        rm.free_module_user(l.user);
    if (name)
        rm.free_string(ctx, name);
    return RM_OK;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */

static void add_flag(char flags[FLAGS_BYTES], const char *flag)
{
    size_t n = strlen(flags);
    snprintf(flags + n, FLAGS_BYTES - n, "%s%s", n ? " " : "", flag);
}

static void flags_of(const struct command *row, char flags[FLAGS_BYTES])
{
    flags[0] = 0;
    if (row->flags & CMD_WRITE)
        add_flag(flags, "write");
    else if (row->flags & CMD_READ)
        add_flag(flags, "readonly");
    if (row->flags & CMD_FAST)
        add_flag(flags, "fast");
    if (row->flags & CMD_ADMIN)
        add_flag(flags, "admin");
    if (row->flags & CMD_DENYOOM)
        add_flag(flags, "deny-oom");
    if (row->flags & CMD_NO_MULTI)
        add_flag(flags, "deny-script");
}

static uint64_t spec_flags(const struct command *row)
{
    if (!(row->flags & CMD_WRITE))
        return RM_SPEC_RO | RM_SPEC_ACCESS;
    uint64_t flags = RM_SPEC_RW | RM_SPEC_UPDATE;
    if (row->flags & (CMD_READS_TOO | CMD_READS_DRY))
        flags |= RM_SPEC_ACCESS;
    if (strcmp(row->name, "vadd") == 0)
        flags = RM_SPEC_RW | RM_SPEC_INSERT;
    if (strcmp(row->name, "vrem") == 0 || strcmp(row->name, "sc.drop") == 0)
        flags = RM_SPEC_RW | RM_SPEC_DELETE;
    return flags;
}

static const char *category_of(const struct command *row)
{
    unsigned at = (unsigned)(row - commands);
    if (module_command_is_query(at))
        return "search";
    if (module_command_is_json(at))
        return "json";
    return module_command_kind(at) == MODULE_SET ? "vectorset" : "semanticcache";
}

static int describe(struct rm_command *command, const struct command *row)
{
    static const struct rm_command_info_version version = {1, sizeof(struct rm_command_history),
                                                           sizeof(struct rm_key_spec), sizeof(struct rm_command_arg)};
    struct rm_key_spec specs[2] = {{.flags = 0}};
    struct rm_command_info info = {
        .version = &version, .summary = row->summary, .since = row->since, .arity = row->arity, .key_specs = specs};
    if (row->first_key > 0) {
        specs[0].flags = spec_flags(row);
        specs[0].begin_search = RM_SEARCH_INDEX;
        specs[0].bs.index.pos = row->first_key;
        specs[0].find_keys = RM_FIND_RANGE;
        specs[0].fk.range.last = row->last_key < 0 ? row->last_key : row->last_key - row->first_key;
        specs[0].fk.range.step = row->key_step;
    }
    if (rm.set_command_acl && rm.set_command_acl(command, category_of(row)) != RM_OK)
        return RM_ERR;
    return rm.set_command_info(command, &info);
}

static int create(struct rm_ctx *ctx, const struct command *row)
{
    char name[NAME_BYTES], flags[FLAGS_BYTES], container[NAME_BYTES];
    const char *sub = strchr(row->name, '|');
    bool is_list = strcmp(row->name, "sc.list") == 0;
    flags_of(row, flags);
    snprintf(name, sizeof name, "%s%s", module_the.settings.prefix, row->name);
    if (!sub) {
        /* what has sub-commands has no function of its own */
        rm_command_fn *run = !row->run ? NULL : is_list ? run_list : module_call_run;
        if (rm.create_command(ctx, name, run, flags, row->first_key, row->last_key, row->key_step) != RM_OK)
            return RM_ERR;
        return describe(rm.get_command(ctx, name), row);
    }
    snprintf(container, sizeof container, "%s%.*s", module_the.settings.prefix, (int)(sub - row->name), row->name);
    struct rm_command *parent = rm.get_command(ctx, container);
    if (!parent || rm.create_subcommand(parent, sub + 1, module_call_run, flags, row->first_key, row->last_key,
                                        row->key_step) != RM_OK)
        return RM_ERR;
    return describe(rm.get_command(ctx, name), row);
}

int module_commands_create(struct rm_ctx *ctx, const char **failed)
{
    command_rows_set();
    if (rm.add_acl_category && rm.set_command_acl) {
        /* an engine that has vector sets of its own has the first of them already */
        rm.add_acl_category(ctx, "vectorset");
        rm.add_acl_category(ctx, "semanticcache");
        rm.add_acl_category(ctx, "search");
        rm.add_acl_category(ctx, "json");
    }
    for (unsigned i = 0; i < n_commands; i++) {
        const char *group = commands[i].group;
        if (strcmp(group, "vector_set") != 0 && strcmp(group, "cache") != 0 && strcmp(group, "search") != 0 &&
            strcmp(group, "json") != 0)
            continue;
        *failed = commands[i].name;
        if (create(ctx, &commands[i]) != RM_OK)
            return RM_ERR;
    }
    return RM_OK;
}
