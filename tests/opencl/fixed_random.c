/*
 * fixed_random.c - in front of a program: the C library's random bytes are always the same.
 *
 * A build gives its segment a random number, which is in every page and checksum. With this, two builds of the same
 * rows can be compared byte for byte (same_index.sh).
 */
#include <string.h>
#include <sys/random.h>

ssize_t getrandom(void *buffer, size_t bytes, unsigned int flags)
{
    (void)flags;
    memset(buffer, 7, bytes);
    return (ssize_t)bytes;
}
