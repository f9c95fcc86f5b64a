/*
 * quire.h - the embedded library: nearest-neighbour search on NVMe with a small memory budget.
 *
 * Caveats first
 *  - A handle (`struct quire_index`) may be used by many threads at once for searches and look-ups; quire_open,
 *    quire_close and quire_build may not run at the same time as another call on the same handle.
 *  - A live collection (`struct quire_collection`) may be used by many threads at once for everything but opening and
 *    closing. Its folder belongs to one process at a time.
 *  - Handles belong to the process that opened them. In a child of fork() every call on one answers QUIRE_ECLOSED, and
 *    closing does nothing: what is behind a handle stays the parent's.
 *  - A `struct quire_loop` belongs to one thread at a time. Nothing in the library starts a signal handler, prints,
 *    exits, or aborts for lack of memory.
 *  - Every function returns 0 (or a count >= 0) or a negative QUIRE_E... number, never errno. On failure outputs are
 *    untouched and, where a `struct quire_error *` was given, it says what was wrong, with which value, and where.
 *  - Distances are distances (nearer is smaller): squared L2 under QUIRE_METRIC_L2, 1 - cosine under
 *    QUIRE_METRIC_COSINE, minus the inner product under QUIRE_METRIC_IP.
 *  - Files written by a development version carry a format version that another version refuses to open.
 */
#ifndef QUIRE_H
#define QUIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_VERSION_MAJOR  0
#define QUIRE_VERSION_MINOR  1
#define QUIRE_VERSION_PATCH  0
#define QUIRE_VERSION_STRING "0.1.0"
/* One number to compare at compile time: major * 10000 + minor * 100 + patch. */
#define QUIRE_VERSION_NUMBER (QUIRE_VERSION_MAJOR * 10000 + QUIRE_VERSION_MINOR * 100 + QUIRE_VERSION_PATCH)

#if defined(__GNUC__)
#define QUIRE_API __attribute__((visibility("default")))
#else
#define QUIRE_API
#endif

/* Limits that the format and the commands keep. */
#define QUIRE_DIM_MAX         65536u   /* dimensions of a vector */
#define QUIRE_KEY_BYTES_MAX   65535u   /* bytes of a user's key */
#define QUIRE_K_MAX           1000000u /* neighbours one search may ask for */
#define QUIRE_BLOCK_BYTES_MIN 4096u    /* a block is a multiple of this */
#define QUIRE_BLOCK_BYTES_MAX 1048576u
#define QUIRE_ROWS_MAX        0xfffffff0u /* rows of one segment */

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Numbers are grouped and never reused. X(name, number, text). */
#define QUIRE_ERRORS(X)                                                                                                \
    X(INVALID, 1, "invalid argument")                                                                                  \
    X(RANGE, 2, "value out of range")                                                                                  \
    X(DIM, 3, "wrong dimension")                                                                                       \
    X(TYPE, 4, "wrong element type")                                                                                   \
    X(NOTFINITE, 5, "a vector holds NaN or infinity")                                                                  \
    X(ZEROVEC, 6, "a zero vector has no direction under this metric")                                                  \
    X(NOTFOUND, 7, "not found")                                                                                        \
    X(EXISTS, 8, "exists already")                                                                                     \
    X(LIMIT, 9, "a limit was reached")                                                                                 \
    X(FORMAT, 20, "not a file of the expected format")                                                                 \
    X(VERSION, 21, "format version not supported")                                                                     \
    X(TRUNCATED, 22, "file is shorter than it says")                                                                   \
    X(OVERSIZED, 23, "file is longer than it says")                                                                    \
    X(CORRUPT, 24, "checksum or structure is wrong")                                                                   \
    X(PARSE, 25, "text could not be parsed")                                                                           \
    X(IO, 40, "input/output error")                                                                                    \
    X(NOSPACE, 41, "no space left on device")                                                                          \
    X(PERM, 42, "permission denied")                                                                                   \
    X(NOFILE, 43, "no such file or directory")                                                                         \
    X(SHORTREAD, 44, "fewer bytes were read than asked for")                                                           \
    X(ADDRINUSE, 45, "address in use")                                                                                 \
    X(NET, 46, "network error")                                                                                        \
    X(UNSUPPORTED, 60, "not supported here")                                                                           \
    X(BUSY, 61, "busy")                                                                                                \
    X(CANCELLED, 62, "cancelled")                                                                                      \
    X(CLOSED, 63, "closed")                                                                                            \
    X(TIMEOUT, 64, "timed out")                                                                                        \
    X(STALE, 65, "what the call relied on has changed meanwhile")                                                      \
    X(NOMEM, 80, "out of memory")                                                                                      \
    X(INTERNAL, 99, "internal error")

enum quire_errno {
    QUIRE_OK = 0,
#define QUIRE_ERROR_ENUM(name, number, text) QUIRE_E##name = -(number),
    QUIRE_ERRORS(QUIRE_ERROR_ENUM)
#undef QUIRE_ERROR_ENUM
};

/* What went wrong, for people. Caller's memory; any function accepts NULL for it. */
struct quire_error {
    int code;          /* one of enum quire_errno */
    char message[384]; /* one sentence: the value, the limit, the remedy */
    const char *where; /* function that saw it first; static storage */
};

/* The name ("QUIRE_EINVALID") and the text of an error number. Static storage, never NULL. Thread-safe. */
QUIRE_API const char *quire_error_name(int code);
QUIRE_API const char *quire_error_text(int code);
/* The version of the library that is running, "major.minor.patch". */
QUIRE_API const char *quire_version(void);

/* A piece of bytes that somebody else owns, and two of them. */
struct quire_bytes {
    const void *data;
    size_t n_bytes;
};
struct quire_pair {
    struct quire_bytes key, value;
};

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

enum quire_metric { QUIRE_METRIC_L2 = 0, QUIRE_METRIC_COSINE = 1, QUIRE_METRIC_IP = 2 };
/* IEEE 754 binary32 and binary16, bytes, and bfloat16: the upper half of a binary32. */
enum quire_type { QUIRE_TYPE_F32 = 0, QUIRE_TYPE_F16 = 1, QUIRE_TYPE_I8 = 2, QUIRE_TYPE_U8 = 3, QUIRE_TYPE_BF16 = 4 };
/* How a block holds a vector: as numbers (F32, F16, BF16; I8 and U8 for input of that type), or as an 8-bit code (Q8;
 * also what I8 means for f32, f16 and bf16 input). */
enum quire_slot {
    QUIRE_SLOT_AUTO = 0,
    QUIRE_SLOT_F32 = 1,
    QUIRE_SLOT_F16 = 2,
    QUIRE_SLOT_I8 = 3,
    QUIRE_SLOT_U8 = 4,
    QUIRE_SLOT_Q8 = 5,
    QUIRE_SLOT_BF16 = 6
};
/* How an index leads to near rows: by edges between blocks, or by inverted lists of the rows near a head (SPANN). */
enum quire_index_kind { QUIRE_INDEX_PAGEGRAPH = 0, QUIRE_INDEX_AUTO = 1, QUIRE_INDEX_SPANN = 2 };
enum quire_engine_kind { QUIRE_ENGINE_AUTO = 0, QUIRE_ENGINE_URING = 1, QUIRE_ENGINE_THREADS = 2 };

