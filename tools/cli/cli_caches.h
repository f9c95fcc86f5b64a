/* cli_caches.h - semantic caches in the verbs that read a data folder which nobody has open: verify, repair. */
#ifndef QUIRE_TOOLS_CLI_CACHES_H
#define QUIRE_TOOLS_CLI_CACHES_H

#include "cache/core/caches_verify.h"
#include "tools/cli/cli.h"

/* What caches need of a folder while it is read; stays where it is until it is closed. */
struct cli_caches {
    struct cli *cli;
    struct caches *caches;
    bool saves;             /* a repair: documents are taken along */
    struct store_host host; /* for store_verify or store_repair */
    struct caches_report report;
};
int cli_caches_open(struct cli_caches *caches, struct cli *cli, const char *folder, bool saves,
                    struct quire_error *err);
/* Counts, behind those of the store. */
void cli_caches_put(const struct cli_caches *caches);
void cli_caches_close(struct cli_caches *caches);

/* A row of damage; context: the struct cli. */
void cli_put_finding(void *cli, const char *sentence);

#endif
