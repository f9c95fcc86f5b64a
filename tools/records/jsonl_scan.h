/* jsonl_scan.h - a JSON text cut into its values, without a tree: where each begins and ends. */
#ifndef QUIRE_TOOLS_RECORDS_JSONL_SCAN_H
#define QUIRE_TOOLS_RECORDS_JSONL_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct jsonl_span {
    const char *at;
    size_t bytes;
};

/* Moves *at behind white space. */
void jsonl_skip_space(const char **at, const char *end);
/* The value at *at, which is moved behind it. Brackets and quotes are matched; what stands inside is left to whoever
 * uses it. False: there is none. */
bool jsonl_value(const char **at, const char *end, struct jsonl_span *out);
/* The next field of an object; *at is behind its '{' at first. 1; 0: behind its '}'; -1: not JSON. The name keeps its
 * quotes. */
int jsonl_field(const char **at, const char *end, bool first, struct jsonl_span *name, struct jsonl_span *value);
/* Numbers of an array as floats. -1: it is no array of numbers; -2: more than `capacity`; otherwise how many. */
long jsonl_numbers(const struct jsonl_span *array, float *out, size_t capacity);

#endif
