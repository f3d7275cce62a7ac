#include "credit.h"

#include <string.h>

#include "../core/conn.h"
#include "../core/lane.h"

void psc_credit_start(psc_conn_t *conn)
{
    if (psc_flow_ungranted(&conn->flow, conn->worker->budget.window) <= 0)
        return;
    conn->flow.due = true;
    psc_conn_mark_busy(conn);
}

void psc_credit_heard(psc_conn_t *conn, uint32_t limit)
{
    if (psc_flow_heard(&conn->flow, limit) &&
        !psc_list_empty(&conn->work.queues[PSC_WORK_ORDERED]))
        psc_conn_mark_busy(conn);
}

void psc_credit_return(psc_conn_t *conn, uint32_t cost)
{
    if (psc_flow_return(&conn->flow, cost, conn->worker->budget.window))
        psc_conn_mark_busy(conn);
}

psc_status_t psc_credit_send(psc_conn_t *conn, psc_wire_id_t id, void *header,
                             uint8_t header_len, const void *payload,
                             size_t len)
{
    psc_flow_t before = conn->flow;
    uint32_t credit = psc_flow_stamp(&conn->flow, conn->worker->budget.window);
    psc_status_t status;

    memcpy(header, &credit, sizeof credit);
    status = psc_outlet_send(&conn->out, &psc_conn_main_lane(conn)->slot->attr,
                             (uint8_t)id, header, header_len, payload, len);
    if (status == PSC_OK)
        return status;
    psc_flow_unstamp(&conn->flow, &before);
    if (status == PSC_ERR_NO_RESOURCE)
        psc_count(conn, PSC_COUNTER_back_pressure, 1);
    return status;
}
