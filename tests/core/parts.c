/* Parts of a worker and of a connection, each alone, without a worker. */
#include <poll.h>
#include <unistd.h>

#include "harness.h"
#include "pscompy/core/control_events.h"
#include "pscompy/core/progress/progress.h"
#include "pscompy/proto/am.h"
#include "pscompy/core/request.h"
#include "pscompy/core/types/flow.h"

/* ---- requests ---- */

CASE(pool_of_requests)
{
    enum { N = 2 * PSC_REQ_CHUNK };
    psc_iov_t iov[3] = {{"ab", 2}, {"cde", 3}, {"f", 1}};
    psc_requests_t pool;
    psc_req_t *req[N];
    uint64_t id;

    psc_requests_init(&pool, NULL);
    check(psc_requests_count(&pool) == 0 && !psc_req_find(&pool, 0));
    for (uint32_t i = 0; i < N; i++) {
        req[i] = psc_req_create(&pool, PSC_REQ_RECV);
        check(req[i] && psc_req_find(&pool, psc_req_id(req[i])) == req[i]);
        check(psc_req_find(&pool, psc_req_id(req[i])) == req[i]);
    }
    check(psc_requests_count(&pool) == N);
    check(!psc_req_find(&pool, (uint64_t)1 << 32 | N));
    check(psc_req_set_iov(req[5], iov, 3) == PSC_OK &&
          psc_req_total(req[5]) == 6);
    check(psc_req_iov(req[5]) == req[5]->memory.list.pieces);
    check(!psc_req_extended(req[5]) && req[5]->bulk->inflight == 0);
    check(psc_req_extend(req[5]) && psc_req_extend(req[5]));
    check(psc_req_extended(req[5]) && req[5]->bulk->req == req[5]);
    id = psc_req_id(req[5]);
    psc_req_recycle(&pool, req[5]);
    check(!psc_req_find(&pool, id));
    check(psc_req_create(&pool, PSC_REQ_SEND) == req[5]);
    check(!psc_req_extended(req[5]));
    check(psc_req_id(req[5]) != id && !psc_req_find(&pool, id));
    check(req[5]->kind == PSC_REQ_SEND && req[5]->n_iov == 0);
    check(psc_req_set_iov(req[6], iov, 3) == PSC_OK); /* freed by destroy */
    check(psc_req_extend(req[6]));                    /* this, too */
    psc_requests_destroy(&pool);
}

CASE(queue_of_completions)
{
    psc_requests_t pool;
    psc_completions_t *queue = &pool.completions;
    psc_req_t *a, *b, *c;

    psc_requests_init(&pool, NULL);
    a = psc_req_create(&pool, PSC_REQ_RECV);
    b = psc_req_create(&pool, PSC_REQ_RECV);
    c = psc_req_create(&pool, PSC_REQ_RECV);
    check(!psc_completion_poll(queue));
    psc_completion_add(queue, a, PSC_HELD_BY_CORE);
    psc_completion_add(queue, b, PSC_HELD_BY_CORE);
    psc_completion_add(queue, b, 0); /* is queued already */
    psc_completion_add(queue, c, PSC_HELD_BY_CORE);
    check(atomic_load(&queue->n) == 3);
    psc_completion_free(queue, b); /* before it was polled */
    check(atomic_load(&queue->n) == 2);
    check(psc_completion_poll(queue) == a && psc_completion_poll(queue) == c);
    check(!psc_completion_poll(queue) && atomic_load(&queue->n) == 0);
    psc_completion_free(queue, a);
    check(psc_req_create(&pool, PSC_REQ_RECV) == b); /* freed last, b first */
    check(psc_completion_let_go(queue, c) == 0);
    psc_req_recycle(&pool, c);
    check(!psc_completion_take_freed(queue));
    psc_requests_destroy(&pool);
}

CASE(requests_freed_after_polling_began)
{
    psc_requests_t pool;
    psc_completions_t *queue = &pool.completions;
    psc_req_t *a, *b;

    psc_requests_init(&pool, NULL);
    a = psc_req_create(&pool, PSC_REQ_RECV);
    b = psc_req_create(&pool, PSC_REQ_RECV);
    psc_completion_add(queue, a, PSC_HELD_BY_CORE);
    psc_completion_add(queue, b, PSC_HELD_BY_CORE);
    check(psc_completion_poll(queue) == a);
    psc_completion_free(queue, a);
    psc_completion_free(queue, b);
    check(psc_requests_used(&pool) == 1); /* completion_poll has taken b */
    check(!psc_completion_poll(queue) && psc_requests_used(&pool) == 0);
    psc_requests_destroy(&pool);
}

/* ---- control events ---- */

static bool rings(const psc_control_events_t *control_events)
{
    struct pollfd ready = {.fd = control_events->fd, .events = POLLIN};

    return poll(&ready, 1, 0) == 1;
}

