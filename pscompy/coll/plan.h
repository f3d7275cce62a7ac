/* Plans: what one rank does in one collective operation. A plan is an array of
 * steps, each of which waits for earlier ones. It holds no pointer to the
 * program's memory: its pieces are offsets in the three buffers of a run. */
#pragma once

#include "pscompy/core/api.h"

/* The buffers that the pieces of a plan lie in. */
typedef enum psc_place {
    PSC_IN_SEND, /* the operation's operand, which is only read */
    PSC_IN_RECV, /* its result; the only buffer of a broadcast */
    PSC_IN_SCRATCH, /* memory of the run */
    PSC_PLACES
} psc_place_t;

typedef struct psc_range {
    psc_place_t place;
    uint64_t offset, len; /* in bytes */
} psc_range_t;

typedef enum psc_step_kind {
    PSC_STEP_SEND,  /* `from`, to the peer */
    PSC_STEP_RECV,  /* into `to`, from the peer */
    PSC_STEP_COPY,  /* `from` to `to` */
    PSC_STEP_REDUCE /* to = from (op) to: `from` is of the lower ranks */
} psc_step_kind_t;

typedef struct psc_step {
    psc_step_kind_t kind;
    int peer; /* rank in the group */
    psc_range_t from, to;
    /* where in psc_plan_t.waits the step's entries are: the numbers of the
     * earlier steps that it waits for */
    uint32_t first_wait, n_waits;
} psc_step_t;

/* What a collective is to do, as the functions see it that make plans. */
typedef struct psc_task {
    psc_coll_t coll;
    int rank, size, root;
    uint64_t unit; /* bytes of one element */
    /* number of elements: of the whole operand, or of one rank's part where
     * each rank has a part of its own */
    uint64_t count;
    /* number of elements of each rank's part; NULL: each has `count` */
    const uint64_t *counts;
    /* of an alltoall: those of the parts that come from each rank */
    const uint64_t *recv_counts;
    /* the module of each rank, if messages between modules are to be few; else
     * NULL */
    const int32_t *modules;
    bool calls; /* a function of the program combines elements */
    bool commutes; /* the operation commutes */
    bool in_place; /* the operand stands where the result is to be */
} psc_task_t;

typedef struct psc_algorithm psc_algorithm_t;

typedef struct psc_plan {
    /* what the plan was made from; without the arrays that `task` points to */
    const psc_algorithm_t *algorithm;
    psc_task_t task;
    psc_step_t *steps;
    uint32_t n_steps, steps_room;
    uint32_t *waits;
    uint32_t n_waits, waits_room;
    uint64_t scratch; /* bytes of scratch memory */
    /* while the plan is made: for each rank, the last step that sends to it,
     * and the last one that receives from it */
    uint32_t *last[2];
    /* once it is made: the steps that wait for step i are `followers` from
     * follower_at[i] to follower_at[i + 1] */
    uint32_t *follower_at, *followers;
    bool failed; /* memory was short: the plan is not complete */
    /* number of runs, persistent operations and caches that use it */
    _Atomic uint32_t users;
    /* memory for the next run (a psc_run_t), or NULL; the worker's lock guards
     * it */
    void *idle;
} psc_plan_t;

/* the number of no step */
#define PSC_NO_STEP UINT32_MAX

static inline psc_range_t psc_range(psc_place_t place, uint64_t offset,
                                    uint64_t len)
{
    return (psc_range_t){place, offset, len};
}

/* ---- plan.c ---- */

/* Begin a plan for a task, with one user. Returns NULL if memory is short. */
psc_plan_t *psc_plan_create(const psc_task_t *task);
/* All steps have been added. Returns false if memory is short. */
bool psc_plan_complete(psc_plan_t *plan);
/* Another user of the plan. Returns the plan. */
psc_plan_t *psc_plan_use(psc_plan_t *plan);
/* A user needs the plan no more. It is freed with its last one. */
void psc_plan_destroy(psc_plan_t *plan);
/* Each of these functions adds a step and returns its number. A step waits for
 * nothing but the earlier step that sends to the same rank, or receives from
 * it, so that messages of one pair keep their order on both sides. Nothing is
 * added for a piece without bytes (PSC_NO_STEP), except by
 * psc_plan_signal and psc_plan_await, which send and receive an empty
 * message. */
uint32_t psc_plan_send(psc_plan_t *plan, int peer, psc_range_t from);
uint32_t psc_plan_recv(psc_plan_t *plan, int peer, psc_range_t to);
/* Receive into the result what is as long as the operand that was sent to the
 * same rank last. In place, the receive waits until that was sent. */
uint32_t psc_plan_recv_after_send(psc_plan_t *plan, const struct psc_task *task,
                                  int peer, psc_range_t to);
