/*
 * build.c - quire_build: the steps in order, and the promise that the folder appears whole or not at all.
 *
 *   page graph      check input -> 8-bit codes -> balanced order -> input in that order -> centres -> neighbours, and
 *                   back -> keys, attributes, codes -> blocks without the held-out rows' edges -> calibrate by real
 *                   searches -> blocks -> meta -> sync, rename
 *   inverted lists  check input -> 8-bit codes -> order by clusters -> input in that order -> centres -> heads,
 *                   replicas -> keys, attributes, postings, codes -> blocks -> calibrate -> meta -> sync, rename
 *
 * Everything is written in a folder beside PATH (build_state.c); whatever fails or is cancelled removes that folder,
 * unless the build may be resumed and has finished a stage. The manifest of a segment is its meta file, which is
 * written last and lists the others with their checksums.
 *
 * Memory: without a budget the 8-bit codes and the graph are in memory, one after the other: the codes with the edges
 * that are found on them, then edges and reverse edges, each 4 x degree bytes per row. Under a budget both are in files
 * (build_plan.c). Either way every step goes through rows, edges and input in order, a batch at a time, and the result
 * is the same, whatever the memory and the number of threads.
 */
#include "index/build/build.h"
#include "index/build/build_priv.h"
#include "index/column/columns.h"
#include "index/format/index_kind.h"
#include "index/format/posting_block.h"
#include "index/vector/unit_code.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define DEVICE_ROWS 100000u /* from so many on the device is measured where it may decide */

/* What a whole build spends on each phase, in hundredths; measured on a million rows. */
struct phase {
    const char *phase;
    float share;
};
static const struct phase graph_phases[] = {{"check input", 1},
                                            {"find mean", 1},
                                            {"encode", 6},
                                            {"partition", 7},
                                            {"order input", 1},
                                            {"centres", 1},
                                            {"graph", 47},
                                            {"place rows", 3},
                                            {"turn edges", 2},
                                            {"write keys", 1},
                                            {"write attributes", 1},
                                            {"write columns", 1},
                                            {"write codes", 15},
                                            {"write blocks (to calibrate)", 5},
                                            {"exact answers (to calibrate)", 5},
                                            {"calibrate", 5},
                                            {"write blocks", 4}};
/* Names that both kinds use are those of steps before they differ: a phase says of which kind the build is. */
static const struct phase lists_phases[] = {{"check input", 1},
                                            {"find mean", 1},
                                            {"encode", 6},
                                            {"cluster", 27},
                                            {"order vectors", 1},
                                            {"centres of blocks", 2},
                                            {"replicas", 11},
                                            {"link heads", 2},
                                            {"place list rows", 3},
                                            {"write list keys", 1},
                                            {"write list attributes", 1},
                                            {"write list columns", 1},
                                            {"write lists", 21},
                                            {"write vectors", 2},
                                            {"exact answers for lists", 8},
                                            {"calibrate lists", 18}};
static const struct {
    const char *phase, *of_lists;
} renamed[] = {{"order input", "order vectors"},       {"centres", "centres of blocks"},
               {"write blocks", "write vectors"},      {"exact answers (to calibrate)", "exact answers for lists"},
               {"calibrate", "calibrate lists"},       {"place rows", "place list rows"},
               {"write keys", "write list keys"},      {"write attributes", "write list attributes"},
               {"write columns", "write list columns"}};

/* A step that both kinds share has a name for each, see above. */
static const char *phase_name(const struct build *b, const char *phase)
{
    for (size_t i = 0; build_is_lists(b) && i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(renamed[i].phase, phase) == 0)
            return renamed[i].of_lists;
    return phase;
}

void quire_build_options_init(struct quire_build_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_bytes = sizeof *options;
}

void build_progress(const struct build *b, const char *phase, struct progress *out)
{
    *out = (struct progress){b->options.progress, b->options.context, phase_name(b, phase)};
}

int build_report(const struct build *b, const char *phase, uint64_t done, uint64_t total)
{
    if (!b->options.progress)
        return 0;
    return b->options.progress(b->options.context, phase_name(b, phase), done, total) != 0 ? QUIRE_ECANCELLED : 0;
}

/* The share done of a build with these n phases; negative: it has no such phase. */
static double share_done(const struct phase *phases, size_t n, const char *phase, double done)
{
    float before = 0, all = 0, present = -1;
    for (size_t i = 0; i < n; i++) {
        all += phases[i].share;
        if (strcmp(phases[i].phase, phase) == 0)
            present = phases[i].share;
        else if (present < 0)
            before += phases[i].share;
    }
    return present < 0 ? -1 : (before + present * done) / all;
}

