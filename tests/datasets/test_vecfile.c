/*
 * test_vecfile.c - files of vectors: every format there and back, through files and pipes, and every damage refused.
 *
 * Files are written byte by byte here, so that the layout is tested and not only that reader and writer agree. Standard
 * input and output are replaced by pipes, with a child that feeds or drains them, where pipes are tested.
 */
#include "datasets/vecfile.h"
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

static char folder[256];
static struct quire_error err;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/quire-vecfile-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

/* Removes the folder; answers how many files were in it. */
static int clear_folder(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        n++;
        if (unlink(path) != 0)
            rmdir(path);
    }
    if (dir)
        closedir(dir);
    return n;
}

static int teardown(void **state)
{
    (void)state;
    clear_folder();
    return rmdir(folder);
}

static const char *path_of(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *out = fopen(path_of(name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

/* Opening or reading must fail with `code`, and the sentence must hold `words` (split at |). */
static void expect_load_error(const char *path, enum vecfile_format format, int code, const char *words)
{
    struct vectors v = {.rows = 77};
    char copy[256], *rest = copy;
    memset(&err, 0, sizeof err);
    assert_int_equal(vecfile_vectors_load(path, format, &v, &err), code);
    assert_int_equal(err.code, code);
    assert_int_equal(v.rows, 77); /* untouched */
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strsep(&rest, "|"));)
        if (!strstr(err.message, word))
            fail_msg("no \"%s\" in: %s", word, err.message);
}

static void expect_error(const char *name, const void *bytes, size_t n, int code, const char *words)
{
    write_file(name, bytes, n);
    expect_load_error(path_of(name), VECFILE_AUTO, code, words);
}

/* Runs body with standard input fed from `bytes` through a pipe. */
static void with_stdin(const void *bytes, size_t n, void (*body)(void))
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *at = bytes;
        close(ends[0]);
        signal(SIGPIPE, SIG_IGN);
        for (size_t step = 1; n > 0; step = step * 3 + 1) { /* in pieces of uneven size */
            ssize_t wrote = write(ends[1], at, step < n ? step : n);
            if (wrote < 0)
                break;
            at += wrote;
            n -= (size_t)wrote;
        }
        _exit(0);
    }
    int saved = dup(STDIN_FILENO);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
    body();
    dup2(saved, STDIN_FILENO);
    close(saved);
    waitpid(child, &status, 0);
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static const uint8_t fbin[] = {2, 0, 0,    0,    3, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0,    0x40,
                               0, 0, 0x40, 0x40, 0, 0, 0, 0, 0, 0, 0,    0xbf, 0, 0, 0x20, 0x41};
static const float fbin_values[] = {1, 2, 3, 0, -0.5f, 10};
static const uint8_t u8bin[] = {2, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 253, 254, 255};
static const uint16_t bf16_values[] = {0x3f80, 0x4000, 0x4040, 0, 0xbf00, 0x4120}; /* those of fbin */
static const uint8_t bf16bin[] = {2,    0,    0,    0,    3, 0, 0,    0,    0x80, 0x3f,
                                  0x00, 0x40, 0x40, 0x40, 0, 0, 0x00, 0xbf, 0x20, 0x41};
static const uint8_t fvecs[] = {1, 0, 0, 0, 0, 0, 0x80, 0x3f, 1, 0, 0, 0, 0, 0, 0, 0x40};
static const uint8_t bvecs[] = {3, 0, 0, 0, 1, 2, 3, 3, 0, 0, 0, 253, 254, 255};

static void expect_vectors(const char *path, enum vecfile_format format, enum quire_type type, uint64_t rows,
                           uint32_t dim, const void *values)
{
    struct vectors v;
    int rc = vecfile_vectors_load(path, format, &v, &err);
    if (rc != 0)
        fail_msg("%s", err.message);
    assert_int_equal(v.rows, rows);
    assert_int_equal(v.dim, dim);
    assert_int_equal(v.type, type);
    assert_int_equal((uintptr_t)v.data % 64, 0);
    assert_memory_equal(v.data, values, rows * dim * quire_type_bytes(type));
    vecfile_vectors_free(&v);
    assert_null(v.data);
}

