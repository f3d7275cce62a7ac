/* Long messages over several lanes, as fragments, gets or puts. */
#include "hostile.h"
#include "measured.h"
#include "pscompy/core/worker.h"

enum { MESSAGES = 5 };

static const size_t lengths[MESSAGES] = {1001, 64 << 10, 300001, (1 << 20) + 1,
                                         5 << 20};

typedef struct lanes {
    pair_t pair;
    side_t a, b; /* of the connection over several lanes */
    uint32_t failing; /* index of the lane that fails */
    char *out[MESSAGES], *in[MESSAGES];
} lanes_t;

/* All messages are in flight at once, and are received in another order. */
static void lanes_exchange(lanes_t *lanes, side_t *from, side_t *to)
{
    psc_request_t *sends[MESSAGES], *recvs[MESSAGES];
    psc_result_t result;

    for (int i = 0; i < MESSAGES; i++) {
        memset(lanes->in[i], 0, lengths[i]);
        sends[i] = post_send(from, lanes->out[i], lengths[i], i);
    }
    for (int i = MESSAGES - 1; i >= 0; i--)
        recvs[i] =
            post_recv(to, to->conn, lanes->in[i], lengths[i], i, &result);
    for (int i = 0; i < MESSAGES; i++) {
        check(finish(&lanes->pair, recvs[i]).status == PSC_OK);
        check(finish(&lanes->pair, sends[i]).status == PSC_OK);
        check(filled(lanes->in[i], lengths[i], (unsigned)i));
    }
}

static void lanes_open(lanes_t *lanes, psc_rndv_scheme_t scheme)
{
    options.scheme = scheme;
    pair_open(&lanes->pair);
    pair_join_by(&lanes->pair, 2, &lanes->a.conn, &lanes->b.conn);
    lanes->failing = 1;
    lanes->a.worker = lanes->pair.a.worker;
    lanes->b.worker = lanes->pair.b.worker;
    for (int i = 0; i < MESSAGES; i++) {
        lanes->out[i] = malloc(lengths[i]);
        lanes->in[i] = malloc(lengths[i]);
        fill(lanes->out[i], lengths[i], (unsigned)i);
    }
}

static void lanes_close(lanes_t *lanes)
{
    for (int i = 0; i < MESSAGES; i++) {
        free(lanes->out[i]);
        free(lanes->in[i]);
    }
    pair_close(&lanes->pair);
}

/* Bytes of fragments on this lane. */
static uint64_t given(const side_t *side, unsigned lane)
{
    return side->conn->lanes[lane]->stripe.given;
}

/* Lane `index` is of an interface that cannot put and get: it carries bytes
 * only as fragments, which go over both lanes. */
static void exchange_over_unlike(unsigned index, psc_rndv_scheme_t scheme)
{
    lanes_t lanes;
    uint64_t unable, able;
    bool direct;

    options.unlike = (uint8_t)(1u << index);
    lanes_open(&lanes, scheme);
    direct = lanes.b.conn->lanes[1 - index]->slot->attr.caps & PSC_CAP_GET &&
             scheme != PSC_RNDV_AM;
    lanes_exchange(&lanes, &lanes.a, &lanes.b);
    lanes_exchange(&lanes, &lanes.b, &lanes.a);
    unable = given(&lanes.a, index) + given(&lanes.b, index);
    able = given(&lanes.a, 1 - index) + given(&lanes.b, 1 - index);
    check(able > 0 && direct == (unable == 0));
    check(direct == (count(lanes.a.worker, PSC_COUNTER_rndv_am) == 0));
    lanes_close(&lanes);
}

CASE(only_one_lane_can_put_and_get)
{
    for (unsigned i = 0; i < 16; i++) {
        options.unlike_b = i / 8;
        exchange_over_unlike(i % 2, (psc_rndv_scheme_t)(i / 2 % 4));
    }
}

CASE(fragments_over_lanes)
{
    lanes_t lanes;
    uint64_t sum = 0;

    lanes_open(&lanes, PSC_RNDV_AM);
    lanes_exchange(&lanes, &lanes.a, &lanes.b);
    lanes_exchange(&lanes, &lanes.b, &lanes.a);
    for (int i = 0; i < MESSAGES; i++)
        sum += lengths[i];
    check(given(&lanes.a, 0) + given(&lanes.a, 1) == sum);
    check(given(&lanes.a, 0) > 0 && given(&lanes.a, 1) > 0);
    check(lanes.a.conn->lanes[0]->stripe.queued == 0);
    lanes_close(&lanes);
}

/* ---- a lane that fails ---- */

