/*
 * fuzz_resp.c - any bytes as a client's: the request parser, and the writers on what it gives.
 *
 * The first byte chooses the limits. The parser gets the rest as a connection has it, in a block of just that size: a
 * request must lie inside the bytes, an incomplete one must ask for more than there is, a prefix of a whole request
 * must not be refused, and what the writers make of a request's arguments must parse to the same arguments.
 */
#include "server/protocol/resp.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool right)
{
    if (!right)
        abort();
}

static bool inside(const struct resp_arg *arg, const uint8_t *from, size_t bytes)
{
    return arg->data >= from && arg->data + arg->bytes <= from + bytes;
}

/* Arguments lie in the input, or, of an inline request, in the request's store. */
static void check_places(const struct resp_request *r, const uint8_t *bytes, size_t consumed)
{
    for (uint32_t i = 0; i < r->n_args; i++)
        require(inside(&r->args[i], bytes, consumed) || inside(&r->args[i], r->store, r->store_capacity));
}

static void check_prefix(const uint8_t *bytes, size_t n, const struct resp_limits *limits)
{
    struct resp_request r = {0};
    size_t consumed = 0, need = 0;
    char message[128];
    require(resp_parse(bytes, n, limits, &r, &consumed, &need, message) == RESP_MORE && need > n);
    resp_request_fini(&r);
}

/* The arguments as an array, parsed again. */
static void check_round_trip(const struct resp_request *r)
{
    /* an inline line may hold what is too long for a bulk of the small limits */
    const struct resp_limits wide = {.bulk_bytes_max = 1 << 20, .args_max = 1 << 20, .inline_bytes_max = 65536};
    struct resp_buffer out = {.protocol = 2};
    struct resp_request again = {0};
    size_t consumed = 0, need = 0;
    char message[128];
    resp_array(&out, r->n_args);
    for (uint32_t i = 0; i < r->n_args; i++)
        resp_bulk(&out, r->args[i].data, r->args[i].bytes);
    require(resp_parse(out.data, out.bytes, &wide, &again, &consumed, &need, message) == RESP_DONE);
    require(consumed == out.bytes && again.n_args == r->n_args);
    for (uint32_t i = 0; i < r->n_args; i++)
        require(again.args[i].bytes == r->args[i].bytes &&
                memcmp(again.args[i].data, r->args[i].data, r->args[i].bytes) == 0);
    resp_buffer_fini(&out);
    resp_request_fini(&again);
}

static void write_all_kinds(const struct resp_request *r, int protocol)
{
    struct resp_buffer out = {.protocol = protocol};
    for (uint32_t i = 0; i < r->n_args; i++) {
        const struct resp_arg *arg = &r->args[i];
        double number = 0;
        memcpy(&number, arg->data, arg->bytes < sizeof number ? arg->bytes : sizeof number);
        resp_error(&out, "ERR unknown command '%.*s'", (int)arg->bytes, (const char *)arg->data);
        resp_verbatim(&out, (const char *)arg->data, arg->bytes);
        resp_double(&out, number);
        resp_map(&out, arg->bytes);
        require(out.bytes > 2 && out.data[out.bytes - 1] == '\n' && !out.failed);
    }
    resp_buffer_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct resp_limits limits = {.bulk_bytes_max = data[0] & 1 ? 16 : 1 << 20,
                                       .args_max = data[0] & 2 ? 3 : 1 << 20,
                                       .inline_bytes_max = data[0] & 4 ? 32 : 65536};
    struct resp_request request = {0};
    size_t at = 0, n = size - 1;
    uint8_t *bytes = malloc(n ? n : 1);
    require(bytes != NULL);
    memcpy(bytes, data + 1, n);
    enum resp_status status = RESP_DONE;
    while (at < n && status == RESP_DONE) {
        size_t consumed = 0, need = 0;
        char message[128] = "";
        status = resp_parse(bytes + at, n - at, &limits, &request, &consumed, &need, message);
        require(status != RESP_MORE || need > n - at);
        require(status != RESP_BROKEN || strncmp(message, "ERR Protocol error: ", 20) == 0);
        if (status != RESP_DONE)
            break;
        require(consumed > 0 && consumed <= n - at && request.n_args <= limits.args_max);
        check_places(&request, bytes + at, consumed);
        check_prefix(bytes + at, consumed - 1, &limits);
        check_round_trip(&request);
        write_all_kinds(&request, data[0] & 8 ? 3 : 2);
        at += consumed;
    }
    resp_request_fini(&request);
    free(bytes);
    return 0;
}