static void test_layouts(void **state)
{
    (void)state;
    float ones[] = {1, 2};
    write_file("a.fbin", fbin, sizeof fbin);
    expect_vectors(path_of("a.fbin"), VECFILE_AUTO, QUIRE_TYPE_F32, 2, 3, fbin_values);
    write_file("a.u8bin", u8bin, sizeof u8bin);
    expect_vectors(path_of("a.u8bin"), VECFILE_AUTO, QUIRE_TYPE_U8, 2, 3, u8bin + 8);
    write_file("a.i8bin", u8bin, sizeof u8bin);
    expect_vectors(path_of("a.i8bin"), VECFILE_AUTO, QUIRE_TYPE_I8, 2, 3, u8bin + 8);
    write_file("a.bf16bin", bf16bin, sizeof bf16bin);
    expect_vectors(path_of("a.bf16bin"), VECFILE_AUTO, QUIRE_TYPE_BF16, 2, 3, bf16_values);
    write_file("a.fvecs", fvecs, sizeof fvecs);
    expect_vectors(path_of("a.fvecs"), VECFILE_AUTO, QUIRE_TYPE_F32, 2, 1, ones);
    write_file("a.bvecs", bvecs, sizeof bvecs);
    expect_vectors(path_of("a.bvecs"), VECFILE_AUTO, QUIRE_TYPE_U8, 2, 3, u8bin + 8);
    write_file("a.anything", bvecs, sizeof bvecs);
    expect_vectors(path_of("a.anything"), VECFILE_BVECS, QUIRE_TYPE_U8, 2, 3, u8bin + 8);
}

static void test_formats(void **state)
{
    (void)state;
    assert_int_equal(vecfile_format_from_path("x/base.fbin"), VECFILE_FBIN);
    assert_int_equal(vecfile_format_from_path("x/base.query.u8bin"), VECFILE_U8BIN);
    assert_int_equal(vecfile_format_from_path("x.fbin/base"), VECFILE_AUTO);
    assert_int_equal(vecfile_format_from_path("base."), VECFILE_AUTO);
    assert_int_equal(vecfile_format_from_path("base.bin"), VECFILE_AUTO);
    const char *names[] = {"fbin", "u8bin", "i8bin", "fvecs", "bvecs", "ivecs", "npy", "bf16bin"};
    for (int i = 0; i < 8; i++)
        assert_int_equal(vecfile_format_from_name(names[i]), VECFILE_FBIN + i);
    assert_int_equal(vecfile_format_from_name("auto"), VECFILE_AUTO);
    assert_int_equal(vecfile_format_from_name(""), VECFILE_AUTO);
}

static void test_ivecs(void **state)
{
    (void)state;
    const uint8_t bytes[] = {2, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 5, 0, 0, 0};
    struct vecfile *file;
    int32_t row[4];
    write_file("a.ivecs", bytes, sizeof bytes);
    assert_int_equal(vecfile_open(path_of("a.ivecs"), VECFILE_AUTO, &file, &err), 0);
    assert_true(vecfile_is_ivecs(file));
    assert_int_equal(vecfile_rows(file), 1);
    assert_int_equal(quire_type_bytes(vecfile_type(file)), sizeof row[0]);
    assert_int_equal(vecfile_read(file, row, 2, &err), 1); /* 0x7fffffff would be NaN, were it f32 */
    assert_int_equal(row[0], INT32_MAX);
    assert_int_equal(row[1], 5);
    assert_int_equal(vecfile_read(file, row, 2, &err), 0);
    vecfile_close(file);
    expect_load_error(path_of("a.ivecs"), VECFILE_AUTO, QUIRE_ETYPE, "ivecs");
}

/* Reads a few rows at a time, over the end of the buffer. */
static void test_read_in_parts(void **state)
{
    (void)state;
    enum { ROWS = 9001, DIM = 67 };
    float *values = malloc(ROWS * DIM * sizeof *values), *got = malloc(1000 * DIM * sizeof *got);
    for (int i = 0; i < ROWS * DIM; i++)
        values[i] = (float)i * 0.25f;
    const char *names[] = {"p.fbin", "p.fvecs", "p.npy"};
    for (int f = 0; f < 3; f++) {
        struct vecwriter *writer;
        struct vecfile *file;
        assert_int_equal(vecwriter_open(path_of(names[f]), VECFILE_AUTO, ROWS, DIM, QUIRE_TYPE_F32, &writer, &err), 0);
        assert_int_equal(vecwriter_write(writer, values, 7, &err), 0);
        assert_int_equal(vecwriter_write(writer, values + 7 * DIM, ROWS - 7, &err), 0);
        assert_int_equal(vecwriter_finish(writer, &err), 0);
        assert_int_equal(vecfile_open(path_of(names[f]), VECFILE_AUTO, &file, &err), 0);
        assert_int_equal(vecfile_rows(file), ROWS);
        uint64_t at = 0, step = 1;
        for (int64_t n; (n = vecfile_read(file, got, step, &err)) != 0; step = step * 2 < 1000 ? step * 2 : 1) {
            assert_true(n > 0);
            assert_memory_equal(got, values + at * DIM, (uint64_t)n * DIM * sizeof *got);
            at += (uint64_t)n;
        }
        assert_int_equal(at, ROWS);
        vecfile_close(file);
        expect_vectors(path_of(names[f]), VECFILE_AUTO, QUIRE_TYPE_F32, ROWS, DIM, values);
    }
    free(values);
    free(got);
}

