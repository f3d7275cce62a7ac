/* Lanes: one endpoint of one transport, from its creation until the fabric has
 * released it. */
#include "lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "progress/progress.h"
#include "upward.h"
#include "worker.h"

void psc_lane_state_set(psc_lane_t *lane, psc_lane_state_t state)
{
    lane->state = state;
    if (state == PSC_LANE_FAILED)
        psc_control_event_post(&lane->worker->control_events,
                               &lane->event_slot);
    else
        psc_control_event_post_quietly(&lane->worker->control_events,
                                       &lane->event_slot);
}

void psc_lane_fail(psc_lane_t *lane, psc_status_t status)
{
    lane->status = status;
    psc_lane_state_set(lane, PSC_LANE_FAILED);
}

/* ---- creation and end ---- */

psc_lane_t *psc_lane_open(psc_worker_t *worker, psc_iface_slot_t *slot,
                          psc_control_kind_t kind, uint64_t id)
{
    psc_lane_t *lane = calloc(1, sizeof *lane);

    if (!lane)
        return NULL;
    lane->worker = worker;
    lane->slot = slot;
    psc_list_init(&lane->link);
    psc_event_slot_init(&lane->event_slot, kind, id);
    lane->event_slot.quiet = kind == PSC_CONTROL_CALL;
    psc_list_init(&lane->early);
    psc_list_init(&lane->announced);
    lane->promised_end = &lane->promised;
    if (slot->ops->ep_create(slot->iface, lane, &lane->ep) != PSC_OK) {
        free(lane);
        return NULL;
    }
    slot->lanes++;
    psc_interfaces_pace(&worker->interfaces, worker->config.spin_ns);
    return lane;
}

psc_lane_t *psc_lane_create(psc_worker_t *worker, int iface, uint64_t id)
{
    psc_lane_t *lane;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return NULL;
    lane = psc_lane_open(worker, psc_iface_slot(&worker->interfaces, iface),
                         PSC_CONTROL_LANE, id);
    psc_worker_leave(worker);
    return lane;
}

int psc_lane_address(psc_lane_t *lane, uint8_t *address, size_t *len_p)
{
    return psc_worker_locked(
        lane->worker, 0, lane->slot->ops->ep_address(lane->ep, address, len_p));
}

int psc_lane_connect(psc_lane_t *lane, int spare, int role,
                     const uint8_t *token, const uint8_t *address, size_t len)
{
    psc_connect_params_t params = {.spare = spare != 0,
                                   .role = (psc_role_t)role,
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
    psc_wake(lane->worker, PSC_WAKE_EVENT | PSC_WAKE_SPENT);
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

void psc_lane_reason(psc_lane_t *lane, char *reason)
{
    reason[0] = '\0';
    if (psc_worker_enter(lane->worker, 0) != PSC_OK)
        return;
    memcpy(reason, lane->reason, PSC_REASON_MAX);
    psc_worker_leave(lane->worker);
}

bool psc_lane_tagged(const psc_lane_t *lane, char *reason)
{
    const psc_transport_ops_t *ops = lane->slot->ops;
    bool able = lane->slot->attr.caps & PSC_CAP_TAG;

    reason[0] = '\0';
    if (!ops->tag_ready)
        return false;
    if (able && lane->among) {
        snprintf(reason, PSC_REASON_MAX,
                 "messages may move from one rail to another");
        return false;
    }
    return ops->tag_ready(lane->ep, reason) == PSC_OK && able;
}

int psc_lane_matching(psc_lane_t *lane, char *reason)
{
    return psc_worker_locked(
        lane->worker, 0,
        psc_lane_tagged(lane, reason) ? PSC_OK : PSC_ERR_UNSUPPORTED);
}

void psc_lane_retire(psc_lane_t *lane)
{
    if (lane->closing)
        return;
    lane->closing = true;
    /* Without this lane no control message of the connection can be sent. */
    if (lane->conn && lane == lane->conn->main)
        lane->conn->closing.ack_due = lane->conn->flow.due = false;
    psc_early_drop(lane);
    psc_landing_drop(lane);
    lane->slot->ops->ep_close(lane->ep);
    psc_ends_add(&lane->worker->ends, &lane->worker->ends.retiring,
                 &lane->link);
    /* the control thread drives progress if the program does not poll */
    psc_control_events_ring(&lane->worker->control_events);
}

void psc_lanes_count(const psc_conn_t *conn)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < conn->n_lanes; i++)
        n += psc_lane_works(conn->lanes[i]);
    for (uint32_t i = 0; i < conn->n_lanes; i++) {
        const psc_lane_t *lane = conn->lanes[i];

        if (psc_lane_works(lane) && lane->slot->ops->ep_spare)
            lane->slot->ops->ep_spare(lane->ep, conn->replay ? n > 1 : i > 0);
    }
}

