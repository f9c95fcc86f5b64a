/* support_document.h - documents that follow from a number, so that what is read back can be told right from wrong. */
#ifndef QUIRE_TESTS_SUPPORT_DOCUMENT_H
#define QUIRE_TESTS_SUPPORT_DOCUMENT_H

#include "cache/document/document.h"

/* Encodes the document of `id`: the same id and expiry, the same bytes. About `room` bytes of text and chunks at most.
 * Owned by the caller. */
uint8_t *support_document(uint64_t id, uint64_t expire_ms, size_t room, uint32_t *n_bytes);
/* Whether bytes are exactly those that support_document gives. */
bool support_document_same(uint64_t id, uint64_t expire_ms, size_t room, const uint8_t *bytes, size_t n_bytes);

#endif
