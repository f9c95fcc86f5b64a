/* support_document_log.c - see support_document_log.h. */
#include "tests/cache/support_document_log.h"
#include "tests/cache/support_document.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

static uint64_t host_clock(void *context)
{
    return ((const struct doc_host *)context)->now_ms;
}

static bool is_at(const struct doc_host *host, uint64_t id, const struct document_at *at)
{
    const struct document_at *mine = &host->documents[id].at;
    return mine->segment == at->segment && mine->unit == at->unit && mine->bytes == at->bytes;
}

static bool host_lives(void *context, uint64_t id, const struct document_at *at)
{
    struct doc_host *host = context;
    pthread_mutex_lock(&host->lock);
    bool lives = is_at(host, id, at);
    pthread_mutex_unlock(&host->lock);
    return lives;
}

static bool host_moved(void *context, uint64_t id, const struct document_at *from, const struct document_at *to)
{
    struct doc_host *host = context;
    pthread_mutex_lock(&host->lock);
    bool mine = is_at(host, id, from);
    if (mine)
        host->documents[id].at = *to;
    if (mine && host->notes_at_once && host->documents[id].durable.segment)
        host->documents[id].durable = *to;
    host->moves += mine;
    pthread_mutex_unlock(&host->lock);
    return mine;
}

static void host_log(void *context, bool warning, const char *line)
{
    struct doc_host *host = context;
    assert_true(line[0] != 0);
    host->warnings += warning;
}

struct doc_host *host_new(void)
{
    struct doc_host *host = calloc(1, sizeof *host);
    host->fs = fault_fs_create();
    host->folder = "/docs";
    host->now_ms = 1000000;
    host->options = (struct document_log_options){.fs = host->fs,
                                                  .folder = host->folder,
                                                  .segment_bytes = 32768,
                                                  .no_thread = true,
                                                  .clock_ms = host_clock,
                                                  .clock_context = host,
                                                  .moved = host_moved,
                                                  .lives = host_lives,
                                                  .host = host,
                                                  .log = host_log,
                                                  .log_context = host};
    pthread_mutex_init(&host->lock, NULL);
    assert_int_equal(engine_fault_create(&(struct engine_config){.threads = 1}, 1, &host->engine, NULL), 0);
    return host;
}

void host_free(struct doc_host *host)
{
    document_log_close(host->log, NULL);
    engine_destroy(host->engine);
    if (host->fs != fs_real())
        fault_fs_destroy(host->fs);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

unsigned host_open(struct doc_host *host)
{
    struct quire_error err = {0};
    unsigned lost = 0;
    if (document_log_open(&host->options, &host->log, &err) < 0)
        fail_msg("%s", err.message);
    for (unsigned id = 1; id <= host->n_documents; id++)
        if (host->documents[id].at.segment && !document_log_adopt(host->log, &host->documents[id].at)) {
            host->documents[id].at.segment = 0;
            lost++;
        }
    assert_int_equal(document_log_begin(host->log, &err), 0);
    return lost;
}

void host_close(struct doc_host *host)
{
    struct quire_error err = {0};
    int rc = document_log_close(host->log, &err);
    host->log = NULL;
    if (rc < 0)
        fail_msg("%s", err.message);
}

int host_put(struct doc_host *host, uint64_t expire_ms, struct quire_error *err)
{
    unsigned id = host->n_documents + 1;
    uint32_t n;
    assert_true(id < HOST_DOCUMENTS_MAX);
    uint8_t *bytes = support_document(id, expire_ms, HOST_ROOM, &n);
    struct host_document document = {.expire_ms = expire_ms};
    int rc = document_log_append(host->log, bytes, n, expire_ms, &document.at, err);
    free(bytes);
    if (rc == 0) {
        assert_true(document.at.segment > 0 && document.at.bytes == n);
        host->documents[id] = document;
        host->n_documents = id;
    }
    return rc;
}

void host_put_many(struct doc_host *host, unsigned n, uint64_t expire_ms)
{
    struct quire_error err = {0};
    for (unsigned i = 0; i < n; i++)
        if (host_put(host, expire_ms, &err) < 0)
            fail_msg("%s", err.message);
}

void host_drop(struct doc_host *host, unsigned id)
{
    pthread_mutex_lock(&host->lock);
    struct document_at at = host->documents[id].at;
    host->documents[id].at.segment = 0;
    pthread_mutex_unlock(&host->lock);
    assert_true(at.segment > 0);
    document_log_drop(host->log, &at);
}

struct landing {
    int result;
    bool done;
};

static void land(struct io_op *op, int result, unsigned flags)
{
    (void)flags;
    *(struct landing *)op->owner = (struct landing){result, true};
}

/* The bytes of a place that a read has begun for; 0 or what the read gave. */
static int finish_read(struct doc_host *host, struct document_read *read)
{
    struct landing landing = {0};
    read->op.done = land;
    read->op.owner = &landing;
    engine_queue(host->engine, &read->op);
    while (!landing.done)
        engine_poll(host->engine, 1, UINT64_MAX);
    return document_read_bytes(read, landing.result, NULL);
}

int host_read_at(struct doc_host *host, unsigned id, const struct document_at *at)
{
    struct document_read read;
    struct document document;
    size_t n;
    int rc = document_read_begin(host->log, at, &read, NULL);
    if (rc < 0)
        return rc;
    if (rc == 0)
        rc = finish_read(host, &read);
    if (rc >= 0)
        rc = document_decode(read.bytes, at->bytes, &document, &n, NULL);
    if (rc == 0 && !support_document_same(id, host->documents[id].expire_ms, HOST_ROOM, read.bytes, at->bytes))
        fail_msg("document %u is another one", id);
    document_read_end(&read);
    assert_true(rc == 0 || rc == QUIRE_ECORRUPT || rc == QUIRE_ESHORTREAD || rc == QUIRE_EIO);
    return rc;
}

void host_check(struct doc_host *host)
{
    for (unsigned id = 1; id <= host->n_documents; id++)
        if (host->documents[id].at.segment)
            assert_int_equal(host_read_at(host, id, &host->documents[id].at), 0);
}

unsigned host_living(const struct doc_host *host)
{
    unsigned n = 0;
    for (unsigned id = 1; id <= host->n_documents; id++)
        n += host->documents[id].at.segment != 0;
    return n;
}

int host_sync(struct doc_host *host)
{
    int rc = document_log_sync(host->log, NULL);
    for (unsigned id = 1; rc == 0 && id <= host->n_documents; id++)
        host->documents[id].durable = host->documents[id].at;
    return rc;
}

struct document_log_stats host_stats(const struct doc_host *host)
{
    struct document_log_stats stats;
    document_log_get_stats(host->log, &stats);
    return stats;
}