void psc_lane_lose(psc_lane_t *lane)
{
    lane->worker->up->lane_lost(lane);
    psc_lane_retire(lane);
    psc_lanes_count(lane->conn);
}

void psc_lane_further(psc_lane_t *lane, bool further)
{
    if (lane->further == further)
        return;
    lane->further = further;
    lane->slot->further += further ? 1 : -1u;
    psc_interfaces_pace(&lane->worker->interfaces,
                        lane->worker->config.spin_ns);
}

void psc_lane_useless(psc_lane_t *lane)
{
    lane->useless = true;
    if (lane->closing)
        return;
    if (lane->state != PSC_LANE_FAILED) {
        snprintf(lane->reason, sizeof lane->reason, "the peer has lost it");
        psc_lane_fail(lane, PSC_ERR_PEER_LOST);
    }
    psc_lane_lose(lane);
}

void psc_lane_met(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->conn;
    uint8_t bit = (uint8_t)(1u << lane->index);

    if (!(conn->lost.joined & conn->lost.met & bit) || lane->closing)
        return;
    psc_lost_forget(&conn->lost, bit);
    psc_lanes_count(conn);
    psc_count(conn, PSC_COUNTER_rails_joined, 1);
    psc_control_event_post(&conn->worker->control_events, &conn->event_slot);
}

void psc_lane_abandon(psc_lane_t *lane)
{
    lane->caller = NULL;
    psc_event_slot_end(&lane->event_slot);
    psc_lane_retire(lane);
}

static void lane_fini(psc_lane_t *lane)
{
    psc_worker_t *worker = lane->worker;

    psc_list_remove(&lane->link);
    psc_access_lane_ended(lane);
    lane->slot->ops->ep_fini(lane->ep);
    lane->ep = NULL;
    lane->slot->lanes--;
    psc_lane_further(lane, false);
    psc_interfaces_pace(&worker->interfaces, worker->config.spin_ns);
    if (!lane->conn) {
        psc_event_slot_end(&lane->event_slot);
        free(lane);
    } else if (psc_lane_spare(lane)) {
        worker->up->lane_sealed(lane);
    }
}

/* Returns true if the peer reads nothing from the lane any more, and the fabric
 * uses no memory of the program: puts and gets have completed. A fabric without
 * put and get discards its unsent bytes when the endpoint ends. */
static bool lane_useless(const psc_lane_t *lane)
{
    return lane->useless &&
           (lane->stripe.queued == 0 ||
            !(lane->slot->attr.caps & (PSC_CAP_PUT | PSC_CAP_GET)));
}

void psc_lane_progress_retiring(psc_worker_t *worker, bool force)
{
    psc_list_for_each(lane, &worker->ends.retiring, psc_lane_t, link) {
        psc_status_t written = psc_access_lane_end(lane);
        psc_status_t sent = lane->slot->ops->ep_stop(lane->ep);

        if ((written != PSC_INPROGRESS &&
             (sent != PSC_INPROGRESS || lane_useless(lane))) ||
            force)
            lane_fini(lane);
    }
}

void psc_lane_destroy(psc_lane_t *lane)
{
    psc_worker_t *worker = lane->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_lane_abandon(lane);
    psc_worker_leave(worker);
}

/* ---- sending ---- */

psc_status_t psc_outlet_send(const psc_outlet_t *out,
                             const psc_iface_attr_t *attr, uint8_t id,
                             const void *header, uint8_t header_len,
                             const void *payload, size_t len)
{
    psc_iov_t iov = {(void *)payload, len};

    if (attr->caps & PSC_CAP_AM_SHORT && header_len + len <= attr->max_short)
        return out->ops->am_short(out->ep, id, header, header_len, payload,
                                  len);
    return out->ops->am_bcopy(out->ep, id, header, header_len, &iov,
                              len ? 1 : 0);
}
