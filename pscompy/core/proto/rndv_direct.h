/* RPUT and RGET: see rndv.h. */
#ifndef PSCOMPY_CORE_PROTO_RNDV_DIRECT_H
#define PSCOMPY_CORE_PROTO_RNDV_DIRECT_H

#include "../types/conn.h"

psc_status_t psc_rndv_put(psc_req_t *req);   /* stage PUT */
psc_status_t psc_rndv_flush(psc_req_t *req); /* stage FLUSH */
psc_status_t psc_rndv_get(psc_req_t *req);   /* stage GET */

#endif
