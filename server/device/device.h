/*
 * device.h - a device that helps the lanes with exact searches: how a lane asks, and what is told of it.
 *
 * A thread of its own owns the device. It opens it after the server has started, keeps rows of segments there, and
 * names the rows that can be among the nearest (index/exact). A lane hands it queries and goes on; the answer comes as
 * a message to the lane. Nothing on a lane waits for the device: what is not answered well is searched without it.
 */
#ifndef QUIRE_SERVER_DEVICE_H
#define QUIRE_SERVER_DEVICE_H

#include "index/collection/collection.h"
#include "index/offload/offload.h"
#include "server/call/lane.h"

struct device;

/* Queries of one set. Set by the asker, who keeps it, the queries and a reference to the set until the message has run;
 * then it is ended by device_ask_end, in any case. */
struct device_ask {
    struct message message; /* runs on the lane when all is known that will be */
    struct lane *lane;
    struct collection *collection;
    const float *const *queries; /* n, of dim floats each */
    uint32_t n, k;
    bool exact; /* the searches read all rows without the device; otherwise as recall and effort say */
    float recall;
    uint32_t effort;
    /* filled: of the segments about which something is known, for collection_search */
    struct collection_named *named;
    uint32_t n_named;
    /* the device's */
    struct device_ask *next;
    struct device *device;
    size_t places;
};

/* Numbers that answers take per query and segment, about; and how many the queries of one ask may come to. */
static inline uint64_t device_ask_places(uint32_t k)
{
    return (uint64_t)k + k / 4 + 32;
}
#define DEVICE_ASK_PLACES ((uint64_t)1 << 20)

/* The device that the setting `gpu` names; with "off" service->device stays NULL. Does not wait for it. */
int device_start(struct service *service, struct quire_error *err);
/* When the lanes have ended. */
void device_stop(struct service *service);

/* Whether asking is worth a thought; device may be NULL. Any thread. */
bool device_is_ready(const struct device *device);
/* False: it is not taken, since too many wait or the device is not there; the message does not run. On the lane. */
bool device_ask(struct device *device, struct device_ask *ask);
void device_ask_end(struct device_ask *ask);

/* Sends back what waits when a lane stops. */
extern const struct lane_hook device_hook;

enum device_state { DEVICE_OPENING, DEVICE_READY, DEVICE_NONE, DEVICE_LOST };

struct device_status {
    enum device_state state;
    char note[512];                /* what was decided, and why */
    char last_fall_back[512];      /* why the processor did something instead, the last time; "": it never did */
    struct offload_status offload; /* all zeros where there is no device */
    uint64_t segments, rows_bytes; /* kept there */
    uint64_t asks, batches;        /* of lanes; those that came together count as one batch */
    uint64_t queries, waiting;
    /* Segments times queries: */
    uint64_t named;     /* rows were named */
    uint64_t uncertain; /* the bounds left too much open */
    uint64_t declined;  /* it would not have paid, or such rows or numbers are the processor's */
    uint64_t failed;    /* the device, the disk or memory */
    uint64_t refused;   /* queries that were not taken since too many waited */
};
/* All zeros but state DEVICE_NONE without one. Any thread. */
void device_get_status(struct device *device, struct device_status *out);

#endif
