#include "match.h"

#include "../core/finish.h"
#include "../core/memory/memory.h"
#include "../core/request.h"
#include "protocol.h"

static inline void match_dequeue(psc_match_list_t *list, psc_req_t *req)
{
    psc_match_list_remove(list, &req->link);
    psc_req_set_listed(req, false);
    psc_req_set_conn(req, NULL);
}

static inline void match_enqueue(psc_match_list_t *list, psc_req_t *req)
{
    psc_req_set_listed(req, true);
    psc_match_list_push(list, &req->link);
}

/* ---- arriving messages ---- */

/* Returns the earliest of the receives or probes in `requests` that fits `tag`,
 * or NULL. Mostly that is the first one. */
static inline psc_req_t *match_request(psc_match_list_t *requests, int32_t tag)
{
    psc_req_t *first = psc_container_of(requests->all.next, psc_req_t, link);
    psc_link_t *link;

    if (psc_list_empty(&requests->all))
        return NULL;
    if (first->head.result.tag == tag)
        return first;
    link = psc_match_list_search(requests, tag);
    return link ? psc_container_of(link, psc_req_t, link) : NULL;
}

static psc_req_t *match_earlier(psc_req_t *a, psc_req_t *b)
{
    if (!a || !b)
        return a ? a : b;
    return a->head.result.order < b->head.result.order ? a : b;
}

/* Returns the earliest hidden receive that fits the tag: one that is not handed
 * out. */
static inline psc_req_t *match_hidden(psc_conn_t *conn,
                                      psc_match_queue_t *queue, uint32_t id,
                                      int32_t tag)
{
    psc_context_t *context =
        queue ? queue->context : psc_match_context(conn->worker, id, false);
    psc_req_t *req = queue ? match_request(&queue->lists.posted, tag) : NULL;

    if (context && !psc_list_empty(&context->lists.posted.all))
        req = match_earlier(req, match_request(&context->lists.posted, tag));
    return req;
}

static psc_req_t *match_first(psc_conn_t *conn, psc_match_queue_t *queue,
                              int32_t tag)
{
    return match_earlier(match_hidden(conn, queue, queue->entry.number, tag),
                         match_request(&queue->handed, tag));
}

/* Returns the list of a receive that is not handed out. queue: the match queue
 * of the message that the receive has matched. */
static inline psc_match_list_t *match_posted(psc_match_queue_t *queue,
                                             const psc_req_t *req)
{
    if (psc_req_source(req))
        return &queue->lists.posted;
    return &psc_match_lists(psc_req_worker(req), NULL, req->context, false)
                ->posted;
}

/* Take a receive that has matched a message out of its list. */
static inline void match_remove(psc_match_list_t *list, psc_req_t *req)
{
    match_dequeue(list, req);
    psc_req_set_unexp(req, NULL);
}

/* As match_remove, also for a receive that is handed out. */
static void match_remove_any(psc_match_queue_t *queue, psc_req_t *req)
{
    match_remove(req->stage == PSC_STAGE_HANDED ? &queue->handed
                                                : match_posted(queue, req),
                 req);
}

/* Returns true if a receive in `posted`, posted before `order`, could take a
 * message with this tag. */
static bool match_overlaps(psc_match_list_t *posted, int32_t tag,
                           uint64_t order)
{
    psc_req_t *req = match_request(posted, tag);

    return req && req->head.result.order < order;
}

static bool match_first_of_all(psc_match_queue_t *queue, const psc_req_t *req)
{
    return !match_overlaps(&queue->context->lists.posted, req->head.result.tag,
                           req->head.result.order);
}

/* Call when a receive has left the queue, or when the connection is up: hand
 * out the posted receives, in their order, up to the first that may not be. */
static void match_hand_out(psc_conn_t *conn, psc_match_queue_t *queue)
{
    const psc_proto_t *proto = conn->hands_out;
    psc_req_t *req;

    while (proto && (req = match_request(&queue->lists.posted, PSC_ANY_TAG)) &&
           proto->takes(req) && match_first_of_all(queue, req) &&
           proto->offer(req)) {
        match_dequeue(&queue->lists.posted, req);
        psc_req_set_listed(req, true);
        psc_match_list_insert(&queue->handed, &req->link);
        psc_req_stage_set(req, PSC_STAGE_HANDED);
    }
}

/* psc_match_arrival for a queue with receives that are handed out. Not inlined,
 * so that the fast path saves no registers. */
static __attribute__((noinline)) psc_req_t *
match_arrival_among(psc_conn_t *conn, psc_match_queue_t *queue, int32_t tag)
{
    const psc_proto_t *proto = conn->hands_out;
    psc_req_t *req = proto->yield
                         ? match_first(conn, queue, tag)
                         : match_hidden(conn, queue, queue->entry.number, tag);

    if (!req)
        return NULL;
    if (req->stage == PSC_STAGE_HANDED && !proto->yield(req))
        return PSC_MATCH_REFUSED;
    req->head.result.order = ++conn->worker->matching.clock;
    match_remove_any(queue, req);
    if (!psc_list_empty(&queue->lists.posted.all))
        match_hand_out(conn, queue);
    return req;
}

psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t id, int32_t tag)
{
    psc_match_queue_t *queue = psc_match_queue(conn, id, false);
    psc_req_t *req;

    if (queue && __builtin_expect(!psc_list_empty(&queue->handed.all), 0))
        return match_arrival_among(conn, queue, tag);
    req = match_hidden(conn, queue, id, tag);
    if (!req)
        return NULL;
    req->head.result.order = ++conn->worker->matching.clock;
    match_remove(match_posted(queue, req), req);
    if (queue && !psc_list_empty(&queue->lists.posted.all))
        match_hand_out(conn, queue);
    return req;
}

void psc_match_leave(psc_req_t *req)
{
    psc_match_lists_t *lists = psc_match_lists(
        psc_req_worker(req), psc_req_source(req), req->context, false);

    if (req->kind == PSC_REQ_PROBE) {
        match_dequeue(&lists->probes, req);
        return;
    }
    match_dequeue(&lists->posted, req);
    if (psc_req_source(req) && !psc_list_empty(&lists->posted.all))
        match_hand_out(psc_req_source(req),
                       psc_container_of(lists, psc_match_queue_t, lists));
}

/* ---- receives that are handed out ---- */

/* Returns the queue of a receive if no receive that waits only in match.c could
 * get the same message. Returns NULL if there is such a receive, if its number
 * is closed, or if memory is short. */
static psc_match_queue_t *match_alone(const psc_req_t *req)
{
    psc_match_queue_t *queue =
        psc_match_closed(psc_req_worker(req), req->context)
            ? NULL
            : psc_match_queue(psc_req_source(req), req->context, true);

    if (!queue ||
        match_overlaps(&queue->lists.posted, req->head.result.tag,
                       UINT64_MAX) ||
        match_overlaps(&queue->context->lists.posted, req->head.result.tag,
                       UINT64_MAX))
        return NULL;
    return queue;
}

bool psc_match_hand_out(psc_req_t *req)
{
    const psc_proto_t *proto = psc_req_source(req)->hands_out;
    psc_match_queue_t *queue;

    if (!proto || !proto->takes(req))
        return false;
    queue = match_alone(req);
    if (!queue || !proto->offer(req)) {
        psc_count(psc_req_source(req), proto->kept, 1);
        return false;
    }
    req->head.result.order = ++psc_req_worker(req)->matching.clock;
    match_enqueue(&queue->handed, req);
    psc_req_stage_set(req, PSC_STAGE_HANDED);
    return true;
}

/* Take a receive out of its queue that its protocol keeps, because a message
 * has met it, or because the peer is asked. */
static void match_lose(psc_match_queue_t *queue, psc_req_t *req)
{
    const psc_proto_t *proto = psc_req_source(req)->hands_out;

    match_dequeue(&queue->handed, req);
    proto->lost(req);
}

static psc_match_queue_t *match_queue_of(const psc_req_t *req)
{
    return psc_match_queue(psc_req_source(req), req->context, false);
}

void psc_match_met(psc_req_t *req)
{
    psc_match_queue_t *queue;
    psc_conn_t *conn;

    if (req->stage != PSC_STAGE_HANDED)
        return;
    queue = match_queue_of(req);
    conn = psc_req_source(req);
    match_lose(queue, req);
    if (!psc_list_empty(&queue->lists.posted.all))
        match_hand_out(conn, queue);
    else
        psc_match_queue_settle(queue);
}

psc_status_t psc_match_recall(psc_req_t *req)
{
    psc_match_queue_t *queue = match_queue_of(req);
    psc_conn_t *conn = psc_req_source(req);
    psc_status_t status = conn->hands_out->recall(req);

    if (status == PSC_OK)
        match_dequeue(&queue->handed, req);
    else if (status == PSC_INPROGRESS)
        match_lose(queue, req);
    if (status >= 0 && !psc_list_empty(&queue->lists.posted.all))
        match_hand_out(conn, queue);
    return status;
}

void psc_match_hand_out_all(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues->all, psc_match_queue_t, entry.link)
        match_hand_out(conn, queue);
}

static void match_end_handed(psc_match_queue_t *queue, psc_status_t status)
{
    psc_req_t *req;

    while ((req = match_request(&queue->handed, PSC_ANY_TAG))) {
        if (psc_req_source(req)->hands_out->recall(req) == PSC_OK) {
            match_dequeue(&queue->handed, req);
            psc_req_finish(req, status);
        } else {
            match_lose(queue, req);
            psc_req_fail(req, status);
        }
    }
}

/* ---- messages that are put back ---- */

