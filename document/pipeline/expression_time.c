/*
 * expression_time.c - functions about time. A time is seconds since 1970 in UTC; what is before, or none, gives null.
 */
#include "document/pipeline/expression_priv.h"
#include <assert.h>
#include <math.h>
#include <time.h>

#define TIME_TEXT_MAX 1024u /* bytes that timefmt() gives at most */
#define TIME_MAX      6e16  /* seconds: a year that an int holds */

static bool to_time(const struct datum *datum, double least, time_t *seconds, struct tm *parts)
{
    double number;
    if (!datum_to_number(datum, &number) || !(number >= least && number <= TIME_MAX))
        return false;
    *seconds = (time_t)number;
    return gmtime_r(seconds, parts) != NULL;
}

/* timefmt(time[, format]): as strftime; ISO 8601 without a format. */
int expression_timefmt(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    char text[TIME_TEXT_MAX];
    const char *format = "%FT%TZ";
    time_t seconds;
    struct tm parts;
    if (n == 2) {
        int rc = expression_want_string(call, args, 1);
        if (rc)
            return rc;
        format = datum_text(args[1]);
    }
    size_t bytes = to_time(args[0], -TIME_MAX, &seconds, &parts) ? strftime(text, sizeof text, format, &parts) : 0;
    if (bytes == 0)
        return expression_give_null(call, out);
    return expression_give(call, datum_string(call->pool, text, bytes), out);
}

/* parsetime(text, format): as strptime. */
int expression_parsetime(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    struct tm parts = {0};
    (void)n;
    int rc = expression_want_string(call, args, 0);
    if (rc == 0)
        rc = expression_want_string(call, args, 1);
    if (rc)
        return rc;
    if (!strptime(datum_text(args[0]), datum_text(args[1]), &parts))
        return expression_give_null(call, out);
    return expression_give_number(call, (double)timegm(&parts), out);
}

/* The beginning of the minute, hour, day or month of a time. */
static int begin_of(struct expression_call *call, struct datum *const *args, char unit, struct datum **out)
{
    time_t seconds;
    struct tm parts;
    if (!to_time(args[0], 0, &seconds, &parts))
        return expression_give_null(call, out);
    parts.tm_sec = 0;
    if (unit != 'm')
        parts.tm_min = 0;
    if (unit == 'd' || unit == 'M')
        parts.tm_hour = 0;
    if (unit == 'M')
        parts.tm_mday = 1;
    return expression_give_number(call, (double)timegm(&parts), out);
}

int expression_minute(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return begin_of(call, args, 'm', out);
}

int expression_hour(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return begin_of(call, args, 'h', out);
}

int expression_day(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return begin_of(call, args, 'd', out);
}

int expression_month(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)
{
    (void)n;
    return begin_of(call, args, 'M', out);
}

#define PART(name, value)                                                                                              \
    int expression_##name(struct expression_call *call, struct datum *const *args, uint32_t n, struct datum **out)     \
    {                                                                                                                  \
        time_t seconds;                                                                                                \
        struct tm parts;                                                                                               \
        (void)n;                                                                                                       \
        if (!to_time(args[0], 0, &seconds, &parts))                                                                    \
            return expression_give_null(call, out);                                                                    \
        return expression_give_number(call, (value), out);                                                             \
    }
PART(monthofyear, parts.tm_mon) /* 0 to 11 */
PART(year, parts.tm_year + 1900.0)
PART(dayofmonth, parts.tm_mday) /* from 1 */
PART(dayofweek, parts.tm_wday)  /* Sunday is 0 */
PART(dayofyear, parts.tm_yday)  /* from 0 */
