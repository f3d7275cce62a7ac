#include "lost_ranks.h"

#include <stdlib.h>

psc_lost_rank_t *psc_lost_rank_find(const psc_worker_t *worker, int rank)
{
    psc_list_for_each(lost, (psc_list_t *)&worker->runs.lost, psc_lost_rank_t,
                      link) {
        if (lost->rank == rank)
            return lost;
    }
    return NULL;
}

void psc_lost_rank_add(psc_worker_t *worker, int rank, psc_status_t status)
{
    psc_lost_rank_t *lost;

    if (rank < 0 || psc_lost_rank_find(worker, rank))
        return;
    lost = malloc(sizeof *lost);
    if (!lost)
        return;
    *lost = (psc_lost_rank_t){.rank = rank, .status = status};
    psc_list_push(&worker->runs.lost, &lost->link);
    worker->runs.news = true;
    if (worker->runs.engine)
        atomic_fetch_or(&worker->mail, PSC_MAIL_RUNS);
}

void psc_lost_ranks_clear(psc_worker_t *worker)
{
    psc_list_for_each(lost, &worker->runs.lost, psc_lost_rank_t, link)
        free(lost);
    psc_list_init(&worker->runs.lost);
}