/* A plain file is read again from any row, before and behind the buffer; a file of each layout. */
static void test_seek(void **state)
{
    (void)state;
    enum { ROWS = 9001, DIM = 67 };
    static const uint64_t rows[] = {8999, 0, 1, 4000, 4001, 0, 9000, 3};
    float *values = malloc(ROWS * DIM * sizeof *values), got[2 * DIM];
    assert_non_null(values);
    for (int i = 0; i < ROWS * DIM; i++)
        values[i] = (float)i * 0.25f;
    const char *names[] = {"s.fbin", "s.fvecs", "s.npy"};
    for (int f = 0; f < 3; f++) {
        struct vecwriter *writer;
        struct vecfile *file;
        assert_int_equal(vecwriter_open(path_of(names[f]), VECFILE_AUTO, ROWS, DIM, QUIRE_TYPE_F32, &writer, &err), 0);
        assert_int_equal(vecwriter_write(writer, values, ROWS, &err), 0);
        assert_int_equal(vecwriter_finish(writer, &err), 0);
        assert_int_equal(vecfile_open(path_of(names[f]), VECFILE_AUTO, &file, &err), 0);
        assert_true(vecfile_is_seekable(file));
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            int64_t wanted = rows[i] == ROWS - 1 ? 1 : 2;
            assert_int_equal(vecfile_seek(file, rows[i], &err), 0);
            assert_int_equal(vecfile_read(file, got, (uint64_t)wanted, &err), wanted);
            assert_memory_equal(got, values + rows[i] * DIM, (size_t)wanted * DIM * sizeof *got);
        }
        vecfile_close(file);
    }
    free(values);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void test_damaged_counted(void **state)
{
    (void)state;
    uint8_t bytes[64] = {0};
    expect_error("d.fbin", "", 0, QUIRE_ETRUNCATED, "d.fbin is empty|expected|8 bytes|found 0 bytes");
    expect_error("d.fbin", fbin, 5, QUIRE_ETRUNCATED, "expected at least 8 bytes|found 5 bytes");
    expect_error("d.fbin", fbin, 31, QUIRE_ETRUNCATED, "expected 32 bytes|found 31 bytes");
    expect_error("d.u8bin", u8bin, 8, QUIRE_ETRUNCATED, "expected 14 bytes|found 8 bytes");
    memcpy(bytes, fbin, sizeof fbin);
    expect_error("d.fbin", bytes, 33, QUIRE_EOVERSIZED, "expected 32 bytes|found 33 bytes");
    memcpy(bytes, "\0\0\0\0\1\0\0\0", 8);
    expect_error("d.fbin", bytes, 8, QUIRE_EFORMAT, "no rows");
    memcpy(bytes, "\1\0\0\0\0\0\0\0", 8);
    expect_error("d.fbin", bytes, 8, QUIRE_EDIM, "0 dimensions|1 to 65536");
    memcpy(bytes, "\1\0\0\0\1\0\1\0", 8);
    expect_error("d.fbin", bytes, 8, QUIRE_EDIM, "65537 dimensions|1 to 65536");
    memcpy(bytes, "\xff\xff\xff\xff\0\x40\0\0", 8);
    expect_error("d.fbin", bytes, 40, QUIRE_ETRUNCATED, "expected 281474976645128 bytes|found 40 bytes");
}

