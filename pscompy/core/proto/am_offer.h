/* Active messages that are announced, and wait while other messages that have
 * not been polled take the memory for them (psc_room_t). */
#pragma once

#include "am.h"
#include "rndv.h"

/* Fetch an announced message now, or later if unpolled messages have reached
 * the bound on their memory. Returns PSC_ERR_PROTOCOL if the peer violates the
 * protocol. */
psc_status_t psc_am_announced(psc_conn_t *conn, uint16_t header_len,
                              const psc_offer_t *offer);
psc_message_t *psc_am_poll(psc_worker_t *worker);
void psc_am_message_free(psc_message_t *message);
/* Free the announced messages that wait, of a connection that has ended. */
void psc_am_conn_ended(psc_conn_t *conn);
void psc_am_worker_destroy(psc_worker_t *worker);
