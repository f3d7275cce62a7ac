#include "match.h"

#include <stdlib.h>

static const psc_match_shape_t match_requests = PSC_MATCH_SHAPE(
    psc_req_t, link, place.bucket, head.result.tag, head.result.order);
static const psc_match_shape_t match_of_source =
    PSC_MATCH_SHAPE(psc_unexp_t, link, bucket, tag, order);
static const psc_match_shape_t match_of_all =
    PSC_MATCH_SHAPE(psc_unexp_t, any_link, any_bucket, tag, order);

static void match_lists_init(psc_match_lists_t *lists,
                             const psc_match_shape_t *messages)
{
    psc_match_list_init(&lists->posted, &match_requests);
    psc_match_list_init(&lists->probes, &match_requests);
    psc_match_list_init(&lists->unexpected, messages);
}

static void match_lists_clear(psc_match_lists_t *lists)
{
    psc_match_list_clear(&lists->posted);
    psc_match_list_clear(&lists->probes);
    psc_match_list_clear(&lists->unexpected);
}

psc_context_t *psc_match_context(psc_worker_t *worker, uint32_t id, bool create)
{
    psc_list_t *bucket = &worker->matching.contexts[id % PSC_CONTEXT_BUCKETS];
    psc_context_t *context;

    psc_list_for_each(item, bucket, psc_context_t, link) {
        if (item->id == id)
            return item;
    }
    if (!create || !(context = malloc(sizeof *context)))
        return NULL;
    context->id = id;
    match_lists_init(&context->lists, &match_of_all);
    psc_list_push(bucket, &context->link);
    return context;
}

psc_match_queue_t *psc_match_queue(psc_conn_t *conn, uint32_t id, bool create)
{
    psc_match_queue_t *queue;
    psc_context_t *context;

    psc_list_for_each(item, &conn->queues, psc_match_queue_t, link) {
        if (item->context->id == id)
            return item;
    }
    if (!create || !(context = psc_match_context(conn->worker, id, true)) ||
        !(queue = malloc(sizeof *queue)))
        return NULL;
    queue->context = context;
    match_lists_init(&queue->lists, &match_of_source);
    psc_match_list_init(&queue->handed, &match_requests);
    psc_list_push(&conn->queues, &queue->link);
    return queue;
}

psc_match_lists_t *psc_match_lists(psc_worker_t *worker, psc_conn_t *source,
                                   uint32_t id, bool create)
{
    psc_match_queue_t *queue;
    psc_context_t *context;

    if (!source) {
        context = psc_match_context(worker, id, create);
        return context ? &context->lists : NULL;
    }
    queue = psc_match_queue(source, id, create);
    return queue ? &queue->lists : NULL;
}

void psc_match_queue_free(psc_match_queue_t *queue)
{
    match_lists_clear(&queue->lists);
    psc_match_list_clear(&queue->handed);
    psc_list_remove(&queue->link);
    free(queue);
}

void psc_match_contexts_free(psc_worker_t *worker)
{
    for (int i = 0; i < PSC_CONTEXT_BUCKETS; i++) {
        psc_list_for_each(context, &worker->matching.contexts[i], psc_context_t,
                          link) {
            match_lists_clear(&context->lists);
            psc_list_remove(&context->link);
            free(context);
        }
    }
}
