/*
 * test_fs.c - the file table: the same suite over the operating system's files and over those of the fault fs.
 *
 * What both must agree on is what the rest of the project leans on: error numbers, sizes, exclusive creation, renames
 * that replace, publication. A disagreement would make every test on the fault fs worthless.
 */
#include "io/fs.h"
#include "io/memory.h"
#include "support_contents.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

struct fixture {
    struct io_fs *fs;
    bool real;
    char *folder;
    char *paths[16];
    unsigned n_paths;
};

static bool kinds[] = {true, false};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    x->real = *(bool *)*state;
    *state = x;
    x->folder = support_folder_make();
    x->fs = x->real ? fs_real() : fault_fs_create();
    return x->folder && x->fs ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    for (unsigned i = 0; i < x->n_paths; i++)
        free(x->paths[i]);
    if (!x->real)
        fault_fs_destroy(x->fs);
    support_folder_remove(x->folder);
    free(x);
    return 0;
}

/* A path in the test's folder, which is the root of the fault fs. */
static const char *in(struct fixture *x, const char *name)
{
    assert_true(x->n_paths < 16);
    return x->paths[x->n_paths++] = support_path(x->real ? x->folder : "", name);
}

static void write_file(struct fixture *x, const char *path, const char *text)
{
    struct io_file *file;
    struct quire_error err;
    assert_int_equal(fs_open(x->fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, &err), 0);
    assert_int_equal(fs_write_exact(file, text, strlen(text), 0, &err), 0);
    assert_int_equal(x->fs->ops->sync(file), 0);
    fs_close(file);
}

static void assert_holds(struct fixture *x, const char *path, const char *text)
{
    struct io_file *file;
    char found[64] = {0};
    assert_int_equal(fs_open(x->fs, path, FS_READ, &file, NULL), 0);
    assert_int_equal(file->bytes, strlen(text));
    assert_string_equal(file->path, path);
    assert_int_equal(fs_read_exact(file, found, strlen(text), 0, NULL), 0);
    assert_string_equal(found, text);
    fs_close(file);
}

static void test_open(void **state)
{
    struct fixture *x = *state;
    struct io_file *file = NULL;
    struct quire_error err = {0};
    const char *path = in(x, "a"), *folder = in(x, "folder"), *below = in(x, "none/a");
    assert_int_equal(fs_open(x->fs, path, FS_READ, &file, &err), QUIRE_ENOFILE);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(fs_open(x->fs, path, FS_WRITE, &file, &err), QUIRE_ENOFILE);
    assert_int_equal(fs_open(x->fs, below, FS_WRITE | FS_CREATE, &file, &err), QUIRE_ENOFILE);
    write_file(x, path, "one");
    assert_int_equal(fs_open(x->fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, &err), QUIRE_EEXISTS);
    assert_int_equal(fs_open(x->fs, path, FS_WRITE | FS_CREATE, &file, &err), 0);
    assert_int_equal(file->bytes, 3);
    fs_close(file);
    fs_close(NULL);
    assert_int_equal(x->fs->ops->mkdir(x->fs, folder), 0);
    assert_int_equal(fs_open(x->fs, folder, FS_READ, &file, &err), QUIRE_EFORMAT);
    assert_holds(x, path, "one");
}

static void test_reads_and_writes(void **state)
{
    struct fixture *x = *state;
    struct io_file *file;
    struct quire_error err = {0};
    const char *path = in(x, "a");
    char buffer[16];
    write_file(x, path, "0123456789");
    assert_int_equal(fs_open(x->fs, path, FS_WRITE, &file, &err), 0);
    assert_int_equal(x->fs->ops->read(file, buffer, 16, 4), 6);
    assert_memory_equal(buffer, "456789", 6);
    assert_int_equal(x->fs->ops->read(file, buffer, 16, 10), 0);
    assert_int_equal(x->fs->ops->read(file, buffer, 16, 1000), 0);
    assert_int_equal(fs_read_exact(file, buffer, 16, 4, &err), QUIRE_ESHORTREAD);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "6 of 16"));
    /* beyond the end: what lies between is zero */
    assert_int_equal(fs_write_exact(file, "end", 3, 12, &err), 0);
    assert_int_equal(x->fs->ops->read(file, buffer, 16, 8), 7);
    assert_memory_equal(buffer, "89\0\0end", 7);
    fs_close(file);
}

