/* Runs: plans at work. */
#include "coll.h"

#include <stdlib.h>
#include <string.h>

#include "pscompy/core/conn.h"
#include "pscompy/core/finish.h"
#include "pscompy/core/progress/progress.h"
#include "pscompy/proto/message.h"

/* Bytes that one pass copies and reduces, for all runs together: few while
 * another thread wants the lock. */
#define PASS_BYTES (1u << 20)
#define PASS_BYTES_WANTED (64u << 10)

/* Bits of the tag of a message: the number of its operation. */
#define TAG_MASK ((1u << 30) - 1)

/* ---- queues of steps ---- */

static void queue_push(psc_step_queue_t *queue, uint32_t step)
{
    queue->steps[queue->tail++] = step;
}

static bool queue_empty(const psc_step_queue_t *queue)
{
    return queue->head == queue->tail;
}

/* ---- creation and end ---- */

/* Turn the lists of steps that each step waits for into lists of those that
 * wait for it. */
static void run_find_followers(psc_run_t *run)
{
    const psc_plan_t *plan = run->plan;
    uint32_t *at = run->follower_at;

    for (uint32_t i = 0; i < plan->n_waits; i++)
        at[plan->waits[i] + 1]++;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        at[i + 1] += at[i];
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const psc_step_t *step = &plan->steps[i];

        for (uint32_t k = 0; k < step->n_waits; k++)
            run->followers[at[plan->waits[step->first_wait + k]]++] = i;
    }
    /* each entry is now the end of its list, which is the next one's begin */
    memmove(at + 1, at, plan->n_steps * sizeof *at);
    at[0] = 0;
}

static bool run_allocate(psc_run_t *run)
{
    uint32_t n = run->plan->n_steps;

    run->ready.steps = malloc((2 * n + 1) * sizeof *run->ready.steps);
    run->calls.steps = run->ready.steps ? run->ready.steps + n : NULL;
    run->follower_at = calloc(n + 1, sizeof *run->follower_at);
    run->followers = malloc((run->plan->n_waits + 1) * sizeof *run->followers);
    if (run->plan->scratch &&
        posix_memalign((void **)&run->places[PSC_IN_SCRATCH], 64,
                       run->plan->scratch) != 0)
        return false;
    return run->ready.steps && run->follower_at && run->followers;
}

/* Frees all of a run but its plan. */
static void run_free(psc_run_t *run)
{
    psc_list_remove(&run->link);
    psc_list_remove(&run->ready_link);
    free(run->ready.steps);
    free(run->follower_at);
    free(run->followers);
    free(run->places[PSC_IN_SCRATCH]);
    free(run);
}

static void run_prepare(psc_run_t *run)
{
    run_find_followers(run);
    for (uint32_t i = 0; i < run->plan->n_steps; i++) {
        run->steps[i].run = run;
        run->steps[i].left = run->plan->steps[i].n_waits;
        if (run->steps[i].left == 0)
            queue_push(&run->ready, i);
    }
}

psc_run_t *psc_run_create(psc_group_t *group, psc_plan_t *plan,
                          const psc_coll_args_t *args)
{
    psc_run_t *run =
        calloc(1, sizeof *run + plan->n_steps * sizeof run->steps[0]);

    if (!run)
        return NULL;
    psc_list_init(&run->link);
    psc_list_init(&run->ready_link);
    run->group = group;
    run->plan = plan;
    run->coll = args->coll;
    run->unit = args->size;
    run->places[PSC_IN_SEND] = (uint8_t *)args->send;
    run->places[PSC_IN_RECV] = args->recv;
    run->reduce = args->combine ? NULL : psc_reduction(args->op, args->type);
    run->cost = psc_reduction_slow(args->op, args->type) ? 4 : 1;
    run->combine = args->combine;
    run->arg = args->arg;
    run->n_left = plan->n_steps;
    if (run_allocate(run)) {
        run_prepare(run);
        return run;
    }
    run_free(run);
    return NULL;
}

static void run_drop(psc_run_t *run)
{
    psc_plan_destroy(run->plan);
    run_free(run);
}

/* ---- the group ---- */

void psc_group_free(psc_group_t *group)
{
    psc_list_for_each(run, &group->runs, psc_run_t, link)
        run_drop(run);
    psc_list_remove(&group->link);
    free(group->modules);
    free(group->conns);
    free(group);
}

/* ---- steps end ---- */

static psc_worker_t *run_worker(const psc_run_t *run)
{
    return run->group->worker;
}

static void run_list(psc_run_t *run)
{
    if (!psc_link_listed(&run->ready_link))
        psc_list_push(&run_worker(run)->runs.ready, &run->ready_link);
}

/* The run can go on. The next pass, or the release of the lock, takes it up. */
static void run_wake(psc_run_t *run)
{
    run_list(run);
    atomic_fetch_or(&run_worker(run)->mail, PSC_MAIL_RUNS);
}

/* The pass has no bytes left for the run. A later pass takes it up. */
static void run_pause(psc_run_t *run)
{
    run_list(run);
    run_worker(run)->restless = true;
    psc_wake(run_worker(run), PSC_WAKE_SPENT);
}

