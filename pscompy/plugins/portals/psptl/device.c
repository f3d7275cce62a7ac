/* Opening and closing an interface, its limits, and its descriptors. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "channel.h"
#include "pscompy/transport/kit/clock.h"
#include "match.h"

/* nanoseconds that psptl_device_close waits for the interface to give list
 * entries back */
#define DEVICE_SETTLE_NS 50000000ll
/* places of an event queue that events of this side's puts and gets may not
 * fill */
#define DEVICE_EQ_RESERVE 8u

/* ---- opening ---- */

static const char *device_flaw(const psptl_device_t *device)
{
    const psptl_settings_t *settings = &device->settings;
    const ptl_ni_limits_t *limits = &device->limits;
    uint32_t ring = settings->recvq + PSPTL_EXTRA_BUFFERS;

    if (limits->max_msg_size < settings->buffer_size)
        return "PSP_PORTALS_BUFFER_SIZE is more than the interface's longest "
               "message";
    if ((uint32_t)limits->max_entries <= ring ||
        (uint32_t)limits->max_list_size <= ring)
        return "PSP_PORTALS_RECVQ_SIZE is more than the interface's entries";
    if (settings->eq_size < ring + DEVICE_EQ_RESERVE ||
        settings->eq_size < settings->sendq + DEVICE_EQ_RESERVE)
        return "PSP_PORTALS_EQ_SIZE is less than the rings of one connection";
    return NULL;
}

static bool device_entry_open(psptl_device_t *device, psptl_entry_t *entry,
                              unsigned options, char *reason)
{
    int status = device->ni->PtlEQAlloc(device->handle,
                                        device->settings.eq_size, &entry->eq);

    if (status != PTL_OK) {
        snprintf(reason, PSPTL_REASON_MAX,
                 "no event queue of %u entries (error %d; "
                 "PSP_PORTALS_EQ_SIZE; fewer sessions in this process would "
                 "help, too)",
                 device->settings.eq_size, status);
        return false;
    }
    status = device->ni->PtlPTAlloc(device->handle, options, entry->eq,
                                    PTL_PT_ANY, &entry->pt);
    if (status != PTL_OK) {
        snprintf(reason, PSPTL_REASON_MAX,
                 "no portal table entry is free (error %d): fewer sessions in "
                 "this process would help",
                 status);
        device->ni->PtlEQFree(entry->eq);
        return false;
    }
    entry->open = true;
    return true;
}

static bool device_bind(psptl_device_t *device, char *reason)
{
    ptl_md_t md = {
        .start = 0,
        .length = PTL_SIZE_MAX,
        .options = PTL_MD_EVENT_SEND_DISABLE,
        .eq_handle = device->bulk.eq,
        .ct_handle = PTL_CT_NONE,
    };
    int status = device->ni->PtlMDBind(device->handle, &md, &device->md);

    if (status != PTL_OK)
        snprintf(reason, PSPTL_REASON_MAX, "no memory descriptor (error %d)",
                 status);
    device->bound = status == PTL_OK;
    return device->bound;
}

/* Converts PSP_PORTALS_INTERFACE. Returns false if the text is neither empty,
 * nor a number, nor an IPv4 address. */
static bool device_interface(const char *text, ptl_interface_t *interface_p)
{
    struct in_addr address;
    unsigned long long number;
    char *end;

    *interface_p = PTL_IFACE_DEFAULT;
    if (!*text)
        return true;
    if (inet_pton(AF_INET, text, &address) == 1) {
        *interface_p = (ptl_interface_t)ntohl(address.s_addr);
        return true;
    }
    number = strtoull(text, &end, 10);
    *interface_p = (ptl_interface_t)number;
    return isdigit((unsigned char)*text) && !*end && number <= UINT32_MAX;
}

/* Requests the highest limits that the driver can use; the interface returns
 * the limits that it grants. */
static const ptl_ni_limits_t device_desired = {
    .max_entries = 1 << 18,
    .max_unexpected_headers = 1 << 16,
    .max_mds = 64,
    .max_cts = 64,
    .max_eqs = 64,
    .max_pt_index = 63,
    .max_iovecs = 16,
    .max_list_size = 1 << 18,
    .max_triggered_ops = 64,
    .max_msg_size = PTL_SIZE_MAX,
    .max_atomic_size = 8,
    .max_fetch_atomic_size = 8,
    .max_waw_ordered_size = 8,
    .max_war_ordered_size = 8,
    .max_volatile_size = 64,
};

