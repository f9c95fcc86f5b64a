/* error.h - filling a struct quire_error: one way to say what is wrong. */
#ifndef QUIRE_IO_ERROR_H
#define QUIRE_IO_ERROR_H

#include "quire.h"

/* Sets *err (may be NULL) and returns `code`, so that a caller writes `return error_set(err, QUIRE_EDIM, "...")`. */
int error_set_at(struct quire_error *err, const char *where, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#ifdef __clang_analyzer__
/* The analyzer does not look into variadic functions, nor deep into calls, and would follow paths on which an error is
 * 0. It evaluates `code` twice, which nothing else does. */
#define ERROR_BELOW_ZERO(call, code) ((void)(call), (code) < 0 ? (code) : QUIRE_EINTERNAL)
#define error_set(err, code, ...)    ERROR_BELOW_ZERO(error_set_at((err), __func__, (code), __VA_ARGS__), (code))
#else
#define error_set(err, code, ...) error_set_at((err), __func__, (code), __VA_ARGS__)
#endif

/* The QUIRE_E number for a positive errno. */
int error_from_errno(int errnum);

/* error_set for a failed system call: "<what> <path>: <strerror>". `errnum` is a positive errno. */
int error_set_errno_at(struct quire_error *err, const char *where, int errnum, const char *what, const char *path);
#ifdef __clang_analyzer__
#define error_set_errno(err, errnum, what, path)                                                                       \
    ERROR_BELOW_ZERO(error_set_errno_at((err), __func__, (errnum), (what), (path)), QUIRE_EIO)
#else
#define error_set_errno(err, errnum, what, path) error_set_errno_at((err), __func__, (errnum), (what), (path))
#endif

#endif
