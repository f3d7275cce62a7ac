/* Copying into receives that were taken (place.c): the structures, which the
 * table of receives (show.c) fills in. */
#ifndef PSCOMPY_SHM_PLACE_H
#define PSCOMPY_SHM_PLACE_H

#include "memory.h"

typedef enum shm_entry_state {
    SHM_ENTRY_FREE,
    SHM_ENTRY_EXPOSED,
    SHM_ENTRY_TAKEN,
    SHM_ENTRY_ENDED
} shm_entry_state_t;

/* A placement as one of its sides sees it: an exposed receive of ours, or a
 * receive of the peer that was claimed for a message of ours. */
typedef struct shm_placement {
    psc_exposed_t *recv; /* ours */
    psc_comp_t *comp; /* of our claim */
    uint64_t generation;
    uint8_t *buffer;
    uint64_t there; /* address in the peer's process */
    uint64_t len; /* bytes to copy */
    uint64_t own; /* bytes that this side took */
    bool stopped; /* by this side */
    psc_status_t status; /* of this side's copies */
} shm_placement_t;

struct shm_show {
    uint64_t generation;
    uint32_t used; /* bit set of our entries that are not free */
    uint32_t landing; /* our entries into which bytes are copied */
    uint32_t landed; /* our entries that their claimers may still look at */
    uint32_t placing; /* entries of the peer that we have taken */
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
    return &ep->tx.ring.control->table;
}

static inline shm_table_t *shm_table_peer(const shm_ep_t *ep)
{
    return &ep->rx.ring.control->table;
}

/* Value of a cursor at which the pieces of this generation begin. */
uint64_t shm_cursor_first(uint64_t generation);
/* An endpoint stays active while it has a placement. */
void shm_show_count(shm_ep_t *ep, int change);
/* The peer has taken this receive of ours: copy, and end it. */
void shm_recv_begin(shm_ep_t *ep, uint32_t i);

#endif
