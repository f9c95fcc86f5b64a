/*
 * build_state.c - what a build that may be resumed has finished, and whether another may go on there.
 *
 * Whoever resumes has looked at the whole input again before (it is checked anyway); its checksum and that of all
 * options and keys that decide about the result must be those of the state. Threads and memory may differ, because they
 * decide about nothing. A folder without a state has nothing finished, and is cleared.
 *
 * State, one page: 0 "QUIREWRK", 8 u32 version, 12 u32 stage, 16 u32 linked groups, 20 u32 rows, 24 u64 checksum of the
 * input, 32 u64 of the options, 40 segment id, 56 PARAMS, 312 u32 bytes of calibration, 316 calibration, 4088 XXH3-64
 * of bytes 0..4087.
 */
#include "index/build/build_priv.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define STATE_MAGIC          "QUIREWRK"
#define STATE_VERSION        1u
#define STATE_AT_PARAMS      56u
#define STATE_AT_CALIBRATION (STATE_AT_PARAMS + PARAMS_BYTES)
#define STATE_EVERY_NS       5000000000u

static void hash_number(XXH3_state_t *hash, uint64_t number)
{
    uint8_t bytes[8];
    bytes_store_u64(bytes, number);
    XXH3_64bits_update(hash, bytes, sizeof bytes);
}

static void hash_texts(XXH3_state_t *hash, const void *const *texts, const uint32_t *bytes, uint32_t n)
{
    hash_number(hash, texts != NULL);
    for (uint32_t i = 0; texts && i < n; i++) {
        hash_number(hash, texts[i] ? bytes[i] : UINT64_MAX);
        if (texts[i])
            XXH3_64bits_update(hash, texts[i], bytes[i]);
    }
}

/* Of all that decides about the result, but the vectors. */
static int hash_options(struct build *b)
{
    const struct quire_build_options *o = &b->options;
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return QUIRE_ENOMEM;
    XXH3_64bits_reset(hash);
    const uint64_t numbers[] = {SEGMENT_FORMAT_VERSION,
                                b->n,
                                b->dim,
                                (uint64_t)b->type,
                                (uint64_t)o->metric,
                                o->slot,
                                o->block_bytes,
                                o->code_bits,
                                o->degree,
                                o->build_beam,
                                o->seed,
                                o->memory_bytes,
                                o->edge_codes,
                                (uint64_t)o->index,
                                o->list_rows,
                                (uint64_t)(o->replicas * 1000),
                                o->calibration_queries,
                                b->has_tenants};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hash_number(hash, numbers[i]);
    hash_texts(hash, o->keys, o->key_bytes, b->n);
    /* grants are in them (build_tenants.c) */
    hash_texts(hash, (const void *const *)o->attributes, o->attribute_bytes, b->n);
    for (uint32_t i = 0; i < o->n_columns; i++) {
        XXH3_64bits_update(hash, o->columns[i].name, strlen(o->columns[i].name) + 1);
        hash_number(hash, (uint64_t)o->columns[i].type << 1 | o->columns[i].indexed);
    }
    b->state.options_hash = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return 0;
}

static int write_state(struct build *b, const uint8_t page[PAGE_BYTES], const char *from, const char *to)
{
    struct io_file *file = NULL;
    int rc = fs_open(b->fs, from, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, b->err);
    if (rc < 0)
        return rc;
    rc = fs_write_exact(file, page, PAGE_BYTES, 0, b->err);
    if (rc == 0 && ((rc = b->fs->ops->sync(file)) < 0 || (rc = b->fs->ops->rename(b->fs, from, to)) < 0 ||
                    (rc = b->fs->ops->sync_dir(b->fs, b->folder)) < 0))
        error_set(b->err, rc, "cannot write %s: %s", to, quire_error_text(rc));
    fs_close(file);
    return rc;
}

