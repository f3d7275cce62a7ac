/* The steps of a run that send and receive, and how they end. */
#include "coll.h"

#include <string.h>

#include "pscompy/core/conn.h"
#include "pscompy/core/finish.h"
#include "pscompy/proto/match.h"
#include "pscompy/proto/message.h"

/* Bits of the tag of a message: the number of its operation. */
#define TAG_MASK ((1u << 30) - 1)
/* The numbers of persistent operations have a range of their own. */
#define TAG_PERSISTENT (1u << 30)

int32_t psc_run_tag(const psc_run_t *run)
{
    return (int32_t)((run->number & TAG_MASK) |
                     (run->persistent ? TAG_PERSISTENT : 0));
}

static const psc_step_t *plan_of(const psc_active_step_t *step)
{
    return &step->run->plan->steps[step - step->run->steps];
}

/* ---- failures ---- */

/* The length of a failure in place of a message of `len` bytes. */
static uint64_t failure_length(uint64_t len)
{
    return sizeof(psc_failure_t) + (len < PSC_SHORT_PIECE ? len : 0);
}

/* Returns the memory that the step receives into. */
static uint8_t *received_at(psc_active_step_t *step)
{
    psc_range_t to = plan_of(step)->to;

    return to.len < PSC_SHORT_PIECE ? step->word : psc_run_at(step->run, to);
}

/* Returns true if a message of another length than the step's is a failure,
 * and copies it. */
static bool failure_read(psc_active_step_t *step, uint64_t nbytes,
                         psc_failure_t *failure)
{
    if (nbytes != failure_length(plan_of(step)->to.len))
        return false;
    memcpy(failure, received_at(step), sizeof *failure);
    return failure->mark == PSC_FAILURE_MARK && failure->rank >= 0 &&
           failure->rank < step->run->group->size && failure->status < 0;
}

/* ---- ends ---- */

static void message_arrived(psc_active_step_t *step, uint64_t nbytes)
{
    const psc_step_t *plan = plan_of(step);
    psc_run_t *run = step->run;
    psc_failure_t failure;

    if (failure_read(step, nbytes, &failure))
        psc_run_fail(run, (psc_status_t)failure.status, failure.rank,
                     PSC_COLL_TOLD);
    else if (nbytes != plan->to.len)
        psc_run_fail(run, PSC_ERR_TRUNCATED, plan->peer, nbytes);
    else if (nbytes && nbytes < PSC_SHORT_PIECE)
        memcpy(psc_run_at(run, plan->to), step->word, nbytes);
}

/* A message was not sent or received. If its connection has ended, its rank is
 * lost. Otherwise this rank has closed the communicator; or the peer has, and
 * refused the message (PSC_ERR_CLOSED); or the peer has lost a rank, of which
 * it tells this one (PSC_ERR_PEER_LOST); or there was another error. */
static void message_failed(psc_active_step_t *step, const psc_result_t *result)
{
    psc_run_t *run = step->run;
    psc_group_t *group = run->group;
    int rank = plan_of(step)->peer;
    psc_status_t usable = psc_conn_usable(group->conns[rank]);
    bool ended = usable != PSC_OK && usable != PSC_ERR_NO_RESOURCE;

    if (ended)
        psc_lost_rank_add(group->worker, psc_group_member(group, rank), usable);
    if (psc_match_closed(group->worker, group->context))
        psc_run_withdraw(run, PSC_ERR_CLOSED, -1);
    else if (result->status == PSC_ERR_CLOSED && usable == PSC_OK)
        psc_run_withdraw(run, PSC_ERR_CLOSED, rank);
    else if (ended || result->status == PSC_ERR_PEER_LOST)
        run->halted = true;
    else
        psc_run_fail(run, result->status, rank, result->nbytes);
}

