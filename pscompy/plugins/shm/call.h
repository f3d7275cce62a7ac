/* The word `offer` in the control page of a ring, by which two ranks agree on a
 * connection.
 *
 * Each pair of ranks has two rings in the node file (inbox.h), one for each
 * direction. To ask for a connection, a rank makes an offer in the ring into
 * which it writes. If the other rank wants the connection, too, it makes an
 * offer in its own ring, and takes the first rank's offer. The first rank then
 * takes the offer of the other one. States of an offer, and who changes them:
 *
 *   NONE -> OFFERED               the rank that makes the offer
 *           OFFERED -> TAKEN      the other rank, whose endpoint is up then, or
 *                                 has failed (shm_trial_judge)
 *           OFFERED -> REFUSED    the other rank
 *           OFFERED -> WITHDRAWN  the rank that made the offer, and gives up
 *
 * So a rank whose offer was taken knows that the other one may be up. If both
 * ranks ask at once, each takes the other's offer, and they have one
 * connection. A ring is used for one connection only; after that the two ranks
 * use a link. */
#pragma once

#include "shm.h"

typedef enum shm_call {
    SHM_CALL_NONE,
    SHM_CALL_OFFERED,
    SHM_CALL_TAKEN,
    SHM_CALL_REFUSED,
    SHM_CALL_WITHDRAWN
} shm_call_t;

/* flag in the word of an offer: the rank that offers can read the other rank's
 * memory */
#define SHM_CALL_CMA 0x100u

static inline shm_call_t shm_offer_state(const shm_ring_t *ring)
{
    return (shm_call_t)(atomic_load(&ring->control->offer) & ~SHM_CALL_CMA);
}

/* Changes an offer from OFFERED to `to`. Returns false if the offer is in
 * another state. Sets *was_p to the offer's word before the change. */
static inline bool shm_offer_step(const shm_ring_t *ring, shm_call_t to,
                                  uint32_t *was_p)
{
    while (shm_offer_state(ring) == SHM_CALL_OFFERED) {
        *was_p = SHM_CALL_OFFERED |
                 (atomic_load(&ring->control->offer) & SHM_CALL_CMA);
        if (atomic_compare_exchange_strong(&ring->control->offer, was_p,
                                           (uint32_t)to))
            return true;
    }
    return false;
}

/* Returns true if the peer has taken the endpoint's offer; the peer may then be
 * up already. */
static inline bool shm_call_taken(const shm_ep_t *ep)
{
    return shm_offer_state(&ep->tx.ring) == SHM_CALL_TAKEN;
}

static inline void shm_call_withdraw(const shm_ep_t *ep)
{
    uint32_t was;

    shm_offer_step(&ep->tx.ring, SHM_CALL_WITHDRAWN, &was);
}
