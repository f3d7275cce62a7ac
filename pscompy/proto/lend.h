/* Lending: the sender lends the pages of a message instead of sending a copy.
 *
 *   RTS(LENT, key of the segment, offset) ->
 *      a receive matches: map the segment, once; make a view of the message
 *                                  <- TAKEN   unless released at once
 *                                  <- FIN     when the view is released
 *
 * The sender's request is done when the FIN arrives or the connection ends:
 * then the peer does not read the pages any more, or its process has ended. A
 * receiver that closes the connection, or loses the peer, first makes private
 * copies of the views that are still held (psc_map_t.keep), so that they keep
 * their contents. A lent message that is received into a buffer is an ordinary
 * rendezvous. */
#pragma once

#include "match.h"
#include "protocol.h"

extern const psc_proto_t psc_lend;

/* Shorter messages are copied, because a copy is cheaper than the three control
 * messages RTS, TAKEN and FIN. */
#define PSC_LEND_MIN 4096u

/* The functions recv_view and view_free of psc_api_t. */
psc_status_t psc_lend_view(psc_req_t *req, psc_view_t **view_p);
/* Release a view. May be called by any thread, even after the worker has
 * ended. */
void psc_lend_return(psc_view_t *view);
