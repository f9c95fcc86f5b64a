/*
 * sc_setup.h - makes the cache and its categories where they are not there yet, and knows what the categories are.
 *
 * What is there is never changed: an operator's SC.CAT.SET stands, and where it differs from what a category would be
 * made with, that is said. The list of categories, their modes and deadlines is
 * read again every so often, so that a category made by hand is known soon.
 */
#ifndef QUIRE_GATEWAY_SC_SETUP_H
#define QUIRE_GATEWAY_SC_SETUP_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct sc_client;
struct sc_setup;

#define SC_NAME_BYTES_MAX 128u

struct sc_category {
    char name[SC_NAME_BYTES_MAX];
    bool near;    /* its mode is semantic or both: a vector is of use */
    bool by_risk; /* its threshold follows from RISK */
    bool exact;   /* its mode is exact or both */
    uint64_t lease_ms;
    uint64_t stale_error_ms; /* 0: never */
};

struct sc_setup_options {
    const char *cache;   /* copied */
    const char *encoder; /* name@rev, or NULL: none; copied */
    uint32_t dim;        /* of the encoder; SC_SETUP_DIM_NONE where there is none */
    /* Categories to make where they are absent: name, then settings as SC.CAT.SET takes them. Copied. */
    const char *const *categories;
    unsigned n_categories;
    unsigned refresh_ms;
    unsigned deadline_ms; /* of each command */
    /* A category was there with other settings than those above: a sentence, once until it is another. NULL: nobody is
     * told. */
    void (*differs)(void *context, const char *sentence);
    void *context;
};
#define SC_SETUP_DIM_NONE 2u

/* Begins at once and again after each reconnection. QUIRE_ENOMEM. */
int sc_setup_create(struct event_base *base, struct sc_client *client, const struct sc_setup_options *options,
                    struct sc_setup **out, struct quire_error *err);
void sc_setup_destroy(struct sc_setup *setup); /* NULL is fine; before its client */

/* The encoder became known (its dimension comes from its first vector): the cache may be made now. */
void sc_setup_encoder(struct sc_setup *setup, const char *encoder, uint32_t dim);

/* NULL: there is none of that name (or nothing is known yet). A category "*" of the cache answers for unknown names. */
const struct sc_category *sc_setup_category(const struct sc_setup *setup, const char *name, size_t bytes);
/* Names, ", " between, at most out_bytes - 1 of them. */
void sc_setup_names(const struct sc_setup *setup, char *out, size_t out_bytes);

/* Calls back with a sentence for each category that was there with other settings than it would be made with. */
void sc_setup_each_difference(const struct sc_setup *setup, void (*tell)(void *context, const char *sentence),
                              void *context);

/* Whether the cache is there and its categories are known; *why: a sentence where not, else NULL. */
bool sc_setup_ready(const struct sc_setup *setup, const char **why);
/* Whether vectors may be sent: the cache's dimension and encoder are the encoder's. *why as above. */
bool sc_setup_takes_vectors(const struct sc_setup *setup, const char **why);

#endif
