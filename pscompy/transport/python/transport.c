/* The operations table of a bridge; opening, polling, waking and ending. */
#include "bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pscompy/transport/kit/settings.h"
#include "pscompy/transport/kit/restart.h"

/* Setting that passes the bridge's address to `open`. The Python half
 * (declaration.py) adds it; no environment variable has this name. */
#define BRIDGE_SETTING "bridge"

static bridge_t *bridge_of(psc_iface_t *iface)
{
    return psc_container_of(iface, bridge_t, super);
}

/* ---- open and query ---- */

static psc_status_t bridge_open(const psc_open_params_t *params,
                                psc_iface_t **iface_p)
{
    int64_t handle = psc_setting_number(params, BRIDGE_SETTING);
    bridge_t *bridge = (bridge_t *)(uintptr_t)handle;

    if (!bridge || bridge->super.up) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "opened without a bridge of its own");
        return PSC_ERR_INVALID;
    }
    bridge->super.up = params->up;
    bridge->super.user = params->user;
    atomic_fetch_add(&bridge->references, 1);
    *iface_p = &bridge->super;
    return PSC_OK;
}

static void bridge_query(psc_iface_t *iface, psc_iface_attr_t *attr_p)
{
    const bridge_attr_t *attr = &bridge_of(iface)->attr;

    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_EVENT | (attr->node_only ? PSC_CAP_NODE : 0),
        .max_bcopy = attr->max_frame - sizeof(bridge_head_t),
        .max_iov = BRIDGE_IOV_MAX,
        .latency_ns = attr->latency_ns,
        .overhead_ns = 5e3, /* the cost of two queues and a switch of threads */
        .bandwidth = attr->bandwidth,
        .copy_bandwidth = attr->bandwidth,
        .poll_ns = 2,
        .paths = 1,
    };
}

/* ---- progress ---- */

/* Lets the pump deliver frames of this endpoint again, if half of the
 * endpoint's queue is free. The bridge's lock must be held. */
static void bridge_resume(bridge_t *bridge, bridge_ep_t *ep)
{
    bridge_item_t *item;

    if (!ep->held_up || ep->arrived > bridge->attr.queue / 2)
        return;
    item = bridge_item_create(BRIDGE_RESUME, ep->number, NULL, 0);
    if (!item)
        return; /* tried again when progress takes the endpoint's next frame */
    ep->held_up = false;
    bridge_command_push(bridge, item);
}

/* Takes the oldest event. *ep_p is the event's endpoint, or NULL if the
 * endpoint is closed or freed. */
static bridge_item_t *bridge_event_pop(bridge_t *bridge, psc_ep_t **ep_p)
{
    bridge_item_t *item = NULL;
    bridge_ep_t *ep = NULL;
    psc_link_t *link;

    psc_lock_acquire(&bridge->lock);
    link = psc_list_pop(&bridge->events);
    if (link) {
        item = psc_container_of(link, bridge_item_t, link);
        ep = bridge_ep_find(bridge, item->ep);
    }
    if (ep && item->kind == BRIDGE_ARRIVED) {
        ep->arrived--;
        bridge_resume(bridge, ep);
    }
    *ep_p = ep && !ep->closed ? &ep->super : NULL;
    psc_lock_release(&bridge->lock);
    return item;
}

/* Passes a frame to the core; bridge_deliver() has checked the lengths in its
 * head. Returns true if the core holds the item. */
static bool bridge_tell_frame(bridge_t *bridge, psc_ep_t *ep,
                              bridge_item_t *item)
{
    const bridge_head_t *head = (const bridge_head_t *)item->data;
    const uint8_t *header = item->data + sizeof *head;
    psc_am_t am = {
        .id = head->id,
        .header_len = head->header_len,
        .header = header,
        .payload = header + head->header_len,
        .len = item->len - sizeof *head - head->header_len,
        .desc = (psc_desc_t *)item,
    };

    return bridge->super.up->am_recv(ep, &am) == PSC_INPROGRESS;
}

static void bridge_tell(bridge_t *bridge, psc_ep_t *ep, bridge_item_t *item)
{
    bool held = false;

    if (!ep)
        ; /* the endpoint is closed or freed */
    else if (item->kind == BRIDGE_UP)
        bridge->super.up->ep_up(ep);
    else if (item->kind == BRIDGE_FAILED)
        bridge->super.up->ep_failed(ep, (psc_status_t)item->number,
                                    (const char *)item->data);
    else
        held = bridge_tell_frame(bridge, ep, item);
    if (!held)
        free(item);
}

/* Clears `busy` if all events were reported; later events set it again. */
static void bridge_quiet(bridge_t *bridge)
{
    uint64_t ignored;

    psc_lock_acquire(&bridge->lock);
    if (bridge->signalled &&
        PSC_RESTART(read(bridge->event_fd, &ignored, sizeof ignored)) ==
            sizeof ignored)
        bridge->signalled = false;
    if (psc_list_empty(&bridge->events))
        atomic_store_explicit(&bridge->busy, false, memory_order_relaxed);
    psc_lock_release(&bridge->lock);
}

static unsigned bridge_progress(psc_iface_t *iface)
{
    bridge_t *bridge = bridge_of(iface);
    unsigned n = 0;

    if (!atomic_load_explicit(&bridge->busy, memory_order_relaxed))
        return 0;
    while (n < BRIDGE_EVENTS_MAX) {
        psc_ep_t *ep;
        bridge_item_t *item = bridge_event_pop(bridge, &ep);

        if (!item)
            break;
        bridge_tell(bridge, ep, item);
        n++;
    }
    bridge_quiet(bridge);
    /* new room in an endpoint's send queue counts as an event, too */
    return n + 1;
}

/* ---- waking ---- */

int bridge_event_fd(psc_iface_t *iface)
{
    return bridge_of(iface)->event_fd;
}

psc_status_t bridge_arm(psc_iface_t *iface)
{
    bridge_t *bridge = bridge_of(iface);
    bool busy;

    psc_lock_acquire(&bridge->lock);
    busy = atomic_load_explicit(&bridge->busy, memory_order_relaxed);
    bridge->armed = !busy;
    psc_lock_release(&bridge->lock);
    return busy ? PSC_ERR_NO_RESOURCE : PSC_OK;
}

/* ---- ending ---- */

static void bridge_close(psc_iface_t *iface)
{
    bridge_end(bridge_of(iface));
}

static void bridge_fini(psc_iface_t *iface)
{
    bridge_release(bridge_of(iface));
}

const psc_transport_ops_t bridge_template = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .open = bridge_open,
    .query = bridge_query,
    .progress = bridge_progress,
    .close = bridge_close,
    .stop = psc_kit_stop,
    .fini = bridge_fini,
    .ep_create = bridge_ep_create,
    .ep_address = bridge_ep_address,
    .ep_connect = bridge_ep_connect,
    .ep_close = bridge_ep_close,
    .ep_stop = bridge_ep_stop,
    .ep_fini = bridge_ep_fini,
    .am_bcopy = bridge_am_bcopy,
    .desc_release = bridge_desc_release,
    .event_fd = bridge_event_fd,
    .arm = bridge_arm,
};
