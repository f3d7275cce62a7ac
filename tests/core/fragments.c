/* Long messages over several lanes, as fragments, gets or puts. */
#include "harness.h"
#include "pscompy/core/proto/stripe.h"
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
        until(&lanes->pair, b_conn->lost.told);
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

static void measured_as(psc_lane_t *lane, double bytes_per_ns)
{
    lane->stripe.bytes = bytes_per_ns * 1000;
    lane->stripe.ns = 1000;
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

/* b loses its lane and closes before a has heard of either. The message from a
 * to b ends with an error, also the pieces that the lane had in flight. */
static bool lane_fails_and_peer_closes(int passes)
{
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
    psc_conn_close(lanes.b.conn);
    for (int i = 0; i < 10; i++)
        psc_worker_progress(lanes.b.worker);
    check((finish(&lanes.pair, send).status == PSC_OK) == complete);
    check((finish(&lanes.pair, recv).status == PSC_OK) == complete);
    lanes_close(&lanes);
    free(out);
    free(in);
    return spare && !complete;
}

CASE(a_lane_fails_and_the_peer_closes)
{
    for (int passes = 2; passes < 20; passes += 3) {
        if (!lane_fails_and_peer_closes(passes))
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

/* ---- the lane of a piece ---- */

enum { PIECE = 256 << 10 };

typedef struct measured {
    psc_conn_t conn;
    psc_lane_t lanes[2];
    psc_req_t req; /* of the pieces in flight */
    psc_iface_slot_t slot;
    psc_worker_t worker;
} measured_t;

/* Two lanes that were measured to carry so many bytes per ns. */
static measured_t *measured_new(double first, double second)
{
    measured_t *it = calloc(1, sizeof *it);

    it->conn.n_lanes = 2;
    for (uint32_t i = 0; i < 2; i++) {
        it->conn.lanes[i] = &it->lanes[i];
        it->lanes[i].conn = &it->conn;
        it->lanes[i].slot = &it->slot;
        it->lanes[i].worker = &it->worker;
        it->lanes[i].index = (uint8_t)i;
        measured_as(&it->lanes[i], i ? second : first);
    }
    return it;
}

/* Have pieces sent until none may be any more, with so many bytes left each
 * time. Returns the number on the first lane, and ten times that on the
 * second. */
static int measured_fill(measured_t *it, uint64_t left)
{
    psc_lane_t *lane;
    int sent = 0;

    while ((lane = psc_stripe_lane(&it->conn, left, PIECE, 0, 0))) {
        psc_stripe_sent(lane, psc_stripe_piece(lane), &it->req, PIECE);
        sent += lane->index ? 10 : 1;
    }
    return sent;
}

static int fill_once(double first, double second, uint64_t left)
{
    measured_t *it = measured_new(first, second);
    int sent = measured_fill(it, left);

    free(it);
    return sent;
}

/* The second lane was not measured while the first one got many bytes. */
static measured_t *measured_long_ago(double second)
{
    measured_t *it = measured_new(1, second);

    it->lanes[1].stripe.without = 512 << 20;
    return it;
}

/* A lane that was left out is tried again after many bytes on the other,
 * however slow it was. */
static void left_out_for_a_while(double second)
{
    measured_t *it = measured_new(1, second);

    check(measured_fill(it, PIECE) == 2);
    free(it);
    it = measured_long_ago(second);
    check(measured_fill(it, PIECE) == 22);
    free(it);
}

/* So is a lane beside one that is never full, where pieces complete at once;
 * the try ends although they cannot be measured. */
static void tried_beside_an_idle_lane(double second)
{
    measured_t *it = measured_long_ago(second);

    for (int i = 0; i < 100; i++) {
        psc_lane_t *lane = psc_stripe_lane(&it->conn, 8 << 20, PIECE, 0, 0);

        psc_stripe_sent(lane, NULL, &it->req, PIECE);
    }
    check(it->lanes[1].stripe.given == 2 * PSC_PIECES_MAX * PIECE);
    free(it);
}

static void no_report(psc_comp_t *comp, psc_status_t status)
{
    check(comp && status == PSC_OK);
}

/* The first measurement of the try counts, and ends the try. */
static void tried_and_measured(void)
{
    psc_bulk_t bulk = {.comp.func = no_report};
    measured_t *it = measured_long_ago(1e-6);
    psc_stripe_t *stripe = &it->lanes[1].stripe;

    it->req.bulk = &bulk;
    check(measured_fill(it, PIECE) == 22);
    for (uint32_t i = 0; i < PSC_PIECES_MAX; i++) {
        it->worker.pass++;
        psc_stripe_comp(&stripe->pieces[i].comp, PSC_OK);
    }
    check(stripe->bytes == PIECE && stripe->ns < PIECE / 1e-6);
    check(stripe->without == 0 && stripe->tries == 0);
    free(it);
}

/* A lane that copies a piece, and refuses the next one. */
static psc_status_t copy_or_refuse(psc_req_t *req, psc_lane_t *lane,
                                   size_t *moved_p)
{
    if (*moved_p > 0)
        return PSC_ERR_NO_RESOURCE;
    psc_stripe_sent(lane, NULL, req, PIECE);
    *moved_p = PIECE;
    return PSC_OK;
}

/* Pieces of a lane that copies do not complete. What it takes between two
 * moments at which it has no room shows its rate, here far more than a KB per
 * ms and far less than a GB per ms; the other lane carries `other` bytes per
 * ns. Returns the same as measured_fill, afterwards. */
static int copied_beside(double other)
{
    measured_t *it = measured_new(0, other);
    psc_bulk_t bulk = {.len = 64 << 20};
    int sent;

    it->req.conn = &it->conn;
    it->req.bulk = &bulk;
    it->conn.params.fragment = PIECE;
    bulk.refused = 2; /* only the first lane is asked */
    for (int i = 0; i < 3; i++) {
        size_t moved = 0;

        check(psc_stripe_move(&it->req, 32 << 20, copy_or_refuse, &moved) ==
              PSC_OK);
        check(psc_stripe_move(&it->req, 32 << 20, copy_or_refuse, &moved) ==
              PSC_ERR_NO_RESOURCE);
    }
    sent = measured_fill(it, 1ull << 40);
    free(it);
    return sent;
}

/* Pieces that complete in the same pass have taken their time together, which
 * is measured if the lane gets more of them at once: it is not idle then. */
static void measured_together(void)
{
    psc_bulk_t bulk = {.comp.func = no_report};
    measured_t *it = measured_new(0, 0);
    psc_lane_t *lane = &it->lanes[0];

    it->req.bulk = &bulk;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < PSC_PIECES_MAX; i++)
            psc_stripe_sent(lane, &lane->stripe.pieces[i], &it->req, PIECE);
        it->worker.pass++;
        for (uint32_t i = 0; i < PSC_PIECES_MAX; i++)
            psc_stripe_comp(&lane->stripe.pieces[i].comp, PSC_OK);
        check(lane->stripe.bytes == round * 2 * PIECE);
    }
    free(it);
}

CASE(lane_of_a_piece)
{
    check(fill_once(1, 1, 64 << 20) == 22);
    check(fill_once(1, 0.25, 64 << 20) == 22);
    /* the end of the message waits for the faster lane, that of a long piece
     * on the slower one would come later */
    check(fill_once(1, 0.25, PIECE) == 2);
    check(fill_once(0.25, 1, PIECE) == 20);
    /* nothing is known of the second one */
    check(fill_once(1, 0, 64 << 20) == 22);
    left_out_for_a_while(0.05);
    left_out_for_a_while(1e-6);
    tried_beside_an_idle_lane(0.2);
    tried_beside_an_idle_lane(0.001);
    tried_and_measured();
    check(copied_beside(1e-6) == 2);
    check(copied_beside(1e6) == 20);
    measured_together();
}
