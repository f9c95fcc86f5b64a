/* support_sc.c - see support_sc.h; numbers of vectors are sent as they lie in memory. */
#include "tests/server/support_sc.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const float *sc_at(unsigned axis, double similarity)
{
    static float vector[DIM];
    memset(vector, 0, sizeof vector);
    vector[2 * axis % DIM] = (float)similarity;
    vector[(2 * axis + 1) % DIM] = (float)sqrt(1 - similarity * similarity);
    return vector;
}

/* Words parted by blanks; in them "@" is the vector, "_" is nothing, and "~" stands for a blank. */
void sc_send_words(struct connection *c, const float *vector, const char *words)
{
    struct resp_buffer out = {.protocol = 2};
    size_t n = 0;
    for (const char *p = words; *p; p++)
        n += *p != ' ' && (p == words || p[-1] == ' ');
    resp_array(&out, n);
    for (const char *p = words + strspn(words, " "); *p;) {
        char word[512];
        size_t bytes = strcspn(p, " ");
        assert_true(bytes < sizeof word);
        memcpy(word, p, bytes);
        for (size_t i = 0; i < bytes; i++)
            word[i] = word[i] == '~' ? ' ' : word[i];
        if (bytes == 1 && *p == '@')
            resp_bulk(&out, vector, sizeof(float) * DIM);
        else
            resp_bulk(&out, word, bytes == 1 && *p == '_' ? 0 : bytes);
        p += bytes + strspn(p + bytes, " ");
    }
    send_bytes(c, out.data, out.bytes);
    resp_buffer_fini(&out);
}

struct reply sc_say(struct connection *c, const float *vector, const char *format, ...)
{
    char words[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    sc_send_words(c, vector, words);
    return read_reply(c);
}

void sc_check_status(const struct reply *r, const char *status)
{
    const struct reply *is = reply_field(r, "status"), *reason = reply_field(r, "reason");
    if (!is || !reply_is(is, status))
        fail_msg("status '%s' (%s), not '%s'", is ? is->text : r->text, reason ? reason->text : "", status);
    assert_true(reason && reason->bytes > 0);
}

double sc_number(const struct reply *r, const char *field)
{
    const struct reply *f = reply_field(r, field);
    if (!f)
        fail_msg("no field %s", field);
    return reply_number(f);
}

void sc_check_field(const struct reply *r, const char *field, const char *text)
{
    const struct reply *f = reply_field(r, field);
    if (!f || !reply_is(f, text))
        fail_msg("%s is '%s', not '%s'", field, f && f->text ? f->text : "nothing", text);
}

void sc_copy_field(const struct reply *r, const char *field, char *out, size_t room)
{
    const struct reply *f = reply_field(r, field);
    assert_true(f && f->text && f->bytes < room);
    strcpy(out, f->text);
}

/* Puts an answer and returns its id. */
void sc_put(struct connection *c, const float *vector, char id[ID_DIGITS + 1], const char *words)
{
    struct reply r = sc_say(c, vector, "SC.PUT %s", words);
    const struct reply *outcome = reply_field(&r, "outcome");
    if (!outcome || (!reply_is(outcome, "stored") && !reply_is(outcome, "replaced")))
        fail_msg("'%s': %s", words, outcome ? outcome->text : r.text);
    const struct reply *f = reply_field(&r, "id");
    assert_true(f && f->bytes == ID_DIGITS && strspn(f->text, "0123456789abcdef") == ID_DIGITS);
    if (id)
        strcpy(id, f->text);
    reply_free(&r);
}

void sc_check_get(struct connection *c, const float *vector, const char *words, const char *status)
{
    struct reply r = sc_say(c, vector, "SC.GET %s", words);
    sc_check_status(&r, status);
    reply_free(&r);
}

/* A cache `f` with a category `q` of fixed threshold .9. */
struct test_server *sc_serve(struct connection *c)
{
    struct test_server *s = support_server(NULL);
    connect_to(c, s->port);
    expect_text(c, "SC.CREATE f DIM 16 ENCODER enc@1", "OK");
    expect_text(c, "SC.CAT.SET f q SIM 0.9 JITTER 0", "OK");
    return s;
}

void sc_end(struct test_server *s, struct connection *c)
{
    disconnect(c);
    support_server_end(s);
}

/* Until so many lookups wait. */
void sc_await_waiting(struct connection *c, unsigned n)
{
    for (unsigned i = 0;; i++) {
        struct reply r = ask(c, "SC.STATS f CAT q");
        bool done = sc_number(&r, "waited") >= n;
        reply_free(&r);
        if (done)
            return;
        assert_true(i < 2000);
        usleep(2000);
    }
}
