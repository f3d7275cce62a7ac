/* psc_worker_items of control.h: describes what is in flight on a worker, for
 * people who look for the cause of a hang. psc_worker_end_receive ends one of
 * the requests that it describes. */
#include "../core/finish.h"
#include "../core/request.h"
#include "../core/worker.h"
#include "match.h"
#include "protocol.h"

/* Returns true if messages that this receive could get wait at their sender
 * (psc_rts_in_full). */
static bool describe_held_back(const psc_req_t *req)
{
    psc_conn_t *source = psc_req_source(req);

    if (source)
        return psc_rts_in_full(source);
    psc_list_for_each(conn, &psc_req_worker(req)->conns, psc_conn_t, link) {
        if (psc_rts_in_full(conn))
            return true;
    }
    return false;
}

/* Returns in words what a posted receive or probe waits for. */
static const char *describe_posted(const psc_req_t *req)
{
    if (describe_held_back(req))
        return "later messages wait at their sender until earlier ones are "
               "received (PSP_RTS_MAX)";
    return req->stage == PSC_STAGE_HANDED
               ? psc_req_source(req)->hands_out->handed
               : "";
}

/* Returns in words what a send waits for of which at most the announcement has
 * left. */
static const char *describe_send(const psc_req_t *req)
{
    bool full = psc_rts_out_full(psc_req_conn(req));

    if (req->stage == PSC_STAGE_SEND)
        return full ? "not sent yet, because the peer must first receive some "
                      "of the earlier messages (PSP_RTS_MAX)"
                    : "not sent yet";
    return full ? "announced; the peer has not received it yet, and later "
                  "messages wait for that (PSP_RTS_MAX)"
                : "announced; the peer has not received it yet";
}

/* Returns in words what a request waits for. */
static const char *describe_state(const psc_req_t *req)
{
    switch ((psc_stage_t)req->stage) {
    case PSC_STAGE_IDLE:
        return "";
    case PSC_STAGE_POSTED:
    case PSC_STAGE_HANDED:
        return describe_posted(req);
    case PSC_STAGE_SEND:
    case PSC_STAGE_SEND_MARK:
    case PSC_STAGE_SEND_LATE:
    case PSC_STAGE_AWAIT_RTR:
    case PSC_STAGE_OFFERED:
        return describe_send(req);
    case PSC_STAGE_LENT:
        return "lent to the peer";
    case PSC_STAGE_ENDING:
        return "failed; its memory is still in use";
    default:
        return "in flight";
    }
}

_Static_assert((int)PSC_ITEM_SEND == (int)PSC_REQ_SEND &&
                   (int)PSC_ITEM_RECV == (int)PSC_REQ_RECV &&
                   (int)PSC_ITEM_PROBE == (int)PSC_REQ_PROBE &&
                   (int)PSC_ITEM_EVENT == (int)PSC_REQ_EVENT &&
                   (int)PSC_ITEM_LOAN == (int)PSC_REQ_LOAN &&
                   (int)PSC_ITEM_COLLECTIVE == (int)PSC_REQ_COLLECTIVE,
               "the kind of a request is that of its item");

static psc_item_t describe_request(const psc_req_t *req)
{
    bool posted =
        req->stage == PSC_STAGE_POSTED || req->stage == PSC_STAGE_HANDED;
    const psc_conn_t *peer = posted ? psc_req_source(req) : psc_req_conn(req);

    return (psc_item_t){.kind = (psc_item_kind_t)req->kind,
                        .request = (uintptr_t)&req->head,
                        .id = psc_req_id(req),
                        .conn = peer ? peer->id : 0,
                        .rank = peer ? peer->rank : -1,
                        .context = req->context,
                        .tag = req->head.result.tag,
                        .nbytes = req->kind == PSC_REQ_COLLECTIVE
                                      ? req->head.result.order
                                      : psc_req_total(req),
                        .awaited = psc_request_awaited(&req->head),
                        .state = describe_state(req)};
}

static psc_item_t describe_message(const psc_unexp_t *unexp)
{
    return (psc_item_t){.kind = PSC_ITEM_MESSAGE,
                        .conn = unexp->conn->id,
                        .rank = unexp->conn->rank,
                        .context = unexp->context,
                        .tag = unexp->tag,
                        .nbytes = unexp->len,
                        .state = unexp->rts        ? "announced"
                                 : unexp->arriving ? "arriving"
                                                   : "arrived"};
}

static uint32_t describe_messages(const psc_list_t *contexts, psc_item_t *items,
                                  uint32_t capacity, uint32_t n)
{
    psc_list_for_each(context, contexts, psc_context_t, entry.link) {
        psc_list_for_each(unexp, &context->lists.unexpected.all, psc_unexp_t,
                          any_link) {
            if (n < capacity)
                items[n] = describe_message(unexp);
            n++;
        }
    }
    return n;
}

uint32_t psc_worker_items(psc_worker_t *worker, psc_item_t *items,
                          uint32_t capacity)
{
    uint32_t n = 0;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    for (uint32_t i = 0; i < psc_requests_count(&worker->requests); i++) {
        const psc_req_t *req = psc_req_at(&worker->requests, i);

        if (!req->in_use || psc_request_state(&req->head) == PSC_REQUEST_DONE)
            continue;
        if (n < capacity)
            items[n] = describe_request(req);
        n++;
    }
    n = describe_messages(&worker->matching.contexts.all, items, capacity, n);
    psc_worker_leave(worker);
    return n;
}

void psc_worker_end_receive(psc_worker_t *worker, uint64_t id, int status)
{
    psc_req_t *req;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    req = psc_req_find(&worker->requests, id);
    if (req && req->stage == PSC_STAGE_POSTED && !psc_req_source(req)) {
        psc_match_leave(req);
        psc_req_finish(req, (psc_status_t)status);
    }
    psc_worker_leave(worker);
}