/* Bytes of one element. */
QUIRE_API size_t quire_type_bytes(enum quire_type type);
QUIRE_API const char *quire_type_name(enum quire_type type);
QUIRE_API const char *quire_metric_name(enum quire_metric metric);
QUIRE_API const char *quire_slot_name(enum quire_slot slot);
QUIRE_API const char *quire_index_kind_name(enum quire_index_kind kind); /* "pagegraph", "auto", "spann" */

/* Fields of elements' attributes that are to be indexed. LEARNT: as the values come. A TIMESTAMP is a number of seconds
 * since 1970, or a string in RFC 3339. */
enum quire_column_type {
    QUIRE_COLUMN_LEARNT = 0,
    QUIRE_COLUMN_INTEGER = 1,
    QUIRE_COLUMN_FLOAT = 2,
    QUIRE_COLUMN_STRING = 3,
    QUIRE_COLUMN_BOOL = 4,
    QUIRE_COLUMN_LIST = 5,
    QUIRE_COLUMN_TIMESTAMP = 6
};
struct quire_column {
    const char *name; /* of a top-level field, 1..255 bytes */
    enum quire_column_type type;
    bool indexed; /* false: typed, but no sets of rows are kept */
};
QUIRE_API const char *quire_column_type_name(enum quire_column_type type);

/* ---- building ---------------------------------------------------------------------------------------------------- */

enum quire_edge_codes {
    QUIRE_EDGE_CODES_AUTO = 0, /* if memory_bytes is below what the narrowest resident code takes */
    QUIRE_EDGE_CODES_NO = 1,
    QUIRE_EDGE_CODES_YES = 2
};

struct quire_build_options {
    size_t struct_bytes; /* sizeof(struct quire_build_options), set by quire_build_options_init */
    enum quire_metric metric;
    enum quire_index_kind index; /* AUTO: by memory_bytes and device (docs/performance.md) */
    enum quire_slot slot;        /* AUTO: u8 and i8 as they are, others as Q8 */
    uint32_t block_bytes;        /* multiple of 4096; 0: 8192. Grows where it would hold too few vectors: quire_info */
    /* Code written to disk, bits per dimension. Page graph: navigation codes up to 1, 2, 4 or 8; 0: 4. Inverted lists:
     * of the rows in them, 1, 2 or 4; 0: 4. */
    unsigned code_bits;
    unsigned degree;       /* out-edges per row while building; 0: 24 */
    unsigned build_beam;   /* beam width of an insertion; 0: 100 */
    unsigned threads;      /* 0: as many as there are cores */
    uint64_t seed;         /* the result is a function of input, options and seed, whatever threads and memory */
    uint64_t memory_bytes; /* budget that a search of this index is expected to have; kept as its default; 0: none */
    /* Whether the codes of edges stand inside the blocks, for searches with nothing resident but the centres of blocks;
     * costs slots per block, so that other searches read more. */
    enum quire_edge_codes edge_codes;
    /* Inverted lists: rows of a cluster on average (0: as many as fill about 64 KiB), and lists that a row stands in on
     * average, 1 to 8 (0: 2; for u8 and i8 1.7). */
    uint32_t list_rows;
    float replicas;
    /* One key per row, or NULL: then the key of row i is its number in decimal. Bytes, no terminator. */
    const void *const *keys;
    const uint32_t *key_bytes;
    /* One JSON text per row, or NULL; an entry may be NULL. */
    const char *const *attributes;
    const uint32_t *attribute_bytes;
    /* Declared columns of the attributes; others are learnt. */
    const struct quire_column *columns;
    uint32_t n_columns;
    /* The tenants that each row is granted to, as one text per row, separated by single spaces, or NULL; an entry may
     * be NULL: nobody's. The rows of a tenant that has few of them lie side by side, so that they are read at once. */
    const char *const *tenants;
    /* NULL, or called now and then from the calling thread: phase ("graph", ...), done of total (0: how much there is
     * to do is not known). Non-zero stops with QUIRE_ECANCELLED and leaves nothing behind. */
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total);
    void *context;
    /* Bound on the resident memory of the process while it builds, what is resident before included; 0: none. Rows and
     * graph then stand in files in the folder, about 2 x (rows x (dim + 16 + 4 x degree)) bytes and the raw vectors
     * once or twice. QUIRE_ELIMIT names the least that would do. */
    uint64_t build_memory_bytes;
    /* Work in PATH.building-resume and keep what is finished there when the build is stopped, fails or is killed: the
     * same call goes on after it. QUIRE_EINVALID if vectors or options are others than then, QUIRE_EBUSY if another
     * build works there. */
    bool resume;
    /* Rows that are held out and asked as queries, to measure which effort gives which recall: 50 to 800, and at most
     * one row in 20; 0: 800. With fewer a build is faster and its curve less certain (figures: docs/performance.md). */
    uint32_t calibration_queries;
};

QUIRE_API void quire_build_options_init(struct quire_build_options *options);

/* Builds an index of `rows` vectors (rows x dim, row-major, elements of `type`) in the new folder `path`.
 * The folder appears whole or not at all. Errors: QUIRE_EEXISTS (path is there), EDIM, ENOTFINITE (row named),
 * EINVALID, ENOSPACE, EPERM, ENOMEM, ECANCELLED. Cost: about 100 us per row and thread at 128 dimensions. */
QUIRE_API int quire_build(const char *path, const void *vectors, uint64_t rows, uint32_t dim, enum quire_type type,
                          const struct quire_build_options *options, struct quire_error *err);

/* Vectors that are read while the index is built, instead of all being in memory. */
struct quire_input {
    uint64_t rows;
    uint32_t dim;
    enum quire_type type;
    const void *vectors; /* rows x dim, row-major: all in memory; or NULL: */
    /* Puts rows row .. row + n into out, row-major. Called from the thread that builds only, forward through all rows,
     * about six times. Returns 0 or a negative QUIRE_E with *err filled. */
    int (*read)(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err);
    void *context;
};
/* As quire_build. Also QUIRE_ELIMIT, QUIRE_EBUSY and what input->read answers. */
QUIRE_API int quire_build_from(const char *path, const struct quire_input *input,
                               const struct quire_build_options *options, struct quire_error *err);
/* What share of a build is done, 0..1, when its progress is called with these numbers: an estimate from the shares that
 * phases have on a million rows. Negative for a phase that it does not know. */
QUIRE_API double quire_build_done(const char *phase, uint64_t done, uint64_t total);

/* ---- opening ----------------------------------------------------------------------------------------------------- */

struct quire_index;

