/*
 * doc_pages.h - something of fixed size per document id, in pages that exist where documents do.
 *
 * A page is of 64 ids. Once no new ones come to it, it is cut down to those that live: a bit for each id says whether
 * it has an item, and the bits below say which (the idea of hash array mapped tries: Bagwell, 2001). So ids that have
 * died cost nothing for long, whichever they are; only the list of pages is as long as the largest id.
 */
#ifndef QUIRE_DOCUMENT_DOC_PAGES_H
#define QUIRE_DOCUMENT_DOC_PAGES_H

#include "document/fields/doc_set.h"

#define DOC_PAGE 64u /* ids */

struct doc_page {
    uint64_t has; /* a bit for each id with an item; all of them until it is cut down */
    uint8_t items[];
};
/* Zeroed before first use, with item_bytes set: a multiple of 4. */
struct doc_pages {
    uint32_t item_bytes;
    uint32_t n_pages, capacity;
    struct doc_page **pages; /* owned; NULL where no document is */
    uint64_t page_bytes;
};

/* The item of an id; NULL: it has none. */
static inline void *doc_pages_at(const struct doc_pages *pages, uint32_t id)
{
    struct doc_page *page = id / DOC_PAGE < pages->n_pages ? pages->pages[id / DOC_PAGE] : NULL;
    uint64_t bit = UINT64_C(1) << (id % DOC_PAGE);
    if (!page || !(page->has & bit))
        return NULL;
    return page->items + (size_t)__builtin_popcountll(page->has & (bit - 1)) * pages->item_bytes;
}
/* The item of an id above `end` of every doc_pages_purge, zeroed if its page is made for it; NULL without memory. */
void *doc_pages_make(struct doc_pages *pages, uint32_t id);
/* Of the pages first .. first + n - 1 that end at or before `end`: items of ids that are not in `kept` go. */
void doc_pages_purge(struct doc_pages *pages, uint32_t first, uint32_t n, const struct doc_set *kept, uint32_t end);
uint64_t doc_pages_bytes(const struct doc_pages *pages);
void doc_pages_fini(struct doc_pages *pages);

#endif
