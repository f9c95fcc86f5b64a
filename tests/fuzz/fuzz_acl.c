/*
 * fuzz_acl.c - any bytes as rules of an ACL user, one per line.
 *
 * A rule is taken or refused with a sentence. Whatever was taken, the user's description must be rules that make the
 * same user: the same text, the same commands allowed, on the same keys.
 */
#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "server/command_rows.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool right)
{
    if (!right)
        abort();
}

static void apply_lines(struct acl_user *user, const uint8_t *data, size_t size, char separator, bool all_right)
{
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, separator, size - at);
        size_t bytes = end ? (size_t)(end - data) - at : size - at;
        struct quire_error err = {0};
        int rc = acl_user_apply(user, data + at, bytes, &err);
        require(rc == 0 || (!all_right && err.code == rc && err.message[0] != 0));
        at += bytes + 1;
    }
}

/* Looks at each command with the input itself as its key. */
static void require_same(const struct acl_user *user, const struct acl_user *again, const uint8_t *data, size_t size)
{
    struct resp_arg args[] = {{(const uint8_t *)"x", 1}, {data, (uint32_t)(size < 64 ? size : 64)}};
    uint32_t at;
    for (unsigned row = 0; row < n_commands; row++)
        require(acl_user_check(user, row, args, 2, &at) == acl_user_check(again, row, args, 2, &at));
    require(user->everything == again->everything && user->on == again->on && user->nopass == again->nopass);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char prefix[] = "user fuzz ";
    struct resp_buffer text = {.protocol = 2}, text_again = {.protocol = 2};
    if (size > 65536)
        return 0;
    command_rows_set();
    struct acl_user *user = acl_user_create("fuzz", 4), *again = acl_user_create("fuzz", 4);
    require(user && again);
    apply_lines(user, data, size, '\n', false);
    acl_user_describe(user, &text);
    require(text.bytes > sizeof prefix && memcmp(text.data, prefix, sizeof prefix - 1) == 0);
    apply_lines(again, text.data + sizeof prefix - 1, text.bytes - sizeof prefix + 1, ' ', true);
    acl_user_describe(again, &text_again);
    require(text.bytes == text_again.bytes && memcmp(text.data, text_again.data, text.bytes) == 0);
    require_same(user, again, data, size);
    resp_buffer_fini(&text);
    resp_buffer_fini(&text_again);
    acl_user_release(user);
    acl_user_release(again);
    return 0;
}