uint32_t psc_plan_signal(psc_plan_t *plan, int peer);
uint32_t psc_plan_await(psc_plan_t *plan, int peer);
uint32_t psc_plan_copy(psc_plan_t *plan, psc_range_t from, psc_range_t to);
uint32_t psc_plan_reduce(psc_plan_t *plan, psc_range_t from, psc_range_t to);
/* The newest step, `step`, waits for `earlier`, too. Nothing happens if either
 * is PSC_NO_STEP. */
void psc_plan_wait(psc_plan_t *plan, uint32_t step, uint32_t earlier);
/* Reserve scratch memory, aligned for every element. */
psc_range_t psc_plan_scratch(psc_plan_t *plan, uint64_t len);

/* Where the part of a rank is, in elements, if the parts stand one behind the
 * other. */
uint64_t psc_part_begin(const psc_task_t *task, int rank);
uint64_t psc_part_count(const psc_task_t *task, int rank);
/* The part of a rank in this buffer. */
psc_range_t psc_part(const psc_task_t *task, psc_place_t place, int rank);
/* The part of this rank, alone in this buffer. */
psc_range_t psc_own(const psc_task_t *task, psc_place_t place);
/* The parts of all ranks, in the result. */
psc_range_t psc_all(const psc_task_t *task);
/* Share number `index` of `n` of an operand that all ranks have as a whole. */
psc_range_t psc_share(const psc_task_t *task, psc_place_t place, int index,
                      int n);
/* The whole operand. */
psc_range_t psc_whole(const psc_task_t *task, psc_place_t place);

/* ---- the functions that make plans ---- */

/* tree.c */
void psc_tree_bcast(psc_plan_t *plan, const psc_task_t *task);
void psc_tree_reduce(psc_plan_t *plan, const psc_task_t *task);
void psc_tree_allreduce(psc_plan_t *plan, const psc_task_t *task);
void psc_tree_gather(psc_plan_t *plan, const psc_task_t *task);
void psc_tree_scatter(psc_plan_t *plan, const psc_task_t *task);
/* doubling.c */
void psc_doubling_barrier(psc_plan_t *plan, const psc_task_t *task);
void psc_doubling_allreduce(psc_plan_t *plan, const psc_task_t *task);
void psc_doubling_allgather(psc_plan_t *plan, const psc_task_t *task);
void psc_doubling_scan(psc_plan_t *plan, const psc_task_t *task);
/* parts.c */
void psc_parts_bcast(psc_plan_t *plan, const psc_task_t *task);
void psc_parts_reduce(psc_plan_t *plan, const psc_task_t *task);
void psc_parts_allreduce(psc_plan_t *plan, const psc_task_t *task);
/* Where the operands of a rank's share are. */
typedef psc_range_t (*psc_share_t)(const psc_task_t *task, psc_place_t place,
                                   int rank);
/* Send each rank the operands of its share, and combine those of this rank's
 * share, in the order of the ranks, into `result`. Returns the step after which
 * it is complete. */
uint32_t psc_parts_combine(psc_plan_t *plan, const psc_task_t *task,
                           psc_share_t share, psc_range_t result);
/* modules.c */
void psc_modules_barrier(psc_plan_t *plan, const psc_task_t *task);
void psc_modules_bcast(psc_plan_t *plan, const psc_task_t *task);
/* pairs.c */
void psc_pairs_reduce_scatter(psc_plan_t *plan, const psc_task_t *task);
void psc_pairs_gather(psc_plan_t *plan, const psc_task_t *task);
void psc_pairs_scatter(psc_plan_t *plan, const psc_task_t *task);
void psc_pairs_allgather(psc_plan_t *plan, const psc_task_t *task);
void psc_pairs_alltoall(psc_plan_t *plan, const psc_task_t *task);

/* ---- choice.c ---- */

/* An algorithm: one way to do a collective. */
struct psc_algorithm {
    const char *name;
    psc_coll_t coll;
    /* Returns true if the algorithm is the one to use. Depends only on what all
     * ranks know alike. NULL: always. */
    bool (*fits)(const psc_task_t *task);
    void (*plan)(psc_plan_t *plan, const psc_task_t *task);
    const char *use; /* what it is for, in words */
};

/* Returns the algorithm named `forced` of this collective, or the first one
 * that fits if `forced` is NULL. Returns NULL if there is none of that name. */
const psc_algorithm_t *psc_choose(const psc_task_t *task, const char *forced);
/* Write what psc_api_t.coll_explain says, of the algorithm that is chosen. */
void psc_choice_explain(const psc_algorithm_t *chosen, const psc_task_t *task,
                        const char *forced, char *text, size_t room);
/* Make the plan of a rank. Returns NULL if memory is short. */
psc_plan_t *psc_plan_make(const psc_algorithm_t *algorithm,
                          const psc_task_t *task);
