/*
 * segment.c - opening a segment: which files, what of them stays in memory, and what is refused.
 *
 * Order: meta (parameters, mean, calibration, list of files), then each file's superblock against that list, then the
 * resident parts, whose checksums are verified while they are read. Blocks, key pages and heaps are checked when a
 * search reads them. A file that belongs to another segment, an older copy, is refused by its segment id and by the
 * checksum of its superblock.
 *
 * The budget: centres are always resident; the widest navigation code that fits next to them and a reserve for block
 * buffers is loaded with its factors, and what then is left keeps hot blocks. When not even the 1-bit code fits, the
 * codes of edges inside the blocks are used where the index has them; else opening fails and names the least budget.
 * Columns of attributes and tenants are always resident, and come off the budget before any code is chosen.
 * Of inverted lists directory and heads are always resident, and the codes of all rows where they fit.
 */
#include "index/column/columns.h"
#include "index/format/block.h"
#include "index/format/index_kind.h"
#include "index/segment/segment_priv.h"
#include "index/segment/selection.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RESERVE_BYTES          (6u << 20) /* of a budget: what a process with two lanes holds besides (measured) */
#define CACHE_SHARE            20u        /* a cache is made if one such part of the budget is left for it */
#define CALIBRATION_POINTS_MAX 4096u

struct opening {
    struct segment *s;
    struct io_fs *fs;
    const struct segment_options *options;
    const char *path;
    uint8_t files[8 * FILE_ENTRY_BYTES];
    uint32_t n_files;
    struct quire_error *err;
};

static int open_file(struct opening *o, const char *name, uint32_t kind, unsigned flags, struct section_file **out)
{
    char *path;
    if (asprintf(&path, "%s/%s", o->path, name) < 0)
        return QUIRE_ENOMEM;
    const uint8_t *id = kind == FILE_META ? NULL : o->s->segment_id;
    int rc = section_file_open(o->fs, path, kind, id, flags, out, o->err);
    free(path);
    return rc;
}

static int load_mean(struct opening *o, struct section_file *meta)
{
    struct segment *s = o->s;
    const struct section_entry *entry = NULL;
    int rc = format_section(meta, META_MEAN, 4ull * s->space.work_dim, &entry, o->err);
    if (rc == 0)
        rc = section_load(meta, entry, s->space.mean, o->err);
    for (uint32_t i = 0; rc == 0 && i < s->space.work_dim; i++) {
        s->space.mean[i] = bytes_load_f32((const uint8_t *)&s->space.mean[i]);
        if (!isfinite(s->space.mean[i]))
            rc = error_set(o->err, QUIRE_ECORRUPT, "%s: the mean is not finite", o->path);
    }
    return rc;
}

static int load_calibration(struct opening *o, struct section_file *meta)
{
    struct segment *s = o->s;
    const struct section_entry *entry = NULL;
    int rc = format_section(meta, META_CALIBRATION, UINT64_MAX, &entry, o->err);
    if (rc < 0)
        return rc;
    uint64_t n = entry->bytes / CALIBRATION_POINT_BYTES;
    if (entry->bytes % CALIBRATION_POINT_BYTES || n > CALIBRATION_POINTS_MAX)
        return error_set(o->err, QUIRE_ECORRUPT, "%s: calibration of %llu bytes", o->path,
                         (unsigned long long)entry->bytes);
    uint8_t *bytes = malloc(entry->bytes + 1);
    s->calibration = calloc(n + 1, sizeof *s->calibration);
    rc = bytes && s->calibration ? section_load(meta, entry, bytes, o->err) : QUIRE_ENOMEM;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        const uint8_t *p = bytes + i * CALIBRATION_POINT_BYTES;
        uint32_t k = bytes_load_u32(p);
        s->calibration[i] = (struct calibration_point){k & ~CALIBRATION_ESTIMATES, bytes_load_u32(p + 4),
                                                       bytes_load_f32(p + 8), bytes_load_f32(p + 12)};
        if (k & CALIBRATION_ESTIMATES)
            s->n_estimates++;
        else if (s->n_estimates > 0)
            rc = error_set(o->err, QUIRE_ECORRUPT, "%s: calibration: point %llu stands behind those of estimates",
                           o->path, (unsigned long long)i);
        else
            s->n_calibration++;
    }
    s->estimates = s->calibration ? s->calibration + s->n_calibration : NULL;
    free(bytes);
    return rc;
}

/* What a process holds besides, as a part of a budget. */
static uint64_t reserve_of(uint64_t budget)
{
    return budget && budget / 4 < RESERVE_BYTES ? budget / 4 : RESERVE_BYTES;
}

