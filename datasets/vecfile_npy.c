/*
 * vecfile_npy.c - the header of NumPy's .npy files, versions 1.0 to 3.0.
 *
 * After the magic and two version bytes comes the header's length (u16, from 2.0 on u32) and the header: a Python
 * dictionary of exactly 'descr', 'fortran_order' and 'shape', padded with blanks. The parser takes that dictionary and
 * nothing else of Python: keys in any order, either quote, a comma after the last entry, and the L that Python 2 put
 * behind long numbers. What is well-formed but of no use here (float64, Fortran order, one axis) is refused with the
 * NumPy expression that makes a usable file.
 */
#include "datasets/vecfile_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC            "\x93NUMPY"
#define MAGIC_BYTES      6u
#define HEADER_BYTES_MAX 65536u /* NumPy itself stops at 10,000 unless told otherwise */
#define AXES_MAX         32u

static const struct {
    char descr[4];
    enum quire_type type;
} npy_types[] = {{"<f4", QUIRE_TYPE_F32}, {"<f2", QUIRE_TYPE_F16}, {"|i1", QUIRE_TYPE_I8}, {"|u1", QUIRE_TYPE_U8}};

#define NPY_TYPES (sizeof npy_types / sizeof npy_types[0])

enum { SEEN_DESCR = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4 };

struct dictionary {
    unsigned seen;
    char descr[24];
    bool fortran_order;
    unsigned axes;
    uint64_t shape[2];
};

struct cursor {
    const char *at, *end;
};

static bool eat(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A string without escapes, into text (space for `capacity` bytes with its terminator). */
static bool eat_string(struct cursor *c, char *text, size_t capacity)
{
    char quote = eat(c, "'") ? '\'' : '"';
    if (quote == '"' && !eat(c, "\""))
        return false;
    const char *close = memchr(c->at, quote, (size_t)(c->end - c->at));
    if (!close || (size_t)(close - c->at) >= capacity || memchr(c->at, '\\', (size_t)(close - c->at)))
        return false;
    size_t n = (size_t)(close - c->at);
    memcpy(text, c->at, n);
    text[n] = 0;
    c->at = close + 1;
    return true;
}

/* A number; one that does not fit becomes UINT64_MAX, which no file can hold. */
static bool eat_number(struct cursor *c, uint64_t *out)
{
    uint64_t x = 0;
    bool any = false, over = false;
    eat(c, ""); /* blanks */
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++, any = true) {
        over |= __builtin_mul_overflow(x, (uint64_t)10, &x);
        over |= __builtin_add_overflow(x, (uint64_t)(*c->at - '0'), &x);
    }
    *out = over ? UINT64_MAX : x;
    eat(c, "L");
    return any;
}

static bool eat_shape(struct cursor *c, struct dictionary *d)
{
    if (!eat(c, "("))
        return false;
    while (!eat(c, ")")) {
        uint64_t n;
        if (!eat_number(c, &n) || d->axes == AXES_MAX)
            return false;
        if (d->axes < 2)
            d->shape[d->axes] = n;
        d->axes++;
        if (!eat(c, ",")) /* one number without a comma is no tuple in Python */
            return d->axes > 1 && eat(c, ")");
    }
    return true;
}

static bool eat_entry(struct cursor *c, struct dictionary *d)
{
    char key[16];
    unsigned before = d->seen;
    if (!eat_string(c, key, sizeof key) || !eat(c, ":"))
        return false;
    if (strcmp(key, "descr") == 0) {
        d->seen |= SEEN_DESCR;
        eat(c, "");
        if (c->at < c->end && *c->at == '[') { /* fields: refused by type, and there is no need to parse on */
            snprintf(d->descr, sizeof d->descr, "fields");
            d->seen = SEEN_DESCR | SEEN_ORDER | SEEN_SHAPE;
            return true;
        }
        return before != d->seen && eat_string(c, d->descr, sizeof d->descr);
    }
    if (strcmp(key, "fortran_order") == 0) {
        d->seen |= SEEN_ORDER;
        d->fortran_order = eat(c, "True");
        return before != d->seen && (d->fortran_order || eat(c, "False"));
    }
    d->seen |= SEEN_SHAPE;
    return strcmp(key, "shape") == 0 && before != d->seen && eat_shape(c, d);
}

static bool parse_dictionary(const char *text, size_t bytes, struct dictionary *d)
{
    struct cursor c = {text, text + bytes};
    if (!eat(&c, "{"))
        return false;
    while (!eat(&c, "}")) {
        if (!eat_entry(&c, d))
            return false;
        if (strcmp(d->descr, "fields") == 0)
            return true;
        if (!eat(&c, ",") && !eat(&c, "}"))
            return false;
        if (c.at[-1] == '}')
            break;
    }
    eat(&c, "");
    return c.at == c.end && d->seen == (SEEN_DESCR | SEEN_ORDER | SEEN_SHAPE);
}

