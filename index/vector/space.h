/*
 * space.h - the working space, in which every metric is squared L2: what the graph, the codes and the search measure.
 *
 *   L2      w = x
 *   cosine  w = x / |x|                          |w_q - w_x|^2 = 2 (1 - cos)
 *           of a zero vector: 0, and 1 in a dimension that no other vector has, not even another zero vector
 *   ip      w = (x, sqrt(M^2 - |x|^2)), w_q = (t q, 0)   |w_q - w_x|^2 = t^2 |q|^2 + M^2 - 2 t <q, x>
 *                                                                                            (Bachrach et al. 2014)
 *
 * t makes w_q twice as long as M, see space.c. Then the mean is taken off, the vector is padded to code_dim and
 * rotated. Distances stay.
 */
#ifndef QUIRE_INDEX_SPACE_H
#define QUIRE_INDEX_SPACE_H

#include "index/vector/rotation.h"
#include "quire.h"

struct space {
    enum quire_metric metric;
    enum quire_type type; /* of the user's vectors */
    uint32_t dim;         /* of the user's vectors */
    uint32_t work_dim;    /* dim, or dim + 1 under ip */
    uint32_t code_dim;
    uint64_t seed;
    double norm2_max; /* M^2, largest squared length; ip only */
    float *mean;      /* work_dim; owned */
    struct rotation rotation;
};

/* Sets everything but the mean (zeros) and norm2_max. */
int space_init(struct space *space, enum quire_metric metric, enum quire_type type, uint32_t dim, uint64_t seed);
void space_fini(struct space *space);

/* n stored elements as floats. `out` overlaps none of them. */
void space_floats(enum quire_type type, const void *elements, size_t n, float *out);
/* And back: floats as n elements, rounded to the nearest that the type has. */
void space_elements(enum quire_type type, const float *floats, size_t n, void *out);
/* Checks a vector of the user: QUIRE_ENOTFINITE (under other metrics than cosine also what is too long to square). */
int space_check(const struct space *space, const float *vector);
/* The unit vector of n floats (in place is fine), which may be as small or large as a float can be; returns the length.
 * 0: a zero vector, which stays one. */
double space_unit(const float *vector, uint32_t n, float *unit);
/* Under cosine: whether what is computed from the elements of a vector of this length as they are stays in the range of
 * float. Of another vector the elements of its unit vector are kept. */
static inline bool space_is_ordinary(double length)
{
    return length == 0 || (length > 1e-35 && length < 1e35);
}
/* Row -> working space before centring (work_dim floats) from dim floats. */
void space_lift(const struct space *space, const float *vector, float *work);
/* Row -> rotated, centred, padded (code_dim floats). `vector` has dim floats. Returns its squared length in the
 * dimension that zero vectors have for themselves (1 or 0), to be added to the squared length of `out`. */
float space_row(const struct space *space, const float *vector, float *out);
/* Query -> rotated, centred, padded; returns as space_row. *norm2: squared length of the user's query; under cosine 1,
 * or 0 of a zero vector. */
float space_query(const struct space *space, const float *query, float *out, float *norm2);
/* The user's distance from the squared distance in the working space. */
float space_distance(const struct space *space, float work_distance, float query_norm2);
/* The same of a standard deviation. */
float space_deviation(const struct space *space, float work_deviation, float query_norm2);
/* And back. */
float space_work_distance(const struct space *space, float distance, float query_norm2);
/* Undoes space_row: code_dim floats (changed) -> dim floats of the user's (unit length under cosine). */
void space_restore(const struct space *space, float *rotated, float *vector);

#endif
