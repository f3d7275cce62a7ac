/* Lanes: one endpoint of one transport, from its creation until the fabric
 * has let go of it; and the upcalls that every transport makes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/access.h"
#include "upward.h"

/* A message that came before its lane was installed. */
typedef struct early {
    psc_link_t link;
    psc_am_t am;
    _Alignas(8) uint8_t data[];
} early_t;

/* More than this before the first answer is no peer of ours: it may send only
 * what the initial credit allows, and control messages. */
#define EARLY_MAX (1u << 20)

static psc_lane_t *lane_of(psc_ep_t *ep)
{
    return ep->user;
}

/* ---- events for the control thread ---- */

static void lane_state_set(psc_lane_t *lane, psc_lane_state_t state)
{
    lane->state = state;
    if (lane->event)
        return;
    lane->event = true;
    psc_list_push(&lane->worker->lane_events, &lane->event_link);
    psc_worker_control_signal(lane->worker);
}

static void lane_fail(psc_lane_t *lane, psc_status_t status)
{
    lane->status = status;
    lane_state_set(lane, PSC_LANE_FAILED);
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
        lane_state_set(lane, PSC_LANE_UP);
    else if (status < 0)
        lane_fail(lane, status);
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

static void lane_drop_early(psc_lane_t *lane)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&lane->early)))
        free(psc_container_of(link, early_t, link));
    lane->early_bytes = 0;
    psc_landing_drop(lane);
}

void psc_lane_retire(psc_lane_t *lane)
{
    if (lane->closing)
        return;
    lane->closing = true;
    if (lane->conn) /* nothing more can be said */
        lane->conn->close_ack_due = lane->conn->credit_due = false;
    lane_drop_early(lane);
    lane->slot->ops->ep_close(lane->ep);
    psc_list_push(&lane->worker->retiring, &lane->link);
    lane->worker->ending = true;
    psc_worker_control_signal(lane->worker); /* the program may not call us */
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
    lane->event = true; /* nobody asks any more */
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

/* ---- upcalls ---- */

void psc_lane_break(psc_lane_t *lane, psc_status_t status)
{
    char line[PSC_REASON_MAX];

    snprintf(line, sizeof line,
             "%s: a message of the peer was refused (%s); the connection ends",
             lane->slot->ops->name, psc_status_string(status));
    psc_worker_log(lane->worker, 1, line);
    psc_conn_fail_locked(lane->conn, status);
}

/* What comes is of no interest: the connection is over, even if its last word
 * has still to leave by this lane. */
static bool lane_deaf(const psc_lane_t *lane)
{
    return lane->closing || (lane->conn && psc_conn_ended(lane->conn));
}

static void lane_keep_early(psc_lane_t *lane, const psc_am_t *am)
{
    early_t *early;

    lane->early_bytes += am->len + sizeof *early;
    early = lane->early_bytes > EARLY_MAX
                ? NULL
                : malloc(sizeof *early + PSC_AM_HEADER_MAX + am->len);
    if (!early) {
        lane_fail(lane, PSC_ERR_NO_MEMORY);
        return;
    }
    memcpy(early->data, am->header, am->header_len);
    if (am->len)
        memcpy(early->data + PSC_AM_HEADER_MAX, am->payload, am->len);
    early->am = *am;
    early->am.header = early->data;
    early->am.payload = early->data + PSC_AM_HEADER_MAX;
    early->am.desc = NULL;
    psc_list_push(&lane->early, &early->link);
}

void psc_lane_replay(psc_lane_t *lane)
{
    psc_link_t *link;

    while (!lane_deaf(lane) && (link = psc_list_pop(&lane->early))) {
        early_t *early = psc_container_of(link, early_t, link);
        psc_status_t status = psc_proto_arrived(lane, &early->am);

        free(early);
        if (status < 0)
            psc_lane_break(lane, status);
    }
}

static psc_status_t lane_deliver(psc_ep_t *ep, const psc_am_t *am)
{
    psc_lane_t *lane = lane_of(ep);
    psc_status_t status;

    if (lane_deaf(lane))
        return PSC_OK;
    if (!lane->conn) {
        lane_keep_early(lane, am);
        return PSC_OK;
    }
    status = psc_proto_arrived(lane, am);
    if (status < 0) {
        psc_lane_break(lane, status);
        return PSC_OK;
    }
    return status;
}

/* Only the fabric says what became of what it matches. */
static psc_status_t lane_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    if (am->id < PSC_WIRE_MATCHED)
        return lane_deliver(ep, am);
    psc_lane_break(lane_of(ep), PSC_ERR_PROTOCOL);
    return PSC_OK;
}

