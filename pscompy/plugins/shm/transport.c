/* Shared memory between processes of one user on one node: the operations
 * table, and the life of an interface. shm.h lists the files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/kit/page.h"
#include "pscompy/transport/kit/settings.h"

/* Passes of progress between two polls of the sockets, because a poll costs a
 * system call. SHM_POLLS_CONNECTING applies while connections are being
 * established, SHM_POLLS_QUIET at other times. */
#define SHM_POLLS_CONNECTING 16u
#define SHM_POLLS_QUIET 1024u

/* ---- life of an interface ---- */

static void shm_timer_ready(shm_source_t *self, uint32_t events)
{
    shm_iface_t *iface = psc_container_of(self, shm_iface_t, timer);
    int64_t now = psc_clock_now();

    (void)events;
    shm_source_drain(self);
    shm_release_step(iface);
    shm_listener_resume(iface);
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed) {
        if (sock->state == SHM_SOCKET_DIAL)
            shm_socket_dial(sock);
        else if (sock->state == SHM_SOCKET_ANONYMOUS &&
                 now - sock->since > SHM_ANONYMOUS_NS)
            shm_socket_close(sock);
    }
}

static void shm_close(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);

    iface->closing = true;
    shm_listener_close(iface);
}

static void shm_fini(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);

    shm_listener_close(iface);
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed)
        shm_socket_close(sock);
    shm_iface_bury(iface);
    shm_inbox_close(iface);
    shm_sources_close(iface);
    shm_mem_close(iface);
    shm_bitmap_unmap(iface->bitmap);
    if (iface->bitmap_fd >= 0)
        close(iface->bitmap_fd);
    free(iface->bits);
    free(iface->active);
    free(iface->eps);
    free(iface);
}

static psc_status_t shm_iface_start(shm_iface_t *iface,
                                    const psc_open_params_t *params)
{
    psc_status_t status = shm_iface_configure(iface, params);

    if (status == PSC_OK)
        status = shm_iface_identify(iface, params->reason);
    if (status == PSC_OK) {
        status = shm_sources_open(iface);
        if (status != PSC_OK)
            snprintf(params->reason, PSC_REASON_MAX,
                     "cannot open the descriptors to wait with: %s",
                     strerror(errno));
    }
    if (status == PSC_OK) {
        status = shm_bitmap_create(&iface->bitmap_fd);
        if (status == PSC_OK)
            status = shm_bitmap_map(&iface->bitmap, iface->bitmap_fd,
                                    psc_page_size());
        if (status != PSC_OK)
            snprintf(params->reason, PSC_REASON_MAX,
                     "cannot share memory (memfd_create, mmap): %s",
                     strerror(errno));
    }
    if (status == PSC_OK)
        status = shm_listener_open(iface, psc_setting_text(params, "DIR"),
                                   params->reason);
    return status;
}

static const psc_transport_ops_t shm_ops;

static psc_status_t shm_open(const psc_open_params_t *params,
                             psc_iface_t **iface_p)
{
    shm_iface_t *iface = calloc(1, sizeof *iface);
    psc_status_t status;

    if (iface == NULL)
        return PSC_ERR_NO_MEMORY;
    iface->super = (psc_iface_t){&shm_ops, params->up, params->user};
    iface->timer.ready = shm_timer_ready;
    iface->socket_ready = shm_socket_ready;
    iface->process_ready = shm_process_ready;
    iface->epoll = iface->doorbell.fd = iface->timer.fd = iface->bitmap_fd = -1;
    iface->peers.fd = iface->connect_doorbell.fd = iface->node_fd = -1;
    iface->listener.source.fd = -1;
    iface->rank = SHM_NO_RANK;
    psc_list_init(&iface->sockets);
    psc_list_init(&iface->free_gets);
    status = shm_iface_start(iface, params);
    if (status != PSC_OK) {
        shm_fini(&iface->super);
        return status;
    }
    shm_iface_calibrate(iface);
    *iface_p = &iface->super;
    return PSC_OK;
}

