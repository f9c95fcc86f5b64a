/*
 * resp.c - parsing without state, writing without trees.
 *
 * A request is parsed from its first byte each time; while it is incomplete the parser says how many bytes it needs
 * before it can get further (`need`), and the connection does not ask again earlier. So a bulk of 512 MiB costs a
 * handful of parses, not one per received piece, and there is no parser state that could be wrong.
 *
 * Arguments point into the receive buffer. Only inline requests with quotes are copied (unquoted) into the request's
 * store.
 *
 * Replies grow in a buffer, whose memory an account may count and bound (struct resp_account): a buffer that is allowed
 * no more fails, so one reply cannot take what all clients may take together, however it comes about. Large buffers are
 * mappings of their own: while a block of the heap grows it exists twice.
 *
 * Limits are checked on the numbers as soon as they are read: a count of a billion or a length of -2 ends the
 * connection before anything is allocated for it. Messages are those of Redis, because clients' authors test against
 * them.
 */
#include "server/protocol/resp.h"
#include "io/array.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ARGUMENT_BYTES_MIN = 6, /* "$0\r\n\r\n" */
    BULK_FRAME_BYTES = 32,  /* at most, around the bytes of a bulk string */
    FIRST_BYTES = 256,      /* of a buffer */
    PAGE_BYTES = 4096,
    DOUBLED_BYTES = 1 << 20, /* buffers of so many bytes grow by a quarter, smaller ones double */
    MAPPED_BYTES = 1 << 20,  /* buffers of so many bytes are pages of their own */
    MOVED_BYTES = 16384      /* buffers of so many bytes are handed on where nothing much stands before them */
};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* The line from `at` has not ended within n bytes. */
static enum resp_status wants_line(struct resp_request *r, size_t at, size_t n, size_t *need)
{
    r->wants_line = true;
    r->line_at = at;
    *need = n + 1;
    return RESP_MORE;
}

static enum resp_status broken(char message[128], const char *text)
{
    snprintf(message, 128, "ERR Protocol error: %s", text);
    return RESP_BROKEN;
}

static bool add_arg(struct resp_request *r, const uint8_t *data, uint32_t bytes)
{
    if (r->n_args == r->capacity && !array_reserve(&r->args, &r->capacity, (size_t)r->n_args + 1))
        return false;
    r->args[r->n_args++] = (struct resp_arg){data, bytes};
    return true;
}

/* The line from `at`: its end (before \r\n or \n) in *end and the place behind it in *next; false when there is no \n
 * yet. */
static bool find_line(const uint8_t *bytes, size_t n, size_t at, size_t *end, size_t *next)
{
    const uint8_t *newline = at < n ? memchr(bytes + at, '\n', n - at) : NULL;
    if (!newline)
        return false;
    *next = (size_t)(newline - bytes) + 1;
    *end = *next - 1;
    if (*end > at && bytes[*end - 1] == '\r')
        (*end)--;
    return true;
}

/* A decimal number with optional minus, nothing else. */
static bool parse_number(const uint8_t *p, size_t n, long long *out)
{
    bool negative = n > 0 && p[0] == '-';
    long long value = 0;
    size_t i = negative;
    if (i == n || n - i > 18)
        return false;
    for (; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        value = value * 10 + (p[i] - '0');
    }
    *out = negative ? -value : value;
    return true;
}

static bool hex_value(uint8_t c, unsigned *out)
{
    if (!isxdigit(c))
        return false;
    *out = c <= '9' ? (unsigned)(c - '0') : (unsigned)(tolower(c) - 'a' + 10);
    return true;
}

/* One escape behind a backslash in double quotes; returns how many bytes it took. */
static size_t unescape(const uint8_t *p, size_t n, uint8_t *out)
{
    unsigned high, low;
    if (n >= 3 && p[0] == 'x' && hex_value(p[1], &high) && hex_value(p[2], &low)) {
        *out = (uint8_t)(high << 4 | low);
        return 3;
    }
    static const char from[] = "nrtba", to[] = "\n\r\t\b\a";
    const char *found = p[0] ? strchr(from, p[0]) : NULL;
    *out = found ? (uint8_t)to[found - from] : p[0];
    return 1;
}

