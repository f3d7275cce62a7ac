/* Messages that a fabric matches, on their way out; see tag.h. */
#ifndef PSCOMPY_PROTO_TAG_SEND_H
#define PSCOMPY_PROTO_TAG_SEND_H

#include "eager.h"

/* Do messages of this context go with match bits? */
static inline bool psc_tag_carries(const psc_conn_t *conn, uint32_t context)
{
    return __builtin_expect(conn->tagged, 0) && context != PSC_CONTEXT_AM;
}

/* A message, whole; UNSUPPORTED: it is too long for that. */
psc_status_t psc_tag_send(psc_conn_t *conn, const psc_message_head_t *head,
                          const psc_iov_t *iov, size_t n_iov, uint64_t len);
psc_status_t psc_tag_send_mark(psc_req_t *req); /* stage SEND_MARK */
/* The message with its mark; UNSUPPORTED: announce it. */
psc_status_t psc_tag_send_along(psc_req_t *req);

#endif