static int load_meta(struct opening *o)
{
    struct section_file *meta = NULL;
    const struct section_entry *entry = NULL;
    struct segment *s = o->s;
    uint8_t params[PARAMS_BYTES];
    int rc = open_file(o, META_NAME, FILE_META, FS_READ, &meta);
    if (rc < 0)
        return rc;
    s->info.index_bytes = section_file_bytes(meta);
    memcpy(s->segment_id, section_file_segment_id(meta), 16);
    if ((rc = format_section(meta, META_PARAMS, PARAMS_BYTES, &entry, o->err)) < 0 ||
        (rc = section_load(meta, entry, params, o->err)) < 0)
        goto out;
    struct quire_error inner = {0};
    rc = format_params_decode(params, &s->params, &inner);
    if (rc < 0) {
        error_set(o->err, rc, "%s: %s", o->path, inner.message);
        goto out;
    }
    const struct segment_params *p = &s->params;
    s->info.memory_bytes = o->options->memory_bytes ? o->options->memory_bytes : p->memory_bytes;
    s->info.reserve_bytes = reserve_of(s->info.memory_bytes);
    s->shape = (struct block_shape){p->block_bytes, p->slot_bytes, p->factor_bytes, p->edge_code_bytes};
    rc = space_init(&s->space, (enum quire_metric)p->metric, (enum quire_type)p->type, p->dim, p->seed);
    if (rc < 0)
        goto out;
    s->space.norm2_max = p->norm2_max;
    if ((rc = load_mean(o, meta)) < 0 || (!o->options->rows_only && (rc = load_calibration(o, meta)) < 0) ||
        (rc = format_section(meta, META_FILES, UINT64_MAX, &entry, o->err)) < 0)
        goto out;
    if (entry->bytes > sizeof o->files || entry->bytes % FILE_ENTRY_BYTES) {
        rc = error_set(o->err, QUIRE_ECORRUPT, "%s: list of files of %llu bytes", o->path,
                       (unsigned long long)entry->bytes);
        goto out;
    }
    o->n_files = (uint32_t)(entry->bytes / FILE_ENTRY_BYTES);
    rc = section_load(meta, entry, o->files, o->err);
out:
    section_file_close(meta);
    return rc;
}

/* Opens a listed file and compares size and superblock with the list. */
static int open_listed(struct opening *o, const char *name, uint32_t kind, struct section_file **out)
{
    unsigned flags = FS_READ | (o->options->buffered ? 0 : FS_DIRECT);
    const uint8_t *listed = NULL;
    for (uint32_t i = 0; i < o->n_files; i++)
        if (strncmp((const char *)o->files + i * FILE_ENTRY_BYTES, name, 16) == 0)
            listed = o->files + i * FILE_ENTRY_BYTES;
    if (!listed)
        return error_set(o->err, QUIRE_ECORRUPT, "%s: the meta file does not list %s", o->path, name);
    int rc = open_file(o, name, kind, flags, out);
    if (rc < 0)
        return rc;
    struct io_file *file = section_file_io(*out);
    uint8_t *superblock = memory_for_read(SECTION_ALIGN);
    rc = superblock ? fs_read_exact(file, superblock, SECTION_ALIGN, 0, o->err) : QUIRE_ENOMEM;
    if (rc == 0 && (bytes_load_u64(listed + 16) != file->bytes ||
                    bytes_load_u64(listed + 24) != XXH3_64bits(superblock, SECTION_ALIGN)))
        rc = error_set(o->err, QUIRE_ECORRUPT, "%s is not the file that this index was built with", file->path);
    memory_read_end(superblock, SECTION_ALIGN);
    o->s->info.index_bytes += file->bytes;
    return rc;
}

static int load_resident(struct opening *o, struct section_file *codes, uint32_t id, uint64_t bytes, void **out,
                         size_t *mapped)
{
    const struct section_entry *entry = NULL;
    int rc = format_section(codes, id, bytes, &entry, o->err);
    if (rc < 0)
        return rc;
    *out = memory_map(bytes, 1);
    if (!*out)
        return error_set(o->err, QUIRE_ENOMEM, "no memory for %llu bytes of %s", (unsigned long long)bytes, CODES_NAME);
    assert(*mapped == 0);
    *mapped = bytes;
    o->s->info.resident_bytes += bytes;
    return section_load(codes, entry, *out, o->err);
}

/* Bytes of codes of so many bits, and of what is resident beside them. */
static uint64_t codes_need(const struct segment_params *p, uint64_t columns_bytes, unsigned bits)
{
    return entry_bytes_of(p->n_blocks, p->code_dim) + columns_bytes + cells_bytes_of(p) +
           p->rows * (4 + (uint64_t)code_bytes_of(p->code_dim, bits));
}

