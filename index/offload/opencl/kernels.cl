/*
 * kernels.cl - distances of many pairs, the nearest of them, and dot products of codes. OpenCL C 1.2.
 *
 * Compiled at run time, once per kind of work, with these definitions (opencl_program.c):
 *   ELEMENT   0 f32, 1 f16, 2 u8, 3 i8, 4 packed codes of BITS bits
 *   MEASURE   0 squared L2, 1 dot product; of codes there is one measure, the least distance
 *   FACTORS   1: products times a factor
 *   TILED     1: tiles in local memory, for devices that have it; 0: tiles in registers, for processors
 *   SIDE, EACH, DEPTH  of tiles in local memory: rows and queries, those of a work-item, words of each at a time
 *   KEEP      1: the selection alone, which is the same for all of these but TILED
 *   SORT, GROUP  of the tiled selection: what it sorts at most, a power of two, and its work-items
 *   CODES     1: dot products of codes alone
 *   DOT4      how four products of bytes are summed: 0 by the sum as it is written, 1 by cl_khr_integer_dot_product,
 *             2 by cl_arm_integer_dot_product_accumulate_int8, 3 by an instruction of NVIDIA's
 *   EMULATED  1: functions of the same names stand in for what DOT4 asks of the device, for tests
 *
 * A key is a number that orders as the distance does, smaller is nearer: the whole number itself, or the bits of a
 * float so that they order as unsigned numbers. Key and row together are one number of 64 bits: no two are equal, so
 * what is selected does not depend on the order in which work-items run.
 */

#define NONE 0xfffffffffffffffful

/* ---- four products of bytes, summed ------------------------------------------------------------------------------ */

/* DOT4_UU: both unsigned; DOT4_SS: both signed; DOT4_US: the first unsigned. Sums fit 32 bits (kernels.h), so that
 * nothing is ever saturated. */
#if EMULATED
int sum_of_four(int4 a, int4 b)
{
    int4 products = a * b;
    return products.x + products.y + products.z + products.w;
}
#endif

#if DOT4 == 1
#if EMULATED
uint dot_acc_sat_4x8packed_uu_uint(uint a, uint b, uint sum)
{
    return sum + (uint)sum_of_four(convert_int4(as_uchar4(a)), convert_int4(as_uchar4(b)));
}

int dot_acc_sat_4x8packed_ss_int(uint a, uint b, int sum)
{
    return sum + sum_of_four(convert_int4(as_char4(a)), convert_int4(as_char4(b)));
}

int dot_acc_sat_4x8packed_us_int(uint a, uint b, int sum)
{
    return sum + sum_of_four(convert_int4(as_uchar4(a)), convert_int4(as_char4(b)));
}
#elif !defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#error "the driver names cl_khr_integer_dot_product and has not its packed functions"
#endif
#define DOT4_UU(a, b, sum) dot_acc_sat_4x8packed_uu_uint(a, b, sum)
#define DOT4_SS(a, b, sum) dot_acc_sat_4x8packed_ss_int(a, b, sum)
#define DOT4_US(a, b, sum) dot_acc_sat_4x8packed_us_int(a, b, sum)

#elif DOT4 == 2
#if EMULATED
uint __attribute__((overloadable)) arm_dot_acc(uchar4 a, uchar4 b, uint sum)
{
    return sum + (uint)sum_of_four(convert_int4(a), convert_int4(b));
}

int __attribute__((overloadable)) arm_dot_acc(char4 a, char4 b, int sum)
{
    return sum + sum_of_four(convert_int4(a), convert_int4(b));
}
#else
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_accumulate_int8 : enable
#endif
#define DOT4_UU(a, b, sum) arm_dot_acc(as_uchar4(a), as_uchar4(b), sum)
#define DOT4_SS(a, b, sum) arm_dot_acc(as_char4(a), as_char4(b), sum)
/* There is none of mixed signs: a b is (a - 128) b + 127 b + b. */
int DOT4_US(uint a, uint b, int sum)
{
    char4 signed_b = as_char4(b);
    sum = arm_dot_acc(as_char4(a ^ 0x80808080u), signed_b, sum);
    sum = arm_dot_acc((char4)127, signed_b, sum);
    return arm_dot_acc((char4)1, signed_b, sum);
}

