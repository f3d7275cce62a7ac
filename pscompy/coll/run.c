/* Runs: plans at work. advance.c continues them. */
#include "coll.h"

#include <stdlib.h>
#include <string.h>

/* ---- creation and end ---- */

/* alignment of scratch memory: that of every element, and of vectors */
#define RUN_ALIGN 64u
/* A run with more scratch memory is freed when it ends. */
#define IDLE_SCRATCH_MAX (64u << 10)

/* Bytes of a run before its scratch memory: the structure, its steps, and two
 * queues of steps. */
static size_t run_bytes(const psc_plan_t *plan)
{
    size_t bytes =
        sizeof(psc_run_t) +
        plan->n_steps * (sizeof(psc_active_step_t) + 2 * sizeof(uint32_t));

    return (bytes + RUN_ALIGN - 1) / RUN_ALIGN * RUN_ALIGN;
}

static psc_run_t *run_allocate(psc_plan_t *plan)
{
    void *memory = plan->idle;

    plan->idle = NULL;
    if (!memory &&
        posix_memalign(&memory, RUN_ALIGN, run_bytes(plan) + plan->scratch))
        return NULL;
    return memory;
}

/* Lay the queues and the scratch memory out behind the steps. */
static void run_lay_out(psc_run_t *run)
{
    uint32_t n = run->plan->n_steps;

    run->ready.steps = (uint32_t *)(void *)&run->steps[n];
    run->calls.steps = run->ready.steps + n;
    run->places[PSC_IN_SCRATCH] = (uint8_t *)run + run_bytes(run->plan);
}

static void run_prepare_steps(psc_run_t *run)
{
    for (uint32_t i = 0; i < run->plan->n_steps; i++) {
        psc_active_step_t *step = &run->steps[i];

        step->run = run;
        step->left = run->plan->steps[i].n_waits;
        step->done = 0;
        step->req = NULL;
        if (step->left == 0)
            psc_step_queue_push(&run->ready, i);
    }
}

psc_run_t *psc_run_create(psc_group_t *group, psc_plan_t *plan,
                          const psc_coll_args_t *args)
{
    psc_run_t *run = run_allocate(plan);

    if (!run)
        return NULL;
    memset(run, 0, sizeof *run);
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
    run_lay_out(run);
    run_prepare_steps(run);
    return run;
}

void psc_run_drop(psc_run_t *run)
{
    psc_plan_t *plan = run->plan;

    psc_list_remove(&run->link);
    psc_list_remove(&run->ready_link);
    if (run->next)
        psc_run_drop(run->next);
    free(run->check);
    if (!plan->idle && plan->users > 1 && plan->scratch <= IDLE_SCRATCH_MAX)
        plan->idle = run;
    else
        free(run);
    psc_plan_destroy(plan);
}

/* ---- the group ---- */

void psc_group_free(psc_group_t *group)
{
    psc_list_for_each(run, &group->runs, psc_run_t, link)
        psc_run_drop(run);
    psc_plans_free(group);
    psc_list_remove(&group->link);
    free(group->modules);
    free(group->members);
    free(group->conns);
    free(group);
}

/* ---- steps ---- */

uint8_t *psc_run_at(const psc_run_t *run, psc_range_t piece)
{
    return run->places[piece.place] + piece.offset;
}

void psc_run_list(psc_run_t *run)
{
    if (!psc_link_listed(&run->ready_link))
        psc_list_push(&run->group->worker->runs.ready, &run->ready_link);
}

void psc_run_wake(psc_run_t *run)
{
    psc_run_list(run);
    atomic_fetch_or(&run->group->worker->mail, PSC_MAIL_RUNS);
}

void psc_run_step_ended(psc_run_t *run, psc_active_step_t *step)
{
    const psc_plan_t *plan = run->plan;
    uint32_t number = (uint32_t)(step - run->steps);

    run->n_left--;
    for (uint32_t i = plan->follower_at[number];
         i < plan->follower_at[number + 1]; i++) {
        if (--run->steps[plan->followers[i]].left == 0)
            psc_step_queue_push(&run->ready, plan->followers[i]);
    }
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
