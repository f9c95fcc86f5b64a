/* build_priv.h - what the steps of a build share. build.c runs them in order; each step's file says what it does. */
#ifndef QUIRE_INDEX_BUILD_PRIV_H
#define QUIRE_INDEX_BUILD_PRIV_H

#include "index/build/build.h"
#include "index/cluster/clusters.h"
#include "index/cluster/neighbours.h"
#include "index/cluster/partition.h"
#include "index/format/block.h"
#include "index/format/format.h"
#include "index/graph/graph.h"
#include "index/vector/space.h"
#include "io/sections.h"

/* Rows that are streamed past: input rows, or rows of the index with what they were in the input. */
struct row_batch {
    uint32_t first, n;
    const uint8_t *rows; /* n x dim elements of the input's type */
};

#define BATCH_BYTES (4u << 20) /* of a batch of rows, and of what is made from it */

/* How much is held in memory at a time (build_plan.c). */
struct build_plan {
    bool in_files;           /* rows and edges lie in files; otherwise they are in memory */
    uint32_t partition_rows; /* rows that are partitioned in memory */
    uint32_t input_rows;     /* rows of the input that change places in memory */
    uint32_t graph_rows;     /* rows among which edges are looked for */
    uint32_t reverse_edges;  /* edges that are turned round in memory */
    uint64_t place_bytes;    /* of rows or edges that change places in memory */
    uint64_t segment_bytes;  /* for the codes of the index that is asked to calibrate it; UINT64_MAX: no limit */
};

/* Runs of rows of small tenants (build_tenants.c). */
#define RUN_NONE UINT32_MAX
/* Of a page graph, where the options leave them open. */
#define DEGREE_DEFAULT 24u
#define POOL_DEFAULT   100u

struct build_runs {
    uint32_t *of; /* per input row: its run, or RUN_NONE; NULL: there are none; owned */
    uint32_t n, rows;
};

/* The graph, in memory or in files: edges of each row, nearest first, and rows that lead to it. */
struct edges {
    uint32_t degree;
    uint32_t *ids; /* n x degree; NULL: in the file; owned */
    struct io_file *ids_file;
    uint32_t *reverse_at; /* n + 1: places in reverse; owned */
    uint32_t *reverse;    /* NULL: in the file; owned; at most degree for each row, by ascending number */
    struct io_file *reverse_file;
};

/* The edges of some consecutive rows. */
struct edges_part {
    uint32_t first, degree;
    const uint32_t *ids;        /* of row r: at (r - first) * degree */
    const uint32_t *reverse_at; /* of row r: reverse[reverse_at[r - first] - reverse_at[0]] .. */
    const uint32_t *reverse;
    uint32_t *buffers[2]; /* owned */
};

/* What a build that can be resumed has finished. Stages follow each other. */
enum build_stage {
    STAGE_NONE,
    STAGE_ROWS,       /* rows and input in block order */
    STAGE_GRAPH,      /* edges */
    STAGE_TABLES,     /* keys, attributes and codes files */
    STAGE_CALIBRATED, /* calibration points */
    STAGE_WRITTEN     /* all files of the index */
};

/* The steps of build.c, each once and in this order. reach() of build.c asserts what is there after each. */
enum build_step {
    STEP_OPTIONS, /* input and options are valid; space */
    STEP_LAYOUT,  /* slots, blocks, runs; the plan */
    STEP_CHECKED, /* all rows were looked at; mean, params */
    STEP_FOLDER,  /* folder, segment_id; state as an earlier run left it */
    STEP_ROWS,    /* rows, order and sorted in the order of the index; first of clusters */
    STEP_CENTRES, /* centres, their codes and factors */
    STEP_LINKED,  /* edges both ways, or heads and clusters; rows are closed */
    STEP_TABLES,  /* files of keys, attributes and codes */
    STEP_WRITTEN  /* all files */
};

struct build_state {
    enum build_stage stage;
    uint32_t linked_groups; /* groups whose edges are in the file */
    uint64_t input_hash, options_hash;
    uint64_t saved_ns; /* when it was last written */
    struct io_file *lock;
};

