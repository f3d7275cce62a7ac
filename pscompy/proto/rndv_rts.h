/* RTS: the start of a rendezvous on either side; see rndv.h. A message that a
 * fabric matches may be sent without an RTS; see tag.h. */
#pragma once

#include "../core/types/connection.h"

/* In stage SEND: announces the message by an RTS, unless the payload itself can
 * be sent with the mark (psc_tag_send_put). */
psc_status_t psc_rndv_send_rts(psc_req_t *req);
/* Runs stage SEND_LATE: announces a message by RTS after its payload, sent with
 * the mark (tag.h), has met no posted receive. */
psc_status_t psc_rndv_send_late(psc_req_t *req);
psc_status_t psc_rndv_rts_arrived(psc_lane_t *lane, const psc_am_t *am);
