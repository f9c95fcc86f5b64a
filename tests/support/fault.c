/*
 * fault.c - files in memory that remember what of them is on the disk.
 *
 * Every node (file or folder) has two states: `live`, what calls see, and `durable`, what a power cut leaves for sure.
 * What separates them stands in logs, in the order it happened: writes and sizes per file, changes of names for the
 * whole fs. `sync` plays a file's log onto its durable state; `sync_dir` does so with the changes of names that touch
 * the folder, together with earlier ones of the same nodes (no file system makes a rename durable without the creation
 * before it). A power cut throws dice over each entry left, and for writes over each 512-byte sector.
 *
 * That is harsher than ext4 or XFS, which keep the order of names and make the name of a synced new file durable along
 * with it: what holds here does not lean on either.
 *
 * Nodes are freed with the fs only, so open files and logs may point to them freely. One mutex guards all. Lack of
 * memory aborts: no test asks for it, and no caller could tell it from the faults that it asked for.
 */
#include "tests/support/fault.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/random.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR         512u
#define FILE_BYTES_MAX (1ull << 40)

/* What a file has: bytes behind the first `filled` ones are zero and not stored, as logs reserve megabytes of them. */
struct image {
    uint8_t *bytes;
    uint64_t size, filled, room;
};

/* A write, or with data NULL a new size. */
struct change {
    struct change *next;
    uint8_t *data;
    uint64_t offset, bytes; /* of a new size: offset is the size */
};

struct name {
    struct name *next;
    struct node *node;
    char *text;
};

struct node {
    struct node *next; /* of all nodes */
    bool folder;
    struct image live, durable;         /* of a file */
    struct change *log, **log_end;      /* of a file */
    struct name *names, *durable_names; /* of a folder */
};

/* A change of names: the node leaves one place (unlink, rename) and takes another (create, link, rename). */
struct move {
    struct move *next;
    struct node *node, *from, *to; /* folders; NULL: none */
    char *from_name, *to_name;
    bool due;
};

/* The n-th call from now, counted down; 0: off. */
struct plan {
    unsigned calls;
    uint64_t left;
    int code;
    bool forever;
};

struct fault_fs {
    struct io_fs base;
    pthread_mutex_t lock;
    pthread_cond_t let_go;
    unsigned hold, held, passes;
    struct node *nodes, *root;
    struct move *moves, **moves_end;
    struct plan fail;
    uint64_t misdirect_left, short_left, capacity, generation;
    int64_t misdirect_shift;
    uint64_t counts[13]; /* by bit of enum fault_call */
};

struct fault_file {
    struct io_file base;
    struct node *node;
    uint64_t generation; /* of the fs when it was opened */
    bool writable;
};

static struct fault_fs *fault_of(struct io_fs *fs)
{
    return (struct fault_fs *)(void *)fs;
}

static struct fault_file *file_of(struct io_file *file)
{
    return (struct fault_file *)(void *)file;
}

