/* The state of a channel whose receives may be withheld from the interface. A
 * fence is an empty message that the peer answers; match.h says what for.
 *
 *   OPEN       receives go to the interface
 *   SUSPENDED  receives are withheld here, because the interface has refused
 *              messages that the peer sends again
 *   ASKED      the same, and a fence is in flight to the peer
 *   REWOUND    receives that match are withdrawn, too, and their messages
 *              queued again, because an earlier message is still missing
 *   RE_ASKED   the same, and a fence is in flight
 *   PARTED...  the owner sends nothing but its goodbye, so no fence is sent
 *
 * The functions here neither call the interface nor allocate memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pscompy/transport/kit/list.h"

typedef enum psptl_fence_state {
    PSPTL_FENCE_OPEN,
    PSPTL_FENCE_SUSPENDED,
    PSPTL_FENCE_ASKED,
    PSPTL_FENCE_REWOUND,
    PSPTL_FENCE_RE_ASKED,
    PSPTL_FENCE_PARTED,
    PSPTL_FENCE_PARTED_SUSPENDED,
    PSPTL_FENCE_PARTED_REWOUND,
    PSPTL_N_FENCE_STATES
} psptl_fence_state_t;

typedef enum psptl_fence_event {
    /* the channel's receives were withdrawn from the interface */
    PSPTL_FENCE_SUSPEND,
    /* a later message has consumed the receive of an earlier one */
    PSPTL_FENCE_REWIND,
    PSPTL_FENCE_ASK,      /* a fence was sent */
    /* the peer answered a fence that was replaced by a newer one */
    PSPTL_FENCE_STALE,
    PSPTL_FENCE_ANSWERED, /* the peer answered the last fence */
    PSPTL_FENCE_PART, /* the owner sends at most its goodbye from now on */
    PSPTL_N_FENCE_EVENTS
} psptl_fence_event_t;

typedef struct psptl_fence {
    psptl_fence_state_t state;
    /* number of the last fence; answers to older fences do not count */
    uint32_t number;
    /* number of the peer's fence that is to be answered; 0: none */
    uint32_t answer;
    /* link in psptl_device_t.unsettled, the list of channels that withhold
     * receives or have yet to answer a fence of the peer (match.h) */
    psc_link_t unsettled;
} psptl_fence_t;

/* Changes the state as the event demands. An event that has no meaning in a
 * state leaves the state unchanged. */
void psptl_fence_step(psptl_fence_t *fence, psptl_fence_event_t event);

/* Gives the next fence a new number, so that answers to earlier fences do not
 * count. */
void psptl_fence_renew(psptl_fence_t *fence);

static inline bool psptl_fence_open(const psptl_fence_t *fence)
{
    return fence->state == PSPTL_FENCE_OPEN ||
           fence->state == PSPTL_FENCE_PARTED;
}

static inline bool psptl_fence_rewound(const psptl_fence_t *fence)
{
    return fence->state == PSPTL_FENCE_REWOUND ||
           fence->state == PSPTL_FENCE_RE_ASKED ||
           fence->state == PSPTL_FENCE_PARTED_REWOUND;
}

static inline bool psptl_fence_parted(const psptl_fence_t *fence)
{
    return fence->state >= PSPTL_FENCE_PARTED;
}

/* Returns true if the state needs a fence to be sent and none is in flight. */
static inline bool psptl_fence_wanted(const psptl_fence_t *fence)
{
    return fence->state == PSPTL_FENCE_SUSPENDED ||
           fence->state == PSPTL_FENCE_REWOUND;
}
