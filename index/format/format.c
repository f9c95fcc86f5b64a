/*
 * format.c - encoding of parameters, pages and records.
 *
 * PARAMS is a fixed 256 bytes with every field at its own place (docs/format.md), written and read field by field: no
 * struct of the compiler's lies on disk. The places that are not used are zero and must be zero when read, so that a
 * later version which gives them a meaning raises SEGMENT_FORMAT_VERSION and is refused here in words.
 *
 * Values are checked against limits before anything is computed from them: a forged file must not make a reader
 * multiply into overflow or allocate without bound.
 */
#include "index/format/format.h"
#include "index/format/index_kind.h"
#include "index/format/posting_block.h"
#include "index/vector/rotation.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/sections.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PARAMS_USED 212u
#define WRITE_WORDS 1024u

const unsigned nav_bits[NAV_WIDTHS] = {1, 2, 4, 8};

void format_params_encode(const struct segment_params *p, uint8_t out[PARAMS_BYTES])
{
    memset(out, 0, PARAMS_BYTES);
    bytes_store_u32(out, p->format_version);
    bytes_store_u32(out + 4, p->metric);
    bytes_store_u32(out + 8, p->type);
    bytes_store_u32(out + 12, p->slot);
    bytes_store_u32(out + 16, p->dim);
    bytes_store_u32(out + 20, p->code_dim);
    bytes_store_u64(out + 24, p->rows);
    bytes_store_u32(out + 32, p->block_bytes);
    bytes_store_u32(out + 36, p->n_blocks);
    bytes_store_u32(out + 40, p->slots_per_block);
    bytes_store_u32(out + 44, p->slot_bytes);
    bytes_store_u32(out + 48, p->factor_bytes);
    bytes_store_u32(out + 52, p->degree);
    bytes_store_u32(out + 56, p->pool);
    bytes_store_u32(out + 60, p->user_keys);
    bytes_store_u32(out + 64, p->has_attributes);
    bytes_store_u32(out + 68, p->key_buckets);
    bytes_store_u64(out + 72, p->seed);
    bytes_store_u64(out + 80, p->memory_bytes);
    uint64_t bits;
    memcpy(&bits, &p->norm2_max, 8);
    bytes_store_u64(out + 88, bits);
    for (unsigned i = 0; i < NAV_WIDTHS; i++) {
        bytes_store_f32(out + 96 + 4 * i, p->scale_a[i]);
        bytes_store_f32(out + 112 + 4 * i, p->scale_f[i]);
        bytes_store_f32(out + 128 + 4 * i, p->error[i]);
        bytes_store_f32(out + 144 + 4 * i, p->effort_factor[i]);
    }
    bytes_store_u32(out + 160, p->edge_code_bytes);
    bytes_store_f32(out + 164, p->edge_effort_factor);
    bytes_store_f32(out + 168, p->spread);
    bytes_store_u32(out + 172, p->index);
    bytes_store_u32(out + 176, p->n_lists);
    bytes_store_u32(out + 180, p->list_bits);
    bytes_store_u32(out + 184, p->posting_bytes_max);
    bytes_store_u64(out + 188, p->list_entries);
    bytes_store_u32(out + 196, p->kind_reason);
    bytes_store_u32(out + 200, p->has_columns);
    bytes_store_u32(out + 204, p->run_rows);
    bytes_store_u32(out + 208, p->unit_codes);
}

enum quire_type format_slot_type(uint32_t slot)
{
    static const enum quire_type types[] = {[QUIRE_SLOT_F32] = QUIRE_TYPE_F32,
                                            [QUIRE_SLOT_F16] = QUIRE_TYPE_F16,
                                            [QUIRE_SLOT_I8] = QUIRE_TYPE_I8,
                                            [QUIRE_SLOT_U8] = QUIRE_TYPE_U8,
                                            [QUIRE_SLOT_BF16] = QUIRE_TYPE_BF16};
    assert(slot < sizeof types / sizeof *types && slot != QUIRE_SLOT_AUTO && slot != QUIRE_SLOT_Q8);
    return types[slot];
}