unsigned segment_code_bits(const struct segment_params *p, uint64_t columns_bytes, uint64_t budget, unsigned widest)
{
    unsigned found = 0;
    for (unsigned w = 0; w < NAV_WIDTHS && nav_bits[w] <= widest; w++)
        if (!budget || codes_need(p, columns_bytes, nav_bits[w]) + (w > 0 ? reserve_of(budget) : 0) <= budget)
            found = nav_bits[w];
    return found;
}

/* The widest code that fits. The kernel counts more than codes: program, libraries, stacks and the buffers of
 * searches. So a wider code than the narrowest is taken only if that much is left, or of a small budget, which such a
 * process exceeds anyhow, a quarter. Below the narrowest, edge codes do if there are any. */
static int choose_width(struct opening *o, const struct section_file *codes)
{
    struct segment *s = o->s;
    uint64_t budget = s->info.memory_bytes;
    uint64_t entries = entry_bytes_of(s->params.n_blocks, s->params.code_dim);
    uint64_t columns = s->info.resident_columns_bytes, least = 0, reserve = s->info.reserve_bytes;
    bool found = false;
    for (unsigned w = 0; w < NAV_WIDTHS && !o->options->edge_codes; w++) {
        if (!section_find(codes, CODES_NAVIGATION + nav_bits[w]) ||
            (o->options->code_bits && o->options->code_bits != nav_bits[w]))
            continue;
        uint64_t need = codes_need(&s->params, columns, nav_bits[w]);
        if (budget && need + (least ? reserve : 0) > budget) {
            least = least ? least : need;
            continue;
        }
        least = least ? least : need;
        s->width = w;
        found = true;
    }
    if (found)
        return 0;
    s->width = NAV_WIDTHS;
    if (s->params.edge_code_bytes)
        least = entries + columns;
    if (s->params.edge_code_bytes && (!budget || least <= budget))
        return 0;
    return error_set(
        o->err, QUIRE_ELIMIT,
        "a memory budget of %llu bytes is below the %llu that the %s%s of %s need: raise --memory (server: "
        "index-memory, or VLOAD ... MEMORY)%s",
        (unsigned long long)budget, (unsigned long long)least,
        s->params.edge_code_bytes ? "centres of the blocks" : "narrowest navigation codes",
        columns ? " and the columns of attributes" : "", o->path,
        s->params.edge_code_bytes ? "" : ", or build with this --memory, which puts codes into the blocks");
}

static int decode_factors(const struct opening *o)
{
    struct segment *s = o->s;
    for (uint64_t i = 0; s->nav_factors && i < 2 * s->params.rows; i++)
        s->nav_factors[i] = bytes_load_u16((const uint8_t *)&s->nav_factors[i]);
    for (uint64_t i = 0; i < 3ull * s->params.n_blocks; i++)
        if (!isfinite(s->centres.factors[i] = bytes_load_f32((const uint8_t *)&s->centres.factors[i])))
            return error_set(o->err, QUIRE_ECORRUPT, "%s: the centre of block %llu is not finite", o->path,
                             (unsigned long long)i / 3);
    return 0;
}

bool segment_lists_fit(const struct segment_params *p, uint64_t columns_bytes, uint64_t budget)
{
    uint64_t need =
        columns_bytes + entry_bytes_of(p->n_blocks, p->code_dim) + lists_bytes_of(p) + lists_codes_bytes_of(p);
    return budget == 0 || need + reserve_of(budget) <= budget;
}