static void *need(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static void image_resize(struct image *image, uint64_t size)
{
    image->filled = image->filled < size ? image->filled : size;
    image->size = size;
}

static void image_make_room(struct image *image, uint64_t bytes)
{
    if (bytes > image->room) {
        uint64_t room = image->room * 2 > bytes ? image->room * 2 : bytes;
        image->bytes = need(realloc(image->bytes, room));
        image->room = room;
    }
}

/* Stores zeros up to `end`, which is not behind the image's end. */
static void image_fill(struct image *image, uint64_t end)
{
    if (end > image->filled) {
        image_make_room(image, end);
        memset(image->bytes + image->filled, 0, end - image->filled);
        image->filled = end;
    }
}

static void image_write(struct image *image, const void *data, uint64_t bytes, uint64_t offset)
{
    const uint64_t end = offset + bytes;
    if (bytes == 0)
        return;
    image_make_room(image, end);
    image_fill(image, offset);
    memcpy(image->bytes + offset, data, bytes);
    image->filled = image->filled > end ? image->filled : end;
    image->size = image->size > end ? image->size : end;
}

static void image_read(const struct image *image, void *buffer, uint64_t bytes, uint64_t offset)
{
    uint64_t rest = offset < image->filled ? image->filled - offset : 0, n = rest < bytes ? rest : bytes;
    if (n)
        memcpy(buffer, image->bytes + offset, n);
    memset((uint8_t *)buffer + n, 0, bytes - n);
}

static void image_copy(struct image *to, const struct image *from)
{
    image_resize(to, 0);
    image_write(to, from->bytes, from->filled, 0);
    to->size = from->size;
}

/* ---- nodes and names --------------------------------------------------------------------------------------------- */

static struct node *node_new(struct fault_fs *f, bool folder)
{
    struct node *node = need(calloc(1, sizeof *node));
    node->folder = folder;
    node->log_end = &node->log;
    node->next = f->nodes;
    f->nodes = node;
    return node;
}

static struct node *lookup(struct name *names, const char *text)
{
    for (; names; names = names->next)
        if (strcmp(names->text, text) == 0)
            return names->node;
    return NULL;
}

static void unbind(struct name **names, const char *text)
{
    for (; *names; names = &(*names)->next)
        if (strcmp((*names)->text, text) == 0) {
            struct name *gone = *names;
            *names = gone->next;
            free(gone->text);
            free(gone);
            return;
        }
}

static void bind_name(struct name **names, const char *text, struct node *node)
{
    unbind(names, text);
    struct name *name = need(malloc(sizeof *name));
    *name = (struct name){*names, node, need(strdup(text))};
    *names = name;
}

static void free_names(struct name **names)
{
    while (*names)
        unbind(names, (*names)->text);
}

/* The folder that holds the last part of a path, and that part; name is "" for the root. NULL: no such folder. */
static struct node *find_parent(struct fault_fs *f, const char *path, char name[256])
{
    struct node *folder = f->root;
    name[0] = '\0';
    for (;;) {
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        if (n == 0)
            return folder;
        if (n > 255 || !folder || !folder->folder)
            return NULL;
        if (!(n == 1 && path[0] == '.')) {
            if (name[0])
                folder = lookup(folder->names, name);
            memcpy(name, path, n);
            name[n] = '\0';
        }
        path += n;
        if (!folder || !folder->folder)
            return NULL;
    }
}

static struct node *find(struct fault_fs *f, const char *path)
{
    char name[256];
    struct node *folder = find_parent(f, path, name);
    return folder && name[0] ? lookup(folder->names, name) : folder;
}

/* Notes a change of names, done to the live state already. */
static void note_move(struct fault_fs *f, struct move move)
{
    struct move *m = need(malloc(sizeof *m));
    *m = move;
    m->next = NULL;
    m->from_name = m->from ? need(strdup(m->from_name)) : NULL;
    m->to_name = m->to ? need(strdup(m->to_name)) : NULL;
    *f->moves_end = m;
    f->moves_end = &m->next;
}

static void free_move(struct move *move)
{
    free(move->from_name);
    free(move->to_name);
    free(move);
}

/* Plays a change of names onto the durable state. One whose node is not where it should leave from is void: the change
 * before it was lost. `known`: it is not lost for sure, so the node is there even so. */
static void settle_move(const struct move *move, bool known)
{
    bool there = !move->from || lookup(move->from->durable_names, move->from_name) == move->node;
    if (there && move->from)
        unbind(&move->from->durable_names, move->from_name);
    if (move->to && (there || known))
        bind_name(&move->to->durable_names, move->to_name, move->node);
}

/* Takes changes of names out of the log: those marked due are settled, the others stay. */
static void settle_due(struct fault_fs *f)
{
    struct move **at = &f->moves;
    while (*at) {
        struct move *move = *at;
        if (!move->due) {
            at = &move->next;
            continue;
        }
        settle_move(move, true);
        *at = move->next;
        free_move(move);
    }
    f->moves_end = at;
}

static void sync_names(struct fault_fs *f, const struct node *folder)
{
    for (struct move *move = f->moves; move; move = move->next) {
        move->due = move->due || move->from == folder || move->to == folder;
        for (struct move *before = f->moves; move->due && before != move; before = before->next)
            before->due = before->due || before->node == move->node;
    }
    settle_due(f);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Counts a call and answers 0, or the error that it must fail with. */
static int begin(struct fault_fs *f, enum fault_call call)
{
    f->counts[__builtin_ctz(call)]++;
    if (f->fail.left == 0 || !(f->fail.calls & call))
        return 0;
    if (--f->fail.left > 0)
        return 0;
    if (f->fail.forever) {
        f->fail.left = 1;
        f->fail.calls = FAULT_ANY;
    }
    return f->fail.code;
}

/* (lock) What a slow disk does not give back yet. */
static void wait_if_held(struct fault_fs *f, enum fault_call call)
{
    f->held++;
    while ((f->hold & call) && f->passes == 0)
        pthread_cond_wait(&f->let_go, &f->lock);
    f->passes -= (f->hold & call) && f->passes > 0;
    f->held--;
}

static int begin_on_file(struct fault_fs *f, const struct fault_file *file, enum fault_call call)
{
    int rc = begin(f, call);
    return rc == 0 && file->generation != f->generation ? QUIRE_EIO : rc;
}

/* Whether a countdown ends now. */
static bool is_turn(uint64_t *left)
{
    return *left > 0 && --*left == 0;
}

static uint64_t used_in(const struct node *folder)
{
    uint64_t bytes = 0;
    for (const struct name *name = folder->names; name; name = name->next)
        bytes += name->node->folder ? used_in(name->node) : name->node->live.size;
    return bytes;
}

static int check_room(const struct fault_fs *f, const struct node *node, uint64_t size)
{
    if (size > FILE_BYTES_MAX)
        return QUIRE_ELIMIT;
    uint64_t more = size > node->live.size ? size - node->live.size : 0, used = more ? used_in(f->root) : 0;
    return used > f->capacity || more > f->capacity - used ? QUIRE_ENOSPACE : 0;
}

static void note_change(struct node *node, const void *data, uint64_t bytes, uint64_t offset)
{
    struct change *change = need(malloc(sizeof *change));
    *change = (struct change){.bytes = bytes, .offset = offset};
    if (data) {
        change->data = need(malloc(bytes));
        memcpy(change->data, data, bytes);
    }
    *node->log_end = change;
    node->log_end = &change->next;
}

/* Ends the log of a file; with `settle` each change reaches the disk. */
static void clear_log(struct node *node, bool settle)
{
    while (node->log) {
        struct change *change = node->log;
        if (settle && change->data)
            image_write(&node->durable, change->data, change->bytes, change->offset);
        else if (settle)
            image_resize(&node->durable, change->offset);
        node->log = change->next;
        free(change->data);
        free(change);
    }
    node->log_end = &node->log;
}

/* ---- the table: files -------------------------------------------------------------------------------------------- */

static int open_node(struct fault_fs *f, const char *path, unsigned flags, struct node **out)
{
    char name[256];
    struct node *folder = find_parent(f, path, name), *node = folder && name[0] ? lookup(folder->names, name) : folder;
    if (!folder)
        return QUIRE_ENOFILE;
    if (node && (flags & FS_CREATE) && (flags & FS_EXCLUSIVE))
        return QUIRE_EEXISTS;
    if (node && node->folder)
        return QUIRE_EFORMAT;
    if (!node && !(flags & FS_CREATE))
        return QUIRE_ENOFILE;
    if (!node) {
        node = node_new(f, false);
        bind_name(&folder->names, name, node);
        note_move(f, (struct move){.node = node, .to = folder, .to_name = name});
    }
    *out = node;
    return 0;
}

static int fault_open(struct io_fs *fs, const char *path, unsigned flags, struct io_file **out, struct quire_error *err)
{
    struct fault_fs *f = fault_of(fs);
    struct node *node = NULL;
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, FAULT_OPEN);
    if (rc == 0)
        rc = open_node(f, path, flags, &node);
    if (rc == 0) {
        struct fault_file *file = need(calloc(1, sizeof *file));
        file->base = (struct io_file){
            .fs = fs, .fd = -1, .direct = flags & FS_DIRECT, .bytes = node->live.size, .path = need(strdup(path))};
        file->node = node;
        file->generation = f->generation;
        file->writable = flags & FS_WRITE;
        *out = &file->base;
    }
    pthread_mutex_unlock(&f->lock);
    return rc < 0 ? error_set(err, rc, "cannot open %s: %s", path, quire_error_text(rc)) : 0;
}

static void fault_close(struct io_file *file)
{
    free(file->path);
    free(file_of(file));
}

static bool is_aligned(const struct io_file *file, const void *buffer, size_t bytes, uint64_t offset)
{
    return !file->direct || ((uintptr_t)buffer % 4096 == 0 && bytes % 4096 == 0 && offset % 4096 == 0);
}

static ssize_t fault_read(struct io_file *file, void *buffer, size_t bytes, uint64_t offset)
{
    struct fault_fs *f = fault_of(file->fs);
    const struct image *image = &file_of(file)->node->live;
    pthread_mutex_lock(&f->lock);
    ssize_t n = begin_on_file(f, file_of(file), FAULT_READ);
    if (n == 0 && !is_aligned(file, buffer, bytes, offset))
        n = QUIRE_EINVALID;
    if (n == 0 && offset < image->size) {
        uint64_t rest = image->size - offset;
        n = (ssize_t)(rest < bytes ? rest : bytes);
        if (is_turn(&f->short_left))
            n /= 2;
        image_read(image, buffer, (uint64_t)n, offset);
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

static int write_node(struct fault_fs *f, struct node *node, const void *data, size_t bytes, uint64_t offset)
{
    if (is_turn(&f->misdirect_left))
        offset = f->misdirect_shift < 0 && offset < (uint64_t)-f->misdirect_shift
                     ? 0
                     : offset + (uint64_t)f->misdirect_shift;
    int rc = offset > FILE_BYTES_MAX ? QUIRE_ELIMIT : check_room(f, node, offset + bytes);
    if (rc == 0 && bytes > 0) {
        image_write(&node->live, data, bytes, offset);
        note_change(node, data, bytes, offset);
    }
    return rc;
}

static ssize_t fault_write(struct io_file *file, const void *buffer, size_t bytes, uint64_t offset)
{
    struct fault_fs *f = fault_of(file->fs);
    struct fault_file *own = file_of(file);
    pthread_mutex_lock(&f->lock);
    int rc = begin_on_file(f, own, FAULT_WRITE);
    if (rc < 0 && own->generation == f->generation && own->writable)
        write_node(f, own->node, buffer, bytes / 2 / SECTOR * SECTOR, offset);
    if (rc == 0 && !own->writable)
        rc = QUIRE_EPERM;
    if (rc == 0 && !is_aligned(file, buffer, bytes, offset))
        rc = QUIRE_EINVALID;
    if (rc == 0)
        rc = write_node(f, own->node, buffer, bytes, offset);
    wait_if_held(f, FAULT_WRITE);
    pthread_mutex_unlock(&f->lock);
    return rc < 0 ? rc : (ssize_t)bytes;
}

static int fault_sync(struct io_file *file)
{
    struct fault_fs *f = fault_of(file->fs);
    pthread_mutex_lock(&f->lock);
    int rc = begin_on_file(f, file_of(file), FAULT_SYNC);
    if (rc == 0)
        clear_log(file_of(file)->node, true);
    wait_if_held(f, FAULT_SYNC);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int resize(struct io_file *file, enum fault_call call, uint64_t bytes)
{
    struct fault_fs *f = fault_of(file->fs);
    struct node *node = file_of(file)->node;
    pthread_mutex_lock(&f->lock);
    int rc = begin_on_file(f, file_of(file), call);
    if (rc == 0 && !file_of(file)->writable)
        rc = QUIRE_EPERM;
    if (rc == 0)
        rc = check_room(f, node, bytes);
    if (rc == 0 && (call == FAULT_TRUNCATE || bytes > node->live.size)) {
        image_resize(&node->live, bytes);
        note_change(node, NULL, 0, bytes);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fault_allocate(struct io_file *file, uint64_t bytes)
{
    return resize(file, FAULT_ALLOCATE, bytes);
}

static int fault_truncate(struct io_file *file, uint64_t bytes)
{
    return resize(file, FAULT_TRUNCATE, bytes);
}

/* ---- the table: names -------------------------------------------------------------------------------------------- */

static int rename_locked(struct fault_fs *f, const char *from, const char *to)
{
    char from_name[256], to_name[256];
    struct node *source = find_parent(f, from, from_name), *target = find_parent(f, to, to_name);
    struct node *node = source && from_name[0] ? lookup(source->names, from_name) : NULL;
    if (!node || !target)
        return QUIRE_ENOFILE;
    struct node *there = to_name[0] ? lookup(target->names, to_name) : target;
    if (there == node)
        return 0;
    if (there && there->folder && (!node->folder || there->names || !to_name[0]))
        return QUIRE_EEXISTS;
    unbind(&source->names, from_name);
    bind_name(&target->names, to_name, node);
    note_move(f, (struct move){.node = node, .from = source, .from_name = from_name, .to = target, .to_name = to_name});
    return 0;
}

static int fault_rename(struct io_fs *fs, const char *from, const char *to)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, FAULT_RENAME);
    if (rc == 0)
        rc = rename_locked(f, from, to);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int link_locked(struct fault_fs *f, const char *from, const char *to)
{
    char name[256];
    struct node *node = find(f, from), *folder = find_parent(f, to, name);
    if (!node || !folder)
        return QUIRE_ENOFILE;
    if (node->folder)
        return QUIRE_EPERM;
    if (!name[0] || lookup(folder->names, name))
        return QUIRE_EEXISTS;
    bind_name(&folder->names, name, node);
    note_move(f, (struct move){.node = node, .to = folder, .to_name = name});
    return 0;
}

static int fault_link(struct io_fs *fs, const char *from, const char *to)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, FAULT_LINK);
    if (rc == 0)
        rc = link_locked(f, from, to);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fault_remove(struct io_fs *fs, enum fault_call call, const char *path)
{
    struct fault_fs *f = fault_of(fs);
    char name[256];
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, call);
    struct node *folder = find_parent(f, path, name);
    struct node *node = folder && name[0] ? lookup(folder->names, name) : NULL;
    if (rc == 0 && (!node || (call == FAULT_RMDIR && !node->folder)))
        rc = QUIRE_ENOFILE;
    if (rc == 0 && call == FAULT_UNLINK && node->folder)
        rc = QUIRE_EINVALID;
    if (rc == 0 && node->names)
        rc = QUIRE_EEXISTS;
    if (rc == 0) {
        unbind(&folder->names, name);
        note_move(f, (struct move){.node = node, .from = folder, .from_name = name});
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fault_unlink(struct io_fs *fs, const char *path)
{
    return fault_remove(fs, FAULT_UNLINK, path);
}

static int fault_rmdir(struct io_fs *fs, const char *path)
{
    return fault_remove(fs, FAULT_RMDIR, path);
}

static int fault_mkdir(struct io_fs *fs, const char *path)
{
    struct fault_fs *f = fault_of(fs);
    char name[256];
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, FAULT_MKDIR);
    struct node *folder = find_parent(f, path, name);
    if (rc == 0 && !folder)
        rc = QUIRE_ENOFILE;
    if (rc == 0 && (!name[0] || lookup(folder->names, name)))
        rc = QUIRE_EEXISTS;
    if (rc == 0) {
        struct node *node = node_new(f, true);
        bind_name(&folder->names, name, node);
        note_move(f, (struct move){.node = node, .to = folder, .to_name = name});
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fault_sync_dir(struct io_fs *fs, const char *path)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, FAULT_SYNC_DIR);
    struct node *folder = find(f, path);
    if (rc == 0 && (!folder || !folder->folder))
        rc = QUIRE_ENOFILE;
    if (rc == 0)
        sync_names(f, folder);
    wait_if_held(f, FAULT_SYNC_DIR);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* The names are copied first: `visit` may call the fs. */
static int fault_list(struct io_fs *fs, const char *path, int (*visit)(void *context, const char *name), void *context)
{
    struct fault_fs *f = fault_of(fs);
    struct name *copy = NULL;
    pthread_mutex_lock(&f->lock);
    int rc = begin(f, FAULT_LIST);
    struct node *folder = find(f, path);
    if (rc == 0 && (!folder || !folder->folder))
        rc = QUIRE_ENOFILE;
    for (struct name *name = rc == 0 ? folder->names : NULL; name; name = name->next)
        bind_name(&copy, name->text, name->node);
    pthread_mutex_unlock(&f->lock);
    for (struct name *name = copy; name && rc == 0; name = name->next)
        rc = visit(context, name->text);
    free_names(&copy);
    return rc;
}

static const struct io_fs_ops fault_ops = {.open = fault_open,
                                           .close = fault_close,
                                           .read = fault_read,
                                           .write = fault_write,
                                           .sync = fault_sync,
                                           .allocate = fault_allocate,
                                           .truncate = fault_truncate,
                                           .rename = fault_rename,
                                           .link = fault_link,
                                           .unlink = fault_unlink,
                                           .mkdir = fault_mkdir,
                                           .rmdir = fault_rmdir,
                                           .sync_dir = fault_sync_dir,
                                           .list = fault_list};

/* ---- creation and faults by hand --------------------------------------------------------------------------------- */

struct io_fs *fault_fs_create(void)
{
    struct fault_fs *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->base.ops = &fault_ops;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->let_go, NULL);
    f->root = node_new(f, true);
    f->moves_end = &f->moves;
    f->capacity = UINT64_MAX;
    return &f->base;
}

static void clear_moves(struct fault_fs *f)
{
    while (f->moves) {
        struct move *move = f->moves;
        f->moves = move->next;
        free_move(move);
    }
    f->moves_end = &f->moves;
}

void fault_fs_destroy(struct io_fs *fs)
{
    if (!fs)
        return;
    struct fault_fs *f = fault_of(fs);
    clear_moves(f);
    while (f->nodes) {
        struct node *node = f->nodes;
        f->nodes = node->next;
        clear_log(node, false);
        free_names(&node->names);
        free_names(&node->durable_names);
        free(node->live.bytes);
        free(node->durable.bytes);
        free(node);
    }
    pthread_cond_destroy(&f->let_go);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

uint64_t fault_calls(struct io_fs *fs, unsigned calls)
{
    struct fault_fs *f = fault_of(fs);
    uint64_t n = 0;
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < sizeof f->counts / sizeof *f->counts; i++)
        n += calls >> i & 1 ? f->counts[i] : 0;
    pthread_mutex_unlock(&f->lock);
    return n;
}

void fault_fail_nth(struct io_fs *fs, unsigned calls, uint64_t n, int code, bool forever)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    f->fail = (struct plan){calls, n, code, forever};
    memset(f->counts, 0, sizeof f->counts);
    pthread_mutex_unlock(&f->lock);
}

void fault_misdirect_nth(struct io_fs *fs, uint64_t n, int64_t shift)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    f->misdirect_left = n;
    f->misdirect_shift = shift;
    pthread_mutex_unlock(&f->lock);
}

void fault_short_read_nth(struct io_fs *fs, uint64_t n)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    f->short_left = n;
    pthread_mutex_unlock(&f->lock);
}

void fault_capacity(struct io_fs *fs, uint64_t bytes)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    f->capacity = bytes;
    pthread_mutex_unlock(&f->lock);
}