/* Sizes that follow from the kind of slot, and what else must agree with it. */
static int params_check_slots(const struct segment_params *p, struct quire_error *err)
{
    uint32_t slot_bytes =
        p->slot == QUIRE_SLOT_Q8 ? p->code_dim : p->dim * (uint32_t)quire_type_bytes(format_slot_type(p->slot));
    uint32_t factor_bytes = p->slot == QUIRE_SLOT_Q8 ? 8 : p->metric == QUIRE_METRIC_COSINE ? 4 : 0;
    if (p->slot_bytes != slot_bytes || p->factor_bytes != factor_bytes)
        return error_set(err, QUIRE_ECORRUPT, "parameters name slots of %u + %u bytes, expected %u + %u", p->slot_bytes,
                         p->factor_bytes, slot_bytes, factor_bytes);
    if ((p->slot == QUIRE_SLOT_I8 && p->type != QUIRE_TYPE_I8) ||
        (p->slot == QUIRE_SLOT_U8 && p->type != QUIRE_TYPE_U8))
        return error_set(err, QUIRE_ECORRUPT, "parameters name slot %u for type %u: they do not agree", p->slot,
                         p->type);
    if (p->unit_codes > 1 || (p->unit_codes && (p->slot != QUIRE_SLOT_Q8 || p->metric != QUIRE_METRIC_COSINE)))
        return error_set(err, QUIRE_ECORRUPT, "parameters name unit codes (%u) for slot %u, metric %u", p->unit_codes,
                         p->slot, p->metric);
    if (p->user_keys > 1 || p->has_attributes > 1 || p->has_columns > p->has_attributes ||
        (p->user_keys && p->key_buckets == 0))
        return error_set(err, QUIRE_ECORRUPT,
                         "parameters name %u key pages, keys %u, attributes %u, columns %u: out of range",
                         p->key_buckets, p->user_keys, p->has_attributes, p->has_columns);
    return 0;
}

static int params_check_lists(const struct segment_params *p, struct quire_error *err)
{
    if (p->kind_reason >= KIND_REASONS)
        return error_set(err, QUIRE_ECORRUPT, "parameters name reason %u for the kind of index: unknown",
                         p->kind_reason);
    if (p->index == QUIRE_INDEX_PAGEGRAPH) {
        if (p->n_lists || p->list_bits || p->posting_bytes_max || p->list_entries)
            return error_set(err, QUIRE_ECORRUPT, "parameters name %u inverted lists of a page graph", p->n_lists);
        return 0;
    }
    if (p->index != QUIRE_INDEX_SPANN)
        return error_set(err, QUIRE_ECORRUPT, "parameters name index kind %u: unknown", p->index);
    if (p->n_lists == 0 || p->n_lists > p->rows || p->list_entries < p->rows ||
        p->list_entries > p->rows * POSTING_COPIES_MAX)
        return error_set(err, QUIRE_ECORRUPT, "parameters name %llu rows in %u lists of %llu: they do not agree",
                         (unsigned long long)p->rows, p->n_lists, (unsigned long long)p->list_entries);
    if ((p->list_bits != 1 && p->list_bits != 2 && p->list_bits != 4) || p->edge_code_bytes ||
        p->posting_bytes_max % SECTION_ALIGN || p->posting_bytes_max == 0 || p->posting_bytes_max > POSTING_BYTES_MAX)
        return error_set(err, QUIRE_ECORRUPT,
                         "parameters name lists of %u bits in at most %u bytes, edge codes of %u: out of range",
                         p->list_bits, p->posting_bytes_max, p->edge_code_bytes);
    return 0;
}

static int params_check(const struct segment_params *p, struct quire_error *err)
{
    uint32_t work_dim = p->dim + (p->metric == QUIRE_METRIC_IP);
    if (p->metric > QUIRE_METRIC_IP || p->type > QUIRE_TYPE_BF16 || p->slot < QUIRE_SLOT_F32 ||
        p->slot > QUIRE_SLOT_BF16)
        return error_set(err, QUIRE_ECORRUPT, "parameters name metric %u, type %u, slot %u: unknown", p->metric,
                         p->type, p->slot);
    if (p->dim == 0 || p->dim > QUIRE_DIM_MAX || p->code_dim != rotation_code_dim(work_dim))
        return error_set(err, QUIRE_ECORRUPT, "parameters name dimension %u, code dimension %u: out of range", p->dim,
                         p->code_dim);
    if (p->rows == 0 || p->rows > QUIRE_ROWS_MAX || p->slots_per_block == 0 || p->slots_per_block > SLOTS_MAX ||
        p->n_blocks != (p->rows + p->slots_per_block - 1) / p->slots_per_block)
        return error_set(err, QUIRE_ECORRUPT, "parameters name %llu rows in %u blocks of %u: they do not agree",
                         (unsigned long long)p->rows, p->n_blocks, p->slots_per_block);
    if (p->block_bytes % QUIRE_BLOCK_BYTES_MIN || p->block_bytes < QUIRE_BLOCK_BYTES_MIN ||
        p->block_bytes > QUIRE_BLOCK_BYTES_MAX || p->slot_bytes == 0 ||
        (uint64_t)p->slots_per_block * (p->slot_bytes + p->factor_bytes + 4) > p->block_bytes)
        return error_set(err, QUIRE_ECORRUPT, "parameters name blocks of %u bytes with %u slots of %u: out of range",
                         p->block_bytes, p->slots_per_block, p->slot_bytes);
    for (unsigned i = 0; i < NAV_WIDTHS; i++)
        if (!isfinite(p->scale_a[i]) || !isfinite(p->scale_f[i]) || !isfinite(p->error[i]) || !isfinite(p->norm2_max))
            return error_set(err, QUIRE_ECORRUPT, "parameters of codes of %u bits are not finite", nav_bits[i]);
    for (unsigned i = 0; i < NAV_WIDTHS; i++)
        if (!(p->effort_factor[i] >= EFFORT_FACTOR_MIN && p->effort_factor[i] <= EFFORT_FACTOR_MAX))
            return error_set(err, QUIRE_ECORRUPT, "parameters name effort factor %g for codes of %u bits: out of range",
                             (double)p->effort_factor[i], nav_bits[i]);
    if (!(p->edge_effort_factor >= EFFORT_FACTOR_MIN && p->edge_effort_factor <= EFFORT_FACTOR_MAX) ||
        !(p->spread > 0 && p->spread <= 1))
        return error_set(err, QUIRE_ECORRUPT,
                         "parameters name effort factor %g for edge codes, spread %g: out of range",
                         (double)p->edge_effort_factor, (double)p->spread);
    if (p->edge_code_bytes && p->edge_code_bytes != format_edge_code_bytes(p->code_dim))
        return error_set(err, QUIRE_ECORRUPT, "parameters name edge codes of %u bytes, expected %u", p->edge_code_bytes,
                         format_edge_code_bytes(p->code_dim));
    if (p->run_rows > p->rows)
        return error_set(err, QUIRE_ECORRUPT, "parameters name %u rows of small tenants among %llu", p->run_rows,
                         (unsigned long long)p->rows);
    int rc = params_check_lists(p, err);
    return rc == 0 ? params_check_slots(p, err) : rc;
}

