#include "match.h"

#include <stdlib.h>

#include "../finish.h"
#include "../request.h"
#include "credit.h"
#include "tag_post.h"

/* ---- contexts and queues ---- */

static psc_context_t *match_context(psc_worker_t *worker, uint32_t id,
                                    bool create)
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
    psc_list_init(&context->posted);
    psc_list_init(&context->unexpected);
    psc_list_push(bucket, &context->link);
    return context;
}

static psc_match_queue_t *match_queue(psc_conn_t *conn, uint32_t id,
                                      bool create)
{
    psc_match_queue_t *queue;
    psc_context_t *context;

    psc_list_for_each(item, &conn->queues, psc_match_queue_t, link) {
        if (item->context->id == id)
            return item;
    }
    if (!create || !(context = match_context(conn->worker, id, true)) ||
        !(queue = malloc(sizeof *queue)))
        return NULL;
    queue->context = context;
    psc_list_init(&queue->posted);
    psc_list_init(&queue->tagged);
    psc_list_init(&queue->unexpected);
    psc_list_push(&conn->queues, &queue->link);
    return queue;
}

/* ---- arriving messages ---- */

static bool match_tag(int32_t wanted, int32_t tag)
{
    return wanted == PSC_ANY_TAG || wanted == tag;
}

static psc_req_t *match_first_posted(psc_list_t *posted, int32_t tag)
{
    psc_list_for_each(req, posted, psc_req_t, link) {
        if (match_tag(req->tag, tag))
            return req;
    }
    return NULL;
}

static psc_req_t *match_earlier(psc_req_t *a, psc_req_t *b)
{
    if (!a || !b)
        return a ? a : b;
    return a->order < b->order ? a : b;
}

static inline psc_req_t *match_first(psc_conn_t *conn, psc_match_queue_t *queue,
                                     uint32_t id, int32_t tag)
{
    psc_context_t *context =
        queue ? queue->context : match_context(conn->worker, id, false);
    psc_req_t *req = NULL;

    if (queue)
        req = match_first_posted(&queue->posted, tag);
    if (context && !psc_list_empty(&context->posted))
        req = match_earlier(req, match_first_posted(&context->posted, tag));
    return req;
}

/* Returns true if a receive in `posted`, posted before `order`, could take a
 * message with this tag. */
static bool match_overlaps(const psc_list_t *posted, int32_t tag,
                           uint64_t order)
{
    psc_list_for_each(req, posted, psc_req_t, link) {
        if (req->order >= order)
            return false;
        if (tag == PSC_ANY_TAG || match_tag(req->tag, tag))
            return true;
    }
    return false;
}

static bool match_first_of_all(const psc_match_queue_t *queue,
                               const psc_req_t *req)
{
    return !match_overlaps(&queue->context->posted, req->tag, req->order);
}

/* A receive has left the queue. Post the receives that it blocked to the
 * fabric, as long as no other receive blocks them. Wait with this while
 * messages that arrived before the lane was installed are still to be matched,
 * because the fabric does not know them. */
static void match_hand_over(psc_conn_t *conn, psc_match_queue_t *queue)
{
    if (!conn->tagging.on || conn->state != PSC_CONN_UP ||
        !psc_list_empty(&psc_conn_main_lane(conn)->early))
        return;
    while (!psc_list_empty(&queue->posted)) {
        psc_req_t *req = psc_container_of(queue->posted.next, psc_req_t, link);

        if (!psc_tag_may(req) || !match_first_of_all(queue, req) ||
            !psc_tag_post(req))
            return;
        psc_list_remove(&req->link);
        psc_req_stage_set(req, PSC_STAGE_TAGGED);
        psc_list_push(&queue->tagged, &req->link);
    }
}

psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t id, int32_t tag)
{
    psc_match_queue_t *queue = match_queue(conn, id, false);
    psc_req_t *req = match_first(conn, queue, id, tag);

    if (!req)
        return NULL;
    req->head.result.order = ++conn->worker->matching.clock;
    psc_list_remove(&req->link);
    if (queue && !psc_list_empty(&queue->posted))
        match_hand_over(conn, queue);
    return req;
}