static void shm_query(psc_iface_t *super, psc_iface_attr_t *attr_p)
{
    shm_iface_t *iface = shm_iface(super);
    const shm_rates_t *rates = &iface->rates;
    bool cma = iface->cma != SHM_CMA_OFF;

    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_AM_SHORT | PSC_CAP_EVENT | PSC_CAP_NODE | PSC_CAP_MAP,
        .max_short = SHM_PRIVATE_MAX - SHM_WORD_SIZE,
        .max_bcopy = shm_am_max(&iface->geometry),
        .max_iov = 64,
        .latency_ns = 150,
        .overhead_ns = 40,
        .bandwidth = cma ? rates->attach : rates->copy,
        .copy_bandwidth = rates->copy,
        .pipeline = SHM_PIECE,
        /* Nothing is registered, but each cross-memory attach looks up the
         * pages. The cost model counts two registrations, so each gets half of
         * this time. */
        .reg_ns = cma ? rates->attach_ns / 2 : 0,
        .measured = rates->measured,
        .poll_ns = 10,
        .paths = 1,
    };
    if (!cma)
        return;
    attr_p->caps |= PSC_CAP_PUT | PSC_CAP_GET | PSC_CAP_PUT_REMOTE |
                    PSC_CAP_PUT_THEN_AM | PSC_CAP_EXPOSE | PSC_CAP_FORK;
    attr_p->max_put = SHM_PUT_MAX;
    attr_p->max_get = SHM_GET_MAX;
}

/* ---- progress ---- */

/* Returns true if the sockets are to be polled: every `limit` passes of
 * progress, and if `unexplained` (this process was woken, but the rings held no
 * record). */
static bool shm_iface_due(shm_iface_t *iface, bool unexplained)
{
    uint32_t limit =
        iface->n_connecting > 0 ? SHM_POLLS_CONNECTING : SHM_POLLS_QUIET;

    if (!unexplained && ++iface->idle_polls < limit)
        return false;
    iface->idle_polls = 0;
    return true;
}

/* Copies pieces (copy.c). Not inlined, so that the fast path saves no
 * registers. */
static __attribute__((noinline)) unsigned shm_iface_copy(shm_iface_t *iface)
{
    unsigned n = 0;

    for (uint32_t i = 0; iface->n_copies > 0 && i < iface->n_active; i++) {
        shm_gets_ask(iface->active[i]);
        n += shm_copies_poll(iface->active[i]);
    }
    return n;
}

static unsigned shm_iface_serve(shm_iface_t *iface)
{
    unsigned n = iface->n_copies > 0 ? shm_iface_copy(iface) : 0;

    n += iface->n_failing;
    if (iface->n_failing > 0)
        shm_iface_report(iface);
    return n;
}

static void shm_bitmaps_collect(shm_iface_t *iface)
{
    shm_active_collect(iface);
    shm_inbox_collect(iface);
}

static unsigned shm_progress(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);
    bool armed = iface->armed;
    unsigned n = 0;

    iface->in_progress = true;
    if (armed)
        shm_sleep_disarm(iface);
    /* Upcalls may add endpoints, remove them, and reallocate the array
     * `active`. */
    if (iface->n_idle > 0)
        shm_bitmaps_collect(iface);
    for (uint32_t i = 0; i < iface->n_active; i++)
        n += shm_am_poll(iface->active[i]);
    if (shm_iface_due(iface, armed && n == 0)) {
        n += shm_sources_poll(iface->epoll);
        if (iface->mail)
            shm_letters_take(iface);
        shm_inbox_collect(iface);
        shm_active_look(iface);
    }
    if ((iface->n_copies | iface->n_failing) > 0)
        n += shm_iface_serve(iface);
    iface->in_progress = false;
    if (iface->buried)
        shm_iface_bury(iface);
    return n;
}

/* ---- operations table ---- */

static const psc_transport_ops_t shm_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "shm",
    .open = shm_open,
    .query = shm_query,
    .progress = shm_progress,
    .close = shm_close,
    .stop = psc_kit_stop,
    .fini = shm_fini,
    .ep_create = shm_ep_create,
    .ep_address = shm_ep_address,
    .ep_connect = shm_ep_connect,
    .ep_close = shm_ep_close,
    .ep_stop = shm_ep_stop,
    .ep_fini = shm_ep_fini,
    .am_bcopy = shm_am_bcopy,
    .am_short = shm_am_short,
    .put = shm_put,
    .get = shm_get,
    .mem_register = shm_mem_register,
    .mem_deregister = shm_mem_deregister,
    .mem_revoke = shm_mem_revoke,
    .rkey_pack = shm_rkey_pack,
    .rkey_unpack = shm_rkey_unpack,
    .rkey_release = shm_rkey_release,
    .mem_share = shm_mem_share,
    .rkey_map = shm_rkey_map,
    .event_fd = shm_sleep_fd,
    .arm = shm_sleep_arm,
    .expose = shm_expose,
    .conceal = shm_conceal,
    .exposed = shm_exposed,
    .claim = shm_claim,
    .iface_counters = shm_iface_counters,
    .join = shm_join,
    .ep_call = shm_ep_call,
    .ep_called = shm_ep_called,
};

/* The only symbol that this library exports: returns the address of the
 * operations table. */
uintptr_t shm_transport(void);

uintptr_t shm_transport(void)
{
    return (uintptr_t)&shm_ops;
}
