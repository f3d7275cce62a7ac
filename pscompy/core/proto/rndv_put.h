/* RPUT: see rndv.h. */
#ifndef PSCOMPY_PROTO_RNDV_PUT_H
#define PSCOMPY_PROTO_RNDV_PUT_H

#include "../types/conn.h"

psc_status_t psc_rndv_move_put(psc_req_t *req);
psc_status_t psc_rndv_put(psc_req_t *req);   /* stage PUT */
psc_status_t psc_rndv_flush(psc_req_t *req); /* stage FLUSH */

#endif