double quire_build_done(const char *phase, uint64_t done, uint64_t total)
{
    double part = total ? (double)done / (double)total : 0;
    double share = share_done(graph_phases, sizeof graph_phases / sizeof *graph_phases, phase, part);
    return share < 0 ? share_done(lists_phases, sizeof lists_phases / sizeof *lists_phases, phase, part) : share;
}

/* What `auto` comes to. An option that only one kind has asks for that kind. */
static void choose_kind(struct build *b)
{
    struct quire_build_options *o = &b->options;
    bool graph = o->code_bits == 8 || o->edge_codes != QUIRE_EDGE_CODES_AUTO || o->degree || o->build_beam;
    if (graph || o->list_rows || o->replicas > 0) {
        o->index = graph ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN;
        b->params.kind_reason = KIND_ASKED_FOR;
        return;
    }
    char *folder = strdup(b->path);
    struct index_kind_facts facts = {.budget = o->memory_bytes};
    b->space.code_dim = rotation_code_dim(o->metric == QUIRE_METRIC_IP ? b->dim + 1 : b->dim);
    facts.lists_fit = build_lists_fit(b);
    facts.graph_bytes = build_graph_bytes(b);
    if (b->n >= DEVICE_ROWS && folder)
        facts.folder = dirname(folder);
    enum kind_reason reason;
    o->index = index_kind_choose(&facts, &reason);
    b->params.kind_reason = reason;
    free(folder);
}

enum quire_index_kind build_choose_kind(const char *path, const struct quire_input *input,
                                        const struct quire_build_options *options, uint32_t *kind_reason)
{
    *kind_reason = KIND_ASKED_FOR;
    struct build b = {.n = (uint32_t)input->rows, .dim = input->dim, .type = input->type, .options = *options};
    if (options->index != QUIRE_INDEX_AUTO)
        return options->index;
    b.path = strdup(path);
    if (b.path)
        choose_kind(&b);
    free(b.path);
    *kind_reason = b.params.kind_reason;
    return b.options.index;
}

enum quire_index_kind build_kind(enum quire_index_kind wanted)
{
    return wanted == QUIRE_INDEX_AUTO ? QUIRE_INDEX_PAGEGRAPH : wanted;
}

static int check_options(struct build *b)
{
    struct quire_build_options *o = &b->options;
    if (b->dim == 0 || b->dim > QUIRE_DIM_MAX)
        return error_set(b->err, QUIRE_EDIM, "dimension %u is out of range 1..%u", b->dim, QUIRE_DIM_MAX);
    if (b->n == 0)
        return error_set(b->err, QUIRE_EINVALID, "there are no rows: an index needs at least one vector");
    if ((unsigned)o->metric > QUIRE_METRIC_IP || (unsigned)o->slot > QUIRE_SLOT_BF16 ||
        (unsigned)b->type > QUIRE_TYPE_BF16)
        return error_set(b->err, QUIRE_EINVALID, "unknown metric %d, slot %d or type %d", (int)o->metric, (int)o->slot,
                         (int)b->type);
    if (o->block_bytes % QUIRE_BLOCK_BYTES_MIN || o->block_bytes > QUIRE_BLOCK_BYTES_MAX)
        return error_set(b->err, QUIRE_ERANGE, "block of %u bytes: it must be a multiple of %u up to %u",
                         o->block_bytes, QUIRE_BLOCK_BYTES_MIN, QUIRE_BLOCK_BYTES_MAX);
    if ((unsigned)o->index > QUIRE_INDEX_SPANN)
        return error_set(b->err, QUIRE_EINVALID, "unknown index kind %d", (int)o->index);
    if (o->index == QUIRE_INDEX_AUTO)
        choose_kind(b);
    bool lists = o->index == QUIRE_INDEX_SPANN;
    if (!(o->replicas == 0 || (o->replicas >= 1 && o->replicas <= POSTING_COPIES_MAX)))
        return error_set(b->err, QUIRE_ERANGE, "%g replicas: it must be 1 to %u", (double)o->replicas,
                         POSTING_COPIES_MAX);
    if (lists && o->code_bits == 8)
        return error_set(b->err, QUIRE_ERANGE, "8 bits per dimension: codes in inverted lists have 1, 2 or 4");
    if (o->code_bits == 0 && !lists)
        o->code_bits = 4;
    if (o->code_bits > 0 && o->code_bits != 1 && o->code_bits != 2 && o->code_bits != 4 && o->code_bits != 8)
        return error_set(b->err, QUIRE_ERANGE, "%u bits per dimension: it must be 1, 2, 4 or 8", o->code_bits);
    o->degree = o->degree ? o->degree : DEGREE_DEFAULT;
    o->build_beam = o->build_beam ? o->build_beam : POOL_DEFAULT;
    if (o->degree > 256 || o->build_beam > 4096 || o->build_beam < o->degree)
        return error_set(b->err, QUIRE_ERANGE, "degree %u (1..256), build beam %u (degree..4096)", o->degree,
                         o->build_beam);
    if ((uint64_t)b->n * o->degree >= UINT32_MAX)
        return error_set(b->err, QUIRE_ELIMIT,
                         "%u rows of degree %u: a segment holds at most %u edges while it is built, "
                         "use a smaller --degree",
                         b->n, o->degree, UINT32_MAX);
    o->threads = o->threads ? o->threads : parallel_processors();
    o->calibration_queries = o->calibration_queries ? o->calibration_queries : BUILD_QUERIES_MOST;
    if (o->calibration_queries < BUILD_QUERIES_LEAST || o->calibration_queries > BUILD_QUERIES_MOST)
        return error_set(b->err, QUIRE_ERANGE, "%u queries of the calibration: it must be %u to %u",
                         o->calibration_queries, BUILD_QUERIES_LEAST, BUILD_QUERIES_MOST);
    if ((o->keys && !o->key_bytes) || (o->attributes && !o->attribute_bytes))
        return error_set(b->err, QUIRE_EINVALID, "keys or attributes without their lengths");
    return 0;
}

