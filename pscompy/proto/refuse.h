/* Refusing announced messages: a connection that is being closed here receives
 * no more of them. */
#pragma once

#include "../core/types/connection.h"

/* Send FINs with PSC_ERR_CLOSED for the peer's announced messages that have no
 * receive, as far as the lane takes them, so that the peer's sends end. Without
 * them two sides that both close would wait for each other's receives. Messages
 * that a receive has matched, and those that have arrived completely, stay.
 * Returns true if anything was sent. */
bool psc_refuse_announced(psc_conn_t *conn);
