/* Building plans step by step, and where the parts of the ranks are. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* alignment of scratch memory: that of every element, and of vectors */
#define PLAN_ALIGN 64u

psc_plan_t *psc_plan_create(const psc_task_t *task)
{
    psc_plan_t *plan = calloc(1, sizeof *plan);
    int size = task->size;

    if (!plan)
        return NULL;
    plan->task = *task;
    plan->task.counts = plan->task.recv_counts = NULL;
    plan->users = 1;
    for (int i = 0; i < 2; i++) {
        plan->last[i] = malloc((size_t)size * sizeof **plan->last);
        for (int rank = 0; plan->last[i] && rank < size; rank++)
            plan->last[i][rank] = PSC_NO_STEP;
    }
    if (plan->last[0] && plan->last[1])
        return plan;
    psc_plan_destroy(plan);
    return NULL;
}

static void plan_forget_last(psc_plan_t *plan)
{
    for (int i = 0; i < 2; i++) {
        free(plan->last[i]);
        plan->last[i] = NULL;
    }
}

/* Turn the lists of steps that each step waits for into lists of those that
 * wait for it. */
static void plan_find_followers(psc_plan_t *plan)
{
    uint32_t *at = plan->follower_at;

    for (uint32_t i = 0; i < plan->n_waits; i++)
        at[plan->waits[i] + 1]++;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        at[i + 1] += at[i];
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const psc_step_t *step = &plan->steps[i];

        for (uint32_t k = 0; k < step->n_waits; k++)
            plan->followers[at[plan->waits[step->first_wait + k]]++] = i;
    }
    /* each entry is now the end of its list, which is the next one's begin */
    memmove(at + 1, at, plan->n_steps * sizeof *at);
    at[0] = 0;
}

bool psc_plan_complete(psc_plan_t *plan)
{
    plan_forget_last(plan);
    if (plan->failed)
        return false;
    plan->follower_at = calloc(plan->n_steps + 1, sizeof *plan->follower_at);
    plan->followers = malloc((plan->n_waits + 1) * sizeof *plan->followers);
    if (!plan->follower_at || !plan->followers)
        return false;
    plan_find_followers(plan);
    return true;
}

psc_plan_t *psc_plan_use(psc_plan_t *plan)
{
    plan->users++;
    return plan;
}

void psc_plan_destroy(psc_plan_t *plan)
{
    if (--plan->users > 0)
        return;
    free(plan->steps);
    free(plan->waits);
    plan_forget_last(plan);
    free(plan->follower_at);
    free(plan->followers);
    free(plan->idle);
    free(plan);
}

/* Make room for one more element of an array that grows. */
static void *plan_grow(psc_plan_t *plan, void *array, uint32_t n,
                       uint32_t *room, size_t size)
{
    uint32_t more = *room ? 2 * *room : 16;
    void *grown;

    if (n < *room)
        return array;
    grown = realloc(array, more * size);
    if (!grown) {
        plan->failed = true;
        return array;
    }
    *room = more;
    return grown;
}

static uint32_t plan_add(psc_plan_t *plan, psc_step_t step)
{
    plan->steps = plan_grow(plan, plan->steps, plan->n_steps, &plan->steps_room,
                            sizeof step);
    if (plan->failed)
        return PSC_NO_STEP;
    step.first_wait = plan->n_waits;
    plan->steps[plan->n_steps] = step;
    return plan->n_steps++;
}

void psc_plan_wait(psc_plan_t *plan, uint32_t step, uint32_t earlier)
{
    if (plan->failed || step == PSC_NO_STEP || earlier == PSC_NO_STEP)
        return;
    plan->waits = plan_grow(plan, plan->waits, plan->n_waits, &plan->waits_room,
                            sizeof *plan->waits);
    if (plan->failed)
        return;
    plan->waits[plan->n_waits++] = earlier;
    plan->steps[step].n_waits++;
}

