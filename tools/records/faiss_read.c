/*
 * faiss_read.c - vectors out of indexes that faiss has written: flat, IVF with flat lists, and either behind a map of
 * ids.
 *
 * A file is one index: four letters that say which, then (little-endian, C's sizes of 64-bit machines)
 *     i32 dimensions, i64 vectors, i64 unused x 2, u8 trained, i32 metric, f32 its argument where metric > 1
 *     IxF2 IxFI IxFl  u64 floats, the floats, row by row
 *     IwFl            u64 lists, u64 probes, the index of the centres, the direct map (u8 kind, list of i64; pairs of
 *                     them for kind 2), "ilar", u64 lists, u64 bytes per vector, "full" and the sizes, or "sprs" and
 *                     pairs of list and size; then of each list the vectors and their ids (i64)
 *     IxMp IxM2       an index, list of i64: the ids of its rows
 * A list is u64 n and n items. Other kinds keep codes that are no vectors, or graphs; they are refused by their
 * letters.
 *
 * Ids become keys. An IVF index has its rows by list, so they come in that order; a flat one's are the numbers of its
 * rows, and it has no keys.
 */
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTS_MAX  (1u << 26)
#define KEY_BYTES  24u
#define NESTED_MAX 3u

struct list {
    uint64_t rows, at; /* at: of its vectors; its ids follow */
};

struct faiss_source {
    struct records_source base;
    int fd;
    uint64_t bytes, at; /* of the file; where it is read */
    struct list *lists; /* of a flat index: one */
    uint64_t n_lists, list, in_list, row;
    bool ids_in_lists;
    uint64_t ids_at; /* of a map of ids; 0: none */
    struct arena texts;
};

static int take(struct faiss_source *s, void *to, size_t n, struct quire_error *err)
{
    int rc = records_pread(s->fd, s->base.name, to, n, s->at, err);
    s->at += n;
    return rc;
}

static int take_u64(struct faiss_source *s, uint64_t *out, struct quire_error *err)
{
    uint8_t bytes[8];
    int rc = take(s, bytes, sizeof bytes, err);
    *out = rc == 0 ? bytes_load_u64(bytes) : 0;
    return rc;
}

/* Over n items of `each` bytes, which must be there. */
static int pass(struct faiss_source *s, uint64_t n, uint64_t each, struct quire_error *err)
{
    if (s->at > s->bytes || (each && n > (s->bytes - s->at) / each))
        return error_set(err, QUIRE_ETRUNCATED, "%s is shorter than it says: %llu items of %llu bytes at %llu",
                         s->base.name, (unsigned long long)n, (unsigned long long)each, (unsigned long long)s->at);
    s->at += n * each;
    return 0;
}

struct head {
    char kind[5];
    uint32_t dim, metric;
    uint64_t rows;
};

static int take_head(struct faiss_source *s, struct head *out, struct quire_error *err)
{
    uint8_t bytes[37];
    int rc = take(s, bytes, sizeof bytes, err);
    if (rc < 0)
        return rc;
    memcpy(out->kind, bytes, 4);
    out->kind[4] = 0;
    out->dim = bytes_load_u32(bytes + 4);
    out->rows = bytes_load_u64(bytes + 8);
    out->metric = bytes_load_u32(bytes + 33);
    for (int i = 0; i < 4; i++)
        if (out->kind[i] < ' ' || out->kind[i] > '~')
            return error_set(err, QUIRE_EFORMAT, "%s is no index of faiss", s->base.name);
    if (out->dim < 1 || out->dim > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_EDIM, "%s says that its vectors have %u dimensions; expected 1 to %u", s->base.name,
                         out->dim, QUIRE_DIM_MAX);
    return out->metric > 1 ? pass(s, 1, 4, err) : 0;
}

static bool is_flat(const char *kind)
{
    return strcmp(kind, "IxF2") == 0 || strcmp(kind, "IxFI") == 0 || strcmp(kind, "IxFl") == 0;
}

/* Behind its head; *out: its vectors. */
static int take_flat(struct faiss_source *s, const struct head *h, struct list *out, struct quire_error *err)
{
    uint64_t floats;
    int rc = take_u64(s, &floats, err);
    if (rc == 0 && (h->rows > UINT64_MAX / h->dim || floats != h->rows * h->dim))
        rc = error_set(err, QUIRE_EFORMAT, "%s: %llu vectors of %u dimensions do not have %llu numbers", s->base.name,
                       (unsigned long long)h->rows, h->dim, (unsigned long long)floats);
    *out = (struct list){h->rows, s->at};
    return rc == 0 ? pass(s, floats, 4, err) : rc;
}

