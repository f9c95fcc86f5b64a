/*
 * opencl_shape.c - what a device has, and what is made of it: tiles, how much is sorted at once, products of bytes.
 *
 * Where a device has local memory of its own, tiles go there; where local memory is ordinary memory, as on a processor,
 * registers are the better place. A tile takes half of the local memory at most, so that one work-group computes while
 * another waits for its rows. Large tiles use each word that was read more often, and are wasted where there are few
 * queries: these get the smallest.
 *
 * Four products of bytes are one instruction on many devices, and every vendor has a name of its own for it. What the
 * device reports is used; where its compiler then refuses (opencl_program.c), the sum is written out. Both give the
 * same whole numbers.
 *
 * For tests, QUIRE_OPENCL_TILES=registers|local|local:SIDE:DEPTH chooses the tiles and QUIRE_OPENCL_DOT4=plain|khr|arm|
 * nv the way of products, with functions of our own in the place of the device's, so that one device tests them all.
 */
#include "index/offload/opencl/opencl_priv.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SORT_LEAST   1024u
#define SORT_MOST    4096u
#define LOCAL_SPARED 1024u /* bytes of local memory that a driver may use itself */
#define FEW_QUERIES  32u

/* cl_nv_device_attribute_query, which Khronos' headers do not have */
#define NV_CAPABILITY_MAJOR 0x4000
#define NV_CAPABILITY_MINOR 0x4001
#define NV_DP4A             61u /* from compute capability 6.1 on */

static const char *const dot4_names[] = {"plain", "khr", "arm", "nv"};
static const char *const dot4_words[] = {"written out", "by cl_khr_integer_dot_product",
                                         "by cl_arm_integer_dot_product_accumulate_int8", "by dp4a"};

