#include "lend.h"

#include <stdlib.h>
#include <string.h>

#include "../core/conn.h"
#include "../core/finish.h"
#include "../core/memory/memory.h"
#include "../core/request.h"
#include "../core/worker.h"
#include "credit.h"
#include "rndv.h"

/* How many segments of one peer may stay mapped while no view uses them. */
#define LEND_MAPS_MAX 16

/* A peer's segment, identified by its key. If map is NULL, the segment cannot
 * be mapped. */
typedef struct lend_map {
    psc_link_t link; /* in the connection's list `maps`, last used first */
    psc_map_t *map;
    size_t key_len;
    uint8_t key[PSC_RKEY_MAX];
} lend_map_t;

/* A view that a consumer holds, and the state behind it. It may outlive its
 * request and its worker. */
typedef struct psc_loan {
    psc_view_t view; /* first: view_free gets a pointer to it */
    /* the next loan in the worker's list memory.returned */
    struct psc_loan *next;
    psc_pool_t *pool;
    psc_map_t *map;
    uint64_t offset;
    /* id of the loan's internal request; psc_req_find finds nothing once that
     * request has ended */
    uint64_t request_id;
    bool kept;
} psc_loan_t;

/* ---- the sender ---- */

static bool lend_possible(psc_req_t *req)
{
    psc_lane_t *lane = psc_conn_main_lane(psc_req_conn(req));
    psc_segment_t *segment;
    uint64_t offset;

    if (req->n_iov != 1 || psc_req_total(req) < PSC_LEND_MIN ||
        !(lane->slot->attr.caps & PSC_CAP_MAP))
        return false;
    segment =
        psc_pool_find(psc_req_worker(req)->memory.pool,
                      psc_req_piece(req)->base, psc_req_total(req), &offset);
    return segment && segment->kind == PSC_SEGMENT_SHARED &&
           psc_segment_mem(segment, lane->slot);
}

static bool lend_may(const psc_req_t *req)
{
    return req->head.flags & PSC_FLAG_LEND;
}

/* A message whose pages cannot be lent becomes an ordinary one. Where the
 * fabric matches, its own protocol announces the message. */
static psc_status_t lend_start(psc_req_t *req)
{
    if (!lend_possible(req)) {
        req->head.flags &= ~PSC_FLAG_LEND;
        psc_count(psc_req_conn(req), PSC_COUNTER_lend_copied, 1);
        return PSC_ERR_UNSUPPORTED;
    }
    if (psc_tag_carries(psc_req_conn(req), req->context))
        return PSC_ERR_UNSUPPORTED;
    return psc_rndv_start(req);
}

static psc_status_t lend_taken_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_taken_t *wire = am->header;
    psc_req_t *req = psc_req_find(&lane->worker->requests, wire->request_id);

    if (!req || req->kind != PSC_REQ_SEND ||
        req->stage != PSC_STAGE_AWAIT_RTR || psc_req_conn(req) != lane->conn ||
        !(req->head.flags & PSC_FLAG_LEND))
        return PSC_ERR_PROTOCOL;
    psc_rndv_rts_answered(lane->conn);
    psc_req_stage_set(req, PSC_STAGE_LENT);
    return PSC_OK;
}

/* ---- the receiver: segments ---- */

static void lend_map_forget(lend_map_t *entry)
{
    psc_list_remove(&entry->link);
    if (entry->map)
        psc_map_drop(entry->map);
    free(entry);
}

static bool lend_map_retired(const psc_map_t *map)
{
    const psc_segment_identity_t *identity =
        (const void *)(map->base + map->len - psc_page_size());

    return __atomic_load_n(&identity->retired, __ATOMIC_ACQUIRE);
}

/* Unmap the segments that the peer has retired, and the least recently used
 * ones. */
static void lend_maps_trim(psc_conn_t *conn)
{
    size_t n = 0;

    psc_list_for_each(entry, &conn->maps, lend_map_t, link) {
        if (++n >= LEND_MAPS_MAX ||
            (entry->map && lend_map_retired(entry->map)))
            lend_map_forget(entry);
    }
}

static lend_map_t *lend_map_new(psc_conn_t *conn, const uint8_t *key,
                                size_t len)
{
    psc_lane_t *lane = psc_conn_main_lane(conn);
    lend_map_t *entry = calloc(1, sizeof *entry);

    if (!entry)
        return NULL;
    lend_maps_trim(conn);
    memcpy(entry->key, key, len);
    entry->key_len = len;
    if (lane->slot->attr.caps & PSC_CAP_MAP &&
        lane->slot->ops->rkey_map(lane->ep, key, len, &entry->map) == PSC_OK)
        psc_count(conn, PSC_COUNTER_segments_mapped, 1);
    psc_list_push_front(&conn->maps, &entry->link);
    return entry;
}

