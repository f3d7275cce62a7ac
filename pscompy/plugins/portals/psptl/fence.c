/* The state machine of fence.h as a table: a row for each state, a column for
 * each event. */
#include "fence.h"

/* Number of different fence numbers, which begin at 1: 0 means no fence. One
 * bit of the 32-bit word that carries the number marks an answer. */
#define FENCE_NUMBERS 0x7ffffffeu

#define ROW(suspend, rewind, ask, stale, answered, part)                       \
    {                                                                          \
        [PSPTL_FENCE_SUSPEND] = PSPTL_FENCE_##suspend,                         \
        [PSPTL_FENCE_REWIND] = PSPTL_FENCE_##rewind,                           \
        [PSPTL_FENCE_ASK] = PSPTL_FENCE_##ask,                                 \
        [PSPTL_FENCE_STALE] = PSPTL_FENCE_##stale,                             \
        [PSPTL_FENCE_ANSWERED] = PSPTL_FENCE_##answered,                       \
        [PSPTL_FENCE_PART] = PSPTL_FENCE_##part,                               \
    }

/* clang-format off */
static const uint8_t fence_table[PSPTL_N_FENCE_STATES][PSPTL_N_FENCE_EVENTS] = {
    [PSPTL_FENCE_OPEN] =
        ROW(SUSPENDED, REWOUND, OPEN, OPEN, OPEN, PARTED),
    [PSPTL_FENCE_SUSPENDED] =
        ROW(SUSPENDED, REWOUND, ASKED, SUSPENDED, SUSPENDED, PARTED_SUSPENDED),
    [PSPTL_FENCE_ASKED] =
        ROW(ASKED, RE_ASKED, ASKED, SUSPENDED, OPEN, PARTED_SUSPENDED),
    [PSPTL_FENCE_REWOUND] =
        ROW(REWOUND, REWOUND, RE_ASKED, REWOUND, REWOUND, PARTED_REWOUND),
    [PSPTL_FENCE_RE_ASKED] =
        ROW(RE_ASKED, RE_ASKED, RE_ASKED, REWOUND, OPEN, PARTED_REWOUND),
    [PSPTL_FENCE_PARTED] =
        ROW(PARTED_SUSPENDED, PARTED_REWOUND, PARTED, PARTED, PARTED, PARTED),
    [PSPTL_FENCE_PARTED_SUSPENDED] =
        ROW(PARTED_SUSPENDED, PARTED_REWOUND, PARTED_SUSPENDED,
            PARTED_SUSPENDED, PARTED_SUSPENDED, PARTED_SUSPENDED),
    [PSPTL_FENCE_PARTED_REWOUND] =
        ROW(PARTED_REWOUND, PARTED_REWOUND, PARTED_REWOUND, PARTED_REWOUND,
            PARTED_REWOUND, PARTED_REWOUND),
};
/* clang-format on */

void psptl_fence_step(psptl_fence_t *fence, psptl_fence_event_t event)
{
    fence->state = (psptl_fence_state_t)fence_table[fence->state][event];
}

void psptl_fence_renew(psptl_fence_t *fence)
{
    fence->number = fence->number % FENCE_NUMBERS + 1;
}