/* Returns the receive for a message that was put back. Receives that were
 * handed out, and that a message has met meanwhile, leave the queue. A receive
 * for which the peer has to be asked leaves the queue, too. */
static psc_req_t *match_first_left(const psc_unexp_t *unexp,
                                   psc_match_queue_t *queue)
{
    psc_req_t *req;

    while ((req = match_first(unexp->conn, queue, unexp->tag)) &&
           req->stage == PSC_STAGE_HANDED) {
        psc_status_t status = unexp->conn->hands_out->recall(req);

        if (status == PSC_OK)
            return req;
        match_lose(queue, req);
        if (status == PSC_INPROGRESS)
            return req;
    }
    return req;
}

psc_req_t *psc_match_return(const psc_unexp_t *unexp)
{
    /* psc_match_put_back has created the queue, if there was none */
    psc_match_queue_t *queue =
        psc_match_queue(unexp->conn, unexp->context, false);
    psc_req_t *req = match_first_left(unexp, queue);

    if (req && req->stage != PSC_STAGE_LANDING)
        match_remove_any(queue, req);
    return req;
}

/* End the probes that the message fits. */
static void match_answer_probes(psc_match_list_t *probes, psc_unexp_t *unexp)
{
    psc_req_t *probe;

    while ((probe = match_request(probes, unexp->tag))) {
        match_dequeue(probes, probe);
        probe->head.result.tag = unexp->tag;
        probe->head.result.nbytes = unexp->len;
        psc_conn_sign(unexp->conn, &probe->head.result);
        psc_req_finish(probe, PSC_OK);
    }
}

/* Drop a message whose number is closed. Returns false if it is to be kept:
 * what is still arriving is dropped when it is complete, and a placeholder when
 * its RTS has arrived (psc_unexp_arrived). */
static bool match_drop_closed(psc_unexp_t *unexp)
{
    return !unexp->arriving && !unexp->promised &&
           psc_match_closed(unexp->conn->worker, unexp->context) &&
           psc_unexp_drop(unexp) == PSC_OK;
}

psc_status_t psc_match_put_back(psc_unexp_t *unexp)
{
    psc_match_queue_t *queue =
        psc_match_queue(unexp->conn, unexp->context, false);

    if (!queue) {
        if (match_drop_closed(unexp))
            return PSC_ERR_CLOSED;
        queue = psc_match_queue(unexp->conn, unexp->context, true);
    }
    if (!queue) {
        psc_unexp_free(unexp);
        return PSC_ERR_NO_MEMORY;
    }
    psc_match_list_insert(&queue->lists.unexpected, &unexp->link);
    psc_match_list_insert(&queue->context->lists.unexpected, &unexp->any_link);
    match_answer_probes(&queue->lists.probes, unexp);
    match_answer_probes(&queue->context->lists.probes, unexp);
    return PSC_OK;
}

psc_status_t psc_match_keep(psc_unexp_t *unexp)
{
    psc_status_t status;

    unexp->order = ++unexp->conn->worker->matching.clock;
    status = psc_match_put_back(unexp);
    if (status == PSC_OK)
        psc_count(unexp->conn, PSC_COUNTER_unexpected, 1);
    return status;
}

/* ---- receives ---- */

psc_status_t psc_match_post(psc_req_t *req, psc_match_lists_t *lists)
{
    if (!lists && psc_match_closed(psc_req_worker(req), req->context))
        return PSC_ERR_CLOSED;
    if (!lists)
        lists = psc_match_lists(psc_req_worker(req), psc_req_source(req),
                                req->context, true);
    if (!lists)
        return PSC_ERR_NO_MEMORY;
    req->head.result.order = ++psc_req_worker(req)->matching.clock;
    psc_req_stage_set(req, PSC_STAGE_POSTED);
    match_enqueue(req->kind == PSC_REQ_PROBE ? &lists->probes : &lists->posted,
                  req);
    return PSC_OK;
}

/* ---- the end of a connection ---- */

static void match_end_all(psc_match_list_t *requests, psc_status_t status)
{
    psc_req_t *req;

    while ((req = match_request(requests, PSC_ANY_TAG))) {
        match_dequeue(requests, req);
        psc_req_finish(req, status);
    }
}

void psc_match_receives_ended(psc_conn_t *conn, psc_status_t status)
{
    psc_list_for_each(queue, &conn->queues->all, psc_match_queue_t,
                      entry.link) {
        match_end_all(&queue->lists.posted, status);
        match_end_all(&queue->lists.probes, status);
        match_end_handed(queue, status);
    }
}

void psc_match_conn_destroy(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues->all, psc_match_queue_t,
                      entry.link) {
        psc_context_t *context = queue->context;

        psc_unexp_free_all(queue);
        psc_match_queue_free(queue);
        psc_match_context_settle(conn->worker, context);
    }
    psc_match_queues_free(conn);
}