static psc_map_t *lend_map_find(psc_conn_t *conn, const uint8_t *key,
                                size_t len)
{
    psc_list_for_each(entry, &conn->maps, lend_map_t, link) {
        if (entry->key_len != len || memcmp(entry->key, key, len) != 0)
            continue;
        psc_list_remove(&entry->link);
        psc_list_push_front(&conn->maps, &entry->link);
        return entry->map;
    }
    lend_map_t *entry = lend_map_new(conn, key, len);
    return entry ? entry->map : NULL;
}

/* Returns the mapped segment that holds the message. Returns NULL if the
 * message is not lent, if its segment cannot be mapped, or if the message
 * exceeds the segment. */
static psc_map_t *lend_locate(const psc_unexp_t *unexp)
{
    psc_wire_key_t head;
    psc_map_t *map;

    if (!unexp->lent || unexp->keys_len < sizeof head)
        return NULL;
    memcpy(&head, unexp->payload, sizeof head);
    if (head.lane != 0 || head.len > PSC_RKEY_MAX ||
        head.len > unexp->keys_len - sizeof head)
        return NULL;
    map = lend_map_find(unexp->conn, unexp->payload + sizeof head, head.len);
    if (!map || unexp->offset > map->len - psc_page_size() ||
        unexp->len > map->len - psc_page_size() - unexp->offset)
        return NULL;
    return map;
}

/* ---- the receiver: loans ---- */

static void lend_loan_free(psc_loan_t *loan)
{
    psc_map_drop(loan->map);
    psc_pool_drop(loan->pool);
    free(loan);
}

static void lend_loan_done(psc_req_t *req)
{
    (void)req; /* the request is internal: there is no consumer to notify */
}

static psc_loan_t *lend_loan_create(const psc_unexp_t *unexp, psc_map_t *map)
{
    psc_worker_t *worker = unexp->conn->worker;
    psc_loan_t *loan = malloc(sizeof *loan);
    psc_req_t *req =
        loan ? psc_req_create_bulk(&worker->requests, PSC_REQ_LOAN) : NULL;

    if (!req) {
        free(loan);
        return NULL;
    }
    *loan = (psc_loan_t){.view = {map->base + unexp->offset, unexp->len},
                         .pool = worker->memory.pool,
                         .map = map,
                         .offset = unexp->offset,
                         .request_id = psc_req_id(req)};
    psc_map_hold(map);
    psc_pool_hold(worker->memory.pool);
    req->bulk->payload = loan;
    req->bulk->on_done = lend_loan_done;
    req->bulk->remote_id = unexp->send_id;
    psc_req_attach(req, unexp->conn);
    psc_req_stage_set(req, PSC_STAGE_SEND_TAKEN);
    psc_conn_queue(unexp->conn, req);
    return loan;
}

static void lend_keep(psc_conn_t *conn, psc_loan_t *loan)
{
    if (loan->kept)
        return;
    loan->kept = true;
    psc_count(conn, PSC_COUNTER_views_kept, 1);
    if (loan->map->keep(loan->map, loan->offset, loan->view.nbytes) != PSC_OK)
        psc_control_events_log(
            &conn->worker->control_events, 1,
            "a view of a lent message could not be copied when its connection "
            "ended: the sender may change what it shows");
}

psc_status_t psc_lend_view(psc_req_t *req, psc_view_t **view_p)
{
    psc_unexp_t *unexp;
    psc_conn_t *conn;
    psc_map_t *map;
    psc_loan_t *loan;

    if (req->head.state != PSC_REQUEST_MATCHED)
        return PSC_ERR_INVALID;
    unexp = psc_req_unexp(req);
    map = lend_locate(unexp);
    if (!map)
        return PSC_ERR_UNSUPPORTED;
    loan = lend_loan_create(unexp, map);
    if (!loan)
        return PSC_ERR_NO_MEMORY;
    conn = unexp->conn;
    if (conn->state != PSC_CONN_UP)
        lend_keep(conn, loan);
    conn->rts_in--;
    psc_unexp_free(unexp);
    psc_req_set_unexp(req, NULL);
    psc_count(conn, PSC_COUNTER_views_mapped, 1);
    psc_count(conn, PSC_COUNTER_received_messages, 1);
    psc_count(conn, PSC_COUNTER_received_bytes, loan->view.nbytes);
    psc_req_finish(req, PSC_OK);
    *view_p = &loan->view;
    return PSC_OK;
}

