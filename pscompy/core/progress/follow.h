/* Followers: threads that wait while another thread polls. Each sleeps on a
 * futex word of its own, on its stack, and is woken if a request that it waits
 * for has changed, or if it is the one that may take the poller's role (to poll
 * for all). With the worker's lock held; the rule is in sleep.h. */
#pragma once

#include "../types/worker.h"

/* Arm a follower that sleeps until one of the `n` requests changes, and that
 * has looked at the requests with the lock held. `more` are other reasons
 * (PSC_WAKE_) to wake it. */
void psc_follower_arm(psc_worker_t *worker, psc_follower_t *follower,
                      psc_request_t *const *requests, size_t n, uint32_t more);
/* Take a follower, which does not sleep any more, out of the worker's list,
 * unless it was woken. Returns false if it was woken. */
bool psc_follower_disarm(psc_follower_t *follower);
/* Wake a follower; its memory may be gone as soon as the function returns. The
 * thread is awake at the latest when the lock has been released. */
void psc_follower_wake(psc_worker_t *worker, psc_follower_t *follower);
/* Wake followers for these PSC_WAKE_ reasons: the earliest one if the poller's
 * role is free or something is queued, all if every wait ends. */
void psc_followers_wake(psc_worker_t *worker, uint32_t reasons);

static inline bool psc_follower_woken(psc_follower_t *follower)
{
    return atomic_load(&follower->woken);
}
