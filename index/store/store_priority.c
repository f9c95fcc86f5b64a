/*
 * store_priority.c - how much of the processors maintenance gets beside lanes.
 *
 * Lanes come first: maintenance runs BACKGROUND_NICE below the priority that the process has. Beside lanes that are
 * never idle that is a ninth of a processor for each of its threads, with which a seal takes minutes. So a seal or
 * merge that writers would soon have to wait for runs at the priority of lanes until it has caught up: on two
 * processors it then has most of one, and searches wait for their turn a little longer, but writers are not held back
 * for nothing.
 *
 * The kernel lets anybody lower a priority, but raise it only root, CAP_SYS_NICE or RLIMIT_NICE (LimitNICE in the
 * systemd unit). Without it a priority that was lowered is lost for good: seals then run just below the lanes always,
 * and the rest, which takes minutes and may be late, BACKGROUND_NICE below.
 */
#include "index/store/store_priv.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKGROUND_NICE 10 /* a ninth of what a lane gets where both want the processor; 19 would starve */

/* The kernel's priorities are of threads, whatever POSIX says. */
static id_t this_thread(void)
{
    return (id_t)syscall(SYS_gettid);
}

void store_priority_begin(struct maintainer *m, bool is_awaited)
{
    const struct sched_param none = {.sched_priority = 0};
    id_t thread = this_thread();
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none); /* where it is refused it runs as others do */
    m->base_nice = getpriority(PRIO_PROCESS, thread);
    m->hurries =
        setpriority(PRIO_PROCESS, thread, m->base_nice + 1) < 0 || setpriority(PRIO_PROCESS, thread, m->base_nice) == 0;
    if (m->hurries || !is_awaited)
        setpriority(PRIO_PROCESS, thread, m->base_nice + BACKGROUND_NICE);
    m->hurried = false;
}

void store_priority_hurry(struct maintainer *m, bool hurry)
{
    if (!m->hurries || m->hurried == hurry)
        return;
    m->hurried = hurry;
    setpriority(PRIO_PROCESS, this_thread(), m->base_nice + (hurry ? 0 : BACKGROUND_NICE));
}
