/* The plans that a group keeps, because programs repeat their collectives. */
#include "coll.h"

/* Returns where the plan of a task is kept. */
static psc_plan_t **plans_place(psc_group_t *group, const psc_task_t *task)
{
    uint64_t mixed = task->count * task->unit + ((uint64_t)task->root << 40) +
                     ((uint64_t)task->coll << 32);

    return &group->plans[mixed * 0x9e3779b97f4a7c15u >> (64 - PSC_PLANS_BITS)];
}

/* Returns true if the plan is that of this task, of the same group. */
static bool plan_is_of(const psc_plan_t *plan, const psc_algorithm_t *algorithm,
                       const psc_task_t *task)
{
    const psc_task_t *made = &plan->task;

    return plan->algorithm == algorithm && made->coll == task->coll &&
           made->root == task->root && made->unit == task->unit &&
           made->count == task->count && made->calls == task->calls &&
           made->commutes == task->commutes && made->in_place == task->in_place;
}

psc_plan_t *psc_plans_take(psc_group_t *group, const psc_algorithm_t *algorithm,
                           const psc_task_t *task)
{
    psc_plan_t **place = plans_place(group, task), *plan;

    if (task->counts || task->recv_counts)
        return psc_plan_make(algorithm, task);
    if (*place && plan_is_of(*place, algorithm, task))
        return psc_plan_use(*place);
    plan = psc_plan_make(algorithm, task);
    if (!plan)
        return NULL;
    if (*place)
        psc_plan_destroy(*place);
    *place = plan;
    return psc_plan_use(plan);
}

void psc_plans_free(psc_group_t *group)
{
    for (uint32_t i = 0; i < 1u << PSC_PLANS_BITS; i++) {
        if (group->plans[i])
            psc_plan_destroy(group->plans[i]);
    }
}
