/* Checks: with psc_group_args_t.check, a run is put behind the run of another
 * plan, by which all ranks exchange what they have called. If they differ, the
 * collective fails on all ranks before it begins. */
#include <stdlib.h>
#include <string.h>

#include "coll.h"
#include "pscompy/core/worker.h"

struct psc_check {
    psc_called_t own;
    psc_called_t all[]; /* of each rank */
};

/* ---- what a rank has called ---- */

static bool is_rooted(psc_coll_t coll)
{
    return coll == PSC_COLL_BCAST || coll == PSC_COLL_REDUCE ||
           coll == PSC_COLL_GATHER || coll == PSC_COLL_SCATTER;
}

/* Returns a hash of the counts of all ranks, which are to be the same on all.
 * An alltoall's are left out, because each rank has its own. */
static uint64_t counts_hash(const psc_coll_args_t *args, int size)
{
    uint64_t hash = 0xcbf29ce484222325u;

    if (!args->counts)
        return 0;
    for (int rank = 0; args->coll != PSC_COLL_ALLTOALL && rank < size; rank++)
        hash = (hash ^ args->counts[rank] * args->size) * 0x100000001b3u;
    return hash | 1;
}

psc_coll_t psc_coll_called(const psc_coll_args_t *args)
{
    return args->instead_of ? (psc_coll_t)(args->instead_of - 1) : args->coll;
}

static psc_called_t called_by(const psc_run_t *run, const psc_coll_args_t *args)
{
    psc_called_t called = {
        .coll = psc_coll_called(args), .root = -1, .op = -1, .type = -1};

    if (is_rooted(args->coll))
        called.root = args->root;
    if (psc_coll_reduces(args->coll) && args->combine)
        called.op = PSC_OP_COUNT;
    else if (psc_coll_reduces((psc_coll_t)called.coll))
        called.op = args->op;
    if (psc_coll_reduces(args->coll) && !args->combine)
        called.type = args->type;
    strncpy(called.algorithm, run->plan->algorithm->name,
            sizeof called.algorithm - 1);
    called.nbytes = args->counts ? 0 : args->count * args->size;
    called.counts = counts_hash(args, run->group->size);
    return called;
}

/* ---- begin ---- */

psc_plan_t *psc_check_plan(psc_group_t *group)
{
    psc_task_t task = {.coll = PSC_COLL_ALLGATHER,
                       .rank = group->rank,
                       .size = group->size,
                       .unit = sizeof(psc_called_t),
                       .count = 1,
                       .commutes = true};

    return psc_plans_take(group, psc_choose(&task, NULL), &task);
}

static psc_run_t *check_run(psc_group_t *group, psc_check_t *check)
{
    psc_coll_args_t args = {.coll = PSC_COLL_ALLGATHER,
                            .send = &check->own,
                            .recv = check->all,
                            .size = sizeof check->own,
                            .count = 1};
    psc_plan_t *plan = psc_check_plan(group);
    psc_run_t *made = plan ? psc_run_create(group, plan, &args) : NULL;

    if (plan && !made)
        psc_plan_destroy(plan);
    return made;
}

psc_run_t *psc_check_create(psc_run_t *run, const psc_coll_args_t *args)
{
    psc_group_t *group = run->group;
    psc_check_t *check =
        calloc(1, sizeof *check + (size_t)group->size * sizeof check->own);
    psc_run_t *made;

    if (!check)
        return NULL;
    check->own = called_by(run, args);
    made = check_run(group, check);
    if (!made) {
        free(check);
        return NULL;
    }
    made->next = run;
    made->check = check;
    made->req = run->req;
    made->number = run->number;
    made->persistent = run->persistent;
    return made;
}

/* ---- end ---- */

/* Returns the first rank that has called something else than rank 0, or -1. */
static int check_odd(const psc_check_t *check, int size)
{
    for (int rank = 1; rank < size; rank++) {
        if (memcmp(&check->all[rank], &check->all[0], sizeof check->own) != 0)
            return rank;
    }
    return -1;
}

static void check_compare(psc_run_t *run)
{
    psc_group_t *group = run->group;
    const psc_called_t *all = run->check->all;
    int odd = check_odd(run->check, group->size);

    if (odd < 0)
        return;
    group->differs[0] = all[0];
    group->differs[1] = all[odd];
    for (int i = 0; i < 2; i++)
        group->differs[i].algorithm[sizeof all->algorithm - 1] = 0;
    psc_run_fail(run, PSC_ERR_INVALID, odd, PSC_COLL_DIFFERS);
}

psc_run_t *psc_check_end(psc_run_t *run)
{
    psc_run_t *next = run->next;

    if (run->status == PSC_OK)
        check_compare(run);
    if (run->status != PSC_OK)
        return NULL;
    run->next = NULL;
    return next;
}

void psc_coll_differs(const psc_group_t *group, psc_called_t called[2])
{
    if (psc_worker_enter(group->worker, 0) != PSC_OK)
        return;
    memcpy(called, group->differs, sizeof group->differs);
    psc_worker_leave(group->worker);
}