/* Directory and heads, and the codes where the budget has room for them beside the reserve. */
static int load_lists(struct opening *o, struct section_file *codes)
{
    struct segment *s = o->s;
    const struct segment_params *p = &s->params;
    uint64_t budget = s->info.memory_bytes;
    uint64_t columns = s->info.resident_columns_bytes;
    uint64_t fixed = columns + entry_bytes_of(p->n_blocks, p->code_dim) + lists_bytes_of(p);
    const struct section_entry *entry = NULL;
    if (budget && fixed > budget)
        return error_set(o->err, QUIRE_ELIMIT,
                         "a memory budget of %llu bytes is below the %llu that the heads%s of %s need: raise --memory "
                         "(server: index-memory, or VLOAD ... MEMORY)",
                         (unsigned long long)budget, (unsigned long long)fixed,
                         columns ? " and the columns of attributes" : "", o->path);
    int rc = lists_open(p, codes, &s->lists, o->err);
    if (rc == 0)
        rc = open_listed(o, POSTINGS_NAME, FILE_POSTINGS, &s->postings);
    if (rc == 0)
        rc = format_section(s->postings, POSTINGS_POSTINGS, UINT64_MAX, &entry, o->err);
    if (rc < 0)
        return rc;
    assert(entry);
    s->postings_at = entry->offset;
    if (entry->bytes != lists_postings_bytes(s->lists, p))
        return error_set(o->err, QUIRE_ECORRUPT, "%s: postings of %llu bytes, expected %llu", o->path,
                         (unsigned long long)entry->bytes, (unsigned long long)lists_postings_bytes(s->lists, p));
    s->width = (unsigned)kernels_code_index(p->list_bits);
    s->info.resident_bytes += s->lists->heads_bytes;
    if (o->options->read_lists || !segment_lists_fit(p, columns, budget))
        return 0;
    rc = lists_load_codes(s->lists, p, s->postings, s->postings_at, s->segment_id, o->err);
    s->info.resident_bytes += s->lists->codes_mapped + s->lists->factors_mapped;
    return rc;
}

/* Before the codes: what columns take, the budget no longer has. */
static int load_columns(struct opening *o)
{
    struct segment *s = o->s;
    struct section_file *listed = NULL;
    struct columns_stats stats;
    char *path = NULL;
    if (!s->params.has_columns)
        return 0;
    int rc = open_listed(o, COLUMNS_NAME, FILE_COLUMNS, &listed);
    section_file_close(listed);
    if (rc == 0 && asprintf(&path, "%s/%s", o->path, COLUMNS_NAME) < 0)
        return QUIRE_ENOMEM;
    if (rc == 0)
        rc = columns_open(o->fs, path, s->segment_id, (uint32_t)s->params.rows, &s->columns, o->err);
    free(path);
    if (rc < 0)
        return rc;
    columns_get_stats(s->columns, &stats);
    s->info.resident_columns_bytes = stats.column_bytes + stats.tenant_bytes;
    s->info.resident_bytes += s->info.resident_columns_bytes;
    return 0;
}

/* The centres of all blocks, as codes with their factors. */
static int load_centre_codes(struct opening *o, struct section_file *codes)
{
    struct segment *s = o->s;
    uint64_t blocks = s->params.n_blocks;
    void *centres = NULL, *factors = NULL;
    int rc = load_resident(o, codes, CODES_CENTRES, blocks * code_bytes_of(s->params.code_dim, CENTRE_BITS), &centres,
                           &segment_whole(s)->centre_codes_mapped);
    s->centres.codes = centres;
    if (rc == 0)
        rc = load_resident(o, codes, CODES_CENTRE_FACTORS, blocks * 12, &factors,
                           &segment_whole(s)->centre_factors_mapped);
    s->centres.factors = factors;
    s->centres.n = s->params.n_blocks;
    return rc;
}

/* What rows are known by without their blocks, where the budget has room beside all that is resident: searches for
 * estimates need it. */
static int load_naming(struct opening *o, struct section_file *codes)
{
    struct segment *s = o->s;
    enum segment_naming naming = o->options->naming;
    naming = !s->params.user_keys && naming != SEGMENT_NOTHING ? SEGMENT_NUMBERS : naming;
    bool numbers = naming != SEGMENT_NAMES && section_find(codes, CODES_NUMBERS), names = naming != SEGMENT_NUMBERS;
    bool codes_are_resident = s->nav_codes || (s->lists && s->lists->codes) || o->options->naming == SEGMENT_BOTH;
    uint64_t rows = s->params.rows, budget = s->info.memory_bytes;
    uint64_t bytes = (numbers ? numbers_bytes_of(rows) : 0) + (names ? names_bytes_of(codes, rows) : 0);
    if (naming == SEGMENT_NOTHING || !codes_are_resident ||
        (budget && s->info.resident_bytes + bytes + reserve_of(budget) > budget))
        return 0;
    int rc = numbers ? numbers_open(codes, rows, &s->numbers, o->err) : 0;
    if (rc == 0 && names)
        rc = names_open(codes, rows, &s->names, o->err);
    s->info.resident_naming_bytes = rc == 0 ? bytes : 0;
    s->info.resident_bytes += s->info.resident_naming_bytes;
    return rc;
}

