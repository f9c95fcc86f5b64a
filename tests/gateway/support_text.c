/* support_text.c - a body read for a test. */
#include "tests/gateway/support_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct strict text_json;
struct ask text_ask;

const struct ask *text_asked(enum ask_kind kind, const char *body)
{
    struct quire_error err = {.message = ""};
    if (strict_read(&text_json, body, strlen(body), &err) < 0 || ask_read(&text_ask, kind, &text_json, &err) < 0)
        fail_msg("%s: %s", body, err.message);
    return &text_ask;
}

void text_fini(void)
{
    ask_fini(&text_ask);
    strict_fini(&text_json);
}

bool text_says(struct strict_text text, const char *wanted)
{
    return text.data && text.bytes == strlen(wanted) && memcmp(text.data, wanted, text.bytes) == 0;
}