/* It goes on as the active message that would have brought it. */
static void lane_tag_goes_on(psc_ep_t *ep, uint64_t bits, uint8_t id,
                             const void *payload, size_t len)
{
    const psc_conn_t *conn = lane_of(ep)->conn;
    psc_wire_eager_t wire = {
        .credit = conn ? conn->credit_limit : 0, /* nothing new */
        .tag = (uint32_t)(bits & PSC_TAG_MASK),
        .context = (uint16_t)(bits >> PSC_TAG_CONTEXT_SHIFT),
    };
    psc_am_t am = {.id = id,
                   .header_len = sizeof wire,
                   .header = &wire,
                   .payload = payload,
                   .len = len};

    lane_deliver(ep, &am);
}

static void lane_tag_unexpected(psc_ep_t *ep, uint64_t bits,
                                const void *payload, size_t len)
{
    uint8_t id = PSC_WIRE_EAGER;

    if (bits & PSC_TAG_MARK)
        id = len > 0 ? PSC_WIRE_WHOLE : PSC_WIRE_MARK;
    lane_tag_goes_on(ep, bits, id, payload, len);
}

static void lane_tag_missed(psc_ep_t *ep, uint64_t bits, size_t len,
                            uint32_t number)
{
    psc_wire_missed_t missed = {.len = len, .number = number};

    lane_tag_goes_on(ep, bits, PSC_WIRE_MISSED, &missed, sizeof missed);
}

/* Before the installation a long payload waits in memory of its own. */
static void lane_begin_early(psc_lane_t *lane, uint8_t id, const void *header,
                             uint8_t header_len, uint64_t len,
                             psc_dest_t *dest_p)
{
    psc_incoming_t *in = &lane->incoming;

    *in = (psc_incoming_t){.id = id, .header_len = header_len, .len = len};
    memcpy(in->header, header, header_len);
    in->bounce = len <= EARLY_MAX ? malloc(len ? len : 1) : NULL;
    in->iov[0] = (psc_iov_t){in->bounce, len};
    *dest_p = (psc_dest_t){.iov = in->iov, .n_iov = in->bounce ? 1 : 0};
}

static void lane_am_begin(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    psc_lane_t *lane = lane_of(ep);

    *dest_p = (psc_dest_t){.iov = NULL};
    if (lane_deaf(lane))
        return;
    if (!lane->conn)
        lane_begin_early(lane, id, header, header_len, len, dest_p);
    else
        psc_proto_begin(lane, id, header, header_len, len, dest_p);
    dest_p->cookie = lane->conn;
}

static void lane_am_end(psc_ep_t *ep, void *cookie)
{
    psc_lane_t *lane = lane_of(ep);
    psc_incoming_t *in = &lane->incoming;
    psc_status_t status = PSC_OK;

    if (lane_deaf(lane))
        return;
    if (cookie) {
        status = psc_proto_end(lane);
    } else {
        psc_am_t am = {.id = in->id,
                       .header_len = in->header_len,
                       .header = in->header,
                       .payload = in->bounce,
                       .len = in->len};

        if (in->bounce && lane->conn)
            status = psc_proto_arrived(lane, &am);
        else if (in->bounce)
            lane_keep_early(lane, &am);
        free(in->bounce);
        in->bounce = NULL;
    }
    if (status < 0)
        psc_lane_break(lane, status);
}

static void lane_ep_up(psc_ep_t *ep)
{
    psc_lane_t *lane = lane_of(ep);

    if (lane->state == PSC_LANE_CONNECTING)
        lane_state_set(lane, PSC_LANE_UP);
}

void psc_lane_fail_conn(psc_lane_t *lane)
{
    psc_conn_t *conn = lane->conn;
    psc_status_t status = lane->status;

    if (!conn || lane->closing)
        return;
    if (conn->close_sent || conn->close_received)
        status = PSC_ERR_CLOSED;
    else if (status == PSC_ERR_CLOSED) /* only the protocol ends in order */
        status = PSC_ERR_PEER_LOST;
    psc_conn_fail_locked(conn, status);
    if (!lane->closing) /* the connection had ended: its ack cannot leave */
        psc_lane_retire(lane);
}

static void lane_ep_failed(psc_ep_t *ep, psc_status_t status,
                           const char *reason)
{
    psc_lane_t *lane = lane_of(ep);

    snprintf(lane->reason, sizeof lane->reason, "%s", reason);
    lane_fail(lane, status);
    psc_lane_fail_conn(lane);
}

static void lane_log(psc_iface_t *iface, int level, const char *line)
{
    psc_iface_slot_t *slot = iface->user;

    psc_worker_log(slot->worker, level, line);
}

static void lane_holding(psc_iface_t *iface, int holding)
{
    psc_iface_slot_t *slot = iface->user;

    psc_worker_count_holding(slot->worker, holding ? 1 : -1);
}

const psc_upcalls_t psc_lane_upcalls = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_upcalls_t),
    .am_recv = lane_am_recv,
    .am_begin = lane_am_begin,
    .am_end = lane_am_end,
    .ep_up = lane_ep_up,
    .ep_failed = lane_ep_failed,
    .log = lane_log,
    .tag_unexpected = lane_tag_unexpected,
    .tag_missed = lane_tag_missed,
    .holding = lane_holding,
};