struct quire_open_options {
    size_t struct_bytes;
    /* Resident budget: the largest navigation code that fits is loaded, or none if the blocks carry codes; 0: all. */
    uint64_t memory_bytes;
    bool no_cache;                 /* keep no blocks in memory, whatever the budget leaves beside the codes */
    enum quire_engine_kind engine; /* for the blocking and batch calls */
    unsigned reads_max;            /* cap on reads in flight per lane; 0: 64 */
};

QUIRE_API void quire_open_options_init(struct quire_open_options *options);
/* options may be NULL. *out is ended by quire_close. Errors name the file, what was expected and what was found. */
QUIRE_API int quire_open(const char *path, const struct quire_open_options *options, struct quire_index **out,
                         struct quire_error *err);
QUIRE_API void quire_close(struct quire_index *index); /* NULL is fine */

struct quire_info {
    uint64_t rows;
    uint32_t dim;
    enum quire_type type; /* of the vectors it was built from */
    enum quire_metric metric;
    enum quire_index_kind index;
    enum quire_slot slot;
    uint32_t block_bytes, blocks, slots_per_block;
    uint32_t lists;          /* inverted lists; 0: a page graph */
    uint64_t list_entries;   /* rows in them, each as often as it stands there */
    unsigned code_bits;      /* per dimension, resident; 0: codes are read with the blocks or lists */
    bool edge_codes;         /* blocks carry the codes of their edges */
    uint64_t resident_bytes; /* codes, entry points and tables held by this handle */
    uint64_t cache_bytes;    /* for blocks, when all its frames are used; 0: no cache */
    uint64_t memory_bytes;   /* the budget it was opened with; 0: none */
    uint64_t index_bytes;    /* on disk, all files */
    uint64_t raw_bytes;      /* rows * dim * element size */
    bool direct_io;
    bool user_keys; /* built with keys of the user's own */
    unsigned format_version;
};
QUIRE_API void quire_get_info(const struct quire_index *index, struct quire_info *out);

/* ---- searching --------------------------------------------------------------------------------------------------- */

/* What an answer's distances are. */
enum quire_distance {
    QUIRE_DISTANCE_EXACT = 0, /* of the stored vectors: the blocks of all k are read */
    /* A row whose place among the k is certain by its code in memory is answered without a read, with the distance that
     * the code gives and its standard deviation. The recall is the same. Where there is no memory for the rows' numbers
     * (in a collection: keys of at most 64 bytes), all are measured. */
    QUIRE_DISTANCE_ESTIMATE = 1
};

struct quire_search_options {
    size_t struct_bytes;
    uint32_t k;         /* 1..QUIRE_K_MAX; more than there are rows answers all rows */
    float recall;       /* 0 < recall <= 1: calibrated effort; 0: use effort */
    uint32_t effort;    /* beam of candidates kept, >= 1; beside a recall: at least this. 0 and recall 0: recall 0.95 */
    uint32_t reads_max; /* blocks one query may read, cached ones too; 0: no limit. One cut short says so (complete) */
    bool exact;         /* read every block: brute force, recall 1 (of the stored precision) */
    /* Only elements that match (docs/filters.md has the grammar); NULL: all. min(k, matches) of them are answered. */
    const char *filter;
    size_t filter_bytes;
    uint32_t filter_effort; /* look at no more than so many rows for the filter's sake; 0: at as many as it takes */
    /* Only elements granted to one of these tenants. NULL: all elements; not NULL with n_tenants 0: none. */
    const struct quire_bytes *tenants;
    uint32_t n_tenants;
    /* Dimensions of the query, or of each of a batch: QUIRE_EDIM unless the index or collection has as many. 0: not
     * checked, and the query is read for as many floats as the index has. */
    uint32_t dim;
    enum quire_distance distance;
    /* Rows farther than `farthest` (as the metric defines distances) are not asked for: they may be missing from the
     * answer, which is not filled up to k with them. It may hold some all the same, and says how far they are. Without
     * filter or tenants this spares most of the work where little is as near as that. Not a number: QUIRE_EINVALID. */
    bool limited;
    float farthest;
};
QUIRE_API void quire_search_options_init(struct quire_search_options *options);

struct quire_hit {
    uint64_t id;     /* number of the row in the build's input */
    uint32_t row;    /* place in the index: changes when the index is rebuilt */
    float distance;  /* as the metric defines it, see the caveats */
    float deviation; /* 0: the distance is exact; otherwise the standard deviation of this estimate */
};

/* How a search went about it. Of several segments: the one with the most reads. */
enum quire_plan {
    QUIRE_PLAN_WALK = 0,     /* the whole index */
    QUIRE_PLAN_EXACT = 1,    /* every block, in order */
    QUIRE_PLAN_EMPTY = 2,    /* nothing matches */
    QUIRE_PLAN_BLOCKS = 3,   /* all blocks that hold a match, neighbours in one read: exact */
    QUIRE_PLAN_SCAN = 4,     /* the codes of all matches, then the best of them */
    QUIRE_PLAN_FILTERED = 5, /* the index, blocks without a match left out */
    QUIRE_PLAN_MEMORY = 6    /* there was nothing on the disk */
};
QUIRE_API const char *quire_plan_name(enum quire_plan plan);

struct quire_search_stats {
    enum quire_plan plan;
    bool switched;           /* the plan was changed on the way, as fewer matches were near than expected */
    uint64_t matches;        /* rows that filter and tenants leave, as counted before; all rows without those */
    uint32_t reads_expected; /* estimated before the first read; 0 where there was no filter */
    uint32_t reads;          /* from the device: of a block, or of neighbouring blocks at once */
    uint32_t cached;         /* blocks found in the cache instead */
    uint64_t bytes;          /* bytes of those */
    uint32_t rounds;         /* dependent steps: how many times the query waited */
    uint32_t rows_scored;    /* slots compared at full slot precision */
    uint32_t codes_scored;   /* navigation codes compared */
    uint32_t effort;         /* effort that was used */
    uint32_t estimated;      /* hits whose distances are estimates */
    uint64_t cpu_ns;         /* time on the processor inside the search's steps */
    uint64_t latency_ns;     /* from start to done */
    bool exact;              /* every row was compared */
    bool complete;           /* the search ended by its own rule, not by reads_max */
};

/* One query (dim floats), blocking on a private lane of the calling thread's making; many threads may call it at once.
 * hits: room for k. *n_hits <= k. stats may be NULL. */
QUIRE_API int quire_search(struct quire_index *index, const float *query, const struct quire_search_options *options,
                           struct quire_hit *hits, uint32_t *n_hits, struct quire_search_stats *stats,
                           struct quire_error *err);

/* n queries (n x dim, row-major) with `inflight` of them interleaved on each of `lanes` threads (0: 1 lane, 32 in
 * flight). hits: n x k, n_hits: n, stats: n or NULL. Stops at the first error. */
QUIRE_API int quire_search_batch(struct quire_index *index, const float *queries, uint64_t n,
                                 const struct quire_search_options *options, unsigned lanes, unsigned inflight,
                                 struct quire_hit *hits, uint32_t *n_hits, struct quire_search_stats *stats,
                                 struct quire_error *err);