static void lanes_are_gone(lanes_t *lanes)
{
    until(&lanes->pair, lanes->a.conn->lost.gone && lanes->b.conn->lost.gone &&
                            !lanes->a.conn->lost.down_due &&
                            !lanes->b.conn->lost.down_due);
}

/* New lanes in place of the lost ones. Side a has its lane first, and perhaps
 * loses it before b has the other. */
static void lanes_join(lanes_t *lanes, bool lost)
{
    psc_conn_t *a_conn = lanes->a.conn, *b_conn = lanes->b.conn;
    uint32_t i = lanes->failing;
    psc_lane_t *a, *b;

    check(psc_conn_join_begin(a_conn, 1 - i) == PSC_ERR_NO_RESOURCE);
    check(psc_conn_join_begin(a_conn, i) == PSC_OK);
    check(psc_conn_join_begin(a_conn, i) == PSC_ERR_NO_RESOURCE);
    psc_conn_join_fail(a_conn, i);
    check(psc_conn_join_begin(a_conn, i) == PSC_OK);
    check(psc_conn_join_begin(b_conn, i) == PSC_OK);
    pair_lanes(&lanes->pair, &a, &b);
    check(psc_conn_join(a_conn, 1 - i, a) == PSC_ERR_INVALID);
    check(psc_conn_join(a_conn, i, a) == PSC_OK);
    if (lost) {
        lane_fail(a);
        until(&lanes->pair, b_conn->lost.acked);
        check(psc_conn_join(b_conn, i, b) == PSC_OK);
        lanes_are_gone(lanes);
    } else {
        psc_request_t *send, *recv;
        psc_result_t result;

        send = post_send(&lanes->a, lanes->out[4], lengths[4], 4);
        recv =
            post_recv(&lanes->b, b_conn, lanes->in[4], lengths[4], 4, &result);
        for (int passes = 0; passes < 20; passes++)
            pair_progress(&lanes->pair);
        check(psc_conn_join(b_conn, i, b) == PSC_OK);
        check(finish(&lanes->pair, recv).status == PSC_OK);
        check(finish(&lanes->pair, send).status == PSC_OK);
        check(filled(lanes->in[4], lengths[4], 4));
    }
}

static void lanes_come_and_go(lanes_t *lanes)
{
    lanes_join(lanes, true);
    lanes_exchange(lanes, &lanes->a, &lanes->b);
    lanes_join(lanes, false);
    lanes_exchange(lanes, &lanes->a, &lanes->b);
    lanes_exchange(lanes, &lanes->b, &lanes->a);
    check(count(lanes->a.worker, PSC_COUNTER_rails_joined) >= 1);
}

/* One side's lane 1, or `any` lane that may fail, fails after so many passes of
 * a message from a to b. Returns true if lanes of this transport may fail; then
 * both sides go on. Returns false also if this transport does not have the
 * scheme, but sends fragments. */
static bool lane_fails(psc_rndv_scheme_t scheme, int passes, bool senders,
                       bool any)
{
    enum { LAST = MESSAGES - 1 };
    lanes_t lanes;
    psc_request_t *send, *recv;
    psc_result_t result;
    psc_lane_t *lane;
    bool spare, direct;

    lanes_open(&lanes, scheme);
    if (any && psc_lane_spare(lanes.a.conn->lanes[0]))
        lanes.failing = 0;
    lane = (senders ? lanes.a : lanes.b).conn->lanes[lanes.failing];
    spare = psc_lane_spare(lane);
    direct = lane->slot->attr.caps & (PSC_CAP_PUT | PSC_CAP_GET);
    send = post_send(&lanes.a, lanes.out[LAST], lengths[LAST], LAST);
    recv = post_recv(&lanes.b, lanes.b.conn, lanes.in[LAST], lengths[LAST],
                     LAST, &result);
    for (int i = 0; i < passes; i++)
        pair_progress(&lanes.pair);
    lane_fail(lane);
    result = finish(&lanes.pair, recv);
    check((finish(&lanes.pair, send).status == PSC_OK) == spare);
    check((result.status == PSC_OK) == spare);
    check(!spare || filled(lanes.in[LAST], lengths[LAST], LAST));
    if (spare) {
        lanes_are_gone(&lanes);
        lanes_exchange(&lanes, &lanes.a, &lanes.b);
        lanes_exchange(&lanes, &lanes.b, &lanes.a);
        lanes_come_and_go(&lanes);
    }
    lanes_close(&lanes);
    return spare && (direct || scheme == PSC_RNDV_AM);
}

static void lanes_fail(psc_rndv_scheme_t scheme)
{
    for (int passes = 2; passes < 60; passes += 8) {
        if (!lane_fails(scheme, passes, passes % 16 < 8, passes % 32 < 16))
            break;
    }
}

