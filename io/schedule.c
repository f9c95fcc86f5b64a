/* schedule.c - sched_setattr by hand: Debian 12's C library has no function for it. */
#include "io/schedule.h"
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 200000u

void schedule_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes, .policy = SCHED_OTHER, .runtime_ns = SLICE_NS};
    if (sched_getscheduler(0) != SCHED_OTHER)
        return;
    attributes.nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}
