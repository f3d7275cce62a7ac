/* psc_worker_open_context and psc_worker_close_context of control.h, for the
 * contexts of a communicator: those of two numbers, in all classes. */
#include <stdlib.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/upward.h"
#include "../core/worker.h"
#include "match.h"

/* Context number `index` of a communicator. */
static uint32_t context_of(uint32_t number, uint32_t index)
{
    return number + index % 2 + index / 2 * PSC_CONTEXT_OBJECTS;
}

#define CONTEXTS 8u /* of a communicator */

/* ---- opening ---- */

static psc_status_t context_open(psc_worker_t *worker, uint32_t id)
{
    psc_context_t *context = psc_match_context(worker, id, false);
    psc_entry_t *entry = malloc(sizeof *entry);

    if (!entry)
        return PSC_ERR_NO_MEMORY;
    psc_table_add(&worker->matching.open, entry, id);
    if (context)
        context->stays = true;
    return PSC_OK;
}

static psc_status_t contexts_open(psc_worker_t *worker, uint32_t number)
{
    for (uint32_t i = 0; i < CONTEXTS; i++) {
        if (context_open(worker, context_of(number, i)) == PSC_OK)
            continue;
        while (i-- > 0)
            psc_context_close(worker, context_of(number, i));
        return PSC_ERR_NO_MEMORY;
    }
    if (worker->matching.next_number < number + 2)
        worker->matching.next_number = number + 2;
    return PSC_OK;
}

int psc_worker_open_context(psc_worker_t *worker, uint32_t number)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    return psc_worker_left(worker, contexts_open(worker, number));
}

/* ---- closing ---- */

static void end_requests(psc_match_list_t *list)
{
    while (!psc_list_empty(&list->all)) {
        psc_req_t *req = psc_container_of(list->all.next, psc_req_t, link);

        psc_match_leave(req);
        psc_req_finish(req, PSC_ERR_CLOSED);
    }
}

/* End the receives that were handed out, but not those that a message has met.
 * One for which the peer has to be asked ends when the peer has answered. */
static void end_handed(psc_match_queue_t *queue)
{
    psc_list_for_each(req, &queue->handed.all, psc_req_t, link) {
        psc_status_t status = psc_match_recall(req);

        if (status == PSC_OK)
            psc_req_finish(req, PSC_ERR_CLOSED);
        else if (status == PSC_INPROGRESS)
            req->error = PSC_ERR_CLOSED;
    }
}

/* End the receives and probes that no message has met, and drop the
 * messages. */
static void context_end(psc_worker_t *worker, psc_context_t *context)
{
    (void)worker;
    end_requests(&context->lists.posted);
    end_requests(&context->lists.probes);
    psc_list_for_each(queue, &context->queues, psc_match_queue_t,
                      context_link) {
        end_requests(&queue->lists.posted);
        end_requests(&queue->lists.probes);
        end_handed(queue);
        psc_unexp_drop_all(queue->conn, context->entry.number);
    }
}

/* Free the queues in which nothing is left. The others have a message that is
 * still arriving, or a receive that is meeting one. */
static void context_settle(psc_worker_t *worker, psc_context_t *context)
{
    context->stays = false;
    psc_list_for_each(queue, &context->queues, psc_match_queue_t,
                      context_link) {
        if (psc_match_queue_empty(queue))
            psc_match_queue_free(queue);
    }
    psc_match_context_settle(worker, context);
}

void psc_context_close(psc_worker_t *worker, uint32_t id)
{
    psc_entry_t *entry = psc_table_find(&worker->matching.open, id);
    psc_context_t *context = psc_match_context(worker, id, false);

    if (!entry)
        return;
    if (context)
        context_end(worker, context);
    psc_table_remove(&worker->matching.open, entry);
    free(entry);
    context = psc_match_context(worker, id, false);
    if (context)
        context_settle(worker, context);
}

void psc_worker_close_context(psc_worker_t *worker, uint32_t number)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    if (worker->runs.engine)
        worker->runs.engine->context_closed(worker, number);
    for (uint32_t i = 0; i < CONTEXTS; i++)
        psc_context_close(worker, context_of(number, i));
    psc_conns_flush(worker);
    psc_worker_leave(worker);
}