static uint32_t plan_add_message(psc_plan_t *plan, psc_step_t step)
{
    uint32_t *last = &plan->last[step.kind == PSC_STEP_RECV][step.peer];
    uint32_t added = plan_add(plan, step);

    psc_plan_wait(plan, added, *last);
    *last = added;
    return added;
}

uint32_t psc_plan_send(psc_plan_t *plan, int peer, psc_range_t from)
{
    if (from.len == 0)
        return PSC_NO_STEP;
    return plan_add_message(
        plan, (psc_step_t){.kind = PSC_STEP_SEND, .peer = peer, .from = from});
}

uint32_t psc_plan_recv(psc_plan_t *plan, int peer, psc_range_t to)
{
    if (to.len == 0)
        return PSC_NO_STEP;
    return plan_add_message(
        plan, (psc_step_t){.kind = PSC_STEP_RECV, .peer = peer, .to = to});
}

uint32_t psc_plan_recv_after_send(psc_plan_t *plan, const psc_task_t *task,
                                  int peer, psc_range_t to)
{
    uint32_t received = psc_plan_recv(plan, peer, to);

    if (task->in_place)
        psc_plan_wait(plan, received, plan->last[0][peer]);
    return received;
}

uint32_t psc_plan_signal(psc_plan_t *plan, int peer)
{
    return plan_add_message(plan,
                            (psc_step_t){.kind = PSC_STEP_SEND, .peer = peer});
}

uint32_t psc_plan_await(psc_plan_t *plan, int peer)
{
    return plan_add_message(plan,
                            (psc_step_t){.kind = PSC_STEP_RECV, .peer = peer});
}

uint32_t psc_plan_copy(psc_plan_t *plan, psc_range_t from, psc_range_t to)
{
    if (to.len == 0)
        return PSC_NO_STEP;
    return plan_add(
        plan, (psc_step_t){.kind = PSC_STEP_COPY, .from = from, .to = to});
}

uint32_t psc_plan_reduce(psc_plan_t *plan, psc_range_t from, psc_range_t to)
{
    if (to.len == 0)
        return PSC_NO_STEP;
    return plan_add(
        plan, (psc_step_t){.kind = PSC_STEP_REDUCE, .from = from, .to = to});
}

psc_range_t psc_plan_scratch(psc_plan_t *plan, uint64_t len)
{
    psc_range_t piece = psc_range(PSC_IN_SCRATCH, plan->scratch, len);

    plan->scratch += (len + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return piece;
}

/* ---- parts ---- */

uint64_t psc_part_count(const psc_task_t *task, int rank)
{
    return task->counts ? task->counts[rank] : task->count;
}

uint64_t psc_part_begin(const psc_task_t *task, int rank)
{
    uint64_t begin = 0;

    if (!task->counts)
        return task->count * (uint64_t)rank;
    for (int i = 0; i < rank; i++)
        begin += task->counts[i];
    return begin;
}

psc_range_t psc_part(const psc_task_t *task, psc_place_t place, int rank)
{
    return psc_range(place, psc_part_begin(task, rank) * task->unit,
                     psc_part_count(task, rank) * task->unit);
}

psc_range_t psc_own(const psc_task_t *task, psc_place_t place)
{
    return psc_range(place, 0, psc_part_count(task, task->rank) * task->unit);
}

psc_range_t psc_all(const psc_task_t *task)
{
    return psc_range(PSC_IN_RECV, 0,
                     psc_part_begin(task, task->size) * task->unit);
}

psc_range_t psc_share(const psc_task_t *task, psc_place_t place, int index,
                      int n)
{
    uint64_t each = task->count / (uint64_t)n, more = task->count % (uint64_t)n;
    uint64_t at = (uint64_t)index;
    uint64_t begin = each * at + (at < more ? at : more);

    return psc_range(place, begin * task->unit,
                     (each + (at < more)) * task->unit);
}

psc_range_t psc_whole(const psc_task_t *task, psc_place_t place)
{
    return psc_range(place, 0, task->count * task->unit);
}
