/*
 * quire_verify.c - `quire verify`: one line per damage, and an exit code of its own for "damaged".
 *
 * An index that is too damaged to be opened is damaged as well, not a failed operation: wrong checksums, sizes and
 * magic numbers end with 3. A folder without a meta file is no index, and a newer format version is no damage: these
 * end with 1.
 *
 * A data folder of the server or of a live collection is told by its LOCK or its segments, and checked as a whole: its
 * log, each segment, semantic caches with their documents, and that they fit together. It must not be open: the lock
 * says so.
 */
#include "index/store/store_check.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli_caches.h"
#include "tools/quire_verbs.h"
#include <stdio.h>

static bool is_damage(int code, const char *folder)
{
    return code == QUIRE_ECORRUPT || code == QUIRE_ETRUNCATED || code == QUIRE_EOVERSIZED || code == QUIRE_EFORMAT ||
           code == QUIRE_ESHORTREAD || (code == QUIRE_ENOFILE && cli_is_index_folder(folder));
}

static void report(struct cli *cli, const struct quire_verify_report *r, double seconds)
{
    cli_put_count(cli, NULL, "files", r->files);
    cli_put_count(cli, NULL, "sections", r->sections);
    cli_put_count(cli, NULL, "blocks", r->blocks);
    cli_put_count(cli, NULL, "rows", r->rows);
    cli_put_count(cli, NULL, "edges", r->edges);
    cli_put_count(cli, NULL, "keys", r->keys);
    if (r->lists) {
        cli_put_count(cli, NULL, "lists", r->lists);
        cli_put_count(cli, NULL, "list_entries", r->list_entries);
    }
    cli_put_count(cli, NULL, "rows_reachable", r->rows_reachable);
    cli_put_count(cli, NULL, "rows_by_edges", r->rows_by_edges);
    cli_put_count(cli, NULL, "blocks_without_entry", r->blocks_without_entry);
    cli_put_real(cli, NULL, "code_error", r->code_error);
    cli_put_real(cli, NULL, "code_error_max", r->code_error_max);
    cli_put_real(cli, NULL, "seconds", seconds);
}

static int verify_data(struct cli *cli)
{
    struct quire_error err = {0};
    struct store_verify_report r = {0};
    struct cli_caches caches;
    uint64_t begin = clock_ns();
    int rc = cli_caches_open(&caches, cli, cli->arguments[0], false, &err);
    if (rc < 0)
        return cli_fail(cli, rc, &err);
    rc = store_verify(
        &(struct store_check_request){cli->arguments[0], &caches.host, cli_put_finding, cli_progress, cli, NULL}, &r,
        &err);
    cli_caches_close(&caches);
    if (rc < 0 && rc != QUIRE_ECORRUPT)
        return cli_fail(cli, rc, &err);
    r.findings += caches.report.findings;
    if (rc < 0 && r.findings == 0) {
        cli_put_finding(cli, err.message);
        r.findings = 1;
    }
    cli_put_text(cli, NULL, "folder", cli->arguments[0]);
    cli_put_store_report(cli, &r);
    cli_caches_put(&caches);
    report(cli, &r.segments_total, (double)(clock_ns() - begin) / 1e9);
    return cli_finish(cli, r.findings ? CLI_DAMAGED : CLI_OK);
}

static const char summary[] =
    "Reads and checks every byte of an index, or of a data folder that nobody has open. Exit code 0: sound; 3: "
    "damaged, one line per finding.";
static const char examples[] = "  quire verify index\n"
                               "  quire verify index --json\n"
                               "  quire verify snapshots/20261121T190512Z-4711\n";

int quire_verify_verb(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    struct quire_verify_report r = {0};
    const struct cli_verb verb = {"quire verify", summary, "DIR", 1, NULL, 0, examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (cli_is_data_folder(cli.arguments[0]))
        return verify_data(&cli);
    uint64_t begin = clock_ns();
    int rc = quire_verify(cli.arguments[0], cli_put_finding, cli_progress, &cli, &r, &err);
    bool damaged = rc < 0 && is_damage(rc, cli.arguments[0]);
    if (rc == QUIRE_ECANCELLED)
        error_set(&err, rc, "interrupted");
    if (rc < 0 && !damaged)
        return cli_fail(&cli, rc, &err);
    if (damaged && r.findings == 0) {
        cli_put_finding(&cli, err.message[0] ? err.message : quire_error_text(rc));
        r.findings = 1;
    }
    cli_put_text(&cli, NULL, "index", cli.arguments[0]);
    cli_put_count(&cli, NULL, "findings", r.findings);
    report(&cli, &r, (double)(clock_ns() - begin) / 1e9);
    return cli_finish(&cli, damaged ? CLI_DAMAGED : CLI_OK);
}
