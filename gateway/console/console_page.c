/*
 * console_page.c - the page at /ui: one file of HTML with its style and script inside.
 *
 * What a browser may do with it is said by the policy: run this script, use this style (both by their hashes, made here
 * at the start), ask this origin; nothing else, and within no other page.
 */
#include "gateway/console/console_priv.h"
#include "io/error.h"
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASHES_BYTES 400

extern const char console_page_plain[], console_page_plain_end[], console_page_gzip[], console_page_gzip_end[];

struct console_page {
    char etag[40], etag_gzip[40];
    char policy[1200];
};

/* " 'sha256-...'" of what stands between each <name> and </name>. */
static bool add_hashes(const char *page, size_t n, const char *name, char *out, size_t room)
{
    char begin[16], end[16];
    size_t used = 0;
    *out = 0;
    snprintf(begin, sizeof begin, "<%s>", name);
    snprintf(end, sizeof end, "</%s>", name);
    for (const char *at = page, *stop; (at = memmem(at, n - (size_t)(at - page), begin, strlen(begin))); at = stop) {
        unsigned char hash[SHA256_DIGEST_LENGTH], text[48];
        at += strlen(begin);
        stop = memmem(at, n - (size_t)(at - page), end, strlen(end));
        if (!stop || used + sizeof text + 16 > room)
            return false;
        SHA256((const unsigned char *)at, (size_t)(stop - at), hash);
        EVP_EncodeBlock(text, hash, sizeof hash);
        used += (size_t)snprintf(out + used, room - used, " 'sha256-%s'", (char *)text);
    }
    return used > 0;
}

int console_page_create(struct console_page **out, struct quire_error *err)
{
    size_t n = (size_t)(console_page_plain_end - console_page_plain);
    char scripts[HASHES_BYTES], styles[HASHES_BYTES];
    unsigned char hash[SHA256_DIGEST_LENGTH];
    struct console_page *page = calloc(1, sizeof *page);
    if (!page)
        return error_set(err, QUIRE_ENOMEM, "no memory for the page");
    if (!add_hashes(console_page_plain, n, "script", scripts, sizeof scripts) ||
        !add_hashes(console_page_plain, n, "style", styles, sizeof styles)) {
        free(page);
        return error_set(err, QUIRE_EINVALID, "the page in this program has no style or no script");
    }
    SHA256((const unsigned char *)console_page_plain, n, hash);
    page->etag[0] = '"';
    for (size_t i = 0; i < 12; i++)
        snprintf(page->etag + 1 + 2 * i, 4, "%02x\"", hash[i]);
    snprintf(page->etag_gzip, sizeof page->etag_gzip, "%.25s-gz\"", page->etag);
    snprintf(page->policy, sizeof page->policy,
             "default-src 'none'; script-src%s; style-src%s; connect-src 'self'; img-src data:; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'",
             scripts, styles);
    *out = page;
    return 0;
}

void console_page_answer(const struct console_page *page, struct http_request *r)
{
    struct fields fields = {0};
    bool gzip = fields_has_word(http_fields(r), "Accept-Encoding", "gzip");
    const char *etag = gzip ? page->etag_gzip : page->etag, *known = http_field(r, "If-None-Match");
    const char *body = gzip ? console_page_gzip : console_page_plain;
    size_t n = (size_t)(gzip ? console_page_gzip_end - console_page_gzip : console_page_plain_end - console_page_plain);
    bool same = known && strcmp(known, etag) == 0;
    if (console_fields(&fields, "text/html; charset=utf-8") && fields_set(&fields, "Cache-Control", "no-cache") &&
        fields_append(&fields, "Content-Security-Policy", page->policy) && fields_append(&fields, "ETag", etag) &&
        fields_append(&fields, "Vary", "Accept-Encoding") &&
        (!gzip || same || fields_append(&fields, "Content-Encoding", "gzip")))
        http_answer(r, same ? 304 : 200, &fields, same ? "" : body, same ? 0 : n);
    else
        http_abort(r);
    fields_fini(&fields);
}
