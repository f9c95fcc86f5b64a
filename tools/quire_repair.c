/*
 * quire_repair.c - `quire repair`: a new data folder with all that a damaged one still holds.
 *
 * The damaged folder is only read, and stays as it is. What is whole is taken over, by hard links where that is
 * possible; of damaged segments each element that passes its checks is saved; of a damaged log every frame that does;
 * of damaged documents of semantic caches the whole ones, where they were. Each thing that is lost is a line. The new
 * folder appears under its name when it is whole: exit code 0 where nothing was lost, 3 where something was.
 */
#include "index/store/store_check.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/cli/cli_caches.h"
#include "tools/quire_verbs.h"

static const char summary[] = "Writes what a damaged data folder, which nobody has open, still holds to a new folder. "
                              "The damaged one stays as it "
                              "is. Exit code 0: nothing was lost; 3: the new folder is there, and one line says what "
                              "it lacks or what was damaged.";
static const char examples[] = "  quire repair data --to data.saved\n"
                               "  quire repair data --to data.saved --json\n"
                               "  quire verify data.saved\n";

int quire_repair(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    struct store_verify_report r = {0};
    const char *to = NULL;
    const struct cli_option options[] = {
        CLI_OPTION("to", CLI_TEXT, &to, "NEW", "folder to make, best on the same file system", CLI_REQUIRED)};
    const struct cli_verb verb = {"quire repair", summary, "DIR", 1, options, sizeof options / sizeof *options,
                                  examples};
    int code;
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (!cli_is_data_folder(cli.arguments[0])) {
        error_set(&err, QUIRE_ENOFILE, "%s is no data folder: it has neither LOCK nor segments", cli.arguments[0]);
        return cli_fail(&cli, QUIRE_ENOFILE, &err);
    }
    uint64_t begin = clock_ns();
    struct cli_caches caches;
    int rc = cli_caches_open(&caches, &cli, cli.arguments[0], true, &err);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    rc = store_repair(
        &(struct store_check_request){cli.arguments[0], &caches.host, cli_put_finding, cli_progress, &cli, NULL}, to,
        &r, &err);
    cli_caches_close(&caches);
    if (rc < 0)
        return cli_fail(&cli, rc, &err);
    r.findings += caches.report.findings;
    if (caches.report.caches && r.findings > caches.report.findings)
        cli_note(&cli,
                 "where records of the log were lost, entries of caches may be back that had been removed: "
                 "SC.INVALIDATE %s ALL where that must not be",
                 "CACHE");
    cli_put_text(&cli, NULL, "folder", cli.arguments[0]);
    cli_put_text(&cli, NULL, "saved_to", to);
    cli_put_store_report(&cli, &r);
    cli_caches_put(&caches);
    cli_put_real(&cli, NULL, "seconds", (double)(clock_ns() - begin) / 1e9);
    return cli_finish(&cli, r.findings ? CLI_DAMAGED : CLI_OK);
}