struct build {
    /* input */
    char *path; /* without slashes at its end; owned */
    struct quire_input input;
    const uint8_t *vectors; /* the input in memory, or NULL: it is read */
    size_t row_bytes;
    uint32_t n, dim;
    enum quire_type type;
    struct quire_build_options options;
    const struct build_merge *merge; /* NULL: a build of its own */
    struct offload *offload;         /* NULL: the processor does all */
    unsigned steps;                  /* that are offload's: enum build_device_step */
    bool has_tenants;                /* rows of small tenants lie side by side */
    char **texts;                    /* per row: grants and JSON as one, for options.attributes; owned */
    uint32_t *text_bytes;
    struct build_runs runs;
    struct quire_error *err;
    struct io_fs *fs;
    /* made on the way */
    enum build_step step;
    struct space space;
    struct segment_params params;
    struct build_plan plan;
    struct build_state state;
    uint8_t segment_id[16];
    char *folder;           /* temporary name until published; owned */
    struct row_store rows;  /* in input order, then in block order; closed after the graph */
    struct io_file *sorted; /* the input in block order; NULL where it is in memory */
    uint32_t *order;        /* row of the index -> row of the input; owned */
    float *centres;         /* decoded CENTRE_BITS codes: n_blocks x code_dim; owned */
    uint8_t *centre_codes;  /* n_blocks x code_bytes; owned */
    float *centre_factors;  /* n_blocks x 3; owned */
    struct edges edges;     /* of a page graph */
    uint8_t *cell_codes;    /* of cells that are no blocks any more (cells.h), NULL: there are none; owned */
    float *cell_factors;    /* n_blocks x 3; owned */
    uint32_t *cell_of;      /* per row of the index; owned */
    /* inverted lists */
    struct clusters clusters;
    uint32_t *guest_lists; /* per row of a run, from the first on: the list that it is a guest of; owned */
    struct graph *heads;   /* row i: the head of list i; owned */
    struct epochs *epochs; /* of heads; owned */
    uint64_t *external_at; /* per input row: offset of its key's record in the heap; NULL without keys; owned */
    uint8_t *calibration;  /* points, as META_CALIBRATION stores them (none for small inputs); owned */
    size_t calibration_bytes;
};

/* Names in the folder of what is removed before the index is published. */
#define WORK_ROWS      "work.rows"    /* rows in block order */
#define WORK_SPARE     "work.spare"   /* rows and input on their way there */
#define WORK_INPUT     "work.input"   /* the input in block order */
#define WORK_EDGES     "work.edges"   /* edges of each row */
#define WORK_REVERSE   "work.reverse" /* rows that lead to each row */
#define WORK_STATE     "work.state"   /* what is finished */
#define WORK_STATE_NEW "work.state.new"
#define WORK_LISTS     "work.lists"  /* where clusters begin */
#define WORK_PLACED    "work.placed" /* rows where runs lie side by side */
#define WORK_MOVED     "work.moved"  /* edges of these */
#define WORK_LOCK      "work.lock"

/* The device for a step; NULL: the processor does it. */
struct offload *build_device(const struct build *b, enum build_device_step step);

/* Whether inverted lists are built; otherwise it is a page graph. */
static inline bool build_is_lists(const struct build *b)
{
    return b->params.index == QUIRE_INDEX_SPANN;
}

#define F16_MAX 65504.0f

/* The floats of one vector of the input. */
static inline void build_vector(const struct build *b, const uint8_t *raw, float *out)
{
    space_floats(b->type, raw, b->dim, out);
}
void build_progress(const struct build *b, const char *phase, struct progress *out);
int build_report(const struct build *b, const char *phase, uint64_t done, uint64_t total);

/* build_plan.c: refuses a budget that is too small */
int build_plan(struct build *b);

/* build_input.c: the input, streamed and put in block order */
/* Rows of a batch of which each takes so many bytes. */
uint32_t build_batch_rows(const struct build *b, size_t bytes);
int build_each_input(struct build *b, const char *phase, int (*body)(void *context, const struct row_batch *batch),
                     void *context);
int build_order_input(struct build *b, const char *phase); /* phase: a name for the progress */
/* The input's vectors of rows first .. first + n of the index, into `to`. */
int build_load_input(struct build *b, uint32_t first, uint32_t n, uint8_t *to);
/* That of one row: where it lies, or read into `buffer`. On any thread: errors are told by the number only. */
int build_input_row(const struct build *b, uint32_t row, uint8_t *buffer, const uint8_t **out);

/* build_check.c: validation, mean, the checksum of the input */
int build_check_input(struct build *b);

/* build_rows.c: 8-bit codes of all rows, in memory or in a file */
int build_encode_rows(struct build *b);
int build_keep_rows(struct build *b);  /* for a build that is resumed: on the disk, in the order of the index */
int build_open_rows(struct build *b);  /* as an earlier run left them */
int build_read_order(struct build *b); /* b->order from the file that b->rows is in */
/* A work file of n rows; there: it exists. */
int build_open_store(struct build *b, struct row_store *store, uint32_t n, const char *name, bool there);

