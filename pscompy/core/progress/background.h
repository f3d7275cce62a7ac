/* Driving a worker while no other thread does: for the progress thread, and for
 * a thread that runs the program's call-backs while the program computes.
 *
 * A background thread never competes with the program. While another thread
 * holds the poller's role (polls for all), the background thread does not poll:
 * it checks the role from time to time or, if the holder sleeps on the fabrics,
 * sleeps until the role is free. While the role is free, the background thread
 * is a sleeper (sleep.h) on the fabrics and polls them; its doorbell rings when
 * a thread takes the role. */
#pragma once

#include "../types/worker.h"

typedef struct psc_background psc_background_t;

struct psc_background {
    psc_sleeper_t *sleeper;
    /* PSC_WAKE_ bits of the sleeper while it is armed. With PSC_WAKE_POLLED the
     * background thread also stops polling for a while when another thread has
     * polled. */
    uint32_t wants;
    /* If no thread has polled for this time, the background thread assumes that
     * the program is computing, and polls. */
    int64_t patience_ns;
    int64_t deadline; /* deadline of all sleeps; INT64_MAX: none */
    /* returns true to end psc_background */
    bool (*ended)(psc_background_t *self);
};

/* Poll in place of the program until ended() is true. With PSC_WAKE_EVENT it
 * also returns if completion_poll or message_poll has something that no other
 * thread takes. */
void psc_background(psc_background_t *self);
