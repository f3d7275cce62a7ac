/* RPUT and RGET, the rendezvous by put and by get; see rndv.h. */
#pragma once

#include "../core/types/connection.h"

/* Issue the next pieces by put or get. Returns PSC_OK once all pieces are
 * complete, or nothing is in flight after an error (req->error);
 * PSC_ERR_UNSUPPORTED if no lane can move the rest. */
psc_status_t psc_rndv_move(psc_req_t *req, bool is_put);
/* No lane can move the rest, and nothing is in flight: forget what was moved,
 * so that the whole message can be moved in another way. */
void psc_rndv_begin_again(psc_req_t *req);
/* Runs stage PUT: puts the next pieces. */
psc_status_t psc_rndv_put(psc_req_t *req);
/* Runs stage FLUSH: waits until all puts are visible at the target. */
psc_status_t psc_rndv_flush(psc_req_t *req);
/* Runs stage GET: gets the next pieces. */
psc_status_t psc_rndv_get(psc_req_t *req);
/* Returns the result of a put or get of the program (rma.h) once its accesses
 * have ended. The key was checked before it was unpacked, so a transport that
 * finds it invalid says that the owner has closed the region. */
psc_status_t psc_rndv_one_sided_result(const psc_req_t *req);
