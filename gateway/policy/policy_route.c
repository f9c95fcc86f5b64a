/*
 * policy_route.c - rules that give a request its category.
 *
 * The glob keeps one place to go back to, the last star, which is enough: what an earlier star could take more of, the
 * later one can, too. So it takes at most text times pattern steps, whatever the pattern is.
 */
#include "gateway/policy/policy_route.h"
#include <openssl/sha.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool policy_glob(const char *pattern, const char *text, size_t bytes)
{
    const char *star = NULL;
    size_t at = 0, from = 0;
    while (at < bytes) {
        if (*pattern == '*') {
            star = pattern++;
            from = at;
        } else if (*pattern && (*pattern == '?' || *pattern == text[at])) {
            pattern++;
            at++;
        } else if (star) {
            pattern = star + 1;
            at = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

static bool fits(const char *pattern, const char *text, size_t bytes)
{
    return !pattern || (text && policy_glob(pattern, text, bytes));
}

/* "sha256:" and 64 digits: that very text, for system texts that should not stand in a settings file. */
static bool fits_system(const char *pattern, const char *text, size_t bytes)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    char hex[2 * SHA256_DIGEST_LENGTH + 1];
    if (!pattern || !text || strncmp(pattern, "sha256:", 7) != 0)
        return fits(pattern, text, bytes);
    if (!SHA256((const uint8_t *)text, bytes, hash))
        return false;
    for (unsigned i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    return strcasecmp(pattern + 7, hex) == 0;
}

const char *policy_route(const struct policy_rule *rules, unsigned n, const struct policy_asked *asked)
{
    for (unsigned i = 0; i < n; i++)
        if (fits(rules[i].path, asked->path, asked->path_bytes) &&
            fits(rules[i].model, asked->model, asked->model_bytes) &&
            fits(rules[i].tenant, asked->tenant, asked->tenant_bytes) &&
            fits_system(rules[i].system, asked->system, asked->system_bytes))
            return rules[i].category;
    return NULL;
}

bool policy_in_list(const char *list, const char *name)
{
    size_t bytes = strlen(name);
    while (*list) {
        size_t n = strcspn(list, " ");
        if (n == bytes && memcmp(list, name, n) == 0 && n > 0)
            return true;
        list += n;
        list += strspn(list, " ");
    }
    return false;
}