static int check_keys(const struct build *b)
{
    const struct quire_build_options *o = &b->options;
    for (uint32_t i = 0; o->keys && i < b->n; i++)
        if (o->key_bytes[i] == 0 || o->key_bytes[i] > QUIRE_KEY_BYTES_MAX)
            return error_set(b->err, QUIRE_ERANGE, "key of row %u has %u bytes: it must have 1..%u", i, o->key_bytes[i],
                             QUIRE_KEY_BYTES_MAX);
    for (uint32_t i = 0; o->attributes && i < b->n; i++)
        if (o->attributes[i] && o->attribute_bytes[i] > ATTRIBUTE_BYTES_MAX)
            return error_set(b->err, QUIRE_ERANGE, "attributes of row %u have %u bytes, more than %u", i,
                             o->attribute_bytes[i], ATTRIBUTE_BYTES_MAX);
    return 0;
}

static int list_file(struct build *b, const char *name, uint8_t entry[FILE_ENTRY_BYTES])
{
    struct io_file *file = NULL;
    uint8_t superblock[SECTION_ALIGN];
    int rc = build_open_work(b, name, FS_READ, &file);
    if (rc == 0)
        rc = fs_read_exact(file, superblock, sizeof superblock, 0, b->err);
    if (rc == 0) {
        memset(entry, 0, FILE_ENTRY_BYTES);
        memcpy(entry, name, strlen(name));
        bytes_store_u64(entry + 16, file->bytes);
        bytes_store_u64(entry + 24, XXH3_64bits(superblock, sizeof superblock));
    }
    fs_close(file);
    return rc;
}

int build_write_meta(struct build *b, const uint8_t *calibration, size_t calibration_bytes)
{
    struct section_writer *writer = NULL;
    const char *names[6] = {BLOCKS_NAME, CODES_NAME, KEYS_NAME};
    uint8_t params[PARAMS_BYTES], files[6 * FILE_ENTRY_BYTES];
    size_t mean_bytes = sizeof(float) * b->space.work_dim, n = 3;
    uint8_t *mean = malloc(mean_bytes);
    int rc = mean ? build_section_writer(b, META_NAME, FILE_META, &writer) : QUIRE_ENOMEM;
    format_params_encode(&b->params, params);
    if (rc == 0)
        rc = section_put(writer, META_PARAMS, params, sizeof params, b->err);
    for (uint32_t i = 0; mean && i < b->space.work_dim; i++)
        bytes_store_f32(mean + 4 * i, b->space.mean[i]);
    if (rc == 0)
        rc = section_put(writer, META_MEAN, mean, mean_bytes, b->err);
    free(mean);
    if (rc == 0)
        rc = section_put(writer, META_CALIBRATION, calibration, calibration_bytes, b->err);
    if (b->options.attributes)
        names[n++] = ATTRIBUTES_NAME;
    if (b->params.has_columns)
        names[n++] = COLUMNS_NAME;
    if (build_is_lists(b))
        names[n++] = POSTINGS_NAME;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = list_file(b, names[i], files + i * FILE_ENTRY_BYTES);
    if (rc == 0)
        rc = section_put(writer, META_FILES, files, n * FILE_ENTRY_BYTES, b->err);
    return section_writer_conclude(writer, rc, b->err);
}

