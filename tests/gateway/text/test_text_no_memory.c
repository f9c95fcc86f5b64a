/*
 * test_text_no_memory.c - all that gateway/text does with a request and an answer, each allocation in turn failing: an
 * error or an event in parts, nothing lost, nothing leaked.
 *
 * The program's own malloc, calloc and realloc pass on to glibc's but for the one that is to fail. Sanitizers bring
 * their own allocators, so there the test is left out and says so.
 */
#include "gateway/text/answer.h"
#include "gateway/text/answer_texts.h"
#include "gateway/text/canonical.h"
#include "gateway/text/mask.h"
#include "gateway/text/onward.h"
#include "gateway/text/replay.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static long long fail_at = -1; /* the allocation that fails, counted down; below 0: none */
static bool failed;

#if !SANITIZED
static bool may_allocate(void)
{
    bool now = fail_at >= 0 && fail_at-- == 0;
    failed |= now;
    return !now;
}

#include "tests/allocator.h"
#endif

static const char chat[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"on 2026-11-23 "
    "\\u00e9\"},{\"role\":\"assistant\","
    "\"tool_calls\":[{\"id\":\"a\"}]},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"x\"},{\"role\":\"user\","
    "\"content\":\"q\"}],\"cache\":{},\"stream\":true}";
static const char input[] = "{\"model\":\"e\",\"input\":[\"a\",\"b\"]}";
static const char event[] = "data: {\"id\":\"c-1\",\ndata: \"choices\":[]}\n\n";

static struct canonical *canonical;

/* All that is done with a body; 0, or QUIRE_ENOMEM with a sentence. */
static int request(enum ask_kind kind, const char *body)
{
    const struct canonical_options options = {.path = "/p", .upstream = "u", .masks = MASK_DATE};
    static const uint32_t items[] = {1};
    const struct onward_edits edits = {
        .drop_cache = true, .include_usage = true, .items = kind == ASK_EMBEDDINGS ? items : NULL, .n_items = 1};
    struct strict json = {0};
    struct ask ask = {0};
    struct canonical_keys keys;
    struct onward onward = {.input = NULL};
    struct quire_error err = {0};
    char *form = NULL;
    size_t bytes;
    int rc = strict_read(&json, body, strlen(body), &err);
    if (rc == 0)
        rc = ask_read(&ask, kind, &json, &err);
    if (rc == 0)
        rc = canonical_keys(canonical, &ask, &options, &keys, &err);
    if (rc == 0)
        rc = canonical_form(canonical, &ask, &options, &form, &bytes, &err);
    if (rc == 0)
        rc = onward_plan(&onward, &ask, &edits, &err);
    assert_true(rc == 0 || (rc == QUIRE_ENOMEM && err.code == rc && err.message[0]));
    onward_fini(&onward);
    free(form);
    ask_fini(&ask);
    strict_fini(&json);
    return rc;
}

/* Every byte is passed on, whatever fails. */
static void stream(void)
{
    struct strict json = {0};
    struct replay replay = {.json = {0}};
    struct sse sse;
    struct sse_event seen;
    struct answer answer;
    const struct replay_options again = {.kind = ASK_CHAT, .now_s = 1900000000};
    char passed[2 * sizeof event] = "", copy[sizeof event];
    size_t n = 0;
    answer_begin(&answer, &(struct answer_options){.kind = ASK_CHAT}, &json);
    sse_init(&sse, 1000);
    for (size_t i = 0; i < sizeof event - 1; i++) {
        const char *at = event + i;
        size_t left = 1;
        for (enum sse_status status; (status = sse_next(&sse, &at, &left, &seen)) != SSE_MORE;) {
            memcpy(passed + n, seen.raw.data, seen.raw.bytes);
            n += seen.raw.bytes;
            if (status == SSE_EVENT)
                answer_event(&answer, &seen);
            else
                answer_part(&answer);
        }
    }
    assert_int_equal(sse_end(&sse, &seen), SSE_MORE);
    assert_string_equal(passed, event);
    assert_true(!failed || answer.refused);
    memcpy(copy, event, sizeof event);
    replay_event(&replay, &again, copy, sizeof event - 1);
    assert_int_equal(strlen(copy), sizeof event - 1);
    replay_fini(&replay);
    sse_fini(&sse);
    strict_fini(&json);
}

static int vectors(void)
{
    const struct strict_text list[] = {{"[1]", 3}, {"[2]", 3}};
    struct quire_error err = {0};
    char *body = NULL;
    size_t bytes;
    int rc = replay_vectors(list, 2, (struct strict_text){"m", 1}, 5, &body, &bytes, &err);
    assert_true(rc == 0 || (rc == QUIRE_ENOMEM && err.code == rc && !body));
    free(body);
    return rc;
}

static bool fits(const void *context, const char *text, size_t bytes)
{
    (void)context;
    return bytes == 1 && *text == 'z';
}

/* What there is no memory to look at is taken for a text that fits, and for an answer that cannot be kept. */
static int texts(void)
{
    static const char said[] = "{\"choices\":[{\"message\":{\"content\":\"\\u00e9\"}}]}";
    struct strict json = {0};
    struct ask ask = {0};
    struct answer_texts whole, events;
    int rc = strict_read(&json, input, sizeof input - 1, NULL);
    rc = rc ? rc : ask_read(&ask, ASK_EMBEDDINGS, &json, NULL);
    if (rc == 0) {
        bool found = ask_user_fits(&ask, fits, NULL) || ask_item_fits(&ask, 1, fits, NULL);
        assert_true(found == failed);
        rc = found ? QUIRE_ENOMEM : 0;
    }
    ask_fini(&ask);
    strict_fini(&json);
    rc = rc ? rc : answer_texts_read(&whole, ASK_CHAT, said, sizeof said - 1, false);
    if (rc == 0) {
        assert_int_equal(whole.n, 1);
        answer_texts_fini(&whole);
        rc = answer_texts_read(&events, ASK_CHAT, event, sizeof event - 1, true);
    }
    if (rc == 0)
        answer_texts_fini(&events);
    assert_true(rc == 0 || rc == QUIRE_ENOMEM);
    return rc;
}

static void every_allocation(void **state)
{
    (void)state;
    if (SANITIZED)
        skip(); /* the sanitizer's allocator is in front of the test's */
    /* what OpenSSL does without memory is its own affair, but no hash comes half made */
    for (long long at = 0; at < 64; at++) {
        fail_at = at;
        canonical = NULL;
        int made = canonical_create(&canonical, NULL);
        fail_at = -1;
        assert_true((made == 0) == (canonical != NULL));
        canonical_destroy(canonical);
    }
    assert_int_equal(canonical_create(&canonical, NULL), 0);
    assert_int_equal(request(ASK_CHAT, chat), 0);
    int rc = -1;
    for (long long at = 0; rc != 0; at++) {
        fail_at = at;
        failed = false;
        rc = request(ASK_CHAT, chat);
        rc = rc ? rc : request(ASK_EMBEDDINGS, input);
        rc = rc ? rc : vectors();
        rc = rc ? rc : texts();
        assert_true(at < 1000 && (rc == 0) == !failed);
    }
    canonical_destroy(canonical);
    failed = true;
    for (long long at = 0; failed; at++) {
        fail_at = at;
        failed = false;
        stream();
        assert_true(at < 100);
    }
    fail_at = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