static int refuse_kind(const struct faiss_source *s, const char *kind, struct quire_error *err)
{
    return error_set(
        err, QUIRE_EUNSUPPORTED,
        "%s holds an index of kind %s; flat ones (IxF2, IxFI), IVF of flat lists (IwFl) and maps of ids over "
        "them (IxMp, IxM2) are read, others do not keep the vectors: write them from where they came from",
        s->base.name, kind);
}

static int take_sizes(struct faiss_source *s, struct quire_error *err)
{
    char kind[5] = {0};
    uint64_t n, list, size;
    int rc = take(s, kind, 4, err);
    bool full = strcmp(kind, "full") == 0, sparse = strcmp(kind, "sprs") == 0;
    if (rc == 0)
        rc = take_u64(s, &n, err);
    if (rc == 0 && ((!full && !sparse) || (full && n != s->n_lists) || (sparse && (n % 2 || n > 2 * s->n_lists))))
        rc = error_set(err, QUIRE_EFORMAT, "%s: the sizes of its lists are damaged", s->base.name);
    for (uint64_t i = 0; rc == 0 && i < n; i += full ? 1 : 2) {
        list = i;
        if (sparse)
            rc = take_u64(s, &list, err);
        if (rc == 0)
            rc = take_u64(s, &size, err);
        if (rc == 0 && list >= s->n_lists)
            rc = error_set(err, QUIRE_EFORMAT, "%s: there is no list %llu", s->base.name, (unsigned long long)list);
        if (rc == 0)
            s->lists[list].rows = size;
    }
    return rc;
}

static int take_ivf(struct faiss_source *s, const struct head *h, struct quire_error *err)
{
    struct head centres;
    struct list unused;
    uint64_t lists = 0, again = 0, n, each = 0, rows = 0;
    char kind[5] = {0};
    uint8_t map = 0;
    int rc = take_u64(s, &lists, err);
    if (rc == 0)
        rc = pass(s, 1, 8, err);
    if (rc == 0)
        rc = take_head(s, &centres, err);
    if (rc == 0 && !is_flat(centres.kind))
        rc = refuse_kind(s, centres.kind, err);
    if (rc == 0)
        rc = take_flat(s, &centres, &unused, err);
    if (rc == 0)
        rc = take(s, &map, 1, err);
    if (rc == 0)
        rc = take_u64(s, &n, err);
    if (rc == 0)
        rc = pass(s, n, 8, err);
    if (rc == 0 && map == 2)
        rc = take_u64(s, &n, err);
    if (rc == 0 && map == 2)
        rc = pass(s, n, 16, err);
    if (rc == 0)
        rc = take(s, kind, 4, err);
    if (rc == 0 && strcmp(kind, "ilar") != 0)
        rc = error_set(err, QUIRE_EUNSUPPORTED,
                       "%s keeps its lists as %s, outside of the file or not at all; lists in it (ilar) are read",
                       s->base.name, kind);
    if (rc == 0)
        rc = take_u64(s, &again, err);
    if (rc == 0)
        rc = take_u64(s, &each, err);
    if (rc == 0 && (again != lists || lists < 1 || lists > LISTS_MAX || each != 4ull * h->dim))
        rc = error_set(err, QUIRE_EFORMAT, "%s: its lists are damaged, or larger than %u", s->base.name, LISTS_MAX);
    if (rc < 0)
        return rc;
    s->lists = calloc(lists, sizeof *s->lists);
    s->n_lists = lists;
    if (!s->lists)
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu lists", (unsigned long long)lists);
    rc = take_sizes(s, err);
    for (uint64_t i = 0; rc == 0 && i < lists; i++) {
        s->lists[i].at = s->at;
        rc = pass(s, s->lists[i].rows, each + 8, err);
        rows += s->lists[i].rows;
    }
    if (rc == 0 && rows != h->rows)
        rc = error_set(err, QUIRE_EFORMAT, "%s: its lists have %llu vectors, and it says %llu", s->base.name,
                       (unsigned long long)rows, (unsigned long long)h->rows);
    s->ids_in_lists = true;
    return rc;
}