static psc_status_t lend_send_taken(psc_req_t *req)
{
    psc_wire_taken_t wire = {.request_id = req->bulk->remote_id};
    psc_status_t status = psc_credit_send(psc_req_conn(req), PSC_WIRE_TAKEN,
                                          &wire, sizeof wire, NULL, 0);

    if (status != PSC_OK)
        return status;
    psc_req_stage_set(req, PSC_STAGE_HELD);
    return PSC_INPROGRESS;
}

/* ---- released views ---- */

/* Pass the loan of a released view to its worker. The pool's lock `gate` keeps
 * the worker from being freed meanwhile. Returns false if the worker has
 * ended. */
static bool lend_give_back(psc_loan_t *loan)
{
    psc_pool_t *pool = loan->pool;
    psc_worker_t *worker;

    psc_lock_acquire(&pool->gate);
    worker = pool->worker;
    if (worker) {
        loan->next = atomic_load(&worker->memory.returned);
        while (!atomic_compare_exchange_weak(&worker->memory.returned,
                                             &loan->next, loan))
            ;
        psc_worker_mail(worker);
    }
    psc_lock_release(&pool->gate);
    return worker;
}

void psc_lend_return(psc_view_t *view)
{
    psc_loan_t *loan = psc_container_of(view, psc_loan_t, view);

    if (atomic_load(&loan->pool->forked))
        return;
    if (!lend_give_back(loan))
        lend_loan_free(loan);
}

/* Returns the internal request of a loan, or NULL if the connection has
 * ended. */
static psc_req_t *lend_loan_request(psc_worker_t *worker, psc_loan_t *loan)
{
    psc_req_t *req = psc_req_find(&worker->requests, loan->request_id);

    return req && req->bulk->payload == loan ? req : NULL;
}

static void lend_settle(psc_worker_t *worker, psc_loan_t *loan)
{
    psc_req_t *req = lend_loan_request(worker, loan);

    if (!req)
        return;
    req->bulk->payload = NULL;
    psc_req_stage_set(req, PSC_STAGE_SEND_FIN);
    psc_conn_queue(psc_req_conn(req), req);
    psc_conn_flush(psc_req_conn(req));
}

static void lend_drain(psc_worker_t *worker)
{
    psc_loan_t *loan = atomic_exchange(&worker->memory.returned, NULL), *next;

    for (; loan; loan = next) {
        next = loan->next;
        lend_settle(worker, loan);
        lend_loan_free(loan);
    }
}

/* ---- the end of a connection or worker ---- */

static void lend_end(psc_req_t *req)
{
    if (req->bulk->payload)
        lend_keep(psc_req_conn(req), req->bulk->payload);
    psc_req_unqueue(req);
    req->bulk->payload = NULL;
    psc_req_finish(req, PSC_OK);
}

static void lend_conn_ended(psc_conn_t *conn)
{
    psc_list_for_each(entry, &conn->maps, lend_map_t, link)
        lend_map_forget(entry);
}

/* Make private copies of all views of the peer's memory. */
static void lend_conn_closing(psc_conn_t *conn)
{
    psc_list_for_each(req, &conn->active, psc_req_t, link) {
        if (req->kind == PSC_REQ_LOAN && req->bulk->payload)
            lend_keep(conn, req->bulk->payload);
    }
    lend_conn_ended(conn);
}

static void lend_worker_destroy(psc_worker_t *worker)
{
    psc_pool_detach(worker->memory.pool);
    lend_drain(worker);
}

/* A lent message that was announced counts as sent; of a synchronous one the
 * peer must have a view. */
static bool lend_ends(psc_req_t *req, psc_status_t status)
{
    bool announced =
        req->stage == PSC_STAGE_AWAIT_RTR && !(req->head.flags & PSC_FLAG_SYNC);
    bool out = req->kind == PSC_REQ_SEND && req->head.flags & PSC_FLAG_LEND &&
               (announced || req->stage == PSC_STAGE_LENT);

    (void)status;
    if (req->kind == PSC_REQ_LOAN)
        lend_end(req);
    else if (out)
        psc_req_fail(req, PSC_OK);
    return out || req->kind == PSC_REQ_LOAN;
}

const psc_proto_t psc_lend = {
    .name = "lend",
    .messages =
        (const psc_proto_message_t[]){
            {PSC_WIRE_TAKEN, sizeof(psc_wire_taken_t), lend_taken_arrived},
            {0}},
    .stages =
        (const psc_proto_stage_t[]){{PSC_STAGE_SEND_TAKEN, lend_send_taken},
                                    {0}},
    .may = lend_may,
    .announces = true,
    .start = lend_start,
    .conn_closing = lend_conn_closing,
    .conn_ended = lend_conn_ended,
    .ends = lend_ends,
    .drain = lend_drain,
    .worker_destroyed = lend_worker_destroy,
};