static void run_fail(psc_run_t *run, psc_status_t status)
{
    if (run->status == PSC_OK)
        run->status = status;
}

static uint32_t step_number(const psc_run_t *run, const psc_active_step_t *step)
{
    return (uint32_t)(step - run->steps);
}

static void step_end(psc_run_t *run, psc_active_step_t *step)
{
    uint32_t number = step_number(run, step);

    run->n_left--;
    for (uint32_t i = run->follower_at[number];
         i < run->follower_at[number + 1]; i++) {
        if (--run->steps[run->followers[i]].left == 0)
            queue_push(&run->ready, run->followers[i]);
    }
}

/* A message has ended with this result. If it has another length than its
 * receive, the ranks do not do the same. */
static void step_message_ended(psc_run_t *run, psc_active_step_t *step,
                               const psc_result_t *result)
{
    const psc_step_t *plan = &run->plan->steps[step_number(run, step)];
    psc_status_t status = result->status;

    if (plan->kind == PSC_STEP_RECV && status == PSC_OK &&
        result->nbytes != plan->to.len)
        status = PSC_ERR_TRUNCATED;
    if (status == PSC_OK) {
        step_end(run, step);
        return;
    }
    if (run->status == PSC_OK) {
        run->req->head.result.nbytes = result->nbytes;
        run->req->head.result.rank = plan->peer;
    }
    run_fail(run, status);
}

/* The request of a message has ended: psc_bulk_t.on_done. */
static void step_done(psc_req_t *req)
{
    psc_active_step_t *step = req->bulk->payload;
    psc_run_t *run = step->run;

    step->req = NULL;
    run->n_flying--;
    step_message_ended(run, step, &req->head.result);
    run_wake(run);
}

/* ---- steps begin ---- */

/* The message of the step is under way, or has ended already with an error. */
static void step_fly(psc_run_t *run, psc_active_step_t *step,
                     psc_request_t *request)
{
    psc_req_t *req = psc_req_of(request);

    if (request->state == PSC_REQUEST_DONE) {
        step_message_ended(run, step, &request->result);
        psc_req_release(req);
        return;
    }
    step->req = req;
    run->n_flying++;
    req->bulk->payload = step;
    req->bulk->on_done = step_done;
}

/* `result` is valid if the message has ended without a request. */
static void step_began(psc_run_t *run, psc_active_step_t *step,
                       psc_status_t status, psc_request_t *request,
                       psc_result_t *result)
{
    if (status == PSC_INPROGRESS) {
        step_fly(run, step, request);
        return;
    }
    result->status = status;
    step_message_ended(run, step, result);
}

static uint8_t *run_at(const psc_run_t *run, psc_range_t piece)
{
    return run->places[piece.place] + piece.offset;
}

int32_t psc_run_tag(const psc_run_t *run)
{
    return (int32_t)(run->number & TAG_MASK);
}

static void step_send(psc_run_t *run, psc_active_step_t *step,
                      const psc_step_t *plan)
{
    psc_iov_t piece = {run_at(run, plan->from), plan->from.len};
    psc_send_args_t args = {.context = run->group->context,
                            .tag = psc_run_tag(run),
                            .iov = &piece,
                            .n_iov = piece.len > 0};
    psc_result_t sent = {0};
    psc_request_t *request = NULL;
    psc_status_t status =
        psc_send(run->group->conns[plan->peer], &args, 0, &request);

    step_began(run, step, status, request, &sent);
}

/* A receive needs memory for psc_bulk_t, by which the step learns of its
 * end. */
static void step_recv(psc_run_t *run, psc_active_step_t *step,
                      const psc_step_t *plan)
{
    psc_iov_t piece = {run_at(run, plan->to), plan->to.len};
    psc_recv_args_t args = {.source = run->group->conns[plan->peer],
                            .context = run->group->context,
                            .tag = psc_run_tag(run),
                            .iov = &piece,
                            .n_iov = piece.len > 0};
    psc_request_t *request = NULL;
    psc_result_t result = {0};
    psc_status_t status = psc_recv(run_worker(run), &args, &result, &request);

    if (status == PSC_INPROGRESS && request->state != PSC_REQUEST_DONE &&
        !psc_req_extend(psc_req_of(request))) {
        psc_recv_cancel(psc_req_of(request));
        psc_req_release(psc_req_of(request));
        status = PSC_ERR_NO_MEMORY;
    }
    step_began(run, step, status, request, &result);
}

/* Returns how many bytes of `left` to work on, in whole elements, and takes
 * them from what is left of the pass. */
static uint64_t pass_take(uint64_t left, uint64_t unit, uint64_t cost,
                          uint64_t *pass)
{
    uint64_t most = *pass / cost / unit * unit;
    uint64_t now;

    if (most == 0)
        most = unit;
    now = left < most ? left : most;
    *pass -= now * cost < *pass ? now * cost : *pass;
    return now;
}

