/*
 * fake_opencl.c - a loader of OpenCL that fails on demand (fake_opencl.h).
 *
 * A sweep opens a device and compiles its kernels some hundred times, and a driver takes a while for each program even
 * where it has it already. So there is one context of the driver's behind all that are created here, and of programs
 * with the same options the first is built; the others stand for it. What is counted and fails are the calls made here.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include "tests/opencl/fake_opencl.h"
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT      __attribute__((visibility("default")))
#define BUFFERS_MAX 256

#define PROGRAMS_MAX 128
#define KEPT_MAX     256

static struct fake_opencl fake;
static void *real;
static struct held {
    cl_mem buffer;
    size_t bytes;
} held[BUFFERS_MAX];

/* The context of all, and what was built in it; both stay. */
static cl_context kept_context;
static cl_device_id kept_device;
static struct kept {
    cl_program program;
    const char *text; /* of the plug-in's, which stays where it is */
    char options[512];
    cl_int status; /* of its build */
} kept[KEPT_MAX];
static unsigned n_kept;

/* Programs that were created and not released: what each was built as. */
static struct made {
    cl_program program;
    const char *text;
    const struct kept *built; /* NULL: not yet, or as itself */
} programs[PROGRAMS_MAX];

struct fake_opencl *fake_opencl_controls(void);

EXPORT struct fake_opencl *fake_opencl_controls(void)
{
    return &fake;
}

__attribute__((constructor)) static void begin(void)
{
    real = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    fake.as_card = getenv("FAKE_OPENCL_CARD") != NULL; /* for scripts */
    if (!real)
        return;
    cl_platform_id platform;
    cl_device_id device;
    cl_uint n = 0;
    __typeof__(clGetPlatformIDs) *platforms;
    __typeof__(clGetDeviceIDs) *devices;
    *(void **)(void *)&platforms = dlsym(real, "clGetPlatformIDs");
    *(void **)(void *)&devices = dlsym(real, "clGetDeviceIDs");
    fake.has_device = platforms(1, &platform, &n) == CL_SUCCESS && n > 0 &&
                      devices(platform, CL_DEVICE_TYPE_ALL, 1, &device, &n) == CL_SUCCESS && n > 0;
}

/* Whether this call fails. */
static bool fails(const char *name)
{
    const char *only = fake.only;
    if (only && strcmp(only, name) != 0)
        return false;
    fake.calls++;
    if (fake.fail_at == 0)
        return false;
    if (fake.fail_at > 1) {
        fake.fail_at--;
        return false;
    }
    if (!fake.stays)
        fake.fail_at = 0;
    return true;
}

