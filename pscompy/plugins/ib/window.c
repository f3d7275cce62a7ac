/* Windows: a window gives a key for a part of a registration, valid until the
 * window is closed. Thus memory can stay registered although peers can no
 * longer access it. Windows of type 1 are opened and closed by requests of any
 * queue, in the order of that queue. */
#include "cache.h"

static bool ib_window_bind(ib_hold_t *hold, ib_queue_t *queue, uint64_t address,
                           uint64_t len)
{
    struct ibv_mw_bind_info info = {
        .mr = hold->mr,
        .addr = address,
        .length = len, /* length 0 closes the window */
        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    ib_job_t job = {.buffer = IB_NO_BUFFER, .hold = hold};

    if (!ib_queue_bind(queue, hold->window, &info, &job))
        return false;
    hold->bindings++;
    hold->queue = queue;
    hold->shown = address;
    hold->shown_len = len;
    return true;
}

/* True if all bind requests in flight are in this queue; requests of different
 * queues are not ordered. */
static bool ib_window_orderly(const ib_hold_t *hold, const ib_queue_t *queue)
{
    return hold->bindings == 0 || hold->queue == queue;
}

bool ib_window_open(ib_cache_t *cache, ib_hold_t *hold, ib_queue_t *queue,
                    uint64_t address, uint64_t len)
{
    if (!cache->windows || hold->spoilt || !ib_window_orderly(hold, queue))
        return false;
    if (hold->exposures > 0) {
        if (hold->shown != address || hold->shown_len != len)
            return false;
    } else {
        if (!hold->window)
            hold->window = ibv_alloc_mw(cache->pd, IBV_MW_TYPE_1);
        if (!hold->window || !ib_window_bind(hold, queue, address, len))
            return false;
    }
    hold->exposures++;
    return true;
}

/* Destroys a window that cannot be closed by a request, or marks it as spoilt
 * while bind requests are in flight. */
static void ib_window_break(ib_hold_t *hold)
{
    hold->spoilt = hold->bindings > 0;
    if (hold->spoilt)
        return;
    if (hold->window)
        ibv_dealloc_mw(hold->window);
    hold->window = NULL;
}

void ib_window_close(ib_hold_t *hold, ib_queue_t *queue)
{
    if (--hold->exposures > 0)
        return;
    if (hold->spoilt || !ib_window_orderly(hold, queue) ||
        !ib_window_bind(hold, queue, hold->shown, 0))
        ib_window_break(hold);
}

void ib_window_revoke(ib_hold_t *hold)
{
    if (--hold->exposures == 0)
        ib_window_break(hold);
}

void ib_window_told(ib_hold_t *hold, bool good)
{
    hold->bindings--;
    hold->spoilt |= !good;
    if (hold->spoilt && hold->bindings == 0 && hold->exposures == 0)
        ib_window_break(hold);
}
