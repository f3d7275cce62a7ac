/* Cases of shm alone: ranks of a job that call each other by their numbers. */
#include <unistd.h>

#include "shm_cases.h"

static const uint8_t job_key[PSC_TOKEN_SIZE] = {'j', 'o', 'b'};

/* The end that answers calls, or NULL if they are refused. */
static ct_end_t *answering;

static psc_status_t call_arrives(psc_iface_t *iface, int rank)
{
    if (answering == NULL)
        return PSC_ERR_INVALID;
    ct_end_create(answering, iface->user);
    return iface->ops->ep_call(answering->ep, rank) < 0 ? PSC_ERR_CONNECT
                                                        : PSC_OK;
}

/* Two sides that have joined one job as ranks 0 and 1. */
static void job_open(ct_pair_t *pair)
{
    static psc_upcalls_t up;
    int fd;

    ct_pair_open(pair);
    ct_end_abandon(&pair->x);
    ct_end_abandon(&pair->y);
    up = *pair->a->iface->up;
    up.rank_calls = call_arrives;
    pair->a->iface->up = pair->b->iface->up = &up;
    ct_check(ct_ops->join(pair->a->iface, job_key, 0, &fd) == PSC_OK, "a");
    ct_check(ct_ops->join(pair->b->iface, job_key, 1, &fd) == PSC_OK, "b");
    ct_check(fd >= 0, "no descriptor");
    pair->x.ep = pair->y.ep = NULL;
    answering = NULL;
}

static void job_call(ct_end_t *end, ct_side_t *side, int rank)
{
    ct_end_create(end, side);
    ct_check(ct_ops->ep_call(end->ep, rank) == PSC_INPROGRESS, "ep_call");
}

static void job_talk(ct_pair_t *pair)
{
    ct_until(pair, pair->x.up && pair->y.ep != NULL && pair->y.up);
    ct_exchange(pair, &pair->x, &pair->y, CT_BCOPY, 100, 1);
    ct_exchange(pair, &pair->y, &pair->x, CT_BCOPY, 100, 1);
    ct_pair_down(pair);
}

void a_rank_answers(void)
{
    ct_pair_t pair;
    int process;

    job_open(&pair);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.up && pair.y.ep != NULL && pair.y.up);
    ct_check(!ct_ops->ep_called(pair.x.ep, &process), "the caller");
    ct_check(ct_ops->ep_called(pair.y.ep, &process), "the called one");
    ct_check(process == (int)getpid(), "process %d", process);
    job_talk(&pair);
}

void ranks_call_each_other(void)
{
    for (unsigned late = 0; late < 8; late++) {
        ct_pair_t pair;

        job_open(&pair);
        job_call(&pair.x, pair.a, 1);
        job_call(&pair.y, pair.b, 0);
        for (unsigned i = 0; i < late / 2; i++)
            ct_side_progress(late % 2 == 0 ? pair.a : pair.b);
        job_talk(&pair);
    }
}

void a_call_is_refused(void)
{
    ct_pair_t pair;

    job_open(&pair);
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.failed);
    ct_check(strstr(pair.x.reason, "not expected to call"), "%s",
             pair.x.reason);
    ct_pair_down(&pair);
}

void a_call_without_the_key(void)
{
    ct_pair_t pair;

    job_open(&pair);
    answering = &pair.y;
    side_iface(pair.a)->key[0]++;
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(strstr(pair.x.reason, "does not hold"), "%s", pair.x.reason);
    ct_pair_down(&pair);
}

void a_call_of_nobody(void)
{
    ct_pair_t pair;

    job_open(&pair);
    ct_end_create(&pair.x, pair.a);
    ct_check(ct_ops->ep_call(pair.x.ep, 2) == PSC_ERR_CONNECT, "rank 2");
    ct_check(ct_ops->ep_call(pair.x.ep, 0) == PSC_ERR_INVALID, "its own");
    ct_end_destroy(&pair.x, pair.b);
    pair.x.ep = NULL;
    ct_pair_down(&pair);
}
