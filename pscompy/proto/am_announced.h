/* Active messages that are announced by RTS. They wait to be fetched while
 * messages that have not been polled or received fill the bound on memory
 * (psc_budget_t). */
#pragma once

#include "am.h"
#include "rndv.h"

/* Fetch an announced message now, or later if there is no room for it
 * (psc_budget_t) and other messages have not been polled. Returns
 * PSC_ERR_PROTOCOL if the peer violates the protocol. */
psc_status_t psc_am_announced(psc_conn_t *conn, uint16_t header_len,
                              const psc_announcement_t *announcement);
/* Refuse one of the connection's messages that wait to be fetched; see
 * refuse.h. Returns true if there was one, and its FIN was sent. */
bool psc_am_offer_refuse(psc_conn_t *conn);
/* Returns the bytes of the records of messages that wait to be fetched. */
uint64_t psc_am_offers_bytes(const psc_worker_t *worker);
psc_message_t *psc_am_poll(psc_worker_t *worker);
void psc_am_message_free(psc_message_t *message);
/* A connection has ended: free its announced messages that were not fetched. */
void psc_am_conn_ended(psc_conn_t *conn);
void psc_am_worker_destroy(psc_worker_t *worker);
