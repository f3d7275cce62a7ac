/* Declarations that the files of shm's own cases share. The cases use the
 * transport's own structures, because a peer can do so too. */
#pragma once

#include "harness.h"
#include "pscompy/plugins/shm/memory.h"

static inline shm_ep_t *end_ep(ct_end_t *end)
{
    return (shm_ep_t *)end->ep;
}

static inline shm_iface_t *side_iface(ct_side_t *side)
{
    return (shm_iface_t *)side->iface;
}

/* ---- memory of the other side ---- */

typedef struct remote {
    psc_mem_t *mem;
    uint8_t packed[PSC_RKEY_MAX];
    size_t len;
} remote_t;

void remote_make(ct_end_t *end, void *base, size_t len, remote_t *remote);
/* The final status of a get whose call returned `status`. */
psc_status_t get_ended(ct_pair_t *pair, psc_status_t status, ct_send_t *send);

/* ---- chance ---- */

typedef struct dice {
    uint64_t state;
} dice_t;

static inline uint64_t dice_roll(dice_t *dice)
{
    dice->state = dice->state * 6364136223846793005ull + 1442695040888963407ull;
    return dice->state >> 20 ^ dice->state << 40;
}

/* ---- a second process ---- */

typedef struct other {
    pid_t pid;
    int link; /* SOCK_SEQPACKET */
} other_t;

/* Returns true in the child process. */
bool other_fork(other_t *other);
int other_wait(other_t *other);
/* Waits for the child, which must have exited with 0. */
void other_check(other_t *other);
/* Opens a side and an end, and starts to connect them with the other
 * process. */
void other_begin(other_t *other, ct_pair_t *pair, psc_role_t role);
void other_connect(other_t *other, ct_pair_t *pair);
