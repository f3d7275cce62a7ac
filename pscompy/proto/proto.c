/* The protocols' two tables: the function for each arriving active message, and
 * the function that advances a request from each stage. */
#include "proto.h"

#include <stdlib.h>

#include "../core/conn.h"
#include "../core/memory/memory.h"
#include "../core/pieces.h"
#include "credit.h"
#include "eager.h"
#include "protocol.h"
#include "message.h"
#include "rail.h"
#include "replay.h"
#include "rndv.h"

/* ---- the base's own messages and stages ---- */

static psc_status_t proto_credit(psc_lane_t *lane, const psc_am_t *am)
{
    /* psc_proto_arrived has read the header's credit already */
    (void)lane, (void)am;
    return PSC_OK;
}

static psc_status_t proto_close(psc_lane_t *lane, const psc_am_t *am)
{
    psc_conn_close_received(lane->conn, am->id == PSC_WIRE_CLOSE_ACK);
    return PSC_OK;
}

static const psc_proto_t base = {
    .name = "connection",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_CREDIT, sizeof(psc_wire_credit_t), proto_credit},
            {PSC_WIRE_CLOSE, sizeof(psc_wire_credit_t), proto_close},
            {PSC_WIRE_CLOSE_ACK, sizeof(psc_wire_credit_t), proto_close},
            {PSC_WIRE_LANE_DOWN, sizeof(psc_wire_lane_t),
             psc_rail_down_arrived},
            {PSC_WIRE_LANE_UP, sizeof(psc_wire_lane_t), psc_rail_up_arrived},
            {PSC_WIRE_SEEN, sizeof(psc_wire_seen_t), psc_replay_seen_arrived},
            {PSC_WIRE_RESUME, sizeof(psc_wire_resume_t),
             psc_replay_resume_arrived},
            {0}},
    .stages =
        (const psc_proto_stage_t[]){{PSC_STAGE_SEND, psc_send_progress}, {0}},
};

/* ---- the tables of all protocols ---- */

typedef struct arrival {
    psc_status_t (*func)(psc_lane_t *lane, const psc_am_t *am);
    uint8_t header_len;
} arrival_t;

static arrival_t arrivals[PSC_WIRE_COUNT];

typedef psc_status_t (*stage_fn_t)(psc_req_t *req);

/* In a stage without a function the request waits for the peer or the
 * fabric. */
static stage_fn_t stage_progress[PSC_STAGE_COUNT];

static void proto_register(const psc_proto_t *proto)
{
    const psc_proto_message_t *message = proto->messages;
    const psc_proto_stage_t *stage = proto->stages;

    for (; message && message->arrived; message++)
        arrivals[message->id] =
            (arrival_t){message->arrived, message->header_len};
    for (; stage && stage->advance; stage++)
        stage_progress[stage->stage] = stage->advance;
}

static __attribute__((constructor)) void proto_register_all(void)
{
    proto_register(&base);
    for (const psc_proto_t *const *at = psc_proto_list; *at; at++)
        proto_register(*at);
}

/* ---- stages ---- */

psc_status_t psc_proto_advance(psc_req_t *req)
{
    psc_status_t status = PSC_OK;

    while (status == PSC_OK) {
        stage_fn_t progress = stage_progress[req->stage];

        if (!progress)
            return PSC_INPROGRESS;
        status = progress(req);
    }
    if (status < 0 && status != PSC_ERR_NO_RESOURCE) {
        psc_req_fail(req, status);
        return PSC_INPROGRESS;
    }
    return status;
}

/* ---- arrivals ---- */

/* Returns the row of `arrivals` for `id`; NULL if no message has the id `id`
 * and a header of `header_len` bytes. */
static const arrival_t *proto_check(uint8_t id, uint8_t header_len)
{
    if (id >= PSC_WIRE_COUNT || !arrivals[id].func ||
        header_len != arrivals[id].header_len)
        return NULL;
    return &arrivals[id];
}

