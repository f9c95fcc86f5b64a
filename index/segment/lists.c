/*
 * lists.c - the resident part of a segment of inverted lists: written by a build, loaded and checked when it is opened.
 *
 * The heads' graph is kept as images of its rows with their links, so that opening a segment of a million heads is a
 * read and not a minute of linking. An image is trusted in nothing (graph_image_load, graph_mend): what does not agree
 * is an error here, because a sealed file has no business to be half right.
 *
 * Resident codes are made of the posting blocks, which are read forward once: 32 consecutive rows share a group
 * whatever lists they belong to, since a list's own rows are consecutive. So nothing is padded, and a scan of a list
 * looks at the groups that its rows are in.
 */
#include "index/segment/lists.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_ROWS   4096u
#define HEADS_DEGREE 16u
#define HEADS_BEAM   120u
#define SCAN_BYTES   (4u << 20) /* of posting blocks that are read at once while codes are loaded */

static uint32_t groups_of(uint64_t rows)
{
    return (uint32_t)((rows + CODE_GROUP - 1) / CODE_GROUP);
}

uint64_t lists_bytes_of(const struct segment_params *p)
{
    /* a head's code, its numbers and its links below, which is about what the graph takes */
    uint64_t each = sizeof(struct list_entry) + sizeof(float) + p->code_dim + 16 + 8 * 2 * HEADS_DEGREE;
    return p->n_lists * each + (p->run_rows ? sizeof(uint32_t) * (2 * (uint64_t)p->run_rows + p->n_lists) : 0);
}

uint64_t lists_codes_bytes_of(const struct segment_params *p)
{
    return (uint64_t)groups_of(p->rows) *
           (code_group_bytes(p->code_dim, p->list_bits) + CODE_GROUP * 2 * sizeof(f16_t));
}

