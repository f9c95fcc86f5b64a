/*
 * sections.h - the one container for everything but raw blocks: a 4 KiB superblock with a table of checksummed
 * sections.
 *
 * Layout (little-endian; docs/format.md has every byte)
 *   0      superblock, 4096 bytes: magic "QUIREFIL", kind, format version, segment id, file bytes, section table,
 *          XXH3-64 of bytes 0..4087 at 4088
 *   4096.. sections, each at a multiple of 4096, each with its XXH3-64 in the table (SECTION_SELF_CHECKED ones carry
 *          their own checksums inside, per block)
 * Valid if and only if: magic, known version, expected kind, superblock checksum right, file size equals the stated
 * one, sections inside the file and not overlapping, and each section that is read matches its checksum. What lies
 * between sections is zero.
 */
#ifndef QUIRE_IO_SECTIONS_H
#define QUIRE_IO_SECTIONS_H

#include "io/fs.h"

#define SECTION_MAGIC          "QUIREFIL"
#define SECTION_FORMAT_VERSION 1u
#define SECTION_ALIGN          4096u
#define SECTIONS_MAX           64u

enum section_flags { SECTION_SELF_CHECKED = 1 };

struct section_entry {
    uint32_t id; /* meaning belongs to the file's kind; unique within a file */
    uint32_t flags;
    uint64_t offset;   /* bytes from the start of the file */
    uint64_t bytes;    /* without padding */
    uint64_t checksum; /* XXH3-64 of the bytes; 0 when SECTION_SELF_CHECKED */
};

struct section_writer;
struct section_file;

/* Creates `path` (exclusive). segment_id ties the files of one segment together. */
int section_writer_create(struct io_fs *fs, const char *path, uint32_t kind, const uint8_t segment_id[16],
                          struct section_writer **out, struct quire_error *err);
/* Begins a section; the one before must be ended. */
int section_begin(struct section_writer *writer, uint32_t id, uint32_t flags, struct quire_error *err);
int section_write(struct section_writer *writer, const void *data, size_t bytes, struct quire_error *err);
int section_end(struct section_writer *writer, struct quire_error *err);
/* A whole section at once. */
int section_put(struct section_writer *writer, uint32_t id, const void *data, size_t bytes, struct quire_error *err);
/* Writes the superblock, syncs, closes and frees the writer, also on failure. */
int section_writer_finish(struct section_writer *writer, struct quire_error *err);
/* Closes and removes the half-written file. */
void section_writer_abort(struct section_writer *writer);
/* The one or the other: finishes when rc is 0, aborts otherwise. Returns rc, or what finishing gave. NULL is fine. */
int section_writer_conclude(struct section_writer *writer, int rc, struct quire_error *err);

/* Opens and checks superblock and size. flags: FS_READ, FS_DIRECT. Errors name path, expected and found. `kind` must
 * match; segment_id may be NULL (not compared). */
int section_file_open(struct io_fs *fs, const char *path, uint32_t kind, const uint8_t *segment_id, unsigned flags,
                      struct section_file **out, struct quire_error *err);
/* A file with whatever damage, for what still proves itself in it: it has the sections that a superblock which is right
 * names and that lie within the file, perhaps none. */
int section_file_open_damaged(struct io_fs *fs, const char *path, uint32_t kind, const uint8_t *segment_id,
                              unsigned flags, struct section_file **out, struct quire_error *err);
void section_file_close(struct section_file *file); /* NULL is fine */
struct io_file *section_file_io(struct section_file *file);
const uint8_t *section_file_segment_id(const struct section_file *file); /* 16 bytes */
uint64_t section_file_bytes(const struct section_file *file);
/* NULL if there is none. */
const struct section_entry *section_find(const struct section_file *file, uint32_t id);
uint32_t section_count(const struct section_file *file);
const struct section_entry *section_at(const struct section_file *file, uint32_t index);
/* Reads the whole section into buffer (>= bytes) and checks its checksum, in pieces of at most 1 MiB, so that nothing
 * more than the buffer is held. Works under O_DIRECT for any buffer. */
int section_load(struct section_file *file, const struct section_entry *entry, void *buffer, struct quire_error *err);
/* Reads part of a section, unchecked. Works for any offset and size. */
int section_read(struct section_file *file, const struct section_entry *entry, uint64_t offset, void *buffer,
                 size_t bytes, struct quire_error *err);
/* Checks that the bytes that belong to no section, from the superblock to the end of the file, are zero. */
int section_verify_gaps(struct section_file *file, struct quire_error *err);
/* Checks a section's checksum without keeping it. */
int section_verify(struct section_file *file, const struct section_entry *entry, struct quire_error *err);

#endif
