/*
 * doc_pages.h - something of fixed size per document id, in pages that exist where documents do.
 */
#ifndef QUIRE_DOCUMENT_DOC_PAGES_H
#define QUIRE_DOCUMENT_DOC_PAGES_H

#include "document/fields/doc_set.h"

#define DOC_PAGE 1024u /* ids */

/* Zeroed before first use, with item_bytes set. */
struct doc_pages {
    uint32_t item_bytes;
    uint32_t n_pages; /* of the directory; NULL where no page is */
    uint32_t capacity, n_made;
    uint8_t **pages; /* owned */
};

/* The item of an id; NULL where there is no page. */
static inline void *doc_pages_at(const struct doc_pages *pages, uint32_t id)
{
    uint8_t *page = id / DOC_PAGE < pages->n_pages ? pages->pages[id / DOC_PAGE] : NULL;
    return page ? page + (size_t)(id % DOC_PAGE) * pages->item_bytes : NULL;
}
/* The item of an id, zeroed if its page is made for it; NULL without memory. */
void *doc_pages_make(struct doc_pages *pages, uint32_t id);
/* Frees those among the pages first .. first + n - 1 that hold no id of `kept` and end at or before `end`. */
void doc_pages_drop(struct doc_pages *pages, uint32_t first, uint32_t n, const struct doc_set *kept, uint32_t end);
uint64_t doc_pages_bytes(const struct doc_pages *pages);
void doc_pages_fini(struct doc_pages *pages);

#endif
