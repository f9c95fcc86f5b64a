/*
 * cmd_vadd.c - writing single elements of vector sets: VADD, VREM, VSETATTR, VGRANT, VREVOKE.
 *
 *   VADD key [REDUCE dim] (FP32 vector | VALUES num value ...) element [CAS] [NOQUANT | Q8 | BIN] [EF effort]
 *        [SETATTR json] [M links] [TENANT name] ...
 *   VGRANT key element tenant ...     VREVOKE key element tenant ...
 *
 * As in Redis: CAS is accepted and changes nothing (no command runs in a thread of its own). NOQUANT keeps vectors as
 * 32-bit floats, Q8 (the default) as 8-bit codes; BIN keeps 8-bit codes, too, and navigates sealed segments by one bit
 * per dimension. M and EF shape the graph of a set that is made by this VADD.
 *
 * TENANT grants the element to a tenant, beside those whom it is granted to already. A user who is bound to tenants
 * writes to what it can see only, and grants to its own tenants only.
 */
#include "server/protocol/arg.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_call.h"
#include "server/vector/vector_write.h"
#include <stdlib.h>
#include <string.h>

/* As Redis has them; here nothing is made by them. A set keeps LINK_BEAM_MAX at most. */
enum { M_MOST = LINK_DEGREE_MAX, EF_MOST = 1000000 };

/* ---- VADD -------------------------------------------------------------------------------------------------------- */

/* One option at args[*at], moving *at to its last word. */
static bool take_option(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct vector_write *w,
                        struct tenant_names *tenants)
{
    long long integer = 0;
    bool plain = arg_is(args[*at], "NOQUANT"), bin = arg_is(args[*at], "BIN");
    if (plain || bin || arg_is(args[*at], "Q8")) {
        enum quire_slot slot = plain ? QUIRE_SLOT_F32 : QUIRE_SLOT_Q8;
        unsigned bits = bin ? 1 : 0;
        if (w->slot_given && (w->config.slot != slot || w->config.code_bits != bits)) {
            caller_error(c, "ERR syntax error: give one of NOQUANT, Q8 and BIN");
            return false;
        }
        w->slot_given = true;
        w->config.slot = slot;
        w->config.code_bits = bits;
        return true;
    }
    if (arg_is(args[*at], "CAS"))
        return true;
    if (arg_is(args[*at], "EF")) {
        if (!vector_arg_take_integer(c, args, n, at, 1, EF_MOST, &integer))
            return false;
        w->config.link_beam = integer < LINK_BEAM_MAX ? (unsigned)integer : LINK_BEAM_MAX;
    } else if (arg_is(args[*at], "M")) {
        if (!vector_arg_take_integer(c, args, n, at, 4, M_MOST, &integer))
            return false;
        w->config.link_degree = (unsigned)integer;
        w->degree_given = true;
    } else if (arg_is(args[*at], "SETATTR") && *at + 1 < n) {
        w->attributes = args[++*at];
    } else if (arg_is(args[*at], "TENANT")) {
        return vector_names_take(c, args, n, at, tenants);
    } else {
        caller_error(c, "ERR invalid option after element: syntax error at '%.*s'", ARG_SHOWN(args[*at], 64u));
        return false;
    }
    return true;
}

void cmd_vadd(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct vector_write w = {.kind = VECTOR_ADD, .key = args[1]};
    struct tenant_names tenants = {0};
    struct vector_arg vector;
    struct quire_error err = {0};
    long long reduce = 0;
    uint32_t at = 2;
    w.config = (struct collection_config){.type = QUIRE_TYPE_F32, .metric = QUIRE_METRIC_COSINE, .slot = QUIRE_SLOT_Q8};
    if (arg_is(args[2], "REDUCE")) {
        if (!vector_arg_take_integer(c, args, n, &at, 1, QUIRE_DIM_MAX, &reduce))
            return;
        at++;
    }
    if (!vector_arg_take(c, args, n, &at, false, &vector))
        return;
    if (at >= n) {
        caller_error(c, "ERR wrong number of arguments for 'vadd' command");
        return;
    }
    w.n_numbers = vector_arg_dim(&vector);
    w.reduce = (uint32_t)reduce;
    w.config.dim = reduce ? w.reduce : w.n_numbers;
    w.config.input_dim = reduce && w.reduce != w.n_numbers ? w.n_numbers : 0;
    if (w.config.dim > w.n_numbers) {
        caller_error(c, "ERR REDUCE to %u: the vector has %u numbers", w.config.dim, w.n_numbers);
        return;
    }
    w.element = args[at];
    if (w.element.bytes == 0 || w.element.bytes > QUIRE_KEY_BYTES_MAX) {
        caller_error(c, "ERR an element's name has 1 to %u bytes", QUIRE_KEY_BYTES_MAX);
        return;
    }
    bool right = true;
    for (at++; at < n && right; at++)
        right = take_option(c, args, n, &at, &w, &tenants);
    float *numbers = right ? malloc(sizeof(float) * w.n_numbers) : NULL;
    if (right && !numbers)
        caller_error(c, "OOM no memory for a vector of %u numbers", w.n_numbers);
    else if (right && !vector_arg_numbers(&vector, numbers, &err))
        caller_error(c, "ERR %s", err.message);
    else if (right && (tenants.n == 0 || vector_scope_of(c, &tenants, &w.tenants))) {
        w.vector = numbers;
        vector_write_run(c, &w);
    }
    free(numbers);
    vector_names_fini(&tenants);
}

/* ---- VREM, VSETATTR, VGRANT, VREVOKE ----------------------------------------------------------------------------- */

void cmd_vrem(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct vector_write w = {.kind = VECTOR_REMOVE, .key = args[1], .element = args[2]};
    vector_write_run(c, &w);
}

void cmd_vsetattr(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct vector_write w = {.kind = VECTOR_ATTRIBUTES, .key = args[1], .element = args[2], .attributes = args[3]};
    vector_write_run(c, &w);
}

static void change_grants(struct caller *c, enum vector_write_kind kind, const struct resp_arg *args, uint32_t n)
{
    struct vector_write w = {.kind = kind, .key = args[1], .element = args[2]};
    struct tenant_names tenants = {0};
    if (vector_names_add(c, args + 3, n - 3, &tenants) && vector_scope_of(c, &tenants, &w.tenants))
        vector_write_run(c, &w);
    vector_names_fini(&tenants);
}

void cmd_vgrant(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    change_grants(c, VECTOR_GRANT, args, n);
}

void cmd_vrevoke(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    change_grants(c, VECTOR_REVOKE, args, n);
}
