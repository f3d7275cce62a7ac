/* RGET: see rndv.h. */
#ifndef PSCOMPY_PROTO_RNDV_GET_H
#define PSCOMPY_PROTO_RNDV_GET_H

#include "../types/conn.h"

psc_status_t psc_rndv_move_get(psc_req_t *req);
psc_status_t psc_rndv_get(psc_req_t *req); /* stage GET */

#endif
