/*
 * policy_route.h - the category of a request: its header, else the first rule that fits, else the default.
 */
#ifndef QUIRE_GATEWAY_POLICY_ROUTE_H
#define QUIRE_GATEWAY_POLICY_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

/* A text with * (any bytes) and ? (one byte). Linear in text times stars, no recursion. */
bool policy_glob(const char *pattern, const char *text, size_t bytes);

/* NULL: fits any. */
struct policy_rule {
    const char *path, *model, *tenant, *system; /* globs; system also "sha256:" and the text's hash in hexadecimal */
    const char *category;
};

struct policy_asked {
    const char *path, *model, *tenant, *system; /* NULL: not there, which only a rule without it fits */
    size_t path_bytes, model_bytes, tenant_bytes, system_bytes;
};

/* The category of the first rule that fits; NULL: none does. */
const char *policy_route(const struct policy_rule *rules, unsigned n, const struct policy_asked *asked);

/* Whether a name is in a list with blanks between. */
bool policy_in_list(const char *list, const char *name);

#endif
