/* FIN, the message that ends a rendezvous; see rndv.h. */
#pragma once

#include "../types/conn.h"

/* Runs stage SEND_FIN: sends the FIN, or queues it for psc_rndv_send_fins. */
psc_status_t psc_rndv_send_fin(psc_req_t *req);
/* Send the FINs of the requests in conn->work.fins. Returns true if any request
 * was ended. */
bool psc_rndv_send_fins(psc_conn_t *conn);
psc_status_t psc_rndv_fin_arrived(psc_lane_t *lane, const psc_am_t *am);
