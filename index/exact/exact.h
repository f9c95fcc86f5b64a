/*
 * exact.h - exact search with the help of a device: which rows of a segment can be among the k nearest.
 *
 * The rows of a segment are kept in the memory of a device, which finds those that its own sums say are nearest. From
 * the bounds on its error and on the error of a search's distances (score.h) follows which rows can be among the k
 * nearest by the latter. An exact search of these rows alone (selection.h) then answers what a search that reads every
 * block would, bit for bit, with about k reads. Where the bounds leave more open than the device has named, nothing is
 * said and all rows are to be searched.
 *
 * Where a device has not the room for the rows, codes of them serve (exact_codes.c): 8, 4, 2 or 1 bits per dimension.
 * They name more rows the narrower they are, and the answer is the same.
 *
 * Calls block, on the disk and on the device: they are for tools and workers, never for a lane.
 */
#ifndef QUIRE_INDEX_EXACT_H
#define QUIRE_INDEX_EXACT_H

#include "index/offload/offload_probe.h"

struct segment;
struct exact_rows; /* those of one segment on a device */

/* What a segment should be on a device that has `room` bytes for it: 0, the rows themselves, where they have room; or
 * bits of a code, the most that do. 0 as well where not even one bit has, and for inner products: parts then take
 * turns. */
unsigned exact_bits_for(const struct segment *segment, uint64_t room);
/* Reads nothing yet. Keeps a reference to the segment, and what is on the device, until exact_close. bits: as
 * exact_bits_for says, or any that is less. QUIRE_EUNSUPPORTED with a sentence: such rows are the processor's. */
int exact_open(struct offload *offload, struct segment *segment, unsigned bits, struct exact_rows **out,
               struct quire_error *err);
void exact_close(struct exact_rows *rows); /* NULL is fine */
/* What is on the device leaves it; it comes back when it is needed. */
void exact_leave(struct exact_rows *rows);
struct segment *exact_segment(const struct exact_rows *rows);
unsigned exact_bits(const struct exact_rows *rows);
/* Bytes that all rows, or codes of so many bits, take on the device, and those that are there now. */
uint64_t exact_bytes(const struct segment *segment, unsigned bits);
uint64_t exact_bytes_held(const struct exact_rows *rows);

/* Places for rows that an answer needs per query: somewhat more than k, and more where many rows are dead, or by codes.
 */
uint32_t exact_most(const struct exact_rows *rows, uint32_t k, uint64_t n_dead);

struct exact_request {
    uint32_t n, k;               /* queries; 1 <= k */
    const float *const *queries; /* n, of dim floats each, as users give them */
    const uint8_t *dead;         /* rows that are not answered, a bitmap to which bits may be added; NULL: none */
    uint64_t n_dead;             /* about so many */
    uint32_t most;               /* exact_most(rows, k, n_dead) */
    /* filled: rows[q * most ..] are the counts[q] rows, ascending, that can be among the k nearest that are not dead;
     * 0: any can */
    uint32_t *counts, *rows;
};
/* Brings what is not on the device there first, in parts where it has not the room for all. Errors: those of
 * offload_load; of reading the segment; QUIRE_EUNSUPPORTED: such rows, or so many neighbours, are the processor's. */
int exact_name(struct exact_rows *rows, const struct exact_request *request, struct quire_error *err);

/* The work of n queries: what the device does once the rows are there, or codes of so many bits, and what bringing them
 * there is. */
void exact_work(const struct segment *segment, unsigned bits, uint32_t n, struct offload_work *search,
                struct offload_work *load);

#endif
