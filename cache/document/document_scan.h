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

struct document_segment {
    uint64_t bytes;         /* of the file */
    uint64_t documents;     /* that are whole */
    uint64_t end;           /* of the last of these; 0: there is none */
    uint64_t damaged_units; /* behind the header, neither documents nor zeros */
    bool has_header;        /* a whole one; without, the server reads nothing of it */
    bool header_damaged;    /* there was one */
};

/* Reads a file that nobody writes to. visit gets each document and its unit, and may end the scan with an error.
 * Errors: QUIRE_EFORMAT, EVERSION (another program's, or a later version's), EIO, ENOFILE, ENOMEM. */
int document_scan(struct io_fs *fs, const char *path, uint32_t number,
                  int (*visit)(void *context, const struct document *document, uint32_t unit), void *context,
                  struct document_segment *out, struct quire_error *err);

/* Makes the new file `to`: a header for segment `number`, and the documents of `from` that are whole, each where
 * it was; zeros elsewhere. Synced but for its name. */
int document_rescue(struct io_fs *fs, const char *from, const char *to, uint32_t number, struct quire_error *err);

#endif
