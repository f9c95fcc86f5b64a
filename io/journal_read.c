/*
 * journal_read.c - what a folder's journal holds: for opening, for checking, and for saving what can be saved.
 *
 * The state is the newest checkpoint, then the frames from its LSN on. The logs are walked in the order of their first
 * LSNs, and each log holds for the LSNs from its own first one up to the next log's first one:
 *
 *   1. Whoever begins a log has synced every frame before its first LSN (journal_writer.c). So a log that is followed
 *      by another must give all LSNs up to it: what is missing there is damage. What it holds beyond is a write that
 *      failed or was torn; the next log has it again, or nobody was ever told that it is safe.
 *   2. The last log may end in torn bytes: behind its first invalid frame everything is ignored, whole frames of later
 *      numbers too (the disk may write sectors in any order). Each frame says which LSNs were durable when it was
 *      written: if one behind the invalid place knows that place as durable, it is damage and no torn end.
 *      So is it where a mark of the log says so, and where the checkpoint has a record that is true up to that place or
 *      beyond: those frames were synced before it was published, and their LSNs must not be given out again.
 *      A log that was ended because another had been begun is not the last, and neither is one before a checkpoint's
 *      LSN: the log at that LSN was there before the checkpoint was.
 *   3. A new log begins at the LSN behind the last valid frame, so by 1. the ignored ones can never come back.
 *
 * Files are synced first (for opening) and read with direct I/O: after a sync that failed, the operating system may
 * show bytes in memory that are not on the disk, and a state that the next power cut takes back must not be built upon.
 *
 * Nothing read is believed before its checksum is right, and lengths are held against the file even then. Salvage looks
 * for the next frame whose checksums are right, at multiples of 8 bytes, and gives a sentence for each gap.
 */
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include "io/memory.h"
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE         4096u
#define WINDOW_BYTES (1u << 20)
#define REMEDY       "`quire repair` saves what can be read"

/* ---- a window on a file ------------------------------------------------------------------------------------------ */

struct scan {
    struct io_file *file;
    uint64_t id;      /* of the file; frames of another do not count. 0: its header is lost */
    uint64_t first;   /* LSN in its name */
    uint64_t durable; /* a log: up to which LSN its marks say that frames are; 0: nothing */
    bool with_lsn;    /* records have their own: a checkpoint */
    bool salvage;
    uint8_t *window;
    size_t capacity, filled;
    uint64_t window_at; /* offset of window[0] */
};

static void scan_close(struct scan *scan)
{
    fs_close(scan->file);
    memory_free(scan->window);
    *scan = (struct scan){0};
}

/* Pages that the disk cannot give are zero, and so damaged. */
static void read_by_page(struct scan *scan, uint64_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += PAGE) {
        ssize_t n = scan->file->fs->ops->read(scan->file, scan->window + i, PAGE, at + i);
        size_t good = n < 0 ? 0 : (size_t)n;
        memset(scan->window + i + good, 0, PAGE - good);
    }
}

/* Fills the window with whole pages from `at` on. */
static int fill_window(struct scan *scan, uint64_t at, size_t bytes, struct quire_error *err)
{
    assert(at <= scan->file->bytes && at % PAGE == 0);
    assert(bytes % PAGE == 0 && bytes <= scan->capacity);
    uint64_t rest = scan->file->bytes - at;
    size_t expected = rest < bytes ? (size_t)rest : bytes;
    ssize_t n = scan->file->fs->ops->read(scan->file, scan->window, bytes, at);
    scan->window_at = at;
    scan->filled = 0;
    if (n < (ssize_t)expected && scan->salvage)
        read_by_page(scan, at, bytes);
    else if (n < (ssize_t)expected)
        return error_set(err, n < 0 ? (int)n : QUIRE_ESHORTREAD,
                         "read of %s at offset %" PRIu64 ": %s (%zd of %zu bytes)", scan->file->path, at,
                         quire_error_text(n < 0 ? (int)n : QUIRE_ESHORTREAD), n < 0 ? 0 : n, expected);
    scan->filled = expected;
    return 0;
}

