/* Lanes, from their creation until the fabric has released them; control.h has
 * the functions for the control plane. With the lock held. */
#pragma once

#include "types/connection.h"

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
