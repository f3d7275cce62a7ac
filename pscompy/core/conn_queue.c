/* Queueing of a connection's work; conn_flush.c sends it. */
#include "conn.h"

#include "progress/progress.h"

/* ---- queueing ---- */

void psc_conn_mark_busy(psc_conn_t *conn)
{
    if (psc_link_listed(&conn->work.busy_link))
        return;
    psc_list_push(&conn->worker->busy, &conn->work.busy_link);
    /* no thread may sleep before the next pass */
    conn->worker->restless = true;
    psc_wake(conn->worker, PSC_WAKE_SPENT); /* sleeping threads must wake up */
}

void psc_conn_queue(psc_conn_t *conn, psc_req_t *req)
{
    psc_link_t *link = &req->bulk->work_link;

    psc_list_remove(link);
    psc_list_push(&conn->work.queues[psc_work_kind(req->stage)], link);
    psc_conn_mark_busy(conn);
}