/* One word of an inline request from p[*at]; false on unbalanced quotes. */
static bool inline_word(const uint8_t *p, size_t n, size_t *at, uint8_t *out, uint32_t *bytes)
{
    size_t i = *at;
    uint8_t quote = 0;
    *bytes = 0;
    for (; i < n; i++) {
        if (quote == '"' && p[i] == '\\' && i + 1 < n) {
            i += unescape(p + i + 1, n - i - 1, &out[(*bytes)++]);
        } else if (quote == '\'' && p[i] == '\\' && i + 1 < n && p[i + 1] == '\'') {
            out[(*bytes)++] = '\'';
            i++;
        } else if (quote && p[i] == quote) {
            if (i + 1 < n && !isspace(p[i + 1]))
                return false;
            quote = 0;
        } else if (!quote && (p[i] == '"' || p[i] == '\'')) {
            quote = p[i];
        } else if (!quote && (isspace(p[i]) || p[i] == 0)) {
            break;
        } else {
            out[(*bytes)++] = p[i];
        }
    }
    *at = i;
    return !quote;
}

static enum resp_status parse_inline(const uint8_t *bytes, size_t n, const struct resp_limits *limits,
                                     struct resp_request *r, size_t *consumed, size_t *need, char message[128])
{
    size_t end, next;
    if (!find_line(bytes, n, 0, &end, &next)) {
        return n > limits->inline_bytes_max + 1u ? broken(message, "too big inline request")
                                                 : wants_line(r, 0, n, need);
    }
    if (end > limits->inline_bytes_max)
        return broken(message, "too big inline request");
    if (end > r->store_capacity || !r->store) {
        uint8_t *bigger = realloc(r->store, end + 1);
        if (!bigger)
            return broken(message, "out of memory");
        r->store = bigger;
        r->store_capacity = end;
    }
    size_t used = 0;
    for (size_t at = 0; at < end;) {
        uint32_t length;
        if (isspace(bytes[at]) || bytes[at] == 0) {
            at++;
            continue;
        }
        if (!inline_word(bytes, end, &at, r->store + used, &length))
            return broken(message, "unbalanced quotes in request");
        if (r->n_args == limits->args_max || !add_arg(r, r->store + used, length))
            return broken(message, "too many arguments in inline request");
        used += length;
    }
    *consumed = next;
    return RESP_DONE;
}

/* "$<length>\r\n<bytes>\r\n" from *at. */
static enum resp_status parse_bulk(const uint8_t *bytes, size_t n, const struct resp_limits *limits,
                                   struct resp_request *r, size_t *at, size_t *need, char message[128])
{
    size_t end, next;
    long long length;
    if (*at < n && bytes[*at] != '$') {
        char text[48];
        snprintf(text, sizeof text, "expected '$', got '%c'", isprint(bytes[*at]) ? bytes[*at] : '?');
        return broken(message, text);
    }
    if (!find_line(bytes, n, *at, &end, &next)) {
        return n - *at > limits->inline_bytes_max + 1u ? broken(message, "too big bulk count string")
                                                       : wants_line(r, *at, n, need);
    }
    if (!parse_number(bytes + *at + 1, end - *at - 1, &length) || length < 0 ||
        (unsigned long long)length > limits->bulk_bytes_max)
        return broken(message, "invalid bulk length");
    if (n - next < (size_t)length + 2) {
        *need = next + (size_t)length + 2;
        return RESP_MORE;
    }
    if (!add_arg(r, bytes + next, (uint32_t)length))
        return broken(message, "out of memory");
    *at = next + (size_t)length + 2;
    return RESP_DONE;
}

enum resp_status resp_parse(const uint8_t *bytes, size_t n, const struct resp_limits *limits, struct resp_request *r,
                            size_t *consumed, size_t *need, char message[128])
{
    size_t end, at;
    long long count;
    r->n_args = 0;
    r->wants_line = false;
    *need = 1;
    if (n == 0)
        return RESP_MORE;
    if (bytes[0] != '*')
        return parse_inline(bytes, n, limits, r, consumed, need, message);
    if (!find_line(bytes, n, 0, &end, &at)) {
        return n > limits->inline_bytes_max + 1u ? broken(message, "too big mbulk count string")
                                                 : wants_line(r, 0, n, need);
    }
    if (!parse_number(bytes + 1, end - 1, &count) || count > (long long)limits->args_max)
        return broken(message, "invalid multibulk length");
    for (long long i = 0; i < count; i++) {
        enum resp_status status = parse_bulk(bytes, n, limits, r, &at, need, message);
        /* the arguments behind this one have six bytes each at least: no use in looking again before they can be
         * there */
        if (status == RESP_MORE)
            *need += (size_t)(count - i - 1) * ARGUMENT_BYTES_MIN;
        if (status != RESP_DONE)
            return status;
    }
    *consumed = at;
    return RESP_DONE;
}

