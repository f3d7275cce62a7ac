/* Collectives by every algorithm among workers of one process: driven by one
 * thread, and by two threads for each rank. */
#include <pthread.h>
#include <stdatomic.h>

#include "collectives.h"

rank_t ranks[RANKS];
static const char *const algorithms[] = {NULL,       "tree",  "parts",
                                         "doubling", "pairs", "modules"};
static const uint64_t counts[] = {0, 1, 40, MOST};

static psc_status_t compose(const void *in, void *inout, uint64_t n, void *arg)
{
    const affine_t *lower = in;
    affine_t *higher = inout;

    (void)arg;
    for (uint64_t i = 0; i < n; i++) {
        higher[i].b += higher[i].a * lower[i].b;
        higher[i].a *= lower[i].a;
    }
    return PSC_OK;
}

static void add(const affine_t *in, affine_t *inout)
{
    inout->a += in->a;
    inout->b += in->b;
}

static affine_t operand(int rank, uint64_t i)
{
    return (affine_t){(uint64_t)rank * 2 + 3 + i % 5, i * 7 + (uint64_t)rank};
}

/* Element i of the operands of the ranks before `end`, combined. */
static affine_t combined(const order_t *order, int end, uint64_t i)
{
    affine_t sum = operand(0, i);

    for (int rank = 1; rank < end; rank++) {
        affine_t next = operand(rank, i);

        if (order->composes)
            compose(&sum, &next, 1, NULL);
        else
            add(&sum, &next);
        sum = next;
    }
    return sum;
}

/* ---- start ---- */

static bool has_parts(psc_coll_t coll)
{
    return coll >= PSC_COLL_REDUCE_SCATTER;
}

bool reduces(psc_coll_t coll)
{
    return coll >= PSC_COLL_REDUCE && coll <= PSC_COLL_REDUCE_SCATTER;
}

static void rank_fill(rank_t *rank, int number, const order_t *order)
{
    uint64_t n = order->n * (has_parts(order->coll) ? RANKS : 1);

    for (uint64_t i = 0; i < n; i++) {
        rank->send[i] = operand(number, i);
        rank->recv[i] =
            order->coll == PSC_COLL_BCAST ? operand(number, i) : (affine_t){0};
    }
}

/* Returns false if there is no such algorithm of the collective. */
bool rank_start(rank_t *rank, int number, const order_t *order)
{
    bool builtin = reduces(order->coll) && !order->composes;
    psc_coll_args_t args = {.coll = order->coll,
                            .send = rank->send,
                            .recv = rank->recv,
                            .size = builtin ? 8 : sizeof(affine_t),
                            .count = builtin ? 2 * order->n : order->n,
                            .op = PSC_OP_SUM,
                            .type = PSC_TYPE_UINT64,
                            .combine = order->composes ? compose : NULL,
                            .root = order->root};
    psc_status_t status;

    rank_fill(rank, number, order);
    rank->request = NULL;
    args.algorithm = order->algorithm;
    status = api->coll_start(rank->group, &args, &rank->request);
    check(status == PSC_OK || status == PSC_INPROGRESS ||
          status == PSC_ERR_UNSUPPORTED);
    return status != PSC_ERR_UNSUPPORTED;
}

/* ---- results ---- */

/* Where element i of the result comes from: a rank, and the index there. */
static affine_t wanted(const order_t *order, int number, uint64_t i)
{
    uint64_t n = order->n, part = (uint64_t)number * n;

    switch (order->coll) {
    case PSC_COLL_BCAST:
        return operand(order->root, i);
    case PSC_COLL_SCAN:
        return combined(order, number + 1, i);
    case PSC_COLL_EXSCAN:
        return combined(order, number, i);
    case PSC_COLL_REDUCE_SCATTER:
        return combined(order, RANKS, part + i);
    case PSC_COLL_SCATTER:
        return operand(order->root, part + i);
    case PSC_COLL_GATHER:
    case PSC_COLL_ALLGATHER:
        return operand((int)(i / n), i % n);
    case PSC_COLL_ALLTOALL:
        return operand((int)(i / n), part + i % n);
    default:
        return combined(order, RANKS, i);
    }
}

static uint64_t result_length(const order_t *order, int number)
{
    psc_coll_t coll = order->coll;

    if (coll == PSC_COLL_BARRIER || (coll == PSC_COLL_EXSCAN && number == 0))
        return 0;
    if ((coll == PSC_COLL_REDUCE || coll == PSC_COLL_GATHER) &&
        number != order->root)
        return 0;
    if (coll >= PSC_COLL_GATHER && coll != PSC_COLL_SCATTER)
        return order->n * RANKS;
    return order->n;
}

void rank_check(const rank_t *rank, int number, const order_t *order)
{
    for (uint64_t i = 0; i < result_length(order, number); i++) {
        affine_t right = wanted(order, number, i);

        check(memcmp(&rank->recv[i], &right, sizeof right) == 0);
    }
}

/* Returns true when the rank's operation has ended. */
static bool rank_ended(rank_t *rank)
{
    if (!rank->request)
        return true;
    if (psc_request_state(rank->request) == PSC_REQUEST_MATCHED)
        api->coll_call(rank->request);
    if (!done(rank->request))
        return false;
    check(rank->request->result.status == PSC_OK);
    api->request_free(rank->request);
    rank->request = NULL;
    return true;
}

/* ---- all ranks ---- */

