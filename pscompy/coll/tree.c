/* Binomial trees: for short operands, because a rank sends few messages, each
 * as long as what all ranks below it have or want.
 *
 * The tree has its root at number 0, where ranks are numbered from the root on.
 * The children of a number are behind it by the powers of two below its lowest
 * bit, so the numbers of a subtree follow each other. */
#include "plan.h"

/* This rank's place in the tree. */
typedef struct tree {
    const psc_task_t *task;
    int number; /* counted from the root */
    /* the numbers of the subtree are `number` and the span - 1 that follow, as
     * far as they exist; a power of two */
    int span;
} tree_t;

static tree_t tree_at(const psc_task_t *task, int root)
{
    int number = (task->rank - root + task->size) % task->size;
    int span = 1;

    while (span < task->size && !(number & span))
        span *= 2;
    return (tree_t){task, number, span};
}

static int tree_rank(const tree_t *tree, int root, int number)
{
    return (number + root) % tree->task->size;
}

static int tree_parent(const tree_t *tree, int root)
{
    return tree_rank(tree, root, tree->number - tree->span);
}

/* Returns the number that is behind this rank's by `reach`, or the end of all
 * numbers. */
static int tree_end(const tree_t *tree, int reach)
{
    int end = tree->number + reach;

    return end < tree->task->size ? end : tree->task->size;
}

/* Returns true if there is a child behind us by `reach`. */
static bool tree_has(const tree_t *tree, int reach)
{
    return reach < tree->span && tree->number + reach < tree->task->size;
}

/* ---- one operand for all ranks ---- */

/* Send the piece to the children, once the step `arrived` has ended. */
static void tree_pass_on(psc_plan_t *plan, const tree_t *tree, int root,
                         psc_range_t piece, uint32_t arrived)
{
    for (int reach = tree->span / 2; reach > 0; reach /= 2) {
        if (tree_has(tree, reach)) {
            int child = tree_rank(tree, root, tree->number + reach);

            psc_plan_wait(plan, psc_plan_send(plan, child, piece), arrived);
        }
    }
}

void psc_tree_bcast(psc_plan_t *plan, const psc_task_t *task)
{
    tree_t tree = tree_at(task, task->root);
    psc_range_t whole = psc_whole(task, PSC_IN_RECV);
    uint32_t arrived = PSC_NO_STEP;

    if (tree.number > 0)
        arrived = psc_plan_recv(plan, tree_parent(&tree, task->root), whole);
    tree_pass_on(plan, &tree, task->root, whole, arrived);
}

/* Combine the operands of the subtree in the order of the numbers. Sets *done_p
 * to the step after which the result stands in the piece that is returned. */
static psc_range_t tree_combine(psc_plan_t *plan, const tree_t *tree, int root,
                                uint32_t *done_p)
{
    psc_range_t result = psc_whole(tree->task, PSC_IN_SEND);

    *done_p = PSC_NO_STEP;
    for (int reach = 1; tree_has(tree, reach); reach *= 2) {
        psc_range_t room = psc_plan_scratch(plan, result.len);
        uint32_t arrived = psc_plan_recv(
            plan, tree_rank(tree, root, tree->number + reach), room);
        uint32_t reduced = psc_plan_reduce(plan, result, room);

        psc_plan_wait(plan, reduced, arrived);
        psc_plan_wait(plan, reduced, *done_p);
        *done_p = reduced;
        result = room;
    }
    return result;
}

/* If the operation does not commute, the numbers have to be the ranks, so the
 * tree's root is rank 0, which passes the result on to the root of the
 * operation. */
void psc_tree_reduce(psc_plan_t *plan, const psc_task_t *task)
{
    int root = task->commutes ? task->root : 0;
    tree_t tree = tree_at(task, root);
    uint32_t done, last = PSC_NO_STEP;
    psc_range_t whole = psc_whole(task, PSC_IN_RECV);
    psc_range_t result = tree_combine(plan, &tree, root, &done);

    if (tree.number > 0)
        last = psc_plan_send(plan, tree_parent(&tree, root), result);
    else if (root != task->root)
        last = psc_plan_send(plan, task->root, result);
    else
        last = psc_plan_copy(plan, result, whole);
    psc_plan_wait(plan, last, done);
    if (task->rank == task->root && root != task->root)
        psc_plan_recv(plan, root, whole);
}

/* To rank 0, and back: every rank depends on every reduction. */
void psc_tree_allreduce(psc_plan_t *plan, const psc_task_t *task)
{
    tree_t tree = tree_at(task, 0);
    psc_range_t whole = psc_whole(task, PSC_IN_RECV);
    uint32_t done, sent, arrived;
    psc_range_t result = tree_combine(plan, &tree, 0, &done);

    if (tree.number > 0) {
        sent = psc_plan_send(plan, tree_parent(&tree, 0), result);
        psc_plan_wait(plan, sent, done);
        arrived = psc_plan_recv(plan, tree_parent(&tree, 0), whole);
        psc_plan_wait(plan, arrived, sent);
    } else {
        arrived = psc_plan_copy(plan, result, whole);
        psc_plan_wait(plan, arrived, done);
    }
    tree_pass_on(plan, &tree, 0, whole, arrived);
}

