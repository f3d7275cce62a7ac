#include "progress.h"

/* A request that two threads wait for wakes the first of them; the second is
 * woken by every change of any request. */
void psc_follower_arm(psc_worker_t *worker, psc_follower_t *follower,
                      psc_request_t *const *requests, size_t n, uint32_t more)
{
    *follower = (psc_follower_t){.requests = requests,
                                 .n = n,
                                 .wants = PSC_WAKE_FREE | PSC_WAKE_END | more};
    for (size_t i = 0; i < n; i++) {
        psc_req_t *req = psc_container_of(requests[i], psc_req_t, head);

        if (!req->follower)
            req->follower = follower;
        else if (req->follower != follower)
            follower->wants |= PSC_WAKE_EVENT;
    }
    psc_list_push(&worker->wait.followers, &follower->link);
    atomic_fetch_or(&worker->wait.wanted, follower->wants);
}

bool psc_follower_disarm(psc_follower_t *follower)
{
    if (psc_follower_woken(follower))
        return false;
    psc_list_remove(&follower->link);
    for (size_t i = 0; i < follower->n; i++) {
        psc_req_t *req =
            psc_container_of(follower->requests[i], psc_req_t, head);

        if (req->follower == follower)
            req->follower = NULL;
    }
    return true;
}

/* By the time of the futex call the follower's stack may be used for
 * something else; then the call wakes nobody, or a thread that checks why it
 * was woken. */
void psc_follower_wake(psc_worker_t *worker, psc_follower_t *follower)
{
    psc_wait_state_t *wait = &worker->wait;

    if (!psc_follower_disarm(follower))
        return;
    atomic_store(&follower->woken, 1);
    if (wait->n_woken == PSC_WOKEN_MAX) {
        psc_futex_wake(&follower->woken, 1);
        return;
    }
    wait->woken[wait->n_woken++] = &follower->woken;
    atomic_fetch_or(&worker->mail, PSC_MAIL_WOKEN);
}

void psc_followers_wake(psc_worker_t *worker, uint32_t reasons)
{
    psc_list_for_each(follower, &worker->wait.followers, psc_follower_t, link) {
        if (!(follower->wants & reasons))
            continue;
        psc_follower_wake(worker, follower);
        if (reasons == PSC_WAKE_FREE || reasons == PSC_WAKE_QUEUED)
            return;
    }
}