int format_params_decode(const uint8_t in[PARAMS_BYTES], struct segment_params *out, struct quire_error *err)
{
    struct segment_params p = {.format_version = bytes_load_u32(in)};
    if (p.format_version < SEGMENT_FORMAT_OLDEST || p.format_version > SEGMENT_FORMAT_VERSION)
        return error_set(err, QUIRE_EVERSION, "segment format version %u, this build reads versions %u to %u: %s",
                         p.format_version, SEGMENT_FORMAT_OLDEST, SEGMENT_FORMAT_VERSION,
                         p.format_version > SEGMENT_FORMAT_VERSION
                             ? "it was made by a newer Quire, use that one or rebuild"
                             : "rebuild the index");
    p.metric = bytes_load_u32(in + 4);
    p.type = bytes_load_u32(in + 8);
    p.slot = bytes_load_u32(in + 12);
    p.dim = bytes_load_u32(in + 16);
    p.code_dim = bytes_load_u32(in + 20);
    p.rows = bytes_load_u64(in + 24);
    p.block_bytes = bytes_load_u32(in + 32);
    p.n_blocks = bytes_load_u32(in + 36);
    p.slots_per_block = bytes_load_u32(in + 40);
    p.slot_bytes = bytes_load_u32(in + 44);
    p.factor_bytes = bytes_load_u32(in + 48);
    p.degree = bytes_load_u32(in + 52);
    p.pool = bytes_load_u32(in + 56);
    p.user_keys = bytes_load_u32(in + 60);
    p.has_attributes = bytes_load_u32(in + 64);
    p.key_buckets = bytes_load_u32(in + 68);
    p.seed = bytes_load_u64(in + 72);
    p.memory_bytes = bytes_load_u64(in + 80);
    uint64_t bits = bytes_load_u64(in + 88);
    memcpy(&p.norm2_max, &bits, 8);
    for (unsigned i = 0; i < NAV_WIDTHS; i++) {
        p.scale_a[i] = bytes_load_f32(in + 96 + 4 * i);
        p.scale_f[i] = bytes_load_f32(in + 112 + 4 * i);
        p.error[i] = bytes_load_f32(in + 128 + 4 * i);
        p.effort_factor[i] = bytes_load_f32(in + 144 + 4 * i);
    }
    p.edge_code_bytes = bytes_load_u32(in + 160);
    p.edge_effort_factor = bytes_load_f32(in + 164);
    p.spread = bytes_load_f32(in + 168);
    p.index = bytes_load_u32(in + 172);
    p.n_lists = bytes_load_u32(in + 176);
    p.list_bits = bytes_load_u32(in + 180);
    p.posting_bytes_max = bytes_load_u32(in + 184);
    p.list_entries = bytes_load_u64(in + 188);
    p.kind_reason = bytes_load_u32(in + 196);
    p.has_columns = bytes_load_u32(in + 200);
    p.run_rows = bytes_load_u32(in + 204);
    p.unit_codes = bytes_load_u32(in + 208);
    for (unsigned i = PARAMS_USED; i < PARAMS_BYTES; i++)
        if (in[i])
            return error_set(err, QUIRE_ECORRUPT, "parameters: byte %u is %u, not zero", i, in[i]);
    int rc = params_check(&p, err);
    if (rc == 0)
        *out = p;
    return rc;
}