static int load_codes(struct opening *o)
{
    struct segment *s = o->s;
    struct section_file *codes = NULL;
    bool lists = s->params.index == QUIRE_INDEX_SPANN;
    int rc = open_listed(o, CODES_NAME, FILE_CODES, &codes);
    if (rc < 0 || (rc = lists ? load_lists(o, codes) : choose_width(o, codes)) < 0)
        goto out;
    uint64_t rows = s->params.rows;
    void *codes_mem = NULL, *factors = NULL;
    bool resident = !lists && s->width < NAV_WIDTHS;
    s->width = resident || lists ? s->width : EDGE_CODE_WIDTH;
    unsigned bits = nav_bits[s->width];
    s->nav_bytes = code_bytes_of(s->params.code_dim, bits);
    if (resident)
        rc = load_resident(o, codes, CODES_NAVIGATION + bits, rows * s->nav_bytes, &codes_mem,
                           &segment_whole(s)->nav_codes_mapped);
    s->nav_codes = codes_mem;
    if (rc == 0 && resident)
        rc = load_resident(o, codes, CODES_NAV_FACTORS + bits, rows * 4, &factors,
                           &segment_whole(s)->nav_factors_mapped);
    s->nav_factors = factors;
    if (rc == 0)
        rc = load_centre_codes(o, codes);
    if (rc < 0)
        goto out;
    if ((rc = decode_factors(o)) < 0)
        goto out;
    s->sigma_factor = 2 * s->params.error[s->width] / sqrtf((float)s->params.code_dim - 1);
    rc = entry_init(&s->entry, &s->centres, s->params.code_dim);
    s->info.resident_bytes += s->entry.bytes;
    if (rc == 0 && resident)
        rc = cells_open(&s->params, codes, &s->cells, o->err);
    s->info.resident_bytes += s->cells ? s->cells->bytes : 0;
    if (rc == 0)
        rc = load_naming(o, codes);
out:
    section_file_close(codes);
    return rc;
}

/* What the budget leaves beside codes and reserve keeps hot blocks, if it is enough to matter. */
static int make_cache(struct opening *o)
{
    struct segment *s = o->s;
    uint64_t budget = s->info.memory_bytes, used = s->info.resident_bytes + RESERVE_BYTES;
    assert(!s->cache && s->centres.codes); /* what is left is known last */
    if (o->options->no_cache || budget == 0 || budget == UINT64_MAX || used >= budget ||
        budget - used < budget / CACHE_SHARE)
        return 0;
    int rc = block_cache_create(budget - used, s->params.block_bytes, s->params.n_blocks, &s->cache);
    if (rc == 0) {
        s->info.cache_bytes = block_cache_bytes(s->cache);
        s->info.reserve_bytes = RESERVE_BYTES;
    }
    /* room for fewer than a few blocks, or no memory after all: searches go without */
    return rc == QUIRE_ELIMIT || rc == QUIRE_ENOMEM ? 0 : rc;
}

static int open_disk_parts(struct opening *o)
{
    struct segment *s = o->s;
    const struct segment_params *p = &s->params;
    uint64_t row_pages = (p->rows + ROWS_PER_PAGE - 1) / ROWS_PER_PAGE, unused;
    uint64_t index_pages = (p->rows + ATTRIBUTES_PER_PAGE - 1) / ATTRIBUTES_PER_PAGE;
    /* which sections there must be, their bytes (UINT64_MAX: any), and where place and bytes are kept */
    const struct {
        bool exists;
        const char *name;
        uint32_t kind, section;
        struct section_file **file;
        uint64_t bytes, *at, *kept_bytes;
    } parts[] = {
        {true, BLOCKS_NAME, FILE_BLOCKS, BLOCKS_BLOCKS, &s->blocks, (uint64_t)p->n_blocks * p->block_bytes,
         &s->blocks_at, &unused},
        {p->user_keys, KEYS_NAME, FILE_KEYS, KEYS_BUCKETS, &s->keys, (uint64_t)p->key_buckets * PAGE_BYTES,
         &s->buckets_at, &unused},
        {p->user_keys, KEYS_NAME, FILE_KEYS, KEYS_HEAP, &s->keys, UINT64_MAX, &s->heap_at, &s->heap_bytes},
        {!p->user_keys, KEYS_NAME, FILE_KEYS, KEYS_ROWS, &s->keys, row_pages * PAGE_BYTES, &s->rows_at, &unused},
        {p->has_attributes, ATTRIBUTES_NAME, FILE_ATTRIBUTES, ATTRIBUTES_INDEX, &s->attributes,
         index_pages * PAGE_BYTES, &s->attribute_index_at, &unused},
        {p->has_attributes, ATTRIBUTES_NAME, FILE_ATTRIBUTES, ATTRIBUTES_HEAP, &s->attributes, UINT64_MAX,
         &s->attribute_heap_at, &s->attribute_heap_bytes},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct section_entry *entry = NULL;
        int rc = 0;
        if (!parts[i].exists)
            continue;
        if (!*parts[i].file)
            rc = open_listed(o, parts[i].name, parts[i].kind, parts[i].file);
        if (rc == 0)
            rc = format_section(*parts[i].file, parts[i].section, parts[i].bytes, &entry, o->err);
        if (rc < 0)
            return rc;
        assert(entry);
        *parts[i].at = entry->offset;
        *parts[i].kept_bytes = entry->bytes;
    }
    return 0;
}