static void message_ended(psc_active_step_t *step, const psc_result_t *result)
{
    if (result->status != PSC_OK && (result->status != PSC_ERR_TRUNCATED ||
                                     plan_of(step)->kind != PSC_STEP_RECV))
        message_failed(step, result);
    else if (plan_of(step)->kind == PSC_STEP_RECV)
        message_arrived(step, result->nbytes);
    psc_run_step_ended(step->run, step);
}

/* The request of a message has ended: psc_bulk_t.on_done. */
static void message_done(psc_req_t *req)
{
    psc_active_step_t *step = req->bulk->payload;

    step->req = NULL;
    step->run->n_flying--;
    message_ended(step, &req->head.result);
    psc_run_wake(step->run);
}

/* ---- begin ---- */

/* The message of the step is under way, or has ended already with an error. */
static void message_flies(psc_active_step_t *step, psc_request_t *request)
{
    psc_req_t *req = psc_req_of(request);

    if (request->state == PSC_REQUEST_DONE) {
        message_ended(step, &request->result);
        psc_req_release(req);
        return;
    }
    step->req = req;
    step->run->n_flying++;
    req->bulk->payload = step;
    req->bulk->on_done = message_done;
}

/* `result` is valid if the message has ended without a request. */
static void message_began(psc_active_step_t *step, psc_status_t status,
                          psc_request_t *request, psc_result_t *result)
{
    if (status == PSC_INPROGRESS) {
        message_flies(step, request);
        return;
    }
    result->status = status;
    message_ended(step, result);
}

/* Returns false, and withdraws the run, if the connection to the peer was freed
 * since the run began. */
static bool peer_known(psc_run_t *run, int peer)
{
    if (!run->group->conns[peer])
        psc_run_withdraw(run, PSC_ERR_CLOSED, peer);
    return run->group->conns[peer];
}

void psc_step_send(psc_run_t *run, psc_active_step_t *step,
                   const psc_step_t *plan)
{
    uint64_t len = plan->from.len;
    psc_iov_t failure[] = {
        {&run->failure, sizeof run->failure},
        {step->word, failure_length(len) - sizeof run->failure}};
    psc_iov_t piece = {psc_run_at(run, plan->from), len};
    psc_send_args_t args = {.context = run->group->context,
                            .tag = psc_run_tag(run),
                            .iov = &piece,
                            .n_iov = len > 0};
    psc_result_t sent = {0};
    psc_request_t *request = NULL;
    psc_status_t status;

    if (!peer_known(run, plan->peer))
        return;
    if (run->status != PSC_OK) {
        memset(step->word, 0, sizeof step->word);
        args.iov = failure;
        args.n_iov = 1 + (failure[1].len > 0);
    }
    status = psc_send(run->group->conns[plan->peer], &args, 0, &request);
    message_began(step, status, request, &sent);
}

/* A receive needs memory for psc_bulk_t, by which the step learns of its
 * end. */
void psc_step_recv(psc_run_t *run, psc_active_step_t *step,
                   const psc_step_t *plan)
{
    uint64_t len = plan->to.len;
    psc_iov_t piece = {received_at(step), len};
    psc_recv_args_t args = {.source = run->group->conns[plan->peer],
                            .context = run->group->context,
                            .tag = psc_run_tag(run),
                            .iov = &piece,
                            .n_iov = 1};
    psc_request_t *request = NULL;
    psc_result_t result = {0};
    psc_status_t status;

    if (!peer_known(run, plan->peer))
        return;
    if (len < PSC_SHORT_PIECE)
        piece.len = failure_length(len);
    status = psc_recv(run->group->worker, &args, &result, &request);
    if (status == PSC_INPROGRESS && request->state != PSC_REQUEST_DONE &&
        !psc_req_extend(psc_req_of(request))) {
        psc_recv_cancel(psc_req_of(request));
        psc_req_release(psc_req_of(request));
        status = PSC_ERR_NO_MEMORY;
    }
    message_began(step, status, request, &result);
}
