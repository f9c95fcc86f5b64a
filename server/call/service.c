/* service.c - what keys leave for the worker, such as values that are too large to be freed on a lane. */
#include "server/call/service.h"
#include <stdlib.h>

struct later {
    struct job job;
    void (*run)(void *argument);
    void *argument;
};

static void run_job(struct job *job)
{
    struct later *l = (struct later *)(void *)job;
    l->run(l->argument);
    free(l);
}

void service_run_later(struct service *service, void (*run)(void *argument), void *argument)
{
    struct later *l = malloc(sizeof *l);
    if (!l) {
        run(argument);
        return;
    }
    *l = (struct later){{.run = run_job}, run, argument};
    worker_post(&service->worker, &l->job);
}
