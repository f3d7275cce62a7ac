/* Collectives that fail: ranks call different ones, or one rank is lost. */
#include "collectives.h"
#include "pscompy/core/types/connection.h"

/* ---- checks ---- */

CASE(collectives_with_checks)
{
    order_t order;

    if (harness_one_worker())
        return;
    checks = true;
    ranks_open();
    for (unsigned i = 0; order_make(i, &order); i += 3)
        all_do(&order);
    ranks_close();
    checks = false;
}

/* One rank calls something else: all learn of both calls. */
CASE(collectives_that_differ)
{
    order_t most = {.coll = PSC_COLL_BARRIER},
            odd = {.coll = PSC_COLL_BCAST, .n = 40};
    psc_called_t called[2];

    if (harness_one_worker())
        return;
    checks = true;
    ranks_open();
    for (int i = 0; i < RANKS; i++)
        rank_start(&ranks[i], i, i == 3 ? &odd : &most);
    for (int left = RANKS; left > 0;) {
        left = 0;
        for (int i = 0; i < RANKS; i++) {
            api->progress(ranks[i].side.worker, 0);
            left += !done(ranks[i].request);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        psc_result_t result = ranks[i].request->result;

        check(result.status == PSC_ERR_INVALID && result.rank == 3);
        check(result.nbytes == PSC_COLL_DIFFERS);
        api->coll_differs(ranks[i].group, called);
        check(called[0].coll == PSC_COLL_BARRIER);
        check(called[1].coll == PSC_COLL_BCAST);
        check(called[1].nbytes == 40 * sizeof(affine_t));
        api->request_free(ranks[i].request);
        ranks[i].request = NULL;
    }
    all_do(&odd);
    ranks_close();
    checks = false;
}

/* ---- losses ---- */

enum { VICTIM = 2, ROUNDS_MOST = 400 };

/* The connections of the others to the victim fail. */
static void victim_ends(void)
{
    for (int i = 0; i < RANKS; i++) {
        if (i != VICTIM)
            lane_fail(psc_conn_main_lane(ranks[i].conns[VICTIM]));
    }
}

/* Returns true when the rank's operation has ended. If it has not failed it has
 * the right result. The memory is then the program's again. */
static bool survivor_ended(rank_t *rank, int number, const order_t *order)
{
    psc_result_t result;

    if (!rank->request) {
        rank_check(rank, number, order);
        return true;
    }
    if (psc_request_state(rank->request) == PSC_REQUEST_MATCHED)
        api->coll_call(rank->request);
    if (!done(rank->request))
        return false;
    result = rank->request->result;
    if (result.status == PSC_OK)
        rank_check(rank, number, order);
    else
        check(result.status == PSC_ERR_PEER_LOST && result.rank == VICTIM);
    return true;
}

/* All ranks make progress `rounds` times, then one ends. Returns true if all
 * had done the collective before. */
static bool loses_after(const order_t *order, int rounds)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;
    bool all = true;
    int left;

    ranks_open();
    for (int i = 0; i < RANKS; i++)
        check(rank_start(&ranks[i], i, order));
    for (int round = 0; round < rounds; round++) {
        all = true;
        for (int i = 0; i < RANKS; i++) {
            api->progress(ranks[i].side.worker, 0);
            all &= survivor_ended(&ranks[i], i, order);
        }
    }
    victim_ends();
    do {
        check(psc_clock_now() < end);
        left = RANKS - 1;
        for (int i = 0; i < RANKS; i++) {
            if (i == VICTIM)
                continue;
            api->progress(ranks[i].side.worker, 0);
            left -= survivor_ended(&ranks[i], i, order);
        }
    } while (left > 0);
    for (int i = 0; i < RANKS; i++) {
        if (ranks[i].request && done(ranks[i].request))
            api->request_free(ranks[i].request);
        ranks[i].request = NULL;
    }
    ranks_close();
    return all && rounds > 0;
}

/* Returns true if the collective has this algorithm. */
static bool order_exists(const order_t *order)
{
    bool exists;

    ranks_open();
    exists = rank_start(&ranks[0], 0, order);
    ranks[0].request = NULL;
    ranks_close();
    return exists;
}

/* Returns true for a few orders of each algorithm: short and long operands; the
 * rank that is lost is a leaf, and the root where there is one. */
static bool order_loses(const order_t *order)
{
    bool rooted =
        order->coll == PSC_COLL_BCAST || order->coll == PSC_COLL_REDUCE ||
        order->coll == PSC_COLL_GATHER || order->coll == PSC_COLL_SCATTER;

    return order->n > 1 && (reduces(order->coll) || !order->composes) &&
           (order->root == 0 || (order->root == VICTIM && rooted)) &&
           order_exists(order);
}

/* One rank is lost at every step of every algorithm: that many rounds of
 * progress after the start. */
CASE(losses_amid_collectives)
{
    order_t order;

    if (harness_one_worker())
        return;
    for (unsigned i = 0; order_make(i, &order); i++) {
        int rounds = 0;

        while (order_loses(&order) && !loses_after(&order, rounds))
            check(++rounds < ROUNDS_MOST);
    }
}
