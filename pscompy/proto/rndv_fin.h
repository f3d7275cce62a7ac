/* FIN, the message that ends a rendezvous; see rndv.h. */
#pragma once

#include "../core/types/connection.h"

#define PSC_FINS_MAX 16u /* maximum number of FINs in one message */

/* Send one message with the FINs of these requests of the peer. */
psc_status_t psc_rndv_fin(psc_conn_t *conn, psc_status_t result,
                          const uint64_t *ids, uint32_t n);
/* Runs stage SEND_FIN: sends the FIN, or queues it for psc_rndv_send_fins. */
psc_status_t psc_rndv_send_fin(psc_req_t *req);
/* Send the FINs of the requests in conn->work.fins. Returns true if any request
 * was ended. */
bool psc_rndv_send_fins(psc_conn_t *conn);
psc_status_t psc_rndv_fin_arrived(psc_lane_t *lane, const psc_am_t *am);
