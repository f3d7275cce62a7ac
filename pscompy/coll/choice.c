/* The table of algorithms. The first row of a collective that fits is used. The
 * choice depends only on what all ranks know alike, so all make the same one.
 */
#include <stdio.h>
#include <string.h>

#include "plan.h"

/* Operands from this length on are long. */
#define LONG_MIN (64u << 10)

static uint64_t task_bytes(const psc_task_t *task)
{
    return task->count * task->unit;
}

static bool is_short(const psc_task_t *task)
{
    return task_bytes(task) < LONG_MIN;
}

/* With two ranks a tree sends as little as parts do. */
static bool is_short_or_pair(const psc_task_t *task)
{
    return is_short(task) || task->size <= 2;
}

/* Parts of all ranks together, as each rank knows them. */
static bool parts_short(const psc_task_t *task)
{
    return psc_all(task).len < LONG_MIN;
}

/* A function may fail on one rank: all are to learn of it. A tree also calls it
 * less often than doubling does. */
static bool is_short_and_calls(const psc_task_t *task)
{
    return is_short(task) && task->calls;
}

static bool has_modules(const psc_task_t *task)
{
    return task->modules != NULL;
}

static const psc_algorithm_t algorithms[] = {
    {"modules", PSC_COLL_BARRIER, has_modules, psc_modules_barrier,
     "ranks in several modules"},
    {"modules", PSC_COLL_BCAST, has_modules, psc_modules_bcast,
     "ranks in several modules"},
    {"doubling", PSC_COLL_BARRIER, NULL, psc_doubling_barrier,
     "ranks in one module"},
    {"tree", PSC_COLL_BCAST, is_short_or_pair, psc_tree_bcast,
     "less than 64 KiB, or two ranks"},
    {"parts", PSC_COLL_BCAST, NULL, psc_parts_bcast, "64 KiB and more"},
    {"tree", PSC_COLL_REDUCE, is_short, psc_tree_reduce, "less than 64 KiB"},
    {"parts", PSC_COLL_REDUCE, NULL, psc_parts_reduce, "64 KiB and more"},
    {"tree", PSC_COLL_ALLREDUCE, is_short_and_calls, psc_tree_allreduce,
     "functions of the program, less than 64 KiB"},
    {"doubling", PSC_COLL_ALLREDUCE, is_short, psc_doubling_allreduce,
     "less than 64 KiB"},
    {"parts", PSC_COLL_ALLREDUCE, NULL, psc_parts_allreduce, "64 KiB and more"},
    {"doubling", PSC_COLL_SCAN, NULL, psc_doubling_scan, "every length"},
    {"doubling", PSC_COLL_EXSCAN, NULL, psc_doubling_scan, "every length"},
    {"pairs", PSC_COLL_REDUCE_SCATTER, NULL, psc_pairs_reduce_scatter,
     "every length"},
    {"tree", PSC_COLL_GATHER, parts_short, psc_tree_gather,
     "less than 64 KiB of all ranks together"},
    {"pairs", PSC_COLL_GATHER, NULL, psc_pairs_gather,
     "64 KiB and more of all ranks together"},
    {"tree", PSC_COLL_SCATTER, parts_short, psc_tree_scatter,
     "less than 64 KiB of all ranks together"},
    {"pairs", PSC_COLL_SCATTER, NULL, psc_pairs_scatter,
     "64 KiB and more of all ranks together"},
    {"doubling", PSC_COLL_ALLGATHER, parts_short, psc_doubling_allgather,
     "less than 64 KiB of all ranks together"},
    {"pairs", PSC_COLL_ALLGATHER, NULL, psc_pairs_allgather,
     "64 KiB and more of all ranks together"},
    {"pairs", PSC_COLL_ALLTOALL, NULL, psc_pairs_alltoall, "every length"},
};

const psc_algorithm_t *psc_choose(const psc_task_t *task, const char *forced)
{
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        const psc_algorithm_t *row = &algorithms[i];

        if (row->coll == task->coll && (forced ? strcmp(forced, row->name) == 0
                                               : !row->fits || row->fits(task)))
            return row;
    }
    return NULL;
}

void psc_choice_explain(const psc_algorithm_t *chosen, const psc_task_t *task,
                        const char *forced, char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "%s%s", chosen->name,
                                forced ? ", which is forced" : "");

    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        const psc_algorithm_t *row = &algorithms[i];

        if (row->coll == task->coll && n < room)
            n += (size_t)snprintf(text + n, room - n, "\n%s: for %s", row->name,
                                  row->use);
    }
}

psc_plan_t *psc_plan_make(const psc_algorithm_t *algorithm,
                          const psc_task_t *task)
{
    psc_plan_t *plan = psc_plan_create(task);

    if (!plan)
        return NULL;
    plan->algorithm = algorithm;
    algorithm->plan(plan, task);
    if (psc_plan_complete(plan))
        return plan;
    psc_plan_destroy(plan);
    return NULL;
}
