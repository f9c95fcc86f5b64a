/*
 * error.c - the error table, and filling a struct quire_error.
 *
 * First error wins is the caller's business: error_set overwrites, so that the innermost function that knows most
 * writes last before returning, and callers above pass the number on without touching the sentence.
 */
#include "io/error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *quire_error_name(int code)
{
    switch (code) {
    case QUIRE_OK:
        return "QUIRE_OK";
#define NAME(name, number, text)                                                                                       \
    case -(number):                                                                                                    \
        return "QUIRE_E" #name;
        QUIRE_ERRORS(NAME)
#undef NAME
    }
    return "QUIRE_EUNKNOWN";
}

const char *quire_error_text(int code)
{
    switch (code) {
    case QUIRE_OK:
        return "no error";
#define TEXT(name, number, text)                                                                                       \
    case -(number):                                                                                                    \
        return text;
        QUIRE_ERRORS(TEXT)
#undef TEXT
    }
    return "unknown error";
}

const char *quire_version(void)
{
    return QUIRE_VERSION_STRING;
}

int error_set_at(struct quire_error *err, const char *where, int code, const char *format, ...)
{
    if (err) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(err->message, sizeof err->message, format, arguments);
        va_end(arguments);
        err->code = code;
        err->where = where;
    }
    return code;
}

int error_from_errno(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return QUIRE_ENOSPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return QUIRE_EPERM;
    case ENOENT:
    case ENOTDIR:
        return QUIRE_ENOFILE;
    case EEXIST:
    case ENOTEMPTY:
        return QUIRE_EEXISTS;
    case ENOMEM:
        return QUIRE_ENOMEM;
    case EADDRINUSE:
        return QUIRE_EADDRINUSE;
    case ECANCELED:
        return QUIRE_ECANCELLED;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
        return QUIRE_EINVALID;
    case EBUSY:
    case EAGAIN:
        return QUIRE_EBUSY;
    case EMFILE:
    case ENFILE:
    case EFBIG:
        return QUIRE_ELIMIT;
    case ENOSYS:
    case EOPNOTSUPP:
        return QUIRE_EUNSUPPORTED;
    case ETIMEDOUT:
    case ETIME:
        return QUIRE_ETIMEOUT;
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
        return QUIRE_ENET;
    default:
        return QUIRE_EIO;
    }
}

/* A word on what to do, for the errors that a user can mend. */
static const char *remedy(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return ": make room or choose another disk";
    case EACCES:
    case EPERM:
        return ": check owner and mode";
    case EROFS:
        return ": the file system is mounted read-only";
    case EMFILE:
    case ENFILE:
        return ": raise the limit of open files (ulimit -n)";
    default:
        return "";
    }
}

int error_set_errno_at(struct quire_error *err, const char *where, int errnum, const char *what, const char *path)
{
    char text[128];
    /* the GNU variant may answer a static string and leave text alone */
    const char *said = strerror_r(errnum, text, sizeof text);
    return error_set_at(err, where, error_from_errno(errnum), "cannot %s %s: %s%s", what, path, said, remedy(errnum));
}
