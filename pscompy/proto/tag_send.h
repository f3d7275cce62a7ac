/* Sending messages that a fabric matches; see tag.h. */
#pragma once

#include "eager.h"

/* Returns true if messages of this context are sent with match bits. */
static inline bool psc_tag_carries(const psc_conn_t *conn, uint32_t context)
{
    return __builtin_expect(conn->tagging.on, 0) && context != PSC_CONTEXT_AM;
}

/* Send a complete message. Returns PSC_ERR_UNSUPPORTED if it is too long. */
psc_status_t psc_tag_send(psc_conn_t *conn, const psc_message_head_t *head,
                          const psc_iov_t *iov, size_t n_iov, uint64_t len);
/* Runs stage SEND_MARK: sends the mark of an RTS, the empty tagged message that
 * gives the RTS its place (tag.h). */
psc_status_t psc_tag_send_mark(psc_req_t *req);
/* Send the payload with the mark into a posted receive of the peer (tag_put).
 * Returns PSC_ERR_UNSUPPORTED if the message must be announced by RTS. */
psc_status_t psc_tag_send_put(psc_req_t *req);