static int open_damaged(struct opening *o, const char *name, uint32_t kind, struct section_file **out)
{
    char *path;
    if (asprintf(&path, "%s/%s", o->path, name) < 0)
        return QUIRE_ENOMEM;
    unsigned flags = FS_READ | (o->options->buffered ? 0 : FS_DIRECT);
    int rc = section_file_open_damaged(o->fs, path, kind, o->s->segment_id, flags, out, o->err);
    free(path);
    return rc;
}

/* What a slot of 8-bit codes is relative to. */
static int load_centres(struct opening *o)
{
    struct segment *s = o->s;
    struct section_file *codes = NULL;
    int rc = open_damaged(o, CODES_NAME, FILE_CODES, &codes);
    if (rc == 0)
        rc = load_centre_codes(o, codes);
    s->entry.code_bytes = code_bytes_of(s->params.code_dim, CENTRE_BITS);
    section_file_close(codes);
    return rc == 0 ? decode_factors(o) : rc;
}

/* For segment_scan: blocks, long keys if they can be had, attributes, and what slots are relative to. The list of files
 * is not asked: a file that is another than it was still proves its blocks and records by the segment's id. */
static int open_rows(struct opening *o)
{
    struct segment *s = o->s;
    const struct segment_params *p = &s->params;
    const struct section_entry *blocks, *keys, *index, *heap;
    int rc = p->slot == QUIRE_SLOT_Q8 ? load_centres(o) : 0;
    if (rc == 0)
        rc = open_damaged(o, BLOCKS_NAME, FILE_BLOCKS, &s->blocks);
    if (rc < 0)
        return rc;
    blocks = section_find(s->blocks, BLOCKS_BLOCKS);
    s->blocks_at = blocks ? blocks->offset : SECTION_ALIGN; /* the first and only section */
    struct quire_error *err = o->err, ignored;
    o->err = &ignored; /* elements with short keys do without */
    keys =
        p->user_keys && open_damaged(o, KEYS_NAME, FILE_KEYS, &s->keys) == 0 ? section_find(s->keys, KEYS_HEAP) : NULL;
    o->err = err;
    if (keys) {
        s->heap_at = keys->offset;
        s->heap_bytes = keys->bytes;
    } else {
        section_file_close(s->keys);
        s->keys = NULL;
    }
    if (!p->has_attributes)
        return 0;
    rc = open_damaged(o, ATTRIBUTES_NAME, FILE_ATTRIBUTES, &s->attributes);
    if (rc == 0)
        rc = format_section(s->attributes, ATTRIBUTES_INDEX, UINT64_MAX, &index, err);
    if (rc == 0)
        rc = format_section(s->attributes, ATTRIBUTES_HEAP, UINT64_MAX, &heap, err);
    if (rc == 0) {
        s->attribute_index_at = index->offset;
        s->attribute_heap_at = heap->offset;
        s->attribute_heap_bytes = heap->bytes;
    }
    return rc;
}

static void fill_info(struct segment *s)
{
    const struct segment_whole *whole = segment_whole(s);
    const struct segment_params *p = &s->params;
    struct segment_info *info = &s->info;
    info->rows = p->rows;
    info->dim = p->dim;
    info->type = (enum quire_type)p->type;
    info->metric = (enum quire_metric)p->metric;
    info->slot = (enum quire_slot)p->slot;
    info->block_bytes = p->block_bytes;
    info->n_blocks = p->n_blocks;
    info->slots_per_block = p->slots_per_block;
    info->code_dim = p->code_dim;
    info->index = (enum quire_index_kind)p->index;
    info->index_reason = index_kind_reason_text(p->kind_reason);
    info->n_lists = p->n_lists;
    info->list_entries = p->list_entries;
    info->list_bits = p->list_bits;
    info->code_bits = s->nav_codes || (s->lists && s->lists->codes) ? nav_bits[s->width] : 0;
    info->edge_codes = p->edge_code_bytes > 0;
    info->degree = p->degree;
    info->build_beam = p->pool;
    info->seed = p->seed;
    info->raw_bytes = p->rows * p->dim * quire_type_bytes(info->type);
    info->resident_codes_bytes = s->lists ? s->lists->codes_mapped : whole->nav_codes_mapped;
    info->resident_factors_bytes = s->lists ? s->lists->factors_mapped : whole->nav_factors_mapped;
    info->resident_heads_bytes = s->lists ? s->lists->heads_bytes : 0;
    info->resident_entries_bytes =
        whole->centre_codes_mapped + whole->centre_factors_mapped + s->entry.bytes + (s->cells ? s->cells->bytes : 0);
    info->n_entries = p->n_blocks;
    info->direct_io = section_file_io(s->blocks)->direct;
    info->user_keys = p->user_keys;
    info->has_attributes = p->has_attributes;
    info->has_columns = p->has_columns;
    info->format_version = p->format_version;
}

