#include "match.h"

#include "../core/finish.h"
#include "../core/memory/access.h"
#include "../core/request.h"
#include "tag_post.h"
#include "tuple.h"

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

/* Returns the earliest receive that fits the tag and is not advertised to the
 * peer. */
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
    return match_earlier(match_hidden(conn, queue, queue->context->id, tag),
                         match_request(&queue->advertised, tag));
}

/* Returns the list of a receive that is not advertised. queue: the match queue
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

/* As match_remove, also for a receive that is advertised. */
static void match_remove_any(psc_match_queue_t *queue, psc_req_t *req)
{
    match_remove(req->stage == PSC_STAGE_ADVERTISED ? &queue->advertised
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

/* Call when a receive has left the queue, or when the connection is up.
 * Advertise the posted receives, in their order, up to the first that may not
 * be advertised. */
static void match_advertise(psc_match_queue_t *queue)
{
    psc_req_t *req;

    while ((req = match_request(&queue->lists.posted, PSC_ANY_TAG)) &&
           psc_tuple_may(req) && !psc_tuple_pauses(req) &&
           match_first_of_all(queue, req) && psc_tuple_advertise(req)) {
        match_dequeue(&queue->lists.posted, req);
        psc_req_set_listed(req, true);
        psc_match_list_insert(&queue->advertised, &req->link);
    }
}

/* A receive has left the queue. Post the receives that it has kept from being
 * posted to the fabric, up to the first that may still not be posted. Post none
 * while messages that arrived before the lane was installed are still to be
 * matched, because the fabric does not know these messages. */
static void match_hand_over(psc_conn_t *conn, psc_match_queue_t *queue)
{
    psc_req_t *req;

    if (conn->tuple)
        match_advertise(queue);
    if (!conn->tagging.on || conn->state != PSC_CONN_UP ||
        !psc_list_empty(&psc_conn_main_lane(conn)->early))
        return;
    while ((req = match_request(&queue->lists.posted, PSC_ANY_TAG))) {
        if (!psc_tag_may(req) || !match_first_of_all(queue, req) ||
            !psc_tag_post(req))
            return;
        match_dequeue(&queue->lists.posted, req);
        psc_req_stage_set(req, PSC_STAGE_TAGGED);
        psc_list_push(&queue->tagged, &req->link);
    }
}

/* psc_match_arrival for a queue with advertised receives. Not inlined, so that
 * the fast path saves no registers. */
static __attribute__((noinline)) psc_req_t *
match_arrival_among(psc_conn_t *conn, psc_match_queue_t *queue, int32_t tag)
{
    psc_req_t *req = match_first(conn, queue, tag);

    if (!req)
        return NULL;
    /* a receive that cannot be withdrawn was claimed by the peer, although the
     * peer had sent this message before */
    if (req->stage == PSC_STAGE_ADVERTISED && !psc_tuple_conceal(req))
        return PSC_MATCH_REFUSED;
    req->head.result.order = ++conn->worker->matching.clock;
    match_remove_any(queue, req);
    if (!psc_list_empty(&queue->lists.posted.all))
        match_hand_over(conn, queue);
    return req;
}

psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t id, int32_t tag)
{
    psc_match_queue_t *queue = psc_match_queue(conn, id, false);
    psc_req_t *req;

    if (queue && __builtin_expect(!psc_list_empty(&queue->advertised.all), 0))
        return match_arrival_among(conn, queue, tag);
    req = match_hidden(conn, queue, id, tag);
    if (!req)
        return NULL;
    req->head.result.order = ++conn->worker->matching.clock;
    match_remove(match_posted(queue, req), req);
    if (queue && !psc_list_empty(&queue->lists.posted.all))
        match_hand_over(conn, queue);
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
        match_hand_over(psc_req_source(req),
                        psc_container_of(lists, psc_match_queue_t, lists));
}

/* ---- receives that the peer may take ---- */

bool psc_match_advertise(psc_req_t *req)
{
    psc_match_queue_t *queue;

    if (!psc_tuple_may(req))
        return false;
    queue = psc_tuple_pauses(req) ? NULL : psc_match_alone(req);
    if (!queue || !psc_tuple_advertise(req)) {
        psc_count(psc_req_source(req), PSC_COUNTER_tuple_hidden, 1);
        return false;
    }
    req->head.result.order = ++psc_req_worker(req)->matching.clock;
    match_enqueue(&queue->advertised, req);
    return true;
}

/* Take a receive that the peer has claimed out of its queue; the record of the
 * claim has arrived or will arrive. */
static void match_lose(psc_match_queue_t *queue, psc_req_t *req)
{
    match_dequeue(&queue->advertised, req);
    psc_tuple_detach(req);
}

void psc_match_taken(psc_exposed_t *advert, uint64_t bits, uint64_t len)
{
    psc_req_t *req = psc_tuple_req(advert);
    psc_match_queue_t *queue;

    if (req->stage == PSC_STAGE_ADVERTISED) {
        queue = psc_match_queue(psc_req_source(req), req->context, false);
        match_lose(queue, req);
        if (!psc_list_empty(&queue->lists.posted.all))
            match_advertise(queue);
    }
    psc_tuple_taken(req, bits, len);
}

psc_status_t psc_match_conceal(psc_req_t *req)
{
    psc_match_queue_t *queue =
        psc_match_queue(psc_req_source(req), req->context, false);
    psc_status_t status = psc_tuple_withdraw(req);

    if (status == PSC_OK)
        match_dequeue(&queue->advertised, req);
    else if (status == PSC_INPROGRESS)
        match_lose(queue, req);
    if (status >= 0 && !psc_list_empty(&queue->lists.posted.all))
        match_advertise(queue);
    return status;
}

void psc_match_advertise_all(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link)
        match_advertise(queue);
}

