/* Recursive doubling: after each round a rank knows what twice as many ranks
 * have, so that short operands take ceil(log2(size)) rounds. */
#include "plan.h"

#define ROUNDS_MAX 32

/* The receives of the earlier rounds, which are posted at once. What a rank
 * sends in a round waits for all of them. */
typedef struct heard {
    uint32_t steps[ROUNDS_MAX];
    int n;
} heard_t;

static void heard_wait(psc_plan_t *plan, uint32_t step, const heard_t *heard)
{
    for (int i = 0; i < heard->n; i++)
        psc_plan_wait(plan, step, heard->steps[i]);
}

/* The rank that follows this one by `ahead`, which may be negative. */
static int rank_ahead(const psc_task_t *task, int ahead)
{
    return (task->rank + ahead + task->size) % task->size;
}

/* ---- barrier ---- */

/* In each round a rank signals to the one that follows it by a power of two. A
 * rank that has heard in all rounds has heard, by others, of all ranks. */
void psc_doubling_barrier(psc_plan_t *plan, const psc_task_t *task)
{
    heard_t heard = {.n = 0};

    for (int ahead = 1; ahead < task->size; ahead *= 2) {
        heard_wait(plan, psc_plan_signal(plan, rank_ahead(task, ahead)),
                   &heard);
        heard.steps[heard.n++] = psc_plan_await(plan, rank_ahead(task, -ahead));
    }
}

/* ---- allreduce ---- */

/* The operands that this rank has combined: a piece, and the step after which
 * it is complete. */
typedef struct partial {
    psc_range_t piece;
    uint32_t done;
} partial_t;

/* Combine with what arrives from a rank; `lower`: that rank's operands are of
 * lower ranks. The result stands in the piece of the higher operand, which must
 * not be read any more: `read` is the last step that reads it. */
static void partial_combine(psc_plan_t *plan, partial_t *own, psc_range_t room,
                            uint32_t arrived, bool lower, uint32_t read)
{
    uint32_t reduced = lower ? psc_plan_reduce(plan, room, own->piece)
                             : psc_plan_reduce(plan, own->piece, room);

    psc_plan_wait(plan, reduced, arrived);
    psc_plan_wait(plan, reduced, own->done);
    psc_plan_wait(plan, reduced, lower ? read : PSC_NO_STEP);
    own->done = reduced;
    if (!lower)
        own->piece = room;
}

static void partial_exchange(psc_plan_t *plan, partial_t *own, int peer,
                             bool lower)
{
    psc_range_t room = psc_plan_scratch(plan, own->piece.len);
    uint32_t arrived = psc_plan_recv(plan, peer, room);
    uint32_t sent = psc_plan_send(plan, peer, own->piece);

    psc_plan_wait(plan, sent, own->done);
    partial_combine(plan, own, room, arrived, lower, sent);
}

/* The operand is copied, because combining overwrites it. */
static partial_t partial_begin(psc_plan_t *plan, const psc_task_t *task)
{
    psc_range_t whole = psc_whole(task, PSC_IN_SEND);
    partial_t own = {psc_plan_scratch(plan, whole.len), PSC_NO_STEP};

    own.done = psc_plan_copy(plan, whole, own.piece);
    return own;
}

static int highest_power(int size)
{
    int power = 1;

    while (2 * power <= size)
        power *= 2;
    return power;
}

/* Numbers of the ranks that take part in the rounds, whose count is a power of
 * two. Of the first 2 * `spare` ranks each odd one stands for its even
 * neighbour, too. */
static int allreduce_rank(int number, int spare)
{
    return number < spare ? 2 * number + 1 : number + spare;
}

static void allreduce_rounds(psc_plan_t *plan, const psc_task_t *task,
                             partial_t *own, int power)
{
    int spare = task->size - power;
    int number = task->rank < 2 * spare ? task->rank / 2 : task->rank - spare;

    for (int bit = 1; bit < power; bit *= 2)
        partial_exchange(plan, own, allreduce_rank(number ^ bit, spare),
                         (number & bit) != 0);
}

void psc_doubling_allreduce(psc_plan_t *plan, const psc_task_t *task)
{
    int power = highest_power(task->size), spare = task->size - power;
    bool paired = task->rank < 2 * spare;
    psc_range_t whole = psc_whole(task, PSC_IN_RECV);
    partial_t own;

    if (paired && task->rank % 2 == 0) {
        psc_plan_send(plan, task->rank + 1, psc_whole(task, PSC_IN_SEND));
        psc_plan_recv_after_send(plan, task, task->rank + 1, whole);
        return;
    }
    own = partial_begin(plan, task);
    if (paired) {
        psc_range_t room = psc_plan_scratch(plan, whole.len);
        uint32_t arrived = psc_plan_recv(plan, task->rank - 1, room);

        partial_combine(plan, &own, room, arrived, true, PSC_NO_STEP);
    }
    allreduce_rounds(plan, task, &own, power);
    psc_plan_wait(plan, psc_plan_copy(plan, own.piece, whole), own.done);
    if (paired)
        psc_plan_wait(plan, psc_plan_send(plan, task->rank - 1, own.piece),
                      own.done);
}

