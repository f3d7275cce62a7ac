/* psc_worker_open_context and psc_worker_close_context of control.h, for the
 * two numbers that a communicator has, and psc_context_close for one of them.
 * The contexts of a number are those of all classes. */
#include <stdlib.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/worker.h"
#include "match.h"

/* Call a function for the contexts of a number that exist. */
static void contexts_each(psc_worker_t *worker, uint32_t number,
                          void (*function)(psc_worker_t *worker,
                                           psc_context_t *context))
{
    for (uint32_t class = 0; class < 4; class++) {
        uint32_t id = number + class * PSC_CONTEXT_OBJECTS;
        psc_context_t *context = psc_match_context(worker, id, false);

        if (context)
            function(worker, context);
    }
}

/* ---- opening ---- */

static void context_stays(psc_worker_t *worker, psc_context_t *context)
{
    (void)worker;
    context->stays = true;
}

static psc_status_t number_open(psc_worker_t *worker, uint32_t number)
{
    psc_matching_t *matching = &worker->matching;
    psc_entry_t *entry = malloc(sizeof *entry);

    if (!entry)
        return PSC_ERR_NO_MEMORY;
    psc_table_add(&matching->numbers, entry, number);
    if (matching->next_number < number + 1)
        matching->next_number = number + 1;
    contexts_each(worker, number, context_stays);
    return PSC_OK;
}

int psc_worker_open_context(psc_worker_t *worker, uint32_t number)
{
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = number_open(worker, number);
    if (status == PSC_OK) {
        status = number_open(worker, number + 1);
        if (status != PSC_OK)
            psc_context_close(worker, number);
    }
    return psc_worker_left(worker, status);
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

void psc_context_close(psc_worker_t *worker, uint32_t number)
{
    psc_entry_t *entry = psc_table_find(&worker->matching.numbers, number);

    if (!entry)
        return;
    contexts_each(worker, number, context_end);
    psc_table_remove(&worker->matching.numbers, entry);
    free(entry);
    contexts_each(worker, number, context_settle);
    psc_conns_flush(worker);
}

void psc_worker_close_context(psc_worker_t *worker, uint32_t number)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_context_close(worker, number);
    psc_context_close(worker, number + 1);
    psc_worker_leave(worker);
}
