/* The engine of collectives. Three things exist: a group, which is a
 * communicator as the engine sees it; a plan, which is what one rank does in
 * one operation (plan.h); and a run, which is a plan at work.
 *
 * The engine starts each step that waits for nothing, and when a step ends it
 * counts down those that wait for it. It never blocks and has no thread: a
 * pass of progress, or the release of the worker's lock, takes up the runs that
 * can go on. A function of the program (psc_coll_args_t.combine) is never
 * called here, but by api->coll_call, without the lock.
 *
 * An error ends a run in one of two ways. If all ranks are alive, the run has
 * failed: it exchanges all messages of its plan, so that no message is left,
 * but sends a psc_failure_t in place of data. If a rank is lost, or the
 * communicator was closed, the run is withdrawn: it ends as soon as no peer
 * reads or writes its buffers any more (loss.c).
 *
 * All functions are called with the worker's lock held. */
#pragma once

#include "plan.h"
#include "pscompy/core/lost_ranks.h"
#include "pscompy/core/types/worker.h"
#include "reduce.h"

/* log2 of the number of plans that a group keeps */
#define PSC_PLANS_BITS 5u

struct psc_group {
    psc_worker_t *worker;
    psc_link_t link; /* link in the worker's list of groups */
    uint32_t context;
    int rank, size;
    uint64_t next; /* number of the next operation */
    _Atomic uint64_t next_persistent; /* the same, of persistent ones */
    psc_list_t runs;
    bool ended; /* the context was closed: no operation starts any more */
    int32_t *modules; /* the module of each rank, or NULL */
    int32_t *members; /* the rank in the job of each rank, or NULL */
    int lost; /* the rank that was lost first, or -1 */
    psc_status_t reason; /* for which it was lost */
    bool closed; /* the group is freed when its last run has ended */
    bool check;  /* psc_group_args_t.check */
    psc_called_t differs[2]; /* see coll_differs in psc_api_t */
    /* plans that were made before, one at most for each hash of a task */
    psc_plan_t *plans[1u << PSC_PLANS_BITS];
    /* connections by rank; NULL: not known yet */
    psc_conn_t **conns;
    /* rank of the connection that coll_start has found missing or lazy */
    int wanted;
};

/* A persistent operation.
 *
 * All its starts use the same tag. The messages of one start match none of
 * another, because between two ranks they have one order on both sides: in a
 * start that of the plan, whose steps to one rank wait for each other; and a
 * rank begins the next start only when all its steps of the last one have
 * ended. */
struct psc_persistent {
    psc_plan_t *plan; /* the runs of all starts share it */
    uint64_t number;
};

typedef struct psc_run psc_run_t;
typedef struct psc_check psc_check_t; /* defined in check.c */

/* Numbers of steps. Each step is entered once, so the queue never wraps. */
typedef struct psc_step_queue {
    uint32_t *steps;
    uint32_t head, tail;
} psc_step_queue_t;

static inline void psc_step_queue_push(psc_step_queue_t *queue, uint32_t step)
{
    queue->steps[queue->tail++] = step;
}

/* What a rank sends in place of data after an error. */
typedef struct psc_failure {
    uint64_t mark; /* PSC_FAILURE_MARK */
    int32_t rank;  /* rank in the group on which the error occurred */
    int32_t status;
} psc_failure_t;

#define PSC_FAILURE_MARK 0x656c6261656c6961u

/* A piece that is shorter is received in psc_active_step_t.word, which has room
 * for a failure, too: a failure is then longer than the piece, else shorter. */
#define PSC_SHORT_PIECE 32u

/* A step of a run. */
typedef struct psc_active_step {
    psc_run_t *run;
    /* number of steps that it waits for and that have not ended */
    uint32_t left;
    uint64_t done;  /* bytes that a copy or a reduction has done */
    psc_req_t *req; /* the message under way, or NULL */
    /* the message, if it is short */
    uint8_t word[PSC_SHORT_PIECE + sizeof(psc_failure_t)];
} psc_active_step_t;

struct psc_run {
    psc_req_t *req; /* the request that the program has */
    psc_group_t *group;
    psc_link_t link; /* link in the group's list */
    psc_link_t ready_link; /* link in the worker's list of runs that go on */
    psc_plan_t *plan;
    uint64_t number;
    bool persistent; /* the number is that of a persistent operation */
    psc_coll_t coll;
    /* of a check: what the ranks have called, and the run that begins if all
     * agree; else NULL */
    psc_check_t *check;
    psc_run_t *next;
    uint8_t *places[PSC_PLACES];
    uint64_t unit;
    psc_reduce_t reduce; /* NULL: `combine` is called */
    psc_combine_t combine;
    void *arg;
    uint32_t cost; /* a byte that is reduced counts as so many */
    psc_status_t status; /* the first error, unless the run is withdrawn */
    psc_failure_t
        failure; /* is sent in place of data, once there is an error */
    /* No more steps begin, because a rank is lost: that of a message, or one of
     * which a peer that has refused a message tells this rank. The run is then
     * withdrawn, which names the lost rank. */
    bool halted;
    uint32_t n_left; /* steps that have not ended */
    uint32_t n_flying; /* messages under way */
    psc_step_queue_t ready; /* steps that wait for nothing any more */
    psc_step_queue_t calls; /* reductions for which `combine` is to be called */
    bool calling; /* a thread is calling `combine` */
    bool withdrawn; /* no more steps begin */
    psc_active_step_t steps[]; /* then the queues, then scratch memory */
};