static void events_are_taken_once(psc_control_events_t *control_events)
{
    psc_control_event_t events[4];
    psc_event_slot_t lane, conn;

    psc_event_slot_init(&lane, PSC_CONTROL_LANE, 7);
    psc_event_slot_init(&conn, PSC_CONTROL_CONN, 8);
    psc_control_event_post(control_events, &lane);
    psc_control_event_post(control_events, &conn);
    psc_control_event_post(control_events, &lane);
    check(rings(control_events) &&
          psc_control_events_take(control_events, events, 1) == 1);
    check(events[0].kind == PSC_CONTROL_LANE && events[0].id == 7);
    check(rings(control_events) &&
          psc_control_events_take(control_events, events, 4) == 1);
    check(events[0].kind == PSC_CONTROL_CONN && events[0].id == 8);
    check(!rings(control_events) &&
          psc_control_events_take(control_events, events, 4) == 0);
    psc_control_event_post(control_events, &lane);
    psc_event_slot_end(&lane);
    psc_control_event_post(control_events, &lane);
    check(psc_control_events_take(control_events, events, 4) == 0);
}

static void quiet_events_ring_later(psc_control_events_t *control_events)
{
    psc_control_event_t events[4];
    psc_event_slot_t call, failed;

    psc_event_slot_init(&call, PSC_CONTROL_CALL, 1);
    psc_event_slot_init(&failed, PSC_CONTROL_CALL, 2);
    call.quiet = failed.quiet = true;
    psc_control_event_post_quietly(control_events, &call);
    psc_control_event_post_quietly(control_events, &failed);
    psc_control_event_post_quietly(control_events, &call);
    check(!rings(control_events) &&
          psc_control_events_take(control_events, events, 4) == 0);
    psc_control_event_post(control_events, &failed);
    check(rings(control_events) &&
          psc_control_events_take(control_events, events, 4) == 1);
    check(events[0].id == 2);
    check(psc_control_events_take_quiet(control_events, events, 4) == 1);
    check(events[0].id == 1 && !rings(control_events));
    /* the first one was read */
    psc_control_event_post_quietly(control_events, &call);
    check(rings(control_events) &&
          psc_control_events_take(control_events, events, 4) == 1);
    check(psc_control_events_take_quiet(control_events, events, 4) == 0);
}

static void callers_ring_together(psc_control_events_t *control_events)
{
    psc_control_event_t events[4];

    check(psc_control_events_take(control_events, events, 4) == 0 &&
          !rings(control_events));
    check(psc_control_events_caller(control_events, 5) == PSC_OK &&
          rings(control_events));
    check(psc_control_events_take(control_events, events, 4) == 0);
    check(psc_control_events_caller(control_events, 6) == PSC_OK &&
          !rings(control_events));
    check(control_events->n_holding == 1);
    check(psc_control_events_take_callers(control_events, events, 1) == 1);
    check(control_events->n_holding == 1 && events[0].id == 5);
    check(psc_control_events_take_callers(control_events, events, 4) == 1);
    check(control_events->n_holding == 0 && events[0].id == 6);
    control_events->holding_reported = false; /* as psc_worker_holding does */
    /* freed at the end */
    check(psc_control_events_caller(control_events, 7) == PSC_OK);
}

static void holding_rings_once(psc_control_events_t *control_events)
{
    psc_control_event_t event;

    psc_control_events_hold(control_events, 1);
    check(rings(control_events) &&
          psc_control_events_take(control_events, &event, 1) == 0);
    psc_control_events_hold(control_events, 1);
    psc_control_events_hold(control_events, -1);
    check(!rings(control_events));
    psc_control_events_hold(control_events, -1);
    control_events->holding_reported = false; /* as psc_worker_holding does */
    psc_control_events_hold(control_events, 1);
    check(rings(control_events));
}

static void lines_are_cut(psc_control_events_t *control_events)
{
    char line[2 * PSC_REASON_MAX], read_back[sizeof line];
    int pipes[2];
    ssize_t len;

    check(pipe(pipes) == 0);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    control_events->log_fd = pipes[1];
    control_events->log_level = 2;
    psc_control_events_log(control_events, 3, "not of this level");
    psc_control_events_log(control_events, 2, "short");
    len = read(pipes[0], read_back, sizeof read_back);
    check(len == 8 && memcmp(read_back, "2 short\n", 8) == 0);
    psc_control_events_log(control_events, 1, line);
    len = read(pipes[0], read_back, sizeof read_back);
    check(len > PSC_REASON_MAX && len < (ssize_t)sizeof line);
    check(read_back[len - 1] == '\n' && read_back[len - 2] == 'x');
    close(pipes[0]);
    close(pipes[1]);
}

CASE(control_events)
{
    psc_control_events_t control_events;

    check(psc_control_events_open(&control_events) == 0 &&
          !rings(&control_events));
    psc_control_events_log(&control_events, 0,
                           "goes nowhere: there is no log yet");
    events_are_taken_once(&control_events);
    quiet_events_ring_later(&control_events);
    holding_rings_once(&control_events);
    lines_are_cut(&control_events);
    psc_control_events_hold(&control_events, -1);
    control_events.holding_reported = false;
    callers_ring_together(&control_events);
    psc_control_events_close(&control_events);
}