/* A loop: one io_uring driven by the caller. */
struct quire_loop;
struct quire_loop_options {
    size_t struct_bytes;
    enum quire_engine_kind engine;
    unsigned reads_max; /* cap on reads in flight; 0: 64 */
    unsigned inflight;  /* searches that may run at once; more wait in order; 0: 32 */
};
QUIRE_API void quire_loop_options_init(struct quire_loop_options *options);
QUIRE_API int quire_loop_create(const struct quire_loop_options *options, struct quire_loop **out,
                                struct quire_error *err);
/* Searches under way end with QUIRE_ECANCELLED before it returns. */
QUIRE_API void quire_loop_destroy(struct quire_loop *loop);
/* Runs inside quire_loop_poll. code: 0 or a negative QUIRE_E; hits are valid during the call only. */
typedef void quire_search_callback(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                                   const struct quire_search_stats *stats, const struct quire_error *err);
/* The query is copied. Errors that need no disk (EDIM, ENOTFINITE, ...) are returned at once, without a callback. A
 * filter is compiled inside this call, and the elements that it names by their keys are looked up. */
QUIRE_API int quire_loop_search(struct quire_loop *loop, struct quire_index *index, const float *query,
                                const struct quire_search_options *options, quire_search_callback *callback,
                                void *context, struct quire_error *err);
/* Submits, waits for at least wait_min events or timeout_us (0: no wait; UINT64_MAX: no limit), runs callbacks.
 * Returns how many callbacks ran. */
QUIRE_API int quire_loop_poll(struct quire_loop *loop, unsigned wait_min, uint64_t timeout_us);
/* Becomes readable when quire_loop_poll has something to do: for epoll and other loops. Negative: QUIRE_ECLOSED in a
 * child of fork(), -1 if not supported. */
QUIRE_API int quire_loop_fd(struct quire_loop *loop);

/* ---- keys and vectors -------------------------------------------------------------------------------------------- */

/* Row of a key. QUIRE_ENOTFOUND if there is none. At most two reads. */
QUIRE_API int quire_lookup(struct quire_index *index, const void *key, size_t key_bytes, uint32_t *row,
                           struct quire_error *err);
/* Key of a row, copied into key (room for QUIRE_KEY_BYTES_MAX), its length into *key_bytes. */
QUIRE_API int quire_key(struct quire_index *index, uint32_t row, void *key, size_t *key_bytes, struct quire_error *err);
/* The stored vector of a row, decoded to dim floats (an approximation for slots of lower precision; of unit length for
 * 8-bit codes under cosine, except in collections). */
QUIRE_API int quire_vector(struct quire_index *index, uint32_t row, float *vector, struct quire_error *err);
/* The JSON of a row, copied into text (room for *bytes; QUIRE_ELIMIT and the needed size in *bytes when too small).
 * QUIRE_ENOTFOUND when the row has none. Tenants are not in it. */
QUIRE_API int quire_attributes(struct quire_index *index, uint32_t row, char *text, size_t *bytes,
                               struct quire_error *err);

/* ---- live collections -------------------------------------------------------------------------------------------- */

/* A folder that is written and searched at the same time. Elements have a key, a vector and attributes (JSON text).
 * Every write is logged before the call that makes it returns; what that promises after a crash is the durability's
 * choice.
 *
 * Cost: a write takes tens of microseconds; two or three reads more where a sealed segment may hold its key; what
 * linking it into the graph in memory takes (about as much as one search there); up to 10 ms of pause while seals or
 * merges are behind; and the wait for the device where the durability asks for it. Three threads of the lowest priority
 * seal, merge and write checkpoints. */
struct quire_collection;
struct quire_snapshot;
struct quire_result;

enum quire_durability {
    QUIRE_DURABLE_EVERYSEC = 0, /* a crash of the machine loses at most the last second */
    QUIRE_DURABLE_ALWAYS = 1,   /* nothing: a call returns when its write is on the device; calls share a sync */
    QUIRE_DURABLE_NO = 2        /* what the operating system has not written */
};

struct quire_collection_options {
    size_t struct_bytes;
    bool create;  /* make the collection where there is none */
    uint32_t dim; /* when it is made; otherwise 0, or compared: QUIRE_EDIM */
    enum quire_type type;
    enum quire_metric metric;
    enum quire_slot slot;        /* AUTO: 8 bits per dimension */
    uint32_t block_bytes;        /* of sealed parts; 0: 8192 */
    unsigned code_bits;          /* of sealed parts; 0: 4 */
    enum quire_index_kind index; /* of sealed parts, when it is made; AUTO: page graph */
    enum quire_durability durability;
    uint64_t memtable_bytes; /* elements in memory are sealed to the disk beyond this; 0: 64 MiB */
    uint64_t memory_bytes;   /* of what is resident of sealed parts; 0: no limit */
    uint64_t disk_bytes;     /* the folder may have at most so many; 0: no limit */
    unsigned threads;        /* of one seal or merge in the background; 0: 1 */
    enum quire_engine_kind engine;
    unsigned reads_max; /* cap on reads in flight per lane; 0: 64 */
    /* NULL, or gets a line about each seal, merge, checkpoint and failure, from the thread that did it: one of the
     * background's, or that of quire_seal and the like. May be called by several at once. */
    void (*log)(void *context, bool warning, const char *line);
    void *context;
    /* When it is made. Declared columns of the attributes (others are learnt), copied; of one that is there n_columns
     * is 0, or they are compared: QUIRE_EINVALID. tenants: every element is some tenant's, so that quire_put adds none
     * (quire_put_granted does), and those of small tenants lie side by side; false for one that is there: as it is. */
    const struct quire_column *columns;
    uint32_t n_columns;
    bool tenants;
};
QUIRE_API void quire_collection_options_init(struct quire_collection_options *options);

/* Opens a collection's folder and replays its log; options may be NULL (no create). QUIRE_EBUSY: another process, or
 * another handle of this one, has it open (the process is named in the message); QUIRE_ENOFILE: it is not there and
 * create is false; EDIM, ETYPE: it holds other vectors than options say; EINVALID, ERANGE: options; ECORRUPT and the
 * like, ENOFILE, EPERM: a file of it is damaged, missing or may not be read, which the message names, and nothing has
 * been given up: put it back, or `quire repair` saves what is left; EUNSUPPORTED: it is a server's or a cache's, of
 * which more would be lost than is read here. */
QUIRE_API int quire_collection_open(const char *path, const struct quire_collection_options *options,
                                    struct quire_collection **out, struct quire_error *err);
/* Syncs and closes. No other call is under way and snapshots have been closed; results stay valid. An error: the last
 * writes may not be durable; the handle is gone all the same. NULL is fine. */
QUIRE_API int quire_collection_close(struct quire_collection *collection, struct quire_error *err);

