/*
 * kernels.c - which variant of the kernels runs on this machine.
 *
 * A variant counts as available when this build carries it (QUIRE_KERNELS_<ISA>, set by the build), the processor has
 * every extension that its file is compiled with, and the operating system saves the registers across a switch of
 * threads. The last is what XGETBV answers: XCR0 bits 1 and 2 for the 256-bit registers, 5, 6 and 7 more for the mask
 * registers and the 512-bit ones. CPUID alone does not tell; a kernel started with noxsave, and some virtual machines,
 * give processors with AVX whose use ends in SIGILL.
 *
 * The choice is made once, at the first call, and never changes: a query sees one variant from start to end. QUIRE_CPU
 * lowers it, so that one machine tests every tier and a fault can be pinned to one. It is a cap: asking for more than
 * the machine has gives the best that it has. A name that means nothing here changes nothing, but kernels_reason says
 * so; refusing to start over it would be worse than the mistake.
 *
 * Invariants: only kernels_<isa>.c is compiled with flags of an instruction set, and all it exports is one table, so
 * the linker cannot pick an AVX copy of a shared inline function. Nothing here allocates. The only mutable state is
 * the choice, written under pthread_once.
 *
 * Rejected: ifunc resolvers (glibc only; a resolver may not call getenv) and gcc's __builtin_cpu_supports (one name per
 * feature and compiler, and it hides which bits were read).
 */
#include "index/kernels/kernels_priv.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kernels_choice choice;
static pthread_once_t choice_once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
#include <cpuid.h>

#define DETECTED_BY "cpuid, xgetbv"

static const char *const tiers[] = {"scalar", "avx2", "avx512"}; /* lowest first */

static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has(uint32_t reg, uint32_t bits)
{
    return (reg & bits) == bits;
}

/* The highest tier that processor and operating system can run. */
static size_t detect(void)
{
    const uint32_t basic = bit_FMA | bit_OSXSAVE | bit_AVX | bit_F16C;
    const uint32_t wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    const uint32_t wide_more = bit_AVX512VBMI | bit_AVX512VNNI | bit_AVX512VPOPCNTDQ;
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || !has(c, basic))
        return 0;
    uint64_t saved = saved_registers();
    if ((saved & 0x06) != 0x06)
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, bit_AVX2 | bit_BMI2))
        return 0;
    if ((saved & 0xe6) != 0xe6 || !has(b, wide) || !has(c, wide_more))
        return 1;
    return 2;
}

static const struct kernels *tier_table(size_t tier)
{
    switch (tier) {
#ifdef QUIRE_KERNELS_AVX512
    case 2:
        return &kernels_avx512;
#endif
#ifdef QUIRE_KERNELS_AVX2
    case 1:
        return &kernels_avx2;
#endif
    case 0:
        return &kernels_scalar;
    default:
        return NULL;
    }
}

#elif defined(QUIRE_KERNELS_NEON)

#define DETECTED_BY "part of the architecture"

static const char *const tiers[] = {"scalar", "neon"};

static size_t detect(void)
{
    return 1;
}

static const struct kernels *tier_table(size_t tier)
{
    return tier ? &kernels_neon : &kernels_scalar;
}

#else

#define DETECTED_BY "the only variant"

static const char *const tiers[] = {"scalar"};

static size_t detect(void)
{
    return 0;
}

static const struct kernels *tier_table(size_t tier)
{
    (void)tier;
    return &kernels_scalar;
}

#endif

#define N_TIERS (sizeof tiers / sizeof *tiers)

/* The number of the tier called `name`, or N_TIERS. */
static size_t tier_named(const char *name)
{
    size_t tier = 0;
    while (tier < N_TIERS && strcmp(name, tiers[tier]) != 0)
        tier++;
    return tier;
}

/* `from` as far as it fits, with '?' for what a log line or a JSON string could not bear. */
static void printable(char *to, size_t size, const char *from)
{
    size_t i = 0;
    for (; i + 1 < size && from[i]; i++)
        to[i] = from[i] >= ' ' && from[i] < 127 && from[i] != '"' && from[i] != '\\' ? from[i] : '?';
    to[i] = '\0';
}

void kernels_choose(size_t best, const char *asked, struct kernels_choice *made)
{
    memset(made, 0, sizeof *made);
    for (size_t tier = best + 1; tier-- > 0;)
        if (tier_table(tier))
            made->available[made->n_available++] = tier_table(tier);
    made->table = made->available[0];
    const size_t size = sizeof made->reason;
    if (!asked || !*asked) {
        snprintf(made->reason, size, "%s (%s)", made->table->name, DETECTED_BY);
        return;
    }
    size_t cap = tier_named(asked);
    if (cap == N_TIERS) {
        char shown[33];
        printable(shown, sizeof shown, asked);
        snprintf(made->reason, size, "%s (%s; QUIRE_CPU=%s names no variant of this build)", made->table->name,
                 DETECTED_BY, shown);
        return;
    }
    size_t i = 0;
    while (tier_named(made->available[i]->name) > cap)
        i++;
    made->table = made->available[i];
    if (tier_named(made->table->name) == cap)
        snprintf(made->reason, size, "%s (QUIRE_CPU)", made->table->name);
    else
        snprintf(made->reason, size, "%s (%s; QUIRE_CPU=%s is more than this machine or build has)", made->table->name,
                 DETECTED_BY, tiers[cap]);
}

static void choose(void)
{
    kernels_choose(detect(), getenv("QUIRE_CPU"), &choice);
}

const struct kernels *kernels(void)
{
    pthread_once(&choice_once, choose);
    return choice.table;
}

size_t kernels_available(const struct kernels *const **out)
{
    pthread_once(&choice_once, choose);
    *out = choice.available;
    return choice.n_available;
}

const char *kernels_reason(void)
{
    pthread_once(&choice_once, choose);
    return choice.reason;
}