#elif DOT4 == 3
#if EMULATED
#define DP4A_UU(out, a, b, sum) out = sum + (uint)sum_of_four(convert_int4(as_uchar4(a)), convert_int4(as_uchar4(b)))
#define DP4A_SS(out, a, b, sum) out = sum + sum_of_four(convert_int4(as_char4(a)), convert_int4(as_char4(b)))
#define DP4A_US(out, a, b, sum) out = sum + sum_of_four(convert_int4(as_uchar4(a)), convert_int4(as_char4(b)))
#else
#define DP4A_UU(out, a, b, sum) asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum))
#define DP4A_SS(out, a, b, sum) asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum))
#define DP4A_US(out, a, b, sum) asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum))
#endif
uint DOT4_UU(uint a, uint b, uint sum)
{
    uint out;
    DP4A_UU(out, a, b, sum);
    return out;
}

int DOT4_SS(uint a, uint b, int sum)
{
    int out;
    DP4A_SS(out, a, b, sum);
    return out;
}

int DOT4_US(uint a, uint b, int sum)
{
    int out;
    DP4A_US(out, a, b, sum);
    return out;
}
#endif

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Both zeros have one key where the value is a difference from zero. */
uint key_of_float(float value)
{
    uint bits = as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

#ifdef ELEMENT

#if ELEMENT == 0 || ELEMENT == 1
typedef float sum_t;
typedef float16 lanes_t;
typedef float word_t; /* what a tile in local memory holds: one element, or four bytes */
#define PER_WORD 1u
#else
typedef uint word_t;
#define PER_WORD 4u
#if ELEMENT == 4 || (ELEMENT == 3 && MEASURE == 1)
typedef int sum_t;
#else
typedef uint sum_t;
#endif
typedef int16 lanes_t;
#endif

#if ELEMENT == 0
typedef float base_t;
typedef float query_t;
#elif ELEMENT == 1
typedef half base_t;
typedef float query_t;
#elif ELEMENT == 2
typedef uchar base_t;
typedef uchar query_t;
#elif ELEMENT == 3
typedef char base_t;
typedef char query_t;
#else
typedef uchar base_t;
typedef char query_t;
#endif

/* A byte of packed codes has PLANES levels of BITS bits, the first lowest. Queries lie so that the levels of one plane
 * of a piece (16 bytes of a code with tiles in registers, 4 in local memory) meet as many consecutive bytes. */
#if ELEMENT == 4
#define PLANES (8u / BITS)
#define LEVEL  ((1u << BITS) - 1u)
#else
#define PLANES 1u
#endif

#if ELEMENT == 4
/* At least how far a row is from the query, as floats: the distance of the query from f y, less how far that may be
 * from the row. row: f, |f y|^2, that. query: its squared length, its step, the sum of its levels as an int. */
uint key_of(sum_t sum, __global const float *row, float4 query)
{
    long twice = 2 * (long)sum - (long)LEVEL * as_int(query.z); /* 2 <y, levels> */
    float squared = query.x + row[1] - row[0] * query.y * (float)twice;
    return key_of_float(sqrt(fmax(squared, 0.0f)) - row[2]);
}
#else
uint key_of(sum_t sum, float factor)
{
#if MEASURE == 0 && (ELEMENT == 0 || ELEMENT == 1)
    return as_uint(sum); /* never negative */
#elif MEASURE == 0
    return sum;
#elif FACTORS
    return key_of_float(0.0f - (float)sum * factor);
#elif ELEMENT == 0 || ELEMENT == 1
    return key_of_float(0.0f - sum);
#elif ELEMENT == 2
    return ~sum;
#else
    return ~((uint)sum ^ 0x80000000u);
#endif
}
#endif

#if ELEMENT == 4
#define KEY(sum, r, q) key_of(sum, factors + 3 * (size_t)(r), coded[q])
#elif FACTORS
#define KEY(sum, r, q) key_of(sum, factors[r])
#else
#define KEY(sum, r, q) key_of(sum, 1.0f)
#endif

/* Takes a row as a candidate of its query where it is nearer than those that are enough already. count may go beyond
 * what there is room for: the host then does the same rows again, fewer at a time. */
void offer(uint query, uint row, uint key, __global const ulong *limits, __global uint *counts,
           __global ulong *candidates, uint room)
{
    ulong candidate = (ulong)key << 32 | row;
    if (candidate >= limits[query])
        return;
    uint at = atomic_inc(&counts[query]);
    if (at < room)
        candidates[(size_t)query * room + at] = candidate;
}

/* ---- distances, tiles in registers ------------------------------------------------------------------------------- */

#if !TILED
/* A work-item has 4 rows and 4 queries, and reads 16 elements of each at a time, or 16 bytes of codes. dim, of codes
 * their bytes, is a multiple of 16; the buffers have whole tiles, whose surplus is not offered. */
#if ELEMENT == 4
typedef uchar16 loaded_t;
#define PLANE(x, plane) convert_int16(((x) >> (uchar)((plane) * BITS)) & (uchar)LEVEL)
#else
typedef lanes_t loaded_t;
#define PLANE(x, plane) (x)
#endif

loaded_t load_row(__global const base_t *x, size_t at)
{
#if ELEMENT == 1
    return vload_half16(0, x + at);
#elif ELEMENT == 0 || ELEMENT == 4
    return vload16(0, x + at);
#else
    return convert_int16(vload16(0, x + at));
#endif
}

lanes_t load_query(__global const query_t *x, size_t at)
{
#if ELEMENT < 2
    return vload16(0, x + at);
#else
    return convert_int16(vload16(0, x + at));
#endif
}

#if ELEMENT < 2
#define ADD_PRODUCT(sum, a, b) sum = fma(a, b, sum)
#else
#define ADD_PRODUCT(sum, a, b) sum += (a) * (b)
#endif
#if MEASURE == 0
#define ADD(sum, a, b)               \
    do {                             \
        lanes_t apart = (a) - (b);   \
        ADD_PRODUCT(sum, apart, apart); \
    } while (0)
#else
#define ADD(sum, a, b) ADD_PRODUCT(sum, a, b)
#endif

sum_t total(lanes_t v)
{
#if ELEMENT < 2
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
#else
    int8 a = v.lo + v.hi;
    int4 b = a.lo + a.hi;
#endif
    return (sum_t)(b.x + b.y + b.z + b.w);
}

__kernel void distances(__global const base_t *base, __global const query_t *queries, __global const float *factors,
                        __global const float4 *coded, uint first, uint n_rows, uint n_queries, uint dim,
                        __global const ulong *limits, __global uint *counts, __global ulong *candidates, uint room)
{
    uint r = first + get_global_id(0) * 4, q = get_global_id(1) * 4;
    if (r >= first + n_rows || q >= n_queries)
        return;
    lanes_t sums[4][4];
#pragma unroll
    for (uint i = 0; i < 4; i++)
#pragma unroll
        for (uint j = 0; j < 4; j++)
            sums[i][j] = (lanes_t)0;
    for (uint d = 0; d < dim; d += 16) {
        loaded_t x0 = load_row(base, (size_t)r * dim + d), x1 = load_row(base, (size_t)(r + 1) * dim + d);
        loaded_t x2 = load_row(base, (size_t)(r + 2) * dim + d), x3 = load_row(base, (size_t)(r + 3) * dim + d);
#pragma unroll
        for (uint plane = 0; plane < PLANES; plane++)
#pragma unroll
            for (uint j = 0; j < 4; j++) {
                lanes_t y = load_query(queries, ((size_t)(q + j) * dim + d) * PLANES + 16 * plane);
                ADD(sums[0][j], y, PLANE(x0, plane));
                ADD(sums[1][j], y, PLANE(x1, plane));
                ADD(sums[2][j], y, PLANE(x2, plane));
                ADD(sums[3][j], y, PLANE(x3, plane));
            }
    }
    for (uint i = 0; i < 4 && r + i < first + n_rows; i++)
        for (uint j = 0; j < 4 && q + j < n_queries; j++)
            offer(q + j, r + i, KEY(total(sums[i][j]), r + i, q + j), limits, counts, candidates, room);
}
#else

/* ---- distances, tiles in local memory ---------------------------------------------------------------------------- */

/* A work-group has SIDE rows and SIDE queries, a work-item EACH x EACH of these. DEPTH words of each row are in local
 * memory at a time, transposed, so that neighbouring work-items read neighbouring words; of queries as many for each
 * plane. dim, of codes their bytes, is a multiple of 16 words, and DEPTH divides that. The buffers have whole tiles,
 * whose surplus is not offered. */
#define ITEMS (SIDE / EACH)
#define GROUP (ITEMS * ITEMS)

#if ELEMENT == 4
#define PLANE(x, plane) (((x) >> ((plane) * BITS)) & (LEVEL * 0x01010101u))
#else
#define PLANE(x, plane) (x)
#endif

word_t load_row(__global const base_t *x, size_t word)
{
#if ELEMENT == 1
    return vload_half(word, x);
#elif ELEMENT == 0
    return x[word];
#else
    return ((__global const uint *)x)[word];
#endif
}

word_t load_query(__global const query_t *x, size_t word)
{
#if ELEMENT < 2
    return x[word];
#else
    return ((__global const uint *)x)[word];
#endif
}

#if ELEMENT == 2
#define BYTES(word) convert_int4(as_uchar4(word))
#define APART(a, b) abs_diff(as_uchar4(a), as_uchar4(b))
#else
#define BYTES(word) convert_int4(as_char4(word))
#define APART(a, b) abs_diff(as_char4(a), as_char4(b))
#endif

/* a: of the query, b: of the row. */
sum_t add(sum_t sum, word_t a, word_t b)
{
#if ELEMENT < 2 && MEASURE == 0
    float apart = a - b;
    return fma(apart, apart, sum);
#elif ELEMENT < 2
    return fma(a, b, sum);
#elif DOT4 && ELEMENT == 4
    return DOT4_US(b, a, sum);
#elif DOT4 && MEASURE == 0
    uint apart = as_uint(APART(a, b));
    return DOT4_UU(apart, apart, sum);
#elif DOT4 && ELEMENT == 2
    return DOT4_UU(a, b, sum);
#elif DOT4
    return DOT4_SS(a, b, sum);
#elif ELEMENT == 4
    int4 products = convert_int4(as_char4(a)) * convert_int4(as_uchar4(b));
    return sum + products.x + products.y + products.z + products.w;
#else
    int4 x = BYTES(a), y = BYTES(b);
#if MEASURE == 0
    x -= y;
    y = x;
#endif
    int4 products = x * y;
    return sum + (sum_t)(products.x + products.y + products.z + products.w);
#endif
}

__kernel __attribute__((reqd_work_group_size(ITEMS, ITEMS, 1))) void
distances(__global const base_t *base, __global const query_t *queries, __global const float *factors,
          __global const float4 *coded, uint first, uint n_rows, uint n_queries, uint dim, __global const ulong *limits,
          __global uint *counts, __global ulong *candidates, uint room)
{
    __local word_t rows_tile[DEPTH][SIDE + 1], queries_tile[DEPTH * PLANES][SIDE + 1];
    uint x = get_local_id(0), y = get_local_id(1), words = dim / PER_WORD, lane = y * ITEMS + x;
    uint r0 = first + get_group_id(0) * SIDE, q0 = get_group_id(1) * SIDE;
    sum_t sums[EACH][EACH];
    for (uint i = 0; i < EACH; i++)
        for (uint j = 0; j < EACH; j++)
            sums[i][j] = 0;
    for (uint w = 0; w < words; w += DEPTH) {
        for (uint i = lane; i < SIDE * DEPTH; i += GROUP) {
            uint vector = i / DEPTH, word = i % DEPTH;
            rows_tile[word][vector] = load_row(base, (size_t)(r0 + vector) * words + w + word);
        }
        for (uint i = lane; i < SIDE * DEPTH * PLANES; i += GROUP) {
            uint vector = i / (DEPTH * PLANES), word = i % (DEPTH * PLANES);
            queries_tile[word][vector] = load_query(queries, ((size_t)(q0 + vector) * words + w) * PLANES + word);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint word = 0; word < DEPTH; word++)
            for (uint plane = 0; plane < PLANES; plane++) {
                word_t a[EACH], b[EACH];
                for (uint i = 0; i < EACH; i++) {
                    a[i] = PLANE(rows_tile[word][x + ITEMS * i], plane);
                    b[i] = queries_tile[word * PLANES + plane][y + ITEMS * i];
                }
                for (uint i = 0; i < EACH; i++)
                    for (uint j = 0; j < EACH; j++)
                        sums[i][j] = add(sums[i][j], b[j], a[i]);
            }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = 0; i < EACH; i++)
        for (uint j = 0; j < EACH; j++) {
            uint r = r0 + x + ITEMS * i, q = q0 + y + ITEMS * j;
            if (r < first + n_rows && q < n_queries)
                offer(q, r, KEY(sums[i][j], r, q), limits, counts, candidates, room);
        }
}
#endif
#endif

/* ---- selection --------------------------------------------------------------------------------------------------- */

#ifdef KEEP
#if !TILED
/* One work-item per query: `best` is a heap of the nearest, the farthest first. */
__kernel void keep_nearest(__global const ulong *candidates, uint room, uint n_queries, uint k, uint kept,
                           __global const uint *counts, __global ulong *best, __global ulong *limits)
{
    uint q = get_global_id(0);
    if (q >= n_queries)
        return;
    __global ulong *heap = best + (size_t)q * k;
    __global const ulong *from = candidates + (size_t)q * room;
    uint n = kept;
    for (uint i = 0; i < counts[q]; i++) {
        ulong item = from[i];
        uint at;
        if (n < k) {
            at = n++;
            while (at > 0 && heap[(at - 1) / 2] < item) {
                heap[at] = heap[(at - 1) / 2];
                at = (at - 1) / 2;
            }
        } else if (item < heap[0]) {
            at = 0;
            for (uint child = 1; child < n; child = 2 * at + 1) {
                child += child + 1 < n && heap[child + 1] > heap[child] ? 1 : 0;
                if (heap[child] <= item)
                    break;
                heap[at] = heap[child];
                at = child;
            }
        } else
            continue;
        heap[at] = item;
    }
    limits[q] = n < k ? NONE : heap[0];
}
#else
/* A work-group per query sorts what was kept and what was offered (Batcher's bitonic sort, 1968). */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
keep_nearest(__global const ulong *candidates, uint room, uint n_queries, uint k, uint kept,
             __global const uint *counts, __global ulong *best, __global ulong *limits)
{
    __local ulong items[SORT];
    uint q = get_group_id(0), lane = get_local_id(0), n = kept + counts[q], size = 2;
    while (size < n)
        size *= 2;
    for (uint i = lane; i < size; i += GROUP)
        items[i] = i < kept ? best[(size_t)q * k + i] : i < n ? candidates[(size_t)q * room + i - kept] : NONE;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint run = 2; run <= size; run *= 2)
        for (uint step = run / 2; step > 0; step /= 2) {
            for (uint i = lane; i < size / 2; i += GROUP) {
                uint low = 2 * step * (i / step) + i % step, high = low + step;
                ulong a = items[low], b = items[high];
                if ((a > b) == ((low & run) == 0)) {
                    items[low] = b;
                    items[high] = a;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    uint left = n < k ? n : k;
    for (uint i = lane; i < left; i += GROUP)
        best[(size_t)q * k + i] = items[i];
    if (lane == 0)
        limits[q] = n < k ? NONE : items[k - 1];
}
#endif
#endif

/* ---- dot products of codes --------------------------------------------------------------------------------------- */

#ifdef CODES
/* A work-group has a run (struct offload_run): query, first code, number of codes, where its results go. Levels have 8
 * bits, dim is a multiple of 32. */
__kernel void code_dots(__global const uchar *codes, __global const char *queries, __global const uint4 *runs,
                        __global const uint *ids, uint has_ids, uint dim, __global int *out)
{
    uint4 run = runs[get_group_id(0)];
    __global const char *query = queries + (size_t)run.x * dim;
    for (uint i = get_local_id(0); i < run.z; i += get_local_size(0)) {
        uint id = has_ids ? ids[run.y + i] : run.y + i;
        __global const uchar *code = codes + (size_t)id * dim;
#if DOT4
        int sum = 0;
        for (uint d = 0; d < dim; d += 16) {
            uint4 x = vload4(0, (__global const uint *)(code + d)), y = vload4(0, (__global const uint *)(query + d));
            sum = DOT4_US(x.x, y.x, sum);
            sum = DOT4_US(x.y, y.y, sum);
            sum = DOT4_US(x.z, y.z, sum);
            sum = DOT4_US(x.w, y.w, sum);
        }
        out[run.w + i] = sum;
#else
        int16 sums = (int16)0;
        for (uint d = 0; d < dim; d += 16)
            sums += convert_int16(vload16(0, code + d)) * convert_int16(vload16(0, query + d));
        int8 a = sums.lo + sums.hi;
        int4 b = a.lo + a.hi;
        out[run.w + i] = b.x + b.y + b.z + b.w;
#endif
    }
}
#endif
