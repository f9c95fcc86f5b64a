/* embed_priv.h - what the files of the lexical embedder share: features, vocabulary, sparse rows, the SVD, the model.
 */
#ifndef QUIRE_DATASETS_EMBED_PRIV_H
#define QUIRE_DATASETS_EMBED_PRIV_H

#include "datasets/embed.h"
#include "index/vector/parallel.h"

/* ---- features of a text (embed_text.c) --------------------------------------------------------------------------- */

/* A bucket is 22 bits: its two top bits are the group, so that groups never share a bucket. */
#define EMBED_BUCKET_BITS 22u
#define EMBED_BUCKETS     (1u << EMBED_BUCKET_BITS)
#define EMBED_COUNT_MAX   1023u /* how often one feature counts in one text */
enum embed_group { EMBED_WORD, EMBED_PAIR, EMBED_PART, EMBED_GROUPS };

static inline unsigned embed_bucket_group(uint32_t bucket)
{
    uint32_t top = bucket >> (EMBED_BUCKET_BITS - 2);
    return top >= EMBED_PART ? EMBED_PART : top; /* parts of words own two quarters */
}

/* The distinct features of one text, ascending. An entry is bucket << 10 | count. */
struct features {
    uint32_t *entries;
    uint32_t n;
    uint32_t *capacity; /* scratch for sorting */
    uint8_t *words;     /* the text, normalised */
    size_t text_bytes;  /* longest text that the buffers take */
};

static inline uint32_t embed_feature_bucket(uint32_t entry)
{
    return entry >> 10;
}

static inline uint32_t embed_feature_count(uint32_t entry)
{
    return entry & EMBED_COUNT_MAX;
}

/* A zeroed struct is empty and valid; embed_features_fini frees. QUIRE_ELIMIT, QUIRE_ENOMEM. */
int embed_features_of(struct features *features, const char *text, size_t bytes, struct quire_error *err);
void embed_features_fini(struct features *features);

/* ---- vocabulary (embed_text.c) ----------------------------------------------------------------------------------- */

#define EMBED_DIRECTORY_BITS 16u

/* The buckets that a model knows, ascending; column i of the matrix is bucket[i]. */
struct vocabulary {
    uint32_t n;
    uint32_t *bucket;
    float *idf;
    float weight[EMBED_GROUPS]; /* length of each group's part in a text's row */
    uint32_t *directory;        /* 65,537: first column whose bucket has these top bits */
};

int embed_vocabulary_index(struct vocabulary *vocabulary, struct quire_error *err); /* makes the directory */
void embed_vocabulary_fini(struct vocabulary *vocabulary);
/* The row of a text: known columns and their weights, a unit vector. columns and values: space for n_entries. Returns
 * how many there are; 0: nothing known. */
uint32_t embed_vocabulary_row(const struct vocabulary *vocabulary, const uint32_t *entries, uint32_t n_entries,
                              uint32_t *columns, float *values);

/* ---- sparse rows (embed_sparse.c) -------------------------------------------------------------------------------- */

struct sparse {
    uint32_t rows, columns;
    uint64_t *start; /* rows + 1 */
    uint32_t *column;
    float *value;
};

int embed_sparse_transpose(const struct sparse *a, struct sparse *out, struct quire_error *err);
/* y (rows x width) = a * x (columns x width). */
int embed_sparse_multiply(const struct sparse *a, const float *x, float *y, uint32_t width, unsigned threads,
                          const struct progress *progress);
void embed_sparse_fini(struct sparse *a);

/* ---- randomised SVD (embed_svd.c) -------------------------------------------------------------------------------- */

/* With a = U diag(s) V', the leading dim columns of V as *basis (columns x dim, row-major, the caller's to free).
 * QUIRE_EDIM, with the rank in the message, when dim is more than that. */
int embed_svd_right(const struct sparse *a, uint32_t dim, uint64_t seed, unsigned threads,
                    const struct progress *progress, float **basis, struct quire_error *err);

/* ---- the model (embed_model.c) ----------------------------------------------------------------------------------- */

struct embed_model {
    struct embed_info info;
    struct vocabulary vocabulary;
    uint16_t *projection; /* features x dim, f16 */
};

/* Packs the f32 basis (features x dim) into the model's f16 projection, scaled so that the largest is 1024. */
int embed_model_pack(struct embed_model *model, const float *basis, struct quire_error *err);

#endif
