/*
 * grants.h - who may see an element: the tenants it is granted to, which stand before its JSON in one text.
 *
 * An element's attributes, wherever they are kept (journal, memtable, segment), are one of
 *   JSON        nothing is granted: only requests without a scope see it
 *   u8 1, u16 number of grants, u32 their bytes; per grant u32 generation, u8 bytes, name; then the JSON, which may be
 *               empty
 * JSON cannot begin with a byte 1, so the two are never confused; before attributes that do, since they are no JSON, a
 * list of 0 grants stands. Everything that moves attributes (seals, merges, checkpoints, repairs, indexes adopted)
 * moves grants with them.
 *
 * The generation of a name is how often the tenant was dropped before the grant was made: a grant of an earlier one is
 * void, so dropping a tenant costs one record, however much it had.
 */
#ifndef QUIRE_INDEX_GRANTS_H
#define QUIRE_INDEX_GRANTS_H

#include "quire.h"

#define TENANT_BYTES_MAX 255u
#define GRANTS_MAX       1024u /* of one element */

#define GRANTS_HEADER_BYTES 7u /* mark, number, bytes */
#define GRANT_HEADER_BYTES  5u /* generation, length */

struct grant {
    const char *name;
    uint32_t bytes, generation;
};

/* Whose rows a request may see: those granted to any of these. A request's scope is NULL where it may see all; one
 * with n = 0 sees none. Generations are filled in by the collection. */
struct tenant_scope {
    struct grant *tenants;
    uint32_t n;
};

/* The JSON behind the grants; bytes that are not well-formed are damage: QUIRE_ECORRUPT. text may be NULL. */
int grants_split(const void *text, uint32_t bytes, const char **json, uint32_t *json_bytes, uint32_t *n_grants);
/* Walks them; *at begins with 0. False at the end. The text is one that grants_split has taken. */
bool grants_next(const void *text, uint32_t bytes, uint32_t *at, struct grant *out);
/* Whether a name in the scope has one of them, of the same generation. True for a scope that is NULL. */
bool grants_allow(const void *text, uint32_t bytes, const struct tenant_scope *scope);
/* Grants (without repetition; sorted by name here) and JSON as one text, owned by the caller; *out is NULL where there
 * is neither. QUIRE_ERANGE (a name's length), QUIRE_ELIMIT (GRANTS_MAX, attributes too long), QUIRE_ENOMEM. */
int grants_join(const struct grant *grants, uint32_t n, const char *json, uint32_t json_bytes, char **out,
                uint32_t *out_bytes, struct quire_error *err);
/* 0, or QUIRE_ERANGE with a sentence. */
int grants_check_tenant(const char *name, size_t bytes, struct quire_error *err);

#endif