static void test_sizes(void **state)
{
    struct fixture *x = *state;
    struct io_file *file;
    const char *path = in(x, "a");
    char buffer[8];
    write_file(x, path, "0123456789");
    assert_int_equal(fs_open(x->fs, path, FS_WRITE, &file, NULL), 0);
    assert_int_equal(x->fs->ops->truncate(file, 3), 0);
    assert_int_equal(x->fs->ops->truncate(file, 6), 0);
    assert_int_equal(x->fs->ops->read(file, buffer, 8, 0), 6);
    assert_memory_equal(buffer, "012\0\0\0", 6);
    assert_int_equal(x->fs->ops->allocate(file, 8000), 0);
    assert_int_equal(x->fs->ops->allocate(file, 10), 0);
    fs_close(file);
    assert_int_equal(fs_open(x->fs, path, FS_READ, &file, NULL), 0);
    assert_int_equal(file->bytes, 8000);
    fs_close(file);
}

static void test_direct(void **state)
{
    struct fixture *x = *state;
    struct io_file *file;
    const char *path = in(x, "a");
    uint8_t *page = memory_map(8192, 0);
    support_fill(page, 4096, 0, 1);
    assert_int_equal(fs_open(x->fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE | FS_DIRECT, &file, NULL), 0);
    assert_true(file->direct != file->direct_refused);
    assert_int_equal(fs_write_exact(file, page, 4096, 4096, NULL), 0);
    assert_int_equal(fs_read_exact(file, page + 4096, 4096, 4096, NULL), 0);
    assert_memory_equal(page, page + 4096, 4096);
    /* some disks take what is not aligned; the fault fs never does */
    if (!x->real)
        assert_int_equal(x->fs->ops->read(file, page + 1, 512, 7), QUIRE_EINVALID);
    fs_close(file);
    memory_unmap(page, 8192);
}

static void test_names(void **state)
{
    struct fixture *x = *state;
    const struct io_fs_ops *ops = x->fs->ops;
    const char *a = in(x, "a"), *b = in(x, "b"), *folder = in(x, "folder"), *inside = in(x, "folder/a"),
               *other = in(x, "other");
    write_file(x, a, "one");
    write_file(x, b, "two");
    assert_int_equal(ops->rename(x->fs, a, b), 0);
    assert_holds(x, b, "one");
    assert_int_equal(ops->rename(x->fs, a, b), QUIRE_ENOFILE);
    assert_int_equal(ops->unlink(x->fs, a), QUIRE_ENOFILE);
    assert_int_equal(ops->mkdir(x->fs, folder), 0);
    assert_int_equal(ops->mkdir(x->fs, folder), QUIRE_EEXISTS);
    assert_int_equal(ops->rename(x->fs, b, inside), 0);
    assert_int_equal(ops->rmdir(x->fs, folder), QUIRE_EEXISTS);
    assert_int_equal(ops->rename(x->fs, folder, other), 0);
    assert_holds(x, in(x, "other/a"), "one");
    assert_int_equal(ops->mkdir(x->fs, folder), 0);
    assert_int_equal(ops->rename(x->fs, folder, other), QUIRE_EEXISTS);
    assert_int_equal(ops->sync_dir(x->fs, other), 0);
    assert_int_equal(ops->sync_dir(x->fs, in(x, "none")), QUIRE_ENOFILE);
    assert_int_equal(ops->rmdir(x->fs, folder), 0);
    assert_int_equal(ops->rmdir(x->fs, folder), QUIRE_ENOFILE);
}

/* Both names are one file; each goes by itself. */
static void test_link(void **state)
{
    struct fixture *x = *state;
    const struct io_fs_ops *ops = x->fs->ops;
    const char *a = in(x, "a"), *folder = in(x, "folder"), *inside = in(x, "folder/b"), *none = in(x, "none");
    struct io_file *file;
    write_file(x, a, "one");
    assert_int_equal(ops->mkdir(x->fs, folder), 0);
    assert_int_equal(ops->link(x->fs, a, inside), 0);
    assert_holds(x, inside, "one");
    assert_int_equal(fs_open(x->fs, inside, FS_WRITE, &file, NULL), 0);
    assert_int_equal(fs_write_exact(file, "two", 3, 0, NULL), 0);
    fs_close(file);
    assert_holds(x, a, "two");
    assert_int_equal(ops->link(x->fs, a, inside), QUIRE_EEXISTS);
    assert_int_equal(ops->link(x->fs, none, in(x, "c")), QUIRE_ENOFILE);
    assert_int_equal(ops->link(x->fs, a, in(x, "none/c")), QUIRE_ENOFILE);
    assert_int_equal(ops->link(x->fs, folder, in(x, "d")), QUIRE_EPERM);
    assert_int_equal(ops->unlink(x->fs, a), 0);
    assert_holds(x, inside, "two");
}