int build_save_state(struct build *b, enum build_stage stage)
{
    uint8_t page[PAGE_BYTES] = {0};
    assert(stage > STAGE_NONE && stage <= STAGE_WRITTEN && stage >= b->state.stage);
    b->state.stage = stage;
    if (!b->options.resume)
        return 0;
    memcpy(page, STATE_MAGIC, 8);
    bytes_store_u32(page + 8, STATE_VERSION);
    bytes_store_u32(page + 12, stage);
    bytes_store_u32(page + 16, b->state.linked_groups);
    bytes_store_u32(page + 20, b->n);
    bytes_store_u64(page + 24, b->state.input_hash);
    bytes_store_u64(page + 32, b->state.options_hash);
    memcpy(page + 40, b->segment_id, 16);
    format_params_encode(&b->params, page + STATE_AT_PARAMS);
    bytes_store_u32(page + STATE_AT_CALIBRATION, (uint32_t)b->calibration_bytes);
    assert(b->calibration_bytes <= PAGE_PAYLOAD - STATE_AT_CALIBRATION - 4);
    if (b->calibration)
        memcpy(page + STATE_AT_CALIBRATION + 4, b->calibration, b->calibration_bytes);
    bytes_store_u64(page + PAGE_PAYLOAD, XXH3_64bits(page, PAGE_PAYLOAD));
    char *from = build_file_path(b, WORK_STATE_NEW), *to = build_file_path(b, WORK_STATE);
    int rc = from && to ? build_remove_file(b, WORK_STATE_NEW) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = write_state(b, page, from, to);
    b->state.saved_ns = clock_ns();
    free(from);
    free(to);
    return rc;
}

bool build_state_is_old(const struct build *b)
{
    return clock_ns() - b->state.saved_ns > STATE_EVERY_NS;
}

static int refuse_state(const struct build *b, int code, const char *why)
{
    return error_set(b->err, code,
                     "%s holds the work of a build that was stopped, but %s: remove that folder to begin anew",
                     b->folder, why);
}

/* The state of an earlier run into b, which must want the same. */
static int take_state(struct build *b, const uint8_t page[PAGE_BYTES])
{
    uint32_t stage = bytes_load_u32(page + 12), bytes = bytes_load_u32(page + STATE_AT_CALIBRATION);
    if (memcmp(page, STATE_MAGIC, 8) != 0 || bytes_load_u64(page + PAGE_PAYLOAD) != XXH3_64bits(page, PAGE_PAYLOAD) ||
        stage > STAGE_WRITTEN || bytes > PAGE_PAYLOAD - STATE_AT_CALIBRATION - 4)
        return refuse_state(b, QUIRE_ECORRUPT, "its work.state is damaged");
    if (bytes_load_u32(page + 8) != STATE_VERSION)
        return refuse_state(b, QUIRE_EVERSION, "another version of Quire has begun it");
    if (bytes_load_u64(page + 32) != b->state.options_hash)
        return refuse_state(b, QUIRE_EINVALID, "with other options, keys, attributes or another shape of the input");
    if (bytes_load_u64(page + 24) != b->state.input_hash)
        return refuse_state(b, QUIRE_EINVALID, "of other vectors: the input has changed since");
    b->state.stage = (enum build_stage)stage;
    b->state.linked_groups = bytes_load_u32(page + 16);
    memcpy(b->segment_id, page + 40, sizeof b->segment_id);
    if (stage >= STAGE_TABLES) {
        int rc = format_params_decode(page + STATE_AT_PARAMS, &b->params, b->err);
        if (rc < 0)
            return rc;
    }
    if (bytes == 0)
        return 0;
    assert(!b->calibration);
    b->calibration = malloc(bytes);
    b->calibration_bytes = bytes;
    if (b->calibration)
        memcpy(b->calibration, page + STATE_AT_CALIBRATION + 4, bytes);
    return b->calibration ? 0 : QUIRE_ENOMEM;
}

int build_load_state(struct build *b)
{
    uint8_t page[PAGE_BYTES];
    struct io_file *file = NULL;
    struct quire_error ignored;
    assert(b->options.resume && b->folder && b->state.stage == STAGE_NONE);
    if (hash_options(b) < 0)
        return QUIRE_ENOMEM;
    b->state.saved_ns = clock_ns();
    char *path = build_file_path(b, WORK_STATE);
    int rc = path ? fs_open(b->fs, path, FS_READ, &file, &ignored) : QUIRE_ENOMEM;
    if (rc == QUIRE_ENOFILE) {
        free(path);
        return rc;
    }
    if (rc < 0)
        error_set(b->err, rc, "cannot open %s: %s", path ? path : b->folder, quire_error_text(rc));
    else if (file->bytes != sizeof page)
        rc = refuse_state(b, QUIRE_ECORRUPT, "its work.state is damaged");
    else
        rc = fs_read_exact(file, page, sizeof page, 0, b->err);
    fs_close(file);
    free(path);
    return rc < 0 ? rc : take_state(b, page);
}
