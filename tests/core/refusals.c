/* Messages that a connection refuses leave nothing behind anywhere. */
#include "hostile.h"
#include "pscompy/core/conn.h"
#include "pscompy/proto/protocol.h"
#include "pscompy/core/upward.h"
#include "pscompy/core/worker.h"
#include "tuples.h"

/* ---- a peer that takes a receive out of turn ---- */

typedef struct message {
    psc_wire_id_t id;
    size_t len;
} message_t;

static void never_done(psc_comp_t *self, psc_status_t status)
{
    (void)self, (void)status;
}

/* a sends this message around its protocols. */
static void speak_one(pair_t *pair, message_t message, const void *out)
{
    psc_wire_eager_t eager = {.tag = 5, .context = CONTEXT, .credit = 1 << 18};
    psc_wire_rts_t rts = {
        .tag = 5, .context = CONTEXT, .credit = 1 << 18, .len = message.len};

    if (message.id == PSC_WIRE_EAGER)
        check(hostile_speak(pair->a.conn, message.id, &eager, sizeof eager, out,
                            message.len));
    else
        check(
            hostile_speak(pair->a.conn, message.id, &rts, sizeof rts, NULL, 0));
}

/* a claims b's receive with tag 5. */
static void claim_out_of_turn(pair_t *pair, const void *out)
{
    static psc_comp_t comp = {never_done};
    psc_lane_t *lane = pair->a.conn->lanes[0];
    psc_advertised_t advertised[PSC_EXPOSED_MAX];
    uint64_t seen;

    psc_lock_acquire(&pair->a.worker->lock);
    check(lane->slot->ops->exposed(lane->ep, advertised, &seen) == 1);
    check(lane->slot->ops->claim(lane->ep, advertised,
                                 psc_match_bits(CONTEXT, 5), out, MIN,
                                 &comp) >= 0);
    psc_lock_release(&pair->a.worker->lock);
}

/* b's program receives from any source, and by name, what another peer
 * sends. */
static void others_go_on(pair_t *pair, psc_conn_t *here, psc_conn_t *there)
{
    side_t sender = {.worker = pair->a.worker, .conn = here};
    static const int32_t tags[] = {5, PSC_ANY_TAG};

    for (int i = 0; i < 4; i++) {
        char in[16], out[16];
        psc_result_t result;
        psc_request_t *recv = post_recv(&pair->b, i < 2 ? NULL : there, in,
                                        sizeof in, tags[i % 2], &result);

        fill(out, sizeof out, (unsigned)i);
        sent(pair, post_send(&sender, out, sizeof out, 5));
        expect_ok(recv ? finish(pair, recv) : result, in, sizeof in,
                  (unsigned)i);
    }
}

/* Returns false if the transport shows no receives to the peer. */
static bool taken_out_of_turn(message_t message)
{
    static char in[LEN], out[LEN];
    psc_conn_t *here, *there;
    psc_request_t *recv;
    pair_t pair;

    open_tuples(&pair);
    if (!advertises(&pair)) {
        pair_close(&pair);
        return false;
    }
    pair_join(&pair, &here, &there);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    recv = expect(&pair, in, LEN, 5);
    speak_one(&pair, message, out);
    claim_out_of_turn(&pair, out);
    until(&pair, psc_conn_state(pair.b.conn) == PSC_CONN_FAILED);
    check(pair.b.conn->status == PSC_ERR_PROTOCOL);
    until(&pair, done(recv));
    api->request_free(recv);
    check(count(pair.b.worker, PSC_COUNTER_unexpected) == 0);
    check(pair.b.worker->budget.kept == 0 && pair.b.conn->rts_in == 0);
    others_go_on(&pair, here, there);
    psc_conn_fail(here, PSC_ERR_PEER_LOST);
    psc_conn_fail(there, PSC_ERR_PEER_LOST);
    hostile_part(&pair);
    return true;
}

CASE(a_receive_taken_out_of_turn)
{
    static const message_t messages[] = {{PSC_WIRE_EAGER, 0},
                                         {PSC_WIRE_EAGER, 100},
                                         {PSC_WIRE_EAGER, 16000},
                                         {PSC_WIRE_RTS, 100},
                                         {PSC_WIRE_RTS, 1 << 20}};

    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        if (!taken_out_of_turn(messages[i]))
            break;
    }
}

/* ---- receives that only a connection over one lane can have ---- */