void fault_hold(struct io_fs *fs, unsigned calls)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    f->hold = calls;
    f->passes = 0;
    pthread_cond_broadcast(&f->let_go);
    pthread_mutex_unlock(&f->lock);
}

void fault_let_go(struct io_fs *fs, unsigned n)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    f->passes += n;
    pthread_cond_broadcast(&f->let_go);
    pthread_mutex_unlock(&f->lock);
}

unsigned fault_held(struct io_fs *fs)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    unsigned n = f->held;
    pthread_mutex_unlock(&f->lock);
    return n;
}

int fault_flip_bit(struct io_fs *fs, const char *path, uint64_t bit)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    struct node *node = find(f, path);
    int rc = !node || node->folder ? QUIRE_ENOFILE : bit / 8 >= node->live.size ? QUIRE_ERANGE : 0;
    if (rc == 0) {
        /* through the log, so that the disk has the flipped byte and not an earlier one */
        clear_log(node, true);
        image_fill(&node->live, bit / 8 + 1);
        image_fill(&node->durable, bit / 8 + 1);
        node->live.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        node->durable.bytes[bit / 8] = node->live.bytes[bit / 8];
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* ---- the power cut ----------------------------------------------------------------------------------------------- */

struct dice {
    struct random random;
    bool none, all;
};

static bool survives(struct dice *dice)
{
    return dice->all || (!dice->none && random_below(&dice->random, 2) == 0);
}

/* One of three: a write is there, or it is not, or some of its sectors are. */
static void cut_write(struct dice *dice, struct node *node, const struct change *change)
{
    bool torn = !dice->all && !dice->none && random_below(&dice->random, 3) == 0, whole = survives(dice);
    for (uint64_t at = 0; at < change->bytes;) {
        uint64_t end = (change->offset + at) / SECTOR * SECTOR + SECTOR - change->offset;
        end = end < change->bytes ? end : change->bytes;
        if (torn ? survives(dice) : whole)
            image_write(&node->durable, change->data + at, end - at, change->offset + at);
        at = end;
    }
}

static void cut_file(struct dice *dice, struct node *node)
{
    for (const struct change *change = node->log; change; change = change->next)
        if (change->data)
            cut_write(dice, node, change);
        else if (survives(dice))
            image_resize(&node->durable, change->offset);
    clear_log(node, false);
    image_copy(&node->live, &node->durable);
}

static void cut_folder(struct node *node)
{
    free_names(&node->names);
    for (const struct name *name = node->durable_names; name; name = name->next)
        bind_name(&node->names, name->text, name->node);
}

void fault_power_cut(struct io_fs *fs, uint64_t seed)
{
    struct fault_fs *f = fault_of(fs);
    struct dice dice = {.none = seed == 0, .all = seed == UINT64_MAX};
    random_init(&dice.random, seed);
    pthread_mutex_lock(&f->lock);
    for (const struct move *move = f->moves; move; move = move->next)
        if (survives(&dice))
            settle_move(move, false);
    clear_moves(f);
    for (struct node *node = f->nodes; node; node = node->next)
        if (node->folder)
            cut_folder(node);
        else
            cut_file(&dice, node);
    f->generation++;
    f->fail = (struct plan){0};
    f->misdirect_left = f->short_left = 0;
    pthread_mutex_unlock(&f->lock);
}

/* ---- a look at all files ----------------------------------------------------------------------------------------- */

static int each_in(const struct node *folder, const char *path,
                   int (*visit)(void *context, const char *path, const uint8_t *data, uint64_t bytes), void *context)
{
    int rc = 0;
    for (const struct name *name = folder->names; name && rc == 0; name = name->next) {
        char *below = NULL;
        need(asprintf(&below, "%s/%s", path, name->text) < 0 ? NULL : below);
        if (name->node->folder)
            rc = each_in(name->node, below, visit, context);
        else {
            image_fill(&name->node->live, name->node->live.size);
            rc = visit(context, below, name->node->live.bytes, name->node->live.size);
        }
        free(below);
    }
    return rc;
}

int fault_each_file(struct io_fs *fs,
                    int (*visit)(void *context, const char *path, const uint8_t *data, uint64_t bytes), void *context)
{
    struct fault_fs *f = fault_of(fs);
    pthread_mutex_lock(&f->lock);
    int rc = each_in(f->root, "", visit, context);
    pthread_mutex_unlock(&f->lock);
    return rc;
}
