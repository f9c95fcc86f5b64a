/*
 * hiredis_sets.c - vector sets written and read through hiredis: binary vectors and names, pipelines. In RESP2:
 * hiredis as Debian ships it knows no other.
 *
 *   hiredis_sets PORT
 *
 * Prints a line per check; exit status 0 when all are right. Leaves no key behind.
 */
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 8, ROWS = 500 };

static int failed;

static void check(const char *name, bool right, const redisReply *reply)
{
    printf("%s - hiredis: %s\n", right ? "ok" : "FAIL", name);
    if (!right)
        printf("    | type %d, %zu elements, '%s'\n", reply ? reply->type : -1, reply ? reply->elements : 0,
               reply && reply->str ? reply->str : "");
    failed += !right;
}

/* Takes the reply over. */
static void check_integer(const char *name, redisReply *reply, long long value)
{
    check(name, reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == value, reply);
    freeReplyObject(reply);
}

static void check_text(const char *name, redisReply *reply, const char *text)
{
    check(name, reply && reply->str && strcmp(reply->str, text) == 0, reply);
    freeReplyObject(reply);
}

static void fill(unsigned row, float out[DIM])
{
    for (unsigned d = 0; d < DIM; d++)
        out[d] = (float)((row * 7919 + d * 104729 + row * row * d) % 1009) / 1009 - 0.5f;
}

/* All are sent before a reply is read; names hold a zero byte. */
static void add_rows(redisContext *c)
{
    bool right = true;
    for (unsigned row = 0; row < ROWS; row++) {
        float v[DIM];
        char name[16];
        size_t n = (size_t)snprintf(name, sizeof name, "e%c%u", 0, row);
        fill(row, v);
        redisAppendCommand(c, "VADD e2e:hiredis FP32 %b %b NOQUANT SETATTR {\"row\":%d}", v, sizeof v, name, n, row);
    }
    for (unsigned row = 0; row < ROWS; row++) {
        redisReply *reply = NULL;
        right &=
            redisGetReply(c, (void **)&reply) == REDIS_OK && reply->type != REDIS_REPLY_ERROR && reply->integer == 1;
        freeReplyObject(reply);
    }
    check("500 VADD of binary vectors in a pipeline", right, NULL);
}

static void search(redisContext *c)
{
    unsigned right = 0;
    for (unsigned row = 0; row < ROWS; row += 10) {
        float v[DIM];
        char name[16], attributes[32];
        size_t n = (size_t)snprintf(name, sizeof name, "e%c%u", 0, row);
        snprintf(attributes, sizeof attributes, "{\"row\":%u}", row);
        fill(row, v);
        redisReply *r = redisCommand(c, "VSIM e2e:hiredis FP32 %b WITHSCORES WITHATTRIBS COUNT 4", v, sizeof v);
        if (r && r->type == REDIS_REPLY_ARRAY && r->elements == 12)
            right += r->element[0]->len == n && memcmp(r->element[0]->str, name, n) == 0 &&
                     atof(r->element[1]->str) > 0.9999 && strcmp(r->element[2]->str, attributes) == 0;
        freeReplyObject(r);
    }
    check("each row finds itself with its attributes", right == ROWS / 10, NULL);
}

static void single_commands(redisContext *c)
{
    check_integer("VCARD", redisCommand(c, "VCARD e2e:hiredis"), ROWS);
    check_integer("VISMEMBER", redisCommand(c, "VISMEMBER e2e:hiredis %b", "e\0007", (size_t)3), 1);
    check_integer("VSETATTR", redisCommand(c, "VSETATTR e2e:hiredis %b {}", "e\0007", (size_t)3), 1);
    check_text("VGETATTR", redisCommand(c, "VGETATTR e2e:hiredis %b", "e\0007", (size_t)3), "{}");
    redisReply *r = redisCommand(c, "VEMB e2e:hiredis %b", "e\0007", (size_t)3);
    check("VEMB", r && r->elements == DIM && r->element[0]->type == REDIS_REPLY_STRING, r);
    freeReplyObject(r);
    r = redisCommand(c, "VSIM e2e:hiredis VALUES 2 1 2");
    check("another dimension is an error reply",
          r && r->type == REDIS_REPLY_ERROR && strstr(r->str, "got 2 but set has 8"), r);
    freeReplyObject(r);
    check_text("VSEAL", redisCommand(c, "VSEAL e2e:hiredis"), "OK");
}

int main(int argc, char **argv)
{
    redisContext *c = argc == 2 ? redisConnect("127.0.0.1", atoi(argv[1])) : NULL;
    if (!c || c->err) {
        printf("FAIL - hiredis connects: %s\n", c ? c->errstr : "usage: hiredis_sets PORT");
        return 1;
    }
    add_rows(c);
    search(c);
    single_commands(c);
    search(c);
    check_integer("VREM", redisCommand(c, "VREM e2e:hiredis %b", "e\0007", (size_t)3), 1);
    check_integer("DEL", redisCommand(c, "DEL e2e:hiredis"), 1);
    redisFree(c);
    return failed > 0;
}
