/* Sleeping without lost wake-ups: one epoll descriptor that becomes readable
 * when a peer writes to the doorbell (a pipe of this process), connects, or
 * ends, and the flags by which a sleeper asks its peers to write to the
 * doorbell.
 *
 * The sleeper sets its flag and then checks the ring again; the other side
 * writes the ring and then checks the flag. Each side needs a full fence
 * between its two steps, or a wake-up is lost. On the sending side the fence
 * would cost time with every message. Where both processes are registered for
 * membarrier, the sleeper executes the fence for both sides.
 *
 * The flags of idle endpoints stay set, so only those of active endpoints are
 * set and cleared with each sleep (active.c). */
#include "inbox.h"
#include "memory.h"

int shm_sleep_fd(psc_iface_t *iface)
{
    return shm_iface(iface)->epoll;
}

/* Returns true if the peer has cleared the flag, as it does when it wakes us.
 * Otherwise sets the flag to `awake`. */
static bool shm_flag_taken(_Atomic uint32_t *flag, uint32_t awake)
{
    if (atomic_load_explicit(flag, memory_order_relaxed) == 0)
        return true;
    atomic_store_explicit(flag, awake, memory_order_relaxed);
    return false;
}

/* Returns the value of the flag `sleeping` for an active endpoint while this
 * process is awake. */
static uint32_t shm_ep_awake(const shm_ep_t *ep)
{
    return ep->watch == SHM_WATCH_NOTED ? SHM_WAKE_BITMAP : 0;
}

static bool shm_ep_disarm(shm_ep_t *ep)
{
    bool rung;

    if (ep->state != SHM_EP_UP)
        return false;
    rung = shm_flag_taken(&ep->rx.ring.control->sleeping, shm_ep_awake(ep));
    if (ep->tx.need > 0)
        rung |= shm_flag_taken(&ep->tx.ring.control->starving, 0);
    return rung;
}

/* Sets the flags that ask the peer to wake us. Returns true if the peer relies
 * on our membarrier call instead of its own fence. */
static bool shm_ep_arm(shm_ep_t *ep)
{
    if (ep->state != SHM_EP_UP)
        return false;
    atomic_store_explicit(&ep->rx.ring.control->sleeping,
                          shm_ep_awake(ep) | SHM_WAKE_DOORBELL,
                          memory_order_relaxed);
    if (ep->tx.need > 0)
        atomic_store_explicit(&ep->tx.ring.control->starving, 1,
                              memory_order_relaxed);
    return !ep->fenced;
}

/* Returns true if the endpoint has work that arrived before the flags were
 * set. */
static bool shm_ep_pending(shm_ep_t *ep)
{
    if (ep->state == SHM_EP_LEAVING || shm_copies_pending(ep))
        return true;
    if (ep->state != SHM_EP_UP)
        return false;
    return shm_consumer_peek(&ep->rx) != 0 ||
           (ep->tx.need > 0 &&
            shm_producer_reserve(&ep->tx, ep->tx.need) != PSC_ERR_NO_RESOURCE);
}

void shm_sleep_disarm(shm_iface_t *iface)
{
    iface->armed = false;
    for (uint32_t i = 0; i < iface->n_active; i++)
        iface->rung |= shm_ep_disarm(iface->active[i]);
}

/* Drains the doorbell, the pipe to which peers write to wake us. The peer may
 * have written because it has left a letter (its last packet, socket.c), which
 * the next pass of progress processes. */
static void shm_doorbell_silence(shm_iface_t *iface)
{
    shm_source_drain(&iface->doorbell);
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed)
        iface->mail |= shm_socket_letter(sock) != 0;
}

/* Returns true if a letter (a peer's last packet, socket.c) or a rank of the
 * job (inbox.h) waits for us; the next pass of progress then looks at them. */
static bool shm_iface_pending(shm_iface_t *iface)
{
    bool pending = iface->mail || shm_inbox_pending(iface);

    if (pending)
        iface->idle_polls = UINT32_MAX - 1;
    return pending;
}

psc_status_t shm_sleep_arm(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);
    bool barrier = shm_active_ask_doorbell(iface);
    bool pending = iface->n_failing > 0;

    if (iface->rung)
        shm_doorbell_silence(iface);
    shm_inbox_listen(iface);
    pending |= shm_iface_pending(iface);
    iface->rung = false;
    iface->armed = true;
    for (uint32_t i = 0; i < iface->n_active; i++)
        barrier |= shm_ep_arm(iface->active[i]);
    if (barrier)
        shm_source_barrier(iface);
    else
        atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < iface->n_active && !pending; i++)
        pending = shm_ep_pending(iface->active[i]);
    if (!pending && !shm_active_scan(iface))
        return PSC_OK;
    shm_sleep_disarm(iface);
    return PSC_ERR_NO_RESOURCE;
}