CASE(a_lane_fails_amid_fragments)
{
    lanes_fail(PSC_RNDV_AM);
}

CASE(a_lane_fails_amid_gets)
{
    lanes_fail(PSC_RNDV_GET);
}

CASE(a_lane_fails_amid_puts)
{
    lanes_fail(PSC_RNDV_PUT);
}

/* A message is announced with the key of a lane, which is lost and joined again
 * before the message gets a receive; or, if `late`, it is announced in between,
 * without a key. The new lane is not lost with the key, and the message does
 * not wait for it although it is by far the faster one. */
static void lane_joins_without_keys(bool late)
{
    enum { LEN = 3 };
    lanes_t lanes;
    psc_request_t *send = NULL, *recv;
    psc_result_t result;

    lanes_open(&lanes, PSC_RNDV_GET);
    if (psc_lane_spare(lanes.a.conn->lanes[1])) {
        if (!late)
            send = post_send(&lanes.a, lanes.out[LEN], lengths[LEN], LEN);
        lane_fail(lanes.a.conn->lanes[1]);
        lanes_are_gone(&lanes);
        if (late)
            send = post_send(&lanes.a, lanes.out[LEN], lengths[LEN], LEN);
        lanes_join(&lanes, false);
        measured_as(lanes.b.conn->lanes[0], 1);
        measured_as(lanes.b.conn->lanes[1], 20);
        recv = post_recv(&lanes.b, lanes.b.conn, lanes.in[LEN], lengths[LEN],
                         LEN, &result);
        check(finish(&lanes.pair, recv).status == PSC_OK);
        check(finish(&lanes.pair, send).status == PSC_OK);
        check(filled(lanes.in[LEN], lengths[LEN], LEN));
        check(lanes.b.conn->lanes[1]->state == PSC_LANE_UP);
        lanes_exchange(&lanes, &lanes.a, &lanes.b);
        check(lanes.a.conn->counters->value[PSC_COUNTER_rails_lost] == 1);
    }
    lanes_close(&lanes);
}

CASE(a_lane_joins_without_the_keys_of_the_lost_one)
{
    lane_joins_without_keys(false);
    lane_joins_without_keys(true);
}

/* A message is announced with the keys of both lanes, which are lost and joined
 * again one after the other, before it gets a receive: it is moved without
 * these keys. */
CASE(a_message_outlives_all_its_keys)
{
    enum { LEN = 3 };
    lanes_t lanes;
    psc_request_t *send, *recv;
    psc_result_t result;

    lanes_open(&lanes, PSC_RNDV_GET);
    if (lanes.a.conn->replay) {
        bool gets = lanes.a.conn->lanes[0]->slot->attr.caps & PSC_CAP_GET;

        send = post_send(&lanes.a, lanes.out[LEN], lengths[LEN], LEN);
        for (uint32_t i = 0; i < 2; i++) {
            lanes.failing = i;
            lane_fail(lanes.a.conn->lanes[i]);
            lanes_are_gone(&lanes);
            lanes_join(&lanes, false);
            until(&lanes.pair,
                  !lanes.a.conn->lost.joining && !lanes.b.conn->lost.joining);
        }
        recv = post_recv(&lanes.b, lanes.b.conn, lanes.in[LEN], lengths[LEN],
                         LEN, &result);
        check(finish(&lanes.pair, recv).status == PSC_OK);
        check(finish(&lanes.pair, send).status == PSC_OK);
        check(filled(lanes.in[LEN], lengths[LEN], LEN));
        check(count(lanes.b.worker, PSC_COUNTER_rndv_fallback) == gets);
        lanes_exchange(&lanes, &lanes.a, &lanes.b);
    }
    lanes_close(&lanes);
}

/* The receiver revokes the key of a lane before the sender puts. */
static void key_is_revoked(lanes_t *lanes, psc_request_t *recv, uint32_t lane)
{
    psc_req_t *req = (psc_req_t *)recv;
    psc_iface_slot_t *slot = lanes->b.conn->lanes[lane]->slot;

    while (!req->bulk->mem[lane]) {
        psc_worker_progress(lanes->a.worker);
        psc_worker_progress(lanes->b.worker);
    }
    check(psc_worker_enter(lanes->b.worker, 0) == PSC_OK);
    check(slot->ops->mem_revoke(slot->iface, req->bulk->mem[lane]) == PSC_OK);
    psc_worker_leave(lanes->b.worker);
}

/* Pieces that a fabric refuses go over the other lane, or, if that one refuses
 * them, too, as fragments. They tell nothing of the lane's rate, and the lane
 * goes on. */
