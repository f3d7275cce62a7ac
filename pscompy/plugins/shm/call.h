/* The word `call` in the control page of a ring, by which two ranks agree on a
 * connection.
 *
 * Each pair of ranks has two rings in the node file (inbox.h), one for each
 * direction. To ask for a connection, a rank makes a call in the ring into
 * which it writes. If the other rank wants the connection, too, it makes a
 * call in its own ring, and takes the first rank's call. The first rank then
 * takes the call of the other one. States of a call, and who changes them:
 *
 *   NONE -> MADE               the rank that makes the call
 *           MADE -> TAKEN      the other rank, whose endpoint is up then, or
 *                              has failed (shm_trial_judge)
 *           MADE -> REFUSED    the other rank
 *           MADE -> WITHDRAWN  the rank that made the call, and gives up
 *
 * So a rank whose call was taken knows that the other one may be up. If both
 * ranks ask at once, each takes the other's call, and they have one
 * connection. A ring is used for one connection only; after that the two ranks
 * use a socket. */
#pragma once

#include "shm.h"

typedef enum shm_call {
    SHM_CALL_NONE,
    SHM_CALL_MADE,
    SHM_CALL_TAKEN,
    SHM_CALL_REFUSED,
    SHM_CALL_WITHDRAWN
} shm_call_t;

/* flag in the word of a call: the rank that calls can read the other rank's
 * memory */
#define SHM_CALL_CMA 0x100u

static inline shm_call_t shm_call_state(const shm_ring_t *ring)
{
    return (shm_call_t)(atomic_load(&ring->control->call) & ~SHM_CALL_CMA);
}

/* Changes a call from MADE to `to`. Returns false if the call is in
 * another state. Sets *was_p to the call's word before the change. */
static inline bool shm_call_step(const shm_ring_t *ring, shm_call_t to,
                                 uint32_t *was_p)
{
    while (shm_call_state(ring) == SHM_CALL_MADE) {
        *was_p =
            SHM_CALL_MADE | (atomic_load(&ring->control->call) & SHM_CALL_CMA);
        if (atomic_compare_exchange_strong(&ring->control->call, was_p,
                                           (uint32_t)to))
            return true;
    }
    return false;
}

/* Returns true if the peer has taken the endpoint's call; the peer may then be
 * up already. */
static inline bool shm_call_taken(const shm_ep_t *ep)
{
    return shm_call_state(&ep->tx.ring) == SHM_CALL_TAKEN;
}

static inline void shm_call_withdraw(const shm_ep_t *ep)
{
    uint32_t was;

    shm_call_step(&ep->tx.ring, SHM_CALL_WITHDRAWN, &was);
}
