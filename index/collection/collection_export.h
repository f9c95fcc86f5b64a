/*
 * collection_export.h - a collection as its elements at one moment, and elements on their way into another: what DUMP,
 * RESTORE and COPY are made of.
 *
 * A vector travels in the form in which memtables keep it (memtable.h), so that it is not rounded again; one that lies
 * in a segment in another form is brought into that first. What the form is follows from the collection's config
 * alone: another collection with the same config takes it as it is. Grants travel by name; those that are void stay
 * behind.
 */
#ifndef QUIRE_INDEX_COLLECTION_EXPORT_H
#define QUIRE_INDEX_COLLECTION_EXPORT_H

#include "index/collection/collection.h"

struct exported_element {
    const void *key;
    uint32_t key_bytes;
    const void *stored; /* collection_stored_bytes */
    /* What is the same of the vector wherever the element lies and has been: its unit code with length, or the numbers
     * of the collection's slots. NULL where slots are other codes, which are rounded anew when they move (l2 and ip
     * with slot q8). Of no account for an import. */
    const void *exact;
    uint32_t exact_bytes;
    const struct grant *grants;
    uint32_t n_grants;
    const void *attributes; /* JSON; NULL: none */
    uint32_t attribute_bytes;
};

/* What a collection is (config and schema) as bytes, owned by the caller, NULL without memory; and what such bytes say:
 * *schema is owned by the caller. */
uint8_t *collection_export_shape(const struct collection *collection, uint32_t *n_bytes);
int collection_import_shape(const uint8_t *bytes, uint32_t n, struct collection_config *config,
                            struct attribute_schema **schema, struct quire_error *err);

/* Bytes of a vector in the form in which it is kept. */
uint32_t collection_stored_bytes(const struct collection *collection);

/* Visits each element that is anybody's (or has no grants), in no order, as of the moment the call begins,
 * whatever is written meanwhile; reads every block. Ends with what visit answers if that is not 0. What an element
 * points to is valid during the visit, which may take long and may write. Blocks: not for lanes. */
int collection_export_all(struct collection *collection,
                          int (*visit)(void *context, const struct exported_element *element), void *context,
                          struct quire_error *err);

/* The same in steps, as of the moment of begin; the caller keeps its reference to the collection until the end. */
struct collection_export;
int collection_export_begin(struct collection *collection,
                            int (*visit)(void *context, const struct exported_element *element), void *context,
                            struct collection_export **out, struct quire_error *err);
/* Its two halves, each once: what was in memory, without the disk, and what lies in segments. Writes of the same frame
 * of the log (of a transaction) are told apart only if the first half is taken before them. */
int collection_export_memory(struct collection_export *export, struct quire_error *err);
bool collection_export_has_sealed(const struct collection_export *export);
int collection_export_sealed(struct collection_export *export, struct quire_error *err);
void collection_export_end(struct collection_export *export); /* NULL is fine */

/* Puts elements into a collection that nobody else writes to. Blocks, where a key might be in a segment. */
struct collection_import;
int collection_import_begin(struct collection *collection, struct collection_import **out, struct quire_error *err);
/* QUIRE_EEXISTS: there is such a key already; others as collection_put. Bytes are not believed. */
int collection_import_element(struct collection_import *import, const struct exported_element *element,
                              struct quire_error *err);
void collection_import_end(struct collection_import *import); /* NULL is fine */

#endif