static void segment_free(struct segment *s)
{
    struct segment_whole *whole = segment_whole(s);
    assert(atomic_load_explicit(&whole->references, memory_order_relaxed) <= 1);
    section_file_close(s->blocks);
    section_file_close(s->keys);
    section_file_close(s->attributes);
    section_file_close(s->postings);
    lists_close(s->lists);
    selections_fini(s);
    columns_close(s->columns);
    memory_unmap(s->nav_codes, whole->nav_codes_mapped);
    memory_unmap(s->nav_factors, whole->nav_factors_mapped);
    block_cache_destroy(s->cache);
    entry_fini(&s->entry);
    cells_close(s->cells);
    numbers_close(s->numbers);
    names_close(s->names);
    memory_unmap(s->centres.codes, whole->centre_codes_mapped);
    memory_unmap(s->centres.factors, whole->centre_factors_mapped);
    space_fini(&s->space);
    free(s->calibration);
    free((char *)s->info.path);
    free(whole);
}

int segment_open(const char *path, const struct segment_options *options, struct segment **out, struct quire_error *err)
{
    static const struct segment_options defaults;
    struct opening o = {.options = options ? options : &defaults, .path = path, .err = err};
    o.fs = o.options->fs ? o.options->fs : fs_real();
    if (err)
        memset(err, 0, sizeof *err);
    struct segment_whole *whole = calloc(1, sizeof *whole);
    if (!whole)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    o.s = &whole->view;
    atomic_init(&whole->references, 1);
    pthread_mutex_init(&whole->selections.mutex, NULL);
    o.s->info.path = strdup(path);
    int rc = o.s->info.path ? load_meta(&o) : QUIRE_ENOMEM;
    if (rc == 0 && o.options->rows_only) {
        rc = open_rows(&o);
    } else if (rc == 0) {
        rc = load_columns(&o);
        if (rc == 0)
            rc = load_codes(&o);
        if (rc == 0)
            rc = open_disk_parts(&o);
        if (rc == 0)
            rc = make_cache(&o);
    }
    if (rc < 0) {
        segment_free(o.s);
        if (err && err->code == 0)
            error_set(err, rc, "cannot open %s: %s", path, quire_error_text(rc));
        return rc;
    }
    fill_info(o.s);
    assert(!o.s->lists == !o.s->postings);
    assert(o.options->rows_only || !o.s->columns == !o.s->params.has_columns);
    assert(!o.s->nav_codes == !o.s->nav_factors && (!o.s->cells || o.s->nav_codes));
    *out = o.s;
    return 0;
}

struct segment *segment_ref(struct segment *s)
{
    unsigned before = atomic_fetch_add_explicit(&segment_whole(s)->references, 1, memory_order_relaxed);
    assert(before > 0); /* only who has a reference gives one away */
    return s;
}

void segment_retire(struct segment *s)
{
    assert(atomic_load_explicit(&segment_whole(s)->references, memory_order_relaxed) > 0);
    atomic_store_explicit(&s->retired, true, memory_order_relaxed);
}

bool segment_is_retired(const struct segment *s)
{
    return atomic_load_explicit(&s->retired, memory_order_relaxed);
}

bool segment_is_shared(const struct segment *s)
{
    const struct segment_whole *whole = segment_whole((struct segment *)(uintptr_t)s);
    return atomic_load_explicit(&whole->references, memory_order_acquire) > 1;
}

void segment_unref(struct segment *s)
{
    if (s && atomic_fetch_sub_explicit(&segment_whole(s)->references, 1, memory_order_acq_rel) == 1)
        segment_free(s);
}

void segment_cache_stats(const struct segment *s, struct block_cache_stats *out)
{
    memset(out, 0, sizeof *out);
    if (s->cache)
        block_cache_stats(s->cache, out);
}

const struct segment_info *segment_info(const struct segment *s)
{
    return &s->info;
}

