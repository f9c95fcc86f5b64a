/* test_schedule.c - the slice that a thread asks for is the one that the kernel has noted, where it knows slices. */
#include "io/schedule.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmocka.h>

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static struct attributes attributes_now(void)
{
    struct attributes a = {.size = sizeof a};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0), 0);
    return a;
}

static void *ask_and_look(void *context)
{
    struct attributes *asked = context;
    schedule_short_slices();
    *asked = attributes_now();
    return NULL;
}

static void a_thread_has_short_slices_and_no_other_has(void **state)
{
    struct utsname name;
    struct attributes before = attributes_now(), asked = {0};
    pthread_t thread;
    unsigned major = 0, minor = 0;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, ask_and_look, &asked), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(asked.policy, before.policy);
    assert_int_equal(asked.nice, before.nice);
    assert_int_equal(attributes_now().runtime_ns, before.runtime_ns);
    assert_int_equal(uname(&name), 0);
    assert_int_equal(sscanf(name.release, "%u.%u", &major, &minor), 2);
    if (before.policy != 0 || major < 6 || (major == 6 && minor < 12))
        skip(); /* the kernel knows no slices */
    assert_int_equal(asked.runtime_ns, 200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_has_short_slices_and_no_other_has)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
