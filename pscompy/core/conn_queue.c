/* A connection's queued work: requests that wait to act, credits to tell, and
 * the last words of one that ends in order. */
#include "conn_queue.h"

#include "progress/sleep.h"

/* ---- queueing ---- */

void psc_conn_mark_busy(psc_conn_t *conn)
{
    if (psc_link_listed(&conn->busy_link))
        return;
    psc_list_push(&conn->worker->busy, &conn->busy_link);
    conn->worker->restless = true; /* nobody sleeps before a pass saw it, */
    psc_wake(conn->worker, PSC_WAKE_SPENT); /* nor goes on sleeping */
}

void psc_conn_queue(psc_conn_t *conn, psc_req_t *req, bool urgent)
{
    psc_list_remove(&req->link);
    req->urgent = urgent;
    psc_list_push(urgent ? &conn->urgent : &conn->ordered, &req->link);
    psc_conn_mark_busy(conn);
}