/* Adds an element, or replaces the one with this key. vector: dim elements of the collection's type. attributes: JSON
 * text or NULL (with NULL the attributes that the element has stay). *was_new may be NULL. A search sees the old vector
 * or the new one. A zero vector under cosine is at distance 1 from everything. Errors: QUIRE_ENOTFINITE, ERANGE (key,
 * attributes), ELIMIT (a quota, or seals are far behind): nothing was written. ENOSPACE, EIO: the log cannot be
 * written; this element may be seen by searches and gone after a restart, and later writes are refused. Searches go on
 * in any case. */
QUIRE_API int quire_put(struct quire_collection *collection, const void *key, size_t key_bytes, const void *vector,
                        const char *attributes, size_t attribute_bytes, bool *was_new, struct quire_error *err);
/* The same on behalf of tenants (n_tenants >= 1): afterwards the element is granted to all of them, beside those that
 * it was granted to already. QUIRE_EPERM: one is there that none of them may see; it stays. QUIRE_ERANGE: a tenant's
 * name has 1..255 bytes. */
QUIRE_API int quire_put_granted(struct quire_collection *collection, const void *key, size_t key_bytes,
                                const void *vector, const char *attributes, size_t attribute_bytes,
                                const struct quire_bytes *tenants, uint32_t n_tenants, bool *was_new,
                                struct quire_error *err);
/* QUIRE_ENOTFOUND where there is none. */
QUIRE_API int quire_remove(struct quire_collection *collection, const void *key, size_t key_bytes,
                           struct quire_error *err);
/* Replaces an element's attributes; NULL or 0 bytes: it has none then. QUIRE_ENOTFOUND; others as quire_put. */
QUIRE_API int quire_set_attributes(struct quire_collection *collection, const void *key, size_t key_bytes,
                                   const char *attributes, size_t attribute_bytes, struct quire_error *err);
/* The stored vector (dim floats, as it was put but for the precision of the slot) and attributes of an element; vector
 * and attributes may be NULL. attributes: room for *attribute_bytes, which becomes their size; QUIRE_ELIMIT when they
 * do not fit; 0: there are none. QUIRE_ENOTFOUND. No read for an element in memory, two or three for a sealed one. */
QUIRE_API int quire_get(struct quire_collection *collection, const void *key, size_t key_bytes, float *vector,
                        char *attributes, size_t *attribute_bytes, struct quire_error *err);

/* Lets tenants see an element, or not any more; what is so already stays. *n_changed (may be NULL): grants that were
 * added or taken away. QUIRE_ENOTFOUND; QUIRE_ERANGE (a name), ELIMIT (1,024 grants of one element); others as
 * quire_put. */
QUIRE_API int quire_grant(struct quire_collection *collection, const void *key, size_t key_bytes,
                          const struct quire_bytes *tenants, uint32_t n_tenants, uint32_t *n_changed,
                          struct quire_error *err);
QUIRE_API int quire_revoke(struct quire_collection *collection, const void *key, size_t key_bytes,
                           const struct quire_bytes *tenants, uint32_t n_tenants, uint32_t *n_changed,
                           struct quire_error *err);
/* From now on no element is this tenant's. Costs the same however many it had: those that were nobody else's are
 * removed in the background. *elements (may be NULL): how many it had. A tenant that has none is no error. */
QUIRE_API int quire_drop_tenant(struct quire_collection *collection, const char *tenant, size_t tenant_bytes,
                                uint64_t *elements, struct quire_error *err);

/* Elements by what they are. */
struct quire_where {
    const char *filter; /* docs/filters.md has the grammar; NULL: any */
    size_t filter_bytes;
    const struct quire_bytes *tenants; /* granted to one of these; NULL: anybody's; not NULL with n_tenants 0: none */
    uint32_t n_tenants;
};
/* How many elements there are, or with `where` match. Costs no read but for what no column can decide. Elements that
 * are written meanwhile may count or not. QUIRE_EPARSE says what is wrong with the filter, and where. */
QUIRE_API int quire_count(struct quire_collection *collection, const struct quire_where *where, uint64_t *n,
                          struct quire_error *err);
/* Removes what matches, or with dry_run only counts it; *n (may be NULL): how many. where must have a filter or
 * tenants. One that is changed meanwhile is looked at again, so nothing is removed that does not match. After an error
 * some may have been removed. Blocks for about as long as reading the keys of what matches takes. */
QUIRE_API int quire_remove_where(struct quire_collection *collection, const struct quire_where *where, bool dry_run,
                                 uint64_t *n, struct quire_error *err);

/* Calls visit with the key of each element that matches (where NULL: of all), once, as of the moment it begins, in no
 * particular order. visit may read and write the collection; other than 0 ends it, and is returned. The key is valid
 * during the call. Blocks for about as long as reading the keys of what matches takes. */
QUIRE_API int quire_each_key(struct quire_collection *collection, const struct quire_where *where,
                             int (*visit)(void *context, const void *key, size_t key_bytes), void *context,
                             struct quire_error *err);

struct quire_element {
    const void *key;
    size_t key_bytes;
    float distance;         /* as the metric defines it */
    float deviation;        /* 0: exact; otherwise the standard deviation of this estimate */
    const char *attributes; /* NULL: none, or not asked for */
    size_t attribute_bytes;
    const float *vector; /* NULL: not asked for; dim floats */
};
enum quire_with { QUIRE_WITH_ATTRIBUTES = 1, QUIRE_WITH_VECTORS = 2 };
/* The nearest elements now, or with a snapshot, as of then. with: a sum of QUIRE_WITH_...; options may be NULL. stats
 * may be NULL. *result is given back by quire_result_free; it is a copy, which the collection does not know of. Blocks;
 * many threads may call it at once. */
QUIRE_API int quire_collection_search(struct quire_collection *collection, const struct quire_snapshot *snapshot,
                                      const float *query, const struct quire_search_options *options, unsigned with,
                                      struct quire_result **result, struct quire_search_stats *stats,
                                      struct quire_error *err);
QUIRE_API uint32_t quire_result_count(const struct quire_result *result);
/* i < count, nearest first. Pointers are valid as long as the result is. */
QUIRE_API void quire_result_element(const struct quire_result *result, uint32_t i, struct quire_element *out);
QUIRE_API void quire_result_free(struct quire_result *result); /* NULL is fine */

/* The collection as it is now, for searches, whatever is written afterwards: which elements there are, and their
 * vectors (attributes of elements in memory are those of the present). Takes microseconds and a bit per sealed row.
 * What is removed meanwhile keeps its space until it is closed. Many searches may use one at once; none does when it is
 * closed, before its collection. */
QUIRE_API int quire_snapshot_open(struct quire_collection *collection, struct quire_snapshot **out,
                                  struct quire_error *err);
QUIRE_API uint64_t quire_snapshot_count(const struct quire_snapshot *snapshot);
QUIRE_API void quire_snapshot_close(struct quire_snapshot *snapshot); /* NULL is fine */

/* Everything written so far is on the device on return, and the next opening replays nothing of it. Writes all that is
 * in memory. Like the next three it blocks for as long as it takes, while reads and writes go on. */
