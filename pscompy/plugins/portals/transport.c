/* Portals 4: the operations table, and the life of an interface. portals.h has
 * a list of the files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "portals.h"

/* ---- upcalls from the driver ---- */

static void portals_room(void *owner)
{
    portals_ep_t *ep = owner;

    ep->kit.active_since_tick = true;
}

static void portals_failed(void *owner, psptl_verdict_t verdict,
                           const char *reason)
{
    portals_ep_t *ep = owner;

    ep->cut = true;
    psc_kit_ep_fail(&ep->kit, portals_status_of(verdict), "%s", reason);
}

static const psptl_owner_t portals_owner = {
    .arrived = portals_arrived,
    .tagged = portals_tagged,
    .room = portals_room,
    .failed = portals_failed,
    .done = portals_bulk_done,
};

/* ---- opening ---- */

static psc_status_t portals_iface_start(portals_iface_t *iface,
                                        const psc_open_params_t *params)
{
    psc_status_t status = portals_settings_read(params, &iface->settings);

    if (status != PSC_OK)
        return status;
    /* the interface can match messages only if there is the upcall
     * tag_unexpected, for messages without a receive */
    if (!params->up->tag_unexpected)
        iface->settings.driver.matching = false;
    iface->device = psptl_device_open(&iface->settings.driver, &portals_owner,
                                      params->reason);
    if (!iface->device)
        return PSC_ERR_TRANSPORT;
    if (portals_sleep_open(iface) != PSC_OK) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "cannot open the descriptors to wait with: %s",
                 strerror(errno));
        return PSC_ERR_TRANSPORT;
    }
    return PSC_OK;
}

static void portals_fini(psc_iface_t *self);
/* the table is defined at the end of this file */
static const psc_transport_ops_t portals_ops;

static psc_status_t portals_open(const psc_open_params_t *params,
                                 psc_iface_t **iface_p)
{
    portals_iface_t *iface = calloc(1, sizeof(*iface));
    psc_status_t status;

    if (!iface)
        return PSC_ERR_NO_MEMORY;
    iface->super = (psc_iface_t){&portals_ops, params->up, params->user};
    iface->epoll = iface->alarm = -1;
    psc_kit_eps_init(&iface->eps, portals_control_send);
    iface->alarm_ns = INT64_MAX;
    status = portals_iface_start(iface, params);
    if (status != PSC_OK) {
        portals_fini(&iface->super);
        return status;
    }
    *iface_p = &iface->super;
    return PSC_OK;
}

static void portals_query(psc_iface_t *self, psc_iface_attr_t *attr_p)
{
    const portals_settings_t *paths = &portals_iface(self)->settings;
    const psptl_settings_t *settings = &paths->driver;

    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_AM_SHORT | PSC_CAP_PUT | PSC_CAP_GET |
                PSC_CAP_PUT_REMOTE | PSC_CAP_EVENT | PSC_CAP_FORK |
                (settings->matching ? PSC_CAP_TAG : 0),
        .max_short = 512,
        .max_bcopy = settings->buffer_size - sizeof(psc_head_t),
        .max_iov = 64,
        .max_put = PORTALS_BULK_MAX,
        .max_get = PORTALS_BULK_MAX,
        .latency_ns = 10000,
        .overhead_ns = 1000,
        .bandwidth = 2e9,
        .copy_bandwidth = 1e9,
        .reg_ns = 1000,
        .poll_ns = 300,
        .paths = paths->paths,
        .rail = paths->path,
    };
}

/* ---- shutting down ---- */

static void portals_count_log(portals_iface_t *iface)
{
    static const char *const names[] = {
#define PORTALS_COUNTER_NAME(name) #name,
        PSPTL_COUNTER_LIST(PORTALS_COUNTER_NAME)
#undef PORTALS_COUNTER_NAME
    };
    const uint64_t *counters = psptl_device_counters(iface->device);
    char line[PSC_REASON_MAX] = "";
    int at = 0;

    for (int i = 0; i < PSPTL_N_COUNTERS; i++) {
        if (counters[i] > 0 && at < (int)sizeof(line))
            at += snprintf(line + at, sizeof(line) - (size_t)at, " %s %llu",
                           names[i], (unsigned long long)counters[i]);
    }
    psc_iface_log(&iface->super, 3, "%s:%s", psptl_device_name(iface->device),
                  line);
}