static void test_damaged_headed(void **state)
{
    (void)state;
    uint8_t bytes[32] = {0};
    expect_error("d.fvecs", "", 0, QUIRE_ETRUNCATED, "empty|found 0 bytes");
    expect_error("d.fvecs", fvecs, 3, QUIRE_ETRUNCATED, "expected at least 4 bytes|found 3 bytes");
    expect_error("d.fvecs", fvecs, 10, QUIRE_ETRUNCATED, "expected 8 or 16 bytes|found 10 bytes");
    expect_error("d.fvecs", fvecs, 4, QUIRE_ETRUNCATED, "expected 0 or 8 bytes|found 4 bytes");
    memcpy(bytes, fvecs, sizeof fvecs);
    bytes[8] = 2;
    expect_error("d.fvecs", bytes, 16, QUIRE_EFORMAT, "row 1|2 dimensions|expected 1");
    bytes[0] = 0;
    expect_error("d.fvecs", bytes, 16, QUIRE_EDIM, "0 dimensions");
    memset(bytes, 0xff, 4);
    expect_error("d.bvecs", bytes, 16, QUIRE_EDIM, "4294967295 dimensions");
}

static void test_not_finite(void **state)
{
    (void)state;
    uint8_t bytes[64];
    const uint8_t nan_bits[4] = {0, 0, 0xc0, 0x7f}, inf_bits[4] = {0, 0, 0x80, 0xff};
    memcpy(bytes, fbin, sizeof fbin);
    memcpy(bytes + 8 + 4 * 4, nan_bits, 4);
    expect_error("n.fbin", bytes, sizeof fbin, QUIRE_ENOTFINITE, "row 1 |dimension 1");
    memcpy(bytes + 8 + 4 * 2, inf_bits, 4);
    expect_error("n.fbin", bytes, sizeof fbin, QUIRE_ENOTFINITE, "row 0 |dimension 2");
    memcpy(bytes, bf16bin, sizeof bf16bin);
    bytes[16] = 0x80; /* 0x7f80: infinity */
    bytes[17] = 0x7f;
    expect_error("n.bf16bin", bytes, sizeof bf16bin, QUIRE_ENOTFINITE, "row 1 |dimension 1");
    expect_error("n.bf16bin", bytes, sizeof bf16bin - 1, QUIRE_ETRUNCATED, "expected 20 bytes|found 19 bytes");
    memcpy(bytes, fvecs, sizeof fvecs);
    memcpy(bytes + 12, inf_bits, 4);
    expect_error("n.fvecs", bytes, sizeof fvecs, QUIRE_ENOTFINITE, "row 1 |dimension 0");
    const float largest = 3.4028235e38f;
    memcpy(bytes + 12, &largest, 4);
    write_file("n.fvecs", bytes, sizeof fvecs);
    expect_vectors(path_of("n.fvecs"), VECFILE_AUTO, QUIRE_TYPE_F32, 2, 1, (const float[]){1, largest});
}

static void test_places(void **state)
{
    (void)state;
    expect_load_error(path_of("none.fbin"), VECFILE_AUTO, QUIRE_ENOFILE, "none.fbin|No such file");
    assert_int_equal(mkdir(path_of("folder.fbin"), 0700), 0);
    expect_load_error(path_of("folder.fbin"), VECFILE_AUTO, QUIRE_EINVALID, "folder.fbin is a folder");
    expect_load_error(path_of("a.txt"), VECFILE_AUTO, QUIRE_ENOFILE, "a.txt|No such file");
    write_file("a.txt", fbin, sizeof fbin);
    expect_load_error(path_of("a.txt"), VECFILE_AUTO, QUIRE_EINVALID, "a.txt|fbin, u8bin");
    expect_load_error("-", VECFILE_AUTO, QUIRE_EINVALID, "fbin, u8bin");
    write_file("secret.fbin", fbin, sizeof fbin);
    assert_int_equal(chmod(path_of("secret.fbin"), 0), 0);
    if (geteuid() != 0) /* root may read everything */
        expect_load_error(path_of("secret.fbin"), VECFILE_AUTO, QUIRE_EPERM, "secret.fbin|check owner and mode");
}

/* ---- npy --------------------------------------------------------------------------------------------------------- */

static uint8_t npy[70000];

/* A file of .npy version `major` with the dictionary, then `data` bytes of zero. */
static size_t make_npy(unsigned major, const char *dictionary, size_t data)
{
    size_t n = strlen(dictionary), length_bytes = major == 1 ? 2 : 4;
    memset(npy, 0, sizeof npy);
    memcpy(npy, "\x93NUMPY", 6);
    npy[6] = (uint8_t)major;
    npy[8] = (uint8_t)n;
    npy[9] = (uint8_t)(n >> 8);
    memcpy(npy + 8 + length_bytes, dictionary, n);
    return 8 + length_bytes + n + data;
}

