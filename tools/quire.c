/*
 * quire.c - the program: finds the verb, hands over, returns its exit code.
 *
 * Each verb lives in a file of its own, with its table of options, its help and its results (cli.h). Exit codes: 0
 * done, 1 the operation failed, 2 it was asked for wrongly, 3 verify or repair found damage, 130 interrupted by Ctrl-C
 * (128 and the number of the signal).
 */
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} verbs[] = {
    {"gen", quire_gen, "make clustered vectors, queries and their ground truth"},
    {"gen-attrs", quire_gen_attrs, "make attributes and tenants of rows, to try filters with"},
    {"truth", quire_truth, "compute exact nearest neighbours"},
    {"build", quire_build_verb, "build an index from a file of vectors"},
    {"search", quire_search_verb, "run queries; measure recall, rate, latency, reads and memory"},
    {"inspect", quire_inspect, "show what an index is and where its memory goes"},
    {"verify", quire_verify_verb, "read and check every byte of an index"},
    {"repair", quire_repair, "save what a damaged data folder still holds"},
    {"convert", quire_convert, "convert between formats of vector files"},
    {"plan", quire_plan_verb, "say what an index of many rows would cost on this machine"},
    {"import", quire_import, "bring rows from another server or from files into a server or files"},
    {"export", quire_export, "write sets of a server, or an index, into files"},
    {"probe", quire_probe, "measure random reads of a device"},
    {"bench-kernels", quire_bench_kernels, "measure the kernels beside the memory's bandwidth"},
    {"embed", quire_embed, "turn lines of text into vectors"},
    {"top", quire_top_verb, "show live what a server does: searches, caches, tenants, memory, disk"},
    {"cache-eval", quire_cache_eval_verb, "stream a labelled text set into a cache; count hits and wrong ones"},
};
#define N_VERBS (sizeof verbs / sizeof *verbs)

static const char notes[] =
    "quire VERB --help explains a verb, with examples; quire --version prints the version.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong use, 3 verify or repair found damage, 130 interrupted\n"
    "(143 by SIGTERM). A second Ctrl-C ends a verb at once, and may leave what is unfinished.\n";

static void print_usage(FILE *out)
{
    fprintf(out, "usage: quire VERB [options]\n\n");
    for (size_t i = 0; i < N_VERBS; i++)
        fprintf(out, "  %-15s%s\n", verbs[i].name, verbs[i].summary);
    fprintf(out, "\n%s", notes);
}

/* --help --json, for programs. */
static int describe(void)
{
    struct cli_word words[N_VERBS];
    for (size_t i = 0; i < N_VERBS; i++)
        words[i] = (struct cli_word){verbs[i].name, verbs[i].summary};
    return cli_describe_words("quire", words, N_VERBS, notes);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    cli_catch_signals();
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verb, verbs[i].name) == 0)
            return verbs[i].run(argc - 2, argv + 2);
    if (strcmp(verb, "--version") == 0) {
        printf("quire %s\n", quire_version());
        return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    }
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "help") == 0) {
        if (cli_wants_json(argc - 2, argv + 2))
            return describe();
        print_usage(stdout);
        return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    }
    if (*verb)
        fprintf(stderr, "quire: there is no verb \"%s\"\n\n", verb);
    print_usage(stderr);
    return CLI_USAGE;
}
