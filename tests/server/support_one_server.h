/*
 * support_one_server.h - what tests of commands begin with: a folder, a server that keeps its data in it, a connection
 * to that; and the same data again after a restart. One of each for a test program, from set_up to tear_down.
 */
#ifndef QUIRE_TESTS_SERVER_SUPPORT_ONE_SERVER_H
#define QUIRE_TESTS_SERVER_SUPPORT_ONE_SERVER_H

#include "tests/server/support_server.h"

static char *folder;
static struct test_server *server;
static struct connection c;

static inline void start_with(const char *appendfsync)
{
    const char *const settings[] = {"dir", folder, "appendfsync", appendfsync, "build-threads", "1", NULL};
    server = support_server(settings);
    connect_to(&c, server->port);
}

static inline void start(void)
{
    start_with("everysec");
}

static inline void stop(void)
{
    disconnect(&c);
    support_server_end(server);
}

static inline void restart(void)
{
    stop();
    start();
}

static inline int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    start();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    stop();
    support_folder_remove(folder);
    return 0;
}

#endif