static void expect_npy(unsigned major, const char *dictionary, size_t data, enum quire_type type, uint64_t rows,
                       uint32_t dim)
{
    static const uint8_t zeros[64];
    write_file("x.npy", npy, make_npy(major, dictionary, data));
    expect_vectors(path_of("x.npy"), VECFILE_AUTO, type, rows, dim, zeros);
}

static void test_npy(void **state)
{
    (void)state;
    const char *f4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n";
    expect_npy(1, f4, 24, QUIRE_TYPE_F32, 2, 3);
    expect_npy(2, f4, 24, QUIRE_TYPE_F32, 2, 3);
    expect_npy(3, f4, 24, QUIRE_TYPE_F32, 2, 3);
    expect_npy(1, "{\"shape\":(3L,2L),\"fortran_order\":False,\"descr\":\"<f2\"}", 12, QUIRE_TYPE_F16, 3, 2);
    expect_npy(1, "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 5,)}", 5, QUIRE_TYPE_I8, 1, 5);
    expect_npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 1)}", 5, QUIRE_TYPE_U8, 5, 1);
}

static void expect_npy_error(const char *dictionary, size_t data, int code, const char *words)
{
    size_t n = make_npy(1, dictionary, data);
    expect_error("x.npy", npy, n, code, words);
}

static void test_npy_refused(void **state)
{
    (void)state;
#define REST "'fortran_order': False, 'shape': (2, 3)}"
    expect_npy_error("{'descr': '<f8', " REST, 48, QUIRE_ETYPE, "'<f8'|astype");
    expect_npy_error("{'descr': '<V2', " REST, 12, QUIRE_ETYPE, "'<V2'|bf16|.bf16bin");
    expect_npy_error("{'descr': '>f4', " REST, 24, QUIRE_ETYPE, "'>f4'");
    expect_npy_error("{'descr': [('x', '<f4')], " REST, 24, QUIRE_ETYPE, "fields");
    expect_npy_error("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", 24, QUIRE_EFORMAT, "Fortran order");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", 24, QUIRE_EFORMAT, "1 axes");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, QUIRE_EFORMAT, "0 axes");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3)}", 24, QUIRE_EFORMAT, "3 axes");
    expect_npy_error("{'descr': '<f4', " REST, 20, QUIRE_ETRUNCATED, "expected 91 bytes|found 87 bytes");
    expect_npy_error("{'descr': '<f4', " REST, 25, QUIRE_EOVERSIZED, "expected 91 bytes|found 92 bytes");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 3)}", 24, QUIRE_EFORMAT,
                     "18446744073709551615 rows of 12 bytes");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 3)}", 24,
                     QUIRE_EFORMAT, "no file can");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 24, QUIRE_EFORMAT,
                     "4611686018427387904 rows");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0)}", 0, QUIRE_EDIM, "0 dimensions");
    expect_npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2)}", 0, QUIRE_EFORMAT, "no rows");
    const char *broken[] = {"",
                            "{",
                            "}",
                            "{}",
                            "{'descr': '<f4', 'fortran_order': False}",
                            "{'descr': '<f4', " REST " x",
                            "{'descr': '<f4', 'descr': '<f4', " REST,
                            "{'descr': '<f4', 'more': 1, " REST,
                            "{'descr: '<f4', " REST,
                            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
                            "{'descr': '<f4' " REST,
                            "{'descr': '<f4',, " REST,
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3",
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}",
                            "{'descr': '\\x3cf4', " REST,
                            "{'descr': '0123456789012345678901234567890', " REST};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        expect_npy_error(broken[i], 24, QUIRE_EFORMAT, "header of|damaged");
#undef REST
}

static void test_npy_preamble(void **state)
{
    (void)state;
    size_t n = make_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24);
    expect_error("x.npy", npy, 5, QUIRE_ETRUNCATED, "expected at least 8 bytes|found 5 bytes");
    expect_error("x.npy", npy, 9, QUIRE_ETRUNCATED, "expected at least 10 bytes|found 9 bytes");
    expect_error("x.npy", npy, 40, QUIRE_ETRUNCATED, "header|found 40 bytes");
    npy[6] = 4;
    expect_error("x.npy", npy, n, QUIRE_EVERSION, "version 4.0");
    npy[6] = 1;
    npy[0] = 'P';
    expect_error("x.npy", npy, n, QUIRE_EFORMAT, "93 4e 55 4d 50 59|50 4e");
    make_npy(2, "{", 0);
    npy[10] = 0x10;
    expect_error("x.npy", npy, sizeof npy, QUIRE_EFORMAT, "header of 1048577 bytes");
    n = make_npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3)}", 12);
    npy[n - 1] = 0x7c;
    expect_error("x.npy", npy, n, QUIRE_ENOTFINITE, "row 1 |dimension 2");
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

