/*
 * guard.c - from a text to its features.
 *
 * Features are records, each a tag, the bytes of its payload, and the payload, in the order of tag and payload; what a
 * tag means stands in guard_priv.h. They hold words of the text, not numbers of table rows, so that features kept with
 * an entry stay right when the tables change, and can explain themselves. The same record is kept once, but for
 * numbers, whose count matters.
 *
 * A text with more than fits (more than GUARD_BYTES of records, or more words than a reader holds) gets one record, a
 * hash of the whole text: it agrees with itself only. Leaving out what does not fit would let two long prompts agree
 * that differ in their last number.
 *
 * Everything lies on the stack (about 75 KiB); nothing is allocated.
 */
#include "cache/guard/guard_priv.h"
#include <assert.h>
#include <xxhash.h>

static const char *const names[GUARD_KINDS] = {"number", "negation", "literal", "date", "language"};

const char *guard_name(enum guard_kind kind)
{
    return (unsigned)kind < GUARD_KINDS ? names[kind] : "unknown";
}

unsigned guard_find(struct quire_bytes name)
{
    for (unsigned i = 0; i < GUARD_KINDS; i++)
        if (text_equal(text_of(names[i]), name))
            return 1u << i;
    return 0;
}

void guard_emit(struct guard_reader *r, uint8_t tag, const void *payload, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    size_t kept = bytes > GUARD_PAYLOAD ? GUARD_PAYLOAD : bytes;
    if (r->n_records == GUARD_RECORDS || r->n_payload + kept > sizeof r->payload) {
        r->overflow = true;
        return;
    }
    assert(r->n_records < GUARD_RECORDS && kept <= UINT8_MAX);
    uint8_t *at = r->payload + r->n_payload;
    memcpy(at, payload, kept);
    if (bytes > kept) { /* the begin, and a hash of it all */
        uint64_t hash = XXH3_64bits(payload, bytes);
        for (unsigned i = 0; i < 16; i++)
            at[GUARD_PAYLOAD - 16 + i] = (uint8_t)digits[hash >> 4 * i & 15];
        at[GUARD_PAYLOAD - 17] = '~';
    }
    r->records[r->n_records++] = (struct guard_record){tag, (uint8_t)kept, (uint16_t)r->n_payload};
    r->n_payload += (uint32_t)kept;
}

static int compare_records(const struct guard_reader *r, const struct guard_record *a, const struct guard_record *b)
{
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    int order = memcmp(r->payload + a->at, r->payload + b->at, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : (int)a->bytes - (int)b->bytes;
}

static uint32_t whole(struct quire_bytes text, uint8_t *out)
{
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text.data, text.n_bytes));
    out[0] = RECORD_WHOLE;
    out[1] = sizeof hash;
    memcpy(out + 2, &hash, sizeof hash);
    return 2 + sizeof hash;
}

static uint32_t write_records(struct guard_reader *r, uint8_t out[GUARD_BYTES])
{
    uint32_t bytes = 0;
    for (uint32_t i = 1; i < r->n_records; i++) { /* at most 64: insertion */
        struct guard_record record = r->records[i];
        uint32_t at = i;
        for (; at > 0 && compare_records(r, &r->records[at - 1], &record) > 0; at--)
            r->records[at] = r->records[at - 1];
        r->records[at] = record;
    }
    for (uint32_t i = 0; i < r->n_records; i++) {
        const struct guard_record *record = &r->records[i];
        if (i > 0 && record->tag != RECORD_NUMBER && compare_records(r, record - 1, record) == 0)
            continue;
        if (bytes + 2u + record->bytes > GUARD_BYTES)
            return 0;
        out[bytes++] = record->tag;
        out[bytes++] = record->bytes;
        memcpy(out + bytes, r->payload + record->at, record->bytes);
        bytes += record->bytes;
    }
    return bytes;
}

uint32_t guard_features(const struct guard_tables *tables, struct quire_bytes text, uint8_t out[GUARD_BYTES])
{
    struct guard_reader r;
    if (text.n_bytes > GUARD_TEXT_BYTES)
        return whole(text, out);
    r.tables = tables;
    r.text = text;
    r.n_tokens = r.n_records = r.n_payload = 0;
    r.overflow = r.shouting = r.titled = false;
    memset(r.language, 0, sizeof r.language);
    guard_split(&r);
    guard_read_language(&r);
    guard_read_negations(&r);
    guard_read_dates(&r);
    guard_read_numbers(&r);
    guard_read_literals(&r);
    uint32_t bytes = r.overflow ? 0 : write_records(&r, out);
    return bytes == 0 && (r.overflow || r.n_records > 0) ? whole(text, out) : bytes;
}
