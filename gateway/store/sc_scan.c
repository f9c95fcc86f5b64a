/* sc_scan.c - where a reply of RESP3 ends. */
#include "gateway/store/sc_scan.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX (INT64_C(1) << 40)

char *sc_scan_room(struct sc_scan *scan, size_t bytes)
{
    if (scan->capacity - scan->n < bytes) {
        size_t capacity = scan->capacity ? scan->capacity * 2 : 4096;
        while (capacity < scan->n + bytes)
            capacity *= 2;
        char *grown = realloc(scan->bytes, capacity);
        if (!grown)
            return NULL;
        scan->bytes = grown;
        scan->capacity = capacity;
    }
    return scan->bytes + scan->n;
}

static bool number_of(const char *text, size_t n, int64_t *out)
{
    bool minus = n > 0 && *text == '-';
    uint64_t value = 0;
    if (n == (size_t)minus || n - (size_t)minus > 19)
        return false;
    for (size_t i = minus; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (value > (uint64_t)INT64_MAX)
        return false;
    *out = minus ? -(int64_t)value : (int64_t)value;
    return true;
}

bool sc_scan_line(const char *bytes, size_t n, struct sc_line *out, bool *broken)
{
    const char *end = n > 0 ? memchr(bytes, '\r', n) : NULL;
    *broken = false;
    if (!end || (size_t)(end - bytes) + 1 >= n)
        return false;
    *out = (struct sc_line){.type = *bytes, .bytes = (size_t)(end - bytes) + 2};
    bool counts = strchr(":$*%~>=!", *bytes) && *bytes;
    if (end == bytes || end[1] != '\n' || (!counts && !strchr("+-,#_(", *bytes)) ||
        (counts && !number_of(bytes + 1, (size_t)(end - bytes) - 1, &out->number)))
        *broken = true;
    return !*broken;
}

/* A value has ended: and with it those that it was the last of. True: the whole reply has. */
static bool ended(struct sc_scan *scan)
{
    while (scan->depth > 0 && --scan->left[scan->depth - 1] == 0)
        scan->depth--;
    return scan->depth == 0;
}

enum sc_scanned sc_scan_next(struct sc_scan *scan)
{
    for (;;) {
        struct sc_line line;
        bool broken, closes = true;
        if (!sc_scan_line(scan->bytes + scan->at, scan->n - scan->at, &line, &broken))
            return broken ? SC_SCAN_BROKEN : SC_SCAN_MORE;
        size_t bytes = line.bytes;
        if (strchr("$=!", line.type)) {
            if (line.number > NUMBER_MAX || line.number < -1)
                return SC_SCAN_BROKEN;
            if (line.number >= 0)
                bytes += (size_t)line.number + 2;
            if (bytes > scan->n - scan->at)
                return SC_SCAN_MORE;
        } else if (strchr("*%~>", line.type) && line.number > 0) {
            if (scan->depth == SC_SCAN_DEPTH || line.number > NUMBER_MAX)
                return SC_SCAN_BROKEN;
            scan->left[scan->depth++] = (uint64_t)line.number * (line.type == '%' ? 2 : 1);
            closes = false;
        }
        scan->at += bytes;
        if (closes && ended(scan))
            return SC_SCAN_WHOLE;
    }
}

void sc_scan_drop(struct sc_scan *scan)
{
    assert(scan->depth == 0 && scan->at <= scan->n);
    if (scan->at < scan->n)
        memmove(scan->bytes, scan->bytes + scan->at, scan->n - scan->at);
    scan->n -= scan->at;
    scan->at = 0;
    if (scan->n == 0 && scan->capacity > 65536) {
        free(scan->bytes); /* a large reply is rare */
        scan->bytes = NULL;
        scan->capacity = 0;
    }
}

void sc_scan_fini(struct sc_scan *scan)
{
    free(scan->bytes);
    *scan = (struct sc_scan){0};
}
