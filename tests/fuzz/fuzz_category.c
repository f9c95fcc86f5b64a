/*
 * fuzz_category.c - any bytes as the text of a category's settings, and, line by line, as the words of SC.CAT.SET.
 *
 * Settings are taken or refused with a sentence, and a refusal changes nothing. What was taken prints as a text that
 * fits, parses again, and prints the same.
 */
#include "cache/policy/category.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS_MAX = 64 };

static void require(bool right)
{
    if (!right)
        abort();
}

/* The settings' text, after checks of it and of what they promise. */
static void check(const struct category_settings *settings, char text[CATEGORY_TEXT_BYTES])
{
    struct category_settings again;
    char text_again[CATEGORY_TEXT_BYTES];
    uint32_t n = category_print(settings, text);
    require(n < CATEGORY_TEXT_BYTES && strlen(text) == n);
    require(category_parse(&again, (struct quire_bytes){text, n}, NULL) == 0);
    category_print(&again, text_again);
    require(strcmp(text, text_again) == 0);
    require((settings->sim > 0) != (settings->risk > 0));
    require(settings->floor >= 0 && settings->floor <= settings->ceil && settings->ceil <= 1);
    require(settings->ttl_ms >= 1 && (!settings->ttl_max_ms || settings->ttl_ms <= settings->ttl_max_ms));
    require(settings->n_scope_keys <= CATEGORY_SCOPE_KEYS_MAX);
}

static void require_error(int rc, const struct quire_error *err)
{
    require(rc == 0 || (rc < 0 && err->code == rc && err->message[0] != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct category_settings settings;
    struct quire_error err = {0};
    char text[CATEGORY_TEXT_BYTES], before[CATEGORY_TEXT_BYTES];
    struct quire_bytes words[WORDS_MAX];
    uint32_t n = 0;
    category_defaults(&settings);
    check(&settings, before);
    int rc = category_parse(&settings, (struct quire_bytes){data, size}, &err);
    require_error(rc, &err);
    check(&settings, text);
    require(rc == 0 || strcmp(text, before) == 0);
    memcpy(before, text, sizeof before);
    for (size_t at = 0; at < size && n < WORDS_MAX;) { /* onto what was parsed */
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t bytes = end ? (size_t)(end - data) - at : size - at;
        words[n++] = (struct quire_bytes){data + at, bytes};
        at += bytes + 1;
    }
    rc = category_apply(&settings, words, n, &err);
    require_error(rc, &err);
    check(&settings, text);
    require(rc == 0 || strcmp(text, before) == 0);
    return 0;
}
