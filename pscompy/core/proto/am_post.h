/* Active messages from handlers and other threads. */
#ifndef PSCOMPY_PROTO_AM_POST_H
#define PSCOMPY_PROTO_AM_POST_H

#include "am.h"

/* am_post: any thread, any worker's handler; see api.h. */
psc_status_t psc_am_post(psc_conn_t *conn, uint32_t id, const void *header,
                         size_t header_len, const void *payload, size_t len);
/* Send what am_post left for the holder of the lock. */
void psc_am_inbox_drain(psc_worker_t *worker);

#endif
