/*
 * policy_diagnosis.c - finds the time of day in a system prompt, without showing the prompt.
 */
#include "gateway/policy/policy_diagnosis.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES   160u
#define AROUND_BYTES 12u

struct diagnosis {
    char tenant[NAME_BYTES];
    uint64_t compat[POLICY_DIAGNOSIS_REQUESTS]; /* a ring */
    unsigned n, next;
    char *system;
    size_t system_bytes;
    int64_t differs_at;                /* -1: no two were alike enough to tell */
    char around[2 * AROUND_BYTES + 1]; /* the kinds of bytes there */
    uint64_t used;                     /* by the order of use */
    bool differed;                     /* the last whole hundred did */
};

struct policy_diagnoses {
    struct diagnosis *tenants;
    unsigned n, n_max;
    uint64_t clock;
};

struct policy_diagnoses *policy_diagnoses_create(unsigned tenants_max)
{
    struct policy_diagnoses *diagnoses = calloc(1, sizeof *diagnoses);
    if (!diagnoses)
        return NULL;
    diagnoses->n_max = tenants_max > 0 ? tenants_max : 1;
    diagnoses->tenants = calloc(diagnoses->n_max, sizeof *diagnoses->tenants);
    if (!diagnoses->tenants) {
        free(diagnoses);
        return NULL;
    }
    return diagnoses;
}

void policy_diagnoses_destroy(struct policy_diagnoses *diagnoses)
{
    if (!diagnoses)
        return;
    for (unsigned i = 0; i < diagnoses->n; i++)
        free(diagnoses->tenants[i].system);
    free(diagnoses->tenants);
    free(diagnoses);
}

static struct diagnosis *known(const struct policy_diagnoses *diagnoses, const char *tenant)
{
    for (unsigned i = 0; i < diagnoses->n; i++)
        if (strncmp(diagnoses->tenants[i].tenant, tenant, NAME_BYTES - 1) == 0)
            return &diagnoses->tenants[i];
    return NULL;
}

/* That of the tenant, or of the longest unused one, begun anew. */
static struct diagnosis *take(struct policy_diagnoses *diagnoses, const char *tenant)
{
    struct diagnosis *d = known(diagnoses, tenant);
    if (!d) {
        d = &diagnoses->tenants[0];
        if (diagnoses->n < diagnoses->n_max)
            d = &diagnoses->tenants[diagnoses->n++];
        else
            for (unsigned i = 1; i < diagnoses->n; i++)
                if (diagnoses->tenants[i].used < d->used)
                    d = &diagnoses->tenants[i];
        free(d->system);
        *d = (struct diagnosis){.differs_at = -1};
        snprintf(d->tenant, sizeof d->tenant, "%s", tenant);
    }
    d->used = ++diagnoses->clock;
    return d;
}

static char kind_of(char c)
{
    unsigned char u = (unsigned char)c;
    return isdigit(u) ? '9' : isalpha(u) || u >= 0x80 ? 'a' : isspace(u) ? '_' : isprint(u) ? c : '.';
}

/* Texts that begin differently are texts of different uses and say nothing. */
static void compare(struct diagnosis *d, const char *system, size_t bytes)
{
    size_t least = bytes < d->system_bytes ? bytes : d->system_bytes, at = 0, from, n = 0;
    while (at < least && system[at] == d->system[at])
        at++;
    if (at == least || at < least / 8)
        return;
    d->differs_at = (int64_t)at;
    from = at > AROUND_BYTES ? at - AROUND_BYTES : 0;
    for (size_t i = from; i < bytes && i < at + AROUND_BYTES; i++)
        d->around[n++] = kind_of(system[i]);
    d->around[n] = 0;
}

static void take_system(struct diagnosis *d, const char *system, size_t system_bytes)
{
    size_t bytes = system_bytes < POLICY_DIAGNOSIS_BYTES ? system_bytes : POLICY_DIAGNOSIS_BYTES;
    if (!system || bytes == 0)
        return;
    if (d->system)
        compare(d, system, bytes);
    if (!d->system || d->system_bytes < bytes) {
        char *grown = realloc(d->system, bytes);
        if (!grown)
            return;
        d->system = grown;
    }
    memcpy(d->system, system, bytes);
    d->system_bytes = bytes;
}

static bool all_differ(const struct diagnosis *d)
{
    for (unsigned i = 1; i < d->n; i++)
        for (unsigned j = 0; j < i; j++)
            if (d->compat[i] == d->compat[j])
                return false;
    return true;
}

bool policy_diagnosis_add(struct policy_diagnoses *diagnoses, const char *tenant, const uint8_t compat[32],
                          const char *system, size_t system_bytes)
{
    struct diagnosis *d = take(diagnoses, tenant);
    bool differed = d->differed;
    memcpy(&d->compat[d->next], compat, sizeof *d->compat);
    d->next = (d->next + 1) % POLICY_DIAGNOSIS_REQUESTS;
    d->n += d->n < POLICY_DIAGNOSIS_REQUESTS;
    take_system(d, system, system_bytes);
    if (d->next == 0) /* a hundred are compared with each other once, not at each request */
        d->differed = all_differ(d);
    return d->differed && !differed;
}

static bool say(const struct diagnosis *d, char *out, size_t out_bytes)
{
    if (d->n < POLICY_DIAGNOSIS_REQUESTS || !all_differ(d))
        return false;
    if (d->differs_at >= 0)
        snprintf(out, out_bytes,
                 "the last %u requests had %u different contexts: the system text changes at byte %lld, where it looks "
                 "like '%s' (9 a digit, a a letter, _ a blank); a time there? see the setting mask",
                 d->n, d->n, (long long)d->differs_at, d->around);
    else
        snprintf(
            out, out_bytes,
            "the last %u requests had %u different contexts, so that nothing can be found by nearness; their system "
            "texts do not show why: history, tools or parameters differ",
            d->n, d->n);
    return true;
}

bool policy_diagnosis_of(const struct policy_diagnoses *diagnoses, const char *tenant, char *out, size_t out_bytes)
{
    const struct diagnosis *d = known(diagnoses, tenant);
    return d && say(d, out, out_bytes);
}

void policy_diagnosis_each(const struct policy_diagnoses *diagnoses,
                           void (*tell)(void *context, const char *tenant, const char *sentence), void *context)
{
    char sentence[400];
    for (unsigned i = 0; i < diagnoses->n; i++)
        if (say(&diagnoses->tenants[i], sentence, sizeof sentence))
            tell(context, diagnoses->tenants[i].tenant, sentence);
}
