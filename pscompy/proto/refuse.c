#include "message.h"

#include "match.h"
#include "rndv.h"

/* The announced messages that one FIN refuses. */
typedef struct refusal {
    psc_unexp_t *messages[PSC_FINS_MAX];
    uint64_t ids[PSC_FINS_MAX];
    uint32_t n;
} refusal_t;

/* Collect messages of a queue. The RTS of a placeholder (promised) is still to
 * arrive. */
static void refuse_collect(refusal_t *refusal, psc_match_queue_t *queue)
{
    psc_list_for_each(unexp, &queue->lists.unexpected.all, psc_unexp_t, link) {
        if (refusal->n == PSC_FINS_MAX)
            return;
        if (!unexp->rts || unexp->promised)
            continue;
        refusal->ids[refusal->n] = unexp->send_id;
        refusal->messages[refusal->n++] = unexp;
    }
}

static bool refuse_some(psc_conn_t *conn)
{
    refusal_t refusal = {.n = 0};

    psc_list_for_each(queue, &conn->queues->all, psc_match_queue_t, entry.link)
        refuse_collect(&refusal, queue);
    if (refusal.n == 0 ||
        psc_rndv_fin(conn, PSC_ERR_CLOSED, refusal.ids, refusal.n) != PSC_OK)
        return false;
    for (uint32_t i = 0; i < refusal.n; i++)
        psc_unexp_free(refusal.messages[i]);
    conn->rts_in -= refusal.n;
    return true;
}

bool psc_refuse_announced(psc_conn_t *conn)
{
    bool moved = false;

    while (conn->rts_in > 0 && refuse_some(conn))
        moved = true;
    return moved;
}