/* An open file outlives its name. */
static void test_unlinked_file(void **state)
{
    struct fixture *x = *state;
    struct io_file *file;
    const char *path = in(x, "a");
    char buffer[3];
    write_file(x, path, "one");
    assert_int_equal(fs_open(x->fs, path, FS_READ, &file, NULL), 0);
    assert_int_equal(x->fs->ops->unlink(x->fs, path), 0);
    write_file(x, path, "two");
    assert_int_equal(fs_read_exact(file, buffer, 3, 0, NULL), 0);
    assert_memory_equal(buffer, "one", 3);
    fs_close(file);
}

static int count_visit(void *context, const char *name)
{
    unsigned *seen = context;
    assert_true(strlen(name) == 1 && name[0] >= 'a' && name[0] <= 'c');
    *seen |= 1u << (name[0] - 'a');
    return 0;
}

static int stop_visit(void *context, const char *name)
{
    (void)name;
    ++*(unsigned *)context;
    return 42;
}

static void test_list(void **state)
{
    struct fixture *x = *state;
    unsigned seen = 0, visits = 0;
    const char *folder = in(x, "folder");
    assert_int_equal(x->fs->ops->list(x->fs, folder, count_visit, &seen), QUIRE_ENOFILE);
    assert_int_equal(x->fs->ops->mkdir(x->fs, folder), 0);
    assert_int_equal(x->fs->ops->list(x->fs, folder, count_visit, &seen), 0);
    assert_int_equal(seen, 0);
    write_file(x, in(x, "folder/a"), "");
    write_file(x, in(x, "folder/b"), "");
    assert_int_equal(x->fs->ops->mkdir(x->fs, in(x, "folder/c")), 0);
    assert_int_equal(x->fs->ops->list(x->fs, folder, count_visit, &seen), 0);
    assert_int_equal(seen, 7);
    assert_int_equal(x->fs->ops->list(x->fs, folder, stop_visit, &visits), 42);
    assert_int_equal(visits, 1);
}

static void test_remove_folder(void **state)
{
    struct fixture *x = *state;
    const char *folder = in(x, "folder");
    struct quire_error err;
    assert_int_equal(fs_remove_folder(x->fs, folder, &err), 0);
    assert_int_equal(x->fs->ops->mkdir(x->fs, folder), 0);
    write_file(x, in(x, "folder/a"), "one");
    write_file(x, in(x, "folder/b"), "two");
    assert_int_equal(fs_remove_folder(x->fs, folder, &err), 0);
    assert_int_equal(x->fs->ops->rmdir(x->fs, folder), QUIRE_ENOFILE);
}

static void test_publish(void **state)
{
    struct fixture *x = *state;
    struct quire_error err = {0};
    const char *folder = in(x, "new"), *target = in(x, "index");
    assert_int_equal(x->fs->ops->mkdir(x->fs, folder), 0);
    write_file(x, in(x, "new/a"), "one");
    assert_int_equal(fs_publish(x->fs, folder, target, &err), 0);
    assert_holds(x, in(x, "index/a"), "one");
    const char *file = in(x, "file"), *taken = in(x, "taken");
    write_file(x, file, "two");
    assert_int_equal(fs_publish(x->fs, file, target, &err), QUIRE_EEXISTS);
    assert_non_null(strstr(err.message, target));
    assert_holds(x, file, "two");
    assert_int_equal(fs_publish(x->fs, file, taken, &err), 0);
    assert_holds(x, taken, "two");
    assert_int_equal(fs_publish(x->fs, file, in(x, "again"), &err), QUIRE_ENOFILE);
}

#define ROW(test, kind)                                                                                                \
    {                                                                                                                  \
#test "/" #kind, test, setup, teardown, &kinds[kind]                                                           \
    }
#define ROWS(test) ROW(test, REAL), ROW(test, MEMORY)
enum { REAL, MEMORY };

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROWS(test_open), ROWS(test_reads_and_writes), ROWS(test_sizes), ROWS(test_direct),        ROWS(test_names),
        ROWS(test_link), ROWS(test_unlinked_file),    ROWS(test_list),  ROWS(test_remove_folder), ROWS(test_publish)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
