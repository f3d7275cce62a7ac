/* The active endpoints: those whose rings every pass of progress reads.
 *
 * The first SHM_ACTIVE_MIN endpoints that are up are active, and so is each
 * endpoint that has received something. If more than SHM_ACTIVE_MIN are active,
 * those that have received nothing between two looks (calls of shm_active_look)
 * become idle. The states of an endpoint (shm_watch_t):
 *
 *   POLLED  active
 *   NOTED   active; the flag `sleeping` of the ring is SHM_WAKE_BITMAP, by
 *           which the peer is asked to set its bit on our bitmap (bitmap.h)
 *   IDLE    not active; the flag is SHM_WAKE_BITMAP, too
 *   BELL    not active; the flag is SHM_WAKE_BITMAP | SHM_WAKE_DOORBELL,
 *           because this process has gone to sleep since the endpoint became
 *           idle
 *
 * The peer publishes a record and then reads the flag `sleeping`; one look sets
 * the flag, and the next look reads the ring before it makes the endpoint idle.
 * Between the two steps is a fence on either side, as described in sleep.c. So
 * either the peer sees the flag, or the look sees the record. An endpoint that
 * begins as idle has the flag set before its peer is up.
 *
 * The bitmap is a hint that other peers may spoil. Therefore the rings of idle
 * endpoints are read before this process sleeps (sleep.c), and every
 * SHM_LOOKS_SCAN looks. An endpoint for which the bitmap has no bit left stays
 * active. */
#include <stdlib.h>
#include <string.h>

#include "shm.h"

#define SHM_ACTIVE_MIN 8u
#define SHM_LOOKS_SCAN 16u

/* ---- the endpoint's bit ---- */

static bool shm_bits_grow(shm_iface_t *iface)
{
    uint32_t n = iface->n_bits > 0 ? 2 * iface->n_bits : 64;
    shm_ep_t **bits =
        n > SHM_BITMAP_BITS ? NULL : realloc(iface->bits, n * sizeof *bits);

    if (bits == NULL)
        return false;
    memset(bits + iface->n_bits, 0, (n - iface->n_bits) * sizeof *bits);
    iface->bits = bits;
    iface->n_bits = n;
    return true;
}

void shm_active_enrol(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    uint32_t bit = 0;

    while (bit < iface->n_bits && iface->bits[bit] != NULL)
        bit++;
    if (bit == iface->n_bits && !shm_bits_grow(iface))
        return;
    iface->bits[bit] = ep;
    ep->bit = bit;
}

/* ---- becoming active ---- */

void shm_active_add(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    uint32_t flag;

    if (ep->watch == SHM_WATCH_POLLED)
        return;
    flag = atomic_exchange_explicit(&ep->rx.ring.control->sleeping,
                                    iface->armed ? SHM_WAKE_DOORBELL : 0,
                                    memory_order_relaxed);
    iface->rung |= ep->watch == SHM_WATCH_DOORBELL && flag == 0;
    iface->n_noted -= ep->watch == SHM_WATCH_NOTED;
    iface->n_quiet -= ep->watch == SHM_WATCH_IDLE;
    iface->n_idle -= ep->watch >= SHM_WATCH_IDLE;
    if (ep->watch != SHM_WATCH_NOTED) {
        ep->at = iface->n_active++;
        iface->active[ep->at] = ep;
    }
    ep->watch = SHM_WATCH_POLLED;
}

/* Makes the endpoint active or idle. If the peer has set its bit on our bitmap
 * before this call, the bit was ignored, but the record is in the ring, which
 * is checked here. */
void shm_active_begin(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if (iface->n_active < SHM_ACTIVE_MIN || ep->bit == SHM_NO_BIT ||
        shm_consumer_peek(&ep->rx) != 0) {
        shm_active_add(ep);
        return;
    }
    ep->watch = SHM_WATCH_IDLE;
    iface->n_idle++;
    iface->n_quiet++;
}

bool shm_active_notice(shm_ep_t *ep)
{
    if (ep->watch < SHM_WATCH_IDLE || shm_consumer_peek(&ep->rx) == 0)
        return false;
    shm_active_add(ep);
    return true;
}

typedef void (*shm_bit_fn_t)(shm_iface_t *iface, uint32_t bit);

static void shm_active_take_word(shm_iface_t *iface, shm_bitmap_t *bitmap,
                                 uint32_t number, shm_bit_fn_t take)
{
    uint64_t word = shm_bitmap_take(&bitmap->words[number]);

    for (; word != 0; word &= word - 1)
        take(iface, 64 * number + (uint32_t)__builtin_ctzll(word));
}

