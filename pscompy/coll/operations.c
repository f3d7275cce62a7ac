/* The functions of psc_api_t that start collectives. */
#include <stdlib.h>

#include "coll.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/finish.h"
#include "pscompy/core/worker.h"

/* ---- start ---- */

static psc_status_t coll_check(const psc_group_t *group,
                               const psc_coll_args_t *args)
{
    if ((unsigned)args->coll >= PSC_COLL_COUNT || args->root < 0 ||
        args->root >= group->size || args->size == 0)
        return PSC_ERR_INVALID;
    if (psc_coll_reduces(args->coll) && !args->combine &&
        !psc_reduction(args->op, args->type))
        return PSC_ERR_UNSUPPORTED;
    return PSC_OK;
}

static psc_task_t coll_task(const psc_group_t *group,
                            const psc_coll_args_t *args)
{
    return (psc_task_t){.coll = args->coll,
                        .rank = group->rank,
                        .size = group->size,
                        .root = args->root,
                        .unit = args->size,
                        .count = args->count,
                        .counts = args->counts,
                        .recv_counts = args->recv_counts,
                        .modules = group->modules,
                        .calls = args->combine,
                        .commutes = !args->combine || args->commutes,
                        .in_place = args->send == args->recv};
}

/* Returns PSC_ERR_NO_RESOURCE, and sets group->wanted, if a connection that the
 * plan needs is not known, or has to be opened first. */
static psc_status_t group_usable(psc_group_t *group, const psc_plan_t *plan)
{
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const psc_step_t *step = &plan->steps[i];
        psc_conn_t *conn = group->conns[step->peer];

        if (step->kind != PSC_STEP_SEND && step->kind != PSC_STEP_RECV)
            continue;
        if (!conn || psc_conn_usable(conn) == PSC_ERR_NO_RESOURCE) {
            group->wanted = step->peer;
            return PSC_ERR_NO_RESOURCE;
        }
    }
    return PSC_OK;
}

static psc_status_t coll_usable(psc_group_t *group, const psc_plan_t *plan)
{
    psc_status_t status = group_usable(group, plan);
    psc_plan_t *check;

    if (status != PSC_OK || !group->check)
        return status;
    check = psc_check_plan(group);
    if (!check)
        return PSC_ERR_NO_MEMORY;
    status = group_usable(group, check);
    psc_plan_destroy(check);
    return status;
}

/* Make the run of an operation, and the check before it. The run takes over the
 * plan unless memory is short. Returns the first run of the two, or NULL. */
static psc_run_t *coll_run(psc_group_t *group, const psc_coll_args_t *args,
                           psc_plan_t *plan, psc_req_t *req)
{
    psc_run_t *run = psc_run_create(group, plan, args), *check;

    if (!run)
        return NULL;
    run->req = req;
    run->persistent = args->persistent != NULL;
    run->number = run->persistent ? args->persistent->number : group->next;
    if (!group->check)
        return run;
    check = psc_check_create(run, args);
    if (!check) {
        psc_plan_use(plan); /* it stays the caller's */
        psc_run_drop(run);
    }
    return check;
}

/* Begin a run, which takes over the plan unless an error is returned. */
static psc_status_t coll_begin(psc_group_t *group, const psc_coll_args_t *args,
                               psc_plan_t *plan, psc_request_t **request_p)
{
    psc_req_t *req =
        psc_req_create_bulk(&group->worker->requests, PSC_REQ_COLLECTIVE);
    psc_run_t *run = req ? coll_run(group, args, plan, req) : NULL;

    if (!run) {
        if (req)
            psc_req_recycle(&group->worker->requests, req);
        return PSC_ERR_NO_MEMORY;
    }
    req->head.flags = args->flags & PSC_FLAG_NOTIFY;
    req->head.owner = args->owner;
    req->context = group->context;
    req->head.result =
        (psc_result_t){.rank = -1, .order = psc_coll_called(args)};
    req->bulk->payload = run;
    group->next += !run->persistent;
    req->head.result.tag = psc_run_tag(run);
    req->inside = true;
    psc_run_begin(run);
    *request_p = &req->head;
    if (req->head.state != PSC_REQUEST_DONE) {
        req->inside = false;
        return PSC_INPROGRESS;
    }
    if (req->head.result.status != PSC_OK) {
        req->inside = false;
        psc_req_notify(req);
        return PSC_INPROGRESS;
    }
    *request_p = NULL;
    psc_req_recycle(&group->worker->requests, req);
    return PSC_OK;
}

