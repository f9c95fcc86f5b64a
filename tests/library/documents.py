#!/usr/bin/env python3
"""documents.py DOCUMENT OUT_FOLDER - the C code of a document, as files that compile.

An indented block that includes quire.h is a whole program: NAME.c, where the text before it names `NAME.c`, otherwise
program-N.c. Other blocks that call the library become the body of a function behind the declarations of FRAGMENT:
fragment-N.c, to be compiled only. Prints the names.
"""
import os
import re
import sys

FRAGMENT = """#include <quire.h>
#include <string.h>
struct quire_bytes ask_the_model(struct quire_bytes question);
void fragment(struct quire_index *index, struct quire_cache *cache, struct quire_cache_options *cache_options,
              const float *query, const float *vector, struct quire_hit *hits, uint32_t n_hits,
              struct quire_search_stats *stats_of, struct quire_bytes name, struct quire_bytes question,
              struct quire_bytes lease, struct quire_pair tenant, const struct quire_bytes *words, uint32_t n);
void fragment(struct quire_index *index, struct quire_cache *cache, struct quire_cache_options *cache_options,
              const float *query, const float *vector, struct quire_hit *hits, uint32_t n_hits,
              struct quire_search_stats *stats_of, struct quire_bytes name, struct quire_bytes question,
              struct quire_bytes lease, struct quire_pair tenant, const struct quire_bytes *words, uint32_t n)
{
    struct quire_error err = {0};
    struct quire_search_stats stats = *stats_of;
    struct quire_bytes value;
    struct quire_cache_answer answer;
    struct quire_cache_put_result result;
    %s
{
%s
}
    (void)index, (void)cache, (void)query, (void)vector, (void)hits, (void)n_hits, (void)stats, (void)name;
    (void)question, (void)lease, (void)tenant, (void)words, (void)n, (void)value, (void)answer, (void)result;
    (void)err, (void)cache_options;
}
"""


def blocks(lines):
    """Pairs of the text before a block and the block, without its indentation."""
    text, block = [], []
    for line in lines + ["end"]:
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line[4:])
            continue
        if block:
            yield " ".join(text[-6:]), "\n".join(block).strip("\n") + "\n"
            block = []
        text.append(line)


def main():
    with open(sys.argv[1]) as f:
        lines = f.read().split("\n")
    n = 0
    for before, code in blocks(lines):
        if "#include <quire.h>" in code:
            named = re.findall(r"`(\w+)\.c`", before)
            n += 1
            name, content = (named[-1] if named else "program-%d" % n), code
        elif re.search(r"^\s*quire_\w+\(.*\);", code, re.M):
            n += 1
            declared = "struct quire_cache_options options = *cache_options;" if "quire_cache_options_init" in code else ""
            name, content = "fragment-%d" % n, FRAGMENT % (declared, code)
        else:
            continue
        with open(os.path.join(sys.argv[2], name + ".c"), "w") as f:
            f.write(content)
        print(name)


main()
