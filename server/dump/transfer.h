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
/* Takes the value over, also on failure; a set that gets no key is dropped. *lsn of what was written. Inside the
 * gate. */
int transfer_bind(struct service *service, const struct transfer_target *target, const struct key_value *value,
                  uint64_t *lsn, struct quire_error *err);
/* The same from the worker, through the gate. */
int transfer_bind_later(struct service *service, const struct transfer_target *target, const struct key_value *value,
                        uint64_t *lsn, struct quire_error *err);

/* A set as a payload, of the moment at which it begins. QUIRE_ELIMIT where it takes more than most bytes. begin writes
 * what is in memory, and does not block; rest what lies on the disk, and blocks: the worker's. The payload is whole
 * then. end follows a begin that succeeded. out: stays where it is; its bytes before are not touched. */
struct transfer_writing {
    struct resp_buffer *out;
    uint64_t n, most;
    uint32_t stored_bytes;
    size_t from, count_at;
    struct collection_export *export;
    struct quire_error *err;
};
int transfer_write_begin(struct transfer_writing *w, struct collection *set, uint64_t most, struct resp_buffer *out,
                         struct quire_error *err);
int transfer_write_rest(struct transfer_writing *w, struct quire_error *err);
void transfer_write_end(struct transfer_writing *w);

/* The set that a payload holds; one with the elements of another. A reference for transfer_bind or transfer_bind_later.
 * at_once: on a lane, in EXEC, which neither waits nor blocks; a set that lies on the disk is then QUIRE_EUNSUPPORTED.
 * Otherwise they block, on the worker. */
int transfer_read_set(struct service *service, struct payload *payload, bool at_once, struct collection **out,
                      struct quire_error *err);
int transfer_copy_set(struct service *service, struct collection *from, bool at_once, struct collection **out,
                      struct quire_error *err);

#endif
