#include "../core/upward.h"
#include "match.h"

#include <stdlib.h>

#include "../core/finish.h"
#include "../core/conn.h"
#include "../core/request.h"
#include "credit.h"

/* ---- the lists and memory of the records ---- */

_Static_assert(sizeof(psc_unexp_t) + 16 <= PSC_CREDIT_OVERHEAD,
               "the bound on memory counts the record and its allocation");

psc_unexp_t *psc_unexp_create(psc_conn_t *conn, uint32_t context, int32_t tag,
                              uint64_t len, size_t capacity)
{
    psc_unexp_t *unexp = malloc(sizeof *unexp + capacity);

    if (!unexp)
        return NULL;
    *unexp =
        (psc_unexp_t){.conn = conn, .context = context, .tag = tag, .len = len};
    psc_list_init(&unexp->link);
    psc_list_init(&unexp->any_link);
    unexp->data = unexp->payload;
    return unexp;
}

psc_unexp_t *psc_unexp_find(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_match_lists_t **lists_p)
{
    psc_match_lists_t *lists =
        psc_match_lists(worker, args->source, args->context, false);
    psc_link_t *link;

    *lists_p = lists;
    if (!lists || psc_list_empty(&lists->unexpected.all))
        return NULL;
    link = psc_match_list_search(&lists->unexpected, args->tag);
    if (!link)
        return NULL;
    return args->source ? psc_container_of(link, psc_unexp_t, link)
                        : psc_container_of(link, psc_unexp_t, any_link);
}

static void unexp_unlink(psc_match_queue_t *queue, psc_unexp_t *unexp)
{
    psc_match_list_remove(&queue->lists.unexpected, &unexp->link);
    psc_match_list_remove(&queue->context->lists.unexpected, &unexp->any_link);
}

void psc_unexp_take(psc_unexp_t *unexp)
{
    psc_match_queue_t *queue;

    if (!psc_link_listed(&unexp->link))
        return;
    queue = psc_match_queue(unexp->conn, unexp->context, false);
    unexp_unlink(queue, unexp);
    if (__builtin_expect(!queue->context->stays, 0))
        psc_match_queue_settle(queue);
}

/* Free a record that is in no list. */
static void unexp_release(psc_unexp_t *unexp)
{
    unexp->conn->worker->budget.kept -= unexp->kept;
    if (unexp->owed)
        psc_credit_return(unexp->conn, unexp->owed);
    if (unexp->desc) {
        psc_iface_slot_t *slot = unexp->lane->slot;

        slot->ops->desc_release(slot->iface, unexp->desc);
        unexp->lane->held = false;
    }
    free(unexp);
}

void psc_unexp_free(psc_unexp_t *unexp)
{
    psc_unexp_take(unexp);
    unexp_release(unexp);
}

/* ---- messages that nobody receives ---- */

/* Free the messages of a queue: all, or those that have not arrived. */
static void unexp_clear(psc_match_queue_t *queue, bool all)
{
    psc_list_for_each(unexp, &queue->lists.unexpected.all, psc_unexp_t, link) {
        if (!all && !unexp->rts && !unexp->arriving)
            continue;
        unexp_unlink(queue, unexp);
        unexp_release(unexp);
    }
}

void psc_unexp_conn_failed(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues->all, psc_match_queue_t,
                      entry.link) {
        unexp_clear(queue, false);
        psc_match_queue_settle(queue);
    }
}

void psc_unexp_free_all(psc_match_queue_t *queue)
{
    unexp_clear(queue, true);
}

/* The refusal has left, or the connection has ended. Until then the message
 * counts, so that a peer that reads nothing cannot have ever more refused. */
static void unexp_refused(psc_req_t *req)
{
    psc_req_conn(req)->rts_in--;
}

void psc_unexp_refuse(psc_req_t *req, psc_unexp_t *unexp, psc_status_t error)
{
    psc_conn_t *conn = unexp->conn;

    req->bulk->on_done = unexp_refused;
    req->error = error;
    req->bulk->remote_id = unexp->send_id;
    psc_unexp_free(unexp);
    psc_req_attach(req, conn);
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    psc_conn_queue(conn, req);
}

static psc_status_t unexp_refusal(const psc_unexp_t *unexp)
{
    psc_worker_t *worker = unexp->conn->worker;

    return worker->runs.engine
               ? worker->runs.engine->refusal(worker, unexp->context)
               : PSC_ERR_CLOSED;
}

psc_status_t psc_unexp_drop(psc_unexp_t *unexp)
{
    psc_req_t *req;

    if (!unexp->rts || psc_conn_ended(unexp->conn)) {
        psc_unexp_free(unexp);
        return PSC_OK;
    }
    req = psc_req_create_bulk(&unexp->conn->worker->requests, PSC_REQ_RECV);
    if (!req)
        return PSC_ERR_NO_MEMORY;
    psc_unexp_refuse(req, unexp, unexp_refusal(unexp));
    return PSC_OK;
}

/* Returns the first message of a queue that has arrived or was announced. */
static psc_unexp_t *unexp_first_whole(psc_match_queue_t *queue)
{
    psc_list_for_each(unexp, &queue->lists.unexpected.all, psc_unexp_t, link) {
        if (!unexp->arriving && !unexp->promised)
            return unexp;
    }
    return NULL;
}

void psc_unexp_drop_all(psc_conn_t *conn, uint32_t id)
{
    psc_match_queue_t *queue;
    psc_unexp_t *unexp;

    while ((queue = psc_match_queue(conn, id, false)) &&
           (unexp = unexp_first_whole(queue)) &&
           psc_unexp_drop(unexp) == PSC_OK)
        ;
}

void psc_unexp_arrived(psc_unexp_t *unexp)
{
    if (psc_match_closed(unexp->conn->worker, unexp->context))
        psc_unexp_drop_all(unexp->conn, unexp->context);
}

/* ---- receives that get these messages ---- */

/* Give a receive and its message the same order of arrival: a message that was
 * kept has an order, which the receive gets; a message that met a posted
 * receive gets the order in the receive's result. */
static void match_order(psc_req_t *req, psc_unexp_t *unexp)
{
    if (unexp->order)
        req->head.result.order = unexp->order;
    else
        unexp->order = req->head.result.order;
}

void psc_unexp_claim(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_req_attach(req, unexp->conn);
    psc_req_stage_set(req, PSC_STAGE_CLAIMED);
    match_order(req, unexp);
    psc_req_set_unexp(req, unexp);
    unexp->req = req;
}

void psc_unexp_unclaim(psc_req_t *req)
{
    if (req->stage != PSC_STAGE_CLAIMED || !psc_req_unexp(req) ||
        psc_req_unexp(req)->req != req)
        return;
    psc_req_unexp(req)->req = NULL;
    psc_req_set_unexp(req, NULL);
}

void psc_req_no_buffer(psc_req_t *req, psc_unexp_t *unexp)
{
    match_order(req, unexp);
    psc_req_set_unexp(req, unexp);
    psc_req_attach(req, unexp->conn);
    psc_conn_sign(unexp->conn, &req->head.result);
    req->head.result.tag = unexp->tag;
    req->head.result.nbytes = unexp->len;
    psc_req_matched(req);
}