static void load_fvecs(void)
{
    struct vecfile *file;
    float row;
    assert_int_equal(vecfile_open("-", VECFILE_FVECS, &file, &err), 0);
    assert_true(vecfile_rows(file) == UINT64_MAX);
    assert_int_equal(vecfile_read(file, &row, 1, &err), 1);
    assert_int_equal(vecfile_read(file, &row, 1, &err), 1);
    assert_true(row == 2);
    assert_int_equal(vecfile_read(file, &row, 1, &err), 0);
    assert_int_equal(vecfile_rows(file), 2);
    vecfile_close(file);
}

static void load_fbin(void)
{
    expect_vectors("-", VECFILE_FBIN, QUIRE_TYPE_F32, 2, 3, fbin_values);
}

static void load_npy(void)
{
    static const float zeros[6];
    expect_vectors("-", VECFILE_NPY, QUIRE_TYPE_F32, 2, 3, zeros);
}

static void load_short(void)
{
    expect_load_error("-", VECFILE_FBIN, QUIRE_ETRUNCATED, "standard input|expected 32 bytes|found 30 bytes");
}

static void load_long(void)
{
    expect_load_error("-", VECFILE_FBIN, QUIRE_EOVERSIZED, "standard input|expected 32 bytes|found at least 33 bytes");
}

static void load_short_fvecs(void)
{
    expect_load_error("-", VECFILE_FVECS, QUIRE_ETRUNCATED, "standard input|found 15 bytes");
}

static void load_short_head(void)
{
    expect_load_error("-", VECFILE_FVECS, QUIRE_ETRUNCATED, "dimension of row 1|expected 4 bytes|found 2 bytes");
}

static void load_empty(void)
{
    expect_load_error("-", VECFILE_BVECS, QUIRE_ETRUNCATED, "standard input is empty");
}

static uint8_t *large;
enum { LARGE_ROWS = 300000, LARGE_DIM = 64 };

static void load_large(void)
{
    struct vectors v;
    assert_int_equal(vecfile_vectors_load("-", VECFILE_BVECS, &v, &err), 0);
    assert_int_equal(v.rows, LARGE_ROWS);
    for (size_t i = 0; i < LARGE_ROWS; i++)
        assert_memory_equal((uint8_t *)v.data + i * LARGE_DIM, large + i * (LARGE_DIM + 4) + 4, LARGE_DIM);
    vecfile_vectors_free(&v);
}