/* *out: `bytes` bytes from `at` on, which lie in the file; valid until the next call. */
static int scan_bytes(struct scan *scan, uint64_t at, size_t bytes, const uint8_t **out, struct quire_error *err)
{
    assert(at <= scan->file->bytes && bytes <= scan->file->bytes - at);
    if (at < scan->window_at || at + bytes > scan->window_at + scan->filled) {
        uint64_t from = at / PAGE * PAGE;
        size_t need = (size_t)((at + bytes - from + PAGE - 1) / PAGE * PAGE);
        need = need < WINDOW_BYTES ? WINDOW_BYTES : need;
        if (need > scan->capacity) {
            memory_free(scan->window);
            scan->capacity = scan->filled = 0;
            scan->window = memory_aligned(PAGE, need);
            if (!scan->window)
                return error_set(err, QUIRE_ENOMEM, "no memory for %zu bytes of %s", need, scan->file->path);
            scan->capacity = need;
        }
        int rc = fill_window(scan, from, need, err);
        if (rc < 0)
            return rc;
    }
    assert(at >= scan->window_at && at + bytes <= scan->window_at + scan->filled);
    *out = scan->window + (at - scan->window_at);
    return 0;
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

struct found {
    struct frame_header header;
    uint64_t at;
    const uint8_t *payload; /* in the window */
};

typedef int (*record_taker)(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                            struct quire_error *err);

static uint64_t found_end(const struct found *found)
{
    return found->at + FRAME_HEADER_BYTES + found->header.payload_bytes;
}

static bool header_is_right(const uint8_t *at)
{
    uint8_t copy[FRAME_HEADER_BYTES];
    memcpy(copy, at, sizeof copy);
    bytes_store_u32(copy + FRAME_HEADER_CHECKSUM_AT, 0);
    return bytes_load_u32(at + FRAME_HEADER_CHECKSUM_AT) == (uint32_t)journal_checksum(copy, sizeof copy);
}

static size_t record_header_bytes(const struct scan *scan)
{
    return RECORD_HEADER_BYTES + (scan->with_lsn ? 8u : 0u);
}

/* The records fill the payload, and their LSNs are some. A right checksum does not say so: it can be forged. */
static bool records_fit(const struct scan *scan, const uint8_t *payload, const struct frame_header *header)
{
    uint64_t rest = header->payload_bytes;
    if (header->magic == END_MAGIC)
        return rest == 0 && header->n_records <= !scan->with_lsn;
    for (uint32_t i = 0; i < header->n_records; i++) {
        if (rest < record_header_bytes(scan))
            return false;
        uint64_t bytes = record_header_bytes(scan) + journal_record_padded(bytes_load_u32(payload));
        if (bytes > rest || (scan->with_lsn && bytes_load_u64(payload + RECORD_HEADER_BYTES) > LSN_MAX))
            return false;
        payload += bytes;
        rest -= bytes;
    }
    return rest == 0;
}

/* 1: a valid frame begins at `at`; 0: none does; or an error of reading. */
static int scan_frame(struct scan *scan, uint64_t at, struct found *out, struct quire_error *err)
{
    const uint8_t *bytes;
    if (at > scan->file->bytes || scan->file->bytes - at < FRAME_HEADER_BYTES)
        return 0;
    int rc = scan_bytes(scan, at, FRAME_HEADER_BYTES, &bytes, err);
    if (rc < 0)
        return rc;
    uint32_t magic = bytes_load_u32(bytes);
    if ((magic != FRAME_MAGIC && magic != END_MAGIC) || !header_is_right(bytes))
        return 0;
    struct frame_header header = {.magic = magic,
                                  .payload_bytes = bytes_load_u32(bytes + FRAME_PAYLOAD_BYTES_AT),
                                  .n_records = bytes_load_u32(bytes + FRAME_RECORDS_AT),
                                  .file_id = bytes_load_u64(bytes + FRAME_FILE_ID_AT),
                                  .number = bytes_load_u64(bytes + FRAME_NUMBER_AT),
                                  .known = bytes_load_u64(bytes + FRAME_KNOWN_AT),
                                  .payload_checksum = bytes_load_u64(bytes + FRAME_PAYLOAD_CHECKSUM_AT)};
    if ((scan->id && header.file_id != scan->id) || header.number == 0 || header.number > LSN_MAX ||
        header.known > LSN_MAX || header.payload_bytes > scan->file->bytes - at - FRAME_HEADER_BYTES ||
        header.payload_bytes % RECORD_ALIGN != 0)
        return 0;
    rc = scan_bytes(scan, at, FRAME_HEADER_BYTES + (size_t)header.payload_bytes, &bytes, err);
    if (rc < 0)
        return rc;
    const uint8_t *payload = bytes + FRAME_HEADER_BYTES;
    if (journal_checksum(payload, header.payload_bytes) != header.payload_checksum ||
        !records_fit(scan, payload, &header))
        return 0;
    *out = (struct found){.header = header, .at = at, .payload = payload};
    assert(found_end(out) <= scan->file->bytes);
    return 1;
}

/* The first valid frame from `at` on that `accept` takes. */
static int scan_search(struct scan *scan, uint64_t at, bool (*accept)(const struct found *found, uint64_t lsn),
                       uint64_t lsn, struct found *out, struct quire_error *err)
{
    int rc = 0;
    for (at = journal_record_padded(at); rc == 0 && at + FRAME_HEADER_BYTES <= scan->file->bytes; at += RECORD_ALIGN) {
        rc = scan_frame(scan, at, out, err);
        if (rc > 0 && !accept(out, lsn))
            rc = 0;
    }
    return rc;
}

/* A frame that knows `lsn` as durable. */
static bool accept_knowing(const struct found *found, uint64_t lsn)
{
    return found->header.known >= lsn && found->header.number > lsn;
}

/* A frame, or an end, of `lsn` or later. */
static bool accept_from(const struct found *found, uint64_t lsn)
{
    return found->header.number >= lsn;
}

/* Gives the records of a frame to `take`; they fit, scan_frame saw to it. */
static int each_record(const struct scan *scan, const struct found *found, record_taker take, void *context,
                       struct quire_error *err)
{
    const uint8_t *at = found->payload;
    int rc = 0;
    assert(found->header.magic == FRAME_MAGIC);
    for (uint32_t i = 0; rc >= 0 && take && i < found->header.n_records; i++) {
        uint32_t n = bytes_load_u32(at);
        uint64_t lsn = scan->with_lsn ? bytes_load_u64(at + RECORD_HEADER_BYTES) : found->header.number;
        rc = take(context, at[4], lsn, at + record_header_bytes(scan), n, err);
        at += record_header_bytes(scan) + journal_record_padded(n);
    }
    assert(rc < 0 || !take || at == found->payload + found->header.payload_bytes);
    return rc < 0 ? rc : 0;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void say_lost(const struct walk *walk, const char *format, ...)
{
    char sentence[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (walk->lost)
        walk->lost(walk->lost_context, sentence);
}

static bool is_zero(const uint8_t *bytes, size_t from, size_t to)
{
    return from == to || (bytes[from] == 0 && memcmp(bytes + from, bytes + from + 1, to - from - 1) == 0);
}

/* What is durable, by a mark; a torn one says nothing. */
static uint64_t mark_at(const uint8_t *at, uint64_t id)
{
    bool right = bytes_load_u32(at) == MARK_MAGIC && header_is_right(at) && bytes_load_u64(at + FRAME_FILE_ID_AT) == id;
    uint64_t known = bytes_load_u64(at + FRAME_KNOWN_AT);
    return right && known <= LSN_MAX ? known : 0;
}

/* What lies between the file's header and the frames of a log: marks, and zeros. */
static int check_head_of_log(struct scan *scan, uint64_t id, bool *right, struct quire_error *err)
{
    const uint8_t *head;
    *right = scan->file->bytes >= LOG_FRAMES_AT;
    int rc = *right ? scan_bytes(scan, 0, LOG_FRAMES_AT, &head, err) : 0;
    if (rc < 0 || !*right)
        return rc;
    *right = is_zero(head, FILE_HEADER_BYTES, LOG_MARKS_AT);
    for (unsigned i = 0; i < LOG_MARKS; i++) {
        size_t at = LOG_MARKS_AT + i * (size_t)LOG_MARK_STEP;
        uint64_t known = mark_at(head + at, id);
        scan->durable = known > scan->durable ? known : scan->durable;
        *right = *right && is_zero(head, at + FRAME_HEADER_BYTES, at + LOG_MARK_STEP);
    }
    return 0;
}

/* Reads the file's header. In salvage a damaged one is reported, and frames are taken by their own word. */
static int check_file_header(const struct walk *walk, struct scan *scan, const char *magic, struct quire_error *err)
{
    const uint8_t *header = NULL;
    bool right = scan->file->bytes >= FILE_HEADER_BYTES;
    if (right) {
        int rc = scan_bytes(scan, 0, FILE_HEADER_BYTES, &header, err);
        if (rc < 0)
            return rc;
        uint32_t version = bytes_load_u32(header + FILE_VERSION_AT), own = journal_file_version(magic);
        right = bytes_load_u64(header + FILE_CHECKSUM_AT) == journal_checksum(header, FILE_CHECKSUM_AT);
        if (memcmp(header, magic, 8) == 0 && (version > own || (version < own && right)))
            return error_set(err, QUIRE_EVERSION, "%s has format version %" PRIu32 ", this program reads only %u%s",
                             scan->file->path, version, own,
                             version > own ? ": use a newer one" : ": make the data anew, or use an older one");
        right = right && memcmp(header, magic, 8) == 0 && bytes_load_u64(header + FILE_FIRST_AT) == scan->first &&
                bytes_load_u64(header + FILE_ID_AT) != 0;
    }
    uint64_t id = right ? bytes_load_u64(header + FILE_ID_AT) : 0;
    if (right && !scan->with_lsn) {
        int rc = check_head_of_log(scan, id, &right, err);
        if (rc < 0)
            return rc;
    }
    if (right)
        scan->id = id;
    else if (walk->salvage)
        say_lost(walk, "%s: the file's header is damaged", scan->file->path);
    else
        return error_set(err, QUIRE_ECORRUPT, "%s: the file's header is damaged at offset 0; " REMEDY,
                         scan->file->path);
    return 0;
}

static int scan_open(const struct walk *walk, enum journal_name kind, uint64_t first, struct scan *out,
                     struct quire_error *err)
{
    char *path = journal_path(walk->folder, kind, first, false);
    struct scan scan = {.first = first, .with_lsn = kind == NAME_CHECKPOINT, .salvage = walk->salvage};
    int rc = path ? fs_open(walk->fs, path, FS_READ | FS_DIRECT, &scan.file, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory to read the journal in %s", walk->folder);
    free(path);
    if (rc == 0 && walk->sync)
        rc = fs_sync(scan.file, err);
    if (rc == 0)
        rc = check_file_header(walk, &scan, kind == NAME_LOG ? LOG_MAGIC : CHECKPOINT_MAGIC, err);
    if (rc < 0)
        scan_close(&scan);
    else
        *out = scan;
    return rc;
}

/* What a file is to give, and where the walk has got to. Numbers are LSNs, or a checkpoint's chunks. */
struct stretch {
    uint64_t next, limit; /* numbers below `limit` only */
    bool may_be_torn;     /* the last log */
    bool ended;           /* by an end frame */
    bool followed;        /* which says that the next log was there */
    uint64_t at;          /* behind the last valid frame */
    uint64_t frames, records;
    uint64_t known_at_end; /* what the end frame says */
};

/* Of n bytes how many there are up to the last that is not zero. */
static size_t bytes_used(const uint8_t *bytes, size_t n)
{
    if (is_zero(bytes, 0, n))
        return 0;
    while (n && bytes[n - 1] == 0)
        n--;
    return n;
}

/* How far behind `at` there are bytes that are not zero: space that was reserved is no torn frame. */
static int count_torn(struct scan *scan, uint64_t at, uint64_t *torn, struct quire_error *err)
{
    *torn = 0;
    for (uint64_t from = at; from < scan->file->bytes;) {
        const uint8_t *bytes;
        uint64_t rest = scan->file->bytes - from;
        size_t n = rest < WINDOW_BYTES / 2 ? (size_t)rest : WINDOW_BYTES / 2;
        int rc = scan_bytes(scan, from, n, &bytes, err);
        if (rc < 0)
            return rc;
        size_t used = bytes_used(bytes, n);
        if (used)
            *torn = from + used - at;
        from += n;
    }
    return 0;
}

/* What is there gives no number from s->next up to below `behind` (UINT64_MAX: it is not known which). */
static int lose(const struct walk *walk, const struct scan *scan, struct stretch *s, uint64_t behind,
                struct quire_error *err)
{
    const char *what = scan->with_lsn ? "the chunks" : "the frames of LSN";
    char sentence[320], last[24] = "the last";
    if (behind != UINT64_MAX)
        snprintf(last, sizeof last, "%" PRIu64, behind - 1);
    snprintf(sentence, sizeof sentence, "%.200s: damaged at offset %" PRIu64 ": %s %" PRIu64 " to %s are missing",
             scan->file->path, s->at, what, s->next, last);
    if (!walk->salvage)
        return error_set(err, QUIRE_ECORRUPT, "%s; " REMEDY, sentence);
    say_lost(walk, "%s", sentence);
    if (behind != UINT64_MAX)
        s->next = behind;
    return 0;
}

/* No valid frame of the next number is at s->at. 1: salvage goes on with *found; 0: the file has no more to give. */
static int resume(const struct walk *walk, struct scan *scan, struct stretch *s, struct found *found,
                  struct quire_error *err)
{
    if (s->may_be_torn && scan->durable < s->next) {
        int rc = scan_search(scan, s->at, accept_knowing, s->next, found, err);
        if (rc <= 0)
            return rc < 0 ? rc : count_torn(scan, s->at, &walk->report->torn_bytes, err);
    }
    int rc = scan_search(scan, s->at, accept_from, s->next, found, err);
    if (rc < 0)
        return rc;
    bool more = rc > 0 && found->header.number < s->limit;
    uint64_t behind = more ? found->header.number : s->may_be_torn ? scan->durable + 1 : s->limit;
    rc = lose(walk, scan, s, behind, err);
    return rc < 0 ? rc : more;
}

static int walk_frames(const struct walk *walk, struct scan *scan, struct stretch *s, record_taker take, void *context,
                       struct quire_error *err)
{
    int rc = 0;
    s->at = scan->with_lsn ? FILE_HEADER_BYTES : LOG_FRAMES_AT;
    while (s->next < s->limit && !s->ended) {
        struct found found;
        rc = scan_frame(scan, s->at, &found, err);
        if (rc == 0 || (rc > 0 && found.header.number != s->next))
            rc = resume(walk, scan, s, &found, err);
        if (rc <= 0)
            return rc;
        scan->id = found.header.file_id;
        s->at = found_end(&found);
        s->ended = found.header.magic == END_MAGIC;
        s->followed = s->ended && found.header.n_records > 0;
        s->known_at_end = found.header.known;
        if (s->ended)
            continue;
        rc = each_record(scan, &found, take, context, err);
        if (rc < 0)
            return rc;
        s->records += found.header.n_records;
        s->frames++;
        s->next++;
    }
    assert(s->next <= s->limit && s->at <= scan->file->bytes);
    /* its end came before the next log begins */
    return s->limit != UINT64_MAX && s->next < s->limit ? lose(walk, scan, s, s->limit, err) : 0;
}

/* ---- checkpoint and logs ----------------------------------------------------------------------------------------- */

/* The end of a checkpoint speaks of other records than there are: chunks are missing, or it is a forgery. */
static int miscounted(const struct walk *walk, const struct scan *scan, const struct stretch *s,
                      struct quire_error *err)
{
    if (walk->salvage) {
        say_lost(walk, "%s: its end speaks of %" PRIu64 " records, there are %" PRIu64, scan->file->path,
                 s->known_at_end, s->records);
        return 0;
    }
    return error_set(err, QUIRE_ECORRUPT,
                     "%s: its end, before offset %" PRIu64 ", speaks of %" PRIu64 " records, there are %" PRIu64
                     "; " REMEDY,
                     scan->file->path, s->at, s->known_at_end, s->records);
}

/* What is restored, and up to where it is true. */
struct restoring {
    const struct journal_reader *reader; /* may be NULL */
    uint64_t known_lsn;
};

static int restore_record(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                          struct quire_error *err)
{
    struct restoring *restoring = context;
    const struct journal_reader *reader = restoring->reader;
    restoring->known_lsn = lsn > restoring->known_lsn ? lsn : restoring->known_lsn;
    return reader && reader->restore ? reader->restore(reader->context, kind, lsn, bytes, n, err) : 0;
}

static int walk_checkpoint(const struct walk *walk, uint64_t lsn, struct recovery *out, struct quire_error *err)
{
    struct scan scan = {0};
    struct stretch s = {.next = 1, .limit = UINT64_MAX};
    struct restoring restoring = {.reader = walk->reader};
    int rc = scan_open(walk, NAME_CHECKPOINT, lsn, &scan, err);
    if (rc == 0)
        rc = walk_frames(walk, &scan, &s, restore_record, &restoring, err);
    if (rc == 0 && s.ended && s.known_at_end != s.records)
        rc = miscounted(walk, &scan, &s, err);
    if (rc == 0) {
        out->known_lsn = restoring.known_lsn;
        out->checkpoint_lsn = walk->report->checkpoint_lsn = lsn;
        out->checkpoint_bytes = walk->report->checkpoint_bytes = scan.file->bytes;
        walk->report->checkpoint_records = s.records;
    }
    scan_close(&scan);
    return rc;
}

/* The last log is not there: what it had is not known. */
static int lose_log(const struct walk *walk, uint64_t first, const char *reason, struct quire_error *err)
{
    static const char format[] = "%.200s: the log that begins at LSN %" PRIu64 " is missing, which %s";
    char sentence[320];
    snprintf(sentence, sizeof sentence, format, walk->folder, first, reason);
    if (!walk->salvage)
        return error_set(err, QUIRE_ECORRUPT, "%s; " REMEDY, sentence);
    say_lost(walk, "%s", sentence);
    return 0;
}

/* limit: the first LSN of the log behind this one, UINT64_MAX: there is none. */
static int walk_log(const struct walk *walk, uint64_t first, uint64_t limit, struct recovery *out,
                    struct quire_error *err)
{
    struct scan scan = {0};
    struct stretch s = {.next = out->next_lsn, .limit = limit, .may_be_torn = limit == UINT64_MAX};
    int rc = scan_open(walk, NAME_LOG, first, &scan, err);
    if (rc == 0) {
        rc = walk_frames(walk, &scan, &s, walk->reader ? walk->reader->replay : NULL,
                         walk->reader ? walk->reader->context : NULL, err);
        out->next_lsn = s.next;
        walk->report->frames += s.frames;
        walk->report->records += s.records;
        walk->report->log_bytes += s.at - LOG_FRAMES_AT;
        walk->report->log_files++;
        out->log_files++;
        out->log_bytes += scan.file->bytes;
        if (rc == 0 && limit == UINT64_MAX && s.followed)
            rc = lose_log(walk, s.next, "was begun before the log in front of it was ended", err);
    }
    scan_close(&scan);
    return rc;
}

/* Frames that the checkpoint knows as durable are behind the end of the logs. */
static int lose_known(const struct walk *walk, struct recovery *out, struct quire_error *err)
{
    if (!walk->salvage)
        return error_set(err, QUIRE_ECORRUPT,
                         "%s: the checkpoint knows the frames of LSN %" PRIu64 " to %" PRIu64
                         ", and they are missing behind the end of the last log; " REMEDY,
                         walk->folder, out->next_lsn, out->known_lsn);
    say_lost(walk, "%s: the frames of LSN %" PRIu64 " to %" PRIu64 ", which the checkpoint knows, are missing",
             walk->folder, out->next_lsn, out->known_lsn);
    out->next_lsn = out->known_lsn + 1;
    return 0;
}

static int walk_logs(const struct walk *walk, const struct journal_files *files, struct recovery *out,
                     struct quire_error *err)
{
    int rc = 0;
    unsigned i = 0;
    while (i < files->n_logs && files->logs[i] < out->next_lsn)
        i++;
    if (i < files->n_logs && files->logs[i] > out->next_lsn) {
        if (!walk->salvage)
            return error_set(err, QUIRE_ECORRUPT,
                             "%s: no log has the frames of LSN %" PRIu64 " to %" PRIu64 "; " REMEDY, walk->folder,
                             out->next_lsn, files->logs[i] - 1);
        say_lost(walk, "%s: no log has the frames of LSN %" PRIu64 " to %" PRIu64, walk->folder, out->next_lsn,
                 files->logs[i] - 1);
        out->next_lsn = files->logs[i];
    }
    if (i == files->n_logs && out->checkpoint_lsn)
        rc = lose_log(walk, out->next_lsn, "was begun before the checkpoint was written", err);
    for (; rc == 0 && i < files->n_logs; i++)
        rc = walk_log(walk, files->logs[i], i + 1 < files->n_logs ? files->logs[i + 1] : UINT64_MAX, out, err);
    return rc == 0 && out->next_lsn <= out->known_lsn ? lose_known(walk, out, err) : rc;
}

int journal_walk(const struct walk *walk, struct recovery *out, struct quire_error *err)
{
    uint64_t started_us = clock_us();
    struct journal_files files;
    *out = (struct recovery){.next_lsn = 1};
    *walk->report = (struct journal_report){0};
    int rc = journal_list(walk->fs, walk->folder, &files, err);
    if (rc == 0 && files.n_checkpoints) {
        uint64_t newest = files.checkpoints[files.n_checkpoints - 1];
        rc = walk_checkpoint(walk, newest, out, err);
        out->next_lsn = newest;
    }
    if (rc == 0)
        rc = walk_logs(walk, &files, out, err);
    assert(out->next_lsn > 0);
    walk->report->last_lsn = out->next_lsn - 1;
    walk->report->duration_us = clock_us() - started_us;
    journal_files_free(&files);
    return rc;
}

int journal_read(struct io_fs *fs, const char *folder, const struct journal_reader *reader, bool salvage,
                 void (*lost)(void *context, const char *sentence), void *lost_context, struct journal_report *report,
                 struct quire_error *err)
{
    struct journal_report unused;
    struct recovery recovery;
    struct walk walk = {.fs = fs,
                        .folder = folder,
                        .reader = reader,
                        .salvage = salvage,
                        .lost = lost,
                        .lost_context = lost_context,
                        .report = report ? report : &unused};
    return journal_walk(&walk, &recovery, err);
}
