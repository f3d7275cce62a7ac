/* Lost ranks. A rank is lost if its process has ended, or if a member's
 * connection to it has failed (core/lost_ranks.h). A rank that learns of a loss
 * ends the runs of all groups that the lost rank is in, closes the contexts of
 * these groups, so that their messages are dropped, and tells each rank to
 * which it has a connection. Each rank does so once for each loss, so all ranks
 * that are connected, if only by others, learn of it. */
#include <stdlib.h>
#include <string.h>

#include "coll.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/upward.h"
#include "pscompy/proto/am.h"
#include "pscompy/proto/match.h"

/* The header of the active message by which ranks tell each other. */
typedef struct psc_loss {
    int32_t rank; /* rank in the job */
    int32_t status;
} psc_loss_t;

int psc_group_member(const psc_group_t *group, int rank)
{
    return group->members ? group->members[rank] : rank;
}

/* Returns the rank in the group of a rank of the job, or -1. */
static int group_rank(const psc_group_t *group, int member)
{
    for (int rank = 0; group->members && rank < group->size; rank++) {
        if (group->members[rank] == member)
            return rank;
    }
    return !group->members && member < group->size ? member : -1;
}

/* ---- the groups of a lost rank ---- */

static void group_lose(psc_group_t *group, const psc_lost_rank_t *lost)
{
    int rank = group_rank(group, lost->rank);

    if (rank < 0 || group->lost >= 0)
        return;
    group->lost = rank;
    group->reason =
        lost->status == PSC_ERR_CLOSED ? PSC_ERR_CLOSED : PSC_ERR_PEER_LOST;
    psc_list_for_each(run, &group->runs, psc_run_t, link)
        psc_run_withdraw(run, group->reason, rank);
    psc_context_close(group->worker, group->context);
}

void psc_loss_begin(psc_group_t *group)
{
    psc_list_for_each(lost, &group->worker->runs.lost, psc_lost_rank_t, link)
        group_lose(group, lost);
}

/* ---- telling ---- */

/* A rank that cannot be told, because memory is short, learns of the loss from
 * another one. */
static void loss_tell(psc_worker_t *worker, const psc_lost_rank_t *lost)
{
    psc_loss_t loss = {.rank = lost->rank, .status = lost->status};

    psc_list_for_each(conn, &worker->conns, psc_conn_t, link) {
        if (conn->rank >= 0 && conn->rank != lost->rank)
            psc_am_post(conn, PSC_AM_OWN, &loss, sizeof loss, NULL, 0);
    }
    worker->up->inbox_drain(worker);
}

/* The ranks are told first, because what follows may refuse messages of theirs
 * for a reason that they should know. */
void psc_loss_spread(psc_worker_t *worker)
{
    worker->runs.news = false;
    psc_list_for_each(lost, &worker->runs.lost, psc_lost_rank_t, link) {
        if (lost->told)
            continue;
        lost->told = true;
        loss_tell(worker, lost);
        psc_list_for_each(group, &worker->runs.groups, psc_group_t, link)
            group_lose(group, lost);
    }
}

/* A peer has told this rank of a loss. */
static void loss_heard(void *arg, const psc_message_t *message)
{
    psc_worker_t *worker = arg;
    psc_loss_t loss;

    if (message->header_len != sizeof loss)
        return;
    memcpy(&loss, message->header, sizeof loss);
    psc_lost_rank_add(worker, loss.rank, (psc_status_t)loss.status);
}

psc_status_t psc_loss_listen(psc_worker_t *worker)
{
    return psc_am_set_handler(worker, PSC_AM_OWN, loss_heard, worker);
}