psc_status_t psc_proto_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const arrival_t *arrival = proto_check(am->id, am->header_len);

    if (!arrival)
        return PSC_ERR_PROTOCOL;
    if (lane->among) {
        psc_status_t status = psc_replay_take(lane, am);

        if (status != PSC_OK)
            return status < 0 ? status : PSC_OK;
    }
    psc_credit_heard(lane->conn,
                     ((const psc_wire_credit_t *)am->header)->credit);
    return arrival->func(lane, am);
}

/* ---- messages whose header arrives before their payload ---- */

/* Longest payload that psc_proto_begin accepts, except of a FRAG that may be
 * received directly into its receive's memory (`direct`). */
#define BOUNCE_MAX PSC_CREDIT_INITIAL

void psc_proto_begin(psc_lane_t *lane, const void *header, psc_dest_t *dest)
{
    psc_incoming_t *in = &lane->incoming;
    psc_status_t status = PSC_ERR_UNSUPPORTED;
    bool direct;

    in->status = PSC_OK;
    if (!proto_check(in->id, in->header_len) || in->id >= PSC_WIRE_MATCHED) {
        in->status = PSC_ERR_PROTOCOL;
        return;
    }
    direct = !lane->among || psc_replay_direct(lane, in->id, header);
    if (in->id == PSC_WIRE_FRAG && direct)
        status = psc_rndv_frag_begin(lane, header, in->len, dest);
    else if (in->len > BOUNCE_MAX)
        status = PSC_ERR_PROTOCOL;
    else if (in->id == PSC_WIRE_EAGER && direct)
        status = psc_eager_begin(lane, header, in->len, dest);
    if (status == PSC_OK)
        psc_credit_heard(lane->conn,
                         ((const psc_wire_credit_t *)header)->credit);
    else if (status == PSC_ERR_UNSUPPORTED)
        psc_landing_bounce(in, header, dest);
    else
        in->status = status;
}

static psc_status_t proto_end_bounce(psc_lane_t *lane)
{
    psc_am_t am = psc_incoming_bounced(&lane->incoming);
    psc_status_t status;

    lane->incoming.kind = PSC_INCOMING_NONE;
    status = psc_proto_arrived(lane, &am);
    free((void *)am.payload);
    return status;
}

psc_status_t psc_proto_end(psc_lane_t *lane)
{
    psc_incoming_t *in = &lane->incoming;

    if (in->status != PSC_OK)
        return in->status;
    switch (in->kind) {
    case PSC_INCOMING_NONE: /* there was no memory for the message */
        return PSC_ERR_NO_MEMORY;
    case PSC_INCOMING_FRAG:
        psc_rndv_frag_end(lane);
        break;
    case PSC_INCOMING_RECEIVE:
        psc_eager_end_receive(lane);
        break;
    case PSC_INCOMING_UNEXP:
        psc_eager_end_record(lane);
        break;
    case PSC_INCOMING_MESSAGE:
        lane->worker->unmatched->end_payload(lane);
        break;
    case PSC_INCOMING_BOUNCE:
        return proto_end_bounce(lane);
    }
    in->kind = PSC_INCOMING_NONE;
    return PSC_OK;
}

/* Free the record (psc_unexp_t) of a message that will not be complete. */
static void proto_drop_record(psc_unexp_t *unexp)
{
    psc_list_for_each(req, &unexp->conn->active, psc_req_t, link) {
        if (psc_req_unexp(req) == unexp)
            psc_req_set_unexp(req, NULL);
    }
    psc_unexp_free(unexp);
}

void psc_proto_abort(psc_lane_t *lane)
{
    psc_incoming_t *in = &lane->incoming;

    psc_landing_drop(lane);
    if (in->kind == PSC_INCOMING_FRAG)
        in->req->bulk->inflight--;
    else if (in->kind == PSC_INCOMING_UNEXP)
        proto_drop_record(in->unexp);
    for (const psc_proto_t *const *at = psc_proto_list; *at; at++) {
        if ((*at)->lane_ended)
            (*at)->lane_ended(lane);
    }
    in->kind = PSC_INCOMING_NONE;
}