static void fill_params(struct build *b)
{
    struct segment_params *p = &b->params;
    p->format_version = SEGMENT_FORMAT_VERSION;
    p->metric = b->options.metric;
    p->type = b->merge ? b->merge->type : b->type;
    p->dim = b->dim;
    p->code_dim = b->space.code_dim;
    p->rows = b->n;
    p->degree = b->options.degree;
    p->pool = b->options.build_beam;
    p->user_keys = b->options.keys != NULL;
    p->has_attributes = b->options.attributes != NULL;
    p->seed = b->options.seed;
    p->memory_bytes = b->options.memory_bytes;
    p->norm2_max = b->space.norm2_max;
    p->run_rows = b->runs.rows;
    p->unit_codes = b->merge && b->merge->unit_codes;
    for (unsigned i = 0; i < NAV_WIDTHS; i++)
        p->effort_factor[i] = 1;
    p->edge_effort_factor = 1;
    p->spread = 1 / sqrtf((float)p->code_dim);
}

/* The next step is done: what must be there from now on. */
static void reach(struct build *b, enum build_step step)
{
    const struct segment_params *p = &b->params;
    bool lists = build_is_lists(b), resumed = b->state.stage >= STAGE_TABLES;
    assert(step == b->step + 1);
    b->step = step;
    switch (step) {
    case STEP_OPTIONS:
        break;
    case STEP_LAYOUT:
        assert(p->slots_per_block > 0 && (uint64_t)p->n_blocks * p->slots_per_block >= b->n);
        assert(!b->runs.of == (b->runs.rows == 0) && b->runs.rows <= b->n);
        assert(b->plan.partition_rows > 0 && b->plan.input_rows > 0 && b->plan.graph_rows > 0);
        break;
    case STEP_CHECKED:
        assert(p->rows == b->n && p->code_dim == b->space.code_dim && b->space.mean);
        break;
    case STEP_FOLDER:
        assert(b->folder && (b->options.resume || b->state.stage == STAGE_NONE));
        break;
    case STEP_ROWS:
        assert(b->state.stage >= STAGE_ROWS && b->order && b->rows.n == b->n);
        assert(!b->rows.rows.codes == b->plan.in_files && (b->vectors || b->runs.of || b->sorted));
        assert(lists == (b->clusters.n > 0));
        break;
    case STEP_CENTRES:
        assert(b->centres && b->centre_codes && b->centre_factors);
        break;
    case STEP_LINKED:
        assert(lists ? resumed || (b->heads && b->clusters.replica_at) : b->edges.reverse_at != NULL);
        assert(!b->rows.rows.codes && !b->rows.file && (b->vectors || b->sorted));
        assert(!b->cell_of == (lists || !b->runs.of));
        break;
    case STEP_TABLES:
        assert(b->state.stage >= STAGE_TABLES && !b->external_at == !b->options.keys);
        break;
    case STEP_WRITTEN:
        assert(b->state.stage == STAGE_WRITTEN && !b->calibration == (b->calibration_bytes == 0));
        break;
    }
}

/* What stands on the disk in the end of a stage is synced, so that a later run may rely on it. */
static int sort_rows(struct build *b)
{
    if (b->state.stage >= STAGE_ROWS) {
        int rc = build_open_rows(b);
        if (rc == 0 && build_is_lists(b))
            rc = build_open_lists(b);
        return rc == 0 && !b->vectors && !b->runs.of ? build_open_work(b, WORK_INPUT, FS_READ, &b->sorted) : rc;
    }
    int rc = build_encode_rows(b);
    if (rc == 0)
        rc = build_order_rows(b);
    if (rc == 0 && !b->runs.of)
        rc = build_order_input(b, "order input");
    return rc == 0 ? build_save_state(b, STAGE_ROWS) : rc;
}

/* The graph both ways, or heads and replicas. Then the rows have served; what a resumed build would begin with
 * stays. */