QUIRE_API int quire_checkpoint(struct quire_collection *collection, struct quire_error *err);
/* Seals what is in memory to the disk; merges all sealed parts into one. */
QUIRE_API int quire_seal(struct quire_collection *collection, struct quire_error *err);
QUIRE_API int quire_compact(struct quire_collection *collection, struct quire_error *err);
/* A consistent copy in the new folder `to` (QUIRE_EEXISTS) on the same file system, by hard links. */
QUIRE_API int quire_backup(struct quire_collection *collection, const char *to, struct quire_error *err);

struct quire_collection_info {
    uint64_t elements, raw_bytes;
    uint32_t dim;
    enum quire_type type;
    enum quire_metric metric;
    enum quire_slot slot;
    enum quire_index_kind index;        /* of the segments that are made */
    uint64_t memory_rows, memory_bytes; /* elements that are not sealed, and what they take */
    uint64_t segments, segment_rows, dead_rows, resident_bytes, disk_bytes;
    uint64_t recovery_us, replayed_records; /* of its opening */
};
QUIRE_API void quire_collection_get_info(struct quire_collection *collection, struct quire_collection_info *out);

/* ---- the semantic cache ------------------------------------------------------------------------------------------ */

/* Answers of an expensive model, found again by the hash of the request or by the nearness of its last text's vector.
 * Policy differs by category; answers of one scope (tenant, user, model, ...) are never given to another. Everything up
 * to the decision is in memory; documents are read from the disk on a hit. docs/cache.md has the meaning of all of it.
 *
 * Similarity is the cosine, 0 (unrelated, or opposite) to 1 (the same); higher is nearer, everywhere. Vectors need not
 * be of unit length; zero vectors are an error.
 *
 * A handle may be used by many threads at once for everything but opening and closing. */
struct quire_cache;

struct quire_cache_options {
    size_t struct_bytes;
    bool create;
    uint32_t dim;         /* when it is made; otherwise 0, or compared: QUIRE_EDIM */
    enum quire_type type; /* of vectors that are given: f32, f16 or i8 */
    const char *encoder;  /* name@revision of what makes vectors; NULL: not told; compared when it is opened */
    uint64_t memory_bytes, disk_bytes;    /* limits, when it is made; 0: 1 GiB, 16 GiB. Otherwise 0, or compared */
    const struct quire_bytes *scope_keys; /* that scopes may have; none: any. Likewise: n_scope_keys 0, or compared */
    uint32_t n_scope_keys;
    bool require_scope; /* each request must carry all of scope_keys */
    enum quire_durability durability;
    const char *guard_folder; /* tables that add to the built-in ones; NULL: none */
    enum quire_engine_kind engine;
    uint64_t seed; /* of what is drawn at random: audits, TTLs; 0: another one each time */
    void (*log)(void *context, bool warning, const char *line);
    void *context;
    /* Vectors of one scope and category that stay in memory when nine tenths of it are used: the older half of more
     * goes to segments on the disk. 0: 65536; UINT32_MAX: none does. */
    uint32_t seal_rows;
};
QUIRE_API void quire_cache_options_init(struct quire_cache_options *options);
/* Opens a cache's folder, which belongs to one process at a time; options may be NULL (no create). Errors as
 * quire_collection_open; EINVALID also where a cache that is there has another encoder, limits or scope keys than
 * options say; EUNSUPPORTED: the folder is a server's and holds more than caches and collections. */
QUIRE_API int quire_cache_open(const char *path, const struct quire_cache_options *options, struct quire_cache **out,
                               struct quire_error *err);
/* Waiting calls of other threads end with a miss, calls that are under way are waited for, none begins any more.
 * Answers stay valid. An error: the last writes may not be durable; the handle is gone all the same. NULL is fine. */
QUIRE_API int quire_cache_close(struct quire_cache *cache, struct quire_error *err);

/* The first half of closing, for programs that cannot know which of their threads are inside: waiting calls of other
 * threads end with a miss, and no call begins any more (QUIRE_ECLOSED). quire_cache_close is still to be called, when
 * no thread can make another call. A second time does nothing. NULL is fine. */
QUIRE_API int quire_cache_stop(struct quire_cache *cache, struct quire_error *err);

/* Makes a category, or changes one: n words as of SC.CAT.SET, such as "RISK", "0.02", "TTL", "60000". */
QUIRE_API int quire_cache_set_category(struct quire_cache *cache, struct quire_bytes category,
                                       const struct quire_bytes *words, uint32_t n, struct quire_error *err);
/* Removes it with its entries. QUIRE_ENOTFOUND. */
QUIRE_API int quire_cache_drop_category(struct quire_cache *cache, struct quire_bytes category,
                                        struct quire_error *err);

/* A question. Zero is "not given" for all but the category. */
struct quire_cache_query {
    struct quire_bytes category;
    const struct quire_pair *scope; /* n_scope pairs in any order */
    uint32_t n_scope;
    struct quire_bytes hash;    /* of, or the canonical request itself; without it the text stands for it */
    struct quire_bytes compat;  /* of, or itself: system prompt, history, tools, parameters, stream mode */
    struct quire_bytes encoder; /* of this vector: another than the cache's is QUIRE_EINVALID */
    const void *vector;         /* dim elements of the cache's type; NULL: only the hash counts */
    struct quire_bytes text;    /* of the question: guards need it */
    double similarity;          /* the caller's threshold; it may tighten, never loosen */
    uint64_t max_age_ms;
    const struct quire_bytes *need; /* tags that an answer must have */
    uint32_t n_need;
    uint64_t wait_ms; /* for the answer to a question that is in flight */
    bool no_lease;    /* a miss gives none */
    bool stale_ok;    /* a stale answer is enough: leave the lease to refresh it to another caller */
    bool explain;     /* fill candidates */
    /* Before a vector is made: without one in hand, a group that holds something it could be compared with is answered
     * QUIRE_CACHE_VECTOR: make one and ask again. An empty group is answered as ever. */
    bool probe;
    /* The model has failed: what ended no longer ago than the category's STALEERROR will do. No lease, no wait. */
    bool on_error;
};

enum quire_cache_status {
    QUIRE_CACHE_MISS = 0,
    QUIRE_CACHE_HIT = 1,   /* by nearness */
    QUIRE_CACHE_EXACT = 2, /* by hash */
    QUIRE_CACHE_STALE = 3, /* its time is over, by less than STALE; with a lease for one caller */
    QUIRE_CACHE_NEGATIVE = 4,
    QUIRE_CACHE_BYPASS = 5, /* by the category's mode or its breaker */
    QUIRE_CACHE_AUDIT = 6,  /* would have been a hit; ask the model, then label it */
    QUIRE_CACHE_VECTOR = 7  /* to a probe: something may be near; ask again with the vector */
};
QUIRE_API const char *quire_cache_status_name(enum quire_cache_status status);

