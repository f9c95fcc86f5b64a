/* sc_tls.h - what connections to a server by TLS share: whom they trust. */
#ifndef QUIRE_GATEWAY_SC_TLS_H
#define QUIRE_GATEWAY_SC_TLS_H

#include "quire.h"

struct ssl_ctx_st;

/* TLS 1.2 and later; the peer's certificate is verified, with the authorities of ca_file, or ("") the system's.
 * QUIRE_ENOMEM, QUIRE_EINVALID. */
int sc_tls_create(const char *ca_file, struct ssl_ctx_st **out, struct quire_error *err);

#endif
