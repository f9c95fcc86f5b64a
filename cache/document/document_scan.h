/*
 * document_scan.h - reads a segment of documents from front to back: for compaction, and for checks of a folder that
 * nobody has open.
 *
 * Between documents there may be damage: then the reading goes on with the next unit at which a document is
 * whole. Bytes inside of a damaged document that look like one do no harm: no entry points there.
 */
#ifndef QUIRE_CACHE_DOCUMENT_SCAN_H
#define QUIRE_CACHE_DOCUMENT_SCAN_H

#include "cache/document/document.h"
#include "io/fs.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

#define LOG_NAME_BYTES 32u /* of "<16 hex digits>.docs" */
/* folder/name; owned by the caller. NULL without memory. */
char *document_log_path(const char *folder, const char *name);
void document_log_segment_name(char name[LOG_NAME_BYTES], uint32_t number);
/* The number that a file name stands for; 0: it is no segment's. */
uint32_t document_log_parse_name(const char *name);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A part of a segment in memory. Zeros; ended by memory_free(bytes). */
struct document_window {
    uint8_t *bytes; /* owned */
    size_t capacity;
    uint64_t begin, end;
    uint64_t damaged_units; /* that are no document, nor zeros */
};

/* Checks the document at an offset, of which all lies below `limit`. 1: it is one, pointing into the window until the
 * next call; 0: it is none, or padding; negative: QUIRE_EIO, ENOMEM. */
int document_check_at(struct document_window *window, const struct io_file *file, uint64_t limit, uint64_t offset,
                      struct document *document, struct quire_error *err);

/* What the first page of a file is. */
enum document_header {
    DOCUMENT_HEADER_WHOLE,
    DOCUMENT_HEADER_NONE,    /* zeros, or not a page */
    DOCUMENT_HEADER_DAMAGED, /* one that does not prove itself */
    DOCUMENT_HEADER_OTHER    /* nothing that looks like one */
};

struct document_segment {
    uint64_t bytes;         /* of the file */
    uint64_t documents;     /* that are whole */
    uint64_t damaged_units; /* behind the header, neither documents nor zeros */
    enum document_header header;
};

/* Reads a file that nobody writes to. visit gets each document and its unit, and may end the scan with an error, or
 * with 1, which is no error. Errors: QUIRE_EVERSION (a later version's), EIO, ENOFILE, ENOMEM. */
int document_scan(struct io_fs *fs, const char *path, uint32_t number,
                  int (*visit)(void *context, const struct document *document, uint32_t unit), void *context,
                  struct document_segment *out, struct quire_error *err);

/* ---- what is damage, and what a crash leaves --------------------------------------------------------------------- */

/* So many bytes of a segment, from its beginning, were on the device. The host keeps these (document_log_options). */
struct document_extent {
    uint32_t segment;
    uint64_t bytes;
};
/* extents: n, by ascending segment. Of one that is not among them: 0. */
uint64_t document_extent_of(const struct document_extent *extents, uint32_t n, uint32_t segment);

enum document_use {
    DOCUMENTS_SERVED, /* each document proves itself, so they are, whatever the header is */
    DOCUMENTS_NONE,   /* there is none: the file goes when no entry needs it */
    DOCUMENTS_OTHERS  /* it is no segment: it is left alone */
};
struct document_judgement {
    enum document_use use;
    bool is_damaged;  /* more is wrong than a crash leaves */
    const char *what; /* is wrong, and what comes of it; static; NULL: nothing */
};
/* The one rule of opening, verifying and repairing. The header is written with the first documents and synced with
 * them: once anything of a file was durable, a header that is not whole is damage; before, a power cut leaves it as it
 * likes. */
void document_judge(enum document_header header, bool has_documents, uint64_t durable_bytes,
                    struct document_judgement *out);
/* The same of one document, that an entry points to and that is not there, or not whole. */
bool document_was_durable(uint32_t unit, uint32_t bytes, uint64_t durable_bytes);

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* Makes the new file `to`: a header for segment `number`, and the documents of `from` that are whole, each where
 * it was; zeros elsewhere. Synced but for its name. */
int document_rescue(struct io_fs *fs, const char *from, const char *to, uint32_t number, struct quire_error *err);

#endif