static void match_end_advertised(psc_match_queue_t *queue, psc_status_t status)
{
    psc_req_t *req;

    while ((req = match_request(&queue->advertised, PSC_ANY_TAG))) {
        if (psc_tuple_withdraw(req) == PSC_OK) {
            match_dequeue(&queue->advertised, req);
            psc_req_finish(req, status);
        } else {
            match_lose(queue, req);
            psc_req_fail(req, status);
        }
    }
}

/* ---- messages that are put back ---- */

/* Returns the receive for a message that was put back. Exposed receives that
 * the peer has claimed meanwhile leave the queue. A receive for which the peer
 * has to be asked leaves the queue, too. */
static psc_req_t *match_first_left(const psc_unexp_t *unexp,
                                   psc_match_queue_t *queue)
{
    psc_req_t *req;

    while ((req = match_first(unexp->conn, queue, unexp->tag)) &&
           req->stage == PSC_STAGE_ADVERTISED) {
        psc_status_t status = psc_tuple_withdraw(req);

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

    psc_list_for_each(tagged, &queue->tagged, psc_req_t, link) {
        if ((tagged->head.result.tag == unexp->tag ||
             tagged->head.result.tag == PSC_ANY_TAG) &&
            match_earlier(req, tagged) == tagged && psc_tag_recall(tagged)) {
            psc_req_set_unexp(tagged, NULL);
            return tagged;
        }
    }
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

psc_status_t psc_match_put_back(psc_unexp_t *unexp)
{
    psc_match_queue_t *queue =
        psc_match_queue(unexp->conn, unexp->context, true);

    if (!queue)
        return PSC_ERR_NO_MEMORY;
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
    else
        psc_unexp_free(unexp);
    return status;
}

/* ---- receives ---- */

psc_status_t psc_match_post(psc_req_t *req, psc_match_lists_t *lists)
{
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

psc_match_queue_t *psc_match_alone(const psc_req_t *req)
{
    psc_match_queue_t *queue =
        psc_match_queue(psc_req_source(req), req->context, true);

    if (!queue ||
        match_overlaps(&queue->lists.posted, req->head.result.tag,
                       UINT64_MAX) ||
        match_overlaps(&queue->context->lists.posted, req->head.result.tag,
                       UINT64_MAX))
        return NULL;
    return queue;
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
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link) {
        match_end_all(&queue->lists.posted, status);
        match_end_all(&queue->lists.probes, status);
        match_end_advertised(queue, status);
    }
}

void psc_match_conn_destroy(psc_conn_t *conn)
{
    psc_list_for_each(queue, &conn->queues, psc_match_queue_t, link) {
        psc_list_for_each(item, &queue->lists.unexpected.all, psc_unexp_t, link)
            psc_unexp_free(item);
        psc_match_queue_free(queue);
    }
}