CASE(a_receive_shown_over_several_lanes)
{
    static const uint8_t key[24];
    const psc_wire_advertise_t expose = {
        .entry = 1, .generation = 1, .len = 1 << 20};
    const psc_wire_conceal_t conceal = {.entry = 1, .generation = 1};

    for (int i = 0; i < 3; i++) {
        psc_conn_t *here, *there;
        pair_t pair;

        open_tuples(&pair);
        pair_join_by(&pair, 2, &here, &there);
        psc_worker_log_to(pair.b.worker, -1, 0);
        if (i < 2)
            hostile_speak_by(here->lanes[0], PSC_WIRE_ADVERTISE, &expose,
                             sizeof expose, key, i ? sizeof key : 0);
        else
            hostile_speak_by(here->lanes[0], PSC_WIRE_CONCEAL, &conceal,
                             sizeof conceal, NULL, 0);
        until(&pair, psc_conn_state(there) == PSC_CONN_FAILED);
        check(there->status == PSC_ERR_PROTOCOL && !there->tuple_am);
        psc_conn_fail(here, PSC_ERR_PEER_LOST);
        hostile_part(&pair);
    }
}

/* ---- a lane that cannot take the place of a lost one ---- */

/* Each side refuses to join a lane of an interface that takes shorter messages
 * than the connection has promised to send over each of its lanes. */
CASE(a_lane_for_short_messages_is_not_joined)
{
    psc_lane_t *ours, *theirs;
    psc_conn_t *here, *there;
    pair_t pair, shorter;

    pair_open(&pair);
    pair_join_by(&pair, 2, &here, &there);
    if (here->replay) {
        lane_fail(here->lanes[1]);
        until(&pair, psc_conn_join_begin(here, 1) == PSC_OK);
        until(&pair, psc_conn_join_begin(there, 1) == PSC_OK);
        options.unlike = 2;
        shorter = pair_unlike(&pair);
        pair_lanes(&shorter, &ours, &theirs);
        check(psc_conn_join(here, 1, ours) == PSC_ERR_UNSUPPORTED);
        check(psc_conn_join(there, 1, theirs) == PSC_ERR_UNSUPPORTED);
        psc_lane_destroy(ours);
        psc_lane_destroy(theirs);
        psc_conn_join_fail(here, 1);
        psc_conn_join_fail(there, 1);
        check(psc_conn_state(here) == PSC_CONN_UP);
        check(psc_conn_state(there) == PSC_CONN_UP);
    }
    psc_conn_fail(here, PSC_ERR_PEER_LOST);
    psc_conn_fail(there, PSC_ERR_PEER_LOST);
    hostile_part(&pair);
}

/* ---- the end of one connection amid the work of another ---- */

enum { BUSY = 4 };

static psc_conn_t *busy[BUSY];
static psc_upward_t spiteful;
static bool (*send_control)(psc_conn_t *conn, psc_wire_id_t id);
static unsigned credits;

/* The first connection that reports its credit ends the others. */
static bool credit_ends_others(psc_conn_t *conn, psc_wire_id_t id)
{
    credits += id == PSC_WIRE_CREDIT;
    for (int i = 0; i < BUSY && credits == 1; i++) {
        if (busy[i] != conn)
            psc_conn_fail_locked(busy[i], PSC_ERR_NO_MEMORY);
    }
    return send_control(conn, id);
}

CASE(a_busy_connection_ends_others)
{
    psc_conn_t *there[BUSY];
    pair_t pair;
    int failed = 0;

    pair_open(&pair);
    for (int i = 0; i < BUSY; i++)
        pair_join(&pair, &busy[i], &there[i]);
    settle(&pair);
    check(psc_worker_enter(pair.a.worker, 0) == PSC_OK);
    send_control = pair.a.worker->up->send_control;
    spiteful = *pair.a.worker->up;
    spiteful.send_control = credit_ends_others;
    pair.a.worker->up = &spiteful;
    for (int i = 0; i < BUSY; i++) {
        busy[i]->flow.due = true;
        psc_conn_mark_busy(busy[i]);
    }
    psc_worker_leave(pair.a.worker);
    psc_worker_progress(pair.a.worker);
    for (int i = 0; i < BUSY; i++)
        failed += psc_conn_state(busy[i]) == PSC_CONN_FAILED;
    check(credits == 1 && failed == BUSY - 1);
    for (int i = 0; i < BUSY; i++) {
        psc_conn_fail(busy[i], PSC_ERR_PEER_LOST);
        psc_conn_fail(there[i], PSC_ERR_PEER_LOST);
    }
    hostile_part(&pair);
}