/* ---- a part for each rank ---- */

/* Returns how many elements the ranks of the numbers begin ... end - 1 have
 * together. */
static uint64_t tree_count(const tree_t *tree, int root, int begin, int end)
{
    uint64_t count = 0;

    for (int number = begin; number < end; number++)
        count += psc_part_count(tree->task, tree_rank(tree, root, number));
    return count;
}

/* The parts of these numbers in scratch memory, where the parts of this rank's
 * subtree stand in the order of their numbers. */
static psc_range_t tree_piece(const tree_t *tree, psc_range_t all, int begin,
                              int end)
{
    const psc_task_t *task = tree->task;
    uint64_t before = tree_count(tree, task->root, tree->number, begin);
    uint64_t count = tree_count(tree, task->root, begin, end);

    return psc_range(all.place, all.offset + before * task->unit,
                     count * task->unit);
}

/* Room for the parts of this rank's subtree. */
static psc_range_t tree_room(psc_plan_t *plan, const tree_t *tree)
{
    int end = tree_end(tree, tree->span);
    uint64_t count = tree_count(tree, tree->task->root, tree->number, end);

    return psc_plan_scratch(plan, count * tree->task->unit);
}

/* The newest step waits for all earlier ones. */
static void tree_wait_for_all(psc_plan_t *plan, uint32_t step)
{
    for (uint32_t i = 0; step != PSC_NO_STEP && i < step; i++)
        psc_plan_wait(plan, step, i);
}

/* At the root: copy between all parts in scratch memory, which begin with the
 * root's, and the buffer of the program, which begins with that of rank 0, when
 * all earlier steps have ended. Returns the last step of the copy. */
static uint32_t tree_rotate(psc_plan_t *plan, const psc_task_t *task,
                            psc_range_t all, psc_place_t place)
{
    uint64_t front = psc_part_begin(task, task->root) * task->unit;
    psc_range_t parts[2] = {psc_range(place, front, all.len - front),
                            psc_range(place, 0, front)};
    uint32_t last = PSC_NO_STEP;

    for (int i = 0; i < 2; i++) {
        psc_range_t room = psc_range(
            all.place, all.offset + (i ? parts[0].len : 0), parts[i].len);
        uint32_t copied = place == PSC_IN_RECV
                              ? psc_plan_copy(plan, room, parts[i])
                              : psc_plan_copy(plan, parts[i], room);

        tree_wait_for_all(plan, copied);
        last = copied == PSC_NO_STEP ? last : copied;
    }
    return last;
}

void psc_tree_gather(psc_plan_t *plan, const psc_task_t *task)
{
    tree_t tree = tree_at(task, task->root);
    psc_range_t all = tree_room(plan, &tree);
    psc_range_t own = psc_own(task, PSC_IN_SEND);

    psc_plan_copy(plan, own, psc_range(all.place, all.offset, own.len));
    for (int reach = 1; tree_has(&tree, reach); reach *= 2)
        psc_plan_recv(plan, tree_rank(&tree, task->root, tree.number + reach),
                      tree_piece(&tree, all, tree.number + reach,
                                 tree_end(&tree, 2 * reach)));
    if (tree.number > 0)
        tree_wait_for_all(
            plan, psc_plan_send(plan, tree_parent(&tree, task->root), all));
    else
        tree_rotate(plan, task, all, PSC_IN_RECV);
}

void psc_tree_scatter(psc_plan_t *plan, const psc_task_t *task)
{
    tree_t tree = tree_at(task, task->root);
    psc_range_t all = tree_room(plan, &tree);
    psc_range_t own = psc_own(task, PSC_IN_RECV);
    uint32_t arrived =
        tree.number > 0
            ? psc_plan_recv(plan, tree_parent(&tree, task->root), all)
            : tree_rotate(plan, task, all, PSC_IN_SEND);

    for (int reach = tree.span / 2; reach > 0; reach /= 2) {
        if (tree_has(&tree, reach)) {
            int child = tree_rank(&tree, task->root, tree.number + reach);
            psc_range_t piece = tree_piece(&tree, all, tree.number + reach,
                                           tree_end(&tree, 2 * reach));

            psc_plan_wait(plan, psc_plan_send(plan, child, piece), arrived);
        }
    }
    psc_plan_wait(
        plan,
        psc_plan_copy(plan, psc_range(all.place, all.offset, own.len), own),
        arrived);
}