static uint64_t page_checksum(const uint8_t *page, uint64_t number, const uint8_t segment_id[16])
{
    return XXH3_64bits_withSeed(page, PAGE_PAYLOAD, bytes_load_u64(segment_id) + number);
}

void format_page_seal(uint8_t page[PAGE_BYTES], uint64_t number, const uint8_t segment_id[16])
{
    bytes_store_u64(page + PAGE_PAYLOAD, page_checksum(page, number, segment_id));
}

bool format_page_is_valid(const uint8_t page[PAGE_BYTES], uint64_t number, const uint8_t segment_id[16])
{
    return bytes_load_u64(page + PAGE_PAYLOAD) == page_checksum(page, number, segment_id);
}

uint64_t format_record_checksum(const void *bytes, size_t n, const uint8_t segment_id[16])
{
    return XXH3_64bits_withSeed(bytes, n, bytes_load_u64(segment_id));
}

uint64_t format_key_hash(const void *key, size_t bytes)
{
    return XXH3_64bits(key, bytes);
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

int format_section(struct section_file *file, uint32_t id, uint64_t bytes, const struct section_entry **out,
                   struct quire_error *err)
{
    const struct section_entry *entry = section_find(file, id);
    const char *path = section_file_io(file)->path;
    if (!entry)
        return error_set(err, QUIRE_ECORRUPT, "%s has no section %u", path, id);
    if (bytes != UINT64_MAX && entry->bytes != bytes)
        return error_set(err, QUIRE_ECORRUPT, "%s: section %u has %llu bytes, expected %llu", path, id,
                         (unsigned long long)entry->bytes, (unsigned long long)bytes);
    *out = entry;
    return 0;
}

int format_section_load(struct section_file *file, uint32_t id, uint64_t bytes, void **out, uint64_t *n_bytes,
                        struct quire_error *err)
{
    const struct section_entry *entry = NULL;
    int rc = format_section(file, id, bytes, &entry, err);
    if (rc < 0)
        return rc;
    *out = malloc(entry->bytes + 1);
    if (!*out)
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu bytes of %s", (unsigned long long)entry->bytes,
                         section_file_io(file)->path);
    if (n_bytes)
        *n_bytes = entry->bytes;
    return section_load(file, entry, *out, err);
}

int format_section_put_words(struct section_writer *writer, uint32_t id, const void *words, uint64_t n,
                             struct quire_error *err)
{
    uint8_t bytes[4 * WRITE_WORDS];
    int rc = section_begin(writer, id, 0, err);
    for (uint64_t at = 0; rc == 0 && at < n; at += WRITE_WORDS) {
        size_t m = n - at < WRITE_WORDS ? (size_t)(n - at) : WRITE_WORDS;
        for (size_t i = 0; i < m; i++) {
            uint32_t word;
            memcpy(&word, (const uint8_t *)words + 4 * (at + i), 4);
            bytes_store_u32(bytes + 4 * i, word);
        }
        rc = section_write(writer, bytes, 4 * m, err);
    }
    return rc == 0 ? section_end(writer, err) : rc;
}

/* ---- names and sizes of the public enums ------------------------------------------------------------------------- */

size_t quire_type_bytes(enum quire_type type)
{
    static const size_t bytes[] = {4, 2, 1, 1, 2};
    return (unsigned)type < sizeof bytes / sizeof *bytes ? bytes[type] : 0;
}

const char *quire_type_name(enum quire_type type)
{
    static const char *const names[] = {"f32", "f16", "i8", "u8", "bf16"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

const char *quire_metric_name(enum quire_metric metric)
{
    static const char *const names[] = {"l2", "cosine", "ip"};
    return (unsigned)metric < sizeof names / sizeof *names ? names[metric] : "unknown";
}

const char *quire_slot_name(enum quire_slot slot)
{
    static const char *const names[] = {"auto", "f32", "f16", "i8", "u8", "q8", "bf16"};
    return (unsigned)slot < sizeof names / sizeof *names ? names[slot] : "unknown";
}

const char *quire_index_kind_name(enum quire_index_kind kind)
{
    static const char *const names[] = {"pagegraph", "auto", "spann"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

const char *quire_column_type_name(enum quire_column_type type)
{
    static const char *const names[] = {"learnt", "integer", "float", "string", "bool", "list", "timestamp"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

const char *quire_plan_name(enum quire_plan plan)
{
    static const char *const names[] = {"walk", "exact", "empty", "blocks", "scan", "filtered", "memory"};
    return (unsigned)plan < sizeof names / sizeof *names ? names[plan] : "unknown";
}
