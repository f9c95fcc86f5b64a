/*
 * opencl_backend.c - devices, blocks and transfers: what the plug-in exports.
 *
 * Every platform's devices are listed, graphics cards first. A processor is listed too (pocl is one), and said to be
 * one: it serves tests, and whoever names it.
 *
 * One queue per context, in order, and every call waits for its results: the engine calls one at a time. Transfers
 * wait, too: a device that fails may not say any more when it has done with memory that is to be freed.
 */
#include "index/offload/opencl/opencl_priv.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLATFORMS_MAX 16u
#define DEVICES_MAX   64u
#define STAGE_BYTES   ((size_t)4 << 20)

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* All devices of a kind from place n on; returns how many there are then. */
static uint32_t gather(const struct opencl_calls *calls, const cl_platform_id *platforms, cl_uint n_platforms,
                       bool processors, cl_device_id *out, uint32_t n)
{
    cl_device_type type = processors ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR;
    for (cl_uint i = 0; i < n_platforms && n < DEVICES_MAX; i++) {
        cl_uint found = 0;
        if (calls->clGetDeviceIDs(platforms[i], type, DEVICES_MAX - n, out + n, &found) == CL_SUCCESS)
            n += found < DEVICES_MAX - n ? found : DEVICES_MAX - n;
    }
    return n;
}

static int find_devices(const struct opencl_calls *calls, cl_device_id *out, uint32_t *n, uint32_t *n_cards,
                        struct quire_error *err)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint n_platforms = 0;
    cl_int status = calls->clGetPlatformIDs(PLATFORMS_MAX, platforms, &n_platforms);
    if (status != CL_SUCCESS || n_platforms == 0) /* -1001 is the ICD loader's word for no driver */
        return opencl_error(err, __func__, QUIRE_EUNSUPPORTED,
                            "the OpenCL loader is here and no driver for a device (OpenCL error %d)", (int)status);
    n_platforms = n_platforms < PLATFORMS_MAX ? n_platforms : PLATFORMS_MAX;
    *n_cards = gather(calls, platforms, n_platforms, false, out, 0);
    *n = gather(calls, platforms, n_platforms, true, out, *n_cards);
    if (*n == 0)
        return opencl_error(err, __func__, QUIRE_EUNSUPPORTED, "OpenCL has drivers here and no device");
    return 0;
}

/* What a driver says ends up in lines of a log. */
static void make_line(char *text)
{
    for (; *text; text++)
        *text = *text < ' ' && *text >= 0 ? ' ' : *text;
}

static void describe(const struct opencl_calls *calls, cl_device_id id, struct offload_device *out)
{
    cl_ulong memory = 0, buffer = 0;
    cl_uint units = 0;
    snprintf(out->backend, sizeof out->backend, "opencl");
    calls->clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof out->name - 1, out->name, NULL);
    calls->clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof out->driver - 1, out->driver, NULL);
    calls->clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
    calls->clGetDeviceInfo(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof buffer, &buffer, NULL);
    calls->clGetDeviceInfo(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    make_line(out->name);
    make_line(out->driver);
    out->memory_bytes = memory;
    out->buffer_bytes = buffer;
    out->units = units;
}

static int list(struct offload_device *out, uint32_t max, uint32_t *n, struct quire_error *err)
{
    const struct opencl_calls *calls;
    cl_device_id ids[DEVICES_MAX];
    uint32_t found = 0, cards = 0;
    int rc = opencl_load(&calls, err);
    if (rc == 0)
        rc = find_devices(calls, ids, &found, &cards, err);
    if (rc < 0)
        return rc;
    *n = found < max ? found : max;
    for (uint32_t i = 0; i < *n; i++) {
        out[i] = (struct offload_device){.is_processor = i >= cards};
        describe(calls, ids[i], &out[i]);
    }
    return 0;
}

static void close_context(void *context)
{
    struct opencl *cl = context;
    opencl_program_fini(cl);
    if (cl->queue)
        cl->calls->clReleaseCommandQueue(cl->queue);
    if (cl->context)
        cl->calls->clReleaseContext(cl->context);
    free(cl);
}

