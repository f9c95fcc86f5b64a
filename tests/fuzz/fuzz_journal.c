/*
 * fuzz_journal.c - any bytes as a journal's log or checkpoint.
 *
 * Bit 0 of the first byte chooses the kind of file, bit 1 whether checksums and ids are made right first: behind them
 * lies what a fuzzer would never reach. What is read is read to its end or refused with a sentence; salvage refuses
 * nothing but a newer version; and what could be opened can be appended to and read again, with one frame more.
 */
#include "io/bytes.h"
#include "io/journal_priv.h"
#include "tests/support/fault.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FORGED_ID = 7 };

struct counts {
    uint64_t bytes, losses;
};

static void require(bool right)
{
    if (!right)
        abort();
}

/* Looks at every byte, so that a sanitizer sees those that are not there. */
static int take(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct counts *counts = context;
    volatile uint8_t sum = kind;
    (void)lsn, (void)err;
    for (uint32_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + bytes[i]);
    counts->bytes += n;
    return 0;
}

static void lose(void *context, const char *sentence)
{
    struct counts *counts = context;
    require(sentence[0] != 0);
    counts->losses++;
}

/* Makes ids and checksums right, and lengths small enough to fit. */
static void forge(uint8_t *bytes, size_t n, const char *magic)
{
    size_t frames_at = strcmp(magic, LOG_MAGIC) == 0 ? LOG_FRAMES_AT : FILE_HEADER_BYTES;
    if (n < frames_at)
        return;
    memset(bytes, 0, frames_at);
    journal_file_header(bytes, magic, FORGED_ID, 1);
    for (size_t at = frames_at; n - at >= FRAME_HEADER_BYTES;) {
        size_t rest = n - at - FRAME_HEADER_BYTES;
        uint32_t payload_bytes = (uint32_t)(bytes_load_u32(bytes + at + FRAME_PAYLOAD_BYTES_AT) % (rest + 1) / 8 * 8);
        journal_frame_header(bytes + at,
                             &(struct frame_header){
                                 .magic = bytes[at] % 4 ? FRAME_MAGIC : END_MAGIC,
                                 .payload_bytes = payload_bytes,
                                 .n_records = bytes_load_u32(bytes + at + FRAME_RECORDS_AT),
                                 .file_id = FORGED_ID,
                                 .number = bytes_load_u64(bytes + at + FRAME_NUMBER_AT),
                                 .known = bytes_load_u64(bytes + at + FRAME_KNOWN_AT),
                                 .payload_checksum = journal_checksum(bytes + at + FRAME_HEADER_BYTES, payload_bytes)});
        at += FRAME_HEADER_BYTES + payload_bytes;
    }
}

static void put_file(struct io_fs *fs, bool checkpoint, bool forged, const uint8_t *data, size_t size)
{
    struct io_file *file;
    char *path = journal_path("/j", checkpoint ? NAME_CHECKPOINT : NAME_LOG, 1, false);
    uint8_t *copy = malloc(size + 1);
    require(path && copy);
    memcpy(copy, data, size);
    if (forged)
        forge(copy, size, checkpoint ? CHECKPOINT_MAGIC : LOG_MAGIC);
    require(fs_open(fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, NULL) == 0);
    require(fs_write_exact(file, copy, size, 0, NULL) == 0);
    fs_close(file);
    if (checkpoint) /* the log that was begun before it */
        require(journal_log_empty(fs, "/j", 1, NULL) == 0);
    free(copy);
    free(path);
}

/* Opens, appends a frame, and finds it again. */
static void extend(struct io_fs *fs, const struct journal_reader *reader, int expected, uint64_t last_lsn)
{
    struct journal_options options = {.sync = JOURNAL_NO, .file_bytes = 4096};
    struct journal_report report;
    struct quire_error err = {0};
    struct journal *journal;
    uint64_t lsn = 0;
    require(journal_open(fs, "/j", &options, reader, &journal, &report, &err) == expected);
    if (expected < 0)
        return;
    require(report.last_lsn == last_lsn);
    require(journal_append(journal, &(struct journal_record){1, "frame", 5}, 1, &lsn, &err) == 0);
    require(lsn == last_lsn + 1);
    require(journal_close(journal, &err) == 0);
    require(journal_read(fs, "/j", reader, false, NULL, NULL, &report, &err) == 0);
    require(report.last_lsn == lsn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct counts strict = {0}, saved = {0};
    struct journal_reader reader = {.restore = take, .replay = take, .context = &strict};
    struct journal_reader saver = {.restore = take, .replay = take, .context = &saved};
    struct journal_report report, saved_report;
    struct quire_error err = {0};
    if (size == 0 || size > 1 << 16)
        return 0;
    struct io_fs *fs = fault_fs_create();
    require(fs && fs->ops->mkdir(fs, "/j") == 0);
    put_file(fs, data[0] & 1, data[0] & 2, data + 1, size - 1);
    int rc = journal_read(fs, "/j", &reader, false, NULL, NULL, &report, &err);
    require(rc == 0 || (rc < 0 && err.code == rc && err.message[0] != 0));
    int saving = journal_read(fs, "/j", &saver, true, lose, &saved, &saved_report, &err);
    require(saving == 0 || (saving == QUIRE_EVERSION && rc == saving));
    if (rc == 0)
        require(saved.losses == 0 && saved.bytes == strict.bytes && saved_report.last_lsn == report.last_lsn);
    else if (saving == 0)
        require(saved.losses > 0);
    extend(fs, &reader, rc, report.last_lsn);
    fault_fs_destroy(fs);
    return 0;
}
