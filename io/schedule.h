/* schedule.h - what threads ask of the kernel's scheduler. */
#ifndef QUIRE_IO_SCHEDULE_H
#define QUIRE_IO_SCHEDULE_H

/* The calling thread runs at once when it wakes: with a short slice the kernel (6.12 and later, EEVDF) lets it take the
 * processor from threads that work in the background, instead of letting those finish their milliseconds. For threads
 * that others wait for and that work for microseconds. Other kernels ignore it; it is never an error. */
void schedule_short_slices(void);

#endif
