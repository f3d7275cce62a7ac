/* The transport for InfiniBand and RoCE by verbs: its operations table, and the
 * life of an interface. ib.h lists the files. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib.h"

/* ---- opening ---- */

static psc_status_t ib_iface_pools(ib_iface_t *iface, char *reason)
{
    const ib_settings_t *settings = &iface->settings;
    uint32_t n = iface->device.recvs, numbers[IB_BATCH];

    if (!ib_pool_open(&iface->recvs, &iface->device, settings->buffer_size, n,
                      0) ||
        !ib_pool_open(&iface->sends, &iface->device, settings->buffer_size,
                      settings->send_buffers, 0)) {
        snprintf(reason, PSC_REASON_MAX,
                 "no memory can be locked for buffers: %s (ulimit -l; "
                 "PSP_IB_SRQ_SIZE, PSP_IB_SEND_BUFFERS, PSP_IB_BUFFER_SIZE)",
                 strerror(errno));
        return PSC_ERR_NO_RESOURCE;
    }
    for (uint32_t i = 0; i < n; i += IB_BATCH) {
        uint32_t some = n - i < IB_BATCH ? n - i : IB_BATCH;

        for (uint32_t j = 0; j < some; j++)
            numbers[j] = i + j;
        if (ib_device_post_recvs(&iface->device, &iface->recvs, numbers, some) <
            some) {
            snprintf(reason, PSC_REASON_MAX,
                     "the receive queue takes less than %u buffers", n);
            return PSC_ERR_TRANSPORT;
        }
    }
    return PSC_OK;
}

static void ib_iface_introduce(ib_iface_t *iface)
{
    const ib_device_t *device = &iface->device;
    char name[PSC_REASON_MAX], domain[PSC_REASON_MAX];

    ib_device_name(device, name, sizeof(name));
    ib_device_domain(device, domain, sizeof(domain));
    psc_iface_log(&iface->super, 3,
                  "device %s, %d queue pairs, path MTU %u bytes, GID %u, %s",
                  name, device->attr.max_qp, 128u << device->mtu,
                  device->gid_index, domain);
}

/* Logs which devices were asked for but are not available, which queues are
 * shorter than the settings ask, and what a fork prevents. */
static void ib_iface_note(ib_iface_t *iface, const psc_open_params_t *params)
{
    const ib_choice_t *choice = &iface->settings.choice;
    const ib_device_t *device = &iface->device;

    if (params->path == 0 && params->reason[0])
        psc_iface_log(&iface->super, 1, "%s", params->reason);
    params->reason[0] = '\0';
    if (device->recvs < choice->recvs)
        psc_iface_log(&iface->super, 2,
                      "%u receive buffers, the device's most "
                      "(PSP_IB_SRQ_SIZE)",
                      device->recvs);
    if (device->comps < choice->comps)
        psc_iface_log(&iface->super, 2,
                      "%u completions, the device's most "
                      "(PSP_IB_COMPQ_SIZE)",
                      device->comps);
    if (!device->forks)
        psc_iface_log(&iface->super, 2,
                      "memory of the program and of received messages is "
                      "registered for each message: this kernel does not copy "
                      "registered pages at a fork");
}

static psc_status_t ib_iface_start(ib_iface_t *iface,
                                   const psc_open_params_t *params)
{
    psc_status_t status = ib_settings_read(params, &iface->settings);

    if (status != PSC_OK)
        return status;
    if (!ib_device_open(&iface->device, &iface->settings.choice,
                        params->reason))
        return PSC_ERR_TRANSPORT;
    ib_iface_note(iface, params);
    ib_settings_fit(&iface->settings, iface->device.recvs);
    ib_cache_open(&iface->cache, &iface->device, iface->settings.cache_regions,
                  iface->settings.cache_bytes);
    if (ib_sleep_open(iface) != PSC_OK) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "cannot open the descriptors to wait with: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return ib_iface_pools(iface, params->reason);
}

static void ib_fini(psc_iface_t *self);
static const psc_transport_ops_t ib_ops; /* defined at the end of this file */

static psc_status_t ib_open(const psc_open_params_t *params,
                            psc_iface_t **iface_p)
{
    ib_iface_t *iface = calloc(1, sizeof(*iface));
    psc_status_t status;

    if (!iface)
        return PSC_ERR_NO_MEMORY;
    iface->super = (psc_iface_t){&ib_ops, params->up, params->user};
    iface->epoll = -1;
    psc_kit_eps_init(&iface->eps, ib_control_send);
    psc_list_init(&iface->recovering);
    psc_list_init(&iface->ringing);
    status = ib_iface_start(iface, params);
    if (status != PSC_OK) {
        ib_fini(&iface->super);
        return status;
    }
    ib_iface_introduce(iface);
    *iface_p = &iface->super;
    return PSC_OK;
}