static void test_pipes(void **state)
{
    (void)state;
    uint8_t longer[40] = {0};
    memcpy(longer, fbin, sizeof fbin);
    with_stdin(fvecs, sizeof fvecs, load_fvecs);
    with_stdin(fbin, sizeof fbin, load_fbin);
    with_stdin(fbin, 30, load_short);
    with_stdin(longer, sizeof longer, load_long);
    with_stdin(fvecs, 15, load_short_fvecs);
    with_stdin(fvecs, 10, load_short_head);
    with_stdin("", 0, load_empty);
    size_t n = make_npy(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n", 24);
    with_stdin(npy, n, load_npy);
    /* more than the memory that a pipe begins with */
    large = malloc((size_t)LARGE_ROWS * (LARGE_DIM + 4));
    for (size_t i = 0; i < (size_t)LARGE_ROWS * (LARGE_DIM + 4); i++)
        large[i] = i % (LARGE_DIM + 4) == 0 ? LARGE_DIM : i % (LARGE_DIM + 4) < 4 ? 0 : (uint8_t)(i * 7 + i / 1000);
    with_stdin(large, (size_t)LARGE_ROWS * (LARGE_DIM + 4), load_large);
    free(large);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void expect_bytes(const char *name, const void *bytes, size_t n)
{
    uint8_t got[256];
    FILE *in = fopen(path_of(name), "rb");
    assert_non_null(in);
    assert_int_equal(fread(got, 1, sizeof got, in), n);
    fclose(in);
    assert_memory_equal(got, bytes, n);
}

static void write_rows(const char *name, enum quire_type type, uint32_t dim, const void *values)
{
    struct vecwriter *writer;
    assert_int_equal(vecwriter_open(path_of(name), VECFILE_AUTO, 2, dim, type, &writer, &err), 0);
    assert_int_equal(access(path_of(name), F_OK), -1); /* not before it is finished */
    assert_int_equal(vecwriter_write(writer, values, 1, &err), 0);
    assert_int_equal(vecwriter_write(writer, (const uint8_t *)values + dim * quire_type_bytes(type), 1, &err), 0);
    assert_int_equal(vecwriter_finish(writer, &err), 0);
}

static void test_writers(void **state)
{
    (void)state;
    const float ones[] = {1, 2};
    clear_folder();
    write_rows("w.fbin", QUIRE_TYPE_F32, 3, fbin_values);
    expect_bytes("w.fbin", fbin, sizeof fbin);
    write_rows("w.u8bin", QUIRE_TYPE_U8, 3, u8bin + 8);
    expect_bytes("w.u8bin", u8bin, sizeof u8bin);
    write_rows("w.i8bin", QUIRE_TYPE_I8, 3, u8bin + 8);
    expect_bytes("w.i8bin", u8bin, sizeof u8bin);
    write_rows("w.bf16bin", QUIRE_TYPE_BF16, 3, bf16_values);
    expect_bytes("w.bf16bin", bf16bin, sizeof bf16bin);
    write_rows("w.fvecs", QUIRE_TYPE_F32, 1, ones);
    expect_bytes("w.fvecs", fvecs, sizeof fvecs);
    write_rows("w.bvecs", QUIRE_TYPE_U8, 3, u8bin + 8);
    expect_bytes("w.bvecs", bvecs, sizeof bvecs);
    const enum quire_type types[] = {QUIRE_TYPE_F32, QUIRE_TYPE_F16, QUIRE_TYPE_I8, QUIRE_TYPE_U8};
    for (int i = 0; i < 4; i++) {
        uint8_t values[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};
        char name[32];
        snprintf(name, sizeof name, "w%d.npy", i);
        write_rows(name, types[i], 3, values);
        expect_vectors(path_of(name), VECFILE_AUTO, types[i], 2, 3, values);
    }
    assert_int_equal(clear_folder(), 10); /* and nothing temporary beside them */
}

static void test_writer_refuses(void **state)
{
    (void)state;
    struct vecwriter *writer = NULL;
    clear_folder();
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 2, 3, QUIRE_TYPE_U8, &writer, &err), QUIRE_ETYPE);
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 2, 3, QUIRE_TYPE_BF16, &writer, &err),
                     QUIRE_ETYPE);
    assert_int_equal(vecwriter_open(path_of("w.npy"), VECFILE_AUTO, 2, 3, QUIRE_TYPE_BF16, &writer, &err), QUIRE_ETYPE);
    assert_non_null(strstr(err.message, "NumPy has no bf16"));
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 2, 0, QUIRE_TYPE_F32, &writer, &err), QUIRE_EDIM);
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 0, 3, QUIRE_TYPE_F32, &writer, &err),
                     QUIRE_ERANGE);
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 1ull << 32, 3, QUIRE_TYPE_F32, &writer, &err),
                     QUIRE_ERANGE);
    assert_int_equal(vecwriter_open(path_of("w.npy"), VECFILE_AUTO, UINT64_MAX, 3, QUIRE_TYPE_F32, &writer, &err),
                     QUIRE_EINVALID); /* what a pipe of fvecs answers */
    assert_int_equal(vecwriter_open(path_of("w.txt"), VECFILE_AUTO, 1, 3, QUIRE_TYPE_F32, &writer, &err),
                     QUIRE_EINVALID);
    assert_int_equal(vecwriter_open(path_of("no/w.fbin"), VECFILE_AUTO, 1, 3, QUIRE_TYPE_F32, &writer, &err),
                     QUIRE_ENOFILE);
    assert_int_equal(vecwriter_open("/dev/null", VECFILE_FBIN, 1, 3, QUIRE_TYPE_F32, &writer, &err), QUIRE_EINVALID);
    assert_int_equal(vecwriter_open(folder, VECFILE_FBIN, 1, 3, QUIRE_TYPE_F32, &writer, &err), QUIRE_EINVALID);
    assert_null(writer);
    assert_int_equal(clear_folder(), 0);
}

