/* Where the fabric matches: receives that it cannot give back when they are
 * withdrawn, because a message is being written into them, and announcements
 * that are not complete. */
#include "harness.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/lane.h"
#include "pscompy/proto/match.h"
#include "pscompy/core/worker.h"

enum { LARGE = 300000 };

/* A transport that gives no receive back as long as `refuses` is set. With
 * `mute` it reports nothing more of such a receive. */
static struct {
    psc_transport_ops_t ops;
    const psc_transport_ops_t *below;
    bool refuses, mute;
} fabric;

static psc_status_t fabric_cancel(psc_ep_t *ep, psc_tag_recv_t *recv)
{
    psc_status_t status = PSC_OK;

    if (!fabric.refuses || fabric.mute)
        status = fabric.below->tag_cancel(ep, recv);
    return fabric.refuses ? PSC_ERR_INVALID : status;
}

/* Returns false if the fabric matches no messages. */
static bool fabric_refuses(psc_conn_t *conn, bool mute)
{
    psc_iface_slot_t *slot = conn->lanes[0]->slot;

    if (!conn->matches)
        return false;
    fabric.below = slot->ops;
    fabric.ops = *slot->ops;
    fabric.ops.tag_cancel = fabric_cancel;
    fabric.refuses = true;
    fabric.mute = mute;
    slot->ops = &fabric.ops;
    return true;
}

/* Returns what psc_worker_items says of the worker's only request. */
static psc_item_t only_item(psc_worker_t *worker)
{
    psc_item_t item;

    check(psc_worker_items(worker, &item, 1) == 1);
    return item;
}

static psc_req_t *req_of(psc_request_t *request)
{
    return psc_container_of(request, psc_req_t, head);
}

static psc_stage_t stage_of(psc_request_t *request)
{
    return req_of(request)->stage;
}

/* The fabric reports the end of a receive that it has not given back. */
static void fabric_reports(psc_worker_t *worker, psc_request_t *request)
{
    psc_tag_recv_t *tagged = psc_req_tagged(req_of(request));

    check(psc_worker_enter(worker, 0) == PSC_OK);
    tagged->done(tagged, PSC_ERR_CANCELLED, 0, 0);
    psc_worker_leave(worker);
}

CASE(an_ended_receive_names_its_peer)
{
    static char in[100];
    psc_request_t *recv;
    psc_result_t result;
    psc_item_t item;
    pair_t pair;

    pair_open(&pair);
    if (fabric_refuses(pair.b.conn, true)) {
        psc_worker_log_to(pair.b.worker, -1, 0);
        recv = post_recv(&pair.b, pair.b.conn, in, sizeof in, 1, &result);
        check(stage_of(recv) == PSC_STAGE_HANDED);
        psc_conn_fail(pair.b.conn, PSC_ERR_PEER_LOST);
        check(!done(recv));
        item = only_item(pair.b.worker);
        check(item.conn == pair.b.conn->id);
        check(strstr(item.state, "memory is still in use"));
        check(api->cancel(recv) == PSC_ERR_INVALID);
        fabric_reports(pair.b.worker, recv);
        check(finish(&pair, recv).status == PSC_ERR_PEER_LOST);
    }
    pair_close(&pair);
}

/* The receive is given up before the fabric reports that a long message has
 * matched it. A later receive gets that message, not a later one. */
static void given_up(psc_rndv_scheme_t scheme)
{
    static char in[LARGE], out[LARGE], again[LARGE];
    psc_request_t *recv, *send, *next;
    psc_result_t result;
    pair_t pair;

    options.scheme = scheme;
    pair_open(&pair);
    if (fabric_refuses(pair.b.conn, false)) {
        fill(out, LARGE, 3);
        recv = post_recv(&pair.b, pair.b.conn, in, LARGE, 4, &result);
        check(stage_of(recv) == PSC_STAGE_HANDED);
        check(api->recv_give_up(recv) == PSC_INPROGRESS);
        send = post_send(&pair.a, out, LARGE, 4);
        until(&pair, stage_of(recv) != PSC_STAGE_HANDED);
        next =
            post_recv(&pair.b, pair.b.conn, again, LARGE, PSC_ANY_TAG, &result);
        check(!post_send(&pair.a, out, 10, 6));
        check(finish(&pair, recv).status == PSC_ERR_CANCELLED);
        if (next)
            result = finish(&pair, next);
        check(result.tag == 4 && filled(again, LARGE, 3));
        fabric.refuses = false;
        next = post_recv(&pair.b, pair.b.conn, again, LARGE, 6, &result);
        if (next)
            result = finish(&pair, next);
        check(result.status == PSC_OK);
        sent(&pair, send);
    }
    pair_close(&pair);
}

/* An announcement whose mark (tag.h) never arrives is counted, too. */
CASE(announced_bytes_without_a_mark)
{
    psc_wire_rts_t rts = {.context = CONTEXT, .len = LARGE};
    psc_am_t am = {
        .id = PSC_WIRE_RTS, .header = &rts, .header_len = sizeof rts};
    psc_counted_t counted[64];
    uint64_t bytes = 0;
    pair_t pair;
    uint32_t n;

    pair_open(&pair);
    psc_lock_acquire(&pair.b.worker->lock);
    psc_lane_upcalls.am_recv(pair.b.conn->lanes[0]->ep, &am);
    psc_worker_leave(pair.b.worker);
    n = psc_worker_holdings(pair.b.worker, counted, 64);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(counted[i].name, "announced_bytes") == 0)
            bytes = counted[i].value;
    }
    check(bytes >= sizeof(psc_unexp_t));
    psc_conn_fail(pair.b.conn, PSC_ERR_PEER_LOST);
    pair_close(&pair);
}

CASE(given_up_before_it_is_matched)
{
    static const psc_rndv_scheme_t schemes[] = {PSC_RNDV_AUTO, PSC_RNDV_PUT,
                                                PSC_RNDV_GET, PSC_RNDV_AM};

    for (unsigned i = 0; i < 4; i++)
        given_up(schemes[i]);
}
