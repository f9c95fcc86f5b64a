/*
 * transfer.h - whole vector sets on their way from one key to another, or to bytes and back; and how a value that was
 * made apart comes under its key.
 *
 * A set is made without a key: nobody sees it, and after a crash it is removed, since no key names it. It is filled by
 * ordinary writes of the log, a row at a time, so that no lane waits and memory seals as it does under VADD; the key
 * comes last, in one frame with its expiry. So others see all of it or nothing.
 */
#ifndef QUIRE_SERVER_TRANSFER_H
#define QUIRE_SERVER_TRANSFER_H

#include "server/call/service.h"
#include "server/dump/payload.h"

/* Where a value goes. */
struct transfer_target {
    struct resp_arg key;
    bool replace;       /* whatever is there; otherwise that is QUIRE_EEXISTS */
    uint64_t expire_ms; /* 0: never. A time that is over removes what is there, and puts nothing */
    uint32_t idle_s;    /* since its last access */
};
/* Takes the value over, also on failure. 1 where the time was over. *lsn of what was written. Inside the gate. */
int transfer_bind(struct service *service, const struct transfer_target *target, const struct key_value *value,
                  uint64_t *lsn, struct quire_error *err);
/* The same from the worker, through the gate; a set that gets no key is dropped. 0 where the time was over. */
int transfer_bind_later(struct service *service, const struct transfer_target *target, const struct key_value *value,
                        uint64_t *lsn, struct quire_error *err);

/* The rest of these block, on the worker. */

/* A set as a payload, of one moment. QUIRE_ELIMIT where it takes more than most bytes. */
int transfer_write_set(struct collection *set, uint64_t most, struct resp_buffer *out, struct quire_error *err);
/* The set that a payload holds; one with the elements of another. A reference for transfer_bind_later. */
int transfer_read_set(struct service *service, struct payload *payload, struct collection **out,
                      struct quire_error *err);
int transfer_copy_set(struct service *service, struct collection *from, struct collection **out,
                      struct quire_error *err);

#endif
