/* The word in a ring by which two ranks agree on a connection.
 *
 * A rank calls another one by its offer in the control page of its ring in the
 * other's inbox. The other takes the offer, and makes one of its own in the
 * caller's inbox. Each side is up once it has taken the offer of the other:
 *
 *   NONE -> OFFERED -> TAKEN      by the other rank, which is up
 *                   -> REFUSED    by the other rank
 *                   -> WITHDRAWN  by the rank itself, which has given up
 *
 * So a rank whose offer was taken knows that the other one may be up, and if
 * both call at once, both take the same connection. A ring is used for one
 * connection only; after that the two ranks use a link. */
#ifndef PSCOMPY_SHM_CALL_H
#define PSCOMPY_SHM_CALL_H

#include "shm.h"

typedef enum shm_call {
    SHM_CALL_NONE,
    SHM_CALL_OFFERED,
    SHM_CALL_TAKEN,
    SHM_CALL_REFUSED,
    SHM_CALL_WITHDRAWN
} shm_call_t;

/* flag of an offer: the rank that offers can read the other rank's memory */
#define SHM_CALL_CMA 0x100u

static inline shm_call_t shm_offer_state(const shm_ring_t *ring)
{
    return (shm_call_t)(atomic_load(&ring->control->offer) & ~SHM_CALL_CMA);
}

/* Changes an offer from OFFERED to `to`. Returns false in any other state.
 * *was_p: the offer before the change. */
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

/* True if the called rank has taken the endpoint's offer; the rank may then be
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

#endif
