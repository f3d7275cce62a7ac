/* Cases of shm alone: receives that the peer sees and takes. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "shm_advert.h"

/* x takes the receive of y that it sees first. */
static psc_status_t advert_take(ct_pair_t *pair, const char *from,
                                ct_send_t *send)
{
    psc_advertised_t advertised[PSC_EXPOSED_MAX];
    uint64_t seen;

    if (ct_ops->exposed(pair->x.ep, advertised, &seen) == 0)
        return PSC_ERR_UNSUPPORTED;
    ct_send_make(send);
    return ct_ops->claim(pair->x.ep, &advertised[0], advertised[0].match, from,
                         LEN, &send->comp);
}

/* ---- sleeping ---- */

typedef struct nap {
    ct_pair_t pair;
    advert_t shown;
    char *from;
    ct_send_t send;
    shm_entry_t *entry;
} nap_t;

#define quiet(nap, side)                                                       \
    ct_until(&(nap)->pair, ct_ops->arm((side)->iface) == PSC_OK)

static int readable(ct_side_t *side, int ms)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    return poll(&fd, 1, ms);
}

/* x takes the receive, with one record of one line, and either side takes all
 * pieces and is stopped before it copies. */
static void nap_begin(nap_t *nap)
{
    uint64_t x_lines, y_lines;

    *nap = (nap_t){.shown = {.buffer = calloc(1, LEN)}, .from = malloc(LEN)};
    memset(nap->from, 7, LEN);
    ct_pair_up(&nap->pair);
    advert_expose(&nap->pair, &nap->shown, 2);
    quiet(nap, nap->pair.a);
    ct_pair_progress(&nap->pair);
    x_lines = end_ep(&nap->pair.x)->tx.produced;
    y_lines = end_ep(&nap->pair.y)->tx.produced;
    ct_check(advert_take(&nap->pair, nap->from, &nap->send) == PSC_INPROGRESS,
             "claim");
    ct_check(end_ep(&nap->pair.x)->tx.produced == x_lines + 1 &&
                 end_ep(&nap->pair.y)->tx.produced == y_lines,
             "more than one record");
    ct_check(ct_ops->arm(nap->pair.a->iface) == PSC_ERR_NO_RESOURCE,
             "the claimer sleeps beside bytes that it can copy");
    nap->entry =
        &end_ep(&nap->pair.x)->rx.ring.table->entries[nap->shown.recv.entry];
    atomic_fetch_add(&nap->entry->cursor.taken, LEN / SHM_COPY_PAGE + 1);
}

static void nap_end(nap_t *nap)
{
    ct_pair_down(&nap->pair);
    ct_check(!nap->shown.ours, "the receive did not end");
    free(nap->shown.buffer);
    free(nap->from);
}

/* A side that waits for the other's copy sleeps, and the report wakes it. */
static void nap_of_claimer(nap_t *nap)
{
    quiet(nap, nap->pair.a);
    ct_check(readable(nap->pair.a, 0) == 0 && !nap->send.done, "no nap");
    atomic_store(&nap->entry->cursor.copied[SHM_FRONT], LEN);
    shm_ep_wake(end_ep(&nap->pair.y));
    ct_check(readable(nap->pair.a, CT_PATIENCE_S * 1000) == 1, "wake-up lost");
    ct_until(&nap->pair, nap->send.done);
    ct_check(nap->send.status == PSC_OK, "%s",
             psc_status_string(nap->send.status));
}

static void nap_of_owner(nap_t *nap)
{
    quiet(nap, nap->pair.b);
    ct_check(readable(nap->pair.b, 0) == 0 && nap->shown.taken == 1 &&
                 nap->shown.landed == 0,
             "no nap");
    atomic_store(&nap->entry->cursor.copied[SHM_BACK], LEN);
    shm_ep_wake(end_ep(&nap->pair.x));
    ct_check(readable(nap->pair.b, CT_PATIENCE_S * 1000) == 1, "wake-up lost");
    ct_until(&nap->pair, nap->shown.landed == 1);
}

CASE(advert_sleep, .caps = PSC_CAP_EXPOSE)
{
    static nap_t nap;

    nap_begin(&nap);
    nap_of_claimer(&nap);
    nap_end(&nap);
    nap_begin(&nap);
    nap_of_owner(&nap);
    nap_end(&nap);
}

/* ---- a peer that shows and conceals all the time ---- */

typedef struct fickle {
    ct_pair_t pair;
    atomic_bool over;
    unsigned landed;
} fickle_t;

static void fickle_dawdle(dice_t *dice)
{
    for (volatile uint64_t i = dice_roll(dice) % 1000; i > 0; i--)
        ;
}

static void *fickle_owner(void *arg)
{
    fickle_t *fickle = arg;
    advert_t shown = {.buffer = malloc(LEN)};
    dice_t dice = {.state = 5};

    for (unsigned round = 0; round < 20 * ROUNDS; round++) {
        int64_t deadline = ct_deadline();

        advert_expose(&fickle->pair, &shown, 2);
        fickle_dawdle(&dice);
        if (ct_ops->conceal(fickle->pair.y.ep, &shown.recv, 0) == PSC_OK)
            continue;
        while (shown.ours) {
            ct_side_progress(fickle->pair.b);
            ct_check(psc_clock_now() < deadline, "it does not land");
        }
        fickle->landed++;
    }
    atomic_store(&fickle->over, true);
    free(shown.buffer);
    return NULL;
}

/* Each claim that succeeds lands, and no other. */
CASE(advert_and_concealed, .caps = PSC_CAP_EXPOSE, .two_sides = true)
{
    static fickle_t fickle;
    char *from = calloc(1, LEN);
    unsigned placed = 0;
    pthread_t owner;

    ct_pair_up(&fickle.pair);
    ct_check(pthread_create(&owner, NULL, fickle_owner, &fickle) == 0,
             "thread");
    while (!atomic_load(&fickle.over)) {
        ct_send_t send;

        if (advert_take(&fickle.pair, from, &send) != PSC_INPROGRESS)
            continue;
        while (!send.done)
            ct_side_progress(fickle.pair.a);
        ct_check(send.status == PSC_OK, "%s", psc_status_string(send.status));
        placed++;
    }
    ct_check(pthread_join(owner, NULL) == 0, "thread");
    ct_check(placed == fickle.landed && !fickle.pair.y.failed,
             "%u placed, %u landed", placed, fickle.landed);
    ct_pair_down(&fickle.pair);
    free(from);
}