/* ---- flow control ---- */

/* Two ends exchange bytes in both directions, beyond the end of the counters.
 * Some headers are not sent after all. */
CASE(flow)
{
    enum { WINDOW = 400000, COST = 1000 };
    psc_flow_t a, b;
    uint32_t stalls = 0;

    psc_flow_init(&a);
    psc_flow_init(&b);
    check(psc_flow_has(&a, PSC_CREDIT_INITIAL));
    check(!psc_flow_has(&a, PSC_CREDIT_INITIAL + 1));
    for (uint64_t moved = 0; moved < (uint64_t)5 << 30; moved += COST) {
        if (!psc_flow_has(&a, COST)) {
            psc_flow_t before = b;
            uint32_t lost = psc_flow_stamp(&b, WINDOW);

            check(before.due);
            psc_flow_unstamp(&b, &before);
            check(b.due && b.granted == before.granted);
            check(psc_flow_stamp(&b, WINDOW) == lost && !b.due);
            check(psc_flow_heard(&a, lost) && !psc_flow_heard(&a, lost));
            stalls++;
        }
        a.sent += COST;
        check(psc_flow_spend(&b, COST));
        psc_flow_return(&b, COST, WINDOW);
    }
    check(stalls > 10000);
    check(!psc_flow_spend(&b, b.granted - b.got + 1)); /* more than allowed */
    psc_flow_init(&a);
    check(psc_flow_ungranted(&a, PSC_CREDIT_INITIAL / 2) < 0);
    check(psc_flow_stamp(&a, PSC_CREDIT_INITIAL / 2) == PSC_CREDIT_INITIAL);
}

CASE(room_of_worker)
{
    psc_budget_t room = {.max = 4 << 20, .window_max = 1 << 20};

    psc_budget_share(&room, 0);
    check(room.window == 1 << 20);
    psc_budget_share(&room, 8);
    check(room.window == 512 << 10);
    psc_budget_share(&room, 92);
    check(room.window == PSC_CREDIT_INITIAL);
    psc_budget_share(&room, -98);
    check(room.n_up == 2 && room.window == 1 << 20);
    room.max = room.window_max = UINT64_MAX;
    psc_budget_share(&room, -1);
    check(room.window == INT32_MAX / 2);
    room = (psc_budget_t){.max = 10, .kept = 10};
    check(psc_budget_left(&room));
    room.kept++;
    check(!psc_budget_left(&room));
}

/* ---- progress ---- */

CASE(pace)
{
    psc_iface_slot_t slots[3] = {{.next = slots + 1}, {.next = slots + 2}};
    psc_interfaces_t interfaces = {.first = slots, .n = 3};
    psc_iface_slot_t *cheap = psc_iface_slot(&interfaces, 0);
    psc_iface_slot_t *dear = psc_iface_slot(&interfaces, 1);
    psc_iface_slot_t *rail = psc_iface_slot(&interfaces, 2);

    cheap->attr.poll_ns = 20;
    dear->attr.poll_ns = rail->attr.poll_ns = 700;
    psc_interfaces_pace(&interfaces, 50000);
    check(cheap->every == 1 && dear->every == 1);
    dear->lanes = 1;
    psc_interfaces_pace(&interfaces, 50000);
    check(dear->every == 1 && atomic_load(&interfaces.stride) == 2);
    rail->lanes = 2;
    rail->further = 1;
    psc_interfaces_pace(&interfaces, 50000);
    check(dear->every == 1 && rail->every == 1 && rail->linger == 0);
    rail->further = 2;
    psc_interfaces_pace(&interfaces, 50000);
    check(dear->every == 1 && rail->every == 64 && rail->linger > 0);
    cheap->lanes = 1;
    psc_interfaces_pace(&interfaces, 50000);
    check(cheap->every == 1 && dear->every == 16 && rail->every == 64);
    check(atomic_load(&interfaces.stride) > 10);
    psc_interfaces_pace(&interfaces, 0);
    check(atomic_load(&interfaces.stride) == 1);
}

/* ---- active messages ---- */

CASE(idle_nodes)
{
    psc_am_idle_t idle = {.bytes = 0};
    am_node_t *small = psc_am_node_reuse(&idle, 100);
    am_node_t *large = psc_am_node_reuse(&idle, 10 << 20);

    check(small && large);
    psc_am_node_free(&idle, small);
    psc_am_node_free(&idle, large); /* too long to be kept */
    check(idle.bytes == 1024);
    check(psc_am_node_reuse(&idle, 1024) == small && idle.bytes == 0);
    psc_am_node_free(&idle, small);
    check(!psc_am_node_alloc(UINT64_MAX));
    psc_am_idle_destroy(&idle);
    psc_am_node_free(&idle, psc_am_node_alloc(1)); /* not kept any more */
    check(!idle.nodes[0]);
}
