/* Long operands in parts: each rank works on one share of the operand, so that
 * no rank sends or combines more than about twice its length. */
#include "plan.h"

/* Number `index` of the shares of all ranks. */
static psc_range_t share_of(const psc_task_t *task, psc_place_t place, int rank)
{
    return psc_share(task, place, rank, task->size);
}

/* ---- broadcast ---- */

/* The ranks but the root, from 0 on. */
static int other_number(const psc_task_t *task, int rank)
{
    return rank < task->root ? rank : rank - 1;
}

static psc_range_t other_share(const psc_task_t *task, int rank)
{
    return psc_share(task, PSC_IN_RECV, other_number(task, rank),
                     task->size - 1);
}

/* The root sends a share to each other rank, and these exchange theirs. */
void psc_parts_bcast(psc_plan_t *plan, const psc_task_t *task)
{
    uint32_t arrived = PSC_NO_STEP;

    if (task->rank != task->root)
        arrived =
            psc_plan_recv(plan, task->root, other_share(task, task->rank));
    for (int i = 1; i < task->size; i++) {
        int peer = (task->rank + i) % task->size;

        if (task->rank == task->root) {
            psc_plan_send(plan, peer, other_share(task, peer));
        } else if (peer != task->root) {
            psc_plan_recv(plan, peer, other_share(task, peer));
            psc_plan_wait(
                plan, psc_plan_send(plan, peer, other_share(task, task->rank)),
                arrived);
        }
    }
}

/* ---- reductions ---- */

uint32_t psc_parts_combine(psc_plan_t *plan, const psc_task_t *task,
                           psc_share_t share, psc_range_t result)
{
    uint32_t reduced = PSC_NO_STEP, last;
    psc_range_t before = {0};

    for (int i = 1; i < task->size; i++) {
        int peer = (task->rank + i) % task->size;

        psc_plan_send(plan, peer, share(task, PSC_IN_SEND, peer));
    }
    for (int rank = 0; rank < task->size; rank++) {
        psc_range_t room = psc_plan_scratch(plan, result.len);
        uint32_t arrived =
            rank == task->rank
                ? psc_plan_copy(plan, share(task, PSC_IN_SEND, rank), room)
                : psc_plan_recv(plan, rank, room);

        if (rank > 0) {
            uint32_t step = psc_plan_reduce(plan, before, room);

            psc_plan_wait(plan, step, arrived);
            psc_plan_wait(plan, step, reduced);
            reduced = step;
        } else {
            reduced = arrived;
        }
        before = room;
    }
    last = psc_plan_copy(plan, before, result);
    psc_plan_wait(plan, last, reduced);
    return last;
}

void psc_parts_allreduce(psc_plan_t *plan, const psc_task_t *task)
{
    psc_range_t own = share_of(task, PSC_IN_RECV, task->rank);
    uint32_t done = psc_parts_combine(plan, task, share_of, own);

    for (int i = 1; i < task->size; i++) {
        int peer = (task->rank + i) % task->size;

        psc_plan_recv_after_send(plan, task, peer,
                                 share_of(task, PSC_IN_RECV, peer));
        psc_plan_wait(plan, psc_plan_send(plan, peer, own), done);
    }
}

void psc_parts_reduce(psc_plan_t *plan, const psc_task_t *task)
{
    bool root = task->rank == task->root;
    psc_range_t own = share_of(task, PSC_IN_RECV, task->rank);
    uint32_t done;

    if (!root)
        own = psc_plan_scratch(plan, own.len);
    done = psc_parts_combine(plan, task, share_of, own);
    if (!root)
        psc_plan_wait(plan, psc_plan_send(plan, task->root, own), done);
    for (int rank = 0; root && rank < task->size; rank++) {
        if (rank != task->rank)
            psc_plan_recv(plan, rank, share_of(task, PSC_IN_RECV, rank));
    }
}
