/* The continuation of runs: steps begin, pass by pass, and runs end. */
#include "coll.h"

#include <string.h>

#include "pscompy/core/finish.h"
#include "pscompy/core/progress/progress.h"
#include "pscompy/proto/message.h"

/* Bytes that one pass copies and reduces, for all runs together: few while
 * another thread wants the lock. */
#define PASS_BYTES (1u << 20)
#define PASS_BYTES_WANTED (64u << 10)

static bool queue_empty(const psc_step_queue_t *queue)
{
    return queue->head == queue->tail;
}

/* ---- steps ---- */

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
    uint8_t *to = psc_run_at(run, plan->to),
            *from = psc_run_at(run, plan->from);
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

    run->reduce(psc_run_at(run, plan->from) + step->done,
                psc_run_at(run, plan->to) + step->done, now / run->unit);
    step->done += now;
    return step->done == plan->to.len;
}

/* Copy or reduce. Returns false if the pass has no bytes left for the rest. */
static bool run_step_local(psc_run_t *run, uint32_t number, uint64_t *pass)
{
    psc_active_step_t *step = &run->steps[number];
    const psc_step_t *plan = &run->plan->steps[number];

    if (run->status != PSC_OK) {
        psc_run_step_ended(run, step);
    } else if (plan->kind == PSC_STEP_REDUCE && !run->reduce) {
        psc_step_queue_push(&run->calls, number);
    } else {
        if (!(plan->kind == PSC_STEP_COPY ? step_copy
                                          : step_reduce)(run, step, plan, pass))
            return false;
        psc_run_step_ended(run, step);
    }
    return true;
}

/* Take up the first step that is ready. It leaves the queue unless the pass has
 * no bytes left for the rest of it. */
static void run_step(psc_run_t *run, uint64_t *pass)
{
    uint32_t number = run->ready.steps[run->ready.head++];
    psc_active_step_t *step = &run->steps[number];
    const psc_step_t *plan = &run->plan->steps[number];

    if (plan->kind == PSC_STEP_SEND)
        psc_step_send(run, step, plan);
    else if (plan->kind == PSC_STEP_RECV)
        psc_step_recv(run, step, plan);
    else if (!run_step_local(run, number, pass))
        run->ready.head--;
}

/* The pass has no bytes left for the run. A later pass takes it up. */
static void run_pause(psc_run_t *run)
{
    psc_worker_t *worker = run->group->worker;

    psc_run_list(run);
    worker->restless = true;
    psc_wake(worker, PSC_WAKE_SPENT);
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
    *in_p = psc_run_at(run, plan->from);
    *inout_p = psc_run_at(run, plan->to);
    *n_p = plan->to.len / run->unit;
    return true;
}

void psc_run_called(psc_run_t *run, psc_status_t status)
{
    run->calling = false;
    if (status != PSC_OK)
        psc_run_fail(run, status, run->group->rank, 0);
    psc_run_step_ended(run, &run->steps[run->calls.steps[run->calls.head++]]);
    psc_run_wake(run);
}

/* After an error the functions are not called any more. */
static void run_skip_calls(psc_run_t *run)
{
    while (!run->calling && !queue_empty(&run->calls))
        psc_run_step_ended(run,
                           &run->steps[run->calls.steps[run->calls.head++]]);
}

/* ---- ends ---- */

/* Withdraw the messages that no peer has begun to read or to write. */
static void run_recall(psc_run_t *run)
{
    for (uint32_t i = 0; i < run->plan->n_steps; i++) {
        if (run->steps[i].req)
            psc_recv_cancel(run->steps[i].req);
    }
}

static void run_end(psc_run_t *run)
{
    psc_group_t *group = run->group;
    psc_req_t *req = run->req;
    psc_run_t *next = run->check ? psc_check_end(run) : NULL;
    psc_status_t status = run->status;

    psc_run_drop(run);
    if (next) {
        req->bulk->payload = next;
        psc_run_begin(next);
        return;
    }
    if (group->closed && psc_list_empty(&group->runs))
        psc_group_free(group);
    psc_req_finish(req, status);
}

/* Returns true if nothing is left to do, and no peer uses the run's buffers. A
 * run that has halted waits until it is withdrawn. */
static bool run_over(const psc_run_t *run)
{
    if (run->n_flying > 0 || run->calling)
        return false;
    return run->withdrawn || (run->n_left == 0 && !run->halted);
}

/* Take up the steps that are ready, as far as the pass has bytes. */
static void run_take_steps(psc_run_t *run, uint64_t *pass)
{
    while (!run->withdrawn && !run->halted && !queue_empty(&run->ready) &&
           *pass > 0) {
        run_step(run, pass);
        if (run->status != PSC_OK)
            run_skip_calls(run);
    }
}

static void run_go_on(psc_run_t *run, uint64_t *pass)
{
    psc_list_remove(&run->ready_link);
    if (run->status != PSC_OK)
        run_skip_calls(run);
    run_take_steps(run, pass);
    if (run->withdrawn)
        run_recall(run);
    if (run_over(run))
        run_end(run);
    else if (!run->withdrawn && !run->halted && !queue_empty(&run->ready))
        run_pause(run);
    else if (run->status == PSC_OK)
        run_ask_for_call(run);
}

void psc_run_begin(psc_run_t *run)
{
    uint64_t pass = PASS_BYTES_WANTED;

    psc_list_push(&run->group->runs, &run->link);
    if (run->group->lost >= 0)
        psc_run_withdraw(run, run->group->reason, run->group->lost);
    run_go_on(run, &pass);
}

unsigned psc_runs_advance(psc_worker_t *worker)
{
    uint64_t pass =
        psc_lock_wanted(&worker->lock) ? PASS_BYTES_WANTED : PASS_BYTES;
    unsigned n = 0;
    psc_list_t now;

    if (worker->runs.news)
        psc_loss_spread(worker);
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