static void portals_iface_leave(portals_iface_t *iface)
{
    unsigned left = psptl_device_close(iface->device);

    if (left > 0)
        psc_iface_log(&iface->super, 2,
                      "the buffers of %u connections stay allocated: another "
                      "session of this process has the same interface, which "
                      "has not given them back",
                      left);
}

static void portals_fini(psc_iface_t *self)
{
    portals_iface_t *iface = portals_iface(self);

    psc_kit_eps_end(&iface->eps);
    if (iface->device) {
        portals_count_log(iface);
        portals_iface_leave(iface);
    }
    portals_sleep_close(iface);
    free(iface);
}

/* ---- progress ---- */

static unsigned portals_progress(psc_iface_t *self)
{
    portals_iface_t *iface = portals_iface(self);

    iface->in_progress = true;
    iface->handled = 0;
    if (iface->armed || ++iface->polls >= PORTALS_QUIET_POLLS)
        portals_sleep_look(iface);
    iface->handled += psptl_device_poll(iface->device);
    psc_kit_eps_send_credit(&iface->eps);
    /* psptl_device_poll has delivered an endpoint's messages before the
     * endpoint's end is reported here. */
    if (!psc_list_empty(&iface->eps.failing))
        iface->handled += psc_kit_eps_report(&iface->eps);
    iface->in_progress = false;
    psc_kit_eps_free(&iface->eps, portals_ep_free);
    return iface->handled;
}

/* ---- counters ---- */

uint32_t portals_iface_counters(const psc_iface_t *self,
                                psc_counted_t *counters, uint32_t room)
{
    const portals_iface_t *iface = (const portals_iface_t *)self;
    psptl_holdings_t held = psptl_device_holdings(iface->device);

    if (room < 5)
        return 0;
    counters[0] = (psc_counted_t){"portals_channels", held.channels};
    counters[1] = (psc_counted_t){"portals_lingering", held.lingering};
    counters[2] = (psc_counted_t){"portals_transfers", held.transfers};
    counters[3] = (psc_counted_t){"portals_spare", held.spare};
    counters[4] = (psc_counted_t){"portals_busy_regions", held.busy_regions};
    return 5;
}

/* ---- the table ---- */

static const psc_transport_ops_t portals_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "portals",
    .open = portals_open,
    .query = portals_query,
    .progress = portals_progress,
    .close = psc_kit_close,
    .stop = psc_kit_stop,
    .fini = portals_fini,
    .ep_create = portals_ep_create,
    .ep_address = portals_ep_address,
    .ep_connect = portals_ep_connect,
    .ep_spare = portals_ep_spare,
    .ep_close = portals_ep_close,
    .ep_stop = portals_ep_stop,
    .ep_fini = portals_ep_fini,
    .am_bcopy = portals_am_bcopy,
    .am_short = portals_am_short,
    .put = portals_put,
    .get = portals_get,
    .mem_register = portals_mem_register,
    .mem_deregister = portals_mem_deregister,
    .mem_revoke = portals_mem_revoke,
    .rkey_pack = portals_rkey_pack,
    .rkey_unpack = portals_rkey_unpack,
    .rkey_release = psc_kit_rkey_release,
    .tag_ready = portals_tag_ready,
    .tag_post = portals_tag_post,
    .tag_cancel = portals_tag_cancel,
    .tag_send = portals_tag_send,
    .tag_put = portals_tag_put,
    .event_fd = portals_event_fd,
    .arm = portals_arm,
    .ep_counters = portals_ep_counters,
    .iface_counters = portals_iface_counters,
};

/* Returns the address of the operations table. Only this function and
 * portals_has_library are exported symbols. */
uintptr_t portals_transport(void)
{
    return (uintptr_t)&portals_ops;
}

/* Returns whether this machine has a library of Portals 4. */
int portals_has_library(void)
{
    return psptl_has_library();
}

void portals_software_at(const char *path)
{
    psptl_software_at(path);
}
