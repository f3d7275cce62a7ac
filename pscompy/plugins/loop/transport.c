/* The operations table of the transport loop, and the life of an interface. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "loop.h"
#include "pscompy/transport/kit/settings.h"
#include "pscompy/transport/kit/restart.h"

static void loop_slots_free(psc_list_t *slots)
{
    psc_link_t *link;

    while ((link = psc_list_pop(slots)))
        free(psc_container_of(link, loop_slot_t, link));
}

static const psc_transport_ops_t loop_ops; /* defined at the end of this file */

static psc_status_t loop_iface_start(loop_iface_t *iface,
                                     const psc_open_params_t *params)
{
    int64_t buffer_size = psc_setting_number(params, "BUFFER_SIZE");
    int64_t sendq_size = psc_setting_number(params, "SENDQ_SIZE");

    if (buffer_size < 1024 || buffer_size > 1 << 26 || sendq_size < 2 ||
        sendq_size > 1 << 20) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "PSP_LOOP_BUFFER_SIZE or PSP_LOOP_SENDQ_SIZE out of range");
        return PSC_ERR_INVALID;
    }
    iface->buffer_size = (size_t)buffer_size;
    iface->sendq_size = (uint32_t)sendq_size;
    iface->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (iface->event_fd < 0 || getrandom(&iface->nonce, sizeof(iface->nonce),
                                         0) != sizeof(iface->nonce)) {
        snprintf(params->reason, PSC_REASON_MAX, "eventfd: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

static void loop_fini(psc_iface_t *self)
{
    loop_iface_t *iface = (loop_iface_t *)self;

    loop_slots_free(&iface->queue);
    loop_slots_free(&iface->spare);
    while (!psc_list_empty(&iface->eps))
        free(psc_container_of(psc_list_pop(&iface->eps), loop_ep_t, link));
    loop_mem_end(iface);
    if (iface->event_fd >= 0)
        close(iface->event_fd);
    free(iface);
}

static psc_status_t loop_open(const psc_open_params_t *params,
                              psc_iface_t **iface_p)
{
    loop_iface_t *iface = calloc(1, sizeof(*iface));
    psc_status_t status;

    if (!iface) {
        snprintf(params->reason, PSC_REASON_MAX, "out of memory");
        return PSC_ERR_NO_MEMORY;
    }
    iface->super = (psc_iface_t){&loop_ops, params->up, params->user};
    iface->event_fd = -1;
    psc_list_init(&iface->eps);
    psc_list_init(&iface->queue);
    psc_list_init(&iface->spare);
    status = loop_iface_start(iface, params);
    if (status == PSC_OK)
        *iface_p = &iface->super;
    else
        loop_fini(&iface->super);
    return status;
}

static void loop_query(psc_iface_t *self, psc_iface_attr_t *attr_p)
{
    const loop_iface_t *iface = (const loop_iface_t *)self;

    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_AM_SHORT | PSC_CAP_PUT | PSC_CAP_GET |
                PSC_CAP_PUT_REMOTE | PSC_CAP_PUT_THEN_AM | PSC_CAP_EVENT |
                PSC_CAP_SELF | PSC_CAP_PUT_AM | PSC_CAP_FORK,
        .max_short = iface->buffer_size,
        .max_bcopy = iface->buffer_size,
        .max_iov = LOOP_IOV_MAX,
        .max_put = LOOP_RMA_MAX,
        .max_get = LOOP_RMA_MAX,
        .latency_ns = 200,
        .overhead_ns = 100,
        .bandwidth = 10e9,
        .copy_bandwidth = 5e9,
        .reg_ns = 100,
        .poll_ns = 5,
        .paths = 1,
    };
}

static unsigned loop_progress(psc_iface_t *self)
{
    loop_iface_t *iface = (loop_iface_t *)self;
    uint64_t rings;
    unsigned n = 0;

    iface->armed = false;
    if (iface->rung)
        iface->rung =
            PSC_RESTART(read(iface->event_fd, &rings, sizeof(rings))) < 0;
    if (!psc_list_empty(&iface->queue))
        n = loop_iface_deliver(iface);
    if (iface->n_notices > 0)
        n += loop_iface_notify(iface);
    return n;
}

static const psc_transport_ops_t loop_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "loop",
    .open = loop_open,
    .query = loop_query,
    .progress = loop_progress,
    .close = psc_kit_close,
    .stop = psc_kit_stop,
    .fini = loop_fini,
    .ep_create = loop_ep_create,
    .ep_address = loop_ep_address,
    .ep_connect = loop_ep_connect,
    .ep_close = loop_ep_close,
    .ep_stop = loop_ep_stop,
    .ep_fini = loop_ep_fini,
    .am_bcopy = loop_am_bcopy,
    .am_short = loop_am_short,
    .put = loop_put,
    .put_am = loop_put_am,
    .get = loop_get,
    .mem_register = loop_mem_register,
    .mem_deregister = loop_mem_deregister,
    .rkey_pack = loop_rkey_pack,
    .rkey_unpack = loop_rkey_unpack,
    .rkey_release = psc_kit_rkey_release,
    .desc_release = loop_desc_release,
    .event_fd = loop_event_fd,
    .arm = loop_arm,
};

uintptr_t loop_transport(void)
{
    return (uintptr_t)&loop_ops;
}
