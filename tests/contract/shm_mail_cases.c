/* Cases of shm: the descriptors that two connected endpoints keep, two on each
 * side, and how their last packets arrive without a socket. */
#include <dirent.h>
#include <poll.h>

#include "shm_cases.h"

static unsigned descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned n = 0;

    ct_check(folder != NULL, "/proc/self/fd");
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

CASE(two_descriptors_each)
{
    ct_pair_t pair;
    unsigned before;

    ct_pair_open(&pair);
    before = descriptors();
    ct_pair_connect(&pair);
    ct_check(descriptors() == before + 4, "%u", descriptors() - before);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    ct_end_destroy(&pair.x, pair.b);
    ct_until(&pair, pair.y.failed);
    ct_end_create(&pair.x, pair.a);
    ct_pair_down(&pair);
}

/* Sleeps as the core does, after a progress that found no event. */
static void sleep_now(ct_side_t *side)
{
    while (ct_side_progress(side) > 0 ||
           ct_ops->arm(side->iface) == PSC_ERR_NO_RESOURCE)
        continue;
}

static void check_woken(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "not woken");
}

/* y wakes up without a pass of x. */
static void check_told(ct_pair_t *pair, psc_status_t status, const char *word)
{
    int64_t deadline = ct_deadline();

    while (!pair->y.failed) {
        sleep_now(pair->b);
        if (!pair->y.failed)
            check_woken(pair->b);
        ct_side_progress(pair->b);
        ct_check(psc_clock_now() < deadline, "not told");
    }
    ct_check(pair->y.status == status, "%s", pair->y.reason);
    ct_check(strstr(pair->y.reason, word) != NULL, "%s", pair->y.reason);
}

CASE(goodbye_wakes)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    sleep_now(pair.b);
    ct_ops->ep_close(pair.x.ep);
    check_told(&pair, PSC_ERR_CLOSED, "closed");
    ct_pair_down(&pair);
}

/* The endpoint is freed without a goodbye; its process lives on. */
CASE(end_without_goodbye_wakes)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    sleep_now(pair.b);
    ct_end_abandon(&pair.x);
    check_told(&pair, PSC_ERR_PEER_LOST, "ended");
    ct_end_create(&pair.x, pair.a);
    ct_pair_down(&pair);
}

CASE(refusal_wakes)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    sleep_now(pair.b);
    shm_ep_fail(end_ep(&pair.x), PSC_ERR_PROTOCOL, "shm: a cause");
    check_told(&pair, PSC_ERR_PEER_LOST, "saying: shm: a cause");
    ct_pair_down(&pair);
}

/* A message and a goodbye ring the doorbell while y sleeps. y finds the
 * message, which explains the wake-up, and drains the doorbell for both. */
CASE(goodbye_behind_a_message)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    sleep_now(pair.b);
    ct_send(&pair, &pair.x, CT_BCOPY, 100, 1, &send);
    ct_ops->ep_close(pair.x.ep);
    check_woken(pair.b);
    ct_side_progress(pair.b);
    ct_check(pair.y.received == 1 && !pair.y.failed, "%s", pair.y.reason);
    ct_check(side_iface(pair.b)->rung, "the doorbell is silent");
    check_told(&pair, PSC_ERR_CLOSED, "closed");
    ct_send_finish(&pair, &send);
    ct_pair_down(&pair);
}

/* Like goodbye_behind_a_message, but y polls instead of sleeping again. */
CASE(goodbye_to_one_that_polls)
{
    ct_pair_t pair;
    ct_send_t send;
    int64_t deadline = ct_deadline();

    ct_pair_up(&pair);
    sleep_now(pair.b);
    ct_send(&pair, &pair.x, CT_BCOPY, 100, 1, &send);
    ct_ops->ep_close(pair.x.ep);
    ct_side_progress(pair.b);
    ct_check(ct_ops->arm(pair.b->iface) == PSC_ERR_NO_RESOURCE, "it sleeps");
    while (!pair.y.failed) {
        ct_side_progress(pair.b);
        ct_check(psc_clock_now() < deadline, "not told");
    }
    ct_check(pair.y.status == PSC_ERR_CLOSED, "%s", pair.y.reason);
    ct_send_finish(&pair, &send);
    ct_pair_down(&pair);
}