#define QUIRE_CACHE_TOKEN_BYTES    64u
#define QUIRE_CACHE_CANDIDATES_MAX 16u
struct quire_cache_candidate {
    uint64_t id;
    float similarity;
    /* static text: "served", "guard", "veto", "below threshold", "expired", "stale", "tags", "age", or "farther" than
     * the one that is served */
    const char *verdict;
    char why[160]; /* a guard's words; "" */
};
/* What came of it, and why. Pointers are valid until quire_cache_answer_free, which also takes one that is all zero. */
struct quire_cache_answer {
    enum quire_cache_status status;
    const char *reason; /* static text: one sentence */
    uint64_t id;        /* of the entry that answers or is audited, 0: none */
    double similarity;  /* of it, or of the best candidate of a miss; negative: there was none */
    double threshold;   /* in force; above 1: nothing is served by nearness */
    const char *guard;  /* that kept the best candidate back: "number", ...; NULL: none did */
    char guard_why[160];
    bool guards_skipped;                 /* no text was given */
    uint64_t age_ms, ttl_ms;             /* of the entry; what is left of its TTL */
    char lease[QUIRE_CACHE_TOKEN_BYTES]; /* "": none */
    uint64_t lease_ms;                   /* until its deadline */
    uint64_t audit;                      /* number to label it by; 0: none */
    uint64_t waited_ms;
    uint32_t n_candidates;
    struct quire_cache_candidate candidates[QUIRE_CACHE_CANDIDATES_MAX]; /* with explain */
    /* of the document, for HIT, EXACT, STALE and AUDIT */
    struct quire_bytes value; /* all chunks, one behind the other */
    uint32_t n_chunks;
    const struct quire_bytes *chunks;
    struct quire_bytes text, model; /* of the question that it was the answer to */
    uint32_t tokens_in, tokens_out, llm_ms;
    double cost;
    void *memory; /* the library's */
};
/* Errors: QUIRE_ENOTFOUND (no such category), EINVALID (scope keys missing or unknown, encoder), ENOTFINITE, EZEROVEC,
 * ERANGE, ENOMEM, ECLOSED (the cache is being closed). A document that cannot be read makes the entry go, and the next
 * best one answers, or it is a miss. Blocks for at most wait_ms and, as a rule, one read. */
QUIRE_API int quire_cache_get(struct quire_cache *cache, const struct quire_cache_query *query,
                              struct quire_cache_answer *answer, struct quire_error *err);
QUIRE_API void quire_cache_answer_free(struct quire_cache_answer *answer);

/* A complete answer. Zero is "not given" for all but category, and the value. */
struct quire_cache_entry {
    struct quire_bytes category;
    struct quire_bytes lease; /* token of the miss; without one it is stored all the same */
    const struct quire_pair *scope;
    uint32_t n_scope;
    struct quire_bytes hash, compat, encoder;
    const void *vector; /* may be missing where the category's mode is exact */
    struct quire_bytes text;
    const struct quire_bytes *chunks; /* the value in n_chunks >= 1 pieces, whose borders are kept */
    uint32_t n_chunks;
    uint64_t ttl_ms; /* 0: the category's; never beyond its TTLMAX */
    const struct quire_bytes *tags;
    uint32_t n_tags;
    struct quire_bytes model;
    uint32_t tokens_in, tokens_out, llm_ms;
    double cost; /* USD */
    bool pin;    /* never evicted, never expires */
    bool if_new; /* only where no living entry has its hash */
};
enum quire_cache_put_outcome {
    QUIRE_CACHE_STORED = 0,
    QUIRE_CACHE_REPLACED = 1,     /* the entry of the same hash went */
    QUIRE_CACHE_EXISTS = 2,       /* if_new */
    QUIRE_CACHE_NOT_ADMITTED = 3, /* ADMIT second: the first time */
    QUIRE_CACHE_OUTDATED = 4,     /* the lease is dead and something newer is there, or it was invalidated meanwhile */
    QUIRE_CACHE_NO_ROOM = 5,      /* the quota is full of what may not go */
    QUIRE_CACHE_OFF = 6           /* the category's mode is off */
};
QUIRE_API const char *quire_cache_put_outcome_name(enum quire_cache_put_outcome outcome);
struct quire_cache_put_result {
    enum quire_cache_put_outcome outcome;
    uint64_t id;        /* STORED, REPLACED, EXISTS */
    uint64_t expire_ms; /* wall clock; UINT64_MAX: never */
    uint32_t evicted, woken;
    uint64_t lsn; /* the library's */
};
/* A write is durable as the durability says, but for its document, which is synced every second. Errors as
 * quire_cache_get; EINVALID also: no value, no vector (unless MODE is exact), a lease of another cache; ELIMIT: the
 * answer is too large (16 MiB); EBUSY: the disk is behind; ENOSPACE, EIO. */
QUIRE_API int quire_cache_put(struct quire_cache *cache, const struct quire_cache_entry *entry,
                              struct quire_cache_put_result *result, struct quire_error *err);
/* This question has no answer that may be kept (refused, failed, personal): `negative` for ttl_ms (0: a minute). Kept
 * in memory. Ends the lease, if the query's hash has one. */
QUIRE_API int quire_cache_negative(struct quire_cache *cache, const struct quire_cache_query *query, uint64_t ttl_ms,
                                   struct quire_bytes lease, struct quire_error *err);
/* The leader has no answer: the next one that waits gets the lease. QUIRE_ENOTFOUND: no such token. */
QUIRE_API int quire_cache_fail(struct quire_cache *cache, struct quire_bytes lease, struct quire_error *err);
/* The answer takes longer: a lease that has not ended gets ms from now, at most (0: exactly) what the category's LEASE
 * was when it was granted, and never less than it has. *left_ms (NULL: not asked for): until its deadline.
 * QUIRE_ENOTFOUND: it is over, or none of this cache. */
QUIRE_API int quire_cache_renew(struct quire_cache *cache, struct quire_bytes lease, uint64_t ms, uint64_t *left_ms,
                                struct quire_error *err);

/* An answer that was served was right or wrong. `similarity` is what the answer said (negative: an exact hit). Wrong:
 * the entry's own threshold rises just above it. QUIRE_ENOTFOUND. */
QUIRE_API int quire_cache_feedback(struct quire_cache *cache, uint64_t id, bool good, double similarity,
                                   struct quire_error *err);
/* Pairs that wait for a label: of answers with status audit, and of sampled misses. Texts are valid until
 * quire_cache_audit_free. */
struct quire_cache_audit {
    uint64_t number, id; /* id: of the entry */
    double similarity;
    struct quire_bytes category, text, entry_text, entry_value;
    void *memory;
};
/* The pair of an answer's `audit`, which waits on: its entry_value is what the model's answer is compared with where
 * the status was a miss. QUIRE_ENOTFOUND: labelled already, or too long ago. */
QUIRE_API int quire_cache_audit_get(struct quire_cache *cache, uint64_t number, struct quire_cache_audit *out,
                                    struct quire_error *err);
