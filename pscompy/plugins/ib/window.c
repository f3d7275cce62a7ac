/* Memory windows: a window has a key for a part of a registration. The key is
 * valid until the window is closed. Thus memory can stay registered although
 * peers can no longer access it. A window of type 1 is opened and closed by a
 * request to any queue pair, which is processed in the order of the other
 * requests of that queue pair. */
#include "cache.h"

static bool ib_window_bind(ib_reg_t *reg, ib_queue_t *queue, uint64_t address,
                           uint64_t len)
{
    struct ibv_mw_bind_info info = {
        .mr = reg->mr,
        .addr = address,
        .length = len, /* a window of length 0 is closed */
        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    ib_job_t job = {.buffer = IB_NO_BUFFER, .reg = reg};

    if (!ib_queue_bind(queue, reg->window, &info, &job))
        return false;
    reg->bindings++;
    reg->queue = queue;
    reg->shown = address;
    reg->shown_len = len;
    return true;
}

/* Returns true if all bind requests in flight for this window are in `queue`.
 * Requests in different queues would be processed in any order. */
static bool ib_window_orderly(const ib_reg_t *reg, const ib_queue_t *queue)
{
    return reg->bindings == 0 || reg->queue == queue;
}

bool ib_window_open(ib_cache_t *cache, ib_reg_t *reg, ib_queue_t *queue,
                    uint64_t address, uint64_t len)
{
    if (!cache->windows || reg->invalid || !ib_window_orderly(reg, queue))
        return false;
    if (reg->exposures > 0) {
        if (reg->shown != address || reg->shown_len != len)
            return false;
    } else {
        if (!reg->window)
            reg->window = ibv_alloc_mw(cache->pd, IBV_MW_TYPE_1);
        if (!reg->window || !ib_window_bind(reg, queue, address, len))
            return false;
    }
    reg->exposures++;
    return true;
}

/* Destroys a window that cannot be closed by a request. While bind requests are
 * in flight, the window is only marked as invalid. */
static void ib_window_break(ib_reg_t *reg)
{
    reg->invalid = reg->bindings > 0;
    if (reg->invalid)
        return;
    if (reg->window)
        ibv_dealloc_mw(reg->window);
    reg->window = NULL;
}

void ib_window_close(ib_reg_t *reg, ib_queue_t *queue)
{
    if (--reg->exposures > 0)
        return;
    if (reg->invalid || !ib_window_orderly(reg, queue) ||
        !ib_window_bind(reg, queue, reg->shown, 0))
        ib_window_break(reg);
}

void ib_window_revoke(ib_reg_t *reg)
{
    if (--reg->exposures == 0)
        ib_window_break(reg);
}

void ib_window_bound(ib_reg_t *reg, bool good)
{
    reg->bindings--;
    reg->invalid |= !good;
    if (reg->invalid && reg->bindings == 0 && reg->exposures == 0)
        ib_window_break(reg);
    ib_cache_settle(reg);
}
