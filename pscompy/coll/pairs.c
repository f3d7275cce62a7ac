/* Every pair of ranks by itself: each part goes straight to where it belongs. A
 * rank begins with the one that follows it, so that not all send to one rank at
 * the same time. */
#include "plan.h"

static int peer_of(const psc_task_t *task, int i)
{
    return (task->rank + i) % task->size;
}

void psc_pairs_reduce_scatter(psc_plan_t *plan, const psc_task_t *task)
{
    psc_parts_combine(plan, task, psc_part, psc_own(task, PSC_IN_RECV));
}

void psc_pairs_gather(psc_plan_t *plan, const psc_task_t *task)
{
    psc_range_t own = psc_own(task, PSC_IN_SEND);

    if (task->rank != task->root) {
        psc_plan_send(plan, task->root, own);
        return;
    }
    psc_plan_copy(plan, own, psc_part(task, PSC_IN_RECV, task->rank));
    for (int i = 1; i < task->size; i++)
        psc_plan_recv(plan, peer_of(task, i),
                      psc_part(task, PSC_IN_RECV, peer_of(task, i)));
}

void psc_pairs_scatter(psc_plan_t *plan, const psc_task_t *task)
{
    psc_range_t own = psc_own(task, PSC_IN_RECV);

    if (task->rank != task->root) {
        psc_plan_recv(plan, task->root, own);
        return;
    }
    for (int i = 1; i < task->size; i++)
        psc_plan_send(plan, peer_of(task, i),
                      psc_part(task, PSC_IN_SEND, peer_of(task, i)));
    psc_plan_copy(plan, psc_part(task, PSC_IN_SEND, task->rank), own);
}

void psc_pairs_allgather(psc_plan_t *plan, const psc_task_t *task)
{
    psc_range_t own = psc_own(task, PSC_IN_SEND);

    for (int i = 1; i < task->size; i++)
        psc_plan_recv(
            plan, peer_of(task, task->size - i),
            psc_part(task, PSC_IN_RECV, peer_of(task, task->size - i)));
    for (int i = 1; i < task->size; i++)
        psc_plan_send(plan, peer_of(task, i), own);
    psc_plan_copy(plan, own, psc_part(task, PSC_IN_RECV, task->rank));
}

/* In place, the parts are sent from a copy, because others arrive where they
 * stand. Sets *copied_p to the step that makes the copy. */
static psc_range_t alltoall_source(psc_plan_t *plan, const psc_task_t *task,
                                   uint32_t *copied_p)
{
    uint64_t len = psc_part_begin(task, task->size) * task->unit;
    psc_range_t all = psc_range(PSC_IN_SEND, 0, len), room;

    *copied_p = PSC_NO_STEP;
    if (!task->in_place)
        return all;
    room = psc_plan_scratch(plan, len);
    *copied_p = psc_plan_copy(plan, all, room);
    return room;
}

void psc_pairs_alltoall(psc_plan_t *plan, const psc_task_t *task)
{
    psc_task_t arriving = *task;
    uint32_t copied;
    psc_range_t source = alltoall_source(plan, task, &copied);

    arriving.counts = task->recv_counts;
    for (int i = 1; i <= task->size; i++) {
        int peer = peer_of(task, task->size - i);
        psc_range_t from = psc_part(task, source.place, peer);
        psc_range_t to = psc_part(&arriving, PSC_IN_RECV, peer);

        from.offset += source.offset;
        if (peer == task->rank) {
            psc_plan_wait(plan, psc_plan_copy(plan, from, to), copied);
            continue;
        }
        psc_plan_wait(plan, psc_plan_recv(plan, peer, to), copied);
        psc_plan_wait(plan, psc_plan_send(plan, peer, from), copied);
    }
}