void psc_match_leave(psc_req_t *req)
{
    psc_match_queue_t *queue =
        req->source ? match_queue(req->source, req->context, false) : NULL;

    psc_list_remove(&req->link);
    if (queue && !psc_list_empty(&queue->posted))
        match_hand_over(req->source, queue);
}

psc_req_t *psc_match_return(const psc_unexp_t *unexp)
{
    psc_match_queue_t *queue = match_queue(unexp->conn, unexp->context, true);
    psc_req_t *req =
        match_first(unexp->conn, queue, unexp->context, unexp->tag);

    psc_list_for_each(tagged, &queue->tagged, psc_req_t, link) {
        if (match_tag(tagged->tag, unexp->tag) &&
            match_earlier(req, tagged) == tagged && psc_tag_recall(tagged))
            return tagged;
    }
    if (req)
        psc_list_remove(&req->link);
    return req;
}

static bool match_fits(const psc_unexp_t *unexp, uint32_t context,
                       const psc_conn_t *source, int32_t tag)
{
    return unexp->context == context && (!source || unexp->conn == source) &&
           match_tag(tag, unexp->tag);
}

static void match_answer_probes(psc_unexp_t *unexp)
{
    psc_list_for_each(probe, &unexp->conn->worker->matching.probes, psc_req_t,
                      link) {
        if (!match_fits(unexp, probe->context, probe->source, probe->tag))
            continue;
        psc_list_remove(&probe->link);
        probe->head.result.tag = unexp->tag;
        probe->head.result.nbytes = unexp->len;
        psc_conn_sign(unexp->conn, &probe->head.result);
        psc_req_finish(probe, PSC_OK);
    }
}

/* Insert by order of arrival, searching from the end: new messages belong
 * there, and a message that is given back belongs near it. */
static void match_insert(psc_match_queue_t *queue, psc_unexp_t *unexp)
{
    psc_link_t *at = &queue->unexpected, *any = &queue->context->unexpected;

    while (at->prev != &queue->unexpected &&
           psc_container_of(at->prev, psc_unexp_t, link)->order > unexp->order)
        at = at->prev;
    psc_list_insert_before(at, &unexp->link);
    while (any->prev != &queue->context->unexpected &&
           psc_container_of(any->prev, psc_unexp_t, any_link)->order >
               unexp->order)
        any = any->prev;
    psc_list_insert_before(any, &unexp->any_link);
}

psc_status_t psc_match_keep(psc_unexp_t *unexp)
{
    psc_match_queue_t *queue = match_queue(unexp->conn, unexp->context, true);

    if (!queue)
        return PSC_ERR_NO_MEMORY;
    unexp->order = ++unexp->conn->worker->matching.clock;
    match_insert(queue, unexp);
    psc_count(unexp->conn, PSC_COUNTER_unexpected, 1);
    match_answer_probes(unexp);
    return PSC_OK;
}

psc_status_t psc_match_put_back(psc_unexp_t *unexp)
{
    psc_match_queue_t *queue = match_queue(unexp->conn, unexp->context, true);

    if (!queue)
        return PSC_ERR_NO_MEMORY;
    match_insert(queue, unexp);
    match_answer_probes(unexp);
    return PSC_OK;
}

/* ---- receives ---- */

psc_unexp_t *psc_match_find(psc_worker_t *worker, const psc_recv_args_t *args)
{
    if (args->source) {
        psc_match_queue_t *queue =
            match_queue(args->source, args->context, false);

        if (!queue)
            return NULL;
        psc_list_for_each(item, &queue->unexpected, psc_unexp_t, link) {
            if (match_tag(args->tag, item->tag))
                return item;
        }
        return NULL;
    }
    psc_context_t *context = match_context(worker, args->context, false);

    if (!context)
        return NULL;
    psc_list_for_each(item, &context->unexpected, psc_unexp_t, any_link) {
        if (match_tag(args->tag, item->tag))
            return item;
    }
    return NULL;
}

void psc_match_take(psc_unexp_t *unexp)
{
    psc_list_remove(&unexp->link);
    psc_list_remove(&unexp->any_link);
}