const struct columns *segment_columns(const struct segment *s)
{
    return s->columns;
}

void segment_list_lengths(const struct segment *s, uint32_t *rows, uint32_t *bytes)
{
    for (uint32_t i = 0; s->lists && i < s->lists->n; i++) {
        const struct list_entry *e = &s->lists->entries[i];
        struct posting_block_shape shape = {.bytes = 0};
        posting_block_shape(e->entries, e->own, s->params.code_dim, s->params.list_bits, &shape);
        rows[i] = e->entries;
        bytes[i] = shape.bytes;
    }
}

float segment_curve_effort(const struct calibration_point *points, uint32_t n, float recall)
{
    assert(n > 0);
    if (recall <= points[0].recall)
        return (float)points[0].effort;
    for (uint32_t i = 1; i < n; i++) {
        if (points[i].recall < recall)
            continue;
        float below = points[i - 1].recall, above = points[i].recall;
        float part = above > below ? (recall - below) / (above - below) : 1;
        float low = logf((float)points[i - 1].effort), high = logf((float)points[i].effort);
        return expf(low + part * (high - low));
    }
    return 4 * (float)points[n - 1].effort;
}

uint32_t segment_effort(const struct segment *s, float recall, uint32_t k, bool estimates)
{
    bool measured = estimates && s->n_estimates > 0;
    const struct calibration_point *points = measured ? s->estimates : s->calibration;
    uint32_t n_points = measured ? s->n_estimates : s->n_calibration;
    float effort = 0, before_k = 0;
    for (uint32_t i = 0, n; i < n_points; i += n) {
        const struct calibration_point *p = points + i;
        for (n = 1; i + n < n_points && p[n].k == p[0].k; n++)
            ;
        float here = segment_curve_effort(p, n, recall);
        if (effort > 0 && (float)k > before_k && k < p[0].k) {
            float part = (logf((float)k) - logf(before_k)) / (logf((float)p[0].k) - logf(before_k));
            effort = expf(logf(effort) + part * (logf(here) - logf(effort)));
            before_k = 0;
            break;
        }
        effort = effort > 0 && (float)k <= before_k ? effort : here;
        before_k = (float)p[0].k;
        if (k <= p[0].k)
            break;
    }
    if (effort == 0)
        effort = 64 * (1 + (float)k / 20);
    if (before_k > 0 && (float)k > before_k)
        effort *= (float)k / before_k;
    effort *= segment_effort_factor(s);
    return effort < (float)UINT32_MAX / 2 ? (uint32_t)ceilf(effort) : UINT32_MAX / 2;
}

uint32_t segment_calibration(const struct segment *s, struct quire_calibration_point *points, uint32_t capacity)
{
    float factor = segment_effort_factor(s);
    uint32_t n = s->n_calibration + s->n_estimates;
    for (uint32_t i = 0; i < capacity && i < n; i++) {
        const struct calibration_point *p = &s->calibration[i]; /* the others lie behind */
        points[i] = (struct quire_calibration_point){.k = p->k,
                                                     .effort = (uint32_t)ceilf((float)p->effort * factor),
                                                     .recall = p->recall,
                                                     .reads = p->reads,
                                                     .distance = i < s->n_calibration ? QUIRE_DISTANCE_EXACT
                                                                                      : QUIRE_DISTANCE_ESTIMATE};
    }
    return n;
}

void segment_centre(const struct segment *s, uint32_t block, float *out)
{
    assert(block < s->params.n_blocks);
    code_decode(s->centres.codes + (size_t)block * s->entry.code_bytes, s->params.code_dim, CENTRE_BITS,
                s->centres.factors[ENTRY_FACTORS * (size_t)block], out);
}

void segment_slot_vector(const struct segment *s, uint32_t block, const uint8_t *slot, const uint8_t *factor,
                         float *rotated, float *out)
{
    const struct segment_params *p = &s->params;
    if (p->slot != QUIRE_SLOT_Q8) {
        space_floats(format_slot_type(p->slot), slot, p->dim, out);
        return;
    }
    if (p->unit_codes) {
        unit_code_decode(&s->space.rotation, slot, factor, p->dim, rotated, out);
        return;
    }
    float f = bytes_load_f32(factor + 4);
    if (format_is_zero_vector(p, bytes_load_f32(factor), f)) {
        memset(out, 0, sizeof(float) * p->dim);
        return;
    }
    segment_centre(s, block, rotated);
    for (uint32_t i = 0; i < p->code_dim; i++)
        rotated[i] += f * ((float)slot[i] - 127.5f);
    space_restore(&s->space, rotated, out);
}
