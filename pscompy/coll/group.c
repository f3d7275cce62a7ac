/* Groups, and the functions of psc_api_t for collectives. */
#include <stdlib.h>
#include <string.h>

#include "coll.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/finish.h"
#include "pscompy/core/upward.h"
#include "pscompy/core/worker.h"

/* ---- what the core calls ---- */

/* A connection is freed: no group may use it any more. */
static void engine_conn_freed(psc_conn_t *conn)
{
    psc_list_for_each(group, &conn->worker->runs.groups, psc_group_t, link) {
        for (int rank = 0; rank < group->size; rank++) {
            if (group->conns[rank] == conn)
                group->conns[rank] = NULL;
        }
    }
}

/* The context of a group is the number that follows that of the program's
 * messages. */
static void engine_context_closed(psc_worker_t *worker, uint32_t number)
{
    psc_list_for_each(group, &worker->runs.groups, psc_group_t, link) {
        if (group->context != number && group->context != number + 1)
            continue;
        group->ended = true;
        psc_list_for_each(run, &group->runs, psc_run_t, link)
            psc_run_withdraw(run, PSC_ERR_CLOSED, -1);
    }
}

static void engine_worker_ends(psc_worker_t *worker)
{
    psc_list_for_each(group, &worker->runs.groups, psc_group_t, link)
        psc_group_free(group);
}

static const psc_engine_t engine = {.advance = psc_runs_advance,
                                    .conn_freed = engine_conn_freed,
                                    .context_closed = engine_context_closed,
                                    .worker_ends = engine_worker_ends};

/* ---- groups ---- */

/* Copy an array of numbers, one for each rank, if there is one. Returns false
 * if memory is short. */
static bool group_copy(int32_t **to, const int32_t *from, int size)
{
    if (!from)
        return true;
    *to = malloc((size_t)size * sizeof *from);
    if (*to)
        memcpy(*to, from, (size_t)size * sizeof *from);
    return *to != NULL;
}

/* Returns NULL if memory is short. */
static psc_group_t *group_allocate(psc_worker_t *worker,
                                   const psc_group_args_t *args)
{
    psc_group_t *group = calloc(1, sizeof *group);

    if (!group)
        return NULL;
    psc_list_init(&group->link);
    psc_list_init(&group->runs);
    group->worker = worker;
    group->context = args->context;
    group->rank = args->rank;
    group->size = args->size;
    group->wanted = group->lost = -1;
    group->conns = calloc((size_t)args->size, sizeof *group->conns);
    if (group->conns &&
        group_copy(&group->modules, args->modules, args->size) &&
        group_copy(&group->members, args->members, args->size))
        return group;
    psc_group_free(group);
    return NULL;
}

static psc_status_t group_begin(psc_group_t *group)
{
    psc_worker_t *worker = group->worker;

    if (!worker->runs.engine && psc_loss_listen(worker) != PSC_OK)
        return PSC_ERR_NO_MEMORY;
    worker->runs.engine = &engine;
    psc_list_push(&worker->runs.groups, &group->link);
    psc_loss_begin(group);
    return PSC_OK;
}

psc_status_t psc_group_create(psc_worker_t *worker,
                              const psc_group_args_t *args,
                              psc_group_t **group_p)
{
    psc_group_t *group = group_allocate(worker, args);
    psc_status_t status =
        group ? psc_worker_enter(worker, 0) : PSC_ERR_NO_MEMORY;

    if (status == PSC_OK)
        status = psc_worker_left(worker, group_begin(group));
    if (status == PSC_OK)
        *group_p = group;
    else if (group)
        psc_group_free(group);
    return status;
}

/* The runs that have not ended end on their own, when nothing of the group is
 * needed any more. */
void psc_group_destroy(psc_group_t *group)
{
    psc_worker_t *worker = group->worker;

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    group->closed = true;
    if (psc_list_empty(&group->runs))
        psc_group_free(group);
    psc_worker_leave(worker);
}

psc_status_t psc_group_connect(psc_group_t *group, int rank, psc_conn_t *conn)
{
    if (rank < 0 || rank >= group->size || conn->worker != group->worker)
        return PSC_ERR_INVALID;
    if (psc_worker_enter(group->worker, 0) != PSC_OK)
        return PSC_ERR_FORKED;
    group->conns[rank] = conn;
    return psc_worker_left(group->worker, PSC_OK);
}

int psc_group_wanted(const psc_group_t *group)
{
    return group->wanted;
}

/* ---- start ---- */

static psc_status_t coll_check(const psc_group_t *group,
                               const psc_coll_args_t *args)
{
    if ((unsigned)args->coll >= PSC_COLL_COUNT || args->root < 0 ||
        args->root >= group->size || args->size == 0)
        return PSC_ERR_INVALID;
    if (args->coll >= PSC_COLL_REDUCE &&
        args->coll <= PSC_COLL_REDUCE_SCATTER && !args->combine &&
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

/* Begin a run, which takes over the plan unless an error is returned. */
static psc_status_t coll_begin(psc_group_t *group, const psc_coll_args_t *args,
                               psc_plan_t *plan, psc_request_t **request_p)
{
    psc_req_t *req =
        psc_req_create_bulk(&group->worker->requests, PSC_REQ_COLLECTIVE);
    psc_run_t *run = req ? psc_run_create(group, plan, args) : NULL;

    if (!run) {
        if (req)
            psc_req_recycle(&group->worker->requests, req);
        return PSC_ERR_NO_MEMORY;
    }
    req->head.flags = args->flags & PSC_FLAG_NOTIFY;
    req->head.owner = args->owner;
    req->context = group->context;
    req->head.result = (psc_result_t){.rank = -1, .order = args->coll};
    req->bulk->payload = run;
    run->req = req;
    run->persistent = args->persistent != NULL;
    run->number = run->persistent ? args->persistent->number : group->next++;
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

static psc_status_t coll_plan(const psc_group_t *group,
                              const psc_coll_args_t *args, psc_plan_t **plan_p)
{
    psc_task_t task = coll_task(group, args);
    const psc_algorithm_t *algorithm = psc_choose(&task, args->algorithm);

    if (!algorithm)
        return PSC_ERR_UNSUPPORTED;
    *plan_p = psc_plan_make(algorithm, &task);
    return *plan_p ? PSC_OK : PSC_ERR_NO_MEMORY;
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
        status = group_usable(group, plan);
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

/* ---- persistent operations ---- */

psc_status_t psc_coll_init(psc_group_t *group, const psc_coll_args_t *args,
                           psc_persistent_t **persistent_p)
{
    psc_status_t status = coll_check(group, args);
    psc_persistent_t *made;

    if (status != PSC_OK)
        return status;
    made = malloc(sizeof *made);
    if (!made)
        return PSC_ERR_NO_MEMORY;
    status = coll_plan(group, args, &made->plan);
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
