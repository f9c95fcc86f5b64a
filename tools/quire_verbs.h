/*
 * quire_verbs.h - the verbs of the program `quire`, each in a file of its own.
 *
 * A verb gets its name as argv[0], and returns the program's exit code.
 */
#ifndef QUIRE_TOOLS_QUIRE_VERBS_H
#define QUIRE_TOOLS_QUIRE_VERBS_H

int quire_gen(int argc, char **argv);
int quire_gen_attrs(int argc, char **argv);
int quire_truth(int argc, char **argv);
int quire_build_verb(int argc, char **argv);
int quire_search_verb(int argc, char **argv);
int quire_inspect(int argc, char **argv);
int quire_verify_verb(int argc, char **argv);
int quire_repair(int argc, char **argv);
int quire_convert(int argc, char **argv);
int quire_plan_verb(int argc, char **argv);
int quire_import(int argc, char **argv);
int quire_export(int argc, char **argv);
int quire_probe(int argc, char **argv);
int quire_bench_kernels(int argc, char **argv);
int quire_embed(int argc, char **argv);
int quire_cache_eval_verb(int argc, char **argv);
int quire_top_verb(int argc, char **argv);

#endif
