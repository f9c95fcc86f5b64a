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

static int build(struct opencl *cl, struct opencl_program *out, const char *options, const char *const *names,
                 unsigned n_names, struct quire_error *err)
{
    const char *source = opencl_kernels;
    struct opencl_program made = {0};
    cl_int status;
    made.program = cl->calls->clCreateProgramWithSource(cl->context, 1, &source, NULL, &status);
    if (!made.program)
        return opencl_failed(err, __func__, status, "clCreateProgramWithSource");
    status = cl->calls->clBuildProgram(made.program, 1, &cl->device, options, NULL, NULL);
    int rc = status == CL_SUCCESS ? 0 : say_why(cl, made.program, status, err);
    for (unsigned i = 0; rc == 0 && i < n_names; i++) {
        made.kernels[i] = cl->calls->clCreateKernel(made.program, names[i], &status);
        if (!made.kernels[i])
            rc = opencl_failed(err, __func__, status, "clCreateKernel");
    }
    if (rc == 0) {
        *out = made;
        return 0;
    }
    for (unsigned i = 0; i < n_names; i++)
        if (made.kernels[i])
            cl->calls->clReleaseKernel(made.kernels[i]);
    cl->calls->clReleaseProgram(made.program);
    return rc;
}

int opencl_program_nearest(struct opencl *cl, enum offload_element element, enum offload_measure measure, bool factors,
                           const struct opencl_program **out, struct quire_error *err)
{
    static const char *const names[] = {"distances", "keep_nearest"};
    struct opencl_program *program = &cl->programs[4 * (unsigned)element + 2 * (unsigned)measure + factors];
    char options[128];
    assert(element <= OFFLOAD_I8);
    snprintf(options, sizeof options, "-cl-std=CL1.2 -DELEMENT=%d -DMEASURE=%d -DFACTORS=%d -DTILED=%d -DSORT=%u",
             (int)element, (int)measure, factors, cl->tiled, cl->sort);
    int rc = program->program ? 0 : build(cl, program, options, names, 2, err);
    if (rc == 0)
        *out = program;
    return rc;
}

int opencl_program_dots(struct opencl *cl, const struct opencl_program **out, struct quire_error *err)
{
    static const char *const names[] = {"code_dots"};
    struct opencl_program *program = &cl->programs[OPENCL_PROGRAMS - 1];
    int rc = program->program ? 0 : build(cl, program, "-cl-std=CL1.2 -DCODES=1", names, 1, err);
    if (rc == 0)
        *out = program;
    return rc;
}

void opencl_program_fini(struct opencl *cl)
{
    for (unsigned i = 0; i < OPENCL_PROGRAMS; i++) {
        for (unsigned j = 0; j < 2; j++)
            if (cl->programs[i].kernels[j])
                cl->calls->clReleaseKernel(cl->programs[i].kernels[j]);
        if (cl->programs[i].program)
            cl->calls->clReleaseProgram(cl->programs[i].program);
    }
    memset(cl->programs, 0, sizeof cl->programs);
}
