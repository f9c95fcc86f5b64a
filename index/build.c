/*
 * build.c - quire_build: the steps in order, and the promise that the folder appears whole or not at all.
 *
 *   check input -> 8-bit codes -> slots per block -> balanced order -> centres -> neighbours
 *   -> keys, attributes, codes -> blocks without the held-out rows' edges -> calibrate by real searches -> blocks
 *   -> meta -> sync, rename
 *
 * Everything is written in PATH.building-<pid>-<random>; whatever fails or is cancelled removes that folder. The
 * manifest of a segment is its meta file, which is written last and lists the others with their checksums.
 *
 * Memory: the input, twice the 8-bit codes while rows change places, then the codes and 4 x degree bytes per row for
 * the graph and as much for its reverse.
 */
#include "index/build.h"
#include "index/build_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/random.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#define DEGREE_DEFAULT 24u
#define POOL_DEFAULT   100u
#define ALPHA          1.5f
#define MEMBERS_WANTED 1700u /* rows measured per row when looking for neighbours */
#define GROUPS_MIN     4u
#define GROUPS_MAX     48u

void quire_build_options_init(struct quire_build_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_bytes = sizeof *options;
}

void build_progress(const struct build *b, const char *phase, struct progress *out)
{
    *out = (struct progress){b->options.progress, b->options.context, phase};
}

char *build_file_path(const struct build *b, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", b->folder, name) < 0 ? NULL : path;
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
    if (o->code_bits == 0)
        o->code_bits = 4;
    if (o->code_bits != 1 && o->code_bits != 2 && o->code_bits != 4 && o->code_bits != 8)
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

static int make_folder(struct build *b)
{
    uint64_t random;
    if (access(b->path, F_OK) == 0)
        return error_set(b->err, QUIRE_EEXISTS, "%s is there already: choose another name or remove it", b->path);
    if (getrandom(b->segment_id, sizeof b->segment_id, 0) != sizeof b->segment_id ||
        getrandom(&random, sizeof random, 0) != sizeof random)
        return error_set(b->err, QUIRE_EINTERNAL, "no random bytes from the kernel");
    if (asprintf(&b->folder, "%s.building-%d-%08x", b->path, (int)getpid(), (unsigned)random) < 0) {
        b->folder = NULL;
        return QUIRE_ENOMEM;
    }
    int rc = b->fs->ops->mkdir(b->fs, b->folder);
    if (rc < 0) {
        error_set(b->err, rc, "cannot make folder %s: %s", b->folder, quire_error_text(rc));
        free(b->folder);
        b->folder = NULL;
    }
    return rc;
}

static int find_neighbours(struct build *b)
{
    struct progress progress;
    uint32_t capacity = b->params.slots_per_block, groups = MEMBERS_WANTED / capacity;
    groups = groups < GROUPS_MIN ? GROUPS_MIN : groups > GROUPS_MAX ? GROUPS_MAX : groups;
    struct neighbours_config config = {capacity, b->options.degree, b->options.build_beam, groups,
                                       ALPHA,    b->options.threads};
    build_progress(b, "graph", &progress);
    return neighbours_build(&b->rows, b->centres, &config, &progress, &b->neighbours);
}

static void release_codes(struct build *b)
{
    free(b->rows.codes);
    free(b->rows.f);
    free(b->rows.norm2);
    free(b->rows.level_sum);
    memset(&b->rows, 0, sizeof b->rows);
}

static int list_file(const struct build *b, const char *name, uint8_t entry[FILE_ENTRY_BYTES])
{
    char *path = build_file_path(b, name);
    struct io_file *file = NULL;
    uint8_t superblock[SECTION_ALIGN];
    int rc = path ? fs_open(b->fs, path, FS_READ, &file, b->err) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = fs_read_exact(file, superblock, sizeof superblock, 0, b->err);
    if (rc == 0) {
        memset(entry, 0, FILE_ENTRY_BYTES);
        memcpy(entry, name, strlen(name));
        store_u64(entry + 16, file->bytes);
        store_u64(entry + 24, XXH3_64bits(superblock, sizeof superblock));
    }
    fs_close(file);
    free(path);
    return rc;
}

static int write_mean(const struct build *b, struct section_writer *writer)
{
    size_t bytes = sizeof(float) * b->space.work_dim;
    uint8_t *mean = malloc(bytes);
    if (!mean)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < b->space.work_dim; i++)
        store_f32(mean + 4 * i, b->space.mean[i]);
    int rc = section_put(writer, META_MEAN, mean, bytes, b->err);
    free(mean);
    return rc;
}

static int write_files(const struct build *b, struct section_writer *writer)
{
    static const char *const names[] = {BLOCKS_NAME, CODES_NAME, KEYS_NAME, ATTRIBUTES_NAME};
    uint8_t entries[4 * FILE_ENTRY_BYTES];
    size_t n = b->options.attributes ? 4 : 3;
    for (size_t i = 0; i < n; i++) {
        int rc = list_file(b, names[i], entries + i * FILE_ENTRY_BYTES);
        if (rc < 0)
            return rc;
    }
    return section_put(writer, META_FILES, entries, n * FILE_ENTRY_BYTES, b->err);
}

