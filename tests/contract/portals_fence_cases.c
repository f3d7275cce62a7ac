/* The states of a channel whose receives may be withheld, without a channel. */
#include "portals_cases.h"

typedef struct step {
    psptl_fence_event_t event;
    psptl_fence_state_t state; /* expected state afterwards */
} step_t;

static void walk(const step_t *steps, size_t n)
{
    psptl_fence_t fence = {0};

    for (size_t i = 0; i < n; i++) {
        psptl_fence_step(&fence, steps[i].event);
        ct_check(fence.state == steps[i].state, "step %zu: state %d", i,
                 (int)fence.state);
    }
}

#define WALK(...)                                                              \
    do {                                                                       \
        static const step_t steps_[] = {__VA_ARGS__};                          \
        walk(steps_, sizeof(steps_) / sizeof(steps_[0]));                      \
    } while (0)

CASE(a_fence_is_asked_until_it_is_answered)
{
    WALK({PSPTL_FENCE_ASK,
          PSPTL_FENCE_OPEN}, /* no receive is suspended, so no question */
         {PSPTL_FENCE_SUSPEND, PSPTL_FENCE_SUSPENDED},
         /* no question was sent */
         {PSPTL_FENCE_ANSWERED, PSPTL_FENCE_SUSPENDED},
         {PSPTL_FENCE_ASK, PSPTL_FENCE_ASKED},
         {PSPTL_FENCE_SUSPEND, PSPTL_FENCE_ASKED},
         {PSPTL_FENCE_STALE, PSPTL_FENCE_SUSPENDED},
         {PSPTL_FENCE_ASK, PSPTL_FENCE_ASKED},
         {PSPTL_FENCE_ANSWERED, PSPTL_FENCE_OPEN});
    WALK({PSPTL_FENCE_SUSPEND, PSPTL_FENCE_SUSPENDED},
         {PSPTL_FENCE_ASK, PSPTL_FENCE_ASKED},
         {PSPTL_FENCE_REWIND, PSPTL_FENCE_RE_ASKED},
         {PSPTL_FENCE_STALE, PSPTL_FENCE_REWOUND},
         {PSPTL_FENCE_SUSPEND, PSPTL_FENCE_REWOUND},
         {PSPTL_FENCE_ASK, PSPTL_FENCE_RE_ASKED},
         {PSPTL_FENCE_ANSWERED, PSPTL_FENCE_OPEN},
         {PSPTL_FENCE_REWIND, PSPTL_FENCE_REWOUND});
}

/* No later event makes the channel send a fence. */
CASE(a_channel_that_parts_sends_no_fence)
{
    static const psptl_fence_event_t before[] = {
        PSPTL_FENCE_STALE, PSPTL_FENCE_SUSPEND, PSPTL_FENCE_REWIND};

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        for (int asked = 0; asked < 2; asked++) {
            psptl_fence_t fence = {0};
            bool rewound;

            psptl_fence_step(&fence, before[i]);
            if (asked)
                psptl_fence_step(&fence, PSPTL_FENCE_ASK);
            rewound = psptl_fence_rewound(&fence);
            psptl_fence_step(&fence, PSPTL_FENCE_PART);
            ct_check(psptl_fence_rewound(&fence) == rewound, "rewound");
            for (int event = 0; event < PSPTL_N_FENCE_EVENTS; event++) {
                ct_check(psptl_fence_parted(&fence), "it has parted");
                ct_check(!psptl_fence_wanted(&fence), "no fence is wanted");
                psptl_fence_step(&fence, (psptl_fence_event_t)event);
            }
        }
    }
}

CASE(fences_are_numbered_around)
{
    psptl_fence_t fence = {.number = 0x7ffffffdu};

    psptl_fence_renew(&fence);
    ct_check(fence.number == 0x7ffffffeu, "%x", fence.number);
    psptl_fence_renew(&fence);
    ct_check(fence.number == 1, "%x: 0 is none", fence.number);
    ct_check((0x7ffffffeu << 1 | 1) > 0x7ffffffeu, "a word has room for it");
}
