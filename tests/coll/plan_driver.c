/* Prints the plans that its standard input names, for test_plans.py: each task
 * is a line of numbers, after the name of its algorithm; "-" is the one that
 * the table chooses. For each step a line: kind, peer, the places, offsets and
 * lengths of its two ranges, and the steps that it waits for. Then the name of
 * the algorithm and the bytes of scratch memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pscompy/coll/plan.h"

#define RANKS_MAX 64

static uint64_t counts[RANKS_MAX], recv_counts[RANKS_MAX];
static int32_t modules[RANKS_MAX];

static uint64_t number(void)
{
    unsigned long long value;

    if (scanf("%llu", &value) != 1)
        exit(1);
    return value;
}

static psc_task_t read_task(void)
{
    psc_task_t task = {.coll = (psc_coll_t)number()};

    task.rank = (int)number();
    task.size = (int)number();
    task.root = (int)number();
    task.unit = number();
    task.count = number();
    task.commutes = number() != 0;
    task.in_place = number() != 0;
    if (number()) {
        for (int i = 0; i < task.size; i++)
            counts[i] = number();
        for (int i = 0; i < task.size; i++)
            recv_counts[i] = number();
        task.counts = counts;
        task.recv_counts = recv_counts;
    }
    if (number()) {
        for (int i = 0; i < task.size; i++)
            modules[i] = (int32_t)number();
        task.modules = modules;
    }
    return task;
}

static void print_range(psc_range_t range)
{
    printf(" %d %llu %llu", (int)range.place, (unsigned long long)range.offset,
           (unsigned long long)range.len);
}

static void print_plan(const psc_plan_t *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const psc_step_t *step = &plan->steps[i];

        printf("%d %d", (int)step->kind, step->peer);
        print_range(step->from);
        print_range(step->to);
        for (uint32_t k = 0; k < step->n_waits; k++)
            printf(" %u", plan->waits[step->first_wait + k]);
        printf("\n");
    }
    printf("%s %llu\n", name, (unsigned long long)plan->scratch);
    fflush(stdout);
}

int main(void)
{
    char name[32];

    while (scanf("%31s", name) == 1) {
        psc_task_t task = read_task();
        const psc_algorithm_t *chosen =
            psc_choose(&task, strcmp(name, "-") ? name : NULL);
        psc_plan_t *plan = chosen ? psc_plan_make(chosen, &task) : NULL;

        if (!plan)
            return 1;
        print_plan(plan, chosen->name);
        psc_plan_destroy(plan);
    }
    return 0;
}
