#include "conn.h"

#include "upward.h"

/* Advance each request of a queue once, until one of them finds its lane full,
 * because the others would find the lane full, too. */
static bool conn_flush_queue(psc_conn_t *conn, psc_work_kind_t kind)
{
    psc_list_t *queue = &conn->work.queues[kind];
    const psc_link_t *last = queue->prev;
    const uint64_t *fragments = &conn->counters->value[PSC_COUNTER_fragments];
    psc_link_t *link = NULL;
    bool moved = false;

    while (link != last && (link = psc_list_pop(queue))) {
        psc_req_t *req = psc_container_of(link, psc_bulk_t, work_link)->req;
        uint64_t issued = req->bulk->issued, sent = *fragments;
        psc_stage_t stage = req->stage;

        if (conn->worker->up->advance(req) == PSC_ERR_NO_RESOURCE) {
            psc_work_kind_t full = psc_work_kind(req->stage);

            psc_list_push_front(&conn->work.queues[full], link);
            moved |= req->bulk->issued != issued || *fragments != sent ||
                     req->stage != stage;
            if (full == kind)
                break;
        } else {
            moved = true;
        }
    }
    return moved;
}

/* Send the LANE_UP and LANE_DOWN messages that are due. On LANE_DOWN the peer
 * sends the lost lane's bytes again, except those of messages for which it has
 * received a FIN; so the FINs of complete messages are sent first. */
static void conn_flush_lost(psc_conn_t *conn)
{
    psc_lost_t *lost = &conn->lost;

    while (lost->up_due &&
           conn->worker->up->send_control(conn, PSC_WIRE_LANE_UP))
        lost->up_due &= (uint8_t)(lost->up_due - 1);
    while (!lost->up_due && lost->down_due &&
           psc_list_empty(&conn->work.fins) &&
           psc_list_empty(&conn->work.queues[PSC_WORK_CONTROL]) &&
           conn->worker->up->send_control(conn, PSC_WIRE_LANE_DOWN))
        lost->down_due &= (uint8_t)(lost->down_due - 1);
}

/* Before CLOSE is sent: refuse the messages that the peer has announced. Then
 * send the CLOSE or CLOSE_ACK of a connection that ends normally. Returns true
 * if messages were refused. */
static bool conn_flush_close(psc_conn_t *conn)
{
    bool refused = conn->state == PSC_CONN_CLOSING && !conn->closing.sent &&
                   conn->worker->up->refuse(conn);

    if (conn->closing.ack_due &&
        conn->worker->up->send_control(conn, PSC_WIRE_CLOSE_ACK)) {
        conn->closing.ack_due = false;
        if (conn->state == PSC_CONN_CLOSED)
            psc_conn_retire_lanes(conn);
    }
    if (conn->state == PSC_CONN_CLOSING && !conn->closing.sent &&
        psc_work_empty(&conn->work) &&
        !conn->worker->up->transfers_pending(conn)) {
        conn->worker->up->conn_closing(conn);
        conn->closing.sent =
            conn->worker->up->send_control(conn, PSC_WIRE_CLOSE);
    }
    return refused;
}

static bool conn_idle(const psc_conn_t *conn)
{
    if (conn->state == PSC_CONN_CONNECTING || conn->state == PSC_CONN_FAILED)
        return true;
    if (conn->closing.ack_due ||
        (conn->state == PSC_CONN_CLOSING && !conn->closing.sent))
        return false;
    /* CLOSE_ACK was sent, nothing else is pending */
    if (conn->state == PSC_CONN_CLOSED)
        return true;
    return psc_work_empty(&conn->work) && !conn->flow.due &&
           !conn->lost.up_due && !conn->lost.down_due && !conn->lost.replay_due;
}

bool psc_conn_flush(psc_conn_t *conn)
{
    bool moved = false;

    if (conn->lost.replay_due && !conn->main->closing)
        moved |= conn->worker->up->replay(conn);
    if (conn->state == PSC_CONN_UP || conn->state == PSC_CONN_CLOSING) {
        moved |= conn_flush_queue(conn, PSC_WORK_CONTROL);
        moved |= conn_flush_queue(conn, PSC_WORK_FRAGS);
        moved |= conn_flush_queue(conn, PSC_WORK_MOVES);
        /* The FINs of gets that are complete are sent together. */
        if (!psc_list_empty(&conn->work.fins))
            moved |= conn->worker->up->send_fins(conn);
        moved |= conn_flush_queue(conn, PSC_WORK_ORDERED);
        conn_flush_lost(conn);
        if (conn->flow.due && !psc_conn_ended(conn) &&
            conn->worker->up->send_control(conn, PSC_WIRE_CREDIT)) {
            psc_count(conn, PSC_COUNTER_credit_messages, 1);
            moved = true;
        }
    }
    if (conn->closing.ack_due || conn->state == PSC_CONN_CLOSING)
        moved |= conn_flush_close(conn);
    if (conn_idle(conn))
        psc_list_remove(&conn->work.busy_link);
    conn->worker->restless |= moved;
    return moved;
}

/* The flush of one connection may end others, or make them busy, so the place
 * in the list is kept by a link that nobody else removes. */
unsigned psc_conns_flush(psc_worker_t *worker)
{
    psc_link_t flushed, *link; /* `flushed` is behind those that are flushed */
    unsigned n = 0;

    psc_list_push_front(&worker->busy, &flushed);
    while ((link = flushed.next) != &worker->busy) {
        psc_list_remove(&flushed);
        psc_list_insert_before(link->next, &flushed);
        n += psc_conn_flush(psc_container_of(link, psc_conn_t, work.busy_link));
    }
    psc_list_remove(&flushed);
    return n;
}