static bool step_copy(psc_run_t *run, psc_active_step_t *step,
                      const psc_step_t *plan, uint64_t *pass)
{
    uint8_t *to = run_at(run, plan->to), *from = run_at(run, plan->from);
    uint64_t now;

    if (to == from)
        return true;
    now = pass_take(plan->to.len - step->done, 1, 1, pass);
    memcpy(to + step->done, from + step->done, now);
    step->done += now;
    return step->done == plan->to.len;
}

static bool step_reduce(psc_run_t *run, psc_active_step_t *step,
                        const psc_step_t *plan, uint64_t *pass)
{
    uint64_t now =
        pass_take(plan->to.len - step->done, run->unit, run->cost, pass);

    run->reduce(run_at(run, plan->from) + step->done,
                run_at(run, plan->to) + step->done, now / run->unit);
    step->done += now;
    return step->done == plan->to.len;
}

/* Take up the first step that is ready. It leaves the queue unless the pass has
 * no bytes left for the rest of it. */
static void run_step(psc_run_t *run, uint64_t *pass)
{
    uint32_t number = run->ready.steps[run->ready.head];
    psc_active_step_t *step = &run->steps[number];
    const psc_step_t *plan = &run->plan->steps[number];
    bool over = true;

    if (plan->kind == PSC_STEP_COPY)
        over = step_copy(run, step, plan, pass);
    else if (plan->kind == PSC_STEP_REDUCE && run->reduce)
        over = step_reduce(run, step, plan, pass);
    if (!over)
        return;
    run->ready.head++;
    if (plan->kind == PSC_STEP_SEND)
        step_send(run, step, plan);
    else if (plan->kind == PSC_STEP_RECV)
        step_recv(run, step, plan);
    else if (plan->kind == PSC_STEP_COPY || run->reduce)
        step_end(run, step);
    else
        queue_push(&run->calls, number);
}

/* ---- functions of the program ---- */

/* Have the program call the next function, unless a thread is calling one. */
static void run_ask_for_call(psc_run_t *run)
{
    if (!run->calling && !queue_empty(&run->calls) &&
        run->req->head.state == PSC_REQUEST_ACTIVE)
        psc_req_matched(run->req);
}

bool psc_run_take_call(psc_run_t *run, const void **in_p, void **inout_p,
                       uint64_t *n_p)
{
    const psc_step_t *plan;

    if (run->calling || queue_empty(&run->calls))
        return false;
    run->calling = true;
    __atomic_store_n(&run->req->head.state, PSC_REQUEST_ACTIVE,
                     __ATOMIC_RELEASE);
    plan = &run->plan->steps[run->calls.steps[run->calls.head]];
    *in_p = run_at(run, plan->from);
    *inout_p = run_at(run, plan->to);
    *n_p = plan->to.len / run->unit;
    return true;
}

void psc_run_called(psc_run_t *run, psc_status_t status)
{
    run->calling = false;
    if (status == PSC_OK)
        step_end(run, &run->steps[run->calls.steps[run->calls.head]]);
    else
        run_fail(run, status);
    run->calls.head++;
    run_wake(run);
}

/* ---- runs ---- */

/* Withdraw the messages under way, so that no peer reads or writes the buffers
 * of a run that has failed. The run ends when the last of them has. */
static void run_withdraw(psc_run_t *run)
{
    run->withdrawn = true;
    for (uint32_t i = 0; i < run->plan->n_steps; i++) {
        if (run->steps[i].req)
            psc_recv_cancel(run->steps[i].req);
    }
}

static void run_end(psc_run_t *run)
{
    psc_group_t *group = run->group;
    psc_req_t *req = run->req;
    psc_status_t status = run->status;

    run_drop(run);
    if (group->closed && psc_list_empty(&group->runs))
        psc_group_free(group);
    psc_req_finish(req, status);
}

static void run_go_on(psc_run_t *run, uint64_t *pass)
{
    psc_list_remove(&run->ready_link);
    while (run->status == PSC_OK && !queue_empty(&run->ready) && *pass > 0)
        run_step(run, pass);
    if (run->status != PSC_OK && !run->withdrawn)
        run_withdraw(run);
    if (run->status != PSC_OK ? run->n_flying == 0 && !run->calling
                              : run->n_left == 0)
        run_end(run);
    else if (run->status == PSC_OK && !queue_empty(&run->ready))
        run_pause(run);
    else if (run->status == PSC_OK)
        run_ask_for_call(run);
}

void psc_run_begin(psc_run_t *run)
{
    uint64_t pass = PASS_BYTES_WANTED;

    psc_list_push(&run->group->runs, &run->link);
    run_go_on(run, &pass);
}

unsigned psc_runs_advance(psc_worker_t *worker)
{
    uint64_t pass =
        psc_lock_wanted(&worker->lock) ? PASS_BYTES_WANTED : PASS_BYTES;
    unsigned n = 0;
    psc_list_t now;

    psc_list_init(&now);
    while (!psc_list_empty(&worker->runs.ready))
        psc_list_push(&now, psc_list_pop(&worker->runs.ready));
    for (psc_link_t *link; (link = psc_list_pop(&now)); n++) {
        if (pass > 0)
            run_go_on(psc_container_of(link, psc_run_t, ready_link), &pass);
        else
            psc_list_push(&worker->runs.ready, link);
    }
    return n;
}
