/* The structures of place.c, which copies messages into advertised receives
 * that the sender has taken. adverts.c, the table of such receives, fills them
 * in. */
#pragma once

#include "memory.h"

typedef enum shm_entry_state {
    SHM_ENTRY_FREE,
    SHM_ENTRY_ADVERTISED,
    SHM_ENTRY_TAKEN,
    SHM_ENTRY_ENDED
} shm_entry_state_t;

/* A placement (the copy of a message into a receive that was taken) as one of
 * its sides sees it: an advertised receive of ours, or a receive of the peer
 * that was claimed for a message of ours. */
typedef struct shm_placement {
    psc_exposed_t *recv; /* receive that this side advertised, or NULL */
    psc_comp_t *comp; /* completion of this side's claim */
    uint64_t generation;
    uint8_t *buffer;
    /* address of the other end of the copy, in the peer's process */
    uint64_t there;
    uint64_t len; /* bytes to copy */
    uint64_t own; /* bytes that this side has taken for copying (place.c) */
    bool stopped; /* this side has stopped the placement */
    psc_status_t status; /* result of this side's copies */
} shm_placement_t;

struct shm_adverts {
    uint64_t generation;
    uint32_t used; /* bit set: entries of our table that are not free */
    /* bit set: entries of our table that the peer has taken and whose receives
     * are being filled */
    uint32_t landing;
    /* bit set: entries of our table whose receives are filled, but at which the
     * peer may still look */
    uint32_t landed;
    /* bit set: entries of the peer's table that this side has taken, and
     * fills */
    uint32_t placing;
    shm_placement_t recvs[SHM_ENTRIES];
    shm_placement_t sends[SHM_ENTRIES];
};

static inline uint64_t shm_entry_word(uint64_t generation,
                                      shm_entry_state_t state)
{
    return generation << 8 | state;
}

static inline bool shm_entry_change(shm_entry_t *entry, uint64_t generation,
                                    shm_entry_state_t from,
                                    shm_entry_state_t to)
{
    uint64_t word = shm_entry_word(generation, from);

    return atomic_compare_exchange_strong_explicit(
        &entry->word, &word, shm_entry_word(generation, to),
        memory_order_acq_rel, memory_order_acquire);
}

static inline shm_table_t *shm_table_own(const shm_ep_t *ep)
{
    return ep->tx.ring.table;
}

static inline shm_table_t *shm_table_peer(const shm_ep_t *ep)
{
    return ep->rx.ring.table;
}

/* Returns the initial value of `cursor` in an entry of this generation. */
uint64_t shm_cursor_first(uint64_t generation);
/* Adds `change` to the number of placements. An endpoint stays active
 * (active.c) while it has a placement. */
void shm_adverts_count(shm_ep_t *ep, int change);
/* Called when the peer has taken the receive of our entry `i`: begins to copy
 * into it. */
void shm_recv_begin(shm_ep_t *ep, uint32_t i);