static bool device_ni_open(psptl_device_t *device, char *reason)
{
    const psptl_settings_t *settings = &device->settings;
    ptl_interface_t interface;
    int status;

    device->ni = psptl_provider_start(settings->provider, reason);
    if (!device->ni)
        return false;
    if (!device_interface(settings->interface, &interface)) {
        snprintf(reason, PSPTL_REASON_MAX,
                 "PSP_PORTALS_INTERFACE=%s is neither a number nor an IPv4 "
                 "address",
                 settings->interface);
        return false;
    }
    status = device->ni->PtlNIInit(interface, PTL_NI_MATCHING | PTL_NI_PHYSICAL,
                                   PTL_PID_ANY, &device_desired,
                                   &device->limits, &device->handle);
    if (status != PTL_OK) {
        snprintf(reason, PSPTL_REASON_MAX,
                 "no interface (error %d; PSP_PORTALS_INTERFACE, "
                 "PSP_PORTALS_PROVIDER)",
                 status);
        return false;
    }
    device->opened = true;
    status = device->ni->PtlGetPhysId(device->handle, &device->self);
    if (status != PTL_OK)
        snprintf(reason, PSPTL_REASON_MAX,
                 "the interface does not report its id (error %d)", status);
    return status == PTL_OK;
}

static bool device_start(psptl_device_t *device, char *reason)
{
    const char *flaw;

    if (!device_ni_open(device, reason))
        return false;
    flaw = device_flaw(device);
    if (flaw) {
        snprintf(reason, PSPTL_REASON_MAX, "%s", flaw);
        return false;
    }
    if (device->settings.fragment > device->limits.max_msg_size)
        device->settings.fragment = device->limits.max_msg_size;
    device->flying_max = device->settings.eq_size - DEVICE_EQ_RESERVE;
    snprintf(reason, PSPTL_REASON_MAX, "out of memory");
    return getrandom(&device->bits, sizeof(device->bits), 0) ==
               sizeof(device->bits) &&
           psptl_bulk_open(device) &&
           device_entry_open(device, &device->eager, PTL_PT_FLOWCTRL, reason) &&
           device_entry_open(device, &device->bulk, 0, reason) &&
           (!device->settings.matching ||
            device_entry_open(device, &device->tag, PTL_PT_FLOWCTRL, reason)) &&
           device_bind(device, reason);
}

static void device_lists(psptl_device_t *device)
{
    psc_list_init(&device->channels);
    psc_list_init(&device->zombies);
    psc_list_init(&device->waiting);
    psc_list_init(&device->pending);
    psc_list_init(&device->bulks);
    psc_list_init(&device->ended_bulks);
    psc_list_init(&device->spare_bulks);
    psc_list_init(&device->spare_fragments);
    psc_list_init(&device->late_fragments);
    psc_list_init(&device->lost_tags);
    psc_list_init(&device->spare_tags);
    psc_list_init(&device->unsettled);
    psc_list_init(&device->busy_regions);
}

psptl_device_t *psptl_device_open(const psptl_settings_t *settings,
                                  const psptl_owner_t *owner, char *reason)
{
    psptl_device_t *device = calloc(1, sizeof(*device));

    if (!device) {
        snprintf(reason, PSPTL_REASON_MAX, "out of memory");
        return NULL;
    }
    device->settings = *settings;
    device->owner = owner;
    device_lists(device);
    if (device_start(device, reason)) {
        /* settings.interface points to memory of the caller, which may be freed
         * after this call */
        device->settings.interface = "";
        return device;
    }
    psptl_device_close(device);
    return NULL;
}

/* ---- closing ---- */

/* Frees a portal table entry and its event queue. Returns false if list entries
 * are still appended to the portal table entry. */
static bool device_entry_close(psptl_device_t *device, psptl_entry_t *entry)
{
    bool empty;

    if (!entry->open)
        return true;
    empty = device->ni->PtlPTFree(device->handle, entry->pt) == PTL_OK;
    device->ni->PtlEQFree(entry->eq);
    entry->open = false;
    return empty;
}

/* Releases the memory descriptor and the portal table entries. Returns true if
 * the interface has given back all list entries. */
static bool device_release(psptl_device_t *device)
{
    bool all = !device->bound || device->ni->PtlMDRelease(device->md) == PTL_OK;

    all &= device_entry_close(device, &device->eager);
    all &= device_entry_close(device, &device->bulk);
    return device_entry_close(device, &device->tag) && all;
}

