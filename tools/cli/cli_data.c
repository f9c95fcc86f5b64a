/*
 * cli_data.c - what a folder is: an index, or the data of a server or of live collections; and what a check of data
 * found.
 */
#include "index/format/format.h"
#include "index/store/store_check.h"
#include "tools/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool has_entry(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return false;
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

bool cli_is_index_folder(const char *folder)
{
    return has_entry(folder, META_NAME);
}

bool cli_is_data_folder(const char *folder)
{
    return !cli_is_index_folder(folder) && (has_entry(folder, LOCK_NAME) || has_entry(folder, SEGMENTS_NAME));
}

void cli_put_store_report(struct cli *cli, const struct store_verify_report *r)
{
    cli_put_count(cli, NULL, "findings", r->findings);
    cli_put_count(cli, NULL, "collections", r->collections);
    cli_put_count(cli, NULL, "segments", r->segments);
    cli_put_count(cli, NULL, "elements", r->elements);
    cli_put_count(cli, NULL, "records", r->records);
}
