/*
 * opencl_priv.h - what the files of the OpenCL plug-in share.
 */
#ifndef QUIRE_INDEX_OPENCL_PRIV_H
#define QUIRE_INDEX_OPENCL_PRIV_H

#include "index/offload/offload_backend.h"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

/* The functions of the ICD loader that are used. */
#define OPENCL_CALLS(X)                                                                                                \
    X(clGetPlatformIDs)                                                                                                \
    X(clGetDeviceIDs)                                                                                                  \
    X(clGetDeviceInfo)                                                                                                 \
    X(clCreateContext)                                                                                                 \
    X(clReleaseContext)                                                                                                \
    X(clCreateCommandQueue)                                                                                            \
    X(clReleaseCommandQueue)                                                                                           \
    X(clCreateProgramWithSource)                                                                                       \
    X(clBuildProgram)                                                                                                  \
    X(clGetProgramBuildInfo)                                                                                           \
    X(clReleaseProgram)                                                                                                \
    X(clCreateKernel)                                                                                                  \
    X(clGetKernelWorkGroupInfo)                                                                                        \
    X(clReleaseKernel)                                                                                                 \
    X(clSetKernelArg)                                                                                                  \
    X(clCreateBuffer)                                                                                                  \
    X(clReleaseMemObject)                                                                                              \
    X(clEnqueueWriteBuffer)                                                                                            \
    X(clEnqueueReadBuffer)                                                                                             \
    X(clEnqueueNDRangeKernel)

struct opencl_calls {
#define OPENCL_CALL(name) __typeof__(name) *name;
    OPENCL_CALLS(OPENCL_CALL)
#undef OPENCL_CALL
};

/* Loads libOpenCL.so.1, or what QUIRE_OPENCL_LIBRARY names, for the rest of the process: drivers start threads and
 * do not bear to be unloaded. QUIRE_EUNSUPPORTED where there is none. Thread-safe. */
int opencl_load(const struct opencl_calls **out, struct quire_error *err);

/* Fills *err and returns code. */
int opencl_error(struct quire_error *err, const char *where, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for what a call answered that should have answered CL_SUCCESS. */
int opencl_failed(struct quire_error *err, const char *where, cl_int status, const char *call);

/* A tile in local memory: rows and as many queries of a work-group, those of a work-item, words of each at a time. */
struct opencl_tile {
    uint32_t side, each, depth;
};
#define OPENCL_SIDE_MOST 128u /* kernels may read so many rows behind the last */

/* How four products of bytes are summed; the numbers are those of DOT4 in kernels.cl. */
enum opencl_dot4 {
    OPENCL_DOT4_PLAIN,
    OPENCL_DOT4_KHR,
    OPENCL_DOT4_ARM,
    OPENCL_DOT4_NV,
};

/* A program of kernels.cl, for one kind of work: it has one kernel. */
struct opencl_program {
    cl_program program; /* NULL: not yet built */
    cl_kernel kernel;
    struct opencl_tile tile; /* of distances, where tiles are in local memory */
    size_t group;            /* work-items that go together; of distances as many of its selection */
};

#define OPENCL_KINDS    20u                     /* 16 kinds of nearest of elements, 4 of codes */
#define OPENCL_PROGRAMS (2u * OPENCL_KINDS + 1) /* for few queries and for many; products of codes */
#define OPENCL_KEEPS    2u                      /* selections: by the work-items of a tile */

struct opencl {
    const struct opencl_calls *calls;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    bool tiled;                /* tiles in local memory, or in registers */
    struct opencl_tile forced; /* side 0: the largest that fits */
    uint32_t sort;             /* what the tiled selection sorts at most */
    uint64_t local_bytes, group_most;
    uint64_t buffer_bytes; /* of one buffer at most */
    enum opencl_dot4 dot4;
    bool emulates_dot4; /* by functions of our own */
    struct opencl_program programs[OPENCL_PROGRAMS], keeps[OPENCL_KEEPS];
};

/* Rows in the device's memory; behind the last is room for a tile. */
struct opencl_block {
    cl_mem data, factors; /* factors NULL: none */
    struct offload_shape shape;
    uint32_t padded; /* elements from one row to the next */
};

/* opencl_program.c: the kernels `distances` and `keep_nearest` for so many queries, or `code_dots`; built when they are
 * first asked for. */
int opencl_program_nearest(struct opencl *cl, const struct offload_shape *shape, enum offload_measure measure,
                           uint32_t n_queries, const struct opencl_program **distances,
                           const struct opencl_program **keep, struct quire_error *err);
int opencl_program_dots(struct opencl *cl, const struct opencl_program **out, struct quire_error *err);
void opencl_program_fini(struct opencl *cl);

/* opencl_shape.c: what a device has, and what is made of it: tiles, how much is sorted, products of bytes. */
void opencl_shape_choose(struct opencl *cl);
/* The largest tile that fits, of elements with so many planes (kernels.cl), for so many queries and no side above
 * side_most; false: none does. */
bool opencl_shape_tile(const struct opencl *cl, unsigned planes, uint32_t n_queries, uint32_t side_most,
                       struct opencl_tile *out);
void opencl_shape_describe(void *context, char *out, size_t bytes);

/* The functions of struct offload_backend. */
uint32_t opencl_nearest_max(void *context);
int opencl_nearest(void *context, void *block, const struct offload_nearest *request, struct quire_error *err);
int opencl_dots(void *context, void *block, const struct offload_dots *request, struct quire_error *err);

/* Buffers and transfers. `bytes` 0 is made 1. host: copied into it, or NULL. */
int opencl_buffer(struct opencl *cl, cl_mem_flags flags, size_t bytes, const void *host, cl_mem *out,
                  struct quire_error *err);
/* Waits until `from` may be used again. */
int opencl_write(struct opencl *cl, cl_mem to, size_t at, size_t bytes, const void *from, struct quire_error *err);
/* Waits for all that was asked for before. */
int opencl_read(struct opencl *cl, cl_mem from, size_t bytes, void *to, struct quire_error *err);
void opencl_release(struct opencl *cl, cl_mem buffer); /* NULL is fine */

/* Arguments of a kernel, in order. */
struct opencl_argument {
    size_t bytes;
    const void *value;
};
#define OPENCL_ARGUMENT(variable) ((struct opencl_argument){sizeof(variable), &(variable)})
int opencl_run(struct opencl *cl, cl_kernel kernel, const struct opencl_argument *arguments, cl_uint n,
               const size_t *global, const size_t *local, cl_uint axes, struct quire_error *err);

/* Elements from one row to the next: whole steps of every kernel. */
static inline uint32_t opencl_padded(const struct offload_shape *shape)
{
    uint32_t step = 16, dim = shape->dim;
    if (offload_is_code(shape->element))
        step = shape->has_factors ? 512 / offload_code_bits(shape->element) : 32;
    else if (shape->element == OFFLOAD_U8 || shape->element == OFFLOAD_I8)
        step = 64;
    return (dim + step - 1) / step * step;
}

/* Levels of a code that are in one byte; 1 of other elements. */
static inline unsigned opencl_planes(enum offload_element element)
{
    return offload_is_code(element) ? 8 / offload_code_bits(element) : 1;
}

#endif
