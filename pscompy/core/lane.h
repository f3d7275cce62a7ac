/* Lanes: what a connection does with an endpoint, before it is up, while it is,
 * and at its end. */
#pragma once

#include "types/lane.h"
#include "types/connection.h"

/* ---- lane_early.c ---- */

/* Messages that arrive before their lane is installed in a connection. */

/* Maximum number of bytes that are kept for a lane that is not installed. A
 * correct peer sends less: before our first answer it may send only control
 * messages, and eager messages within the initial credit. */
#define PSC_EARLY_MAX (1u << 20)

typedef struct psc_early {
    psc_link_t link;
    psc_am_t am;
    _Alignas(8) uint8_t data[];
} psc_early_t;

/* Keep a copy of a message until the lane is installed. Returns
 * PSC_ERR_PROTOCOL if the bytes that are kept exceed PSC_EARLY_MAX. */
psc_status_t psc_early_keep(psc_lane_t *lane, const psc_am_t *am);
/* Take out the earliest message that was kept; the caller frees it. Returns
 * NULL if none is left. */
psc_early_t *psc_early_pop(psc_lane_t *lane);
void psc_early_drop(psc_lane_t *lane);

/* ---- lane.c ---- */

/* Lanes, from their creation until the fabric has released them; control.h has
 * the functions for the control plane. With the lock held. */

/* Create a lane whose changes of state are posted to the control plane as
 * events of this kind and id. Returns NULL if memory or endpoints are short. */
psc_lane_t *psc_lane_open(psc_worker_t *worker, psc_iface_slot_t *slot,
                          psc_control_kind_t kind, uint64_t id);
/* The only function that changes a lane's state. */
void psc_lane_state_set(psc_lane_t *lane, psc_lane_state_t state);
void psc_lane_fail(psc_lane_t *lane, psc_status_t status);
void psc_lane_retire(psc_lane_t *lane);
/* Report to the transports (ep_spare) which lanes the connection can lose. For
 * the others a transport waits longer until it gives up a silent peer. */
void psc_lanes_count(const psc_conn_t *conn);
/* A spare lane (psc_lane_spare) has failed: retire it; the connection goes on
 * without it. */
void psc_lane_lose(psc_lane_t *lane);
/* The peer has lost this spare lane, and reads nothing from it any more: lose
 * it here, too. */
void psc_lane_useless(psc_lane_t *lane);
/* Set whether the lane carries no ordered messages (psc_lane_t.further). An
 * interface that has only such lanes may be polled rarely (progress/pace.c). */
void psc_lane_further(psc_lane_t *lane, bool further);
/* Begin to use a lane that has replaced a lost one, once it is in place on both
 * sides. */
void psc_lane_met(psc_lane_t *lane);
/* Retire a lane that was not installed. */
void psc_lane_abandon(psc_lane_t *lane);
/* Finish retiring lanes that the fabric has released. force: finish all
 * retiring lanes. */
void psc_lane_progress_retiring(psc_worker_t *worker, bool force);
/* Returns true if the fabric matches the lane's messages. reason:
 * PSC_REASON_MAX bytes. */
bool psc_lane_tagged(const psc_lane_t *lane, char *reason);
/* Send one small active message, by am_short or am_bcopy. attr: the attributes
 * of the interface that carries the message. */
psc_status_t psc_outlet_send(const psc_outlet_t *out,
                             const psc_iface_attr_t *attr, uint8_t id,
                             const void *header, uint8_t header_len,
                             const void *payload, size_t len);

/* ---- lane_upcalls.c ---- */

/* The upcalls that every transport makes, how lanes are installed, and how a
 * lane's failure ends its connection. With the lock held. */

extern const psc_upcalls_t psc_lane_upcalls;
/* Let these lanes carry the connection's messages; see psc_conn_install. */
psc_status_t psc_lanes_install(psc_conn_t *conn, psc_lane_t **lanes,
                               uint32_t n_lanes,
                               const psc_proto_params_t *params);
/* Put a new lane into the place of a lost one; see psc_conn_join. */
psc_status_t psc_lane_join(psc_conn_t *conn, uint32_t index, psc_lane_t *lane);
/* Connect to the connection's rank by a call; see psc_conn_call. */
psc_status_t psc_call_begin(psc_conn_t *conn);
/* The peer has violated the protocol on this lane: end the connection. */
void psc_lane_break(psc_lane_t *lane, psc_status_t status);
