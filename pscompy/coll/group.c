/* Groups: their functions in psc_api_t, and what the core calls. */
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

static psc_status_t engine_refusal(psc_worker_t *worker, uint32_t context)
{
    psc_list_for_each(group, &worker->runs.groups, psc_group_t, link) {
        if (group->context == context)
            return group->lost >= 0 ? PSC_ERR_PEER_LOST : PSC_ERR_CLOSED;
    }
    return PSC_ERR_CLOSED;
}

static void engine_worker_ends(psc_worker_t *worker)
{
    psc_list_for_each(group, &worker->runs.groups, psc_group_t, link)
        psc_group_free(group);
}

static const psc_engine_t engine = {.advance = psc_runs_advance,
                                    .conn_freed = engine_conn_freed,
                                    .context_closed = engine_context_closed,
                                    .refusal = engine_refusal,
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
    group->check = args->check;
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
