/* Lanes: one endpoint of one transport, from its creation until the fabric has
 * released it. */
#include "lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "lane_early.h"
#include "memory/access.h"
#include "progress/pace.h"
#include "progress/sleep.h"
#include "worker.h"

/* ---- events for the control thread ---- */

void psc_lane_state_set(psc_lane_t *lane, psc_lane_state_t state)
{
    lane->state = state;
    if (lane->event)
        return;
    lane->event = true;
    psc_list_push(&lane->worker->lane_events, &lane->event_link);
    psc_worker_control_signal(lane->worker);
}

void psc_lane_fail(psc_lane_t *lane, psc_status_t status)
{
    lane->status = status;
    psc_lane_state_set(lane, PSC_LANE_FAILED);
}

/* ---- life ---- */

psc_lane_t *psc_lane_create(psc_worker_t *worker, int iface, uint64_t id)
{
    psc_lane_t *lane = calloc(1, sizeof *lane);

    if (!lane)
        return NULL;
    lane->worker = worker;
    lane->id = id;
    psc_list_init(&lane->link);
    psc_list_init(&lane->event_link);
    psc_list_init(&lane->early);
    psc_list_init(&lane->announced);
    lane->promised_end = &lane->promised;
    if (psc_worker_enter(worker, 0) != PSC_OK) {
        free(lane);
        return NULL;
    }
    lane->slot = &worker->ifaces[iface];
    if (lane->slot->ops->ep_create(lane->slot->iface, lane, &lane->ep) !=
        PSC_OK) {
        psc_worker_leave(worker);
        free(lane);
        return NULL;
    }
    lane->slot->lanes++;
    psc_worker_pace(worker);
    psc_worker_leave(worker);
    return lane;
}

int psc_lane_address(psc_lane_t *lane, uint8_t *address, size_t *len_p)
{
    psc_status_t status = psc_worker_enter(lane->worker, 0);

    if (status != PSC_OK)
        return status;
    status = lane->slot->ops->ep_address(lane->ep, address, len_p);
    psc_worker_leave(lane->worker);
    return status;
}

int psc_lane_connect(psc_lane_t *lane, int role, const uint8_t *token,
                     const uint8_t *address, size_t len)
{
    psc_connect_params_t params = {.role = (psc_role_t)role,
                                   .token = token,
                                   .address = address,
                                   .address_len = len};
    psc_status_t status = psc_worker_enter(lane->worker, 0);

    if (status != PSC_OK)
        return status;
    lane->role = params.role;
    lane->state = PSC_LANE_CONNECTING;
    status = lane->slot->ops->ep_connect(lane->ep, &params);
    if (status == PSC_OK)
        psc_lane_state_set(lane, PSC_LANE_UP);
    else if (status < 0)
        psc_lane_fail(lane, status);
    if (status < 0)
        snprintf(lane->reason, sizeof lane->reason, "%s: %s",
                 lane->slot->ops->name, psc_status_string(status));
    psc_wake(lane->worker, PSC_WAKE_NEWS | PSC_WAKE_SPENT);
    psc_worker_leave(lane->worker);
    return status;
}

int psc_lane_state(psc_lane_t *lane)
{
    psc_lane_state_t state;

    if (psc_worker_enter(lane->worker, 0) != PSC_OK)
        return PSC_LANE_FAILED;
    state = lane->state;
    psc_worker_leave(lane->worker);
    return state;
}

const char *psc_lane_reason(psc_lane_t *lane)
{
    return lane->reason;
}

bool psc_lane_tagged(const psc_lane_t *lane, char *reason)
{
    const psc_transport_ops_t *ops = lane->slot->ops;

    reason[0] = '\0';
    return ops->tag_ready && ops->tag_ready(lane->ep, reason) == PSC_OK &&
           lane->slot->attr.caps & PSC_CAP_TAG;
}

int psc_lane_matching(psc_lane_t *lane, char *reason)
{
    psc_status_t status = psc_worker_enter(lane->worker, 0);

    if (status != PSC_OK)
        return status;
    if (!psc_lane_tagged(lane, reason))
        status = PSC_ERR_UNSUPPORTED;
    psc_worker_leave(lane->worker);
    return status;
}

void psc_lane_retire(psc_lane_t *lane)
{
    if (lane->closing)
        return;
    lane->closing = true;
    if (lane->conn) /* no control message can be sent any more */
        lane->conn->close_ack_due = lane->conn->credit_due = false;
    psc_early_drop(lane);
    psc_landing_drop(lane);
    lane->slot->ops->ep_close(lane->ep);
    psc_list_push(&lane->worker->retiring, &lane->link);
    lane->worker->ending = true;
    /* the program may not call progress */
    psc_worker_control_signal(lane->worker);
}

static void lane_fini(psc_lane_t *lane)
{
    psc_worker_t *worker = lane->worker;

    psc_list_remove(&lane->link);
    psc_access_lane_ended(lane);
    lane->slot->ops->ep_fini(lane->ep);
    lane->ep = NULL;
    lane->slot->lanes--;
    psc_worker_pace(worker);
    if (!lane->conn) {
        psc_list_remove(&lane->event_link);
        free(lane);
    }
}

void psc_lane_progress_retiring(psc_worker_t *worker, bool force)
{
    psc_list_for_each(lane, &worker->retiring, psc_lane_t, link) {
        psc_status_t written = psc_access_lane_end(lane);
        psc_status_t sent = lane->slot->ops->ep_stop(lane->ep);

        if ((written != PSC_INPROGRESS && sent != PSC_INPROGRESS) || force)
            lane_fini(lane);
    }
}

void psc_lane_destroy(psc_lane_t *lane)
{
    psc_worker_t *worker = lane->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_list_remove(&lane->event_link);
    lane->event = true; /* set, so that no further event is queued */
    psc_lane_retire(lane);
    psc_worker_leave(worker);
}

/* ---- sending ---- */

psc_status_t psc_lane_send(psc_lane_t *lane, psc_wire_id_t id,
                           const void *header, uint8_t header_len,
                           const void *payload, size_t len)
{
    const psc_transport_ops_t *ops = lane->slot->ops;
    psc_iov_t iov = {(void *)payload, len};
    psc_status_t status;

    if (lane->slot->attr.caps & PSC_CAP_AM_SHORT &&
        header_len + len <= lane->slot->attr.max_short)
        status = ops->am_short(lane->ep, (uint8_t)id, header, header_len,
                               payload, len);
    else
        status = ops->am_bcopy(lane->ep, (uint8_t)id, header, header_len, &iov,
                               len ? 1 : 0);
    if (status == PSC_ERR_NO_RESOURCE && lane->conn)
        psc_count(lane->conn, PSC_COUNTER_back_pressure, 1);
    return status;
}
