/*
 * embed.h - a lexical embedder: text to unit vectors without a model from anywhere else.
 *
 * fit: lines of text -> model (hashed words, word pairs and character n-grams; TF-IDF; randomised SVD through
 * OpenBLAS). apply: model and text -> a unit vector of `dim` floats. It sees overlap of words and of their parts,
 * nothing else: production brings vectors from a real encoder (docs/embedding.md).
 *
 * Text is bytes. Letters are A-Z a-z 0-9 and every byte >= 0x80, so UTF-8 of any script passes and damaged UTF-8 does
 * no harm; upper case is folded in ASCII only; all else separates words.
 *
 * Thread-safety: an embed_fit belongs to one thread at a time; a model is constant and may be used by many threads.
 */
#ifndef QUIRE_DATASETS_EMBED_H
#define QUIRE_DATASETS_EMBED_H

#include "quire.h"

#define EMBED_KIND           0x454D4244u /* kind of the model's section file: "EMBD" */
#define EMBED_DIM_DEFAULT    256u
#define EMBED_DIM_MAX        1024u
#define EMBED_TEXT_BYTES_MAX 1048576u /* one text */

struct embed_model;
struct embed_fit;

struct embed_fit_options {
    uint32_t dim;     /* 1..EMBED_DIM_MAX, and at most the rank of the text */
    uint64_t seed;    /* same text, seed and processor type: same model, byte for byte, whatever `threads` is */
    unsigned threads; /* 0: as many as there are processors */
    /* NULL, or called now and then from the calling thread; non-zero stops with QUIRE_ECANCELLED. */
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total);
    void *context;
};
void embed_fit_options_init(struct embed_fit_options *options);

/* Memory: under 256 MiB while lines come in and under 1 GiB in embed_fit_finish at 256 dimensions (2 GiB at 1024),
 * however long the text is: document frequencies count every line, the SVD sees a uniform sample of at most 131,072 of
 * them. */
int embed_fit_create(const struct embed_fit_options *options, struct embed_fit **out, struct quire_error *err);
void embed_fit_destroy(struct embed_fit *fit); /* NULL is fine */
/* One text. One without any letter counts and adds nothing. QUIRE_ELIMIT above EMBED_TEXT_BYTES_MAX, QUIRE_ENOMEM. */
int embed_fit_line(struct embed_fit *fit, const char *text, size_t bytes, struct quire_error *err);
/* *out is ended by embed_model_free. Call it once; the fit still must be destroyed. QUIRE_EDIM (dim above the rank; the
 * message has the rank), QUIRE_EUNSUPPORTED (no OpenBLAS), QUIRE_ECANCELLED, QUIRE_ENOMEM. */
int embed_fit_finish(struct embed_fit *fit, struct embed_model **out, struct quire_error *err);

/* Written under a temporary name beside `path`, synced, renamed: replaces a file that is there. */
int embed_model_save(const struct embed_model *model, const char *path, struct quire_error *err);
/* Checks everything: checksums, sizes, order, finite numbers. */
int embed_model_open(const char *path, struct embed_model **out, struct quire_error *err);
void embed_model_free(struct embed_model *model); /* NULL is fine */

struct embed_info {
    uint32_t dim;
    uint32_t features; /* buckets that the model knows */
    uint64_t lines;    /* texts that the frequencies were counted on */
    uint64_t rows;     /* texts that the SVD saw */
    uint64_t seed;
    uint64_t model_bytes; /* of the three tables */
};
void embed_model_info(const struct embed_model *model, struct embed_info *out);

/* Whether embed_apply has a vector for the text, at the same cost. 1, 0 or a negative QUIRE_E. */
int embed_known(const struct embed_model *model, const char *text, size_t bytes, struct quire_error *err);
/* The unit vector of a text into vector (dim floats). QUIRE_EZEROVEC: no known feature. QUIRE_ELIMIT: too long. */
int embed_apply(const struct embed_model *model, const char *text, size_t bytes, float *vector,
                struct quire_error *err);

/* ---- lines of text to embed -------------------------------------------------------------------------------------- */

/* Reads texts one to a line, or out of one column of a tab-separated file. "\r\n" and a last line without an end are
 * fine. A line has at most EMBED_LINE_BYTES_MAX bytes, so that memory stays bounded whatever comes. */
#define EMBED_LINE_BYTES_MAX (2u * EMBED_TEXT_BYTES_MAX)

struct embed_lines;
struct embed_line {
    const char *text, *key; /* valid until the next call; key is NULL where no key column was asked for */
    size_t text_bytes, key_bytes;
    uint64_t number; /* from 1 */
};

/* path "-" is standard input. columns count from 1; text_column 0: the whole line; key_column 0: no key. `again`: there
 * will be an embed_lines_rewind, so what cannot be read twice (a pipe) is copied to an unnamed file under $TMPDIR. */
int embed_lines_open(const char *path, unsigned text_column, unsigned key_column, bool again, struct embed_lines **out,
                     struct quire_error *err);
void embed_lines_close(struct embed_lines *lines); /* NULL is fine */
/* 1: *out is filled; 0: the end; or a negative QUIRE_E: QUIRE_EPARSE (no such column), QUIRE_ELIMIT (line too long),
 * both naming file and line; QUIRE_EIO. */
int embed_lines_next(struct embed_lines *lines, struct embed_line *out, struct quire_error *err);
int embed_lines_rewind(struct embed_lines *lines, struct quire_error *err);
/* Bytes read so far and in all (0: not known), for a progress bar. */
void embed_lines_place(const struct embed_lines *lines, uint64_t *done, uint64_t *total);

/* Embeds all lines that are left. take(context, line, vector) gets each line that has a vector, in order, on the
 * calling thread; a negative answer stops and is returned. */
struct embed_run {
    unsigned threads; /* 0: as many as there are processors */
    bool skip_empty;  /* leave lines without a vector out; otherwise QUIRE_EZEROVEC names the first */
    int (*take)(void *context, const struct embed_line *line, const float *vector);
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total); /* bytes; may be NULL */
    void *context;                                                                    /* of both */
};
/* *rows: lines taken, *skipped: lines left out; both may be NULL. Memory: about 4 MiB of text and 4,096 vectors. */
int embed_lines_apply(const struct embed_model *model, struct embed_lines *lines, const struct embed_run *run,
                      uint64_t *rows, uint64_t *skipped, struct quire_error *err);

#endif
