/*
 * codes.c - encoding by choosing the grid step that keeps the direction best.
 *
 * For B bits the levels are odd multiples of half a step: (u - (2^B - 1)/2) * step. The step alone decides the code.
 * Only the direction of y counts, because the estimate is scaled by f = |r|^2 / <r, y>; its error grows with
 * sqrt(1/cos^2(y, r) - 1). So a few steps are tried and the one with the largest <r,y>^2 / |y|^2 is kept. One bit
 * has no choice: the signs. Eight bits: the step that just reaches the largest coordinate is within 0.1 % of the best.
 *
 * The candidates are fractions of max|r| / half: clipping the few largest coordinates of a near-Gaussian vector pays at
 * 2 and 4 bits. Quality rises to one fraction and falls behind it but for noise, so the search climbs from the one that
 * is best for a normal distribution and stops where the next is no better: three or four of the twelve are tried. The
 * exact sweep over all steps at which some coordinate changes its level (RaBitQ's own) gains less than 0.1 % in cosine
 * over all twelve at 4 bits and costs sorting; rejected.
 */
#include "index/vector/codes.h"
#include "io/bytes.h"
#include <assert.h>
#include <math.h>

#define SMALLEST 1e-30f /* what is below counts as zero: its inverse would overflow */

#define LANES 8u /* sums kept apart, so that a compiler may keep them in one register; divides code_dim */

/* <r,y> and |y|^2 for one inverse step. */
static void try_step(const float *restrict r, uint32_t dim, float inverse, float half, float top, float *ry, float *yy)
{
    float sum_ry[LANES] = {0}, sum_yy[LANES] = {0};
    for (uint32_t i = 0; i < dim; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++) {
            float level = r[i + lane] * inverse + half + 0.5f;
            level = level < 0 ? 0 : level > top ? top : level;
            float y = (float)(int)level - half; /* not negative: truncated is rounded down */
            sum_ry[lane] += r[i + lane] * y;
            sum_yy[lane] += y * y;
        }
    *ry = *yy = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        *ry += sum_ry[lane];
        *yy += sum_yy[lane];
    }
}

static const float fractions[] = {1.0f, 0.92f, 0.85f, 0.78f, 0.71f, 0.65f, 0.59f, 0.53f, 0.47f, 0.41f, 0.35f, 0.29f};
#define FRACTIONS (sizeof fractions / sizeof *fractions)

/* <r,y>^2 / |y|^2 */
static float quality_of(const float *r, uint32_t dim, unsigned bits, float inverse)
{
    float half = code_half(bits), ry, yy;
    try_step(r, dim, inverse, half, 2 * half, &ry, &yy);
    return ry > 0 ? ry * ry / yy : 0;
}

/* The fraction with which the best step for normally distributed coordinates begins the climb (Max 1960: steps of .996
 * and .335 standard deviations for 4 and 16 levels). rms: of the coordinates. */
static size_t first_fraction(unsigned bits, float rms, float largest)
{
    float wanted = code_half(bits) * (bits == 2 ? 0.996f : 0.335f) * rms / largest;
    size_t at = 0;
    while (at + 1 < FRACTIONS && fractions[at] + fractions[at + 1] > 2 * wanted)
        at++;
    return at;
}

static float best_inverse_step(const float *r, uint32_t dim, unsigned bits, float rms, float largest)
{
    float base = code_half(bits) / largest;
    if (bits == 1 || bits == 8)
        return base;
    size_t first = first_fraction(bits, rms, largest), at = first;
    float best = quality_of(r, dim, bits, base / fractions[at]);
    for (int way = 1; way >= -1 && at == first; way -= 2) /* to smaller steps, or else to larger ones */
        while (way > 0 ? at + 1 < FRACTIONS : at > 0) {
            size_t next = way > 0 ? at + 1 : at - 1;
            float quality = quality_of(r, dim, bits, base / fractions[next]);
            if (quality <= best)
                break;
            best = quality;
            at = next;
        }
    return base / fractions[at];
}

/* Adds up what an encoding is judged by. */
struct code_sums {
    double norm2[LANES], ry[LANES], ey[LANES];
    float yy[LANES];
};

/* Codes LANES coordinates: `bits` bytes. */
static void encode_lanes(const float *restrict r, const float *restrict extra, float inverse, unsigned bits,
                         uint8_t *code, struct code_sums *sums)
{
    float half = code_half(bits), top = 2 * half;
    uint64_t packed = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        float level = bits == 1 ? (r[lane] >= 0) : r[lane] * inverse + half + 0.5f;
        level = level < 0 ? 0 : level > top ? top : level;
        unsigned whole = (unsigned)(int)level; /* not negative: truncated is rounded down */
        float y = (float)(int)whole - half;
        packed |= (uint64_t)whole << (lane * bits);
        sums->norm2[lane] += (double)r[lane] * r[lane];
        sums->ry[lane] += (double)r[lane] * y;
        sums->yy[lane] += y * y;
        if (extra)
            sums->ey[lane] += (double)extra[lane] * y;
    }
    for (unsigned byte = 0; byte < bits; byte++)
        code[byte] = (uint8_t)(packed >> (8 * byte));
}