/* build_layout.c: slots per block; what a page graph needs resident at least, unless its blocks carry codes */
int build_choose_layout(struct build *b);
uint64_t build_graph_bytes(const struct build *b);

/* build_order.c */
int build_order_rows(struct build *b);
/* Partitions the first n of b->rows into blocks. order gets, of rows in memory, where each was before. */
int build_partition(struct build *b, uint32_t n, const char *phase, uint32_t *order);

/* build_centres.c; phase: a name for the progress. Those that there were before are replaced. */
int build_centres(struct build *b, const char *phase);
int build_decode_centres(struct build *b); /* b->centres from their codes */

/* build_tenants.c: grants into the texts of attributes */
int build_take_tenants(struct build *b);
void build_forget_tenants(struct build *b);

/* build_runs.c: which rows make runs, once blocks have their size */
int build_find_runs(struct build *b);

/* build_place.c: rows, their order, edges or lists as they are numbered when runs lie side by side */
int build_place_rows(struct build *b);

/* build_edges.c */
struct neighbours_config build_neighbours_config(const struct build *b);
int build_edges(struct build *b);
int build_reverse(struct build *b);
void build_edges_fini(struct edges *edges);
/* The buffers of a part hold n rows. */
int build_edges_part_init(const struct build *b, uint32_t n, struct edges_part *part);
void build_edges_part_fini(struct edges_part *part);
int build_edges_part_load(const struct build *b, uint32_t first, uint32_t n, struct edges_part *part);

/* build_blocks.c; hidden: bitmap of rows whose edges are left out, or NULL */
int build_write_blocks(struct build *b, const uint8_t *hidden);

/* build_codes.c */
int build_write_codes(struct build *b);
/* A row's code relative to a centre (decoded, code_dim floats) and what its estimate needs besides. raw: the vector as
 * it came; v, x: scratch of code_dim floats each. */
struct residual {
    float a, f;
    double norm2, error; /* squared length; 1/cos^2 - 1 of the angle between it and its code */
};
void build_encode_residual(const struct build *b, const uint8_t *raw, const float *centre, unsigned bits, float *v,
                           float *x, uint8_t *code, struct residual *out);
/* The unit of a factor: the median of a sample of its sizes, or 1 where most are zero. QUIRE_ENOMEM */
int build_factor_unit(const float *x, uint32_t n, float *out);
/* Pairs of half floats A / scale_a, f / scale_f, little-endian. */
void build_factor_halves(const struct residual *rows, uint32_t n, float scale_a, float scale_f, uint8_t *out);
/* build_lists.c */
unsigned build_list_bits(const struct build *b); /* bits per dimension of their codes */
bool build_lists_fit(const struct build *b);     /* whether memory_bytes holds them for all rows, and the rest */
int build_order_lists(struct build *b);          /* order and clusters */
int build_open_lists(struct build *b);           /* clusters as an earlier run left them */
int build_find_heads(struct build *b);           /* heads, their graph, replicas */
int build_write_lists(struct build *b, struct section_writer *codes);
/* build_keys.c */
int build_place_keys(struct build *b); /* external_at */
int build_write_keys(struct build *b);
int build_write_attributes(struct build *b);         /* and columns of them */
uint64_t build_columns_bytes(const struct build *b); /* that columns may take in memory, about; for plans */
/* calibrate.c: b->calibration, b->params.effort_factor */
int build_calibrate(struct build *b);
/* build_state.c: what is finished */
int build_save_state(struct build *b, enum build_stage stage);
/* What an earlier run has finished in the folder. QUIRE_ENOFILE: nothing. */
int build_load_state(struct build *b);
/* Whether some seconds have passed since the state was written. */
bool build_state_is_old(const struct build *b);

/* build_folder.c: the folder, its lock and its files */
int build_open_folder(struct build *b);
void build_close_folder(struct build *b, int rc);
int build_remove_work(struct build *b);
char *build_file_path(const struct build *b, const char *name); /* owned by the caller; NULL without memory */
int build_open_work(struct build *b, const char *name, unsigned flags, struct io_file **out);
int build_section_writer(struct build *b, const char *name, uint32_t kind, struct section_writer **out);
int build_remove_file(struct build *b, const char *name); /* that is not there: fine */

/* build.c */
int build_write_meta(struct build *b, const uint8_t *calibration, size_t calibration_bytes);

#endif