/* Returns the status for a plan of this algorithm, which may be NULL. */
static psc_status_t coll_planned(const psc_algorithm_t *algorithm,
                                 const psc_plan_t *plan)
{
    if (!algorithm)
        return PSC_ERR_UNSUPPORTED;
    return plan ? PSC_OK : PSC_ERR_NO_MEMORY;
}

static psc_status_t coll_plan(psc_group_t *group, const psc_coll_args_t *args,
                              psc_plan_t **plan_p)
{
    psc_task_t task = coll_task(group, args);
    const psc_algorithm_t *algorithm = psc_choose(&task, args->algorithm);

    if (algorithm)
        *plan_p = psc_plans_take(group, algorithm, &task);
    return coll_planned(algorithm, *plan_p);
}

static psc_status_t coll_start(psc_group_t *group, const psc_coll_args_t *args,
                               psc_request_t **request_p)
{
    psc_plan_t *plan = NULL;
    psc_status_t status = PSC_OK;

    if (args->persistent)
        plan = psc_plan_use(args->persistent->plan);
    else
        status = coll_plan(group, args, &plan);
    if (status == PSC_OK && group->lost < 0)
        status = coll_usable(group, plan);
    if (status == PSC_OK)
        status = coll_begin(group, args, plan, request_p);
    if (status < 0 && plan)
        psc_plan_destroy(plan);
    return status;
}

psc_status_t psc_coll_start(psc_group_t *group, const psc_coll_args_t *args,
                            psc_request_t **request_p)
{
    psc_status_t status = coll_check(group, args);

    if (status != PSC_OK)
        return status;
    status = psc_worker_enter(group->worker, args->flags);
    if (status != PSC_OK)
        return status;
    group->wanted = -1;
    status = group->ended ? PSC_ERR_CLOSED : coll_start(group, args, request_p);
    return psc_worker_left(group->worker, status);
}

psc_status_t psc_coll_explain(const psc_group_t *group,
                              const psc_coll_args_t *args, char *text,
                              size_t room)
{
    psc_task_t task = coll_task(group, args);
    const psc_algorithm_t *algorithm = psc_choose(&task, args->algorithm);

    if (!algorithm)
        return PSC_ERR_UNSUPPORTED;
    psc_choice_explain(algorithm, &task, args->algorithm, text, room);
    return PSC_OK;
}

psc_status_t psc_coll_combine(const psc_coll_args_t *args, const void *in,
                              void *inout)
{
    psc_reduce_t reduce;

    if (args->combine)
        return args->combine(in, inout, args->count, args->arg);
    reduce = psc_reduction(args->op, args->type);
    if (!reduce)
        return PSC_ERR_UNSUPPORTED;
    reduce(in, inout, args->count);
    return PSC_OK;
}

/* ---- persistent operations ---- */

/* The plan is not one of those that the group keeps, which the lock guards. */
psc_status_t psc_coll_init(psc_group_t *group, const psc_coll_args_t *args,
                           psc_persistent_t **persistent_p)
{
    psc_task_t task = coll_task(group, args);
    const psc_algorithm_t *algorithm = psc_choose(&task, args->algorithm);
    psc_status_t status = coll_check(group, args);
    psc_persistent_t *made;

    if (status != PSC_OK)
        return status;
    made = malloc(sizeof *made);
    if (!made)
        return PSC_ERR_NO_MEMORY;
    made->plan = algorithm ? psc_plan_make(algorithm, &task) : NULL;
    status = coll_planned(algorithm, made->plan);
    if (status != PSC_OK) {
        free(made);
        return status;
    }
    made->number = group->next_persistent++;
    *persistent_p = made;
    return PSC_OK;
}

void psc_coll_free(psc_persistent_t *persistent)
{
    psc_plan_destroy(persistent->plan);
    free(persistent);
}

/* ---- functions of the program ---- */

psc_status_t psc_coll_call(psc_request_t *request)
{
    psc_req_t *req = psc_req_of(request);
    psc_worker_t *worker = psc_req_worker(req);
    psc_status_t status = psc_worker_enter(worker, 0), called;
    psc_run_t *run;
    const void *in;
    void *inout;
    uint64_t n;

    if (status != PSC_OK)
        return status;
    run = req->bulk->payload;
    if (request->state != PSC_REQUEST_MATCHED ||
        !psc_run_take_call(run, &in, &inout, &n))
        return psc_worker_left(worker, PSC_ERR_INVALID);
    psc_worker_leave(worker);
    called = run->combine(in, inout, n, run->arg);
    status = psc_worker_enter(worker, 0);
    if (status != PSC_OK)
        return status;
    psc_run_called(run, called);
    return psc_worker_left(worker, PSC_OK);
}