int lists_graph_create(uint32_t code_dim, uint64_t seed, struct epochs **epochs, struct graph **graph,
                       struct quire_error *err)
{
    struct graph_config config = {.code_dim = code_dim, .degree = HEADS_DEGREE, .beam = HEADS_BEAM, .seed = seed};
    if (epochs_create(epochs) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the heads of inverted lists");
    config.epochs = *epochs;
    return graph_create(&config, graph, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_entries(struct section_writer *writer, const struct list_entry *entries, uint32_t n,
                         struct quire_error *err)
{
    uint8_t bytes[64 * LIST_ENTRY_BYTES];
    int rc = section_begin(writer, CODES_LISTS, 0, err);
    for (uint32_t at = 0; rc == 0 && at < n; at += 64) {
        uint32_t m = n - at < 64 ? n - at : 64;
        for (uint32_t i = 0; i < m; i++)
            posting_list_encode(&entries[at + i], bytes + (size_t)i * LIST_ENTRY_BYTES);
        rc = section_write(writer, bytes, (size_t)m * LIST_ENTRY_BYTES, err);
    }
    return rc == 0 ? section_end(writer, err) : rc;
}

static int write_images(struct section_writer *writer, uint32_t n, const struct graph *heads, struct epochs *epochs,
                        struct quire_error *err)
{
    uint8_t head[4], *image = NULL;
    size_t capacity = 0;
    bytes_store_u32(head, IMAGE_ROWS);
    int rc = section_write(writer, head, 4, err);
    unsigned slot = epoch_enter(epochs);
    for (uint32_t at = 0; rc == 0 && at < n; at += IMAGE_ROWS) {
        uint32_t m = n - at < IMAGE_ROWS ? n - at : IMAGE_ROWS;
        size_t most = graph_image_bytes(heads, at, m);
        if (most > capacity) {
            free(image);
            image = malloc(capacity = most);
        }
        if (!image) {
            rc = error_set(err, QUIRE_ENOMEM, "no memory for an image of %u heads", m);
            break;
        }
        size_t bytes = graph_image_save(heads, at, m, image);
        bytes_store_u32(head, (uint32_t)bytes);
        rc = section_write(writer, head, 4, err);
        if (rc == 0)
            rc = section_write(writer, image, bytes, err);
    }
    epoch_exit(epochs, slot);
    free(image);
    return rc;
}

int lists_write(struct section_writer *writer, const struct list_entry *entries, uint32_t n, const struct graph *heads,
                struct epochs *epochs, const uint32_t *guest_lists, uint32_t n_guests, struct quire_error *err)
{
    int rc = write_entries(writer, entries, n, err);
    if (rc == 0 && n_guests > 0)
        rc = format_section_put_words(writer, CODES_GUESTS, guest_lists, n_guests, err);
    if (rc == 0)
        rc = section_begin(writer, CODES_HEADS, 0, err);
    if (rc == 0)
        rc = write_images(writer, n, heads, epochs, err);
    return rc == 0 ? section_end(writer, err) : rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* guest_at and guests from the lists of the guests. */
static int sort_guests(struct lists *lists, uint32_t n, const char *path, struct quire_error *err)
{
    lists->guest_at = calloc((size_t)lists->n + 1, sizeof *lists->guest_at);
    lists->guests = malloc(sizeof *lists->guests * n);
    if (!lists->guest_at || !lists->guests)
        return error_set(err, QUIRE_ENOMEM, "no memory for the guests of %u lists", lists->n);
    for (uint32_t i = 0; i < n; i++) {
        if (lists->guest_lists[i] >= lists->n)
            return error_set(err, QUIRE_ECORRUPT, "%s: row %u is a guest of list %u of %u", path,
                             lists->first_guest + i, lists->guest_lists[i], lists->n);
        lists->guest_at[lists->guest_lists[i]]++;
    }
    for (uint32_t i = 0, sum = 0; i <= lists->n; i++) {
        sum += lists->guest_at[i];
        lists->guest_at[i] = sum;
    }
    for (uint32_t i = n; i-- > 0;)
        lists->guests[--lists->guest_at[lists->guest_lists[i]]] = lists->first_guest + i;
    return 0;
}

static int load_guests(struct lists *lists, const struct segment_params *p, struct section_file *codes,
                       struct quire_error *err)
{
    void *bytes = NULL;
    lists->first_guest = (uint32_t)p->rows - p->run_rows;
    if (p->run_rows == 0)
        return 0;
    int rc = format_section_load(codes, CODES_GUESTS, 4 * (uint64_t)p->run_rows, &bytes, NULL, err);
    lists->guest_lists = bytes;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < p->run_rows; i++)
        lists->guest_lists[i] = bytes_load_u32((const uint8_t *)&lists->guest_lists[i]);
    return sort_guests(lists, p->run_rows, section_file_io(codes)->path, err);
}

uint32_t lists_place(const struct lists *lists, uint32_t row, uint32_t *list)
{
    const uint32_t *ids = lists->guests;
    assert(row < lists->first_guest || ids);
    uint32_t begin = 0, end = lists->n;
    if (row < lists->first_guest) {
        while (end - begin > 1) { /* the last list that begins at the row or before: later ones of none begin behind */
            uint32_t middle = begin + (end - begin) / 2;
            *(lists->entries[middle].first <= row ? &begin : &end) = middle;
        }
        *list = begin;
        return row + (ids ? lists->guest_at[begin] : 0);
    }
    *list = lists->guest_lists[row - lists->first_guest];
    begin = lists->guest_at[*list];
    end = lists->guest_at[*list + 1];
    assert(begin < end); /* it is one of them */
    while (end - begin > 1) {
        uint32_t middle = begin + (end - begin) / 2;
        *(ids[middle] <= row ? &begin : &end) = middle;
    }
    assert(ids[begin] == row);
    return lists->entries[*list].first + lists->entries[*list].own + begin;
}

/* Lists follow each other without gaps, and so do their posting blocks. */
static int check_entries(const struct lists *lists, const struct segment_params *p, const char *path,
                         struct quire_error *err)
{
    uint64_t rows = 0, page = 0, entries = 0;
    for (uint32_t i = 0; i < lists->n; i++) {
        const struct list_entry *e = &lists->entries[i];
        struct posting_block_shape shape;
        uint32_t members = lists_members(lists, i);
        if (e->first != rows || members == 0 || members > e->entries || e->page != page ||
            !(isfinite(e->rms) && e->rms >= 0 && e->radius >= 0) ||
            !posting_block_shape(e->entries, e->own, p->code_dim, p->list_bits, &shape) ||
            shape.bytes > p->posting_bytes_max)
            return error_set(err, QUIRE_ECORRUPT,
                             "%s: the directory's list %u (rows %u + %u, %u entries, page %u) does not fit", path, i,
                             e->first, e->own, e->entries, e->page);
        rows += e->own;
        entries += e->entries;
        page += shape.bytes / SECTION_ALIGN;
        if (page > UINT32_MAX || rows > p->rows)
            break;
    }
    if (rows != lists->first_guest || entries != p->list_entries)
        return error_set(err, QUIRE_ECORRUPT, "%s: its lists have %llu rows and %llu entries, expected %u and %llu",
                         path, (unsigned long long)rows, (unsigned long long)entries, lists->first_guest,
                         (unsigned long long)p->list_entries);
    return 0;
}

static int load_entries(struct lists *lists, const struct segment_params *p, struct section_file *codes,
                        struct quire_error *err)
{
    void *bytes = NULL;
    int rc = format_section_load(codes, CODES_LISTS, (uint64_t)lists->n * LIST_ENTRY_BYTES, &bytes, NULL, err);
    lists->entries = rc == 0 ? malloc(sizeof *lists->entries * lists->n) : NULL;
    if (rc == 0 && !lists->entries)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a directory of %u lists", lists->n);
    for (uint32_t i = 0; rc == 0 && i < lists->n; i++)
        posting_list_decode((const uint8_t *)bytes + (size_t)i * LIST_ENTRY_BYTES, &lists->entries[i]);
    free(bytes);
    return rc == 0 ? check_entries(lists, p, section_file_io(codes)->path, err) : rc;
}

static struct graph_root *only_root(void *context, uint32_t row)
{
    struct lists *lists = context;
    return row < lists->n ? &lists->root : NULL;
}

static int load_images(struct lists *lists, const uint8_t *bytes, uint64_t n_bytes, const char *path,
                       struct quire_error *err)
{
    uint32_t each = n_bytes >= 4 ? bytes_load_u32(bytes) : 0, rows = 0;
    uint64_t at = 4;
    int rc = 0;
    while (rc == 0 && each > 0 && rows < lists->n && n_bytes - at >= 4) {
        uint32_t image = bytes_load_u32(bytes + at), n = lists->n - rows < each ? lists->n - rows : each;
        at += 4;
        if (image > n_bytes - at)
            break;
        rc = graph_image_load(lists->heads, rows, n, bytes + at, image, err);
        at += image;
        rows += n;
    }
    if (rc == 0 && (rows != lists->n || at != n_bytes))
        rc = error_set(err, QUIRE_ECORRUPT, "%s: the heads' images end after %u of %u heads", path, rows, lists->n);
    return rc;
}

/* Of the codes, not of the middles that they stand for. */
static int measure_norms(struct lists *lists, uint32_t code_dim, struct quire_error *err)
{
    float *head = malloc(sizeof *head * code_dim);
    lists->norms2 = malloc(sizeof *lists->norms2 * lists->n);
    if (!head || !lists->norms2) {
        free(head);
        return error_set(err, QUIRE_ENOMEM, "no memory for the heads of %u lists", lists->n);
    }
    unsigned slot = epoch_enter(lists->epochs);
    for (uint32_t i = 0; i < lists->n; i++) {
        const uint8_t *code;
        float f, unused;
        graph_row(lists->heads, i, &code, &f, &unused);
        code_decode(code, code_dim, 8, f, head);
        lists->norms2[i] = kernels()->f32_dot(head, head, code_dim);
    }
    epoch_exit(lists->epochs, slot);
    free(head);
    return 0;
}

static int load_heads(struct lists *lists, const struct segment_params *p, struct section_file *codes,
                      struct quire_error *err)
{
    struct graph_mending mending = {.root_of = only_root, .context = lists};
    struct graph_stats stats;
    void *bytes = NULL;
    uint64_t n_bytes = 0;
    const char *path = section_file_io(codes)->path;
    int rc = lists_graph_create(p->code_dim, p->seed, &lists->epochs, &lists->heads, err);
    if (rc == 0)
        rc = format_section_load(codes, CODES_HEADS, UINT64_MAX, &bytes, &n_bytes, err);
    if (rc == 0)
        rc = load_images(lists, bytes, n_bytes, path, err);
    free(bytes);
    if (rc == 0 && graph_mend(lists->heads, &mending) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the graph of %u heads", lists->n);
    if (rc < 0)
        return rc;
    graph_place_end(lists->heads);
    graph_get_stats(lists->heads, &stats);
    if (stats.linked != lists->n || mending.links_dropped || mending.links_added)
        return error_set(err, QUIRE_ECORRUPT, "%s: the graph links %u of %u heads, %llu links were wrong", path,
                         stats.linked, lists->n, (unsigned long long)(mending.links_dropped + mending.links_added));
    lists->heads_bytes = stats.bytes + (sizeof *lists->entries + sizeof *lists->norms2) * lists->n;
    if (lists->guests)
        lists->heads_bytes += sizeof *lists->guests * (2 * (uint64_t)p->run_rows + lists->n + 1);
    return measure_norms(lists, p->code_dim, err);
}

int lists_open(const struct segment_params *params, struct section_file *codes, struct lists **out,
               struct quire_error *err)
{
    struct lists *lists = calloc(1, sizeof *lists);
    if (!lists)
        return error_set(err, QUIRE_ENOMEM, "no memory for the lists of %s", section_file_io(codes)->path);
    lists->n = params->n_lists;
    lists->group_bytes = (uint32_t)code_group_bytes(params->code_dim, params->list_bits);
    graph_root_init(&lists->root);
    int rc = load_guests(lists, params, codes, err);
    if (rc == 0)
        rc = load_entries(lists, params, codes, err);
    if (rc == 0)
        rc = load_heads(lists, params, codes, err);
    if (rc < 0)
        lists_close(lists);
    else
        *out = lists;
    return rc;
}

void lists_close(struct lists *lists)
{
    if (!lists)
        return;
    graph_destroy(lists->heads);
    epochs_destroy(lists->epochs);
    memory_unmap(lists->codes, lists->codes_mapped);
    memory_unmap(lists->factors, lists->factors_mapped);
    free(lists->entries);
    free(lists->norms2);
    free(lists->guest_lists);
    free(lists->guest_at);
    free(lists->guests);
    free(lists);
}

uint64_t lists_postings_bytes(const struct lists *lists, const struct segment_params *p)
{
    const struct list_entry *last = &lists->entries[lists->n - 1];
    struct posting_block_shape shape = {.bytes = 0};
    assert(lists->n > 0);
    posting_block_shape(last->entries, last->own, p->code_dim, p->list_bits, &shape);
    return (uint64_t)last->page * SECTION_ALIGN + shape.bytes;
}

/* ---- resident codes ---------------------------------------------------------------------------------------------- */

static void keep_code(struct lists *lists, const struct segment_params *p, const struct posting_block_view *view,
                      uint32_t i, size_t place, uint8_t *code)
{
    code_group_get(view->groups + (size_t)(i / CODE_GROUP) * view->group_bytes, i % CODE_GROUP, p->code_dim,
                   p->list_bits, code);
    code_group_put(lists->codes + place / CODE_GROUP * lists->group_bytes, (uint32_t)(place % CODE_GROUP), code,
                   p->code_dim, p->list_bits);
    lists->factors[2 * place] = bytes_load_u16(view->factors + 4 * (size_t)i);
    lists->factors[2 * place + 1] = bytes_load_u16(view->factors + 4 * (size_t)i + 2);
}

/* The codes of a list's members to their places. Guests stand among the replicas, both ascending; false: one does
 * not. */
static bool keep_members(struct lists *lists, const struct segment_params *p, const struct posting_block_view *view,
                         uint8_t *code)
{
    uint32_t members = lists_members(lists, view->number), found = view->own;
    assert(view->number < lists->n && view->own == lists->entries[view->number].own);
    size_t place = lists_first(lists, view->number);
    for (uint32_t i = 0; i < view->own; i++)
        keep_code(lists, p, view, i, place + i, code);
    for (uint32_t i = view->own; i < view->entries && found < members; i++)
        if (posting_block_row(view, i) == lists_member(lists, view->number, found))
            keep_code(lists, p, view, i, place + found++, code);
    return found == members;
}

/* Lists whose postings lie one after the other in SCAN_BYTES, from `first` on; *bytes: of them. */
static uint32_t lists_that_fit(const struct lists *lists, const struct segment_params *p, uint32_t first,
                               uint32_t *bytes)
{
    uint32_t n = 0;
    *bytes = 0;
    while (first + n < lists->n) {
        const struct list_entry *e = &lists->entries[first + n];
        struct posting_block_shape shape;
        posting_block_shape(e->entries, e->own, p->code_dim, p->list_bits, &shape);
        if (n > 0 && *bytes + shape.bytes > SCAN_BYTES)
            break;
        *bytes += shape.bytes;
        n++;
    }
    return n;
}

int lists_load_codes(struct lists *lists, const struct segment_params *p, struct section_file *postings,
                     uint64_t postings_at, const uint8_t segment_id[16], struct quire_error *err)
{
    uint32_t groups = groups_of(p->rows), bytes;
    struct io_file *file = section_file_io(postings);
    uint8_t *buffer = memory_map_alone(SCAN_BYTES, 0), *code = malloc(p->code_dim);
    lists->codes_mapped = (size_t)groups * lists->group_bytes;
    lists->factors_mapped = (size_t)groups * CODE_GROUP * 2 * sizeof(f16_t);
    lists->codes = memory_map(lists->codes_mapped, 1);
    lists->factors = memory_map(lists->factors_mapped, 1);
    int rc = buffer && code && lists->codes && lists->factors
                 ? 0
                 : error_set(err, QUIRE_ENOMEM, "no memory for the codes of %s", file->path);
    for (uint32_t at = 0, n; rc == 0 && at < lists->n; at += n) {
        uint64_t offset = postings_at + (uint64_t)lists->entries[at].page * SECTION_ALIGN;
        n = lists_that_fit(lists, p, at, &bytes);
        assert(n > 0 && bytes <= SCAN_BYTES);
        rc = fs_read_exact(file, buffer, bytes, offset, err);
        for (uint32_t i = 0; rc == 0 && i < n; i++) {
            const struct list_entry *e = &lists->entries[at + i];
            struct posting_block_view view;
            struct quire_error inner = {0};
            const uint8_t *posting = buffer + (size_t)(e->page - lists->entries[at].page) * SECTION_ALIGN;
            rc = posting_block_open(posting, at + i, e, p->code_dim, p->list_bits, p->rows, segment_id, &view, &inner);
            if (rc == 0 && !keep_members(lists, p, &view, code))
                rc = error_set(&inner, QUIRE_ECORRUPT, "one of its guests is missing");
            if (rc < 0)
                error_set(err, rc, "list %u of %s is damaged: %s", at + i, file->path, inner.message);
        }
    }
    memory_unmap(buffer, SCAN_BYTES);
    free(code);
    return rc;
}
