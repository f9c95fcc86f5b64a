/* arg.h - arguments of a request as words, numbers and texts. */
#ifndef QUIRE_SERVER_ARG_H
#define QUIRE_SERVER_ARG_H

#include "server/protocol/resp.h"

/* An argument as two of printf's, for "%.*s": at most `most` bytes of it. */
#define ARG_SHOWN(arg, most) (int)((arg).bytes < (most) ? (arg).bytes : (most)), (const char *)(arg).data
bool arg_is(struct resp_arg arg, const char *word);    /* without regard to case */
bool arg_integer(struct resp_arg arg, long long *out); /* as Redis: no '+', no blanks, no leading zeros */
bool arg_number(struct resp_arg arg, double *out);     /* finite or not: the caller decides */
/* A copy that ends in 0; NULL without memory or where the bytes hold a 0. Owned by the caller. */
char *arg_text(struct resp_arg arg);

#endif