psc_status_t psc_match_post(psc_req_t *req)
{
    psc_list_t *posted;

    if (req->source) {
        psc_match_queue_t *queue = match_queue(req->source, req->context, true);

        posted = queue ? &queue->posted : NULL;
    } else {
        psc_context_t *context = match_context(req->worker, req->context, true);

        posted = context ? &context->posted : NULL;
    }
    if (!posted)
        return PSC_ERR_NO_MEMORY;
    req->order = ++req->worker->matching.clock;
    psc_req_stage_set(req, PSC_STAGE_POSTED);
    psc_list_push(posted, &req->link);
    return PSC_OK;
}

psc_match_queue_t *psc_match_alone(const psc_req_t *req)
{
    psc_match_queue_t *queue = match_queue(req->source, req->context, true);

    if (!queue || match_overlaps(&queue->posted, req->tag, UINT64_MAX) ||
        match_overlaps(&queue->context->posted, req->tag, UINT64_MAX))
        return NULL;
    return queue;
}

/* ---- unexpected messages ---- */

_Static_assert(sizeof(psc_unexp_t) + 16 <= PSC_CREDIT_OVERHEAD,
               "the bound on memory counts the record and its allocation");

psc_unexp_t *psc_unexp_create(psc_conn_t *conn, uint32_t context, int32_t tag,
                              uint64_t len, size_t room)
{
    psc_unexp_t *unexp = malloc(sizeof *unexp + room);

    if (!unexp)
        return NULL;
    *unexp =
        (psc_unexp_t){.conn = conn, .context = context, .tag = tag, .len = len};
    psc_list_init(&unexp->link);
    psc_list_init(&unexp->any_link);
    unexp->data = unexp->room;
    return unexp;
}

/* A message that was kept knows its order of arrival; for one that met a posted
 * receive, the receive's result has it. */
static void match_order(psc_req_t *req, psc_unexp_t *unexp)
{
    if (unexp->order)
        req->head.result.order = unexp->order;
    else
        unexp->order = req->head.result.order;
}

void psc_match_claim(psc_req_t *req, psc_unexp_t *unexp)
{
    psc_req_attach(req, unexp->conn);
    psc_req_stage_set(req, PSC_STAGE_CLAIMED);
    match_order(req, unexp);
    req->unexp = unexp;
    unexp->req = req;
}

void psc_match_unclaim(psc_req_t *req)
{
    if (req->stage != PSC_STAGE_CLAIMED || !req->unexp ||
        req->unexp->req != req)
        return;
    req->unexp->req = NULL;
    req->unexp = NULL;
}

void psc_req_no_buffer(psc_req_t *req, psc_unexp_t *unexp)
{
    match_order(req, unexp);
    req->unexp = unexp;
    psc_req_attach(req, unexp->conn);
    psc_conn_sign(unexp->conn, &req->head.result);
    req->head.result.tag = unexp->tag;
    req->head.result.nbytes = unexp->len;
    psc_req_matched(req);
}

void psc_unexp_free(psc_unexp_t *unexp)
{
    psc_match_take(unexp);
    unexp->conn->worker->room.kept -= unexp->kept;
    if (unexp->owed)
        psc_credit_return(unexp->conn, unexp->owed);
    if (unexp->desc) {
        psc_iface_slot_t *slot = unexp->lane->slot;

        slot->ops->desc_release(slot->iface, unexp->desc);
        unexp->lane->held = false;
    }
    free(unexp);
}

/* ---- ends ---- */

void psc_match_conn_failed(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link) {
        psc_list_for_each(item, &queue->unexpected, psc_unexp_t, link) {
            if (item->rts || item->arriving)
                psc_unexp_free(item);
        }
    }
}

void psc_match_conn_destroy(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link) {
        psc_list_for_each(item, &queue->unexpected, psc_unexp_t, link)
            psc_unexp_free(item);
        psc_list_remove(&queue->link);
        free(queue);
    }
}

void psc_match_worker_destroy(psc_worker_t *worker)
{
    for (int i = 0; i < PSC_CONTEXT_BUCKETS; i++) {
        psc_list_for_each(context, &worker->matching.contexts[i], psc_context_t,
                          link) {
            psc_list_remove(&context->link);
            free(context);
        }
    }
}
