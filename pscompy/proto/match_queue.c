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
    psc_table_init(&matching->open, matching->seed);
    psc_table_init(&matching->no_queues, matching->seed);
    matching->next_number = PSC_CONTEXT_USER;
    matching->clock = 0;
}

/* ---- open contexts ---- */

/* Returns true if a World may allocate the number of this context. */
static bool match_of_world(uint32_t number)
{
    return number >= PSC_CONTEXT_USER && number < PSC_CONTEXT_END;
}

static bool match_open(const psc_worker_t *worker, uint32_t id)
{
    return psc_table_find(&worker->matching.open, id);
}

bool psc_match_closed(const psc_worker_t *worker, uint32_t id)
{
    uint32_t number = id & PSC_CONTEXT_NUMBER;

    return match_of_world(number) && number < worker->matching.next_number &&
           !match_open(worker, id);
}

/* Returns true if this context and its queues stay although they are empty. */
static bool match_stays(const psc_worker_t *worker, uint32_t id)
{
    uint32_t number = id & PSC_CONTEXT_NUMBER;

    return number < PSC_CONTEXT_USER || id == PSC_CONTEXT_AM ||
           match_open(worker, id);
}

/* ---- contexts and queues ---- */

static psc_context_t *match_new_context(psc_worker_t *worker, uint32_t id)
{
    psc_context_t *context = malloc(sizeof *context);

    if (!context)
        return NULL;
    match_lists_init(&context->lists, &match_of_all);
    psc_list_init(&context->queues);
    context->stays = match_stays(worker, id);
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

/* Give the connection a table of its own, because it gets its first queue. */
static bool match_new_table(psc_conn_t *conn)
{
    psc_table_t *table = malloc(sizeof *table);

    if (!table)
        return false;
    psc_table_init(table, conn->worker->matching.seed);
    conn->queues = table;
    return true;
}

static bool match_has_table(const psc_conn_t *conn)
{
    return conn->queues != &conn->worker->matching.no_queues;
}

void psc_match_queues_free(psc_conn_t *conn)
{
    if (!match_has_table(conn))
        return;
    psc_table_clear(conn->queues);
    free(conn->queues);
    conn->queues = &conn->worker->matching.no_queues;
}

static psc_match_queue_t *match_new_queue(psc_conn_t *conn, uint32_t id)
{
    psc_context_t *context = psc_match_context(conn->worker, id, true);
    psc_match_queue_t *queue;

    if (!context || !(match_has_table(conn) || match_new_table(conn)) ||
        !(queue = malloc(sizeof *queue)))
        return NULL;
    queue->conn = conn;
    queue->context = context;
    psc_list_push(&context->queues, &queue->context_link);
    match_lists_init(&queue->lists, &match_of_source);
    psc_match_list_init(&queue->handed, &match_requests);
    psc_table_add(conn->queues, &queue->entry, id);
    return queue;
}

psc_match_queue_t *psc_match_queue(psc_conn_t *conn, uint32_t id, bool create)
{
    psc_entry_t *entry = psc_table_find(conn->queues, id);

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

void psc_match_queue_free(psc_match_queue_t *queue)
{
    match_lists_clear(&queue->lists);
    psc_match_list_clear(&queue->handed);
    psc_table_remove(queue->conn->queues, &queue->entry);
    psc_list_remove(&queue->context_link);
    free(queue);
}

static void match_context_free(psc_worker_t *worker, psc_context_t *context)
{
    match_lists_clear(&context->lists);
    psc_table_remove(&worker->matching.contexts, &context->entry);
    free(context);
}

static bool match_lists_empty(const psc_match_lists_t *lists)
{
    return psc_list_empty(&lists->posted.all) &&
           psc_list_empty(&lists->probes.all) &&
           psc_list_empty(&lists->unexpected.all);
}

void psc_match_context_settle(psc_worker_t *worker, psc_context_t *context)
{
    if (!context->stays && psc_list_empty(&context->queues) &&
        match_lists_empty(&context->lists))
        match_context_free(worker, context);
}

bool psc_match_queue_empty(const psc_match_queue_t *queue)
{
    return match_lists_empty(&queue->lists) &&
           psc_list_empty(&queue->handed.all);
}

void psc_match_queue_settle(psc_match_queue_t *queue)
{
    psc_worker_t *worker = queue->conn->worker;
    psc_context_t *context = queue->context;

    if (context->stays || !psc_match_queue_empty(queue))
        return;
    psc_match_queue_free(queue);
    psc_match_context_settle(worker, context);
}

void psc_match_contexts_free(psc_worker_t *worker)
{
    psc_matching_t *matching = &worker->matching;

    psc_list_for_each(context, &matching->contexts.all, psc_context_t,
                      entry.link)
        match_context_free(worker, context);
    psc_list_for_each(number, &matching->open.all, psc_entry_t, link) {
        psc_table_remove(&matching->open, number);
        free(number);
    }
    psc_table_clear(&matching->contexts);
    psc_table_clear(&matching->open);
}
