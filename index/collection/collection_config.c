/*
 * collection_config.c - what is fixed when a collection is made: its bytes, its limits, its defaults.
 */
#include "index/collection/collection_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include <float.h>
#include <string.h>

void collection_config_encode(const struct collection_config *config, uint8_t out[COLLECTION_CONFIG_BYTES])
{
    memset(out, 0, COLLECTION_CONFIG_BYTES);
    const uint32_t words[] = {config->dim,         config->type,      config->metric, config->slot,
                              config->block_bytes, config->code_bits, config->degree, config->build_beam,
                              config->link_degree, config->link_beam};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        bytes_store_u32(out + 4 * i, words[i]);
    bytes_store_u32(out + 40, config->input_dim);
    bytes_store_u64(out + 48, config->memory_bytes);
    bytes_store_u64(out + 56, config->seed);
    bytes_store_u32(out + 64, config->index);
    bytes_store_u32(out + 68, config->tenants);
    bytes_store_u32(out + 72, config->as_floats);
    bytes_store_u32(out + 76, config->numbered);
}

enum quire_slot collection_slot(const struct collection_config *config)
{
    if (!config->as_floats)
        return config->slot;
    return config->type == QUIRE_TYPE_F16    ? QUIRE_SLOT_F16
           : config->type == QUIRE_TYPE_BF16 ? QUIRE_SLOT_BF16
                                             : QUIRE_SLOT_F32;
}

int collection_config_decode(const uint8_t in[COLLECTION_CONFIG_BYTES], struct collection_config *out,
                             struct quire_error *err)
{
    struct collection_config config = {.dim = bytes_load_u32(in),
                                       .type = (enum quire_type)bytes_load_u32(in + 4),
                                       .metric = (enum quire_metric)bytes_load_u32(in + 8),
                                       .slot = (enum quire_slot)bytes_load_u32(in + 12),
                                       .block_bytes = bytes_load_u32(in + 16),
                                       .code_bits = bytes_load_u32(in + 20),
                                       .degree = bytes_load_u32(in + 24),
                                       .build_beam = bytes_load_u32(in + 28),
                                       .link_degree = bytes_load_u32(in + 32),
                                       .link_beam = bytes_load_u32(in + 36),
                                       .input_dim = bytes_load_u32(in + 40),
                                       .memory_bytes = bytes_load_u64(in + 48),
                                       .seed = bytes_load_u64(in + 56),
                                       .index = (enum quire_index_kind)bytes_load_u32(in + 64),
                                       .tenants = bytes_load_u32(in + 68) == 1,
                                       .as_floats = bytes_load_u32(in + 72) == 1,
                                       .numbered = bytes_load_u32(in + 76) == 1};
    if (bytes_load_u32(in + 68) > 1 || bytes_load_u32(in + 72) > 1 || bytes_load_u32(in + 76) > 1)
        return error_set(err, QUIRE_EVERSION, "a collection has settings that this version does not know");
    for (size_t i = 80; i < COLLECTION_CONFIG_BYTES; i++)
        if (in[i])
            return error_set(err, QUIRE_EVERSION, "a collection has settings that this version does not know");
    int rc = collection_config_validate(&config, err);
    if (rc == 0)
        *out = config;
    return rc;
}

int collection_config_validate(struct collection_config *c, struct quire_error *err)
{
    if (c->dim == 0 || c->dim > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_EDIM, "dimension %u is out of range 1..%u", c->dim, QUIRE_DIM_MAX);
    if (c->input_dim > QUIRE_DIM_MAX || (c->input_dim && c->input_dim < c->dim))
        return error_set(err, QUIRE_EDIM, "%u dimensions cannot be reduced to %u", c->input_dim, c->dim);
    if ((unsigned)c->type > QUIRE_TYPE_BF16 || (unsigned)c->metric > QUIRE_METRIC_IP ||
        (unsigned)c->slot > QUIRE_SLOT_BF16)
        return error_set(err, QUIRE_EINVALID, "unknown type %d, metric %d or slot %d", (int)c->type, (int)c->metric,
                         (int)c->slot);
    if (c->block_bytes % QUIRE_BLOCK_BYTES_MIN || c->block_bytes > QUIRE_BLOCK_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "block of %u bytes: it must be a multiple of %u up to %u", c->block_bytes,
                         QUIRE_BLOCK_BYTES_MIN, QUIRE_BLOCK_BYTES_MAX);
    if (c->code_bits > 8 || (c->code_bits & (c->code_bits - 1)))
        return error_set(err, QUIRE_ERANGE, "%u bits per dimension: it must be 1, 2, 4 or 8", c->code_bits);
    if ((unsigned)c->index > QUIRE_INDEX_SPANN)
        return error_set(err, QUIRE_EINVALID, "unknown index kind %d", (int)c->index);
    if (c->index == QUIRE_INDEX_SPANN && c->code_bits == 8)
        return error_set(err, QUIRE_ERANGE, "8 bits per dimension: codes in inverted lists have 1, 2 or 4");
    if (c->degree > 256 || c->build_beam > 4096 || c->link_degree > LINK_DEGREE_MAX || c->link_degree == 1 ||
        c->link_beam > LINK_BEAM_MAX)
        return error_set(err, QUIRE_ERANGE, "degree %u (at most 256), build beam %u (4096), M %u (2 to %u), EF %u (%u)",
                         c->degree, c->build_beam, c->link_degree, LINK_DEGREE_MAX, c->link_beam, LINK_BEAM_MAX);
    bool bytes = c->type == QUIRE_TYPE_I8 || c->type == QUIRE_TYPE_U8;
    enum quire_slot own = c->type == QUIRE_TYPE_I8 ? QUIRE_SLOT_I8 : QUIRE_SLOT_U8;
    if (c->slot == QUIRE_SLOT_AUTO)
        c->slot = bytes ? own : QUIRE_SLOT_Q8;
    if (c->slot == QUIRE_SLOT_I8 && !bytes)
        c->slot = QUIRE_SLOT_Q8;
    if (bytes && c->slot != own)
        return error_set(err, QUIRE_EINVALID, "slots of %s do not hold vectors of %s", quire_slot_name(c->slot),
                         quire_type_name(c->type));
    return 0;
}

int collection_config_begin(struct collection_config *c, struct quire_error *err)
{
    int rc = collection_config_validate(c, err);
    c->as_floats = c->metric == QUIRE_METRIC_COSINE && c->slot == QUIRE_SLOT_Q8 && c->dim <= COLLECTION_FLOATS_DIM;
    return rc;
}

int collection_vector_validate(const struct collection_config *config, const float *vector, uint32_t n,
                               struct quire_error *err)
{
    bool cosine = config->metric == QUIRE_METRIC_COSINE; /* only the direction counts */
    double norm2 = 0;
    for (uint32_t i = 0; i < n; i++)
        norm2 += (double)vector[i] * (double)vector[i];
    if (!(norm2 <= (cosine ? DBL_MAX : (double)FLT_MAX)))
        return error_set(err, QUIRE_ENOTFINITE, "the vector holds NaN, infinity%s",
                         cosine ? "" : " or values too large to square");
    return 0;
}
