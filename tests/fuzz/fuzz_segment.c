/*
 * fuzz_segment.c - a segment, one file of which is not what it should be.
 *
 * First byte: bits 0 to 2 choose the file, bit 3 a segment with codes of edges, bit 7 one of inverted lists, bit 4
 * whether the rest replaces the file or changes it in places (one byte: how many bytes follow, three: where, then
 * those), bit 5 whether checksums are left wrong, which they mostly are refused for. Bit 6: no limit of memory; of
 * lists, all codes in memory. Made right are the checksums of pages, blocks, postings, sections and files. Then it is
 * opened, scanned, verified, searched and asked, columns, too: answers or an error with a sentence, nothing else.
 */
#include "index/build/merge.h"
#include "index/column/columns.h"
#include "index/format/format.h"
#include "index/search/search.h"
#include "index/verify/verify.h"
#include "io/bytes.h"
#include "tests/fuzz/support_files.h"
#include "tests/support/fault.h"
#include <roaring/roaring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SUPERBLOCK = 4096, SEGMENT_ID_AT = 16, ENTRIES_AT = 40, TABLE_AT = 72, ENTRY_BYTES = 40 };

static const char *const names[] = {META_NAME,       BLOCKS_NAME,   CODES_NAME,  KEYS_NAME,
                                    ATTRIBUTES_NAME, POSTINGS_NAME, COLUMNS_NAME};
enum { NAMES = sizeof names / sizeof *names };

/* ---- checksums --------------------------------------------------------------------------------------------------- */

static void seal_block(uint8_t *block, const uint8_t *id)
{
    uint64_t seed = XXH3_64bits_withSeed(block, 16, bytes_load_u64(id));
    bytes_store_u64(block + 16, XXH3_64bits_withSeed(block + 24, TINY_BLOCK_BYTES - 24, seed));
}

/* Postings follow each other; one that does not say how long it is counts as a page. */
static void seal_postings(uint8_t *bytes, size_t n, const uint8_t *id)
{
    for (size_t at = 0, length; at + PAGE_BYTES <= n; at += length) {
        length = bytes_load_u32(bytes + at + 36);
        if (length == 0 || length % PAGE_BYTES || length > n - at)
            length = PAGE_BYTES;
        uint64_t seed = XXH3_64bits_withSeed(bytes + at, 16, bytes_load_u64(id));
        bytes_store_u64(bytes + at + 16, XXH3_64bits_withSeed(bytes + at + 24, length - 24, seed));
    }
}

static void seal_pages(const char *name, uint32_t section, uint8_t *bytes, size_t n, const uint8_t *id)
{
    bool blocks = strcmp(name, BLOCKS_NAME) == 0, keys = strcmp(name, KEYS_NAME) == 0;
    bool pages = (keys && section != KEYS_HEAP) || (strcmp(name, ATTRIBUTES_NAME) == 0 && section == ATTRIBUTES_INDEX);
    if (strcmp(name, POSTINGS_NAME) == 0)
        seal_postings(bytes, n, id);
    for (size_t i = 0; i < n / PAGE_BYTES; i++) {
        if (blocks)
            seal_block(bytes + i * PAGE_BYTES, id);
        else if (pages)
            format_page_seal(bytes + i * PAGE_BYTES, i, id);
    }
}

static void seal_file(const char *name, uint8_t *bytes, size_t n, const uint8_t *id)
{
    if (n < SUPERBLOCK)
        return;
    uint32_t entries = bytes_load_u32(bytes + ENTRIES_AT);
    for (uint32_t i = 0; i < entries && i < 64; i++) {
        uint8_t *entry = bytes + TABLE_AT + i * ENTRY_BYTES;
        uint64_t at = bytes_load_u64(entry + 8), length = bytes_load_u64(entry + 16);
        if (at > n || length > n - at)
            continue;
        seal_pages(name, bytes_load_u32(entry), bytes + at, length, id);
        if (!(bytes_load_u32(entry + 4) & 1))
            bytes_store_u64(entry + 24, XXH3_64bits(bytes + at, length));
    }
    bytes_store_u64(bytes + SUPERBLOCK - 8, XXH3_64bits(bytes, SUPERBLOCK - 8));
}