/* Waits a bounded time for messages that are arriving in buffers of destroyed
 * channels. A message that does not end in this time belongs to a peer that has
 * stopped or died. */
static void device_settle(psptl_device_t *device)
{
    int64_t deadline = psc_clock_deadline(DEVICE_SETTLE_NS);

    while (psptl_channel_held(device) > 0 && psc_clock_now() < deadline)
        psptl_device_poll(device);
}

/* Returns true if other code of this process has opened the same interface,
 * too: then the interface stays open and may still write to memory. */
static bool device_shared(const psptl_device_t *device)
{
    ptl_process_t id;

    return device->opened &&
           device->ni->PtlGetPhysId(device->handle, &id) == PTL_OK;
}

/* Frees the channels. If `touched`, leaks those to whose memory the interface
 * may still write, and returns their number. */
static unsigned device_free_zombies(psptl_device_t *device, bool touched)
{
    unsigned left = 0;

    psc_list_for_each(zombie, &device->zombies, psptl_channel_t, link) {
        if (touched && !zombie->withdrawn_at)
            left++;
        else
            psptl_channel_free(zombie);
    }
    return left;
}

/* Closes the interface before the rings are freed, so that no message is
 * written to freed memory. */
unsigned psptl_device_close(psptl_device_t *device)
{
    unsigned left;
    bool touched;

    psc_list_for_each(channel, &device->channels, psptl_channel_t, link)
        psptl_channel_destroy(channel);
    device_settle(device);
    touched = !device_release(device);
    if (device->opened)
        device->ni->PtlNIFini(device->handle);
    touched = touched && device_shared(device);
    left = device_free_zombies(device, touched);
    psptl_region_free_closed(device);
    psptl_bulk_close(device);
    psptl_tag_close(device);
    psptl_backlog_close(&device->backlog);
    free(device);
    return left;
}

/* ---- waiting ---- */

unsigned psptl_device_fds(psptl_device_t *device, int fds[PSPTL_FDS])
{
    if (!device->ni->softni_eq_fd ||
        device->ni->softni_eq_fd(device->eager.eq, &fds[0]) != PTL_OK ||
        device->ni->softni_eq_fd(device->bulk.eq, &fds[1]) != PTL_OK)
        return 0;
    if (!device->tag.open)
        return 2;
    return device->ni->softni_eq_fd(device->tag.eq, &fds[2]) == PTL_OK ? 3 : 0;
}

bool psptl_device_arm(psptl_device_t *device)
{
    return psptl_backlog_empty(device) && psc_list_empty(&device->pending) &&
           psc_list_empty(&device->ended_bulks) &&
           psc_list_empty(&device->lost_tags) && !device->tag.disabled &&
           device->ni->softni_eq_arm(device->eager.eq) == PTL_EQ_EMPTY &&
           device->ni->softni_eq_arm(device->bulk.eq) == PTL_EQ_EMPTY &&
           (!device->tag.open ||
            device->ni->softni_eq_arm(device->tag.eq) == PTL_EQ_EMPTY);
}

const char *psptl_device_name(const psptl_device_t *device)
{
    return device->ni->name;
}

const uint64_t *psptl_device_counters(const psptl_device_t *device)
{
    return device->counters;
}

static uint32_t device_length(const psc_list_t *list)
{
    uint32_t n = 0;

    for (const psc_link_t *link = list->next; link != list; link = link->next)
        n++;
    return n;
}

psptl_holdings_t psptl_device_holdings(const psptl_device_t *device)
{
    return (psptl_holdings_t){
        .channels = device_length(&device->channels),
        .lingering = device_length(&device->zombies),
        .transfers = device->n_bulks,
        .spare = device_length(&device->spare_bulks) +
                 device_length(&device->spare_tags),
        .busy_regions = device_length(&device->busy_regions),
    };
}

void psptl_channel_counters(const psptl_channel_t *channel,
                            uint64_t values[PSPTL_N_COUNTERS])
{
    static const psptl_counter_t shared[] = {PSPTL_COUNTER_enables,
                                             PSPTL_COUNTER_tag_enables,
                                             PSPTL_COUNTER_foster_polls};

    memcpy(values, channel->counters, sizeof(channel->counters));
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        values[shared[i]] = channel->device->counters[shared[i]];
}