static int take_index(struct faiss_source *s, unsigned depth, struct quire_error *err)
{
    struct head h;
    int rc = take_head(s, &h, err);
    if (rc < 0)
        return rc;
    if (is_flat(h.kind)) {
        s->lists = calloc(1, sizeof *s->lists);
        s->n_lists = 1;
        rc = s->lists ? take_flat(s, &h, &s->lists[0], err) : error_set(err, QUIRE_ENOMEM, "no memory for an index");
    } else if (strcmp(h.kind, "IwFl") == 0) {
        rc = take_ivf(s, &h, err);
    } else if ((strcmp(h.kind, "IxMp") == 0 || strcmp(h.kind, "IxM2") == 0) && depth < NESTED_MAX) {
        uint64_t n;
        rc = take_index(s, depth + 1, err);
        if (rc == 0 && (s->ids_in_lists || s->ids_at))
            return error_set(err, QUIRE_EUNSUPPORTED, "%s: a map of ids over other ids is not read", s->base.name);
        if (rc == 0)
            rc = take_u64(s, &n, err);
        if (rc == 0 && n != s->base.rows)
            rc = error_set(err, QUIRE_EFORMAT, "%s: %llu ids for %llu vectors", s->base.name, (unsigned long long)n,
                           (unsigned long long)s->base.rows);
        s->ids_at = s->at;
        return rc == 0 ? pass(s, n, 8, err) : rc;
    } else {
        return refuse_kind(s, h.kind, err);
    }
    s->base.dim = h.dim;
    s->base.rows = h.rows;
    s->base.metric = h.metric == 0 ? QUIRE_METRIC_IP : h.metric == 1 ? QUIRE_METRIC_L2 : RECORDS_METRIC_UNKNOWN;
    return rc;
}

/* n ids at `at` become keys. */
static int take_ids(struct faiss_source *s, uint64_t at, struct record *records, uint64_t n, struct quire_error *err)
{
    uint8_t *ids = malloc(n * 8);
    char text[KEY_BYTES];
    int rc = ids ? records_pread(s->fd, s->base.name, ids, n * 8, at, err)
                 : error_set(err, QUIRE_ENOMEM, "no memory for ids");
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        int bytes = snprintf(text, sizeof text, "%lld", (long long)bytes_load_u64(ids + 8 * i));
        if (!records_keep(&s->texts, text, (size_t)bytes, &records[i].key, &records[i].key_bytes))
            rc = error_set(err, QUIRE_ENOMEM, "no memory for keys");
    }
    free(ids);
    return rc;
}

static int64_t faiss_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                          struct quire_error *err)
{
    struct faiss_source *s = (struct faiss_source *)source;
    uint64_t row_bytes = 4ull * source->dim, got = 0;
    arena_reset(&s->texts);
    while (got < n && s->list < s->n_lists) {
        const struct list *l = &s->lists[s->list];
        uint64_t left = l->rows - s->in_list, now = left < n - got ? left : n - got;
        float *to = (float *)vectors + got * source->dim;
        int rc = now ? records_pread(s->fd, source->name, to, now * row_bytes, l->at + s->in_list * row_bytes, err) : 0;
        if (rc == 0)
            rc = records_check_finite(source->name, to, s->row, now, source->dim, err);
        if (rc == 0 && now && (s->ids_in_lists || s->ids_at))
            rc = take_ids(s, s->ids_in_lists ? l->at + l->rows * row_bytes + s->in_list * 8 : s->ids_at + s->row * 8,
                          records + got, now, err);
        if (rc < 0)
            return rc;
        got += now;
        s->row += now;
        s->in_list += now;
        if (s->in_list == l->rows) {
            s->list++;
            s->in_list = 0;
        }
    }
    return (int64_t)got;
}

static void faiss_close(struct records_source *source)
{
    struct faiss_source *s = (struct faiss_source *)source;
    if (s->fd >= 0)
        close(s->fd);
    arena_fini(&s->texts);
    free(s->lists);
    free(source->name);
    free(s);
}

static const struct records_source_ops faiss_ops = {faiss_read, faiss_close};

int faiss_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    struct stat st;
    struct faiss_source *s = records_new_source(sizeof *s, &faiss_ops, from->path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", from->path);
    s->base.type = QUIRE_TYPE_F32;
    s->fd = open(from->path, O_RDONLY | O_CLOEXEC);
    int rc = s->fd < 0 || fstat(s->fd, &st) != 0 ? error_set_errno(err, errno, "cannot open", from->path) : 0;
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = error_set(err, QUIRE_EINVALID, "%s is not a plain file", from->path);
    if (rc == 0) {
        s->bytes = (uint64_t)st.st_size;
        rc = take_index(s, 0, err);
    }
    if (rc == 0 && s->base.rows == 0)
        rc = error_set(err, QUIRE_ETRUNCATED, "%s has no vectors", from->path);
    if (rc == 0 && (s->ids_in_lists || s->ids_at))
        s->base.may_have = RECORDS_KEYS;
    if (rc < 0)
        faiss_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