/* The list of files in `meta` says what the changed file is now. */
static void list_file(struct kept_file *meta, const char *name, const uint8_t *bytes, size_t n, const uint8_t *id)
{
    for (uint32_t i = 0; i < bytes_load_u32(meta->bytes + ENTRIES_AT); i++) {
        const uint8_t *entry = meta->bytes + TABLE_AT + i * ENTRY_BYTES;
        uint8_t *list = meta->bytes + bytes_load_u64(entry + 8);
        for (uint64_t k = 0; bytes_load_u32(entry) == META_FILES && k < bytes_load_u64(entry + 16) / FILE_ENTRY_BYTES;
             k++) {
            uint8_t *line = list + k * FILE_ENTRY_BYTES;
            if (strncmp((const char *)line, name, 16) != 0)
                continue;
            bytes_store_u64(line + 16, n);
            bytes_store_u64(line + 24, n < SUPERBLOCK ? 0 : bytes_load_u64(bytes + SUPERBLOCK - 8));
        }
    }
    seal_file(META_NAME, meta->bytes, meta->n, id);
}

/* ---- the changed file -------------------------------------------------------------------------------------------- */

static void change(uint8_t *bytes, size_t n, const uint8_t *data, size_t size)
{
    while (size > 4) {
        size_t some = data[0] % 32 + 1u, at = (data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16) % n;
        data += 4;
        size -= 4;
        some = some < size ? some : size;
        some = some < n - at ? some : n - at;
        memcpy(bytes + at, data, some);
        data += some;
        size -= some;
    }
}

static struct kept_file copy_of(const struct kept_file *file)
{
    struct kept_file copy = *file;
    copy.bytes = malloc(file->n + 1);
    fuzz_require(copy.bytes != NULL);
    memcpy(copy.bytes, file->bytes, file->n);
    return copy;
}

/* ---- what a segment is used for ---------------------------------------------------------------------------------- */

static void assert_code(int code, const struct quire_error *err)
{
    fuzz_require(code == 0 || (code < 0 && err->message[0] != 0));
}

/* Looks at every byte, so that a sanitizer sees those that are not there. */
static void look(const void *bytes, size_t n)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
}

static int on_row(void *context, const struct scanned_row *row)
{
    look(row->key, row->key_bytes);
    look(row->vector, sizeof(float) * *(const uint32_t *)context);
    look(row->attributes, row->attribute_bytes);
    return 0;
}

static void on_search(struct search_request *request)
{
    assert_code(request->code, &request->error);
    for (uint32_t i = 0; request->code == 0 && i < request->n_hits; i++)
        look(request->hits[i].key, request->hits[i].key_bytes);
    *(bool *)request->owner = true;
}

static void on_fetch(struct fetch_request *request)
{
    fuzz_require(request->code <= 0);
    if (request->code == 0) {
        look(request->found_key, request->found_key_bytes);
        look(request->attributes, request->attributes ? request->attributes_bytes : 0);
    }
    *(bool *)request->owner = true;
}

static void run(struct engine *engine, const bool *done)
{
    while (!*done)
        engine_poll(engine, 1, 1000000);
}

static void search_it(struct segment *segment, struct engine *engine, struct searcher *searcher, bool exact)
{
    bool done = false;
    struct quire_error err = {0};
    float *query = calloc(segment_info(segment)->dim, sizeof *query);
    struct search_request request = {.segment = segment, .query = query, .want_keys = true, .want_vectors = true};
    fuzz_require(query != NULL);
    query[0] = 1;
    quire_search_options_init(&request.options);
    request.options.k = 5;
    request.options.exact = exact;
    request.done = on_search;
    request.owner = &done;
    int rc = search_start(searcher, &request, &err);
    assert_code(rc, &err);
    if (rc == 0)
        run(engine, &done);
    free(query);
}

static void fetch_it(struct segment *segment, struct engine *engine, struct searcher *searcher, const char *key,
                     uint32_t row)
{
    bool done = false;
    struct quire_error err = {0};
    struct fetch_request request = {.segment = segment,
                                    .key = key,
                                    .key_bytes = key ? (uint32_t)strlen(key) : 0,
                                    .row = row,
                                    .want_vector = true,
                                    .want_key = true,
                                    .want_attributes = true,
                                    .want_links = true,
                                    .links_max = 8,
                                    .done = on_fetch,
                                    .owner = &done};
    int rc = fetch_start(searcher, &request, &err);
    assert_code(rc, &err);
    if (rc == 0)
        run(engine, &done);
}

