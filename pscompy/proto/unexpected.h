/* The records of messages that arrived before their receives, and the receives
 * that get a message while it is still arriving. match.h says which receive
 * gets a message. */
#pragma once

#include "match_queue.h"

/* Create the record of a message (psc_unexp_t), in no list, with memory for
 * `capacity` bytes in its member `payload`. Returns NULL if memory is short. */
psc_unexp_t *psc_unexp_create(psc_conn_t *conn, uint32_t context, int32_t tag,
                              uint64_t len, size_t capacity);
/* Returns the message that a receive with these arguments would get, or NULL.
 * Sets *lists_p to the lists in which the receive would wait, or to NULL if
 * these lists do not exist yet. */
psc_unexp_t *psc_unexp_find(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_match_lists_t **lists_p);
/* Take a message out of the lists of unexpected messages, if it is in them. */
void psc_unexp_take(psc_unexp_t *unexp);
/* Free the record of a message; credit that was withheld for it returns to the
 * peer. */
void psc_unexp_free(psc_unexp_t *unexp);
/* Free the announced and incomplete messages of a connection that has ended. */
void psc_unexp_conn_failed(psc_conn_t *conn);

/* A receive without buffer gets this message and waits for recv_supply. */
void psc_req_no_buffer(psc_req_t *req, psc_unexp_t *unexp);
/* Give the receive a message that has not arrived completely: stage CLAIMED. */
void psc_unexp_claim(psc_req_t *req, psc_unexp_t *unexp);
/* Detach a receive that ends from the message that it has claimed, if any. */
void psc_unexp_unclaim(psc_req_t *req);