/* ---- scan ---- */

/* The operands that this rank has heard of, combined; and those of the lower
 * ranks among them, in `below` if there are any. A rank without a partner in a
 * round hears less than the others, but then no higher rank needs it. */
typedef struct scan {
    partial_t sum, below;
    bool any;
} scan_t;

/* What has arrived from a lower rank is of lower ranks than all before. */
static void scan_lower(psc_plan_t *plan, scan_t *scan, psc_range_t room,
                       uint32_t arrived)
{
    if (scan->any) {
        partial_combine(plan, &scan->below, room, arrived, true, PSC_NO_STEP);
        return;
    }
    scan->any = true;
    scan->below.piece = psc_plan_scratch(plan, room.len);
    scan->below.done = psc_plan_copy(plan, room, scan->below.piece);
    psc_plan_wait(plan, scan->below.done, arrived);
}

static void scan_round(psc_plan_t *plan, scan_t *scan, int peer, bool lower)
{
    psc_range_t room = psc_plan_scratch(plan, scan->sum.piece.len);
    uint32_t arrived = psc_plan_recv(plan, peer, room);
    uint32_t sent = psc_plan_send(plan, peer, scan->sum.piece);

    psc_plan_wait(plan, sent, scan->sum.done);
    if (lower)
        scan_lower(plan, scan, room, arrived);
    partial_combine(plan, &scan->sum, room, arrived, lower, sent);
    psc_plan_wait(plan, scan->sum.done, lower ? scan->below.done : PSC_NO_STEP);
}

/* begun: the step that has copied this rank's operand, which may be the memory
 * of the result. */
static void scan_end(psc_plan_t *plan, const psc_task_t *task, scan_t *scan,
                     uint32_t begun)
{
    psc_range_t whole = psc_whole(task, PSC_IN_RECV);
    uint32_t last;

    if (task->coll == PSC_COLL_SCAN) {
        last = psc_plan_copy(plan, psc_whole(task, PSC_IN_SEND), whole);
        if (!scan->any)
            return;
        begun = last;
        last = psc_plan_reduce(plan, scan->below.piece, whole);
    } else if (scan->any) {
        last = psc_plan_copy(plan, scan->below.piece, whole);
    } else {
        return;
    }
    psc_plan_wait(plan, last, scan->below.done);
    psc_plan_wait(plan, last, begun);
}

void psc_doubling_scan(psc_plan_t *plan, const psc_task_t *task)
{
    scan_t scan = {.sum = partial_begin(plan, task), .any = false};
    uint32_t begun = scan.sum.done;

    for (int bit = 1; bit < task->size; bit *= 2) {
        int peer = task->rank ^ bit;

        if (peer < task->size)
            scan_round(plan, &scan, peer, peer < task->rank);
    }
    scan_end(plan, task, &scan, begun);
}

/* ---- allgather ---- */

/* The parts of the ranks that follow this one by `begin` to `end` - 1, in
 * `room`, which begins with the part of this rank. */
static psc_range_t gathered(const psc_task_t *task, psc_range_t room, int begin,
                            int end)
{
    uint64_t before = 0, count = 0;

    for (int i = 0; i < end; i++) {
        uint64_t part = psc_part_count(task, rank_ahead(task, i));

        *(i < begin ? &before : &count) += part;
    }
    return psc_range(room.place, room.offset + before * task->unit,
                     count * task->unit);
}

/* Copy all parts into the result, where that of rank 0 is the first. */
static void allgather_end(psc_plan_t *plan, const psc_task_t *task,
                          psc_range_t room, const heard_t *heard)
{
    uint64_t front = psc_part_begin(task, task->rank) * task->unit;
    uint64_t back = room.len - front;
    psc_range_t own = psc_range(room.place, room.offset, back);
    psc_range_t wrapped = psc_range(room.place, room.offset + back, front);

    heard_wait(plan,
               psc_plan_copy(plan, own, psc_range(PSC_IN_RECV, front, back)),
               heard);
    heard_wait(plan,
               psc_plan_copy(plan, wrapped, psc_range(PSC_IN_RECV, 0, front)),
               heard);
}

/* In each round a rank gets, from the one that follows it by a power of two, as
 * many parts as it has (Bruck and others, 1997), in the order of the ranks that
 * follow it. */
void psc_doubling_allgather(psc_plan_t *plan, const psc_task_t *task)
{
    psc_range_t own = psc_own(task, PSC_IN_SEND);
    psc_range_t room = psc_plan_scratch(plan, psc_all(task).len);
    heard_t heard = {.n = 1};

    heard.steps[0] =
        psc_plan_copy(plan, own, psc_range(room.place, room.offset, own.len));
    for (int n = 1; n < task->size; n *= 2) {
        int more = n < task->size - n ? n : task->size - n;

        heard_wait(plan,
                   psc_plan_send(plan, rank_ahead(task, -n),
                                 gathered(task, room, 0, more)),
                   &heard);
        heard.steps[heard.n++] = psc_plan_recv(
            plan, rank_ahead(task, n), gathered(task, room, n, n + more));
    }
    allgather_end(plan, task, room, &heard);
}
