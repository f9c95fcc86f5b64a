/*
 * codes.c - encoding by choosing the grid step that keeps the direction best.
 *
 * For B bits the levels are odd multiples of half a step: (u - (2^B - 1)/2) * step. The step alone decides the code.
 * Only the direction of y counts, because the estimate is scaled by f = |r|^2 / <r, y>; its error grows with
 * sqrt(1/cos^2(y, r) - 1). So a few steps are tried and the one with the largest <r,y>^2 / |y|^2 is kept. One bit
 * has no choice: the signs. Eight bits: the step that just reaches the largest coordinate is within 0.1 % of the best.
 *
 * The candidates are fractions of max|r| / half: clipping the few largest coordinates of a near-Gaussian vector pays at
 * 2 and 4 bits. The exact sweep over all steps at which some coordinate changes its level (RaBitQ's own) gains less
 * than 0.1 % in cosine over these twelve at 4 bits and costs sorting; rejected.
 */
#include "index/vector/codes.h"
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

static float best_inverse_step(const float *r, uint32_t dim, unsigned bits, float largest)
{
    static const float fractions[] = {1.0f,  0.92f, 0.85f, 0.78f, 0.71f, 0.65f,
                                      0.59f, 0.53f, 0.47f, 0.41f, 0.35f, 0.29f};
    float half = code_half(bits), top = 2 * half;
    float base = half / largest;
    if (bits == 1 || bits == 8)
        return base;
    float best = base, best_quality = -1;
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        float ry, yy, inverse = base / fractions[i];
        try_step(r, dim, inverse, half, top, &ry, &yy);
        float quality = ry > 0 ? ry * ry / yy : 0;
        if (quality > best_quality) {
            best_quality = quality;
            best = inverse;
        }
    }
    return best;
}

/* Adds up what an encoding is judged by. */
struct code_sums {
    double norm2[LANES], ry[LANES], ey[LANES];
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
        if (extra)
            sums->ey[lane] += (double)extra[lane] * y;
    }
    for (unsigned byte = 0; byte < bits; byte++)
        code[byte] = (uint8_t)(packed >> (8 * byte));
}

float code_encode(const float *r, uint32_t code_dim, unsigned bits, uint8_t *code, const float *extra, float *dot_extra)
{
    float largest = 0;
    assert((bits == 1 || bits == 2 || bits == 4 || bits == 8) && code_dim % LANES == 0);
    for (uint32_t i = 0; i < code_dim; i++) { /* not fmaxf, which is a call for each */
        float size = fabsf(r[i]);
        largest = size > largest ? size : largest;
    }
    float inverse = largest > SMALLEST ? best_inverse_step(r, code_dim, bits, largest) : 0;
    double norm2 = 0, ry = 0, ey = 0;
    struct code_sums sums = {{0}, {0}, {0}};
    for (uint32_t i = 0; i < code_dim; i += LANES)
        encode_lanes(r + i, extra ? extra + i : NULL, inverse, bits, code + i / LANES * bits, &sums);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        norm2 += sums.norm2[lane];
        ry += sums.ry[lane];
        ey += sums.ey[lane];
    }
    if (dot_extra)
        *dot_extra = (float)ey;
    return largest > SMALLEST && ry > 0 ? (float)(norm2 / ry) : 0;
}

void code_decode(const uint8_t *code, uint32_t code_dim, unsigned bits, float f, float *r)
{
    float half = code_half(bits);
    unsigned mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < code_dim; i++)
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
