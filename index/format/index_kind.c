/*
 * index_kind.c - the rule behind `auto`, from what was measured (docs/performance.md, "Inverted lists").
 *
 * 1. No budget was named: page graph. Under whatever budget it is opened later, it has codes of 4, 2 or 1 bits in
 *    memory, or in its blocks; lists whose codes do not fit have none, and read fifteen times the bytes.
 * 2. The budget holds the codes of all rows in lists of 4 bits: inverted lists. They read about as many blocks, but a
 *    page graph asks for them in two or three rounds and lists in one, with half the work. With 2 bits they read half
 *    as many again as the page graph (text, 15 % of raw), or three times as many (SIFT, 60 %).
 * 3. It holds a page graph's 1-bit codes: page graph. Its reads are as many as those of lists, of an eighth of the
 *    bytes. Unless one read takes longer than SLOW_US: a query waits for four to nine of them there, and for two with
 *    lists.
 * 4. It holds neither: inverted lists. Heads are a hundredth of the rows; a page graph that carries its codes with its
 *    edges needs three to eight times the reads.
 */
#include "index/format/index_kind.h"
#include "io/probe.h"
#include <stddef.h>

#define SLOW_US    500.0
#define BLOCK      8192u
#define POINT_MS   200u
#define FILE_BYTES (16u << 20)

/* Mean time of one read after the other; 0: it could not be measured. */
static double read_us(const char *folder)
{
    static const uint32_t block = BLOCK, depth = 1;
    struct probe_report report = {0};
    struct probe_config config = {.block_bytes = &block,
                                  .n_blocks = 1,
                                  .depths = &depth,
                                  .n_depths = 1,
                                  .lanes = 1,
                                  .file_bytes = FILE_BYTES,
                                  .measure_ms = POINT_MS,
                                  .engine = QUIRE_ENGINE_AUTO};
    double us = 0;
    if (folder && probe_run(folder, &config, &report, NULL) == 0 && report.direct && report.n_points > 0)
        us = report.points[0].mean_us;
    probe_free(&report);
    return us;
}

enum quire_index_kind index_kind_choose(const struct index_kind_facts *facts, enum kind_reason *reason)
{
    if (facts->budget == 0)
        *reason = KIND_NO_BUDGET;
    else if (facts->lists_fit)
        *reason = KIND_LISTS_FIT;
    else if (facts->graph_bytes > facts->budget)
        *reason = KIND_NOTHING_FITS;
    else
        *reason = read_us(facts->folder) > SLOW_US ? KIND_DEVICE : KIND_GRAPH_FITS;
    return *reason == KIND_GRAPH_FITS || *reason == KIND_NO_BUDGET ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN;
}

const char *index_kind_reason_text(uint32_t reason)
{
    static const char *const texts[KIND_REASONS] = {
        "asked for, by itself or by an option that only this kind has",
        "auto: the codes of all rows fit into the memory of searches, which then wait for one round of reads",
        "auto: 4-bit codes of lists do not fit into the memory of searches, but codes of a page graph do",
        "auto: 4-bit codes of lists do not fit into the memory of searches, but reads are so slow that rounds count",
        "auto: no codes fit into the memory of searches, and lists need only heads",
        "auto: no memory of searches was named, and a page graph has codes for any"};
    return reason < KIND_REASONS ? texts[reason] : "unknown";
}
