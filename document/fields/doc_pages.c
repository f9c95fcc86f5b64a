/*
 * doc_pages.c - arrays by document id without the parts where no document is left.
 */
#include "document/fields/doc_pages.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

void *doc_pages_make(struct doc_pages *pages, uint32_t id)
{
    uint32_t page = id / DOC_PAGE;
    assert(pages->item_bytes > 0);
    if (page >= pages->n_pages) {
        if (!array_reserve(&pages->pages, &pages->capacity, (size_t)page + 1))
            return NULL;
        memset(&pages->pages[pages->n_pages], 0, (page + 1 - pages->n_pages) * sizeof *pages->pages);
        pages->n_pages = page + 1;
    }
    if (!pages->pages[page]) {
        pages->pages[page] = calloc(DOC_PAGE, pages->item_bytes);
        pages->n_made += pages->pages[page] != NULL;
    }
    return doc_pages_at(pages, id);
}

/* Whether an id from `first` on, below `end`, is in the set. */
static bool any_between(const struct doc_set *set, uint32_t first, uint32_t end)
{
    for (uint32_t id = first; id < end; id++)
        if (doc_set_has(set, id))
            return true;
    return false;
}

void doc_pages_drop(struct doc_pages *pages, uint32_t first, uint32_t n, const struct doc_set *kept, uint32_t end)
{
    for (uint32_t page = first; page < pages->n_pages && page - first < n; page++) {
        if ((uint64_t)(page + 1) * DOC_PAGE > end)
            return;
        if (!pages->pages[page] || any_between(kept, page * DOC_PAGE, (page + 1) * DOC_PAGE))
            continue;
        free(pages->pages[page]);
        pages->pages[page] = NULL;
        pages->n_made--;
    }
}

uint64_t doc_pages_bytes(const struct doc_pages *pages)
{
    return (uint64_t)pages->n_made * DOC_PAGE * pages->item_bytes + pages->capacity * (uint64_t)sizeof *pages->pages;
}

void doc_pages_fini(struct doc_pages *pages)
{
    for (uint32_t i = 0; i < pages->n_pages; i++)
        free(pages->pages[i]);
    free(pages->pages);
    *pages = (struct doc_pages){.item_bytes = pages->item_bytes};
}
