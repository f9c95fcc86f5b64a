/*
 * skip_without_device.h - for tests that need a device behind the loader that fails on demand.
 */
#ifndef QUIRE_TESTS_SKIP_WITHOUT_DEVICE_H
#define QUIRE_TESTS_SKIP_WITHOUT_DEVICE_H

#include "tests/opencl/fake_opencl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Ends the test as skipped where fake_opencl_install() has found nothing to work with. Nothing fails afterwards. */
static inline void skip_without_device(struct fake_opencl *fake)
{
    if (!fake || !fake->has_device) {
        print_message("skipped: there is no OpenCL device, or no plug-in\n");
        skip();
    }
    fake_opencl_reset(fake);
}

#endif
