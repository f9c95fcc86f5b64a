/*
 * doc_pages.c - arrays by document id without those who have gone.
 */
#include "document/fields/doc_pages.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const struct doc_pages *pages, uint64_t has)
{
    return sizeof(struct doc_page) + (size_t)__builtin_popcountll(has) * pages->item_bytes;
}

void *doc_pages_make(struct doc_pages *pages, uint32_t id)
{
    uint32_t at = id / DOC_PAGE;
    assert(pages->item_bytes > 0);
    if (at >= pages->n_pages) {
        if (!array_reserve(&pages->pages, &pages->capacity, (size_t)at + 1))
            return NULL;
        memset(&pages->pages[pages->n_pages], 0, (at + 1 - pages->n_pages) * sizeof(struct doc_page *));
        pages->n_pages = at + 1;
    }
    if (!pages->pages[at]) {
        struct doc_page *page = calloc(1, bytes_of(pages, UINT64_MAX));
        if (!page)
            return NULL;
        page->has = UINT64_MAX;
        pages->pages[at] = page;
        pages->page_bytes += bytes_of(pages, page->has);
    }
    assert(pages->pages[at]->has == UINT64_MAX);
    return doc_pages_at(pages, id);
}

/* Only items of these bits stay. Without memory for a smaller page it stays as it is. */
static void cut_page(struct doc_pages *pages, uint32_t at, uint64_t has)
{
    struct doc_page *page = pages->pages[at], *cut = NULL;
    uint8_t *to;
    has &= page->has;
    if (has == page->has)
        return;
    if (has != 0) {
        cut = malloc(bytes_of(pages, has));
        if (!cut)
            return;
        cut->has = has;
        to = cut->items;
        for (uint64_t left = has; left; left &= left - 1, to += pages->item_bytes)
            memcpy(to, doc_pages_at(pages, at * DOC_PAGE + (uint32_t)__builtin_ctzll(left)), pages->item_bytes);
    }
    pages->page_bytes -= bytes_of(pages, page->has);
    pages->page_bytes += cut ? bytes_of(pages, has) : 0;
    free(page);
    pages->pages[at] = cut;
}

void doc_pages_purge(struct doc_pages *pages, uint32_t first, uint32_t n, const struct doc_set *kept, uint32_t end)
{
    for (uint32_t at = first; at < pages->n_pages && at - first < n; at++) {
        if ((uint64_t)(at + 1) * DOC_PAGE > end)
            return;
        if (pages->pages[at])
            cut_page(pages, at, doc_set_word(kept, at));
    }
}

uint64_t doc_pages_bytes(const struct doc_pages *pages)
{
    return pages->page_bytes + pages->capacity * (uint64_t)sizeof(struct doc_page *);
}

void doc_pages_fini(struct doc_pages *pages)
{
    for (uint32_t i = 0; i < pages->n_pages; i++)
        free(pages->pages[i]);
    free(pages->pages);
    *pages = (struct doc_pages){.item_bytes = pages->item_bytes};
}
