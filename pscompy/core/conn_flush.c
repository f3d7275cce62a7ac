#include "conn_flush.h"

#include "conn.h"
#include "upward.h"

/* Advance each urgent request once, in any order. */
static bool conn_flush_urgent(psc_conn_t *conn)
{
    psc_link_t *last = conn->work.urgent.prev;
    bool moved = false;

    while (!psc_list_empty(&conn->work.urgent)) {
        psc_link_t *link = psc_list_pop(&conn->work.urgent);
        psc_req_t *req = psc_container_of(link, psc_req_t, link);
        uint64_t issued = req->bulk->issued;

        if (conn->worker->up->advance(req) == PSC_ERR_NO_RESOURCE) {
            moved |= req->bulk->issued != issued;
            psc_list_push(&conn->work.urgent, &req->link);
        } else {
            moved = true;
        }
        if (link == last)
            break;
    }
    return moved;
}

/* Issue sends in the order in which they were posted. */
static bool conn_flush_ordered(psc_conn_t *conn)
{
    bool moved = false;

    while (!psc_list_empty(&conn->work.ordered)) {
        psc_link_t *link = psc_list_pop(&conn->work.ordered);
        psc_req_t *req = psc_container_of(link, psc_req_t, link);

        if (conn->worker->up->advance(req) == PSC_ERR_NO_RESOURCE) {
            psc_list_push_front(&conn->work.ordered, &req->link);
            break;
        }
        moved = true;
    }
    return moved;
}

static bool conn_has_work(const psc_conn_t *conn)
{
    return !psc_list_empty(&conn->work.urgent) ||
           !psc_list_empty(&conn->work.ordered) ||
           !psc_list_empty(&conn->work.fins);
}

/* Send the CLOSE or CLOSE_ACK of a connection that ends normally. */
static void conn_flush_close(psc_conn_t *conn)
{
    if (conn->closing.ack_due &&
        conn->worker->up->send_control(conn, PSC_WIRE_CLOSE_ACK)) {
        conn->closing.ack_due = false;
        if (conn->state == PSC_CONN_CLOSED)
            psc_conn_retire_lanes(conn);
    }
    if (conn->state == PSC_CONN_CLOSING && !conn->closing.sent &&
        !conn_has_work(conn) && !conn->worker->up->sends_pending(conn)) {
        conn->worker->up->conn_closing(conn);
        conn->closing.sent =
            conn->worker->up->send_control(conn, PSC_WIRE_CLOSE);
    }
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
    return !conn_has_work(conn) && !conn->flow.due;
}

bool psc_conn_flush(psc_conn_t *conn)
{
    bool moved = false;

    if (conn->state == PSC_CONN_UP || conn->state == PSC_CONN_CLOSING) {
        if (!psc_list_empty(&conn->work.urgent))
            moved |= conn_flush_urgent(conn);
        if (!psc_list_empty(&conn->work.fins))
            moved |= conn->worker->up->send_fins(conn);
        if (!psc_list_empty(&conn->work.ordered))
            moved |= conn_flush_ordered(conn);
        if (conn->flow.due && !psc_conn_ended(conn) &&
            conn->worker->up->send_control(conn, PSC_WIRE_CREDIT)) {
            psc_count(conn, PSC_COUNTER_credit_messages, 1);
            moved = true;
        }
    }
    if (conn->closing.ack_due || conn->state == PSC_CONN_CLOSING)
        conn_flush_close(conn);
    if (conn_idle(conn))
        psc_list_remove(&conn->work.busy_link);
    conn->worker->restless |= moved;
    return moved;
}
