/* Runs: plans at work. advance.c continues them. */
#include "coll.h"

#include <stdlib.h>
#include <string.h>

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
            psc_step_queue_push(&run->ready, i);
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

void psc_run_drop(psc_run_t *run)
{
    psc_plan_destroy(run->plan);
    run_free(run);
}

/* ---- the group ---- */

void psc_group_free(psc_group_t *group)
{
    psc_list_for_each(run, &group->runs, psc_run_t, link)
        psc_run_drop(run);
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
    uint32_t number = (uint32_t)(step - run->steps);

    run->n_left--;
    for (uint32_t i = run->follower_at[number];
         i < run->follower_at[number + 1]; i++) {
        if (--run->steps[run->followers[i]].left == 0)
            psc_step_queue_push(&run->ready, run->followers[i]);
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
