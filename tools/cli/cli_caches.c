/*
 * cli_caches.c - the host that takes in what the journal says of semantic caches, for `quire verify` and `repair`.
 *
 * It stands where the server stands when it opens the folder, so that a record which would keep the server from
 * starting is found here. Records of others (keys) are none of its business. When all has been read, and while the
 * folder is still locked, the caches are checked, and for a repair their documents saved.
 */
#include "tools/cli/cli_caches.h"
#include <string.h>

void cli_put_finding(void *context, const char *sentence)
{
    struct cli *cli = context;
    cli_put_text(cli, cli_put_row(cli, NULL, "damage"), "finding", sentence);
}

static void on_note(void *context, const char *sentence)
{
    cli_note(context, "%s", sentence);
}

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct cli_caches *c = context;
    return kind < CACHE_KINDS ? 0 : caches_restore(c->caches, kind, lsn, bytes, n, err);
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct cli_caches *c = context;
    return kind < CACHE_KINDS ? 0 : caches_replay(c->caches, kind, lsn, bytes, n, err);
}

static int complete(void *context, const char *folder, struct journal *journal, struct quire_error *err)
{
    struct cli_caches *c = context;
    struct caches_check check = {.finding = cli_put_finding,
                                 .note = on_note,
                                 .progress = cli_progress,
                                 .context = c->cli,
                                 .to = c->saves ? folder : NULL,
                                 .journal = journal};
    return caches_verify(c->caches, &check, &c->report, err);
}

int cli_caches_open(struct cli_caches *caches, struct cli *cli, const char *folder, bool saves, struct quire_error *err)
{
    struct caches_options options = {.folder = folder, .no_thread = true, .read_only = true};
    *caches = (struct cli_caches){.cli = cli, .saves = saves};
    caches->host = (struct store_host){.restore = restore, .replay = replay, .complete = complete, .context = caches};
    return caches_create(&options, &caches->caches, err);
}

void cli_caches_put(const struct cli_caches *caches)
{
    const struct caches_report *r = &caches->report;
    cli_put_count(caches->cli, NULL, "caches", r->caches);
    cli_put_count(caches->cli, NULL, "entries", r->entries);
    cli_put_count(caches->cli, NULL, "entries_damaged", r->entries_damaged);
    cli_put_count(caches->cli, NULL, "entries_unwritten", r->entries_lost);
    if (caches->saves)
        cli_put_count(caches->cli, NULL, "entries_without_vector", r->vectors_lost);
    cli_put_count(caches->cli, NULL, "document_segments", r->document_segments);
    cli_put_count(caches->cli, NULL, "documents", r->documents);
    cli_put_count(caches->cli, NULL, "sealed_segments", r->sealed_segments);
}

void cli_caches_close(struct cli_caches *caches)
{
    caches_destroy(caches->caches);
}