/* What a dictionary that could be parsed must say. */
static int accept(const char *name, const struct dictionary *d, enum quire_type *type, struct quire_error *err)
{
    size_t t = 0;
    while (t < NPY_TYPES && strncmp(d->descr, npy_types[t].descr, sizeof npy_types[t].descr) != 0)
        t++;
    if (t == NPY_TYPES && strcmp(d->descr + 1, "V2") == 0)
        return error_set(err, QUIRE_ETYPE,
                         "%s has elements of type '%s', two bytes of no meaning, which is how NumPy saves bf16: save "
                         "it with a.astype('<f4'), or write its rows into a .bf16bin file",
                         name, d->descr);
    if (t == NPY_TYPES)
        return error_set(err, QUIRE_ETYPE,
                         "%s has elements of type '%s'; expected '<f4', '<f2', '|i1' or '|u1': save it with "
                         "a.astype('<f4')",
                         name, d->descr);
    if (d->fortran_order)
        return error_set(err, QUIRE_EFORMAT,
                         "%s is in Fortran order; rows must be contiguous: save it with numpy.ascontiguousarray(a)",
                         name);
    if (d->axes != 2)
        return error_set(err, QUIRE_EFORMAT, "%s has %u axes; expected 2 (rows, dimensions): save it with a.reshape",
                         name, d->axes);
    *type = npy_types[t].type;
    return 0;
}

/* Magic, version and length of the header. */
static int read_preamble(struct instream *in, uint32_t *bytes, struct quire_error *err)
{
    uint8_t head[8], length[4] = {0};
    int rc = vecstream_in_exact(in, head, sizeof head, "the magic and the version of a .npy file", err);
    if (rc < 0)
        return rc;
    if (memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return error_set(err, QUIRE_EFORMAT,
                         "%s is not a .npy file: expected the bytes 93 4e 55 4d 50 59, found %02x "
                         "%02x %02x %02x %02x %02x",
                         in->name, head[0], head[1], head[2], head[3], head[4], head[5]);
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return error_set(err, QUIRE_EVERSION, "%s is of .npy version %u.%u; 1.0, 2.0 and 3.0 can be read", in->name,
                         head[6], head[7]);
    rc = vecstream_in_exact(in, length, head[6] == 1 ? 2 : 4, "the length of the .npy header", err);
    *bytes = bytes_load_u32(length);
    if (rc == 0 && *bytes > HEADER_BYTES_MAX)
        return error_set(err, QUIRE_EFORMAT, "%s has a header of %u bytes; at most %u are read", in->name, *bytes,
                         HEADER_BYTES_MAX);
    return rc;
}

int vecfile_npy_read_header(struct instream *in, enum quire_type *type, uint64_t *rows, uint64_t *dim,
                            struct quire_error *err)
{
    uint32_t bytes = 0;
    struct dictionary d = {0};
    int rc = read_preamble(in, &bytes, err);
    if (rc < 0)
        return rc;
    char *text = malloc(bytes + 1u);
    if (!text)
        return error_set(err, QUIRE_ENOMEM, "no memory for the header of %s", in->name);
    rc = vecstream_in_exact(in, text, bytes, "the .npy header", err);
    if (rc == 0 && !parse_dictionary(text, bytes, &d))
        rc = error_set(err, QUIRE_EFORMAT,
                       "the header of %s is damaged: expected {'descr': ..., 'fortran_order': ..., 'shape': (rows, "
                       "dimensions)}, found %u bytes of something else",
                       in->name, bytes);
    if (rc == 0)
        rc = accept(in->name, &d, type, err);
    if (rc == 0) {
        *rows = d.shape[0];
        *dim = d.shape[1];
    }
    free(text);
    return rc;
}

void vecfile_npy_make_header(uint8_t header[NPY_HEADER_BYTES], enum quire_type type, uint64_t rows, uint32_t dim)
{
    size_t t = 0, preamble = MAGIC_BYTES + 4;
    while (npy_types[t].type != type)
        t++;
    memset(header, ' ', NPY_HEADER_BYTES);
    memcpy(header, MAGIC, MAGIC_BYTES);
    header[MAGIC_BYTES] = 1;
    header[MAGIC_BYTES + 1] = 0;
    bytes_store_u16(header + MAGIC_BYTES + 2, (uint16_t)(NPY_HEADER_BYTES - preamble));
    int n = snprintf((char *)header + preamble, NPY_HEADER_BYTES - preamble,
                     "{'descr': '%.3s', 'fortran_order': False, 'shape': (%llu, %u), }", npy_types[t].descr,
                     (unsigned long long)rows, dim);
    header[preamble + (size_t)n] = ' ';
    header[NPY_HEADER_BYTES - 1] = '\n';
}