/* ---- run.c ---- */

/* Make a run of a plan, which it takes over. Returns NULL if memory is short;
 * the plan is then the caller's. */
psc_run_t *psc_run_create(psc_group_t *group, psc_plan_t *plan,
                          const psc_coll_args_t *args);
/* A run ends: the plan has one user less. */
void psc_run_drop(psc_run_t *run);
/* Free a group and its runs, even those that have not ended. */
void psc_group_free(psc_group_t *group);
/* The memory of a piece. */
uint8_t *psc_run_at(const psc_run_t *run, psc_range_t piece);
/* The step has ended: those that wait for it may begin. */
void psc_run_step_ended(psc_run_t *run, psc_active_step_t *step);
/* The next pass takes up the run. */
void psc_run_list(psc_run_t *run);
/* The run can go on: the next pass takes it up, or the release of the lock. */
void psc_run_wake(psc_run_t *run);
/* An error has occurred on a rank. nbytes: see coll_start in psc_api_t. */
void psc_run_fail(psc_run_t *run, psc_status_t status, int rank,
                  uint64_t nbytes);
/* Withdraw the run, for this reason. rank: the one that was lost, or -1. */
void psc_run_withdraw(psc_run_t *run, psc_status_t reason, int rank);

/* ---- plans.c ---- */

/* Returns the plan of a task, for one more user: one that was made before, or a
 * new one. NULL if memory is short. */
psc_plan_t *psc_plans_take(psc_group_t *group, const psc_algorithm_t *algorithm,
                           const psc_task_t *task);
void psc_plans_free(psc_group_t *group);

/* ---- check.c ---- */

/* Returns true if the collective combines operands. */
static inline bool psc_coll_reduces(psc_coll_t coll)
{
    return coll >= PSC_COLL_REDUCE && coll <= PSC_COLL_REDUCE_SCATTER;
}

/* Returns the collective that the program has called. */
psc_coll_t psc_coll_called(const psc_coll_args_t *args);
/* Returns the plan by which each rank gets what all have called, for one more
 * user. NULL if memory is short. */
psc_plan_t *psc_check_plan(psc_group_t *group);
/* Put a check before a run, which has not begun. Returns the run of the check,
 * which has the same request; NULL if memory is short. */
psc_run_t *psc_check_create(psc_run_t *run, const psc_coll_args_t *args);
/* The run of a check has ended. Returns the run that may begin now; NULL, and
 * the check's run has an error, if none may. */
psc_run_t *psc_check_end(psc_run_t *check);

/* ---- advance.c ---- */

/* Start the steps that wait for nothing. */
void psc_run_begin(psc_run_t *run);
/* Continue the runs of a worker that can go on. Returns how many have. */
unsigned psc_runs_advance(psc_worker_t *worker);
/* Returns the operands of the function that is to be called, or false if there
 * is none. */
bool psc_run_take_call(psc_run_t *run, const void **in_p, void **inout_p,
                       uint64_t *n_p);
/* The function has returned. */
void psc_run_called(psc_run_t *run, psc_status_t status);

/* ---- messages.c ---- */

/* The tag of the run's messages. */
int32_t psc_run_tag(const psc_run_t *run);
/* Begin a step that sends or receives. */
void psc_step_send(psc_run_t *run, psc_active_step_t *step,
                   const psc_step_t *plan);
void psc_step_recv(psc_run_t *run, psc_active_step_t *step,
                   const psc_step_t *plan);

/* ---- loss.c ---- */

/* The rank in the job of a rank of the group. */
int psc_group_member(const psc_group_t *group, int rank);
/* A group begins: it may have a rank that is lost already. */
void psc_loss_begin(psc_group_t *group);
/* Handle the ranks that were lost since the last call: end the runs of their
 * groups, and tell the other ranks. */
void psc_loss_spread(psc_worker_t *worker);
/* Let other ranks tell this one of ranks that they have lost. */
psc_status_t psc_loss_listen(psc_worker_t *worker);

/* ---- group.c and operations.c ---- */

/* The functions of psc_api_t. Those that change a group, or start something,
 * take the lock. */

psc_status_t psc_group_create(psc_worker_t *worker,
                              const psc_group_args_t *args,
                              psc_group_t **group_p);
void psc_group_destroy(psc_group_t *group);
psc_status_t psc_group_connect(psc_group_t *group, int rank, psc_conn_t *conn);
int psc_group_wanted(const psc_group_t *group);
psc_status_t psc_coll_start(psc_group_t *group, const psc_coll_args_t *args,
                            psc_request_t **request_p);
psc_status_t psc_coll_call(psc_request_t *request);
psc_status_t psc_coll_init(psc_group_t *group, const psc_coll_args_t *args,
                           psc_persistent_t **persistent_p);
void psc_coll_free(psc_persistent_t *persistent);
void psc_coll_differs(const psc_group_t *group, psc_called_t called[2]);
psc_status_t psc_coll_explain(const psc_group_t *group,
                              const psc_coll_args_t *args, char *text,
                              size_t room);
psc_status_t psc_coll_combine(const psc_coll_args_t *args, const void *in,
                              void *inout);