bool checks; /* psc_group_args_t.check of the next groups */

void ranks_open(void)
{
    static const int32_t modules[RANKS] = {1, 1, 2, 2, 1};

    for (int i = 0; i < RANKS; i++) {
        side_open(&ranks[i].side, (uint32_t)i);
        psc_group_args_t args = {.context = PSC_CONTEXT_USER + 1,
                                 .rank = i,
                                 .size = RANKS,
                                 .modules = modules,
                                 .check = checks};

        check(psc_worker_open_context(ranks[i].side.worker, PSC_CONTEXT_USER) ==
              PSC_OK);

        check(api->group_create(ranks[i].side.worker, &args, &ranks[i].group) ==
              PSC_OK);
    }
    for (int i = 0; i < RANKS; i++) {
        for (int k = 0; k < i; k++) {
            pair_t pair = {ranks[i].side, ranks[k].side};
            psc_conn_t *a, *b;

            pair_join(&pair, &a, &b);
            psc_conn_set_rank(a, k);
            psc_conn_set_rank(b, i);
            ranks[i].conns[k] = a;
            ranks[k].conns[i] = b;
            check(api->group_connect(ranks[i].group, k, a) == PSC_OK);
            check(api->group_connect(ranks[k].group, i, b) == PSC_OK);
        }
    }
}

void ranks_close(void)
{
    pthread_t threads[RANKS];

    for (int i = 0; i < RANKS; i++) {
        api->group_destroy(ranks[i].group);
        check(!pthread_create(&threads[i], NULL, side_close, &ranks[i].side));
    }
    for (int i = 0; i < RANKS; i++)
        check(!pthread_join(threads[i], NULL));
}

/* Order number i of all; false: there are no more. */
bool order_make(unsigned i, order_t *order)
{
    enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms, COUNTS = 4 };

    *order = (order_t){.composes = i % 2, .root = (int)(i / 2 % RANKS)};
    i /= 2;
    order->n = counts[i % COUNTS];
    order->algorithm = algorithms[i / COUNTS % ALGORITHMS];
    order->coll = (psc_coll_t)(i / COUNTS / ALGORITHMS);
    return order->coll < PSC_COLL_COUNT;
}

void all_do(const order_t *order)
{
    int64_t end = psc_clock_now() + PATIENCE_NS;
    int left = RANKS;

    for (int i = 0; i < RANKS; i++) {
        if (!rank_start(&ranks[i], i, order))
            return;
    }
    while (left > 0) {
        left = RANKS;
        check(psc_clock_now() < end);
        for (int i = 0; i < RANKS; i++) {
            api->progress(ranks[i].side.worker, 0);
            left -= rank_ended(&ranks[i]);
        }
    }
    for (int i = 0; i < RANKS; i++)
        rank_check(&ranks[i], i, order);
}

CASE(collectives)
{
    order_t order;

    if (harness_one_worker())
        return;
    ranks_open();
    for (unsigned i = 0; order_make(i, &order); i++)
        all_do(&order);
    ranks_close();
}

CASE(operands_are_combined)
{
    affine_t lower = operand(0, 0), higher = operand(1, 0), right = higher;
    psc_coll_args_t args = {
        .size = sizeof lower, .count = 1, .combine = compose};

    compose(&lower, &right, 1, NULL);
    check(api->coll_combine(&args, &lower, &higher) == PSC_OK);
    check(memcmp(&higher, &right, sizeof right) == 0);
    add(&lower, &right);
    args = (psc_coll_args_t){
        .size = 8, .count = 2, .op = PSC_OP_SUM, .type = PSC_TYPE_UINT64};
    check(api->coll_combine(&args, &lower, &higher) == PSC_OK);
    check(memcmp(&higher, &right, sizeof right) == 0);
    args.op = PSC_OP_BAND;
    args.type = PSC_TYPE_FLOAT64;
    check(api->coll_combine(&args, &lower, &higher) == PSC_ERR_UNSUPPORTED);
}

/* ---- with threads ---- */

static atomic_bool over;

static void *makes_progress(void *arg)
{
    rank_t *rank = arg;

    while (!atomic_load(&over))
        api->progress(rank->side.worker, 1000000);
    return NULL;
}

static void *calls_all(void *arg)
{
    rank_t *rank = arg;
    int number = (int)(rank - ranks);
    order_t order;

    for (unsigned i = 0; order_make(i, &order); i++) {
        if (!rank_start(rank, number, &order))
            continue;
        while (!rank_ended(rank)) {
            psc_request_t *const one[] = {rank->request};

            api->wait(rank->side.worker, one, 1, PSC_WAIT_ALL, 1000000);
        }
        rank_check(rank, number, &order);
    }
    return NULL;
}

CASE(collectives_in_threads)
{
    pthread_t callers[RANKS], others[RANKS];

    if (harness_one_worker())
        return;
    ranks_open();
    atomic_store(&over, false);
    for (int i = 0; i < RANKS; i++) {
        check(!pthread_create(&callers[i], NULL, calls_all, &ranks[i]));
        check(!pthread_create(&others[i], NULL, makes_progress, &ranks[i]));
    }
    for (int i = 0; i < RANKS; i++)
        check(!pthread_join(callers[i], NULL));
    atomic_store(&over, true);
    for (int i = 0; i < RANKS; i++)
        check(!pthread_join(others[i], NULL));
    ranks_close();
}
