/* Matching in the fabric, used if the connection's only lane has PSC_CAP_TAG
 * and both sides announce it. With several lanes the ordered messages may move
 * to another lane (replay.h). The receives that the fabric holds would then
 * have to be taken back from the fabric while messages land in them.
 *
 * All messages that are to be matched are then sent with match bits. A receive
 * is posted to the fabric if it names its source, has one buffer, and shares no
 * message with an earlier receive in match.c. All other receives wait in
 * match.c; a later receive that would share a message with one of them waits
 * there too, until that one has its message. A message that the fabric could
 * not match is passed up and matched in match.c. It has arrived before any
 * receive that the fabric holds now was posted, so match.c need not consider
 * those receives.
 *
 * A rendezvous is announced by an RTS as usual. Its place among the tagged
 * messages is taken by an empty tagged message with the mark bit. RTSs and
 * marks of a connection arrive in the same order, so the first RTS belongs to
 * the first mark. Tagged messages carry no credit; credit arrives in other
 * messages, or by itself. A user's active messages are not matched and are sent
 * as usual.
 *
 * If the fabric can (tag_put), the payload is sent with the mark, without an
 * RTS: a posted receive then gets it directly in its buffer, and both sides are
 * done. If there is no posted receive, the payload is lost: the mark becomes a
 * placeholder for an RTS, which the sender sends when it is notified. The
 * sender then announces messages by RTS for a while; each failure about doubles
 * the number of these messages. */
#pragma once

#include "match.h"
#include "protocol.h"
#include "eager.h"

/* ---- tag.c ---- */

extern const psc_proto_t psc_tag;

/* ---- tag_send.c ---- */

/* Sending messages that a fabric matches. */

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
