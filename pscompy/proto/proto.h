/* The two tables of the protocols: the function for each arriving active
 * message, and the function that advances a request from each stage. */
#pragma once

#include "../core/types/connection.h"
#include "../core/upward.h"

/* ---- proto.c ---- */

/* The next functions are members of psc_upward_t. */
psc_status_t psc_proto_advance(psc_req_t *req);
psc_status_t psc_proto_arrived(psc_lane_t *lane, const psc_am_t *am);
void psc_proto_begin(psc_lane_t *lane, const void *header, psc_dest_t *dest);
psc_status_t psc_proto_end(psc_lane_t *lane);
/* The lane failed between begin and end: drop the payload that was arriving. */
void psc_proto_abort(psc_lane_t *lane);

/* ---- protocols.c ---- */

/* All protocols (eager, rendezvous and so on) as one table of functions, which
 * psc_worker_create registers with the core, and the functions that begin and
 * end their state in a worker. */

extern const psc_upward_t psc_protocols;
/* Initialize the protocols' state of a worker whose configuration is known. */
void psc_protocols_init(psc_worker_t *worker);
/* The worker ends: call psc_protocols_stop before its connections are freed,
 * psc_protocols_destroy afterwards. */
void psc_protocols_stop(psc_worker_t *worker);
void psc_protocols_destroy(psc_worker_t *worker);
