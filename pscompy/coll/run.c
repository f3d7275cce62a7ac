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
    free(group->members);
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

void psc_run_wake(psc_run_t *run)
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

void psc_run_step_ended(psc_run_t *run, psc_active_step_t *step)
{
    uint32_t number = (uint32_t)(step - run->steps);

    run->n_left--;
    for (uint32_t i = run->follower_at[number];
         i < run->follower_at[number + 1]; i++) {
        if (--run->steps[run->followers[i]].left == 0)
            queue_push(&run->ready, run->followers[i]);
    }
}

/* ---- steps begin ---- */

uint8_t *psc_run_at(const psc_run_t *run, psc_range_t piece)
{
    return run->places[piece.place] + piece.offset;
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
        queue_push(&run->calls, number);
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

/* ---- errors ---- */

static void run_note(psc_run_t *run, psc_status_t status, int rank,
                     uint64_t nbytes)
{
    run->status = status;
    run->req->head.result.rank = rank;
    run->req->head.result.nbytes = nbytes;
}

void psc_run_fail(psc_run_t *run, psc_status_t status, int rank,
                  uint64_t nbytes)
{
    int origin = nbytes == PSC_COLL_TOLD ? rank : run->group->rank;

    if (run->status != PSC_OK)
        return;
    run_note(run, status, rank, nbytes);
    run->failure = (psc_failure_t){PSC_FAILURE_MARK, origin, status};
}

void psc_run_withdraw(psc_run_t *run, psc_status_t reason, int rank)
{
    if (run->withdrawn)
        return;
    run->withdrawn = true;
    run_note(run, reason, rank, 0);
    psc_run_wake(run);
}

/* Withdraw the messages that no peer has begun to read or to write. */
static void run_recall(psc_run_t *run)
{
    for (uint32_t i = 0; i < run->plan->n_steps; i++) {
        if (run->steps[i].req)
            psc_recv_cancel(run->steps[i].req);
    }
}

/* ---- runs ---- */

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

/* Returns true if nothing is left to do, and no peer uses the run's buffers. A
 * run that was refused waits to learn why. */
static bool run_over(const psc_run_t *run)
{
    if (run->n_flying > 0 || run->calling)
        return false;
    return run->withdrawn || (run->n_left == 0 && !run->refused);
}

static void run_go_on(psc_run_t *run, uint64_t *pass)
{
    psc_list_remove(&run->ready_link);
    do {
        while (!run->withdrawn && !queue_empty(&run->ready) && *pass > 0)
            run_step(run, pass);
        if (run->status != PSC_OK)
            run_skip_calls(run);
    } while (!run->withdrawn && !queue_empty(&run->ready) && *pass > 0);
    if (run->withdrawn)
        run_recall(run);
    if (run_over(run))
        run_end(run);
    else if (!run->withdrawn && !queue_empty(&run->ready))
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