static void keys_are_refused(bool both)
{
    enum { LEN = 4 };
    lanes_t lanes;
    psc_lane_t *lane;
    psc_request_t *send, *recv;
    psc_result_t result;

    lanes_open(&lanes, PSC_RNDV_PUT);
    lane = lanes.a.conn->lanes[1];
    if (psc_lane_spare(lane) && lane->slot->attr.caps & PSC_CAP_PUT &&
        lane->slot->ops->mem_revoke) {
        uint64_t given = lane->stripe.given;

        measured_as(lane, 1);
        send = post_send(&lanes.a, lanes.out[LEN], lengths[LEN], LEN);
        recv = post_recv(&lanes.b, lanes.b.conn, lanes.in[LEN], lengths[LEN],
                         LEN, &result);
        key_is_revoked(&lanes, recv, 1);
        if (both && lanes.b.conn->replay)
            key_is_revoked(&lanes, recv, 0);
        check(finish(&lanes.pair, recv).status == PSC_OK);
        check(finish(&lanes.pair, send).status == PSC_OK);
        check(filled(lanes.in[LEN], lengths[LEN], LEN));
        /* refused at once, or by a completion */
        check(both || lane->stripe.given == given ||
              count(lanes.a.worker, PSC_COUNTER_fragments_again) > 0);
        check(lane->state == PSC_LANE_UP &&
              (both || lane->stripe.bytes == 1000));
        check(count(lanes.a.worker, PSC_COUNTER_rndv_fallback) ==
              (both && lanes.a.conn->replay));
        lanes_exchange(&lanes, &lanes.a, &lanes.b);
    }
    lanes_close(&lanes);
}

CASE(a_lane_goes_on_without_a_key_that_was_refused)
{
    keys_are_refused(false);
    keys_are_refused(true);
}

/* b loses its lane and closes before a has heard of either. b's CLOSE waits
 * until the message from a to b has arrived. If b does not wait, the message
 * ends with an error, also the pieces that the lane had in flight. */
static bool lane_fails_and_peer_closes(int passes, bool waits)
{
    static const psc_wire_credit_t farewell;
    enum { LEN = 64 << 20 }; /* more than sockets hold */
    char *out = calloc(1, LEN), *in = malloc(LEN);
    lanes_t lanes;
    psc_request_t *send, *recv;
    psc_result_t result;
    bool spare, complete;

    lanes_open(&lanes, PSC_RNDV_AM);
    spare = psc_lane_spare(lanes.b.conn->lanes[1]);
    send = post_send(&lanes.a, out, LEN, 1);
    recv = post_recv(&lanes.b, lanes.b.conn, in, LEN, 1, &result);
    for (int i = 0; i < passes; i++)
        pair_progress(&lanes.pair);
    for (int i = 0; i < 100; i++)
        psc_worker_progress(lanes.a.worker);
    /* if both sides share a worker, b has received, too */
    complete = done(recv);
    lane_fail(lanes.b.conn->lanes[1]);
    if (waits)
        psc_conn_close(lanes.b.conn);
    else
        hostile_speak_by(lanes.b.conn->main, PSC_WIRE_CLOSE, &farewell,
                         sizeof farewell, NULL, 0);
    for (int i = 0; i < 10; i++)
        psc_worker_progress(lanes.b.worker);
    waits = waits && spare;
    check((finish(&lanes.pair, send).status == PSC_OK) == (complete || waits));
    check((finish(&lanes.pair, recv).status == PSC_OK) == (complete || waits));
    lanes_close(&lanes);
    free(out);
    free(in);
    return spare && !complete;
}

CASE(a_lane_fails_and_the_peer_closes)
{
    for (int passes = 2; passes < 20; passes += 3) {
        if (!lane_fails_and_peer_closes(passes, false) ||
            !lane_fails_and_peer_closes(passes, true))
            break;
    }
}

CASE(a_lane_for_fragments_carries_nothing_else)
{
    static const psc_wire_eager_t eager = {.tag = 1};
    const psc_iov_t byte = {"x", 1};
    lanes_t lanes;
    psc_lane_t *lane;

    lanes_open(&lanes, PSC_RNDV_AM);
    lane = lanes.a.conn->lanes[1];
    if (psc_lane_spare(lane)) {
        check(psc_worker_enter(lane->worker, 0) == PSC_OK);
        check(lane->slot->ops->am_bcopy(lane->ep, PSC_WIRE_EAGER, &eager,
                                        sizeof eager, &byte, 1) == PSC_OK);
        psc_worker_leave(lane->worker);
        until(&lanes.pair, psc_conn_state(lanes.b.conn) == PSC_CONN_FAILED);
    }
    lanes_close(&lanes);
}
