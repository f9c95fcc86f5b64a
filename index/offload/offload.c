/*
 * offload.c - finding a plug-in, choosing a device, and what happens when it fails.
 *
 * Plug-ins are shared objects beside the program or the library, or in the folder quire of the libraries' folder
 * (QUIRE_LIBDIR, from the build), or where QUIRE_PLUGIN_DIR says; nothing is searched for before a device is asked for.
 * A plug-in stays loaded for the rest of the process, as drivers do not bear to be unloaded.
 *
 * A device that answers with anything but "not enough memory" or "cannot do that" is lost: whatever it says later
 * cannot be relied on, so it is not asked again. There is one line about it, in its status, and callers go on without.
 *
 * Calls are serialised by a lock: a device does one thing at a time anyway, and plug-ins need no locks of their own.
 */
#include "index/offload/offload.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64u
#define PLUGIN      "libquire-opencl.so"

struct offload {
    const struct offload_backend *backend;
    void *context;
    pthread_mutex_t lock;
    struct offload_status status;
};

struct offload_block {
    void *block; /* the backend's */
    struct offload_shape shape;
};

/* ---- plug-ins ---------------------------------------------------------------------------------------------------- */

/* The folder of this very code: a program's, or that of libquire.so. */
static bool own_folder(char *out, size_t bytes)
{
    Dl_info info;
    const void *here = (const void *)PLUGIN; /* lies in the object whose folder is wanted */
    if (!dladdr(here, &info) || !info.dli_fname)
        return false;
    char *path = realpath(info.dli_fname, NULL);
    if (!path) /* the program's name was relative, and its folder is another now */
        path = realpath("/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        snprintf(out, bytes, "%.*s", (int)(slash - path), path);
    free(path);
    return slash != NULL;
}

static void *open_plugin(void)
{
    char folder[3072], path[4096];
    const char *chosen = getenv("QUIRE_PLUGIN_DIR");
    static const char *const below[] = {"", "/../" QUIRE_LIBDIR "/quire", "/quire"};
    void *found = NULL;
    if (chosen && *chosen) {
        snprintf(path, sizeof path, "%s/" PLUGIN, chosen);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!own_folder(folder, sizeof folder))
        return NULL;
    for (size_t i = 0; !found && i < sizeof below / sizeof *below; i++) {
        snprintf(path, sizeof path, "%s%s/" PLUGIN, folder, below[i]);
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
}

static int load_backend(const struct offload_backend **out, struct quire_error *err)
{
    offload_backend_get *get = NULL;
    void *plugin = open_plugin();
    if (!plugin)
        return error_set(err, QUIRE_EUNSUPPORTED, "the plug-in " PLUGIN " is not installed or cannot be loaded");
    void *address = dlsym(plugin, "quire_offload_backend");
    memcpy(&get, &address, sizeof address); /* ISO C has no cast from object to function pointers */
    const struct offload_backend *backend = get ? get() : NULL;
    if (!backend || backend->abi != OFFLOAD_BACKEND_ABI)
        return error_set(err, QUIRE_EVERSION, PLUGIN " is of another version of Quire");
    *out = backend;
    return 0;
}

int offload_list(struct offload_device *out, uint32_t max, uint32_t *n, struct quire_error *err)
{
    const struct offload_backend *backend = NULL;
    int rc = load_backend(&backend, err);
    return rc == 0 ? backend->list(out, max, n, err) : rc;
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

static bool contains(const char *text, const char *part)
{
    for (; *text; text++) {
        size_t i = 0;
        while (part[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (!part[i])
            return true;
    }
    return false;
}

static int choose(const char *wanted, const struct offload_device *devices, uint32_t n, uint32_t *chosen,
                  struct quire_error *err)
{
    bool is_auto = strcmp(wanted, "auto") == 0;
    for (uint32_t i = 0; i < n; i++)
        if (is_auto ? !devices[i].is_processor : contains(devices[i].name, wanted)) {
            *chosen = i;
            return 0;
        }
    if (is_auto)
        return error_set(err, QUIRE_EUNSUPPORTED, "the only device is the processor itself (%s)", devices[0].name);
    return error_set(err, QUIRE_EUNSUPPORTED, "no device has \"%.64s\" in its name; the first of %u is %s", wanted, n,
                     devices[0].name);
}

static int open_wanted(struct offload *offload, const char *wanted, struct quire_error *err)
{
    struct offload_device *devices = calloc(DEVICES_MAX, sizeof *devices);
    uint32_t n = 0, chosen = 0;
    int rc = devices ? load_backend(&offload->backend, err) : error_set(err, QUIRE_ENOMEM, "no memory for devices");
    if (rc == 0)
        rc = offload->backend->list(devices, DEVICES_MAX, &n, err);
    if (rc == 0)
        rc = choose(wanted, devices, n, &chosen, err);
    if (rc == 0)
        rc = offload->backend->open(chosen, &offload->context, err);
    if (rc == 0)
        offload->status.device = devices[chosen];
    free(devices);
    return rc;
}

struct offload *offload_open(const char *wanted, char *note, size_t note_bytes)
{
    struct quire_error err = {0};
    snprintf(note, note_bytes, "%s", "");
    if (!wanted || strcmp(wanted, "off") == 0)
        return NULL;
    struct offload *offload = calloc(1, sizeof *offload);
    int rc = offload ? open_wanted(offload, wanted, &err) : error_set(&err, QUIRE_ENOMEM, "no memory for a device");
    if (rc == 0) {
        pthread_mutex_init(&offload->lock, NULL);
        return offload;
    }
    snprintf(note, note_bytes, "the processor does the work: %s", err.message);
    free(offload);
    return NULL;
}

void offload_close(struct offload *offload)
{
    if (!offload)
        return;
    offload->backend->close(offload->context);
    pthread_mutex_destroy(&offload->lock);
    free(offload);
}

void offload_get_status(struct offload *offload, struct offload_status *out)
{
    pthread_mutex_lock(&offload->lock);
    *out = offload->status;
    offload->backend->describe(offload->context, out->way, sizeof out->way);
    pthread_mutex_unlock(&offload->lock);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* What a call was given and gives back, for the status. */
struct account {
    uint64_t sent, received, products, begin_ns;
};

static int begin_call(struct offload *offload, struct account *account, struct quire_error *err)
{
    pthread_mutex_lock(&offload->lock);
    account->begin_ns = clock_ns();
    if (!offload->status.is_lost)
        return 0;
    return error_set(err, QUIRE_EIO, "the device %s was lost: %.200s", offload->status.device.name,
                     offload->status.note);
}

static int end_call(struct offload *offload, const struct account *account, int rc, const struct quire_error *failure,
                    struct quire_error *err)
{
    struct offload_status *status = &offload->status;
    assert(lock_is_held(&offload->lock));
    status->seconds += (double)(clock_ns() - account->begin_ns) / 1e9;
    if (rc == 0) {
        status->calls++;
        status->bytes_sent += account->sent;
        status->bytes_received += account->received;
        status->products += account->products;
    } else if (!status->is_lost && failure->code != 0) {
        snprintf(status->note, sizeof status->note, "%s", failure->message);
        status->is_lost = rc != QUIRE_ENOMEM && rc != QUIRE_EUNSUPPORTED;
        if (err)
            *err = *failure;
    }
    pthread_mutex_unlock(&offload->lock);
    return rc;
}

int offload_reserve(struct offload *offload, const struct offload_shape *shape, struct offload_block **out,
                    struct quire_error *err)
{
    struct quire_error failure = {0};
    struct account account = {0};
    struct offload_block *block = malloc(sizeof *block);
    assert(shape->n > 0 && shape->dim > 0 && (!offload_is_code(shape->element) || shape->dim % 32 == 0));
    if (!block)
        return error_set(err, QUIRE_ENOMEM, "no memory for a block of rows");
    *block = (struct offload_block){.shape = *shape};
    int rc = begin_call(offload, &account, err);
    if (rc == 0)
        rc = offload->backend->reserve(offload->context, shape, &block->block, &failure);
    rc = end_call(offload, &account, rc, &failure, err);
    if (rc == 0)
        *out = block;
    else
        free(block);
    return rc;
}

int offload_put(struct offload *offload, struct offload_block *block, const struct offload_piece *piece,
                struct quire_error *err)
{
    const struct offload_shape *shape = &block->shape;
    struct quire_error failure = {0};
    struct account account = {0};
    assert(piece->n > 0 && piece->first < shape->n && piece->n <= shape->n - piece->first);
    assert(piece->data && !piece->factors == !shape->has_factors);
    account.sent = piece->n * (offload_bytes(shape->element, shape->dim) + offload_factors(shape) * sizeof(float));
    int rc = begin_call(offload, &account, err);
    if (rc == 0)
        rc = offload->backend->put(offload->context, block->block, piece, &failure);
    return end_call(offload, &account, rc, &failure, err);
}

int offload_load(struct offload *offload, const struct offload_rows *rows, struct offload_block **out,
                 struct quire_error *err)
{
    const struct offload_shape shape = {rows->element, rows->n, rows->dim, rows->factors != NULL};
    const struct offload_piece all = {0, rows->n, rows->data, rows->factors};
    struct offload_block *block = NULL;
    int rc = offload_reserve(offload, &shape, &block, err);
    if (rc < 0)
        return rc;
    assert(block);
    rc = offload_put(offload, block, &all, err);
    if (rc == 0)
        *out = block;
    else
        offload_unload(offload, block);
    return rc;
}

void offload_unload(struct offload *offload, struct offload_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&offload->lock);
    offload->backend->unload(offload->context, block->block);
    pthread_mutex_unlock(&offload->lock);
    free(block);
}

uint32_t offload_nearest_max(struct offload *offload)
{
    return offload->backend->nearest_max(offload->context);
}

int offload_nearest(struct offload *offload, struct offload_block *block, const struct offload_nearest *request,
                    struct quire_error *err)
{
    struct quire_error failure = {0};
    struct account account = {.products = (uint64_t)request->n_queries * block->shape.n * block->shape.dim};
    bool is_code = offload_is_code(block->shape.element);
    bool is_whole = block->shape.element == OFFLOAD_U8 || block->shape.element == OFFLOAD_I8 || is_code;
    assert(request->n_queries > 0 && is_code == (request->measure == OFFLOAD_LEAST) && is_code == !!request->coded);
    assert(!is_code || block->shape.has_factors);
    if (request->k < 1 || request->k > block->shape.n || request->k > offload_nearest_max(offload))
        return error_set(err, QUIRE_ERANGE, "%u nearest of %u rows on a device; expected 1 to %u", request->k,
                         block->shape.n, offload_nearest_max(offload));
    account.sent = (uint64_t)request->n_queries * block->shape.dim * (is_whole ? 1 : sizeof(float));
    account.received = (uint64_t)request->n_queries * request->k * sizeof(uint64_t);
    int rc = begin_call(offload, &account, err);
    if (rc == 0)
        rc = offload->backend->nearest(offload->context, block->block, request, &failure);
    return end_call(offload, &account, rc, &failure, err);
}

int offload_dots(struct offload *offload, struct offload_block *block, const struct offload_dots *request,
                 struct quire_error *err)
{
    struct quire_error failure = {0};
    struct account account = {.products = (uint64_t)request->n_out * block->shape.dim};
    assert(block->shape.element == OFFLOAD_CODE8 && !block->shape.has_factors && request->n_queries > 0 &&
           request->n_runs > 0 && request->n_out > 0);
    account.sent = (uint64_t)request->n_queries * block->shape.dim + request->n_runs * sizeof *request->runs +
                   (request->ids ? request->n_ids * sizeof *request->ids : 0);
    account.received = request->n_out * sizeof *request->out;
    int rc = begin_call(offload, &account, err);
    if (rc == 0)
        rc = offload->backend->dots(offload->context, block->block, request, &failure);
    return end_call(offload, &account, rc, &failure, err);
}