/* What is not finished leaves no trace, and leaves a file that was there as it was. */
static void test_writer_unfinished(void **state)
{
    (void)state;
    struct vecwriter *writer;
    clear_folder();
    write_file("w.fbin", "old", 3);
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 2, 3, QUIRE_TYPE_F32, &writer, &err), 0);
    assert_int_equal(vecwriter_write(writer, fbin_values, 1, &err), 0);
    assert_int_equal(vecwriter_finish(writer, &err), QUIRE_ERANGE);
    assert_non_null(strstr(err.message, "2 rows were announced, 1 were written"));
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 1, 3, QUIRE_TYPE_F32, &writer, &err), 0);
    assert_int_equal(vecwriter_write(writer, fbin_values, 2, &err), QUIRE_ERANGE);
    vecwriter_abort(writer);
    assert_int_equal(vecwriter_open(path_of("w.fvecs"), VECFILE_AUTO, 0, 3, QUIRE_TYPE_F32, &writer, &err), 0);
    assert_int_equal(vecwriter_finish(writer, &err), QUIRE_ERANGE);
    expect_bytes("w.fbin", "old", 3);
    assert_int_equal(clear_folder(), 1);
    vecwriter_abort(NULL);
    vecfile_close(NULL);
}

static void test_writer_replaces(void **state)
{
    (void)state;
    struct vecwriter *writer;
    write_file("w.fbin", "old", 3);
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 2, 3, QUIRE_TYPE_F32, &writer, &err), 0);
    assert_int_equal(vecwriter_write(writer, fbin_values, 2, &err), 0);
    assert_int_equal(vecwriter_finish(writer, &err), 0);
    expect_bytes("w.fbin", fbin, sizeof fbin);
    assert_int_equal(clear_folder(), 1);
}

static void test_writer_to_stdout(void **state)
{
    (void)state;
    int ends[2], rc;
    struct vecwriter *writer;
    uint8_t got[64];
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    rc = vecwriter_open("-", VECFILE_FBIN, 2, 3, QUIRE_TYPE_F32, &writer, &err);
    if (rc == 0)
        rc = vecwriter_write(writer, fbin_values, 2, &err);
    if (rc == 0)
        rc = vecwriter_finish(writer, &err);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(rc, 0);
    assert_int_equal(read(ends[0], got, sizeof got), sizeof fbin);
    assert_memory_equal(got, fbin, sizeof fbin);
    close(ends[0]);
}

/* A disk that fills up: an error, and no file, neither under the final name nor under another. */
static void test_writer_full(void **state)
{
    (void)state;
    enum { DIM = 16384, BLOCK = 16 }; /* one write is the whole of the writer's buffer */
    struct vecwriter *writer;
    struct rlimit old, low;
    uint8_t *rows = calloc(BLOCK * 4, DIM);
    clear_folder();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 1500000;
    assert_int_equal(vecwriter_open(path_of("w.fbin"), VECFILE_AUTO, 3 * BLOCK, DIM, QUIRE_TYPE_F32, &writer, &err), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = vecwriter_write(writer, rows, BLOCK, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, QUIRE_ELIMIT); /* EFBIG stands in for ENOSPC here */
    assert_non_null(strstr(err.message, "w.fbin"));
    vecwriter_abort(writer);
    assert_int_equal(clear_folder(), 0);
    free(rows);
}

static void test_stdout_full(void **state)
{
    (void)state;
    struct vecwriter *writer;
    int full = open("/dev/full", O_WRONLY);
    if (full < 0)
        skip();
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(full, STDOUT_FILENO);
    int opened = vecwriter_open("-", VECFILE_FBIN, 2, 3, QUIRE_TYPE_F32, &writer, &err);
    int written = opened == 0 ? vecwriter_write(writer, fbin_values, 2, &err) : -1;
    int finished = opened == 0 ? vecwriter_finish(writer, &err) : -1;
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(full);
    assert_int_equal(opened, 0);
    assert_int_equal(written, 0);
    assert_int_equal(finished, QUIRE_ENOSPACE);
    assert_non_null(strstr(err.message, "make room"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_ivecs),
        cmocka_unit_test(test_read_in_parts),
        cmocka_unit_test(test_seek),
        cmocka_unit_test(test_damaged_counted),
        cmocka_unit_test(test_damaged_headed),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_npy_refused),
        cmocka_unit_test(test_npy_preamble),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_writer_unfinished),
        cmocka_unit_test(test_writer_replaces),
        cmocka_unit_test(test_writer_to_stdout),
        cmocka_unit_test(test_writer_full),
        cmocka_unit_test(test_stdout_full),
    };
    return cmocka_run_group_tests_name("vecfile", tests, setup, teardown);
}