int build_write_meta(struct build *b, const uint8_t *calibration, size_t calibration_bytes)
{
    struct section_writer *writer = NULL;
    uint8_t params[PARAMS_BYTES];
    char *path = build_file_path(b, META_NAME);
    int rc = path ? section_writer_create(b->fs, path, FILE_META, b->segment_id, &writer, b->err) : QUIRE_ENOMEM;
    params_encode(&b->params, params);
    if (rc == 0)
        rc = section_put(writer, META_PARAMS, params, sizeof params, b->err);
    if (rc == 0)
        rc = write_mean(b, writer);
    if (rc == 0)
        rc = section_put(writer, META_CALIBRATION, calibration, calibration_bytes, b->err);
    if (rc == 0)
        rc = write_files(b, writer);
    rc = section_writer_conclude(writer, rc, b->err);
    free(path);
    return rc;
}

/* Blocks, calibrated: once without the edges of the rows that ask, searched, then whole. */
static int write_blocks_calibrated(struct build *b)
{
    uint8_t *calibration = NULL;
    size_t calibration_bytes = 0;
    int rc = build_calibrate(b, &calibration, &calibration_bytes);
    if (rc == 0)
        rc = build_write_blocks(b, NULL);
    if (rc == 0)
        rc = build_write_meta(b, calibration, calibration_bytes);
    free(calibration);
    return rc;
}

static void fill_params(struct build *b)
{
    struct segment_params *p = &b->params;
    p->format_version = SEGMENT_FORMAT_VERSION;
    p->metric = b->options.metric;
    p->type = b->type;
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
    for (unsigned i = 0; i < NAV_WIDTHS; i++)
        p->effort_factor[i] = 1;
    p->edge_effort_factor = 1;
    p->spread = 1 / sqrtf((float)p->code_dim);
}

static int run_steps(struct build *b)
{
    int rc = build_choose_layout(b);
    if (rc == 0)
        rc = build_check_input(b);
    if (rc == 0)
        rc = make_folder(b);
    if (rc < 0)
        return rc;
    fill_params(b);
    if ((rc = build_encode_rows(b)) < 0 || (rc = build_order_rows(b)) < 0 || (rc = build_centres(b)) < 0 ||
        (rc = find_neighbours(b)) < 0)
        return rc;
    release_codes(b);
    if ((rc = build_write_keys(b)) < 0 || (rc = build_write_attributes(b)) < 0 || (rc = build_write_codes(b)) < 0 ||
        (rc = write_blocks_calibrated(b)) < 0)
        return rc;
    return fs_publish(b->fs, b->folder, b->path, b->err);
}

static void build_fini(struct build *b, int rc)
{
    if (b->folder && rc < 0)
        fs_remove_folder(b->fs, b->folder, NULL);
    release_codes(b);
    neighbours_fini(&b->neighbours);
    space_fini(&b->space);
    free(b->folder);
    free(b->order);
    free(b->centres);
    free(b->centre_codes);
    free(b->centre_factors);
    free(b->external_at);
}

/* A copy of a path without slashes at its end: names for other things are made by appending to it. */
static char *without_slashes(const char *path)
{
    char *copy = strdup(path);
    for (size_t n = copy ? strlen(copy) : 0; n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = 0;
    return copy;
}

int build_segment(struct io_fs *fs, const char *path, const void *vectors, uint64_t rows, uint32_t dim,
                  enum quire_type type, const struct quire_build_options *options, struct quire_error *err)
{
    struct build b = {
        .vectors = vectors, .row_bytes = dim * quire_type_bytes(type), .dim = dim, .type = type, .err = err, .fs = fs};
    if (!path || !vectors || !options)
        return error_set(err, QUIRE_EINVALID, "path, vectors and options must be given");
    if (rows > QUIRE_ROWS_MAX)
        return error_set(err, QUIRE_ELIMIT, "%llu rows: one index holds at most %u", (unsigned long long)rows,
                         QUIRE_ROWS_MAX);
    b.n = (uint32_t)rows;
    b.options = *options;
    if (err)
        memset(err, 0, sizeof *err);
    if (options->struct_bytes != sizeof *options)
        return error_set(
            err, QUIRE_EINVALID,
            "struct_bytes of struct quire_build_options is %zu, this library knows %zu: fill the options with "
            "quire_build_options_init",
            options->struct_bytes, sizeof *options);
    char *bare_path = without_slashes(path);
    if (!bare_path)
        return error_set(err, QUIRE_ENOMEM, "no memory to build %s", path);
    b.path = bare_path;
    int rc = check_options(&b);
    if (rc == 0)
        rc = check_keys(&b);
    if (rc == 0)
        rc = space_init(&b.space, b.options.metric, type, dim, b.options.seed);
    if (rc < 0)
        goto out;
    rc = run_steps(&b);
    build_fini(&b, rc);
out:
    free(bare_path);
    if (rc < 0 && err && err->code == 0)
        error_set(err, rc, "%s",
                  rc == QUIRE_ECANCELLED ? "the build was stopped; nothing was left behind" : quire_error_text(rc));
    return rc;
}

int quire_build(const char *path, const void *vectors, uint64_t rows, uint32_t dim, enum quire_type type,
                const struct quire_build_options *options, struct quire_error *err)
{
    return build_segment(fs_real(), path, vectors, rows, dim, type, options, err);
}
