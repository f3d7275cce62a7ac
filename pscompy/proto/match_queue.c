#include "match.h"

#include <stdlib.h>
#include <sys/random.h>

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

void psc_matching_init(psc_matching_t *matching)
{
    /* without random bits searches may be slower */
    if (getrandom(&matching->seed, sizeof matching->seed, 0) < 0)
        matching->seed = 0x9e3779b97f4a7c15;
    psc_table_init(&matching->contexts, matching->seed);
    matching->clock = 0;
}

static psc_context_t *match_new_context(psc_worker_t *worker, uint32_t id)
{
    psc_context_t *context = malloc(sizeof *context);

    if (!context)
        return NULL;
    match_lists_init(&context->lists, &match_of_all);
    psc_table_add(&worker->matching.contexts, &context->entry, id);
    return context;
}

psc_context_t *psc_match_context(psc_worker_t *worker, uint32_t id, bool create)
{
    psc_entry_t *entry = psc_table_find(&worker->matching.contexts, id);

    if (entry)
        return psc_container_of(entry, psc_context_t, entry);
    return create ? match_new_context(worker, id) : NULL;
}

static psc_match_queue_t *match_new_queue(psc_conn_t *conn, uint32_t id)
{
    psc_context_t *context = psc_match_context(conn->worker, id, true);
    psc_match_queue_t *queue;

    if (!context || !(queue = malloc(sizeof *queue)))
        return NULL;
    queue->context = context;
    match_lists_init(&queue->lists, &match_of_source);
    psc_match_list_init(&queue->handed, &match_requests);
    psc_table_add(&conn->queues, &queue->entry, id);
    return queue;
}

psc_match_queue_t *psc_match_queue(psc_conn_t *conn, uint32_t id, bool create)
{
    psc_entry_t *entry = psc_table_find(&conn->queues, id);

    if (entry)
        return psc_container_of(entry, psc_match_queue_t, entry);
    return create ? match_new_queue(conn, id) : NULL;
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

void psc_match_queue_free(psc_conn_t *conn, psc_match_queue_t *queue)
{
    match_lists_clear(&queue->lists);
    psc_match_list_clear(&queue->handed);
    psc_table_remove(&conn->queues, &queue->entry);
    free(queue);
}

void psc_match_contexts_free(psc_worker_t *worker)
{
    psc_table_t *contexts = &worker->matching.contexts;

    psc_list_for_each(context, &contexts->all, psc_context_t, entry.link) {
        match_lists_clear(&context->lists);
        psc_table_remove(contexts, &context->entry);
        free(context);
    }
    psc_table_clear(contexts);
}
