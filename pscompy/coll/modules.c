/* A tree over the modules of the machine, between which messages are dear: the
 * first ranks of the modules form a binomial tree, and each of them is the root
 * of a binomial tree of its module's ranks. So one message leads into each
 * module. */
#include <stdlib.h>

#include "plan.h"

/* The ranks of one module, or the first ranks of all modules; the first one is
 * the root of their tree, the others follow in their order. */
typedef struct circle {
    int *ranks, n;
} circle_t;

static bool circle_has_module(const circle_t *circle, const psc_task_t *task,
                              int rank)
{
    for (int i = 0; i < circle->n; i++) {
        if (task->modules[circle->ranks[i]] == task->modules[rank])
            return true;
    }
    return false;
}

/* The root of the operation is the first rank of its module. */
static void circle_lead(circle_t *circle, const psc_task_t *task)
{
    circle->ranks[circle->n++] = task->root;
    for (int rank = 0; rank < task->size; rank++) {
        if (!circle_has_module(circle, task, rank))
            circle->ranks[circle->n++] = rank;
    }
}

static void circle_gather(circle_t *circle, const psc_task_t *task)
{
    int32_t module = task->modules[task->rank];
    bool root = task->modules[task->root] == module;

    if (root)
        circle->ranks[circle->n++] = task->root;
    for (int rank = 0; rank < task->size; rank++) {
        if (task->modules[rank] == module && !(root && rank == task->root))
            circle->ranks[circle->n++] = rank;
    }
}

typedef void (*visit_t)(psc_plan_t *plan, int child, const void *arg);

/* Calls visit() for the children of this rank in the circle's tree, the one
 * with most ranks below it first. Returns the rank's parent; -1 if it is the
 * root, or is not in the circle. */
static int circle_visit(const circle_t *circle, int rank, psc_plan_t *plan,
                        visit_t visit, const void *arg)
{
    int number = 0, span = 1;

    while (number < circle->n && circle->ranks[number] != rank)
        number++;
    if (number == circle->n)
        return -1;
    while (span < circle->n && !(number & span))
        span *= 2;
    for (int reach = span / 2; reach > 0; reach /= 2) {
        if (number + reach < circle->n)
            visit(plan, circle->ranks[number + reach], arg);
    }
    return number > 0 ? circle->ranks[number - span] : -1;
}

/* Visits all children of this rank, those in other modules first, and returns
 * its parent, -1 at the root. */
static int modules_visit(psc_plan_t *plan, const psc_task_t *task,
                         visit_t visit, const void *arg)
{
    circle_t circle = {malloc((size_t)task->size * sizeof(int)), 0};
    int above, within;

    if (!circle.ranks) {
        plan->failed = true;
        return -1;
    }
    circle_lead(&circle, task);
    above = circle_visit(&circle, task->rank, plan, visit, arg);
    circle.n = 0;
    circle_gather(&circle, task);
    within = circle_visit(&circle, task->rank, plan, visit, arg);
    free(circle.ranks);
    return within >= 0 ? within : above;
}

/* ---- broadcast ---- */

/* The buffer, and the step after which it is filled. */
typedef struct filled {
    psc_range_t whole;
    uint32_t arrived;
} filled_t;

static void visit_nothing(psc_plan_t *plan, int child, const void *arg)
{
    (void)plan;
    (void)child;
    (void)arg;
}

static void visit_send(psc_plan_t *plan, int child, const void *arg)
{
    const filled_t *filled = arg;

    psc_plan_wait(plan, psc_plan_send(plan, child, filled->whole),
                  filled->arrived);
}

void psc_modules_bcast(psc_plan_t *plan, const psc_task_t *task)
{
    filled_t filled = {psc_whole(task, PSC_IN_RECV), PSC_NO_STEP};
    int parent = modules_visit(plan, task, visit_nothing, NULL);

    if (parent >= 0)
        filled.arrived = psc_plan_recv(plan, parent, filled.whole);
    modules_visit(plan, task, visit_send, &filled);
}

/* ---- barrier ---- */

static void visit_await(psc_plan_t *plan, int child, const void *arg)
{
    (void)arg;
    psc_plan_await(plan, child);
}

static void visit_signal(psc_plan_t *plan, int child, const void *released)
{
    uint32_t step = psc_plan_signal(plan, child);

    for (uint32_t i = 0; i < *(const uint32_t *)released; i++)
        psc_plan_wait(plan, step, i);
}

/* Every rank signals to its parent when it has heard of all its children. The
 * root then knows that all ranks have come, and releases them down the tree. */
void psc_modules_barrier(psc_plan_t *plan, const psc_task_t *task)
{
    uint32_t heard, released;
    int parent = modules_visit(plan, task, visit_await, NULL);

    heard = plan->n_steps;
    if (parent >= 0) {
        visit_signal(plan, parent, &heard);
        psc_plan_await(plan, parent);
    }
    released = plan->n_steps;
    modules_visit(plan, task, visit_signal, &released);
}