/* Declares `call`, the real function; answers `answer` where this call fails. */
#define GO_ON(name, answer)                                                                                            \
    __typeof__(name) *call;                                                                                            \
    *(void **)(void *)&call = dlsym(real, #name);                                                                      \
    if (fails(#name))                                                                                                  \
    return (answer)

/* The same for functions that create something and have a place for the status. */
#define GO_ON_CREATE(name)                                                                                             \
    __typeof__(name) *call;                                                                                            \
    *(void **)(void *)&call = dlsym(real, #name);                                                                      \
    if (fails(#name)) {                                                                                                \
        *status = fake.status;                                                                                         \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    fake.objects++

/* Releases never fail: they are how a program gives up. */
#define RELEASE(name, type)                                                                                            \
    EXPORT cl_int name(type object)                                                                                    \
    {                                                                                                                  \
        __typeof__(name) *call;                                                                                        \
        *(void **)(void *)&call = dlsym(real, #name);                                                                  \
        fake.objects--;                                                                                                \
        return call(object);                                                                                           \
    }

RELEASE(clReleaseContext, cl_context)
RELEASE(clReleaseCommandQueue, cl_command_queue)
RELEASE(clReleaseKernel, cl_kernel)

static struct made *find_made(cl_program program)
{
    for (unsigned i = 0; i < PROGRAMS_MAX; i++)
        if (programs[i].program == program)
            return &programs[i];
    return NULL;
}

/* The program that was built for this one. */
static cl_program built_as(cl_program program)
{
    const struct made *found = find_made(program);
    return found && found->built ? found->built->program : program;
}

EXPORT cl_int clReleaseProgram(cl_program program)
{
    __typeof__(clReleaseProgram) *call;
    *(void **)(void *)&call = dlsym(real, "clReleaseProgram");
    struct made *found = find_made(program);
    fake.objects--;
    if (found)
        *found = (struct made){0};
    return call(program);
}

EXPORT cl_int clReleaseMemObject(cl_mem object)
{
    __typeof__(clReleaseMemObject) *call;
    *(void **)(void *)&call = dlsym(real, "clReleaseMemObject");
    fake.objects--;
    for (unsigned i = 0; i < BUFFERS_MAX; i++)
        if (held[i].buffer == object) {
            fake.held_bytes -= held[i].bytes;
            held[i] = (struct held){0};
            break;
        }
    return call(object);
}

EXPORT cl_int clGetPlatformIDs(cl_uint max, cl_platform_id *platforms, cl_uint *n)
{
    if (!real)
        return -1001; /* as the ICD loader answers without a driver */
    GO_ON(clGetPlatformIDs, fake.status);
    return call(max, platforms, n);
}

EXPORT cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint max, cl_device_id *devices,
                             cl_uint *n)
{
    GO_ON(clGetDeviceIDs, fake.status);
    if (fake.as_card && type == CL_DEVICE_TYPE_CPU)
        return CL_DEVICE_NOT_FOUND;
    return call(platform, fake.as_card ? CL_DEVICE_TYPE_ALL : type, max, devices, n);
}

EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t bytes, void *value, size_t *size)
{
    GO_ON(clGetDeviceInfo, fake.status);
    const char *extensions = fake.extensions;
    if (extensions && what == CL_DEVICE_EXTENSIONS) {
        if (value)
            snprintf(value, bytes, "%s", extensions);
        if (size)
            *size = strlen(extensions) + 1;
        return CL_SUCCESS;
    }
    cl_int answer = call(device, what, bytes, value, size);
    cl_ulong local = fake.local_bytes;
    size_t group = fake.group;
    if (local && value && what == CL_DEVICE_LOCAL_MEM_SIZE)
        memcpy(value, &local, sizeof local);
    if (group && value && what == CL_DEVICE_MAX_WORK_GROUP_SIZE)
        memcpy(value, &group, sizeof group);
    cl_ulong memory = fake.memory_bytes;
    if (memory && value && (what == CL_DEVICE_GLOBAL_MEM_SIZE || what == CL_DEVICE_MAX_MEM_ALLOC_SIZE))
        memcpy(value, &memory, sizeof memory);
    return answer;
}

EXPORT cl_context clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                                  void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data,
                                  cl_int *status)
{
    GO_ON_CREATE(clCreateContext);
    __typeof__(clRetainContext) *retain;
    *(void **)(void *)&retain = dlsym(real, "clRetainContext");
    *status = CL_SUCCESS;
    if (kept_context && (n != 1 || devices[0] != kept_device))
        return call(properties, n, devices, notify, data, status);
    if (!kept_context) {
        kept_context = call(properties, n, devices, notify, data, status);
        kept_device = devices[0];
    }
    if (kept_context)
        retain(kept_context); /* for who asks; it is ours as well */
    return kept_context;
}

EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                             cl_command_queue_properties properties, cl_int *status)
{
    GO_ON_CREATE(clCreateCommandQueue);
    return call(context, device, properties, status);
}

EXPORT cl_program clCreateProgramWithSource(cl_context context, cl_uint n, const char **texts, const size_t *sizes,
                                            cl_int *status)
{
    GO_ON_CREATE(clCreateProgramWithSource);
    cl_program program = call(context, n, texts, sizes, status);
    struct made *place = context == kept_context && n == 1 && !sizes ? find_made(NULL) : NULL;
    if (program && place)
        *place = (struct made){.program = program, .text = texts[0]};
    return program;
}

EXPORT cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *status)
{
    GO_ON_CREATE(clCreateKernel);
    return call(built_as(program), name, status);
}

EXPORT cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host, cl_int *status)
{
    if (fake.memory_bytes && fake.held_bytes + bytes > fake.memory_bytes) {
        *status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    GO_ON_CREATE(clCreateBuffer);
    cl_mem made = call(context, flags, bytes, host, status);
    fake.objects -= made ? 0 : 1;
    for (unsigned i = 0; made && i < BUFFERS_MAX; i++)
        if (!held[i].buffer) {
            held[i] = (struct held){made, bytes};
            fake.held_bytes += bytes;
            break;
        }
    return made;
}

EXPORT cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                             void(CL_CALLBACK *notify)(cl_program, void *), void *data)
{
    GO_ON(clBuildProgram, fake.status);
    __typeof__(clRetainProgram) *retain;
    *(void **)(void *)&retain = dlsym(real, "clRetainProgram");
    struct made *found = find_made(program);
    for (unsigned i = 0; found && i < n_kept; i++)
        if (kept[i].text == found->text && strcmp(kept[i].options, options) == 0) {
            found->built = &kept[i];
            return kept[i].status;
        }
    cl_int answer = call(program, n, devices, options, notify, data);
    if (found && n_kept < KEPT_MAX && strlen(options) < sizeof kept->options && retain(program) == CL_SUCCESS) {
        kept[n_kept] = (struct kept){.program = program, .text = found->text, .status = answer};
        snprintf(kept[n_kept].options, sizeof kept->options, "%s", options);
        n_kept++;
    }
    return answer;
}

EXPORT cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info what, size_t bytes,
                                    void *value, size_t *size)
{
    GO_ON(clGetProgramBuildInfo, fake.status);
    return call(built_as(program), device, what, bytes, value, size);
}

EXPORT cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what,
                                       size_t bytes, void *value, size_t *size)
{
    GO_ON(clGetKernelWorkGroupInfo, fake.status);
    cl_int answer = call(kernel, device, what, bytes, value, size);
    size_t group = fake.kernel_group;
    if (group && value && what == CL_KERNEL_WORK_GROUP_SIZE)
        memcpy(value, &group, sizeof group);
    return answer;
}

EXPORT cl_int clSetKernelArg(cl_kernel kernel, cl_uint place, size_t bytes, const void *value)
{
    GO_ON(clSetKernelArg, fake.status);
    return call(kernel, place, bytes, value);
}

EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, size_t at, size_t bytes,
                                   const void *from, cl_uint n, const cl_event *events, cl_event *event)
{
    GO_ON(clEnqueueWriteBuffer, fake.status);
    return call(queue, buffer, waits, at, bytes, from, n, events, event);
}

EXPORT cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, size_t at, size_t bytes,
                                  void *to, cl_uint n, const cl_event *events, cl_event *event)
{
    GO_ON(clEnqueueReadBuffer, fake.status);
    return call(queue, buffer, waits, at, bytes, to, n, events, event);
}

EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint axes, const size_t *first,
                                     const size_t *global, const size_t *local, cl_uint n, const cl_event *events,
                                     cl_event *event)
{
    GO_ON(clEnqueueNDRangeKernel, fake.status);
    return call(queue, kernel, axes, first, global, local, n, events, event);
}
