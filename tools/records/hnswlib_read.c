/*
 * hnswlib_read.c - vectors out of indexes that hnswlib has saved.
 *
 * The file (little-endian, C's sizes of 64-bit machines) begins with
 *     u64 offset of links, u64 capacity, u64 elements, u64 bytes per element, u64 offset of the label, u64 offset of
 *     the
 *     vector, i32 highest level, u32 entry point, u64 x 3 degrees, f64 factor, u64 effort of building
 * and goes on with the elements: links of the lowest level (whose third byte has the bit of deleted elements), vector,
 * label. Upper levels follow, which nobody needs here. Neither metric nor type is in the file: vectors are taken for
 * f32
 * (spaces of bytes are rare), and those of the space "cosine" have the length 1. Labels become keys; deleted elements
 * are left out.
 */
#include "io/bytes.h"
#include "io/error.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES  96u
#define DELETED     1u
#define ELEMENT_MAX (16u << 20)
#define CHUNK_BYTES (4u << 20)
#define KEY_BYTES   24u

struct hnswlib_source {
    struct records_source base;
    int fd;
    uint64_t elements, element_bytes, label_at, vector_at, links_at, next;
    uint8_t *chunk;
    uint64_t chunk_first, chunk_n, chunk_max; /* elements */
    struct arena texts;
};

/* The element `next`; NULL and *rc at an error. */
static const uint8_t *element(struct hnswlib_source *s, int *rc, struct quire_error *err)
{
    if (s->next >= s->chunk_first + s->chunk_n || s->next < s->chunk_first) {
        uint64_t n = s->elements - s->next < s->chunk_max ? s->elements - s->next : s->chunk_max;
        *rc = records_pread(s->fd, s->base.name, s->chunk, n * s->element_bytes,
                            HEAD_BYTES + s->next * s->element_bytes, err);
        if (*rc < 0)
            return NULL;
        s->chunk_first = s->next;
        s->chunk_n = n;
    }
    return s->chunk + (s->next - s->chunk_first) * s->element_bytes;
}

static bool is_deleted(const struct hnswlib_source *s, const uint8_t *e)
{
    return e[s->links_at + 2] & DELETED;
}

static int64_t hnswlib_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                            struct quire_error *err)
{
    struct hnswlib_source *s = (struct hnswlib_source *)source;
    uint64_t got = 0;
    int rc = 0;
    arena_reset(&s->texts);
    for (; got < n && s->next < s->elements; s->next++) {
        char text[KEY_BYTES];
        float *to = (float *)vectors + got * source->dim;
        const uint8_t *e = element(s, &rc, err);
        if (e && is_deleted(s, e))
            continue;
        if (e) {
            memcpy(to, e + s->vector_at, source->dim * sizeof *to);
            rc = records_check_finite(source->name, to, s->next, 1, source->dim, err);
            int bytes = snprintf(text, sizeof text, "%llu", (unsigned long long)bytes_load_u64(e + s->label_at));
            if (rc == 0 && !records_keep(&s->texts, text, (size_t)bytes, &records[got].key, &records[got].key_bytes))
                rc = error_set(err, QUIRE_ENOMEM, "no memory for keys");
        }
        if (rc < 0)
            return rc;
        got++;
    }
    return (int64_t)got;
}

static void hnswlib_close(struct records_source *source)
{
    struct hnswlib_source *s = (struct hnswlib_source *)source;
    if (s->fd >= 0)
        close(s->fd);
    arena_fini(&s->texts);
    free(s->chunk);
    free(source->name);
    free(s);
}

static const struct records_source_ops hnswlib_ops = {hnswlib_read, hnswlib_close};

static int read_head(struct hnswlib_source *s, uint64_t file_bytes, struct quire_error *err)
{
    uint8_t head[HEAD_BYTES];
    if (file_bytes < HEAD_BYTES)
        return error_set(err, QUIRE_ETRUNCATED, "%s has %llu bytes: no index of hnswlib is so short", s->base.name,
                         (unsigned long long)file_bytes);
    int rc = records_pread(s->fd, s->base.name, head, sizeof head, 0, err);
    if (rc < 0)
        return rc;
    s->links_at = bytes_load_u64(head);
    s->elements = bytes_load_u64(head + 16);
    s->element_bytes = bytes_load_u64(head + 24);
    s->label_at = bytes_load_u64(head + 32);
    s->vector_at = bytes_load_u64(head + 40);
    uint64_t vector_bytes = s->label_at - s->vector_at;
    if (s->element_bytes > ELEMENT_MAX || s->label_at > s->element_bytes || s->element_bytes - s->label_at != 8 ||
        s->vector_at < s->links_at + 4 || s->links_at > s->element_bytes || s->vector_at >= s->label_at ||
        vector_bytes % 4 != 0 || vector_bytes / 4 > QUIRE_DIM_MAX || bytes_load_u64(head + 8) < s->elements)
        return error_set(err, QUIRE_EFORMAT, "%s is no index of hnswlib with vectors of f32", s->base.name);
    if (s->elements < 1 || s->elements > (file_bytes - HEAD_BYTES) / s->element_bytes)
        return error_set(err, QUIRE_ETRUNCATED, "%s says that it has %llu elements of %llu bytes, and has %llu bytes",
                         s->base.name, (unsigned long long)s->elements, (unsigned long long)s->element_bytes,
                         (unsigned long long)file_bytes);
    s->base.dim = (uint32_t)(vector_bytes / 4);
    s->chunk_max = CHUNK_BYTES / s->element_bytes + 1;
    s->chunk = malloc(s->chunk_max * s->element_bytes);
    return s->chunk ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to read %s", s->base.name);
}

/* Formats that begin with the number of rows want to know how many are not deleted. */
static int count_rows(struct hnswlib_source *s, struct quire_error *err)
{
    int rc = 0;
    s->base.rows = 0;
    for (s->next = 0; s->next < s->elements; s->next++) {
        const uint8_t *e = element(s, &rc, err);
        if (!e)
            return rc;
        s->base.rows += !is_deleted(s, e);
    }
    s->next = 0;
    return s->base.rows ? 0 : error_set(err, QUIRE_ETRUNCATED, "%s has no element that is not deleted", s->base.name);
}

int hnswlib_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    struct stat st;
    struct hnswlib_source *s = records_new_source(sizeof *s, &hnswlib_ops, from->path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", from->path);
    s->base.type = QUIRE_TYPE_F32;
    s->base.may_have = RECORDS_KEYS;
    s->fd = open(from->path, O_RDONLY | O_CLOEXEC);
    int rc = s->fd < 0 || fstat(s->fd, &st) != 0 ? error_set_errno(err, errno, "cannot open", from->path) : 0;
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = error_set(err, QUIRE_EINVALID, "%s is not a plain file", from->path);
    if (rc == 0)
        rc = read_head(s, (uint64_t)st.st_size, err);
    if (rc == 0)
        rc = count_rows(s, err);
    if (rc < 0)
        hnswlib_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
