/* The pump's side of a bridge (see pump.h). */
#include "pump.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bridge.h"
#include "pscompy/transport/kit/restart.h"

/* ---- life ---- */

static void bridge_lists_init(bridge_t *bridge)
{
    psc_list_init(&bridge->commands);
    psc_list_init(&bridge->events);
    for (unsigned i = 0; i < BRIDGE_BUCKETS; i++)
        psc_list_init(&bridge->eps[i]);
}

static bool bridge_attr_sane(const bridge_attr_t *attr, size_t address_len)
{
    return attr->max_frame >= 1024 + sizeof(bridge_head_t) &&
           attr->queue >= 1 && attr->latency_ns > 0 && attr->bandwidth > 0 &&
           address_len <= PSC_ADDRESS_MAX - BRIDGE_NUMBER_SIZE;
}

bridge_t *bridge_create(const char *name, const bridge_attr_t *attr,
                        const uint8_t *address, size_t len)
{
    bridge_t *bridge;

    if (!bridge_attr_sane(attr, len) || strlen(name) >= sizeof bridge->name)
        return NULL;
    bridge = calloc(1, sizeof *bridge);
    if (!bridge)
        return NULL;
    strcpy(bridge->name, name);
    bridge->ops = bridge_template;
    bridge->ops.name = bridge->name;
    bridge->super.ops = &bridge->ops;
    bridge->attr = *attr;
    bridge->address_len = len;
    if (len)
        memcpy(bridge->address, address, len);
    atomic_init(&bridge->references, 1);
    bridge_lists_init(bridge);
    bridge->pump_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bridge->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bridge->pump_fd >= 0 && bridge->event_fd >= 0)
        return bridge;
    bridge_release(bridge);
    return NULL;
}

uintptr_t bridge_ops(bridge_t *bridge)
{
    return (uintptr_t)&bridge->ops;
}

int bridge_fd(bridge_t *bridge)
{
    return bridge->pump_fd;
}

/* ---- commands ---- */

/* Takes the oldest command, or returns NULL. pump_fd is cleared under the lock
 * if no command is queued; a command that is pushed later makes it readable
 * again. */
static bridge_item_t *bridge_command_pop(bridge_t *bridge, bool *ended_p)
{
    psc_link_t *link;
    uint64_t ignored;

    psc_lock_acquire(&bridge->lock);
    link = psc_list_pop(&bridge->commands);
    *ended_p = !link && bridge->ended;
    if (!link &&
        PSC_RESTART(read(bridge->pump_fd, &ignored, sizeof ignored)) < 0)
        /* read() has failed because the descriptor was not readable */
        ignored = 0;
    psc_lock_release(&bridge->lock);
    return link ? psc_container_of(link, bridge_item_t, link) : NULL;
}

int bridge_take(bridge_t *bridge, bridge_command_t *command_p)
{
    bool ended;
    bridge_item_t *item = bridge_command_pop(bridge, &ended);

    bridge_item_wipe(bridge->taken);
    bridge->taken = item;
    if (!item) {
        *command_p = (bridge_command_t){.kind = BRIDGE_END};
        return ended;
    }
    *command_p = (bridge_command_t){
        .kind = (bridge_kind_t)item->kind,
        .ep = item->ep,
        .role = item->number,
        .token = item->token,
        .peer = item->peer,
        .data = item->data,
        .len = item->len,
    };
    return 1;
}

/* ---- events ---- */

void bridge_frame_done(bridge_t *bridge, uint64_t number)
{
    bridge_ep_t *ep;

    psc_lock_acquire(&bridge->lock);
    ep = bridge_ep_find(bridge, number);
    if (ep && ep->sending > 0) {
        ep->sending--;
        if (ep->starved)
            bridge_wake(bridge);
        ep->starved = false;
    }
    psc_lock_release(&bridge->lock);
}

static psc_status_t frame_check(const bridge_t *bridge, const uint8_t *frame,
                                size_t len)
{
    bridge_head_t head;

    if (len < sizeof head || len > bridge->attr.max_frame)
        return PSC_ERR_PROTOCOL;
    memcpy(&head, frame, sizeof head);
    if (head.header_len > PSC_AM_HEADER_MAX ||
        head.header_len > len - sizeof head)
        return PSC_ERR_PROTOCOL;
    return PSC_OK;
}

int bridge_deliver(bridge_t *bridge, uint64_t number, const uint8_t *frame,
                   size_t len)
{
    psc_status_t status = frame_check(bridge, frame, len);
    bridge_item_t *item;
    bridge_ep_t *ep;

    if (status != PSC_OK)
        return status;
    item = bridge_item_create(BRIDGE_ARRIVED, number, frame, len);
    if (!item)
        return PSC_ERR_NO_MEMORY;
    psc_lock_acquire(&bridge->lock);
    ep = bridge_ep_find(bridge, number);
    if (ep && ep->arrived >= bridge->attr.queue) {
        ep->held_up = true;
        status = PSC_ERR_NO_RESOURCE;
    } else if (ep) {
        ep->arrived++;
        bridge_event_push(bridge, item);
        item = NULL;
    }
    psc_lock_release(&bridge->lock);
    free(item);
    return status;
}

void bridge_ep_up(bridge_t *bridge, uint64_t number)
{
    bridge_ep_t *ep;

    psc_lock_acquire(&bridge->lock);
    ep = bridge_ep_find(bridge, number);
    if (ep && !ep->up && ep->failed == PSC_OK) {
        bridge_event_push(bridge, ep->up_event);
        ep->up_event = NULL;
    }
    if (ep)
        ep->up = true;
    psc_lock_release(&bridge->lock);
}

void bridge_ep_failed(bridge_t *bridge, uint64_t number, int status,
                      const char *reason)
{
    bridge_ep_t *ep;

    psc_lock_acquire(&bridge->lock);
    ep = bridge_ep_find(bridge, number);
    if (ep && ep->failed == PSC_OK) {
        ep->failed = status < 0 ? (psc_status_t)status : PSC_ERR_TRANSPORT;
        ep->failed_event->number = ep->failed;
        memcpy(ep->failed_event->data, reason,
               strnlen(reason, PSC_REASON_MAX - 1));
        bridge_event_push(bridge, ep->failed_event);
        ep->failed_event = NULL;
    }
    psc_lock_release(&bridge->lock);
}

void bridge_ep_closed(bridge_t *bridge, uint64_t number)
{
    bridge_ep_t *ep;

    psc_lock_acquire(&bridge->lock);
    ep = bridge_ep_find(bridge, number);
    if (ep) {
        ep->stopped = true;
        bridge_wake(bridge);
    }
    psc_lock_release(&bridge->lock);
}
