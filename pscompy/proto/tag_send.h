/* Sending messages that a fabric matches; see tag.h. */
#pragma once

#include "eager.h"

/* psc_proto_t.may and psc_proto_t.start. */
bool psc_tag_may(const psc_req_t *req);
psc_status_t psc_tag_start(psc_req_t *req);
/* Send a complete message. Returns PSC_ERR_UNSUPPORTED if it is too long. */
psc_status_t psc_tag_send(psc_conn_t *conn, const psc_message_head_t *head,
                          const psc_iov_t *iov, size_t n_iov, uint64_t len);
/* Runs stage SEND_MARK: sends the mark of an RTS, the empty tagged message that
 * gives the RTS its place (tag.h). */
psc_status_t psc_tag_send_mark(psc_req_t *req);
/* Runs stage SEND_LATE: announces a message by RTS after its payload, sent with
 * the mark (tag.h), has met no posted receive. */
psc_status_t psc_tag_send_late(psc_req_t *req);