float code_encode_measured(const float *r, uint32_t code_dim, unsigned bits, uint8_t *code, const float *extra,
                           struct code_measures *out)
{
    float largest = 0, squares[LANES] = {0}, square = 0;
    assert((bits == 1 || bits == 2 || bits == 4 || bits == 8) && code_dim % LANES == 0);
    for (uint32_t i = 0; i < code_dim; i++) { /* not fmaxf, which is a call for each */
        float size = fabsf(r[i]);
        largest = size > largest ? size : largest;
    }
    bool is_tried = bits == 2 || bits == 4;
    for (uint32_t i = 0; is_tried && i < code_dim; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++)
            squares[lane] += r[i + lane] * r[i + lane];
    for (uint32_t lane = 0; lane < LANES; lane++)
        square += squares[lane];
    float rms = sqrtf(square / (float)code_dim);
    float inverse = largest > SMALLEST ? best_inverse_step(r, code_dim, bits, rms, largest) : 0;
    struct code_sums sums = {{0}, {0}, {0}, {0}};
    struct code_measures measures = {0};
    double ry = 0;
    for (uint32_t i = 0; i < code_dim; i += LANES)
        encode_lanes(r + i, extra ? extra + i : NULL, inverse, bits, code + i / LANES * bits, &sums);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        measures.norm2 += sums.norm2[lane];
        ry += sums.ry[lane];
        measures.yy += (double)sums.yy[lane];
        measures.dot_extra += sums.ey[lane];
    }
    *out = measures;
    return largest > SMALLEST && ry > 0 ? (float)(measures.norm2 / ry) : 0;
}

float code_encode(const float *r, uint32_t code_dim, unsigned bits, uint8_t *code, const float *extra, float *dot_extra)
{
    struct code_measures measures;
    float f = code_encode_measured(r, code_dim, bits, code, extra, &measures);
    if (dot_extra)
        *dot_extra = (float)measures.dot_extra;
    return f;
}

void code_decode(const uint8_t *restrict code, uint32_t code_dim, unsigned bits, float f, float *restrict r)
{
    float half = code_half(bits);
    unsigned mask = (1u << bits) - 1;
    for (uint32_t i = 0; bits == 8 && i < code_dim; i++) /* as a compiler can put it into vectors */
        r[i] = f * ((float)code[i] - half);
    for (uint32_t i = 0; bits < 8 && i < code_dim; i++)
        r[i] = f * ((float)((unsigned)code[i * bits / 8] >> (i * bits % 8) & mask) - half);
}

/* Where the levels of four neighbouring dimensions of one code are in a group: four bytes, a field of each. */
struct group_place {
    size_t byte;
    unsigned shift;
};

static struct group_place group_place(uint32_t slot, uint32_t four, unsigned bits)
{
    unsigned fours = 4 / bits; /* of one code in a line */
    return (struct group_place){.byte = (size_t)(four / fours) * 64 + slot % 16 * 4,
                                .shift = (2 * (four % fours) + slot / 16) * bits};
}

void code_group_put(uint8_t *group, uint32_t slot, const uint8_t *code, uint32_t code_dim, unsigned bits)
{
    unsigned mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < code_dim; i += 4) {
        struct group_place place = group_place(slot, i / 4, bits);
        for (uint32_t d = 0; d < 4; d++) {
            unsigned level = (unsigned)code[(i + d) * bits / 8] >> ((i + d) * bits % 8) & mask;
            group[place.byte + d] |= (uint8_t)(level << place.shift);
        }
    }
}

void code_group_put_signs(uint8_t *group, uint32_t slot, const uint8_t *levels, uint32_t code_dim)
{
    for (uint32_t i = 0; i < code_dim; i += 4) {
        struct group_place place = group_place(slot, i / 4, 1);
        uint32_t signs = bytes_load_u32(levels + i) >> 7 & 0x01010101;
        bytes_store_u32(group + place.byte, bytes_load_u32(group + place.byte) | signs << place.shift);
    }
}

void code_group_get(const uint8_t *group, uint32_t slot, uint32_t code_dim, unsigned bits, uint8_t *code)
{
    unsigned mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < code_dim; i += LANES) { /* whole bytes */
        uint32_t packed = 0;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            struct group_place place = group_place(slot, (i + lane) / 4, bits);
            packed |= ((uint32_t)group[place.byte + lane % 4] >> place.shift & mask) << (lane * bits);
        }
        for (unsigned byte = 0; byte < bits; byte++)
            code[i / 8 * bits + byte] = (uint8_t)(packed >> (8 * byte));
    }
}

void code_query_set(struct code_query *query, const float *q, uint32_t code_dim)
{
    float largest = 0;
    double norm2 = 0;
    for (uint32_t i = 0; i < code_dim; i++) {
        largest = fmaxf(largest, fabsf(q[i]));
        norm2 += (double)q[i] * q[i];
    }
    float inverse = largest > SMALLEST ? 127.0f / largest : 0;
    int32_t sum = 0;
    for (uint32_t i = 0; i < code_dim; i++) {
        int level = (int)lrintf(q[i] * inverse);
        query->levels[i] = (int8_t)level;
        sum += level;
    }
    query->step = largest / 127.0f;
    query->level_sum = sum;
    query->norm2 = (float)norm2;
}