static int open_device(uint32_t device, void **context, struct quire_error *err)
{
    cl_device_id ids[DEVICES_MAX];
    uint32_t found = 0, cards = 0;
    cl_int status = CL_SUCCESS;
    struct opencl *cl = calloc(1, sizeof *cl);
    if (!cl)
        return opencl_error(err, __func__, QUIRE_ENOMEM, "no memory for a device");
    int rc = opencl_load(&cl->calls, err);
    if (rc == 0)
        rc = find_devices(cl->calls, ids, &found, &cards, err);
    if (rc == 0 && device >= found)
        rc = opencl_error(err, __func__, QUIRE_EUNSUPPORTED, "device %u is not there any more", device);
    if (rc == 0) {
        cl->device = ids[device];
        cl->context = cl->calls->clCreateContext(NULL, 1, &cl->device, NULL, NULL, &status);
        if (!cl->context)
            rc = opencl_failed(err, __func__, status, "clCreateContext");
    }
    if (rc == 0) {
        cl->queue = cl->calls->clCreateCommandQueue(cl->context, cl->device, 0, &status);
        if (!cl->queue)
            rc = opencl_failed(err, __func__, status, "clCreateCommandQueue");
    }
    if (rc == 0) {
        opencl_shape_choose(cl);
        *context = cl;
    } else {
        close_context(cl);
    }
    return rc;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

int opencl_buffer(struct opencl *cl, cl_mem_flags flags, size_t bytes, const void *host, cl_mem *out,
                  struct quire_error *err)
{
    cl_int status;
    if (bytes > cl->buffer_bytes)
        return opencl_error(err, __func__, QUIRE_ENOMEM,
                            "the device has not the memory for a buffer of %zu bytes, %llu at most", bytes,
                            (unsigned long long)cl->buffer_bytes);
    if (host)
        flags |= CL_MEM_COPY_HOST_PTR;
    union {
        const void *from;
        void *to;
    } pointer = {host}; /* the call only reads with this flag, its prototype does not say so */
    cl_mem made = cl->calls->clCreateBuffer(cl->context, flags, bytes ? bytes : 1, pointer.to, &status);
    if (!made)
        return opencl_failed(err, __func__, status, "clCreateBuffer");
    *out = made;
    return 0;
}

int opencl_write(struct opencl *cl, cl_mem to, size_t at, size_t bytes, const void *from, struct quire_error *err)
{
    cl_int status = cl->calls->clEnqueueWriteBuffer(cl->queue, to, CL_TRUE, at, bytes, from, 0, NULL, NULL);
    return status == CL_SUCCESS ? 0 : opencl_failed(err, __func__, status, "clEnqueueWriteBuffer");
}

int opencl_read(struct opencl *cl, cl_mem from, size_t bytes, void *to, struct quire_error *err)
{
    cl_int status = cl->calls->clEnqueueReadBuffer(cl->queue, from, CL_TRUE, 0, bytes, to, 0, NULL, NULL);
    return status == CL_SUCCESS ? 0 : opencl_failed(err, __func__, status, "clEnqueueReadBuffer");
}

void opencl_release(struct opencl *cl, cl_mem buffer)
{
    if (buffer)
        cl->calls->clReleaseMemObject(buffer);
}

int opencl_run(struct opencl *cl, cl_kernel kernel, const struct opencl_argument *arguments, cl_uint n,
               const size_t *global, const size_t *local, cl_uint axes, struct quire_error *err)
{
    for (cl_uint i = 0; i < n; i++) {
        cl_int status = cl->calls->clSetKernelArg(kernel, i, arguments[i].bytes, arguments[i].value);
        if (status != CL_SUCCESS)
            return opencl_failed(err, __func__, status, "clSetKernelArg");
    }
    cl_int status = cl->calls->clEnqueueNDRangeKernel(cl->queue, kernel, axes, NULL, global, local, 0, NULL, NULL);
    return status == CL_SUCCESS ? 0 : opencl_failed(err, __func__, status, "clEnqueueNDRangeKernel");
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void unload(void *context, void *block)
{
    struct opencl_block *b = block;
    opencl_release(context, b->data);
    opencl_release(context, b->factors);
    free(b);
}

static int reserve(void *context, const struct offload_shape *shape, void **block, struct quire_error *err)
{
    struct opencl *cl = context;
    struct opencl_block *b = calloc(1, sizeof *b);
    if (!b)
        return opencl_error(err, __func__, QUIRE_ENOMEM, "no memory for a block of rows");
    *b = (struct opencl_block){.shape = *shape, .padded = opencl_padded(shape)};
    size_t row_bytes = offload_bytes(shape->element, b->padded), factors = offload_factors(shape) * sizeof(float);
    int rc =
        opencl_buffer(cl, CL_MEM_READ_ONLY, ((size_t)shape->n + OPENCL_SIDE_MOST) * row_bytes, NULL, &b->data, err);
    if (rc == 0 && factors > 0)
        rc = opencl_buffer(cl, CL_MEM_READ_ONLY, shape->n * factors, NULL, &b->factors, err);
    if (rc == 0)
        *block = b;
    else
        unload(cl, b);
    return rc;
}

/* Rows with gaps of zeros between them go through a stage. */
static int put_padded(struct opencl *cl, const struct opencl_block *b, const struct offload_piece *piece,
                      struct quire_error *err)
{
    const uint8_t *data = piece->data;
    size_t from_bytes = offload_bytes(b->shape.element, b->shape.dim);
    size_t to_bytes = offload_bytes(b->shape.element, b->padded);
    size_t rows = STAGE_BYTES / to_bytes + 1;
    rows = rows < piece->n ? rows : piece->n;
    uint8_t *stage = calloc(rows, to_bytes);
    int rc = stage ? 0 : opencl_error(err, __func__, QUIRE_ENOMEM, "no memory for rows on their way to a device");
    for (size_t at = 0; rc == 0 && at < piece->n; at += rows) {
        size_t n = piece->n - at < rows ? piece->n - at : rows;
        for (size_t i = 0; i < n; i++)
            memcpy(stage + i * to_bytes, data + (at + i) * from_bytes, from_bytes);
        rc = opencl_write(cl, b->data, (piece->first + at) * to_bytes, n * to_bytes, stage, err);
    }
    free(stage);
    return rc;
}

static int put(void *context, void *block, const struct offload_piece *piece, struct quire_error *err)
{
    struct opencl *cl = context;
    const struct opencl_block *b = block;
    size_t row_bytes = offload_bytes(b->shape.element, b->padded);
    size_t factors = offload_factors(&b->shape) * sizeof(float);
    assert(piece->n > 0 && piece->first < b->shape.n && piece->n <= b->shape.n - piece->first);
    int rc = b->padded == b->shape.dim
                 ? opencl_write(cl, b->data, piece->first * row_bytes, piece->n * row_bytes, piece->data, err)
                 : put_padded(cl, b, piece, err);
    if (rc == 0 && b->factors)
        rc = opencl_write(cl, b->factors, piece->first * factors, piece->n * factors, piece->factors, err);
    return rc;
}

int opencl_dots(void *context, void *block, const struct offload_dots *request, struct quire_error *err)
{
    struct opencl *cl = context;
    const struct opencl_block *b = block;
    const struct opencl_program *program;
    cl_mem queries = NULL, runs = NULL, ids = NULL, out = NULL;
    const cl_uint has_ids = request->ids != NULL;
    int rc = opencl_program_dots(cl, &program, err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_READ_ONLY, (size_t)request->n_queries * b->shape.dim, request->queries, &queries,
                           err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_READ_ONLY, request->n_runs * sizeof *request->runs, request->runs, &runs, err);
    if (rc == 0 && has_ids)
        rc = opencl_buffer(cl, CL_MEM_READ_ONLY, request->n_ids * sizeof *request->ids, request->ids, &ids, err);
    if (rc == 0)
        rc = opencl_buffer(cl, CL_MEM_WRITE_ONLY, request->n_out * sizeof *request->out, NULL, &out, err);
    if (rc == 0) {
        const struct opencl_argument arguments[] = {
            OPENCL_ARGUMENT(b->data), OPENCL_ARGUMENT(queries),      OPENCL_ARGUMENT(runs), OPENCL_ARGUMENT(ids),
            OPENCL_ARGUMENT(has_ids), OPENCL_ARGUMENT(b->shape.dim), OPENCL_ARGUMENT(out)};
        size_t local = program->group, global = request->n_runs * local;
        rc = opencl_run(cl, program->kernel, arguments, sizeof arguments / sizeof *arguments, &global, &local, 1, err);
    }
    if (rc == 0)
        rc = opencl_read(cl, out, request->n_out * sizeof *request->out, request->out, err);
    opencl_release(cl, queries);
    opencl_release(cl, runs);
    opencl_release(cl, ids);
    opencl_release(cl, out);
    return rc;
}

/* ---- the plug-in ------------------------------------------------------------------------------------------------- */

const struct offload_backend *quire_offload_backend(void);

QUIRE_API const struct offload_backend *quire_offload_backend(void)
{
    static const struct offload_backend backend = {.abi = OFFLOAD_BACKEND_ABI,
                                                   .name = "opencl",
                                                   .list = list,
                                                   .open = open_device,
                                                   .close = close_context,
                                                   .nearest_max = opencl_nearest_max,
                                                   .reserve = reserve,
                                                   .put = put,
                                                   .unload = unload,
                                                   .nearest = opencl_nearest,
                                                   .dots = opencl_dots,
                                                   .describe = opencl_shape_describe};
    return &backend;
}
