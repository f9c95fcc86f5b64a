/*
 * replica_effect.h - effects of writes as bytes: what a leader sends to its copies, and what a log of a host keeps.
 *
 * docs/format.md has every byte. Little-endian; a checksum over all of it; a version, of which this one reads its own
 * and writes it. Bytes from elsewhere are not believed.
 */
#ifndef QUIRE_INDEX_REPLICA_EFFECT_H
#define QUIRE_INDEX_REPLICA_EFFECT_H

#include "index/collection/lineage.h"

#define REPLICA_EFFECT_VERSION 1u

/* Owned by the caller; NULL without memory, or where it would be more than 2^31 bytes. */
uint8_t *replica_effect_encode(const struct effect *effect, uint32_t *n_bytes);

struct replica_effect {
    struct effect effect; /* points into the bytes and into `owned` */
    uint8_t id[LINEAGE_ID_BYTES], history[LINEAGE_ID_BYTES];
    void *owned;
};
/* QUIRE_ECORRUPT; QUIRE_EVERSION: of a version or kind that is not known, so that nothing behind it may be applied. */
int replica_effect_decode(const uint8_t *bytes, size_t n, struct replica_effect *out, struct quire_error *err);
void replica_effect_fini(struct replica_effect *effect);

/* What kind bytes say that they are, without a look at the rest. 0: too short. */
static inline unsigned replica_effect_kind(const uint8_t *bytes, size_t n)
{
    return n > 5 ? bytes[5] : 0;
}

/* Decodes and applies. QUIRE_ESTALE also where it is of another collection or history, or of a number that the copy has
 * given to a write of its own while it led. *lsn 0: it was done before. */
int replica_effect_apply(struct collection *collection, const uint8_t *bytes, size_t n, uint64_t *lsn,
                         struct quire_error *err);

#endif
