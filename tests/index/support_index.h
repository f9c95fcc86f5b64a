/* support_index.h - vectors, true neighbours, temporary folders and finished indexes for the tests of index/. */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_INDEX_H
#define QUIRE_TESTS_INDEX_SUPPORT_INDEX_H

#include "quire.h"
#include "tests/temp_folder.h"

#define SUPPORT_COUNT(array) (sizeof(array) / sizeof *(array))

/* Vectors as a caller of quire_build has them, and the same as floats. Ended by support_data_free. */
struct support_data {
    uint32_t rows, dim;
    enum quire_type type;
    uint8_t *vectors; /* rows x dim elements of type; owned */
    float *floats;    /* rows x dim; owned */
};

/* Gaussian clusters of about 50 rows each; row i belongs to a cluster drawn at random. A function of its arguments. */
void support_clusters(uint32_t rows, uint32_t dim, enum quire_type type, uint64_t seed, struct support_data *out);
/* n vectors near rows of data (n x dim floats, integral where the type is), ended by free. */
float *support_queries(const struct support_data *data, uint32_t n, uint64_t seed);
/* Room for rows x dim; all zeros. floats are filled from vectors by support_floats. */
void support_data_alloc(uint32_t rows, uint32_t dim, enum quire_type type, struct support_data *out);
void support_floats(struct support_data *data);
void support_data_free(struct support_data *data);
float support_gauss(uint64_t *state); /* mean 0, deviation 1 */

/* The metric's distance as quire.h defines it, in double. */
double support_distance(enum quire_metric metric, const float *query, const float *row, uint32_t dim);
/* The k nearest of n rows (k <= n), nearest first. Either output may be NULL. */
void support_truth(enum quire_metric metric, const float *rows, uint32_t n, uint32_t dim, const float *query,
                   uint32_t k, uint32_t *ids, double *distances);
/* Share of the k true neighbours among the hits; a hit as near as the k-th (1e-5) counts, so ties do not matter. */
double support_recall(enum quire_metric metric, const float *rows, uint32_t n, uint32_t dim, const float *query,
                      uint32_t k, const struct quire_hit *hits, uint32_t n_hits);

/* The whole file, ended by free. */
uint8_t *support_read_file(const char *path, size_t *bytes);
void support_write_file(const char *path, const void *data, size_t bytes);
void support_copy_folder(const char *from, const char *to);
/* The sections of an index's file, ended by free. The parts that carry the random segment id, and checksums seeded with
 * it, are blanked. */
uint8_t *support_file_without_id(const char *index, const char *name, size_t *bytes);

/* Options with two threads and a fixed seed. */
struct quire_build_options support_options(enum quire_metric metric, enum quire_slot slot);
/* Both fail the test with the library's own message. */
void support_build(const char *path, const struct support_data *data, const struct quire_build_options *options);
struct quire_index *support_open(const char *path, const struct quire_open_options *options);
struct quire_search_options support_search(uint32_t k, float recall, uint32_t effort);
/* A build's progress whose context is a uint64_t: how many queries the calibration asked in all. */
int support_note_asked(void *context, const char *phase, uint64_t done, uint64_t total);

#endif
