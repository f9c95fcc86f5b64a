/*
 * kernels_inline.h - what the functions that make up the kernels of a kernels_<isa>.c are told; how they are inlined.
 *
 * Included by kernels_<isa>.c only. Everything is always inlined, so that each kernel becomes code of its own and no
 * copy compiled with the flags of an instruction set is left for the linker to share.
 */
#ifndef QUIRE_INDEX_KERNELS_INLINE_H
#define QUIRE_INDEX_KERNELS_INLINE_H

#include "index/kernels/kernels_priv.h"
#include <stdbool.h>

#define KERNEL_INLINE static inline __attribute__((always_inline, unused))

enum element { F32, F16, BF16, U8, I8 };         /* what is stored */
enum bytes_sum { U8_L2, U8_DOT, I8_L2, I8_DOT }; /* of bytes and bytes */

KERNEL_INLINE size_t element_bytes(enum element element)
{
    return element == F32 ? 4 : element == F16 || element == BF16 ? 2 : 1;
}

KERNEL_INLINE const char *element_at(const void *row, size_t i, enum element element)
{
    return (const char *)row + i * element_bytes(element);
}

#endif
