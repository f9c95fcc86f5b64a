/*
 * proxy_log.h - what is written and counted of a request when it has ended: one line of the access log, and metrics.
 */
#ifndef QUIRE_GATEWAY_PROXY_LOG_H
#define QUIRE_GATEWAY_PROXY_LOG_H

#include "gateway/proxy/flow.h"

struct http_request;
struct telemetry;

/* Counts it, and writes its line where there is an access log. */
void proxy_log_request(struct telemetry *telemetry, const struct http_request *r, const struct flow_end *end);
/* The same of a question to the judge's model: it is no request, but it costs what one does. */
void proxy_log_judged(struct telemetry *telemetry, const struct flow_judged *judged);

#endif
