/* The lost ranks of a job: those whose connection to this process has failed,
 * and those that another rank has told the engine of collectives. With the
 * worker's lock held. */
#pragma once

#include "types/worker.h"

typedef struct psc_lost_rank {
    psc_link_t link; /* link in psc_runs_t.lost */
    int rank;        /* rank of the job */
    psc_status_t status;
    bool told; /* the engine has handled it */
} psc_lost_rank_t;

/* Note that a rank is lost, for this reason. The engine handles it when the
 * lock is released, or in the next pass. */
void psc_lost_rank_add(psc_worker_t *worker, int rank, psc_status_t status);
/* Returns the record of a rank, or NULL if the rank is not lost. */
psc_lost_rank_t *psc_lost_rank_find(const psc_worker_t *worker, int rank);
void psc_lost_ranks_clear(psc_worker_t *worker);
