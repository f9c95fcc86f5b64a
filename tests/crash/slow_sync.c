/*
 * slow_sync.c - for LD_PRELOAD: fdatasync and fsync take SLOW_SYNC_MS milliseconds longer while the file SLOW_SYNC_FLAG
 * exists, as on a disk that is slow or busy. What they sync is synced.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_while_slow(void)
{
    const char *flag = getenv("SLOW_SYNC_FLAG"), *ms = getenv("SLOW_SYNC_MS");
    if (flag && ms && access(flag, F_OK) == 0)
        usleep((useconds_t)(1000 * strtoul(ms, NULL, 10)));
}

static int call(const char *name, int fd)
{
    int (*real)(int);
    *(void **)(&real) = dlsym(RTLD_NEXT, name);
    wait_while_slow();
    return real(fd);
}

int fdatasync(int fd);
int fsync(int fd);

int fdatasync(int fd)
{
    return call("fdatasync", fd);
}

int fsync(int fd)
{
    return call("fsync", fd);
}