static int link_rows(struct build *b)
{
    bool lists = build_is_lists(b);
    int rc = !lists ? build_edges(b) : b->state.stage < STAGE_TABLES ? build_find_heads(b) : 0;
    if (rc == 0 && b->runs.of)
        rc = build_place_rows(b);
    row_store_close(&b->rows);
    if (rc == 0 && !b->options.resume)
        rc = build_remove_file(b, WORK_ROWS);
    if (rc == 0 && b->runs.of)
        rc = build_remove_file(b, WORK_PLACED);
    if (rc == 0 && !lists && b->state.stage < STAGE_GRAPH)
        rc = build_save_state(b, STAGE_GRAPH);
    return rc == 0 && !lists ? build_reverse(b) : rc;
}

static int write_tables(struct build *b)
{
    int rc = build_place_keys(b);
    if (rc < 0 || b->state.stage >= STAGE_TABLES)
        return rc;
    if ((rc = build_write_keys(b)) < 0 || (rc = build_write_attributes(b)) < 0 || (rc = build_write_codes(b)) < 0)
        return rc;
    return build_save_state(b, STAGE_TABLES);
}

static int write_blocks(struct build *b)
{
    bool lists = build_is_lists(b);
    int rc = lists ? build_write_blocks(b, NULL) : 0;
    if (rc == 0 && b->state.stage < STAGE_CALIBRATED) {
        rc = build_calibrate(b);
        if (rc == 0)
            rc = build_save_state(b, STAGE_CALIBRATED);
    }
    if (rc == 0 && !lists)
        rc = build_write_blocks(b, NULL);
    if (rc == 0)
        rc = build_write_meta(b, b->calibration, b->calibration_bytes);
    return rc == 0 ? build_save_state(b, STAGE_WRITTEN) : rc;
}

/* All steps in order. */
static int run(struct build *b)
{
    int rc = build_choose_layout(b);
    if (rc == 0)
        rc = build_find_runs(b);
    if (rc == 0)
        rc = build_plan(b);
    if (rc < 0)
        return rc;
    reach(b, STEP_LAYOUT);
    if ((rc = build_check_input(b)) < 0)
        return rc;
    fill_params(b);
    reach(b, STEP_CHECKED);
    if ((rc = build_open_folder(b)) < 0)
        return rc;
    reach(b, STEP_FOLDER);
    if (b->state.stage < STAGE_WRITTEN) {
        if ((rc = sort_rows(b)) < 0)
            return rc;
        reach(b, STEP_ROWS);
        if ((rc = build_centres(b, "centres")) < 0)
            return rc;
        reach(b, STEP_CENTRES);
        if ((rc = link_rows(b)) < 0)
            return rc;
        reach(b, STEP_LINKED);
        if ((rc = write_tables(b)) < 0)
            return rc;
        reach(b, STEP_TABLES);
        if ((rc = write_blocks(b)) < 0)
            return rc;
        reach(b, STEP_WRITTEN);
    }
    rc = build_remove_work(b);
    return rc == 0 ? fs_publish(b->fs, b->folder, b->path, b->err) : rc;
}

/* The arguments themselves, before anything is looked at that they say. */
static int check_arguments(const char *path, const struct quire_input *input, const struct quire_build_options *options,
                           struct quire_error *err)
{
    if (!path || !input || (!input->vectors && !input->read) || !options)
        return error_set(err, QUIRE_EINVALID, "path, vectors and options must be given");
    if (input->rows > QUIRE_ROWS_MAX)
        return error_set(err, QUIRE_ELIMIT, "%llu rows: one index holds at most %u", (unsigned long long)input->rows,
                         QUIRE_ROWS_MAX);
    if (options->struct_bytes != sizeof *options)
        return error_set(
            err, QUIRE_EINVALID,
            "struct_bytes of struct quire_build_options is %zu, this library knows %zu: fill the options with "
            "quire_build_options_init",
            options->struct_bytes, sizeof *options);
    return 0;
}

/* The path without slashes at its end, since names for other things are made by appending to it; options, keys, tenants
 * and the space. build_fini follows, whether this succeeds or not. */
static int build_init(struct build *b, const char *path)
{
    b->path = strdup(path);
    if (!b->path)
        return error_set(b->err, QUIRE_ENOMEM, "no memory to build %s", path);
    for (size_t n = strlen(b->path); n > 1 && b->path[n - 1] == '/'; n--)
        b->path[n - 1] = 0;
    int rc = check_options(b);
    if (rc == 0)
        rc = check_keys(b);
    if (rc == 0)
        rc = build_take_tenants(b);
    return rc == 0 ? space_init(&b->space, b->options.metric, b->type, b->dim, b->options.seed) : rc;
}

