/*
 * fields_list.h - header fields of a request or an answer, in the order in which they came.
 *
 * Names are looked up whatever their case and written as they came. Values hold no NUL, CR or LF: the parser refuses
 * them, and fields_append does. All of them lie in one block of memory, so a head of 2 KiB costs about 2 KiB.
 */
#ifndef QUIRE_GATEWAY_FIELDS_H
#define QUIRE_GATEWAY_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fields {
    char *text; /* name NUL value NUL, one after the other */
    size_t text_bytes, text_capacity;
    uint32_t *places; /* of the names, in text */
    uint32_t n, capacity;
};

/* Zeros are no fields. */
void fields_fini(struct fields *fields);
/* Forgets all, keeps the memory. */
void fields_clear(struct fields *fields);

/* Copies both. False without memory, and where the name is no token or the value holds a control character other than
 * a tab: nothing has changed. */
bool fields_append(struct fields *fields, const char *name, const char *value);
bool fields_add_bytes(struct fields *fields, const char *name, size_t name_bytes, const char *value,
                      size_t value_bytes);
/* The same with a printed value of at most 1,000 bytes. */
bool fields_print(struct fields *fields, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds, or replaces what has this name. */
bool fields_set(struct fields *fields, const char *name, const char *value);
/* Removes all of this name; how many there were. */
uint32_t fields_drop(struct fields *fields, const char *name);

/* As much of a text as there is room for, with a NUL behind it, fit for a header: what is not printable ASCII becomes
 * '?'. Texts quote what clients and upstreams sent, which need not even be UTF-8. `out` may be `text`. */
void fields_printable(char *out, size_t room, const char *text);

/* i < fields->n. Valid until the fields change. */
const char *fields_name(const struct fields *fields, uint32_t i);
const char *fields_value(const struct fields *fields, uint32_t i);
/* The first value of this name, NULL where there is none. */
const char *fields_get(const struct fields *fields, const char *name);
/* How many there are of it. */
uint32_t fields_count(const struct fields *fields, const char *name);
/* Whether a list in one of the fields of this name ("Connection: close, x") has this word, whatever its case. */
bool fields_has_word(const struct fields *fields, const char *name, const char *word);

/* Whether a field ends at the next machine (RFC 9110 7.6.1): Connection and what it names, Keep-Alive, TE, Trailer,
 * Transfer-Encoding, Upgrade, Proxy-Connection, Proxy-Authorization, Proxy-Authenticate. */
bool fields_is_hop(const struct fields *fields, const char *name);
/* Adds to `out` what of `in` goes on to an upstream, in order: all but those of the hop, Host, Content-Length and
 * Expect; and Accept-Encoding where `plain`, since a compressed answer can be neither read nor kept. False without
 * memory. */
bool fields_forward(const struct fields *in, struct fields *out, bool plain);
/* The field in which a request shows its key, for one of our own to be put in its place: "x-api-key", "api-key" or
 * "Authorization", the first of them that is there, and the last where none is. */
const char *fields_credential(const struct fields *fields);
/* Puts a key in the place of whatever credential there is, in the field of fields_credential ("Bearer KEY" in
 * Authorization). False without memory, and where the key is no value of a field: then no credential is left. */
bool fields_set_key(struct fields *fields, const char *key);
/* Adds to `out` what of an upstream's answer goes on to the client: all but those of the hop and Content-Length. */
bool fields_return(const struct fields *in, struct fields *out);

#endif
