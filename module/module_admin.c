/* module_admin.c - QUIRE.*: what the engine has no command for. */
#include "module/module_priv.h"

int module_admin_create(struct rm_ctx *ctx, const char **failed)
{
    *failed = MODULE_MANIFEST;
    return rm.create_command(ctx, MODULE_MANIFEST, module_type_manifest, "write deny-oom", 1, 1, 1);
}

void module_backup_child_ended(bool saved)
{
    (void)saved;
}

bool module_backup_runs(void)
{
    return false;
}