/* `rc` of the build: the folder of one that failed goes, unless it may be resumed. */
static void build_fini(struct build *b, int rc)
{
    row_store_close(&b->rows);
    build_edges_fini(&b->edges);
    clusters_fini(&b->clusters);
    graph_destroy(b->heads);
    epochs_destroy(b->epochs);
    fs_close(b->sorted);
    build_close_folder(b, rc);
    space_fini(&b->space);
    build_forget_tenants(b);
    array_free_all(b->order, b->centres, b->centre_codes, b->centre_factors, b->guest_lists, b->cell_codes,
                   b->cell_factors, b->cell_of, b->external_at, b->calibration, b->folder, b->path);
}

/* The message of a build that failed with `rc` where no step has set one. */
static void set_message(const struct build *b, int rc)
{
    if (!b->err || b->err->code != 0)
        return;
    if (rc != QUIRE_ECANCELLED)
        error_set(b->err, rc, "%s", quire_error_text(rc));
    else if (b->options.resume && b->state.stage > STAGE_NONE && b->folder)
        error_set(b->err, rc, "the build was stopped; %s keeps its work: build with resume again to go on", b->folder);
    else
        error_set(b->err, rc, "the build was stopped; nothing was left behind");
}

size_t build_row_bytes(uint32_t dim, enum quire_type type, bool unit_codes)
{
    size_t code_bytes = unit_codes ? rotation_code_dim(dim) + UNIT_CODE_FACTOR_BYTES : 0;
    return dim * quire_type_bytes(type) + code_bytes;
}

struct offload *build_device(const struct build *b, enum build_device_step step)
{
    return b->steps & step ? b->offload : NULL;
}

static int build_any(struct io_fs *fs, const char *path, const struct quire_input *input,
                     const struct quire_build_options *options, const struct build_merge *merge,
                     struct offload *offload, unsigned steps, uint32_t kind_reason, struct quire_error *err)
{
    int rc = check_arguments(path, input, options, err);
    if (rc < 0)
        return rc;
    struct build b = {.input = *input,
                      .vectors = input->vectors,
                      .n = (uint32_t)input->rows,
                      .dim = input->dim,
                      .type = input->type,
                      .row_bytes = build_row_bytes(input->dim, input->type, merge && merge->unit_codes),
                      .options = *options,
                      .merge = merge,
                      .offload = options->build_memory_bytes ? NULL : offload, /* its memory is not planned for */
                      .steps = steps,
                      .params.kind_reason = kind_reason,
                      .fs = fs,
                      .err = err};
    if (err)
        memset(err, 0, sizeof *err);
    rc = build_init(&b, path);
    if (rc == 0)
        rc = run(&b);
    for (uint32_t row = 0; rc == 0 && merge && row < b.n; row++)
        merge->places[b.order[row]] = row;
    if (rc < 0)
        set_message(&b, rc);
    build_fini(&b, rc);
    return rc;
}

int build_merged(struct io_fs *fs, const char *path, const struct quire_input *input,
                 const struct quire_build_options *options, const struct build_merge *merge, struct quire_error *err)
{
    return build_any(fs, path, input, options, merge, NULL, 0, KIND_ASKED_FOR, err);
}

int build_offloaded(struct io_fs *fs, const char *path, const struct quire_input *input,
                    const struct quire_build_options *options, struct offload *offload, unsigned steps,
                    uint32_t kind_reason, struct quire_error *err)
{
    return build_any(fs, path, input, options, NULL, offload, steps, kind_reason, err);
}

int build_segment(struct io_fs *fs, const char *path, const struct quire_input *input,
                  const struct quire_build_options *options, struct quire_error *err)
{
    return build_any(fs, path, input, options, NULL, NULL, 0, KIND_ASKED_FOR, err);
}

int quire_build_from(const char *path, const struct quire_input *input, const struct quire_build_options *options,
                     struct quire_error *err)
{
    return build_segment(fs_real(), path, input, options, err);
}

int quire_build(const char *path, const void *vectors, uint64_t rows, uint32_t dim, enum quire_type type,
                const struct quire_build_options *options, struct quire_error *err)
{
    struct quire_input input = {.vectors = vectors, .rows = rows, .dim = dim, .type = type};
    return build_segment(fs_real(), path, &input, options, err);
}
