/* score.h - distances inside a search: the query of a task, and the scratch of one step. */
#ifndef QUIRE_INDEX_SCORE_H
#define QUIRE_INDEX_SCORE_H

#include "index/kernels/kernels.h"
#include "index/segment/segment_view.h"
#include "index/vector/codes.h"
#include "index/vector/unit_code.h"

#define STEP_ROWS 4096u /* rows scored per kernel call */
/* Sixteen more, so that the arrays of the scratch do not begin at the same place of a page: loads from one would wait
 * for stores to another. */
#define STEP_PLACES (STEP_ROWS + 16u)

struct task;

/* The query of a task. */
struct query {
    float *user;    /* dim: the user's (unit length under cosine); owned, with all of the arrays below and of `unit` */
    float *rotated; /* code_dim: in the working space */
    float *centre;  /* code_dim: scratch */
    uint8_t *bytes; /* dim; where `integral`: in the slots' own type */
    bool integral;  /* L2 between bytes: exact in integers */
    float norm2, rotated_sum; /* norm2: as space_query gives it */
    struct code_query levels;
    struct unit_query unit; /* where slots are unit codes */
    uint32_t dims_capacity;
};

/* Rows of one block among those scored together: up to `end`, from where the run before ends. */
struct scored_run {
    uint32_t end;
    float centre, sigma; /* distance of the block's centre; standard deviation of the estimates */
};

/* Of one step; no task keeps anything here between steps. */
struct scratch {
    uint32_t ids[STEP_PLACES];
    float estimates[STEP_PLACES];
    uint32_t n_runs; /* of the rows scored last */
    struct scored_run runs[STEP_PLACES];
    uint32_t picks[STEP_PLACES];
    int32_t dots[STEP_PLACES];
    uint32_t pairs[STEP_PLACES]; /* two half floats each */
    uint32_t run_blocks[STEP_PLACES];
    float run_distances[STEP_PLACES];
    float *slot_distances; /* slots of one block; owned */
    uint32_t slots_capacity;
};

/* Makes the arrays of the query, and the distances of slots, large enough for the segment; QUIRE_ENOMEM. */
int score_reserve(struct task *task);
/* The query of the task, rotated and quantised, from dim floats of the user's. */
void score_set_query(struct task *task, const float *query);
/* Squared distances in the working space from the query to n nodes of a level of the entry tree. */
void score_centres(struct task *task, const struct entry_level *level, const uint32_t *nodes, uint32_t n, float *out);
/* Estimates by resident code for scratch->ids[0..n), n <= STEP_ROWS, into scratch->estimates and ->runs. Rows of one
 * block should stand together. */
void score_rows(struct task *task, uint32_t n);
/* The same for all rows of a block, whose centre is `centre` away, behind the `at` rows scored so before it. Returns
 * how many there are then. */
uint32_t score_block_rows(struct task *task, uint32_t block, float centre, uint32_t at);
/* The same by the codes of edges inside a block: scratch->picks[i] is the edge that leads to scratch->ids[i]. */
void score_edges(struct task *task, const struct block_view *view, uint32_t n);
/* Squared distances at slot precision of all slots of an open block, into scratch->slot_distances. */
void score_slots(struct task *task, const struct block_view *view);
/* Estimates for `groups` groups of 32 interleaved codes, factors beside them, into scratch->estimates, for rows that
 * stand around a centre `centre` away with spread `rms`; the first n of them, from `skip` on, are one run. */
void score_groups(struct task *task, const uint8_t *groups, const f16_t *factors, uint32_t n_groups, uint32_t skip,
                  uint32_t n, float centre, float rms);

/* Ask the memory for the code of a row, and for those of a block's rows, which will be scored soon. */
static inline void score_prefetch_row(const struct segment *segment, uint32_t row)
{
    __builtin_prefetch(segment->nav_codes + (size_t)row * segment->nav_bytes);
}
void score_prefetch_block(const struct segment *segment, uint32_t block);

#endif
