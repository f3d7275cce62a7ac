/* Matching in the fabric, where a connection's only lane for messages has it
 * (PSC_CAP_TAG) and both sides say so.
 *
 * Whatever is to be matched is then sent with match bits. A receive that names
 * its source, has one buffer, and shares no message with an earlier one that
 * waits in match.c, is left to the fabric, which puts the message where it
 * belongs; the others wait in match.c, and later ones that would share a
 * message with them do so too, until these have got theirs. What no receive
 * matched comes up and is matched there: it came before the receives that the
 * fabric has now, so those need not be asked.
 *
 * A rendezvous is announced as always, by an RTS, and takes its place among
 * the tagged messages by one that is empty and has the mark: RTSs and marks of
 * a connection come in one order, so the first of the one belongs to the first
 * of the other. Tagged messages bring no credit; it comes with other messages,
 * or by itself. A user's active messages are not matched and go as always.
 *
 * Where the fabric can, the message itself goes along with the mark, without an
 * RTS: if a receive is there, it is in its buffer then, and both sides are
 * done. If none is, it went in vain; the mark promises an RTS, which the sender
 * sends when it has heard. Then it sends RTSs first for a while, for twice as
 * many messages each time. */
#ifndef PSCOMPY_PROTO_TAG_H
#define PSCOMPY_PROTO_TAG_H

#include "match.h"

/* ---- receiving ---- */
/* Called by the fabric when it has matched a receive: conn->tag_done. */
void psc_tag_done(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                  size_t len);
/* Leave the receive to the fabric; false: it may not, or does not take it. */
bool psc_tag_recv(psc_req_t *req);
/* PSC_OK: it is taken back, and done; INVALID: it has matched. */
psc_status_t psc_tag_recv_cancel(psc_req_t *req);
/* Its connection ends: so does it, once the fabric lets go of it. */
void psc_tag_recv_end(psc_req_t *req, psc_status_t status);
/* An RTS that waits for its mark, and a mark that no receive matched. */
void psc_tag_announced(psc_lane_t *lane, psc_unexp_t *unexp);
psc_status_t psc_tag_mark_arrived(psc_lane_t *lane, const psc_am_t *am);
/* The same for one that promises an RTS, for one that was taken from the
 * receive that it had matched, and the RTS that was promised. */
psc_status_t psc_tag_missed_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_tag_whole_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_tag_late_arrived(psc_lane_t *lane, const psc_am_t *am);
/* The lane ends: its RTSs are of no use. */
void psc_tag_abort(psc_lane_t *lane);

#endif
