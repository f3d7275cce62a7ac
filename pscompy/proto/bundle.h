/* Bundles: several buffers whose keys travel in a message of the program,
 * instead of an RTS for each.
 *
 *   message(offer) ->      get, get, ...           <- FIN
 *   message(offer) ->   <- RTR          FRAG ->    <- FIN   if no lane can get
 *
 * The sender's request waits in stage OFFERED for the FIN. The receiver's
 * request gets one buffer after the other; if the offer has no keys, or a key
 * cannot be used on this side, the request asks for fragments of all buffers as
 * if they were one message. */
#pragma once

#include "../core/types/connection.h"

/* The functions offer and fetch of psc_api_t. */
psc_status_t psc_bundle_offer(psc_conn_t *conn, const psc_send_args_t *args,
                              uint8_t *packed, size_t *len_p,
                              psc_request_t **request_p);
psc_status_t psc_bundle_fetch(psc_conn_t *conn, const psc_send_args_t *args,
                              const uint8_t *packed, size_t len,
                              psc_request_t **request_p);