void resp_request_fini(struct resp_request *r)
{
    free(r->args);
    free(r->store);
    memset(r, 0, sizeof *r);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

void resp_account_add(struct resp_account *account, int64_t bytes)
{
    if (!account)
        return;
    account->held += (uint64_t)bytes;
    if (account->total)
        atomic_store_explicit(account->total,
                              atomic_load_explicit(account->total, memory_order_relaxed) + (uint64_t)bytes,
                              memory_order_relaxed);
}

bool resp_account_take(struct resp_account *account, size_t more)
{
    if (!account)
        return true;
    if (account->grow && !account->grow(account, more))
        return false;
    resp_account_add(account, (int64_t)more);
    return true;
}

static uint8_t *map(size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

/* A mapping that grows. */
static uint8_t *remap(uint8_t *data, size_t old, size_t capacity)
{
#ifdef __SANITIZE_THREAD__ /* which does not see mremap, and takes what lay at the new place for something shared */
    uint8_t *bigger = map(capacity);
    if (bigger) {
        memcpy(bigger, data, old);
        munmap(data, old);
    }
    return bigger;
#else
    void *bigger = mremap(data, old, capacity, MREMAP_MAYMOVE);
    return bigger == MAP_FAILED ? NULL : bigger;
#endif
}

/* Memory of `capacity` bytes for what was `old` bytes at `data` (NULL: nothing); NULL without memory, and data stays.
 * Large pieces are mapped: they grow without a copy beside them, and go back to the system at once. */
static uint8_t *resize(uint8_t *data, size_t old, size_t capacity)
{
    if (capacity < MAPPED_BYTES)
        return realloc(data, capacity);
    uint8_t *bigger = old >= MAPPED_BYTES ? remap(data, old, capacity) : map(capacity);
    if (!bigger)
        return NULL;
    madvise(bigger, capacity, MADV_HUGEPAGE); /* a fault for 2 MiB, not for each page; nothing where that is off */
    if (old < MAPPED_BYTES && data) {
        memcpy(bigger, data, old);
        free(data);
    }
    return bigger;
}

void resp_buffer_fini(struct resp_buffer *out)
{
    if (out->capacity >= MAPPED_BYTES)
        munmap(out->data, out->capacity);
    else
        free(out->data);
    if (out->account && out->capacity > 0)
        resp_account_add(out->account, -(int64_t)out->capacity);
    out->data = NULL;
    out->bytes = out->capacity = 0;
}

struct resp_buffer resp_buffer_beside(const struct resp_buffer *out)
{
    return (struct resp_buffer){.protocol = out->protocol, .account = out->account};
}

static bool fail(struct resp_buffer *out)
{
    resp_buffer_fini(out);
    out->failed = true;
    return false;
}

bool resp_reserve(struct resp_buffer *out, size_t more)
{
    struct resp_account *account = out->account;
    if (out->capacity - out->bytes >= more && !out->failed)
        return true;
    if (out->failed || more > SIZE_MAX / 4 - out->bytes)
        return fail(out);
    /* twice as much as long as that is little; a quarter more of what is large, which another might need */
    size_t needed = out->bytes + more, capacity = out->capacity ? out->capacity : FIRST_BYTES;
    capacity += out->capacity == 0 ? 0 : capacity < DOUBLED_BYTES ? capacity : capacity / 4;
    capacity = capacity < needed ? needed : capacity;
    if (capacity >= DOUBLED_BYTES)
        capacity = (capacity + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    size_t grows = capacity - out->capacity;
    if (!resp_account_take(account, grows))
        return fail(out);
    uint8_t *bigger = resize(out->data, out->capacity, capacity);
    if (!bigger) {
        if (account)
            resp_account_add(account, -(int64_t)grows);
        return fail(out);
    }
    out->data = bigger;
    out->capacity = capacity;
    return true;
}

void resp_raw(struct resp_buffer *out, const void *data, size_t bytes)
{
    if (bytes == 0 || !resp_reserve(out, bytes))
        return;
    memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
}

void resp_take(struct resp_buffer *out, struct resp_buffer *from)
{
    size_t head = out->bytes;
    if (from->failed)
        fail(out);
    if (!out->failed && from->bytes >= MOVED_BYTES && head <= MOVED_BYTES / 16 && from->account == out->account) {
        /* what stands before it is put before it */
        if (resp_reserve(from, head) && head > 0) {
            memmove(from->data + head, from->data, from->bytes);
            memcpy(from->data, out->data, head);
            from->bytes += head;
        }
        struct resp_buffer short_one = *out;
        out->data = from->data;
        out->bytes = from->bytes;
        out->capacity = from->capacity;
        out->failed = from->failed;
        from->data = short_one.data;
        from->bytes = short_one.bytes;
        from->capacity = short_one.capacity;
    } else {
        resp_raw(out, from->data, from->bytes);
    }
    resp_buffer_fini(from);
}

static void put_line(struct resp_buffer *out, char type, const char *text, size_t bytes)
{
    if (!resp_reserve(out, bytes + 3))
        return;
    out->data[out->bytes++] = (uint8_t)type;
    memcpy(out->data + out->bytes, text, bytes);
    out->bytes += bytes;
    out->data[out->bytes++] = '\r';
    out->data[out->bytes++] = '\n';
}

static void put_number(struct resp_buffer *out, char type, long long value)
{
    char digits[24];
    size_t n = sizeof digits;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do
        digits[--n] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        digits[--n] = '-';
    put_line(out, type, digits + n, sizeof digits - n);
}

void resp_format(struct resp_buffer *out, const char *format, va_list arguments)
{
    char bytes[1024];
    int n = vsnprintf(bytes, sizeof bytes, format, arguments);
    resp_raw(out, bytes, n < 0 ? 0 : (size_t)n < sizeof bytes ? (size_t)n : sizeof bytes - 1);
}

void resp_simple(struct resp_buffer *out, const char *text)
{
    put_line(out, '+', text, strlen(text));
}

void resp_error(struct resp_buffer *out, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t bytes = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\r' || text[i] == '\n')
            text[i] = ' ';
    put_line(out, '-', text, bytes);
}

void resp_quire_error(struct resp_buffer *out, const struct quire_error *err)
{
    const char *code = err->code == QUIRE_ENOMEM ? "OOM" : err->code == QUIRE_EEXISTS ? "BUSYKEY" : "ERR";
    resp_error(out, "%s %s", code, err->message);
}

void resp_integer(struct resp_buffer *out, long long value)
{
    put_number(out, ':', value);
}

void resp_bulk_begin(struct resp_buffer *out, size_t bytes)
{
    if (bytes < PAGE_BYTES || resp_reserve(out, bytes + BULK_FRAME_BYTES))
        put_number(out, '$', (long long)bytes);
}

void resp_bulk(struct resp_buffer *out, const void *data, size_t bytes)
{
    resp_bulk_begin(out, bytes);
    resp_raw(out, data, bytes);
    resp_raw(out, "\r\n", 2);
}

void resp_text(struct resp_buffer *out, const char *text)
{
    resp_bulk(out, text, strlen(text));
}

void resp_field(struct resp_buffer *out, const char *name, long long value)
{
    resp_text(out, name);
    resp_integer(out, value);
}

void resp_null(struct resp_buffer *out)
{
    resp_raw(out, out->protocol == 3 ? "_\r\n" : "$-1\r\n", out->protocol == 3 ? 3 : 5);
}

void resp_null_array(struct resp_buffer *out)
{
    resp_raw(out, out->protocol == 3 ? "_\r\n" : "*-1\r\n", out->protocol == 3 ? 3 : 5);
}

void resp_array(struct resp_buffer *out, size_t n)
{
    put_number(out, '*', (long long)n);
}

void resp_map(struct resp_buffer *out, size_t n)
{
    put_number(out, out->protocol == 3 ? '%' : '*', (long long)(out->protocol == 3 ? n : 2 * n));
}

void resp_set(struct resp_buffer *out, size_t n)
{
    put_number(out, out->protocol == 3 ? '~' : '*', (long long)n);
}

/* The shortest of 15, 16, 17 digits that reads back as the same double. */
static int format_double(double value, char text[40])
{
    int n = 0;
    if (isnan(value))
        return snprintf(text, 40, "nan");
    if (isinf(value))
        return snprintf(text, 40, value > 0 ? "inf" : "-inf");
    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(text, 40, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return n;
}

void resp_double(struct resp_buffer *out, double value)
{
    char text[40];
    int n = format_double(value, text);
    if (out->protocol == 3)
        put_line(out, ',', text, (size_t)n);
    else
        resp_bulk(out, text, (size_t)n);
}

void resp_bool(struct resp_buffer *out, bool value)
{
    if (out->protocol == 3)
        resp_raw(out, value ? "#t\r\n" : "#f\r\n", 4);
    else
        resp_integer(out, value);
}

void resp_verbatim(struct resp_buffer *out, const char *text, size_t bytes)
{
    if (out->protocol != 3) {
        resp_bulk(out, text, bytes);
        return;
    }
    put_number(out, '=', (long long)bytes + 4);
    resp_raw(out, "txt:", 4);
    resp_raw(out, text, bytes);
    resp_raw(out, "\r\n", 2);
}
