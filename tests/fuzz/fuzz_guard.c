/*
 * fuzz_guard.c - any bytes as two texts, and as features.
 *
 * The input is split at its first newline. Features keep their size, a text agrees with itself, two texts agree in both
 * directions or in neither. Bytes taken as features, as a damaged file would have them, are compared without harm.
 */
#include "cache/guard/guard.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool right)
{
    if (!right)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct guard_tables *tables;
    uint8_t x[GUARD_BYTES], y[GUARD_BYTES];
    enum guard_kind kind = GUARD_KINDS, back = GUARD_KINDS;
    char why[160];
    if (!tables)
        require(guard_tables_load(NULL, &tables, NULL) == 0);
    const uint8_t *cut = size ? memchr(data, '\n', size) : NULL;
    size_t first = cut ? (size_t)(cut - data) : size;
    struct quire_bytes a = {data, first}, b = {data + first, size - first};
    uint32_t n_x = guard_features(tables, a, x), n_y = guard_features(tables, b, y);
    require(n_x <= GUARD_BYTES && n_y <= GUARD_BYTES);
    require(guard_agree(x, n_x, x, n_x, GUARD_ALL, &kind, why));
    bool agree = guard_agree(x, n_x, y, n_y, GUARD_ALL, &kind, why);
    require(agree == guard_agree(y, n_y, x, n_x, GUARD_ALL, &back, NULL));
    require(agree || (kind == back && kind < GUARD_KINDS && strlen(why) < sizeof why));
    uint32_t raw = (uint32_t)(size < GUARD_BYTES ? size : GUARD_BYTES);
    agree = guard_agree(data, raw, x, n_x, GUARD_ALL, &kind, why);
    require(agree == guard_agree(x, n_x, data, raw, GUARD_ALL, &back, NULL));
    return 0;
}