/* Returns the bandwidth of the port in bytes per second. */
static double ib_port_bandwidth(const struct ibv_port_attr *port)
{
    static const struct {
        uint8_t code;
        double gbit;
    } speeds[] = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                  {16, 14}, {32, 25}, {64, 50}, {128, 100}};
    static const struct {
        uint8_t code, lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    double gbit = 10, lanes = 1;

    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
        gbit = speeds[i].code == port->active_speed ? speeds[i].gbit : gbit;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        lanes = widths[i].code == port->active_width ? widths[i].lanes : lanes;
    return gbit * lanes * 1e9 / 8;
}

static void ib_query(psc_iface_t *self, psc_iface_attr_t *attr_p)
{
    const ib_iface_t *iface = ib_iface(self);
    double bandwidth = ib_port_bandwidth(&iface->device.port_attr);

    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_AM_SHORT | PSC_CAP_PUT | PSC_CAP_GET |
                PSC_CAP_PUT_REMOTE | PSC_CAP_PUT_ENDS | PSC_CAP_EVENT |
                PSC_CAP_MEM_LOCAL | PSC_CAP_PUT_AM |
                (iface->device.forks ? PSC_CAP_FORK : 0),
        .max_short = 512,
        .max_bcopy =
            iface->settings.buffer_size - sizeof(psc_head_t) - IB_TAIL_ROOM,
        .max_iov = 64,
        .max_put = iface->device.port_attr.max_msg_sz,
        .max_get = iface->device.port_attr.max_msg_sz,
        .latency_ns = 1500,
        .overhead_ns = 200,
        .bandwidth = bandwidth,
        .copy_bandwidth = bandwidth,
        .reg_ns = 20000,
        .poll_ns = 60,
        .max_eps = (uint32_t)iface->device.attr.max_qp / 2,
        .paths = iface->device.paths,
        .rail = iface->device.rail,
    };
}

/* ---- shutting down ---- */

static void ib_iface_sum_up(ib_iface_t *iface)
{
    const ib_cache_t *cache = &iface->cache;

    if (!cache->pd)
        return;
    psc_iface_log(
        &iface->super, 4,
        "%" PRIu64 " registrations, %" PRIu64 " found again, "
        "%" PRIu64 " no longer right, %" PRIu64 " not kept%s",
        cache->registered, cache->found, cache->stale, cache->not_kept,
        cache->proof < 0 ? " (no proof that memory stays mapped)" : "");
}

static void ib_fini(psc_iface_t *self)
{
    ib_iface_t *iface = ib_iface(self);

    psc_kit_eps_end(&iface->eps);
    ib_iface_sum_up(iface);
    ib_cache_close(&iface->cache);
    ib_sleep_close(iface);
    if (iface->device.srq)
        ibv_destroy_srq(iface->device.srq);
    iface->device.srq = NULL;
    ib_pool_close(&iface->sends);
    ib_pool_close(&iface->recvs);
    ib_device_close(&iface->device);
    free(iface);
}

/* ---- progress ---- */

static unsigned ib_progress(psc_iface_t *self)
{
    ib_iface_t *iface = ib_iface(self);

    iface->in_progress = true;
    iface->handled = 0;
    if (iface->armed || ++iface->polls >= IB_QUIET_POLLS)
        ib_sleep_look(iface);
    ib_complete_poll(iface);
    ib_receive_poll(iface);
    if (!psc_list_empty(&iface->ringing))
        ib_ring_poll(iface);
    psc_kit_eps_send_credit(&iface->eps);
    if (!psc_list_empty(&iface->recovering))
        ib_recover_poll(iface);
    /* A failure is reported only after the messages that have arrived are
     * delivered. */
    if (!psc_list_empty(&iface->eps.failing) && iface->drained)
        iface->handled += psc_kit_eps_report(&iface->eps);
    iface->in_progress = false;
    psc_kit_eps_free(&iface->eps, ib_ep_free);
    return iface->handled;
}

/* ---- operations table ---- */

static const psc_transport_ops_t ib_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "ib",
    .open = ib_open,
    .query = ib_query,
    .progress = ib_progress,
    .close = psc_kit_close,
    .stop = psc_kit_stop,
    .fini = ib_fini,
    .ep_create = ib_ep_create,
    .ep_address = ib_ep_address,
    .ep_connect = ib_ep_connect,
    .ep_close = ib_ep_close,
    .ep_stop = ib_ep_stop,
    .ep_fini = ib_ep_fini,
    .am_bcopy = ib_am_bcopy,
    .am_short = ib_am_short,
    .put = ib_put,
    .put_am = ib_put_am,
    .get = ib_get,
    .mem_register = ib_mem_register,
    .mem_deregister = ib_mem_deregister,
    .mem_revoke = ib_mem_revoke,
    .rkey_pack = ib_rkey_pack,
    .rkey_unpack = ib_rkey_unpack,
    .rkey_release = psc_kit_rkey_release,
    .event_fd = ib_event_fd,
    .arm = ib_arm,
    .iface_counters = ib_iface_counters,
};

/* The only symbol that this library exports: returns the address of the
 * operations table. */
uintptr_t ib_transport(void)
{
    return (uintptr_t)&ib_ops;
}