/* ---- products of bytes ------------------------------------------------------------------------------------------- */

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + n, word))
        if ((at == text || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static bool has_dp4a(const struct opencl *cl, const char *extensions)
{
    cl_uint major = 0, minor = 0;
    if (!has_word(extensions, "cl_nv_device_attribute_query"))
        return false;
    cl->calls->clGetDeviceInfo(cl->device, NV_CAPABILITY_MAJOR, sizeof major, &major, NULL);
    cl->calls->clGetDeviceInfo(cl->device, NV_CAPABILITY_MINOR, sizeof minor, &minor, NULL);
    return 10 * major + minor >= NV_DP4A;
}

static void choose_dot4(struct opencl *cl)
{
    const char *asked = getenv("QUIRE_OPENCL_DOT4");
    size_t bytes = 0;
    cl->dot4 = OPENCL_DOT4_PLAIN;
    for (size_t i = 0; asked && i < sizeof dot4_names / sizeof *dot4_names; i++)
        if (strcmp(asked, dot4_names[i]) == 0) {
            cl->dot4 = (enum opencl_dot4)i;
            cl->emulates_dot4 = true;
            return;
        }
    cl->calls->clGetDeviceInfo(cl->device, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes);
    char *extensions = calloc(1, bytes + 1);
    if (extensions &&
        cl->calls->clGetDeviceInfo(cl->device, CL_DEVICE_EXTENSIONS, bytes, extensions, NULL) == CL_SUCCESS)
        cl->dot4 = has_word(extensions, "cl_khr_integer_dot_product")                   ? OPENCL_DOT4_KHR
                   : has_word(extensions, "cl_arm_integer_dot_product_accumulate_int8") ? OPENCL_DOT4_ARM
                   : has_dp4a(cl, extensions)                                           ? OPENCL_DOT4_NV
                                                                                        : OPENCL_DOT4_PLAIN;
    free(extensions); /* without memory: as if there were none */
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

static uint64_t tile_bytes(const struct opencl_tile *tile, unsigned planes)
{
    return (uint64_t)tile->depth * (1 + planes) * (tile->side + 1) * sizeof(cl_uint);
}

static bool tile_fits(const struct opencl *cl, const struct opencl_tile *tile, unsigned planes)
{
    uint32_t items = tile->side / tile->each;
    return (uint64_t)items * items <= cl->group_most && 2 * tile_bytes(tile, planes) <= cl->local_bytes;
}

bool opencl_shape_tile(const struct opencl *cl, unsigned planes, uint32_t n_queries, uint32_t side_most,
                       struct opencl_tile *out)
{
    static const struct opencl_tile tiles[] = {{OPENCL_SIDE_MOST, 8, 0}, {64, 4, 0}, {32, 4, 0}};
    size_t n = sizeof tiles / sizeof *tiles, last = n - 1;
    if (n_queries <= FEW_QUERIES && side_most > tiles[last].side)
        side_most = tiles[last].side;
    for (size_t i = 0; i < n; i++)
        for (uint32_t depth = 16; depth >= 4; depth /= 2) {
            struct opencl_tile tile = {tiles[i].side, tiles[i].each, depth};
            bool is_asked = cl->forced.side == 0 || (tile.side == cl->forced.side && depth == cl->forced.depth);
            if (is_asked && (cl->forced.side || tile.side <= side_most) && tile_fits(cl, &tile, planes)) {
                *out = tile;
                return true;
            }
        }
    return false;
}

void opencl_shape_choose(struct opencl *cl)
{
    const char *asked = getenv("QUIRE_OPENCL_TILES");
    cl_device_local_mem_type type = CL_GLOBAL;
    cl_ulong local = 0, buffer = 0;
    size_t group = 0;
    struct opencl_tile any;
    cl->calls->clGetDeviceInfo(cl->device, CL_DEVICE_LOCAL_MEM_TYPE, sizeof type, &type, NULL);
    cl->calls->clGetDeviceInfo(cl->device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    cl->calls->clGetDeviceInfo(cl->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL);
    cl->calls->clGetDeviceInfo(cl->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof buffer, &buffer, NULL);
    cl->buffer_bytes = buffer;
    cl->local_bytes = local;
    cl->group_most = group;
    cl->tiled = type == CL_LOCAL;
    if (asked && strncmp(asked, "local", 5) == 0)
        cl->tiled = true;
    if (asked && strcmp(asked, "registers") == 0)
        cl->tiled = false;
    if (asked && strncmp(asked, "local:", 6) == 0) {
        char *end;
        uint32_t side = (uint32_t)strtoul(asked + 6, &end, 10);
        uint32_t depth = *end == ':' ? (uint32_t)strtoul(end + 1, NULL, 10) : 0;
        if (side && depth)
            cl->forced = (struct opencl_tile){.side = side, .depth = depth};
    }
    for (cl->sort = SORT_MOST; cl->sort > SORT_LEAST && cl->sort * sizeof(cl_ulong) + LOCAL_SPARED > local;)
        cl->sort /= 2;
    /* one bit has the most planes */
    if (cl->sort * sizeof(cl_ulong) > local || !opencl_shape_tile(cl, 8, 1, OPENCL_SIDE_MOST, &any))
        cl->tiled = false;
    choose_dot4(cl);
}

void opencl_shape_describe(void *context, char *out, size_t bytes)
{
    const struct opencl *cl = context;
    struct opencl_tile tile = {0};
    char tiles[64] = "tiles in registers";
    if (cl->tiled && opencl_shape_tile(cl, 1, FEW_QUERIES + 1, OPENCL_SIDE_MOST, &tile))
        snprintf(tiles, sizeof tiles, "tiles of %u x %u in local memory", tile.side, tile.depth);
    assert((size_t)cl->dot4 < sizeof dot4_words / sizeof *dot4_words);
    snprintf(out, bytes, "%s, products of bytes %s%s", tiles, dot4_words[cl->dot4], cl->emulates_dot4 ? " (ours)" : "");
}
