/*
 * opencl_program.c - kernels.cl compiled for one kind of work at a time, when that is first asked for.
 *
 * The source travels in the plug-in as text. A driver takes a tenth of a second to some seconds for a program, and
 * most keep what they compiled in a folder of their own; a process that compares vectors of one type pays for one.
 * No option lets the compiler change sums (-cl-fast-relaxed-math): the bound on their rounding would not hold.
 */
#include "index/offload/opencl/opencl_priv.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define DOTS_GROUP 32u
#define KEEP_GROUP 4u /* where a work-item has a query for itself */

extern const char opencl_kernels[]; /* made by cmake/opencl.cmake */

/* What the compiler complained about, as far as it fits. */
static int say_why(const struct opencl *cl, cl_program program, cl_int status, struct quire_error *err)
{
    char log[2048] = "";
    cl->calls->clGetProgramBuildInfo(program, cl->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
    log[sizeof log - 1] = '\0';
    for (char *c = log; *c; c++)
        *c = *c < ' ' ? ' ' : *c;
    return opencl_error(err, __func__, QUIRE_EUNSUPPORTED,
                        "the device's driver cannot compile the kernels (OpenCL error %d): %.240s", (int)status, log);
}

static void drop(const struct opencl *cl, struct opencl_program *program)
{
    if (program->kernel)
        cl->calls->clReleaseKernel(program->kernel);
    if (program->program)
        cl->calls->clReleaseProgram(program->program);
    *program = (struct opencl_program){0};
}

/* `options`, and how products of bytes are made where there are any: other programs are the same for every way. */
static int compile(struct opencl *cl, struct opencl_program *made, const char *options, bool of_bytes,
                   struct quire_error *err)
{
    const char *source = opencl_kernels;
    enum opencl_dot4 dot4 = of_bytes ? cl->dot4 : OPENCL_DOT4_PLAIN;
    /* the extension's functions are those of OpenCL C 3.0 */
    const char *std = dot4 == OPENCL_DOT4_KHR && !cl->emulates_dot4 ? "CL3.0" : "CL1.2";
    char all[512];
    cl_int status;
    int n = snprintf(all, sizeof all, "-cl-std=%s -DDOT4=%d -DEMULATED=%d %s", std, (int)dot4,
                     of_bytes && cl->emulates_dot4, options);
    assert(n > 0 && (size_t)n < sizeof all);
    (void)n;
    made->program = cl->calls->clCreateProgramWithSource(cl->context, 1, &source, NULL, &status);
    if (!made->program)
        return opencl_failed(err, __func__, status, "clCreateProgramWithSource");
    status = cl->calls->clBuildProgram(made->program, 1, &cl->device, all, NULL, NULL);
    return status == CL_SUCCESS ? 0 : say_why(cl, made->program, status, err);
}

static int build(struct opencl *cl, struct opencl_program *out, const char *options, const char *name, bool of_bytes,
                 struct quire_error *err)
{
    struct opencl_program made = {0};
    cl_int status;
    int rc = compile(cl, &made, options, of_bytes, err);
    if (rc == QUIRE_EUNSUPPORTED && of_bytes && cl->dot4 != OPENCL_DOT4_PLAIN && !cl->emulates_dot4) {
        drop(cl, &made); /* what the device reports its compiler does not bear out: the sum as it is written */
        cl->dot4 = OPENCL_DOT4_PLAIN;
        rc = compile(cl, &made, options, of_bytes, err);
    }
    if (rc == 0) {
        made.kernel = cl->calls->clCreateKernel(made.program, name, &status);
        if (!made.kernel)
            rc = opencl_failed(err, __func__, status, "clCreateKernel");
    }
    if (rc == 0)
        *out = made;
    else
        drop(cl, &made);
    return rc;
}

/* What the device says of a kernel; 0 where it says nothing. */
static size_t kernel_number(const struct opencl *cl, cl_kernel kernel, cl_kernel_work_group_info what)
{
    size_t number = 0;
    cl_int status = cl->calls->clGetKernelWorkGroupInfo(kernel, cl->device, what, sizeof number, &number, NULL);
    return status == CL_SUCCESS ? number : 0;
}

/* Whether so many work-items of it run together. */
static int check_group(const struct opencl *cl, const struct opencl_program *program, size_t group,
                       struct quire_error *err)
{
    size_t most = kernel_number(cl, program->kernel, CL_KERNEL_WORK_GROUP_SIZE);
    return most == 0 || most >= group
               ? 0
               : opencl_error(err, __func__, QUIRE_EUNSUPPORTED,
                              "the device runs %zu work-items of the kernels together, %zu are wanted", most, group);
}

/* The selection by so many work-items, or with tiles in registers by one for each query, some of which go together. */
static int keep_of(struct opencl *cl, size_t group, const struct opencl_program **out, struct quire_error *err)
{
    struct opencl_program *keep = cl->keeps, *end = keep + OPENCL_KEEPS;
    char options[128] = "-DKEEP=1 -DTILED=0";
    if (cl->tiled)
        snprintf(options, sizeof options, "-DKEEP=1 -DTILED=1 -DSORT=%u -DGROUP=%zu", cl->sort, group);
    while (keep < end && keep->program && keep->group != group)
        keep++;
    assert(keep < end); /* tiles have 64 or 256 work-items */
    int rc = keep->program ? 0 : build(cl, keep, options, "keep_nearest", false, err);
    if (rc == 0)
        keep->group = group;
    if (rc == 0 && cl->tiled)
        rc = check_group(cl, keep, group, err);
    *out = keep;
    return rc;
}

/* With tiles in local memory: the largest that fits, and a smaller one where the compiler's kernels need too much of
 * something else. */
static int build_tiled(struct opencl *cl, struct opencl_program *out, const char *kind, enum offload_element element,
                       uint32_t n_queries, struct quire_error *err)
{
    bool of_bytes = element != OFFLOAD_F32 && element != OFFLOAD_F16;
    struct opencl_tile tile = {0};
    const struct opencl_program *keep;
    uint32_t side_most = OPENCL_SIDE_MOST;
    char options[256];
    while (opencl_shape_tile(cl, opencl_planes(element), n_queries, side_most, &tile)) {
        size_t items = tile.side / tile.each, group = items * items;
        snprintf(options, sizeof options, "%s -DTILED=1 -DSIDE=%u -DEACH=%u -DDEPTH=%u", kind, tile.side, tile.each,
                 tile.depth);
        int rc = keep_of(cl, group, &keep, err);
        if (rc == 0)
            rc = build(cl, out, options, "distances", of_bytes, err);
        if (rc == 0) {
            out->tile = tile;
            out->group = group;
            rc = check_group(cl, out, group, err);
            if (rc < 0)
                drop(cl, out);
        }
        if (rc != QUIRE_EUNSUPPORTED)
            return rc;
        if (cl->forced.side || tile.side <= 32)
            break;
        side_most = tile.side / 2;
    }
    return QUIRE_EUNSUPPORTED;
}

int opencl_program_nearest(struct opencl *cl, const struct offload_shape *shape, enum offload_measure measure,
                           uint32_t n_queries, const struct opencl_program **distances,
                           const struct opencl_program **keep, struct quire_error *err)
{
    bool is_code = offload_is_code(shape->element), factors = shape->has_factors && measure == OFFLOAD_DOT;
    bool few = cl->tiled && n_queries <= 32;
    unsigned planes = opencl_planes(shape->element),
             kind = is_code ? 16 + shape->element - OFFLOAD_CODE8 : 4 * shape->element + 2 * measure + factors;
    struct opencl_program *program = &cl->programs[2 * kind + few];
    char options[128];
    assert(kind < OPENCL_KINDS && is_code == (measure == OFFLOAD_LEAST));
    if (is_code) /* their sums are of products */
        snprintf(options, sizeof options, "-DELEMENT=4 -DMEASURE=1 -DFACTORS=0 -DBITS=%u", 8 / planes);
    else
        snprintf(options, sizeof options, "-DELEMENT=%d -DMEASURE=%d -DFACTORS=%d", (int)shape->element, (int)measure,
                 factors);
    int rc = 0;
    if (!program->program && cl->tiled) {
        rc = build_tiled(cl, program, options, shape->element, n_queries, err);
    } else if (!program->program) {
        char all[160]; /* products of vectors, in which no four bytes go together */
        snprintf(all, sizeof all, "%s -DTILED=0", options);
        rc = build(cl, program, all, "distances", false, err);
        program->group = KEEP_GROUP;
    }
    if (rc == 0)
        rc = keep_of(cl, program->group, keep, err);
    *distances = program;
    return rc;
}

int opencl_program_dots(struct opencl *cl, const struct opencl_program **out, struct quire_error *err)
{
    struct opencl_program *program = &cl->programs[OPENCL_PROGRAMS - 1];
    int rc = 0;
    if (!program->program) {
        rc = build(cl, program, "-DCODES=1", "code_dots", true, err);
        if (rc == 0) { /* whole waves, one at least of 32, for runs are short */
            size_t wave = kernel_number(cl, program->kernel, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE);
            size_t most = kernel_number(cl, program->kernel, CL_KERNEL_WORK_GROUP_SIZE);
            program->group = wave < DOTS_GROUP ? DOTS_GROUP : wave;
            program->group = most > 0 && program->group > most ? most : program->group;
        }
    }
    if (rc == 0)
        *out = program;
    return rc;
}

void opencl_program_fini(struct opencl *cl)
{
    for (unsigned i = 0; i < OPENCL_PROGRAMS; i++)
        drop(cl, &cl->programs[i]);
    for (unsigned i = 0; i < OPENCL_KEEPS; i++)
        drop(cl, &cl->keeps[i]);
}