/* The oldest one is handed out and waits for its label. QUIRE_ENOTFOUND: none. */
QUIRE_API int quire_cache_audit_pop(struct quire_cache *cache, struct quire_cache_audit *out, struct quire_error *err);
QUIRE_API void quire_cache_audit_free(struct quire_cache_audit *audit);
/* By number, popped or not. QUIRE_ENOTFOUND: labelled already, or too long ago. */
QUIRE_API int quire_cache_audit_put(struct quire_cache *cache, uint64_t number, bool right, struct quire_error *err);

/* How full a model is, 0..1, for ex_ms (0: a minute). */
QUIRE_API int quire_cache_load(struct quire_cache *cache, struct quire_bytes model, double x, uint64_t ex_ms,
                               struct quire_error *err);

/* What to invalidate: exactly one selector. */
enum quire_cache_by {
    QUIRE_CACHE_BY_ID = 1,   /* ids, n */
    QUIRE_CACHE_BY_TAG,      /* names, n: any of them */
    QUIRE_CACHE_BY_CATEGORY, /* names[0] */
    QUIRE_CACHE_BY_SCOPE,    /* names[0], names[1]: key and value */
    QUIRE_CACHE_BY_MODEL,    /* names[0] */
    QUIRE_CACHE_BY_ENCODER,  /* names[0]: of entries put under it */
    QUIRE_CACHE_BY_NEAR,     /* vector, similarity: entries at least so near, in all scopes and categories */
    QUIRE_CACHE_BY_BEFORE,   /* age_ms: put longer ago */
    QUIRE_CACHE_BY_ALL
};
struct quire_cache_selector {
    enum quire_cache_by by;
    const uint64_t *ids;
    const struct quire_bytes *names;
    uint32_t n;
    const void *vector;
    double similarity;
    uint64_t age_ms;
};
/* *n gets how many entries went, or with dry_run would go. A lease that was granted before cannot bring one back, also
 * after a restart. Blocks for up to some 100 ms per million entries. */
QUIRE_API int quire_cache_invalidate(struct quire_cache *cache, const struct quire_cache_selector *selector,
                                     bool dry_run, uint64_t *n, struct quire_error *err);
/* One entry: removed; counted as used; kept from eviction and expiry, or no longer. QUIRE_ENOTFOUND. */
QUIRE_API int quire_cache_remove(struct quire_cache *cache, uint64_t id, struct quire_error *err);
QUIRE_API int quire_cache_touch(struct quire_cache *cache, uint64_t id, uint64_t ttl_ms, struct quire_error *err);
QUIRE_API int quire_cache_pin(struct quire_cache *cache, uint64_t id, bool pinned, struct quire_error *err);

struct quire_cache_stats {
    uint64_t entries, memory_bytes, disk_bytes, document_bytes, pinned;
    uint64_t requests, hits, exact, stale, audits, misses, negative, bypassed, waited;
    uint64_t puts, stored, not_admitted, outdated, no_room;
    uint64_t evicted_own, evicted_cache, expired, invalidated, replaced, removed, lost; /* entries gone, by cause */
    uint64_t guarded, vetoed;                                 /* candidates that were near enough, and kept back */
    uint64_t labels, false_hits, feedback_good, feedback_bad; /* false_hits: of those that are known */
    uint64_t tokens_saved, llm_ms_saved;
    double cost_saved, cost_audits; /* USD; what audits cost is not taken off cost_saved */
    double threshold, lam;          /* in force, of a category */
    double get_p50_us, get_p99_us, get_p999_us, put_p50_us, put_p99_us, put_p999_us;
    /* of a cache: entries whose vectors lie on the disk, in how many segments, their bytes there and in memory */
    uint64_t sealed_entries, sealed_segments, sealed_disk_bytes, sealed_memory_bytes;
};
/* Of the cache (category empty) or one category. */
QUIRE_API int quire_cache_get_stats(struct quire_cache *cache, struct quire_bytes category,
                                    struct quire_cache_stats *out, struct quire_error *err);
/* The curve of a category, and what the rule would choose for a budget of delta; negative: for the one in force. */
struct quire_cache_point {
    double similarity, served, wrong, bound;
};
struct quire_cache_tune {
    double threshold, delta; /* in force */
    uint64_t requests, labels;
    uint32_t n;
    struct quire_cache_point points[401];
};
QUIRE_API int quire_cache_tune(struct quire_cache *cache, struct quire_bytes category, double delta,
                               struct quire_cache_tune *out, struct quire_error *err);
/* Curves of all categories as bytes, *bytes allocated with malloc; and as experience for categories that are there:
 * returns for how many. QUIRE_EFORMAT, ETRUNCATED: these are no curves. */
QUIRE_API int quire_cache_export(struct quire_cache *cache, void **bytes, size_t *n, struct quire_error *err);
QUIRE_API int quire_cache_import(struct quire_cache *cache, const void *bytes, size_t n, struct quire_error *err);

/* ---- verifying an index ------------------------------------------------------------------------------------------ */

struct quire_verify_report {
    uint64_t files, sections, blocks, rows, edges, keys; /* looked at */
    uint64_t lists, list_entries;  /* inverted lists looked at, and rows in them; 0 in a page graph */
    uint64_t rows_reachable;       /* input rows in blocks to which the entry tree leads, or in inverted lists that can
                                      be read: all, or there are findings */
    uint64_t rows_by_edges;        /* rows that edges alone lead to from the block nearest to the mean: no finding */
    uint64_t blocks_without_entry; /* blocks that no edge leads to (searches still find them by their centre) */
    uint64_t findings;             /* damages found */
    double code_error;     /* rms of |decoded code - stored vector| / |stored vector - centre of its block or list| */
    double code_error_max; /* the worst one */
};
/* Reads every byte of an index and checks it: sizes and checksums of all files, every block, each input row exactly
 * once, every edge inside the index and its code, if edges carry codes, that of its target, every key found under its
 * row, every navigation code near its vector, every row in a block to which the entry tree leads. Of inverted lists:
 * the graph of their heads, every list, every code in them that of its row's vector. Blocks that no edge
 * leads to are counted, not findings: a search finds each block by its resident centre as well. finding (may be NULL)
 * gets one sentence per damage, at most 1,000 of them; progress as in a build. Returns 0, or QUIRE_ECORRUPT when there
 * are findings, or another error when the index cannot be read. */
QUIRE_API int quire_verify(const char *path, void (*finding)(void *context, const char *sentence),
                           int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total),
                           void *context, struct quire_verify_report *report, struct quire_error *err);

/* One point of the calibration that was measured when the index was built. */
struct quire_calibration_point {
    uint32_t k, effort;
    float recall, reads;          /* of held-out rows, less two standard errors; blocks read per query */
    enum quire_distance distance; /* of the answers */
};
/* Measured with the widest codes; under a budget that loads narrower ones, efforts are scaled to what those need, reads
 * are not. Copies at most `capacity` points (exact distances first, ordered by k, then effort) and returns how many
 * there are; 0: the index is too small to have been calibrated. */
QUIRE_API uint32_t quire_calibration(const struct quire_index *index, struct quire_calibration_point *points,
                                     uint32_t capacity);

#ifdef __cplusplus
}
#endif
#endif
