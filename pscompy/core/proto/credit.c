#include "credit.h"

#include "../conn_queue.h"

static uint32_t credit_window(const psc_conn_t *conn)
{
    uint64_t window = conn->worker->window;

    if (window < PSC_CREDIT_INITIAL)
        return PSC_CREDIT_INITIAL;
    return window > INT32_MAX / 2 ? INT32_MAX / 2 : (uint32_t)window;
}

/* Credit that was not reported to the peer yet. Negative after the window has
 * shrunk: a limit that was reported stays valid. */
static int32_t credit_untold(const psc_conn_t *conn)
{
    return (int32_t)(conn->credit_consumed + credit_window(conn) -
                     conn->credit_told);
}

void psc_credit_init(psc_conn_t *conn)
{
    conn->credit_limit = conn->credit_told = PSC_CREDIT_INITIAL;
    conn->credit_sent = conn->credit_consumed = 0;
}

void psc_credit_start(psc_conn_t *conn)
{
    if (credit_untold(conn) <= 0)
        return;
    conn->credit_due = true;
    psc_conn_mark_busy(conn);
}

uint32_t psc_credit_stamp(psc_conn_t *conn)
{
    conn->credit_due = false;
    if (credit_untold(conn) > 0)
        conn->credit_told = conn->credit_consumed + credit_window(conn);
    return conn->credit_told;
}

void psc_credit_heard(psc_conn_t *conn, uint32_t limit)
{
    if ((int32_t)(limit - conn->credit_limit) <= 0)
        return;
    conn->credit_limit = limit;
    if (!psc_list_empty(&conn->ordered))
        psc_conn_mark_busy(conn);
}

bool psc_credit_spend(psc_conn_t *conn, uint32_t cost)
{
    conn->credit_got += cost;
    return (int32_t)(conn->credit_told - conn->credit_got) >= 0;
}

void psc_credit_return(psc_conn_t *conn, uint32_t cost)
{
    conn->credit_consumed += cost;
    if (conn->credit_due ||
        credit_untold(conn) < (int32_t)(credit_window(conn) / 4))
        return;
    conn->credit_due = true;
    psc_conn_mark_busy(conn);
}
