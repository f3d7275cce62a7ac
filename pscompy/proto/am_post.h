/* Active messages that are sent by a handler, or by a thread that does not hold
 * the worker's lock. */
#pragma once

#include "am.h"

extern const psc_proto_t psc_am;

/* The function am_post of psc_api_t. May be called by any thread, and by the
 * handlers of all workers. */
psc_status_t psc_am_post(psc_conn_t *conn, uint32_t id, const void *header,
                         size_t header_len, const void *payload, size_t len);