void shm_active_take(shm_iface_t *iface, shm_bitmap_t *bitmap,
                     shm_bit_fn_t take)
{
    uint64_t groups = shm_bitmap_take(&bitmap->groups);

    for (; groups != 0; groups &= groups - 1)
        shm_active_take_word(iface, bitmap, (uint32_t)__builtin_ctzll(groups),
                             take);
}

static void shm_active_take_bit(shm_iface_t *iface, uint32_t bit)
{
    if (bit < iface->n_bits && iface->bits[bit] != NULL)
        shm_active_notice(iface->bits[bit]);
}

void shm_active_collect(shm_iface_t *iface)
{
    shm_active_take(iface, iface->bitmap, shm_active_take_bit);
}

bool shm_active_scan(shm_iface_t *iface)
{
    bool found = false;

    for (uint32_t i = 0; i < iface->n_eps && iface->n_idle > 0; i++)
        found |= shm_active_notice(iface->eps[i]);
    return found;
}

/* ---- becoming idle ---- */

/* If progress is iterating over the active endpoints, the endpoint that takes
 * the place of `ep` in the array misses this pass at most. */
void shm_active_remove(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if (ep->watch == SHM_WATCH_POLLED || ep->watch == SHM_WATCH_NOTED) {
        iface->active[ep->at] = iface->active[--iface->n_active];
        iface->active[ep->at]->at = ep->at;
    }
    iface->n_noted -= ep->watch == SHM_WATCH_NOTED;
    iface->n_quiet -= ep->watch == SHM_WATCH_IDLE;
    iface->n_idle -= ep->watch >= SHM_WATCH_IDLE;
    ep->watch = SHM_WATCH_NONE;
    if (ep->bit != SHM_NO_BIT)
        (ep->rank < 0 ? iface->bits : iface->ranks)[ep->bit] = NULL;
}

/* Returns true if the endpoint has to stay active. */
static bool shm_active_used(shm_ep_t *ep)
{
    bool used = ep->rx.consumed != ep->seen || ep->bit == SHM_NO_BIT ||
                ep->state != SHM_EP_UP || ep->tx.need > 0 ||
                !psc_list_empty(&ep->copies);

    ep->seen = ep->rx.consumed;
    return used || (ep->watch == SHM_WATCH_NOTED &&
                    (atomic_load_explicit(&ep->rx.ring.control->sleeping,
                                          memory_order_relaxed) == 0 ||
                     shm_consumer_peek(&ep->rx) != 0));
}

static void shm_active_age(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if (ep->watch == SHM_WATCH_POLLED) {
        atomic_store_explicit(&ep->rx.ring.control->sleeping, SHM_WAKE_BITMAP,
                              memory_order_relaxed);
        ep->watch = SHM_WATCH_NOTED;
        iface->n_noted++;
        return;
    }
    ep->watch = SHM_WATCH_IDLE;
    iface->n_noted--;
    iface->n_quiet++;
    iface->n_idle++;
}

/* If too many endpoints are active, those that have received nothing since the
 * last look change from POLLED to NOTED, or from NOTED to IDLE. Endpoints that
 * became active first change first. */
void shm_active_look(shm_iface_t *iface)
{
    uint32_t n, kept = 0, may_leave;

    if (++iface->looks % SHM_LOOKS_SCAN == 0)
        shm_active_scan(iface);
    n = iface->n_active;
    if (n <= SHM_ACTIVE_MIN)
        return;
    may_leave = n - SHM_ACTIVE_MIN;
    if (iface->n_noted > 0)
        shm_source_barrier(iface);
    for (uint32_t i = 0; i < n; i++) {
        shm_ep_t *ep = iface->active[i];

        if (shm_active_used(ep)) {
            shm_active_add(ep);
        } else if (may_leave > 0) {
            shm_active_age(ep);
            may_leave--;
        }
        if (ep->watch < SHM_WATCH_IDLE) {
            ep->at = kept;
            iface->active[kept++] = ep;
        }
    }
    iface->n_active = kept;
}

/* ---- sleeping ---- */

bool shm_active_ask_doorbell(shm_iface_t *iface)
{
    if (iface->n_quiet == 0)
        return false;
    iface->n_quiet = 0;
    for (uint32_t i = 0; i < iface->n_eps; i++) {
        shm_ep_t *ep = iface->eps[i];

        if (ep->watch != SHM_WATCH_IDLE)
            continue;
        ep->watch = SHM_WATCH_DOORBELL;
        atomic_store_explicit(&ep->rx.ring.control->sleeping,
                              SHM_WAKE_BITMAP | SHM_WAKE_DOORBELL,
                              memory_order_relaxed);
    }
    return true;
}