/* What columns answer, a damaged file or not: rows of the segment, or no memory for them. */
static void select_it(const struct columns *columns)
{
    static const char *const expressions[] = {".n > 7 and .n < 40 or .s == \"s3\"", "not (1 in .l) and .s != \"s1\"",
                                              "exists .n or .l == null", ".s prefix \"s\" and \"a\" in .l"};
    struct grant acme = {"acme", 4, 0};
    struct tenant_scope scope = {&acme, 1};
    roaring_bitmap_t *rows = NULL, *selected = NULL;
    bool residual = false;
    fuzz_require(columns_scope(columns, &scope, &rows) == 0);
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        struct filter *filter = NULL;
        fuzz_require(filter_compile(expressions[i], strlen(expressions[i]), NULL, &filter, NULL) == 0);
        fuzz_require(columns_select(columns, filter, i % 2 ? rows : NULL, NULL, &selected, &residual) == 0);
        fuzz_require(roaring_bitmap_is_empty(selected) || roaring_bitmap_maximum(selected) < TINY_ROWS);
        roaring_bitmap_free(selected);
        filter_unref(filter);
    }
    roaring_bitmap_free(rows);
}

static void use(struct segment *segment)
{
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 1};
    struct engine *engine = NULL;
    struct searcher *searcher = NULL;
    struct quire_error err = {0};
    uint32_t dim = segment_info(segment)->dim;
    fuzz_require(engine_fault_create(&config, 7, &engine, NULL) == 0);
    fuzz_require(searcher_create(engine, NULL, &searcher, NULL) == 0);
    assert_code(segment_scan(segment, NULL, on_row, NULL, &dim, &err), &err);
    if (segment_columns(segment))
        select_it(segment_columns(segment));
    search_it(segment, engine, searcher, false);
    search_it(segment, engine, searcher, true);
    fetch_it(segment, engine, searcher, "key-3", 0);
    fetch_it(segment, engine, searcher, "none", 0);
    for (uint32_t row = 0; row < TINY_ROWS; row += 13)
        fetch_it(segment, engine, searcher, NULL, row);
    searcher_cancel(searcher);
    searcher_destroy(searcher);
    engine_destroy(engine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kept_files sound[TINY_KINDS];
    if (size < 2 || size > 1 << 16)
        return 0;
    enum tiny_kind kind = data[0] & 128 ? TINY_LISTS : data[0] & 8 ? TINY_EDGE_CODES : TINY_GRAPH;
    if (sound[kind].n == 0)
        support_tiny_segment(kind, &sound[kind]);
    struct kept_files files = sound[kind];
    const char *name = names[(data[0] & 7) % (kind == TINY_LISTS ? NAMES : NAMES - 1)];
    if (kind != TINY_LISTS && strcmp(name, POSTINGS_NAME) == 0)
        name = COLUMNS_NAME;
    struct kept_file *file = support_find(&files, name), *meta = support_find(&files, META_NAME);
    *meta = copy_of(meta);
    if (file != meta)
        *file = copy_of(file);
    if (data[0] & 16) {
        file->n = size - 1 < file->n ? size - 1 : file->n; /* room for that is there */
        memcpy(file->bytes, data + 1, file->n);
    } else {
        change(file->bytes, file->n, data + 1, size - 1);
    }
    const uint8_t *id = sound[kind].items[0].bytes + SEGMENT_ID_AT;
    if (!(data[0] & 32)) {
        seal_file(name, file->bytes, file->n, id);
        if (file != meta)
            list_file(meta, name, file->bytes, file->n, id);
    }
    struct io_fs *fs = fault_fs_create();
    fuzz_require(fs != NULL);
    support_put_files(fs, "/s", &files);
    bool no_limit = data[0] & 64;
    struct segment_options options = {.fs = fs, .memory_bytes = no_limit ? UINT64_MAX : 0, .read_lists = !no_limit};
    struct segment *segment = NULL;
    struct quire_error err = {0};
    struct quire_verify_report report;
    int rc = segment_open("/s", &options, &segment, &err);
    assert_code(rc, &err);
    if (rc == 0)
        use(segment);
    segment_unref(segment);
    assert_code(verify_segment(fs, "/s", &(struct verify_listener){0}, &report, &err), &err);
    fault_fs_destroy(fs);
    if (file != meta)
        free(file->bytes);
    free(meta->bytes);
    return 0;
}
