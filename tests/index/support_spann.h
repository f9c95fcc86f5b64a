/* support_spann.h - indexes of inverted lists, opened as segments, and a lane that asks them. */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_SPANN_H
#define QUIRE_TESTS_INDEX_SUPPORT_SPANN_H

#include "index/search/search.h"
#include "tests/index/support_index.h"

#define SPANN_HITS 8192u /* room for the hits of one answer */

/* Options for lists of about `list_rows` rows; 0: what the build chooses. */
struct quire_build_options spann_options(enum quire_metric metric, uint32_t list_rows);

/* What a segment keeps in memory. */
enum spann_mode { SPANN_HEADS, SPANN_CODES, SPANN_MODES };
struct segment *spann_open(struct io_fs *fs, const char *path, enum spann_mode mode);

/* An engine with a searcher on it. */
struct spann_lane {
    struct engine *engine;
    struct searcher *searcher;
};
/* kind QUIRE_ENGINE_AUTO with seed > 0: the fault engine. */
void spann_lane_open(struct spann_lane *lane, enum quire_engine_kind kind, uint64_t seed, unsigned tasks);
void spann_lane_close(struct spann_lane *lane);

struct spann_answer {
    int code;
    struct quire_error error;
    uint32_t n;
    uint64_t ids[SPANN_HITS];
    uint32_t rows[SPANN_HITS]; /* places in the segment */
    float distances[SPANN_HITS];
    struct quire_search_stats stats;
};
/* Asks and waits; the request must be accepted. dead: NULL or a bitmap of rows. */
void spann_ask(struct spann_lane *lane, struct segment *segment, const float *query,
               const struct quire_search_options *options, const uint8_t *dead, struct spann_answer *out);
/* Fails the test unless both have the same rows at the same distances; rows equally far may stand for each other. */
void spann_same(const struct spann_answer *a, const struct spann_answer *b, const char *what);
/* Share of b's hits that a has, by distance. */
double spann_share(const struct spann_answer *a, const struct spann_answer *b);

#endif
