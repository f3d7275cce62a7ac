/* Lanes, from their creation until the fabric has let go of them; control.h has
 * what the control plane calls. With the lock held. */
#ifndef PSCOMPY_CORE_LANE_H
#define PSCOMPY_CORE_LANE_H

#include "types/conn.h"

/* The only function that changes a lane's state. */
void psc_lane_state_set(psc_lane_t *lane, psc_lane_state_t state);
void psc_lane_fail(psc_lane_t *lane, psc_status_t status);
void psc_lane_retire(psc_lane_t *lane);
/* Work on lanes that are going. force: their time is up. */
void psc_lane_progress_retiring(psc_worker_t *worker, bool force);
/* Does the fabric match what comes over it? reason: PSC_REASON_MAX bytes. */
bool psc_lane_tagged(const psc_lane_t *lane, char *reason);
/* One control message or small piece on a lane. */
psc_status_t psc_lane_send(psc_lane_t *lane, psc_wire_id_t id,
                           const void *header, uint8_t header_len,
                           const void *payload, size_t len);

#endif
